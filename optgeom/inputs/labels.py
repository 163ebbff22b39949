"""Labels, one per row, as class indices: the class order, what counts as missing, and what is left out on request."""

from __future__ import annotations

import numbers
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from optgeom._numerics import read_only
from optgeom.errors import InvalidInputError
from optgeom.formatting import first_of, of_source

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,100}")
_ONE_LABEL = "one integer or string per row"
_Position = Callable[[int], str]  # the words for a row of a batch, by its number in the batch


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


def encode(labels: Any, *, ignore: Sequence[int | str] = ()) -> EncodedLabels:
    """Find the classes of a column of labels: one batch of `ClassNames`.

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
        per row, or no row at all. The message names the first row (from 0) at fault.
    """
    classes = ClassNames(ignore)
    running = classes.encode(labels)
    names, place, notes = classes.finish()
    return EncodedLabels(names, read_only(np.append(place, -1)[running]), notes)


class ClassNames:
    """Classes of labels that come in batches: a class gets the next code when it first appears, its place at the end.

    Whole numbers are known by their text, so that numbers in one shard and text of the same numbers in another are the
    same classes.

    Parameters
    ----------
    ignore : sequence of int or str
        Labels to leave out; their rows get code -1.
    source : str
        Whose rows they are, for messages.
    """

    def __init__(self, ignore: Sequence[int | str] = (), source: str = "") -> None:
        self._ignore = tuple(ignore)
        self._ignored = {str(label) for label in ignore}
        self._of = of_source(source)
        self._ids: dict[str, int] = {}  # ignored names too: all of them tell numbers from words
        self._codes = np.empty(0, dtype=np.intp)
        self._rows = np.empty(0, dtype=np.int64)
        self._first: list[tuple[int, str]] = []  # the row where each name was first seen, and the words of its source
        self._number: str | None = None  # the first label that came as a number, and where
        self._columns: int | None = None
        self._flattened = False
        self._last: tuple[npt.NDArray[Any], npt.NDArray[np.intp]] = (np.empty(0), np.empty(0, dtype=np.intp))
        self.running: list[str] = []

    def __len__(self) -> int:
        """Classes so far, ignored labels left out."""
        return len(self.running)

    def encode(self, labels: Any, start: int = 0) -> npt.NDArray[np.intp]:
        """Codes of the rows of one batch.

        Parameters
        ----------
        labels : (b,) array, or (b, C) exact one-hot rows
        start : int
            Number of the first row, for messages.

        Returns
        -------
        (b,) intp
            Position in `running`, which has the names batch by batch as they came; -1 for an ignored label.

        Raises
        ------
        InvalidInputError
            As the function `encode`, naming the row in the whole source; what only all batches together show is left to
            `finish`.
        """
        if labels is None:
            raise InvalidInputError(
                f"`labels` must have one entry per row; got none{self._of} "
                "(name the file or the column that holds them)"
            )
        array = self._column(labels, lambda row: f"row {start + row}{self._of}")
        if array.size == 0:
            return np.empty(0, dtype=np.intp)
        distinct, local = self._distinct(array, start)
        known = self._numbers(distinct, local, start)
        self._rows[known] += np.bincount(local, minlength=known.size)
        return np.asarray(self._codes[known][local])

    def merge(self, other: ClassNames) -> npt.NDArray[np.intp]:
        """Take in the classes of `other`; returns the code here of each of its codes."""
        known = [
            self._ids[name] if name in self._ids else self._new(name, *other._first[k])
            for name, k in other._ids.items()
        ]
        self._rows[known] += other._rows[: len(known)]
        self._number = self._number or other._number
        self._flattened |= other._flattened
        self._check_columns(other._columns)
        place = {name: code for code, name in enumerate(self.running)}
        return np.array([place[name] for name in other.running], dtype=np.intp)

    def finish(self) -> tuple[tuple[str, ...], npt.NDArray[np.intp], tuple[str, ...]]:
        """Names in class order, the place there of each running code, and notes as in `EncodedLabels`."""
        if not self._ids:
            raise InvalidInputError(
                "`labels` must have at least one row; got none (check that the file or the filter is the right one)"
            )
        self._check_kinds()
        if not self.running:
            ignored = ", ".join(map(str, self._ignore))
            raise InvalidInputError(
                f"`labels` must have a label that is not ignored; got only {ignored} (ignore fewer)"
            )
        names = _in_order(self._ids)
        place = {name: position for position, name in enumerate(name for name in names if name not in self._ignored)}
        return tuple(place), np.array([place[name] for name in self.running], dtype=np.intp), self._notes(names)

    @property
    def left_out(self) -> dict[str, int]:
        """Rows of each ignored label that occurs."""
        return {name: int(self._rows[number]) for name, number in self._ids.items() if name in self._ignored}

    @property
    def not_met(self) -> tuple[str, ...]:
        """Ignored labels that no row has: perhaps mistyped."""
        return tuple(str(label) for label in self._ignore if str(label) not in self._ids)

    def _notes(self, names: list[str]) -> tuple[str, ...]:
        notes = ["labels were a column of shape (n, 1): flattened"] if self._flattened else []
        if self._columns is not None:
            notes.append(f"labels were one-hot rows of {self._columns} columns: converted to column numbers")
            empty = [str(column) for column in range(self._columns) if str(column) not in self._ids]
            if empty:
                notes.append(f"one-hot columns without samples are not classes: {first_of(empty)}")
        left_out = self.left_out
        return (*notes, *(f"{left_out[name]} rows with label {name} left out" for name in names if name in left_out))

    def _column(self, labels: Any, where: _Position) -> npt.NDArray[Any]:
        """One label per row, as numbers, booleans or text."""
        array = _as_array(labels)
        if array.ndim == 2 and array.shape[1] > 1:
            columns = array.shape[1]
            array = _from_one_hot(array, where)
            self._check_columns(columns)
        elif array.ndim == 2 and array.shape[1] == 1:
            array, self._flattened = array[:, 0], True
        elif array.ndim != 1:
            raise InvalidInputError(
                f"`labels` must be {_ONE_LABEL}; got shape {array.shape} (pass a one-dimensional array)"
            )
        if array.dtype.kind == "O" and array.size:
            array = _same_kind(array, where)
        if array.dtype.kind == "f":
            array = _whole_numbers(array, where)
        return np.asarray(array)

    def _numbers(self, distinct: npt.NDArray[Any], local: npt.NDArray[np.intp], start: int) -> npt.NDArray[np.intp]:
        """Number of each of the distinct labels of a batch."""
        # Shuffled rows of not too many classes have the same labels in every batch: no text is made of them again.
        if distinct.dtype == self._last[0].dtype and np.array_equal(distinct, self._last[0]):
            return self._last[1]
        names = list(map(str, distinct.tolist()))
        known = np.array([self._ids.get(name, -1) for name in names], dtype=np.intp)
        if (known < 0).any():
            # Assigned backwards, so that the first row of a label is what stays.
            first = np.empty(len(names), dtype=np.intp)
            first[local[::-1]] = np.arange(local.size - 1, -1, -1)
            for position in np.flatnonzero(known < 0).tolist():
                known[position] = self._new(names[position], start + int(first[position]), self._of)
        self._last = (distinct, known)
        return known

    def _distinct(self, array: npt.NDArray[Any], start: int) -> tuple[npt.NDArray[Any], npt.NDArray[np.intp]]:
        kind = array.dtype.kind
        if kind in "iu":
            self._number = self._number or f"{array[0]} in row {start}{self._of}"
            return _distinct_integers(array)
        if kind == "b":
            values, codes = _distinct_integers(array.astype(np.int64))
            return values.astype(np.bool_), codes
        if kind not in "US":
            raise InvalidInputError(
                f"`labels` must be {_ONE_LABEL}; got values of type {array.dtype} (convert them to int or str)"
            )
        if kind == "S":
            try:
                array = np.char.decode(array, "utf-8")
            except UnicodeDecodeError as error:
                raise InvalidInputError(
                    f"`labels` must be UTF-8 text; got other bytes: {error.reason} (decode them first)"
                ) from error
        values, codes = np.unique(array, return_inverse=True)
        return values, codes.astype(np.intp)

    def _new(self, name: str, row: int, of: str) -> int:
        if not name.strip():
            raise _missing_label(f"row {row}{of}", name)
        number = self._ids[name] = len(self._ids)
        code = -1
        if name not in self._ignored:
            code = len(self.running)
            self.running.append(name)
        if number == self._codes.size:  # grown by half again, so that a million classes are not a million copies
            more = 16 + number // 2
            self._codes = np.concatenate([self._codes, np.full(more, -1, dtype=np.intp)])
            self._rows = np.concatenate([self._rows, np.zeros(more, dtype=np.int64)])
        self._codes[number] = code
        self._first.append((row, of))
        return number

    def _check_kinds(self) -> None:
        """Refuse what only all batches together show: "nan" among whole numbers, words beside numbers."""
        words = [name for name in self._ids if not _WHOLE_NUMBER.fullmatch(name)]
        if not words:
            return
        row, of = self._first[self._ids[words[0]]]
        # "nan" may be a word, but among whole numbers it is what a table writer leaves for a missing value.
        if len(words) == 1 < len(self._ids) and words[0].strip().lower() == "nan":
            raise _missing_label(f"row {row}{of}", words[0])
        if self._number is not None:
            both = f"{self._number} and {words[0]!r} in row {row}{of}"
            raise InvalidInputError(f"`labels` must be all numbers or all text; got {both} (convert one kind)")

    def _check_columns(self, columns: int | None) -> None:
        if columns is not None and self._columns not in (None, columns):
            raise InvalidInputError(
                f"`labels` must be one-hot rows of one length; got {self._columns} columns and {columns}{self._of} "
                "(give column numbers)"
            )
        self._columns = columns if self._columns is None else self._columns


def _as_array(labels: Any) -> npt.NDArray[Any]:
    """Labels as numpy sees them; a list of text with other things in it stays an array of objects."""
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


def _from_one_hot(array: npt.NDArray[Any], where: _Position) -> npt.NDArray[Any]:
    """Column numbers of exact one-hot rows (n, C); other tables are refused."""
    if array.dtype.kind not in "biuf":
        raise InvalidInputError(
            f"`labels` must be {_ONE_LABEL}; got shape {array.shape} (give the column with the class)"
        )
    ones = array == 1
    wrong = np.flatnonzero((ones.sum(axis=1) != 1) | ((array != 0).sum(axis=1) != 1))
    if wrong.size:
        row = int(wrong[0])
        cells = ", ".join(str(value) for value in array[row, :8].tolist()) + (", ..." if array.shape[1] > 8 else "")
        raise InvalidInputError(
            f"`labels` must be {_ONE_LABEL}; got a table of shape {array.shape} whose {where(row)} is [{cells}] "
            "(multi-label targets have no single class: give each row one label; only exact one-hot rows are converted)"
        )
    return np.asarray(ones.argmax(axis=1))


def _missing_label(where: str, value: object) -> InvalidInputError:
    return InvalidInputError(
        f"`labels` must not be missing; got {value!r} in {where} (drop the row, or give it a label)"
    )


def _same_kind(array: npt.NDArray[Any], where: _Position) -> npt.NDArray[Any]:
    """An object array as text or as numbers; pandas gives object arrays for text columns."""
    values = array.tolist()
    for row, value in enumerate(values):
        if value is None or (isinstance(value, numbers.Real) and value != value):
            raise _missing_label(where(row), value)
        if not isinstance(value, (str, bytes, numbers.Real)):
            raise InvalidInputError(
                f"`labels` must be {_ONE_LABEL}; got {value!r} in {where(row)} (convert the labels to int or str)"
            )
        if isinstance(value, (str, bytes)) != isinstance(values[0], (str, bytes)):
            both = f"{values[0]!r} in {where(0)} and {value!r} in {where(row)}"
            raise InvalidInputError(f"`labels` must be all numbers or all text; got {both} (convert one kind)")
    if isinstance(values[0], (str, bytes)):
        return np.array([value.decode("utf-8", "replace") if isinstance(value, bytes) else value for value in values])
    converted = np.array(values)
    if converted.dtype.kind == "O":
        raise InvalidInputError(
            "`labels` must be whole numbers of at most 64 bits; got a larger one (use the text of the number)"
        )
    return converted


def _whole_numbers(array: npt.NDArray[Any], where: _Position) -> npt.NDArray[np.int64]:
    """Floats that are whole numbers as integers; NaN is missing, fractions and numbers above 2^53 are refused."""
    missing = np.isnan(array)
    if missing.any():
        row = int(missing.argmax())
        raise _missing_label(where(row), float("nan"))
    # Above 2^53 neighbouring whole numbers share one float64, so two classes could be one.
    wrong = (array != np.floor(array)) | (np.abs(array) > 2**53)
    if wrong.any():
        row = int(wrong.argmax())
        raise InvalidInputError(
            f"`labels` must be whole numbers; got {float(array[row])!r} in {where(row)} "
            "(real-valued targets are not classes: bin them first)"
        )
    return array.astype(np.int64)


def _distinct_integers(array: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[np.intp]]:
    """The distinct values, ascending, and the place of each entry among them."""
    lowest, highest = int(array.min()), int(array.max())
    if highest - lowest > 4 * array.size:
        values, codes = np.unique(array, return_inverse=True)
        return values, codes.astype(np.intp)
    # Labels are nearly always 0..C-1: a table of all values in the range is then far cheaper than a sort of the rows.
    offset = (array - array.min()).astype(np.intp) if array.dtype.kind == "u" else array.astype(np.intp) - lowest
    present = np.flatnonzero(np.bincount(offset))
    lookup = np.zeros(highest - lowest + 1, dtype=np.intp)
    lookup[present] = np.arange(present.size)
    return np.array([lowest + int(value) for value in present]), lookup[offset]


def _in_order(names: dict[str, int]) -> list[str]:
    if all(_WHOLE_NUMBER.fullmatch(name) for name in names):
        return sorted(names, key=lambda name: (int(name), name))
    return sorted(names)
