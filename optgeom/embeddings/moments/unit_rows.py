"""Unit rows: normalised from batches, with their norms and faults, and the one container of rows with a class each."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse

from optgeom import _checks
from optgeom._numerics import Array, blocks
from optgeom.errors import InvalidInputError
from optgeom.formatting import of_source

# 2 MiB of float64, about the level-2 cache: a block is still there when its norms follow its conversion. Half of it
# costs 5 % in calls.
BLOCK_ENTRIES = 2**18
# Squares of entries beyond these leave float64; rows below the second are as good as zero, and 1/norm is still a number
# above it.
_SAFE = (1e-280, 1e280)
_SHORTEST = 1e-290
# Rows that were rounded to float16 or bfloat16 are this close to unit norm; those of an unnormalised network are not.
NORM_SLACK = 1e-2
ENTRIES = 1 << 20  # entries of one block, 8 MiB in float64: the half dozen arrays of a block stay far below 200 MB

Index = npt.NDArray[np.intp]


def row_norms(block: Array) -> Array:
    """Norms of the rows of a contiguous (b, d) block; NaN where a component is not finite, 0 next to zero."""
    with np.errstate(all="ignore"):
        # One BLAS dot per row: half the time of einsum.
        squares = np.matmul(block[:, None, :], block[:, :, None])[:, 0, 0]
        norms = np.sqrt(squares)
    odd = np.flatnonzero(~((squares > _SAFE[0]) & (squares < _SAFE[1])))
    if odd.size:
        rows = block[odd]
        largest = np.abs(rows).max(axis=1)
        usable = np.isfinite(largest) & (largest > 0)
        exact = np.where(np.isfinite(largest), 0.0, math.nan)
        exact[usable] = largest[usable] * np.sqrt(((rows[usable] / largest[usable, None]) ** 2).sum(axis=1))
        exact[exact < _SHORTEST] = 0.0
        norms[odd] = exact
    return np.asarray(norms)


def inverse(norms: Array) -> Array:
    """1/norm; 0 for rows that have no direction, which `Faults` counts."""
    with np.errstate(divide="ignore"):
        return np.where(norms > 0, 1.0 / norms, 0.0)


def unit_views(rows: npt.NDArray[Any]) -> tuple[Array, Array]:
    """Unit rows in float64, of the shape of `rows`, and norms, (b,) or (b, V)."""
    block = np.array(rows, dtype=np.float64, order="C")
    norms = row_norms(block.reshape(-1, block.shape[-1])).reshape(block.shape[:-1])
    with np.errstate(invalid="ignore"):
        block *= inverse(norms)[..., None]
    return block, norms


def unit_images(rows: npt.NDArray[Any]) -> tuple[Array, Array]:
    """(b, d) images, the unit row or the mean of the unit views, and norms of all rows."""
    block, norms = unit_views(rows)
    return (block if block.ndim == 2 else block.mean(axis=1)), norms


@dataclass
class NormSpread:
    """Norms of the rows as stored: smallest, largest, mean."""

    count: int = 0
    smallest: float = math.inf
    largest: float = 0.0
    total: float = 0.0

    def add(self, norms: Array) -> None:
        usable = norms if norms.min(initial=1.0) > 0 else norms[norms > 0]
        if usable.size:
            self.count += usable.size
            self.smallest = min(self.smallest, float(usable.min()))
            self.largest = max(self.largest, float(usable.max()))
            self.total += float(usable.sum())

    def merge(self, other: NormSpread) -> None:
        self.count += other.count
        self.smallest = min(self.smallest, other.smallest)
        self.largest = max(self.largest, other.largest)
        self.total += other.total

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else math.nan

    @property
    def unit(self) -> bool:
        """Whether the rows were unit vectors, up to `NORM_SLACK`."""
        return bool(self.count) and self.smallest > 1 - NORM_SLACK and self.largest < 1 + NORM_SLACK


class Faults:
    """Rows without a direction: how many of each kind ("not finite", "zero"), and the first."""

    def __init__(self) -> None:
        self._rows = 0
        self._counts = {"not finite": 0, "zero": 0}
        # Number of the shard, row, words that go before the name, the name of the source: the smallest is the first.
        self._first: dict[str, tuple[int, int, str, str]] = {}

    def record(self, rows: npt.NDArray[Any], norms: Array, numbers: npt.NDArray[Any], shard: int, source: str) -> None:
        """Add the rows whose `norms`, (b,) or (b, V), are NaN or 0; `numbers` are the rows' numbers in the source."""
        self._rows += len(rows)
        if norms.min(initial=1.0) > 0:  # false where there is a NaN
            return
        views = norms.reshape(len(rows), -1)
        for kind, of_views in (("not finite", np.isnan(views)), ("zero", views == 0)):
            faulty = of_views.any(axis=1)
            if not faulty.any():
                continue
            row = int(faulty.argmax())
            wrong = ~np.isfinite(rows[row]) if kind == "not finite" else of_views[row]
            at = tuple(map(int, np.unravel_index(int(wrong.argmax()), wrong.shape)))
            view = f", view {at[0]}" if rows.ndim == 3 else ""
            words = f"row {int(numbers[row])}{view}"
            if kind == "not finite":
                words = f"{float(rows[row][at])} in {words}, column {at[-1]}"
            self._add(kind, int(np.count_nonzero(faulty)), (shard, int(numbers[row]), words, source))

    def merge(self, other: Faults) -> None:
        self._rows += other._rows
        for kind, first in other._first.items():
            self._add(kind, other._counts[kind], first)

    def _add(self, kind: str, count: int, first: tuple[int, int, str, str]) -> None:
        self._counts[kind] += count
        self._first[kind] = min(first, self._first.get(kind, first))

    def refuse(self) -> None:
        """Raise `InvalidInputError` where a row has no direction."""
        if "not finite" in self._first:
            raise InvalidInputError(
                f"`embeddings` must be finite; got {self._described('not finite')} have such a value "
                "(look where the training diverged, or leave these rows out)"
            )
        if "zero" in self._first:
            raise InvalidInputError(
                "`embeddings` must have a direction in every row; got a zero vector in "
                f"{self._described('zero')} are zero "
                "(look for samples that were never embedded, or leave these rows out)"
            )

    def _described(self, kind: str) -> str:
        """The first row, and how many there are."""
        _, _, words, source = self._first[kind]
        return f"{words}{of_source(source)}, and {self._counts[kind]} of {self._rows} rows"


@dataclass(frozen=True, eq=False, kw_only=True)
class UnitRows:
    """Embeddings of unit norm with a class each: all rows, or a sample of them.

    Attributes
    ----------
    rows : (n, d)
        As given, in any floating type; `take` converts and normalises.
    codes : (n,) intp
        Class of each row, 0 to C - 1.
    num_classes : int
        C; a class may have no row.
    images : (n,) intp or None
        Image that each row is a view of, 0 to m - 1; None where every row is an image of its own.
    whole : bool
        Every row of the embeddings is in it.
    cut : int
        Views that a sample left out so that all of its images have the same number.
    """

    rows: npt.NDArray[Any]
    codes: Index
    num_classes: int
    images: Index | None = None
    whole: bool = False
    cut: int = 0

    @classmethod
    def of(cls, rows: Any, codes: Any, *, num_classes: int | None = None, groups: Any = None) -> Self:
        """Check and wrap.

        Raises
        ------
        InvalidInputError
            Rows that are not (n, d), not finite or not of unit norm; codes that are not class indices; groups that
            are not one per row.
        """
        table = _unit_table(rows)
        classes = _class_indices(codes, table.shape[0], num_classes)
        images = None
        if groups is not None:
            given = np.asarray(groups)
            if given.shape != (table.shape[0],):
                raise InvalidInputError(
                    f"`groups` must hold one image id per row, ({table.shape[0]},); got {given.shape} (repeat the id)"
                )
            _, images = np.unique(given, return_inverse=True)
            images = images.astype(np.intp)
        number = int(classes.max()) + 1 if num_classes is None else num_classes
        return cls(rows=table, codes=classes, num_classes=number, images=images)

    @classmethod
    def of_images(cls, rows: Array, codes: Index, num_classes: int, cut: int = 0) -> Self:
        """From unit rows (s, d), or images (s, V, d) whose views become rows one after the other; not checked."""
        if rows.ndim == 2:
            return cls(rows=rows, codes=codes, num_classes=num_classes, cut=cut)
        images, views, dimension = rows.shape
        return cls(
            rows=rows.reshape(-1, dimension),
            codes=np.repeat(codes, views),
            num_classes=num_classes,
            images=np.repeat(np.arange(images), views),
            cut=cut,
        )

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.codes.size)

    @property
    def num_images(self) -> int:
        """Number of images."""
        return self.n if self.images is None else int(np.unique(self.images).size)

    @property
    def views(self) -> int:
        """Rows per image, where every image has as many (a sample); 1 without images."""
        return 1 if self.images is None else self.n // max(1, self.num_images)

    @property
    def counts(self) -> Index:
        """(C,) rows of each class."""
        return np.bincount(self.codes, minlength=self.num_classes)

    @property
    def image_counts(self) -> Index:
        """(C,) images of each class; an image belongs to the class of its first row."""
        if self.images is None:
            return self.counts
        first = np.unique(self.images, return_index=True)[1]
        return np.bincount(self.codes[first], minlength=self.num_classes)

    @property
    def has_views(self) -> bool:
        """Whether some image has two rows or more."""
        return self.images is not None and bool(np.bincount(self.images).max() > 1)

    def take(self, index: Index | slice) -> Array:
        """Some rows in float64, of unit norm to rounding."""
        return normalised(self.rows[index])

    def subset(self, index: Index) -> UnitRows:
        """Some rows, with the same class and image numbers."""
        images = None if self.images is None else self.images[index]
        return UnitRows(rows=self.rows[index], codes=self.codes[index], num_classes=self.num_classes, images=images)

    def with_classes(self, place: Index, num_classes: int) -> UnitRows:
        """Class k becomes `place[k]`; the rows of classes at place -1 are left out."""
        codes = place[self.codes]
        kept = np.flatnonzero(codes >= 0)
        return replace(self.subset(kept), codes=codes[kept], num_classes=num_classes, cut=self.cut)

    def joined(self, other: UnitRows) -> UnitRows:
        """These rows, then those of `other`, whose images are numbered after these."""
        images = None
        if self.images is not None and other.images is not None:
            images = np.concatenate([self.images, other.images + self.images.max(initial=-1) + 1])
        return UnitRows(
            rows=np.concatenate([self.rows, other.rows]),
            codes=np.concatenate([self.codes, other.codes]),
            num_classes=max(self.num_classes, other.num_classes),
            images=images,
        )

    def image_means(self) -> tuple[Array, Index]:
        """(m, d) images, the mean of the unit views of each, and their classes (m,)."""
        if self.images is None:
            return self.take(slice(None)), self.codes
        _, first, numbers, views = np.unique(self.images, return_index=True, return_inverse=True, return_counts=True)
        return sum_by(numbers, self.take(slice(None)), views.size) / views[:, None], self.codes[first]

    def in_blocks(self) -> Iterator[tuple[slice, Array]]:
        """All rows, a block at a time."""
        for block in blocks(self.n, self.rows.shape[1], ENTRIES):
            yield block, self.take(block)

    def class_sums(self) -> Array:
        """(C, d) sum of the rows of each class."""
        total = np.zeros((self.num_classes, self.rows.shape[1]))
        for block, part in self.in_blocks():
            total += sum_by(self.codes[block], part, self.num_classes)
        return total


def sum_by(labels: Index, values: Array, count: int) -> Array:
    """(count, d) sum of the rows of `values` that have each label."""
    columns = np.arange(labels.size)
    return np.asarray(
        scipy.sparse.csr_array((np.ones(labels.size), (labels, columns)), shape=(count, labels.size)) @ values
    )


def normalised(rows: npt.NDArray[Any]) -> Array:
    """Rows in float64 divided by their norm."""
    part = rows.astype(np.float64)
    part /= np.linalg.norm(part, axis=1, keepdims=True)
    return part


def _unit_table(rows: Any) -> npt.NDArray[Any]:
    """(n, d) real numbers, finite, each row of unit norm to the precision of half floats."""
    table = np.asarray(rows)
    if table.dtype.kind not in "fiu" or table.ndim != 2 or table.size == 0:
        raise InvalidInputError(
            f"`rows` must be a table of numbers (n, d); got shape {table.shape} of {table.dtype} (one row per sample)"
        )
    for block in blocks(table.shape[0], table.shape[1], ENTRIES):
        part = table[block].astype(np.float64)
        wrong = ~np.isfinite(part)
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            where = f"row {block.start + int(row)}, column {int(column)}"
            raise InvalidInputError(f"`rows` must be finite; got {part[row, column]} in {where} (leave such rows out)")
        norms = np.linalg.norm(part, axis=1)
        wrong_norm = np.abs(norms - 1) > NORM_SLACK
        if wrong_norm.any():
            row = int(wrong_norm.argmax())
            remedy = "a zero row has no direction: leave it out" if norms[row] == 0 else "divide each row by its norm"
            raise InvalidInputError(
                f"`rows` must have unit norm; got norm {norms[row]:.6g} in row {block.start + row} ({remedy})"
            )
    return table


def _class_indices(codes: Any, rows: int, num_classes: int | None) -> Index:
    indices = np.asarray(codes)
    if indices.shape != (rows,) or indices.dtype.kind not in "iu":
        came = f"shape {indices.shape} of {indices.dtype}"
        raise InvalidInputError(
            f"`codes` must be one class index per row, ({rows},) whole numbers; got {came} (encode the labels first)"
        )
    if num_classes is not None:
        _checks.integer("num_classes", num_classes, at_least=1)
    top = np.inf if num_classes is None else num_classes
    wrong = np.flatnonzero((indices < 0) | (indices >= top))
    if wrong.size:
        bound = "0 or more" if num_classes is None else f"0 to {num_classes - 1}"
        raise InvalidInputError(
            f"`codes` must be {bound}; got {indices[wrong[0]]} in row {int(wrong[0])} (leave ignored rows out)"
        )
    return indices.astype(np.intp)
