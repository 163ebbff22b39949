"""Unit rows with a class each, checked once and converted to float64 only where they are used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse

from optgeom import _checks
from optgeom._numerics import Array, blocks
from optgeom.errors import InvalidInputError

Index = npt.NDArray[np.intp]

ENTRIES = 1 << 20  # entries of one block, 8 MiB in float64: the half dozen arrays of a block stay far below 200 MB
NORM_SLACK = (
    1e-2  # rows that float16 or bfloat16 rounded are this close to unit norm; those of an unnormalised network are not
)


@dataclass(frozen=True, eq=False)
class UnitRows:
    """Embeddings of unit norm.

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
    """

    rows: npt.NDArray[Any]
    codes: Index
    num_classes: int
    images: Index | None = None

    @classmethod
    def of(cls, rows: Any, codes: Any, num_classes: int | None = None, groups: Any = None) -> Self:
        """Check and wrap.

        Raises
        ------
        InvalidInputError
            Rows that are not (n, d), not finite or not of unit norm; codes that are no class indices; groups that are
            not one a row.
        """
        table = as_rows(rows)
        classes = _codes(codes, table.shape[0], num_classes)
        images = None
        if groups is not None:
            given = np.asarray(groups)
            if given.shape != (table.shape[0],):
                raise InvalidInputError(
                    f"`groups` must hold one image id a row, ({table.shape[0]},); got {given.shape} (repeat the id)"
                )
            _, images = np.unique(given, return_inverse=True)
            images = images.astype(np.intp)
        return cls(table, classes, int(classes.max()) + 1 if num_classes is None else num_classes, images)

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.codes.size)

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
        return UnitRows(
            self.rows[index], self.codes[index], self.num_classes, None if self.images is None else self.images[index]
        )

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


def as_rows(rows: Any) -> npt.NDArray[Any]:
    """(n, d) real numbers, finite, each row of unit norm to the precision of half floats."""
    table = np.asarray(rows)
    if table.dtype.kind not in "fiu" or table.ndim != 2 or table.size == 0:
        raise InvalidInputError(
            f"`rows` must be a table of numbers (n, d); got shape {table.shape} of {table.dtype} (one row a sample)"
        )
    for block in blocks(table.shape[0], table.shape[1], ENTRIES):
        part = table[block].astype(np.float64)
        wrong = ~np.isfinite(part)
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            where = f"row {block.start + int(row)}, column {int(column)}"
            raise InvalidInputError(f"`rows` must be finite; got {part[row, column]} in {where} (leave such rows out)")
        norms = np.linalg.norm(part, axis=1)
        off = np.abs(norms - 1) > NORM_SLACK
        if off.any():
            row = int(np.flatnonzero(off)[0])
            remedy = "a zero row has no direction: leave it out" if norms[row] == 0 else "divide each row by its norm"
            raise InvalidInputError(
                f"`rows` must have unit norm; got norm {norms[row]:.6g} in row {block.start + row} ({remedy})"
            )
    return table


def _codes(codes: Any, rows: int, num_classes: int | None) -> Index:
    found = np.asarray(codes)
    if found.shape != (rows,) or found.dtype.kind not in "iu":
        came = f"shape {found.shape} of {found.dtype}"
        raise InvalidInputError(
            f"`codes` must be one class index a row, ({rows},) whole numbers; got {came} (encode the labels first)"
        )
    if num_classes is not None:
        _checks.integer("num_classes", num_classes, at_least=1)
    top = np.inf if num_classes is None else num_classes
    wrong = np.flatnonzero((found < 0) | (found >= top))
    if wrong.size:
        bound = "0 or more" if num_classes is None else f"0 to {num_classes - 1}"
        raise InvalidInputError(
            f"`codes` must be {bound}; got {found[wrong[0]]} in row {int(wrong[0])} (leave ignored rows out)"
        )
    return found.astype(np.intp)
