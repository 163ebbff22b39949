"""First pass over a source: counts, sums and squares of the images of each class, in float64 for rows of any type."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from optgeom._numerics import Array, blocks
from optgeom.embeddings.moments.image_table import ImageTable, distinct_ids
from optgeom.embeddings.moments.rounding import significant_bits
from optgeom.embeddings.moments.row_sample import RowSample
from optgeom.embeddings.moments.source import Batch, read_batch
from optgeom.embeddings.moments.unit_rows import (
    BLOCK_ENTRIES,
    Faults,
    NormSpread,
    UnitRows,
    inverse,
    row_norms,
    unit_images,
    unit_views,
)
from optgeom.errors import InvalidInputError
from optgeom.formatting import of_source
from optgeom.inputs.labels import ClassNames

# Rows that are summed into classes at once: 8 MiB of float64 at most, which the level-3 cache holds; more rows than
# classes, so that writing the (C, d) sums is cheap beside reading the rows.
_PRODUCT_ENTRIES = 2**20
_ROWS_PER_CLASS = 4
_FEWEST_ROWS = 512


@dataclass(frozen=True, eq=False)
class ClassMoments:
    """First pass: sums over the images of each class.

    Attributes
    ----------
    names : tuple of str, length C
        Classes that occur, in class order (as `labels.encode` orders them).
    counts : (C,) int64
        Images of each class, n_c.
    sums : (C, d)
        sum_i z_i.
    squares : (C,)
        sum_i |z_i|^2; n_c where every image is one row.
    total_scatter : (d, d) or None
        sum_i z_i z_i' over all images; only where it was asked for (sources that cannot be read twice).
    """

    names: tuple[str, ...]
    counts: npt.NDArray[np.int64]
    sums: Array
    squares: Array
    total_scatter: Array | None = None


class _ClassSums:
    """Sums over the images of each running class code, and of z z' over all images where `want_scatter`."""

    def __init__(self, want_scatter: bool) -> None:
        self.want_scatter = want_scatter
        self._counts = np.empty(0, dtype=np.int64)
        self._squares = np.empty(0)
        self._sums = np.empty((0, 0))
        self._scatter: Array | None = None

    def grow(self, classes: int, dim: int) -> None:
        """Room for more classes, by half again, so that classes that come one by one are not copied as often."""
        old = len(self._sums)
        if classes <= old:
            return
        more = max(classes, old * 3 // 2) - old
        self._sums = np.concatenate([self._sums.reshape(old, dim), np.zeros((more, dim))])
        self._counts = np.concatenate([self._counts, np.zeros(more, dtype=np.int64)])
        self._squares = np.concatenate([self._squares, np.zeros(more)])

    def add_unit_rows(self, rows: Array, codes: npt.NDArray[np.intp], weights: Array) -> None:
        """Add images of one row each, which `weights` make unit vectors; `rows` are overwritten."""
        self._add(rows, codes, weights)
        counts = np.bincount(codes, minlength=len(self._counts))
        self._counts += counts
        self._squares += counts
        if self.want_scatter:
            rows *= weights[:, None]
            self._add_scatter(rows.T @ rows)

    def add_images(self, images: Array, codes: npt.NDArray[np.intp]) -> None:
        """Add means of unit views."""
        self._add(images, codes, np.ones(len(images)))
        self._counts += np.bincount(codes, minlength=len(self._counts))
        self._squares += np.bincount(codes, weights=np.einsum("ij,ij->i", images, images), minlength=len(self._counts))
        if self.want_scatter:
            self._add_scatter(images.T @ images)

    def merge(self, other: _ClassSums, codes: npt.NDArray[np.intp]) -> None:
        """Add the sums of `other`, whose class code k is `codes[k]` here."""
        if codes.size and other._sums.size:
            self._counts[codes] += other._counts[: codes.size]
            self._squares[codes] += other._squares[: codes.size]
            self._sums[codes] += other._sums[: codes.size]
        if other._scatter is not None:
            self._add_scatter(other._scatter)

    def in_order(self, names: tuple[str, ...], place: npt.NDArray[np.intp]) -> ClassMoments:
        """Moments of the classes `names`, of which running code k is number `place[k]`."""
        size = len(names)
        counts, squares = np.zeros(size, dtype=np.int64), np.zeros(size)
        sums = np.zeros((size, self._sums.shape[1]))
        counts[place], squares[place], sums[place] = self._counts[:size], self._squares[:size], self._sums[:size]
        return ClassMoments(names, counts, sums, squares, self._scatter)

    def _add(self, block: Array, codes: npt.NDArray[np.intp], weights: Array) -> None:
        """Sums of the weighted rows of each class."""
        from scipy.sparse import csc_array

        # 32-bit indices, since scipy looks through the values of longer ones to see whether these would do.
        columns = np.arange(codes.size + 1, dtype=np.int32)
        codes = codes.astype(np.int32)
        size = len(self._sums)
        if size <= 2 * codes.size:
            self._sums += np.asarray(csc_array((weights, codes, columns), shape=(size, codes.size)) @ block)
        else:
            present, inside = np.unique(codes, return_inverse=True)
            inside = inside.astype(np.int32)
            self._sums[present] += np.asarray(
                csc_array((weights, inside, columns), shape=(present.size, codes.size)) @ block
            )

    def _add_scatter(self, scatter: Array) -> None:
        self._scatter = scatter if self._scatter is None else self._scatter + scatter


class FirstPass:
    """Sums that can be added to, merged in any order and sent between processes.

    Parameters
    ----------
    ignore : sequence of int or str
        Labels to leave out.
    total_scatter : bool
        Also sum z z' over all images, for sources that cannot be read twice.
    sample, seeds : int, sequence of int
        Rows (images) to keep for each seed.
    source : str
        Name of what is read, for messages.
    shard : int
        Number of the shard, so that "the first row" means the same whatever is merged first.

    Attributes
    ----------
    names : ClassNames
    faults : Faults
        Rows without a direction so far; `finish` refuses them.
    norms : NormSpread
    num_rows : int
        Rows read, ignored ones too.
    bits : int
        Significant bits of the values as stored (`rounding.significant_bits`); 0 before the first batch.
    images : ImageTable or None
        Where views are rows: all images.
    """

    def __init__(
        self,
        ignore: Sequence[int | str] = (),
        *,
        total_scatter: bool = False,
        sample: int = 0,
        seeds: Sequence[int] = (0,),
        source: str = "",
        shard: int = 0,
    ) -> None:
        self.names = ClassNames(ignore, source)
        self.faults = Faults()
        self.norms = NormSpread()
        self.num_rows = 0
        self.bits = 0
        self.images: ImageTable | None = None
        self._sums = _ClassSums(total_scatter)
        self._samples = [RowSample(sample, seed, shard) for seed in seeds] if sample else []
        self._source = source
        self._shard = shard
        self._shape: tuple[int, ...] | None = None
        self._grouped = False

    def update(self, batch: Batch) -> None:
        """Add the rows of a batch.

        Raises
        ------
        InvalidInputError
            As `read_batch`; rows that differ in shape from those before; a group with two labels. Rows
            that are not finite or zero are counted first, and refused by `finish`.
        """
        rows, codes, groups = read_batch(batch, self.names, self._source)
        self._same_shape(rows.shape[1:], groups is not None)
        self.num_rows += len(rows)
        self.bits = max(self.bits, significant_bits(rows))
        numbers = np.arange(batch.start, batch.start + len(rows))
        if codes.min(initial=0) < 0:
            kept = np.flatnonzero(codes >= 0)
            rows, codes, numbers = rows[kept], codes[kept], numbers[kept]
            groups = None if groups is None else groups[kept]
        if not len(rows):
            return
        self._sums.grow(len(self.names), rows.shape[-1])
        if groups is not None:
            self._update_groups(rows, codes, numbers, groups)
            return
        for sample in self._samples:
            sample.update(rows, codes, numbers)
        if rows.ndim == 3:
            self._update_views(rows, codes, numbers)
        else:
            self._update_rows(rows, codes, numbers)

    def merge(self, other: FirstPass) -> None:
        """Add what `other` has read; `other` is not to be used again."""
        if other._shape is not None:
            self._same_shape(other._shape, other._grouped)
        codes = self.names.merge(other.names)
        self.faults.merge(other.faults)
        self.norms.merge(other.norms)
        self.num_rows += other.num_rows
        self.bits = max(self.bits, other.bits)
        for mine, theirs in zip(self._samples, other._samples, strict=True):
            mine.merge(theirs, codes)
        if self._shape is not None:
            self._sums.grow(len(self.names), self._shape[-1])
        self._sums.merge(other._sums, codes)
        if other.images is not None:
            self.images = ImageTable(other.images.dim, self._source) if self.images is None else self.images
            self.images.merge(other.images, codes, self.names.running)

    def finish(self) -> ClassMoments:
        """Moments in class order.

        Raises
        ------
        InvalidInputError
            A row that is not finite or zero (the first is named, all are counted); no row; only ignored labels; labels
            of two kinds.
        """
        self.faults.refuse()
        names, place, _ = self.names.finish()
        if self.images is None:
            return self._sums.in_order(names, place)
        # What each image is, the mean of its views, is known only now.
        sums = _ClassSums(self._sums.want_scatter)
        sums.grow(len(names), self.images.dim)
        for images, codes in self.images.images():
            sums.add_images(images, codes)
        return sums.in_order(names, place)

    def samples(self) -> tuple[UnitRows, ...]:
        """The rows kept for each seed, with class indices as in `finish`."""
        _, place, _ = self.names.finish()
        return tuple(sample.finish(place) for sample in self._samples)

    def _update_rows(self, rows: npt.NDArray[Any], codes: npt.NDArray[np.intp], numbers: npt.NDArray[Any]) -> None:
        dim = rows.shape[1]
        step = min(max(_ROWS_PER_CLASS * len(self.names), _FEWEST_ROWS), max(1, _PRODUCT_ENTRIES // dim))
        # Equal parts, since a short rest would cost as much as a long one.
        step = math.ceil(len(rows) / math.ceil(len(rows) / step))
        buffer, norms = np.empty((step, dim)), np.empty(step)
        for start in range(0, len(rows), step):
            part = slice(start, min(start + step, len(rows)))
            stored, block, length = rows[part], buffer[: part.stop - start], norms[: part.stop - start]
            for small in blocks(len(stored), dim, BLOCK_ENTRIES):
                block[small] = stored[small]
                length[small] = row_norms(block[small])
            self._record(stored, length, numbers[part])
            weights = inverse(length)
            self._sums.add_unit_rows(block, codes[part], weights)

    def _update_views(self, rows: npt.NDArray[Any], codes: npt.NDArray[np.intp], numbers: npt.NDArray[Any]) -> None:
        for part in blocks(len(rows), math.prod(rows.shape[1:]), BLOCK_ENTRIES):
            images, norms = unit_images(rows[part])
            self._record(rows[part], norms, numbers[part])
            self._sums.add_images(images, codes[part])

    def _update_groups(
        self, rows: npt.NDArray[Any], codes: npt.NDArray[np.intp], numbers: npt.NDArray[Any], groups: Any
    ) -> None:
        if self.images is None:
            self.images = ImageTable(rows.shape[-1], self._source)
        ids, local = distinct_ids(groups, numbers, self._source)
        for sample in self._samples:
            sample.update(rows, codes, numbers, ids, local)
        views = rows.shape[1] if rows.ndim == 3 else 1
        for part in blocks(len(rows), math.prod(rows.shape[1:]), _PRODUCT_ENTRIES):
            unit, norms = unit_views(rows[part])
            self._record(rows[part], norms, numbers[part])
            present, inside = np.unique(local[part], return_inverse=True)
            sums = unit.sum(axis=1) if rows.ndim == 3 else unit
            self.images.add([ids[k] for k in present.tolist()], inside, sums, codes[part], views, self.names.running)

    def _record(self, rows: npt.NDArray[Any], norms: Array, numbers: npt.NDArray[Any]) -> None:
        self.norms.add(norms)
        self.faults.record(rows, norms, numbers, self._shard, self._source)

    def _same_shape(self, shape: tuple[int, ...], grouped: bool) -> None:
        if self._shape is None:
            self._shape, self._grouped = shape, grouped
        if shape != self._shape:
            raise InvalidInputError(
                f"`embeddings` must have rows of one shape; got {self._shape} and {shape}{of_source(self._source)} "
                "(check that all files go together)"
            )
        if grouped != self._grouped:
            raise InvalidInputError(
                "`group_ids` must be given for all rows or for none; got batches of both kinds (add the missing ids)"
            )
