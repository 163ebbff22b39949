"""Labels of many batches -> one class code a row, with the names, the order and the refusals of `optgeom.inputs.labels.encode`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from optgeom.errors import InvalidInputError
from optgeom.formatting import first_of
from optgeom.inputs import labels as label_codes

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,100}")


class ClassNames:
    """Classes met so far in a source; a class gets the next code when it first appears, and its place among all at the
    end.

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
        self._of = f" of {source}" if source else ""
        self._ids: dict[str, int] = {}  # ignored names too: `encode` looks at all of them to tell numbers from words
        self._codes = np.empty(0, dtype=np.intp)
        self._rows = np.empty(0, dtype=np.int64)
        self._first: list[str] = []  # where each name was first seen, in words
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
            As `labels.encode`, naming the row in the whole source; what only all batches together can tell is left to
            `finish`.
        """
        if labels is None:
            raise InvalidInputError(
                f"`labels` must be given, one a row; got none{self._of} (name the file or the column that holds them)"
            )
        array = self._column(labels, lambda row: f"row {start + row}{self._of}")
        if array.size == 0:
            return np.empty(0, dtype=np.intp)
        found, local = self._distinct(array, start)
        known = self._numbers(found, local, start)
        self._rows[known] += np.bincount(local, minlength=known.size)
        return np.asarray(self._codes[known][local])

    def merge(self, other: ClassNames) -> npt.NDArray[np.intp]:
        """Take in the classes of `other`; returns the code here of each of its codes."""
        known = [
            self._ids[name] if name in self._ids else self._new(name, other._first[k]) for name, k in other._ids.items()
        ]
        self._rows[known] += other._rows[: len(known)]
        self._number = self._number or other._number
        self._flattened |= other._flattened
        self._same_columns(other._columns)
        place = {name: code for code, name in enumerate(self.running)}
        return np.array([place[name] for name in other.running], dtype=np.intp)

    def finish(self) -> tuple[tuple[str, ...], npt.NDArray[np.intp], tuple[str, ...]]:
        """Names in class order, the place there of each running code, and notes as in `labels.EncodedLabels`."""
        if not self._ids:
            raise InvalidInputError(
                "`labels` must have at least one row; got none (check that the file or the filter is the right one)"
            )
        self._check_kinds()
        if not self.running:
            held = ", ".join(map(str, self._ignore))
            raise InvalidInputError(f"`labels` must have a label that is not ignored; got only {held} (ignore fewer)")
        names = _in_order(self._ids)
        place = {name: position for position, name in enumerate(name for name in names if name not in self._ignored)}
        return tuple(place), np.array([place[name] for name in self.running], dtype=np.intp), self._notes(names)

    def _notes(self, names: list[str]) -> tuple[str, ...]:
        notes = ["labels were a column of shape (n, 1): flattened"] if self._flattened else []
        if self._columns is not None:
            notes.append(f"labels were one-hot rows of {self._columns} columns: converted to column numbers")
            empty = [str(column) for column in range(self._columns) if str(column) not in self._ids]
            if empty:
                notes.append(f"one-hot columns without samples are no classes: {first_of(empty)}")
        left_out = self.left_out
        return (*notes, *(f"{left_out[name]} rows with label {name} left out" for name in names if name in left_out))

    @property
    def left_out(self) -> dict[str, int]:
        """Rows of each ignored label that occurs."""
        return {name: int(self._rows[number]) for name, number in self._ids.items() if name in self._ignored}

    @property
    def not_met(self) -> tuple[str, ...]:
        """Ignored labels that no row has: perhaps mistyped."""
        return tuple(str(label) for label in self._ignore if str(label) not in self._ids)

    def _column(self, labels: Any, where: label_codes.Where) -> npt.NDArray[Any]:
        """One label a row, as numbers, booleans or text."""
        array = label_codes.as_array(labels)
        one_hot = array.ndim == 2 and array.shape[1] > 1
        if one_hot:
            columns = array.shape[1]
            array, _ = label_codes.one_column(array, where)
            self._same_columns(columns)
        else:
            self._flattened |= array.ndim == 2
            array, _ = label_codes.one_column(array, where)
        if array.dtype.kind == "O" and array.size:
            array = label_codes.same_kind(array, where)
        if array.dtype.kind == "f":
            array = label_codes.whole_numbers(array, where)
        return np.asarray(array)

    def _numbers(self, found: npt.NDArray[Any], local: npt.NDArray[np.intp], start: int) -> npt.NDArray[np.intp]:
        """Number of each of the distinct labels of a batch."""
        # Shuffled rows of not too many classes have the same labels in every batch: no text is made of them again.
        if found.dtype == self._last[0].dtype and np.array_equal(found, self._last[0]):
            return self._last[1]
        names = list(map(str, found.tolist()))
        known = np.array([self._ids.get(name, -1) for name in names], dtype=np.intp)
        if (known < 0).any():
            # Assigned backwards, so that the first row of a label is what stays.
            first = np.empty(len(names), dtype=np.intp)
            first[local[::-1]] = np.arange(local.size - 1, -1, -1)
            for position in np.flatnonzero(known < 0).tolist():
                known[position] = self._new(names[position], f"row {start + int(first[position])}{self._of}")
        self._last = (found, known)
        return known

    def _distinct(self, array: npt.NDArray[Any], start: int) -> tuple[npt.NDArray[Any], npt.NDArray[np.intp]]:
        kind = array.dtype.kind
        if kind in "iu":
            self._number = self._number or f"{array[0]} in row {start}{self._of}"
            found, codes = label_codes.distinct_integers(array)
            return found, codes
        if kind == "b":
            found, codes = label_codes.distinct_integers(array.astype(np.int64))
            return found.astype(np.bool_), codes
        if kind not in "US":
            raise InvalidInputError(
                f"`labels` must be {label_codes._ONE_LABEL}; got values of type {array.dtype} (convert them to int or str)"
            )
        if kind == "S":
            try:
                array = np.char.decode(array, "utf-8")
            except UnicodeDecodeError as error:
                raise InvalidInputError(
                    f"`labels` must be UTF-8 text; got other bytes: {error.reason} (decode them first)"
                ) from error
        found, codes = np.unique(array, return_inverse=True)
        return found, codes.astype(np.intp)

    def _new(self, name: str, where: str) -> int:
        if not name.strip():
            raise label_codes.missing_label(where, name)
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
        self._first.append(where)
        return number

    def _check_kinds(self) -> None:
        """What `encode` refuses in one column, and no single batch can know.

        "nan" among whole numbers, words beside numbers.
        """
        words = [name for name in self._ids if not _WHOLE_NUMBER.fullmatch(name)]
        if len(words) == 1 < len(self._ids) and words[0].strip().lower() == "nan":
            raise label_codes.missing_label(self._first[self._ids[words[0]]], words[0])
        if words and self._number is not None:
            where = self._first[self._ids[words[0]]]
            held = f"{self._number} and {words[0]!r} in {where}"
            raise InvalidInputError(f"`labels` must be all numbers or all text; got {held} (convert one kind)")

    def _same_columns(self, columns: int | None) -> None:
        if columns is not None and self._columns not in (None, columns):
            raise InvalidInputError(
                f"`labels` must be one-hot rows of one length; got {self._columns} columns and {columns}{self._of} (give column numbers)"
            )
        self._columns = columns if self._columns is None else self._columns


def _in_order(names: dict[str, int]) -> list[str]:
    if all(_WHOLE_NUMBER.fullmatch(name) for name in names):
        return sorted(names, key=lambda name: (int(name), name))
    return sorted(names)
