"""Embeddings that are in memory already, or come from a program: arrays, tensors, and iterators of batches."""

from __future__ import annotations

import mmap
import numbers
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from optgeom._checks import integer
from optgeom.embeddings.moments.source import Batch, Source
from optgeom.embeddings.readers.file_source import Block
from optgeom.embeddings.readers.open import open_embeddings
from optgeom.embeddings.readers.values import (
    SHAPES,
    check_counts,
    check_embeddings,
    column,
    from_tensor,
    is_tensor,
    label_column,
)
from optgeom.errors import InvalidInputError


class ArraySource:
    """Embeddings in an array, a memory map or a torch tensor.

    Parameters
    ----------
    embeddings : array-like of shape (n, d) or (n, V, d)
        Anything with `__array__`, or a torch tensor on any device; bfloat16 is read as float32. Not copied where it is
        an array.
    labels : array-like of shape (n,), optional
        One label per row.
    group_ids : array-like of shape (n,), optional
        Id of the image that a row is a view of.

    Raises
    ------
    InvalidInputError
        Not real numbers of this shape, or labels of another length.
    """

    re_readable = True

    def __init__(self, embeddings: Any, labels: Any = None, group_ids: Any = None) -> None:
        self.name = "`embeddings`"
        table = _array(embeddings)
        check_embeddings(self.name, table.shape, table.dtype)
        self._table = table
        self._labels = None if labels is None else label_column("`labels`", labels)
        self._groups = None if group_ids is None else column("`group_ids`", group_ids)
        self.num_rows: int | None = len(table)
        check_counts("", self._labels, self._groups, len(table))

    @property
    def row_shape(self) -> tuple[int, ...]:
        """(d,) or (V, d)."""
        return tuple(self._table.shape[1:])

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        table = self._table
        # A part of a memory map does not know its place in the file; only the whole one can be mapped again.
        if isinstance(table, np.memmap) and isinstance(table.base, mmap.mmap) and table.filename is not None:
            order = "C" if table.flags.c_contiguous else "F"
            state["_table"] = _Mapped(os.fspath(table.filename), table.dtype, table.shape, table.offset, order)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if isinstance(self._table, _Mapped):
            self._table = self._table.open()

    def batches(self, rows: int) -> Iterator[Batch]:
        """Batches of `rows` rows, the last one with what is left, in order: views, where no conversion is needed."""
        rows = integer("rows", rows, at_least=1)
        start = 0
        for block in Block(self._table, self._labels, self._groups).pieces(rows):
            yield Batch(*block, start)
            start += len(block.rows)


class IteratorSource:
    """Batches from a program: a generator, a list of batches, or a DataLoader.

    Parameters
    ----------
    batches : iterable of (X, y) or (X, y, groups)
        X of shape (b, d) or (b, V, d), of any type that `ArraySource` takes; y of shape (b,) or None. A generator can
        be read only once; a list of batches or a DataLoader gives a new iterator each time, and must then give the same
        rows (no shuffling, no random augmentation) for results of two passes to belong together.
    """

    num_rows: int | None = None

    def __init__(self, batches: Iterable[Any]) -> None:
        self.name = "`embeddings`"
        self.re_readable = iter(batches) is not batches
        self._batches = batches
        self._spent = False

    def batches(self, rows: int) -> Iterator[Batch]:
        """The batches, cut where they have more than `rows` rows."""
        rows = integer("rows", rows, at_least=1)
        if self._spent and not self.re_readable:
            raise InvalidInputError(
                "`embeddings` must be read only once when it is an iterator; it was read before (pass a list)"
            )
        self._spent = True
        start, shape = 0, None
        for number, batch in enumerate(self._batches):
            source = _one_batch(number, batch)
            if shape is not None and source.row_shape != shape:
                raise InvalidInputError(
                    f"`embeddings` must have rows of the same shape in all batches; got {shape} in batch 0 and "
                    f"{source.row_shape} "
                    f"in batch {number} (compute them with one model)"
                )
            shape = source.row_shape
            for part in source.batches(rows):
                yield Batch(part.rows, part.labels, part.groups, start)
                start += len(part.rows)
        if start == 0:
            raise InvalidInputError(
                "`embeddings` must have at least one batch; got none (was the iterator read before?)"
            )


def as_source(embeddings: Any, labels: Any = None, group_ids: Any = None) -> Source:
    """Make a source of whatever holds embeddings.

    Parameters
    ----------
    embeddings : array, tensor, path, iterable of batches, or Source
        An array or tensor (n, d) or (n, V, d): `ArraySource`. A str or path-like: `open_embeddings`. An iterator, a
        list of batches or a DataLoader that gives (X, y) or (X, y, groups): `IteratorSource`. A source is returned as
        it is.
    labels, group_ids : array-like of shape (n,), or path, optional
        Apart from the embeddings; not for batches and sources, which have their own.

    Raises
    ------
    InvalidInputError
        It is of another kind, or cannot be read.
    """
    if isinstance(embeddings, (str, os.PathLike)):
        return open_embeddings(embeddings, labels=labels, group_ids=group_ids)
    rows_of_numbers = isinstance(embeddings, (list, tuple)) and _holds_rows(embeddings)
    if is_tensor(embeddings) or hasattr(embeddings, "__array__") or rows_of_numbers:
        return ArraySource(embeddings, labels, group_ids)
    if hasattr(embeddings, "toarray"):
        kind = type(embeddings).__name__
        raise InvalidInputError(
            f"`embeddings` must be dense; got a {kind} (class means of unit rows are dense: use its .toarray())"
        )
    if (labels is not None or group_ids is not None) and hasattr(embeddings, "__iter__"):
        raise InvalidInputError(
            f"`labels` and `group_ids` must be in the batches when embeddings come in batches; got them apart, with a "
            f"{type(embeddings).__name__} (give batches (X, y) or (X, y, groups))"
        )
    if hasattr(embeddings, "batches") and hasattr(embeddings, "re_readable"):
        source: Source = embeddings
        return source
    if not hasattr(embeddings, "__iter__"):
        raise InvalidInputError(
            f"`embeddings` must be an array, a tensor, a path or batches (X, y); got {type(embeddings).__name__} "
            "(a torch Dataset needs a DataLoader)"
        )
    return IteratorSource(embeddings)


@dataclass(frozen=True)
class _Mapped:
    """What it takes to map a file again, so that a memory map is not pickled with all its rows."""

    path: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int
    order: Any

    def open(self) -> npt.NDArray[Any]:
        return np.memmap(self.path, self.dtype, "r", self.offset, self.shape, self.order)


def _array(values: Any) -> npt.NDArray[Any]:
    if isinstance(values, np.ma.MaskedArray):
        hidden = np.argwhere(np.ma.getmaskarray(values))
        if len(hidden):
            raise InvalidInputError(
                f"`embeddings` must have no masked entries; got {len(hidden)}, the first in row {hidden[0][0]} "
                "(leave these rows out)"
            )
        return np.asarray(values)
    if isinstance(values, np.ndarray):
        return values
    try:
        if is_tensor(values):
            return from_tensor(values)
        if isinstance(values, (list, tuple)):
            values = [from_tensor(value) if is_tensor(value) else value for value in values]
        return np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise InvalidInputError(
            f"`embeddings` must be a dense array of shape {SHAPES}; got a {type(values).__name__}: {reason} "
            "(pass a numpy array)"
        ) from error


def _holds_rows(values: Any) -> bool:
    """Whether a list is a table of numbers row by row, and not a list of batches."""
    first: Any = values[0] if values else None
    if hasattr(first, "ndim"):
        return bool(first.ndim == 1)
    return isinstance(first, numbers.Real) or (
        isinstance(first, (list, tuple)) and all(isinstance(one, numbers.Real) for one in first)
    )


def _one_batch(number: int, batch: Any) -> ArraySource:
    if not isinstance(batch, (tuple, list)) or len(batch) not in (2, 3):
        got = f"{len(batch)} parts" if isinstance(batch, (tuple, list)) else type(batch).__name__
        raise InvalidInputError(
            f"`embeddings` must come in batches (X, y) or (X, y, groups); got {got} in batch {number} "
            "(use (X, None) where there are no labels; give one array as it is, with `labels`)"
        )
    try:
        return ArraySource(*batch)
    except InvalidInputError as error:
        raise InvalidInputError(f"batch {number}: {error}") from error
