"""One label a row -> one class index a row.

The class order, what counts as missing, and what is left out on request.
"""

from __future__ import annotations

import numbers
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from optgeom.errors import InvalidInputError
from optgeom.formatting import first_of

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,100}")
_ONE_LABEL = "one whole number or text a row"
Where = Callable[[int], str]  # what to call a row of a part that is read of a longer column


def plain_row(row: int) -> str:
    """The name of a row of a column that is read whole."""
    return f"row {row}"


@dataclass(frozen=True, eq=False)
class EncodedLabels:
    """Labels as class indices.

    Attributes
    ----------
    names : tuple of str, length C
        The classes that occur, in class order, each by its text.
    codes : (n,) intp
        Class index of each row, -1 for a row with an ignored label. Read-only.
    notes : tuple of str
        What was done to the labels beyond reading them (one-hot rows converted, rows left out).
    """

    names: tuple[str, ...]
    codes: npt.NDArray[np.intp]
    notes: tuple[str, ...] = ()

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """(C,) number of rows of each class; every one is positive."""
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.names)).astype(np.int64)


def encode(labels: Any, ignore: Sequence[int | str] = ()) -> EncodedLabels:
    """Find the classes of a column of labels.

    Parameters
    ----------
    labels : array-like of shape (n,)
        Whole numbers (also as floats), text, bytes (UTF-8) or booleans; anything with `__array__`, such as a tensor on
        the CPU. A table (n, C) of exact one-hot rows is converted to its column numbers and a column (n, 1) is
        flattened; a note says so.
    ignore : sequence of int or str
        Labels to leave out, such as -1 or 255. None by default: -1 is a class like any other unless it is named here.

    Returns
    -------
    EncodedLabels
        Class order: whole numbers ascending, False before True, text by code point; but when every label is the text of
        a whole number, by value and then by text ("7" and "07" are two classes, since their texts differ).

    Raises
    ------
    InvalidInputError
        A missing label (NaN, None, empty text; text "nan" among whole numbers), a fraction, mixed kinds, several labels
        a row, or no row at all. The message names the first row (from 0) at fault.
    """
    array, notes = one_column(as_array(labels))
    if array.size == 0:
        raise InvalidInputError(
            "`labels` must have at least one row; got none (check that the file or the filter is the right one)"
        )
    if array.dtype.kind == "O":
        array = same_kind(array)
    if array.dtype.kind == "f":
        array = whole_numbers(array)
    if array.dtype.kind == "b":
        found, codes = distinct_integers(array.astype(np.int64))
        names = tuple(str(bool(value)) for value in found.tolist())
    elif array.dtype.kind in "iu":
        found, codes = distinct_integers(array)
        names = tuple(map(str, found.tolist()))
    elif array.dtype.kind in "US":
        names, codes = _distinct_texts(array)
    else:
        raise InvalidInputError(
            f"`labels` must be {_ONE_LABEL}; got values of type {array.dtype} (convert them to int or str)"
        )
    names, codes, left_out = _leave_out(names, codes, ignore)
    if not names:
        raise InvalidInputError(
            f"`labels` must have a label that is not ignored; got only {', '.join(map(str, ignore))} (ignore fewer)"
        )
    codes.setflags(write=False)
    return EncodedLabels(names, codes, (*notes, *left_out))


def as_array(labels: Any) -> npt.NDArray[Any]:
    """Labels as numpy sees them; a list of text with other things in it stays one of objects."""
    try:
        array = np.asarray(labels)
    except (TypeError, ValueError, RuntimeError) as error:
        if isinstance(labels, (list, tuple)):
            raise InvalidInputError(
                f"`labels` must be {_ONE_LABEL}; got rows of different lengths "
                "(multi-label targets have no single class: give each row one label)"
            ) from error
        raise InvalidInputError(
            f"`labels` must be {_ONE_LABEL}; got {type(labels).__name__}: {error} (pass a numpy array)"
        ) from error
    # numpy turns ["a", nan] into text, which would make "nan" a class.
    listed = isinstance(labels, (list, tuple)) and array.ndim == 1
    if array.dtype.kind in "US" and listed and not all(isinstance(label, (str, bytes)) for label in labels):
        array = np.array(labels, dtype=object)
    return array


def one_column(array: npt.NDArray[Any], where: Where = plain_row) -> tuple[npt.NDArray[Any], list[str]]:
    """Flatten (n, 1), convert one-hot (n, C), refuse other tables."""
    if array.ndim == 1:
        return array, []
    if array.ndim != 2:
        raise InvalidInputError(
            f"`labels` must be {_ONE_LABEL}; got shape {array.shape} (pass a one-dimensional array)"
        )
    if array.shape[1] == 1:
        return array[:, 0], [f"labels were a column of shape {array.shape}: flattened"]
    if array.dtype.kind not in "biuf":
        raise InvalidInputError(
            f"`labels` must be {_ONE_LABEL}; got shape {array.shape} (give the column with the class)"
        )
    ones = array == 1
    wrong = np.flatnonzero((ones.sum(axis=1) != 1) | ((array != 0).sum(axis=1) != 1))
    if wrong.size:
        row = int(wrong[0])
        held = ", ".join(str(value) for value in array[row, :8].tolist()) + (", ..." if array.shape[1] > 8 else "")
        raise InvalidInputError(
            f"`labels` must be {_ONE_LABEL}; got a table of shape {array.shape} whose {where(row)} is [{held}] "
            "(multi-label targets have no single class: give each row one label; only exact one-hot rows are converted)"
        )
    notes = [f"labels were one-hot rows of shape {array.shape}: converted to column numbers"]
    empty = np.flatnonzero(~ones.any(axis=0))
    if empty.size:
        notes.append(f"one-hot columns without samples are no classes: {first_of(map(str, empty.tolist()))}")
    return ones.argmax(axis=1), notes


def missing_label(where: str, value: object) -> InvalidInputError:
    """The error for a row without a label."""
    return InvalidInputError(
        f"`labels` must not be missing; got {value!r} in {where} (drop the row, or give it a label)"
    )


def same_kind(array: npt.NDArray[Any], where: Where = plain_row) -> npt.NDArray[Any]:
    """An object array as text or as numbers; pandas gives object arrays for text columns."""
    values = array.tolist()
    for row, value in enumerate(values):
        if value is None or (isinstance(value, numbers.Real) and value != value):
            raise missing_label(where(row), value)
        if not isinstance(value, (str, bytes, numbers.Real)):
            raise InvalidInputError(
                f"`labels` must be {_ONE_LABEL}; got {value!r} in {where(row)} (convert the labels to int or str)"
            )
        if isinstance(value, (str, bytes)) != isinstance(values[0], (str, bytes)):
            held = f"{values[0]!r} in {where(0)} and {value!r} in {where(row)}"
            raise InvalidInputError(f"`labels` must be all numbers or all text; got {held} (convert one kind)")
    if isinstance(values[0], (str, bytes)):
        return np.array([value.decode("utf-8", "replace") if isinstance(value, bytes) else value for value in values])
    converted = np.array(values)
    if converted.dtype.kind == "O":
        raise InvalidInputError(
            "`labels` must be whole numbers of at most 64 bits; got a larger one (use the text of the number)"
        )
    return converted


def whole_numbers(array: npt.NDArray[Any], where: Where = plain_row) -> npt.NDArray[np.int64]:
    """Floats that are whole numbers as such.

    NaN is refused as missing, fractions and numbers above 2^53 as no classes.
    """
    missing = np.isnan(array)
    if missing.any():
        row = int(missing.argmax())
        raise missing_label(where(row), float("nan"))
    # Above 2^53 neighbouring whole numbers share one float64, so two classes could be one.
    wrong = (array != np.floor(array)) | (np.abs(array) > 2**53)
    if wrong.any():
        row = int(wrong.argmax())
        raise InvalidInputError(
            f"`labels` must be whole numbers; got {float(array[row])!r} in {where(row)} "
            "(real-valued targets are no classes: bin them first)"
        )
    return array.astype(np.int64)


def distinct_integers(array: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[np.intp]]:
    """The distinct values, ascending, and the place of each entry among them."""
    lowest, highest = int(array.min()), int(array.max())
    if highest - lowest > 4 * array.size:
        found, codes = np.unique(array, return_inverse=True)
        return found, codes.astype(np.intp)
    # Labels are nearly always 0..C-1: a table of all values in the range is then far cheaper than a sort of the rows.
    offset = (array - array.min()).astype(np.intp) if array.dtype.kind == "u" else array.astype(np.intp) - lowest
    present = np.flatnonzero(np.bincount(offset))
    lookup = np.zeros(highest - lowest + 1, dtype=np.intp)
    lookup[present] = np.arange(present.size)
    found = np.array([lowest + int(value) for value in present])
    return found, lookup[offset]


def _distinct_texts(array: npt.NDArray[Any]) -> tuple[tuple[str, ...], npt.NDArray[np.intp]]:
    if array.dtype.kind == "S":
        try:
            array = np.char.decode(array, "utf-8")
        except UnicodeDecodeError as error:
            raise InvalidInputError(
                f"`labels` must be UTF-8 text; got bytes that are not: {error.reason} (decode them first)"
            ) from error
    found, codes = np.unique(array, return_inverse=True)
    names: list[str] = found.tolist()
    numeric = [bool(_WHOLE_NUMBER.fullmatch(name)) for name in names]
    for position, name in enumerate(names):
        # "nan" may be a word, but among whole numbers it is what a table writer leaves for a missing value.
        if not name.strip() or (name.strip().lower() == "nan" and sum(numeric) == len(names) - 1 > 0):
            raise missing_label(plain_row(int(np.flatnonzero(codes == position)[0])), name)
    order = list(range(len(names)))
    if all(numeric):
        order.sort(key=lambda position: (int(names[position]), names[position]))
    rank = np.empty(len(names), dtype=np.intp)
    rank[order] = np.arange(len(names))
    return tuple(names[position] for position in order), rank[codes]


def _leave_out(
    names: tuple[str, ...], codes: npt.NDArray[np.intp], ignore: Sequence[int | str]
) -> tuple[tuple[str, ...], npt.NDArray[np.intp], list[str]]:
    wanted = {str(label) for label in ignore}
    gone = np.array([name in wanted for name in names])
    if not gone.any():
        return names, codes, []
    rows = np.bincount(codes, minlength=len(names))
    notes = [f"{rows[k]} rows with label {names[k]} left out" for k in np.flatnonzero(gone)]
    lookup = np.where(gone, -1, np.cumsum(~gone) - 1).astype(np.intp)
    return tuple(name for name, out in zip(names, gone, strict=True) if not out), lookup[codes], notes
