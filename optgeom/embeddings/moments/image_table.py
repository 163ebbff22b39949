"""Images whose views are rows anywhere in a source: a running sum of unit views for each id."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from optgeom._numerics import Array, blocks
from optgeom.errors import InvalidInputError
from optgeom.formatting import of_source

MERGE_ENTRIES = 2**20  # 8 MiB: what goes at once from one table into another, or out of it


class ImageTable:
    """Image id -> class code, sum of unit views, number of views.

    The views of an image may lie in different batches and shards, so all sums stay in memory until the end: 8 d bytes
    per image. Ids are known by their text, as labels are.

    Parameters
    ----------
    dim : int
        Length of a row.
    source : str
        Whose rows they are, for messages.
    """

    def __init__(self, dim: int, source: str = "") -> None:
        self.dim = dim
        self._of = of_source(source)
        self._ids: dict[str, int] = {}
        self._sums = np.empty((0, dim))
        self._codes = np.empty(0, dtype=np.intp)
        self._views = np.empty(0, dtype=np.int64)

    def __len__(self) -> int:
        """Images so far."""
        return len(self._ids)

    @property
    def codes(self) -> npt.NDArray[np.intp]:
        """(images,) running class code of each image."""
        return self._codes[: len(self)]

    @property
    def views(self) -> npt.NDArray[np.int64]:
        """(images,) number of views of each image."""
        return self._views[: len(self)]

    def images(self) -> Iterator[tuple[Array, npt.NDArray[np.intp]]]:
        """Blocks of images, the mean of the unit views of each, with their running class codes."""
        for part in blocks(len(self), self.dim, MERGE_ENTRIES):
            yield self._sums[part] / self._views[part, None], self._codes[part]

    def add(
        self,
        ids: list[str],
        local: npt.NDArray[Any],
        sums: Array,
        codes: npt.NDArray[np.intp],
        views: int,
        names: list[str],
    ) -> None:
        """Add rows.

        Parameters
        ----------
        ids : list of str
            Distinct ids.
        local : (b,) integer
            Position in `ids` of each row.
        sums : (b, d)
            Sum of the unit views in each row.
        codes : (b,) intp
        views : int
            Views in each row.
        names : list of str
            Name of each code, for messages.
        """
        from scipy.sparse import csc_array

        each = csc_array((np.ones(local.size), local, np.arange(local.size + 1)), shape=(len(ids), local.size))
        first = np.empty(len(ids), dtype=np.intp)
        first[local[::-1]] = codes[::-1]
        mixed = np.flatnonzero(codes != first[local])
        if mixed.size:
            row = int(mixed[0])
            raise self._mixed(ids[local[row]], names[first[local[row]]], names[codes[row]])
        self._take(ids, np.asarray(each @ sums), first, np.bincount(local, minlength=len(ids)) * views, names)

    def merge(self, other: ImageTable, codes: npt.NDArray[np.intp], names: list[str]) -> None:
        """Take in the images of `other`, whose class code k is `codes[k]` here."""
        ids = list(other._ids)
        for part in blocks(len(other), self.dim, MERGE_ENTRIES):
            self._take(ids[part], other._sums[part], codes[other._codes[part]], other._views[part], names)

    def _take(
        self, ids: list[str], sums: Array, codes: npt.NDArray[np.intp], views: npt.NDArray[Any], names: list[str]
    ) -> None:
        old = len(self)
        positions = np.array([self._ids.setdefault(name, len(self._ids)) for name in ids], dtype=np.intp)
        self._grow()
        new = positions >= old
        self._codes[positions[new]] = codes[new]
        wrong = np.flatnonzero(self._codes[positions] != codes)
        if wrong.size:
            at = int(wrong[0])
            raise self._mixed(ids[at], names[self._codes[positions[at]]], names[codes[at]])
        self._sums[positions] += sums
        self._views[positions] += views

    def _grow(self) -> None:
        if len(self) <= len(self._sums):
            return
        more = max(len(self) + len(self) // 2, 1024) - len(self._sums)
        self._sums = np.concatenate([self._sums, np.zeros((more, self.dim))])
        self._codes = np.concatenate([self._codes, np.zeros(more, dtype=np.intp)])
        self._views = np.concatenate([self._views, np.zeros(more, dtype=np.int64)])

    def _mixed(self, image: str, one: str, other: str) -> InvalidInputError:
        return InvalidInputError(
            f"`group_ids` must have one label each, since a group is one image; got image {image} with labels "
            f"{one} and {other}{self._of} (check the ids, which must differ between images)"
        )


def distinct_ids(
    groups: npt.NDArray[Any], numbers_of_rows: npt.NDArray[Any], source: str = ""
) -> tuple[list[str], npt.NDArray[np.intp]]:
    """Distinct ids of a batch as text, and the position there of each row.

    Raises `InvalidInputError` for a missing id (None, NaN, empty text), naming the row.
    """
    array = np.asarray(groups)
    of = of_source(source)
    if array.ndim != 1:
        raise InvalidInputError(
            f"`group_ids` must be one id per row; got shape {array.shape}{of} (pass a one-dimensional array)"
        )
    if array.dtype.kind in "Of":
        array = np.array([_text(value) for value in array.tolist()], dtype=np.str_)
    elif array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8", "replace")
    distinct, local = np.unique(array, return_inverse=True)
    ids = list(map(str, distinct.tolist()))
    if "" in ids:
        row = int(numbers_of_rows[int(np.flatnonzero(local == ids.index(""))[0])])
        raise InvalidInputError(
            f"`group_ids` must not be missing; got none in row {row}{of} (give every view the id of its image)"
        )
    return ids, local.astype(np.intp)


def _text(value: Any) -> str:
    """Text of an id, empty for a missing one; whole numbers have one text, whatever their type."""
    if value is None or value != value:
        return ""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
