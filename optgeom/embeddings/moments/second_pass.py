r"""Second pass over a source: covariances within classes, centred at the means that the first pass found.

With x = z - m_c and u_c = m_c / rho_c as in `directions`,

    S_c = sum x x' / (n_c - 1),        projected[c, e] = u_e' P_c S_c P_c u_e = sum (u_e . P_c x)^2 / (n_c - 1),

so that O(n C d) products give what the standard errors need without C matrices (d, d). Where these fit they are kept
instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from optgeom._numerics import Array, blocks
from optgeom.embeddings.moments.directions import class_directions
from optgeom.embeddings.moments.first_pass import ClassMoments
from optgeom.embeddings.moments.image_table import ImageTable
from optgeom.embeddings.moments.source import Batch, read_batch
from optgeom.embeddings.moments.unit_rows import unit_images
from optgeom.errors import InvalidInputError
from optgeom.formatting import of_source
from optgeom.inputs.labels import ClassNames

MOST_FULL_ENTRIES = 2**24  # of all S_c together: 128 MiB
MOST_PROJECTED_ENTRIES = 2**26  # (C, C), 512 MiB: 8192 classes; the Gram matrix of the directions is as large
_PROJECTED_AT_ONCE = 2**19  # entries of a block of projections, 4 MiB
# Entries of a block of rows, 32 MiB: many rows of a class at once, so that adding (d, d) matrices is cheap.
_OUTER_AT_ONCE = 2**22


@dataclass(frozen=True, eq=False)
class WithinClass:
    """Second pass: covariances within classes.

    With m_c the class mean, S_c = sum_i (z_i - m_c)(z_i - m_c)' / (n_c - 1), u_c = m_c / rho_c the direction of a class
    (the one that the statistics use) and P_c = I - u_c u_c'.

    Attributes
    ----------
    pooled : (d, d)
        sum_c (n_c - 1) S_c / sum_c (n_c - 1).
    traces : (C,)
        tr S_c; nan where n_c = 1.
    full : (C, d, d) or None
        S_c (nan where n_c = 1), only while C d^2 <= 2^24.
    projected : (C, C) or None
        u_e' P_c S_c P_c u_e at [c, e], exactly, from the projections of all rows; None after a single pass.
    """

    pooled: Array
    traces: Array
    full: Array | None = None
    projected: Array | None = None


class SecondPass:
    """Sums about the class means that can be added to, merged and sent between processes.

    Parameters
    ----------
    moments : ClassMoments
        Of the first pass over the same rows.
    ignore : sequence of int or str
        As in the first pass.
    source : str
        Name of what is read, for messages.
    directions : (C, d), optional
        `class_directions(moments).vectors`, where they are known already.
    """

    def __init__(
        self,
        moments: ClassMoments,
        *,
        ignore: Sequence[int | str] = (),
        source: str = "",
        directions: Array | None = None,
    ) -> None:
        size, dim = moments.sums.shape
        self._ignore = tuple(ignore)
        self.begin(source)
        self._place = {name: k for k, name in enumerate(moments.names)}
        self._expected = moments.counts
        self._means = moments.sums / moments.counts[:, None]
        self._directions = class_directions(moments).vectors if directions is None else directions
        self._known = ~np.isnan(self._directions[:, 0])
        self._vectors = np.where(self._known[:, None], self._directions, 0.0)
        self._counts = np.zeros(size, dtype=np.int64)
        self._squares = np.zeros(size)
        self._pooled = np.zeros((dim, dim))
        self._full = np.zeros((size, dim, dim)) if size * dim * dim <= MOST_FULL_ENTRIES else None
        self._wanted = size * size <= MOST_PROJECTED_ENTRIES
        # From S_c they cost C^2 d^2, from the rows n C d.
        project = self._wanted and (self._full is None or int(moments.counts.sum()) < size * dim)
        self._projected = np.zeros((size, size)) if project else None

    def begin(self, source: str) -> None:
        """The next rows are those of another shard."""
        self._source = source
        self._names = ClassNames(self._ignore, source)
        self._lookup = np.empty(0, dtype=np.intp)

    def update(self, batch: Batch) -> None:
        """Add the rows of a batch whose views, where there are any, are together in a row.

        Raises `InvalidInputError` for a class that the first pass has not seen.
        """
        rows, running, _ = read_batch(batch, self._names, self._source)
        new = self._names.running[self._lookup.size :]
        if new:
            unknown = [name for name in new if name not in self._place]
            if unknown:
                raise self._changed(f"class {unknown[0]} is new")
            self._lookup = np.concatenate([self._lookup, [self._place[name] for name in new]])
        kept = np.flatnonzero(running >= 0)
        codes = self._lookup[running[kept]]
        # In class order, so that a block of rows touches few classes.
        order = np.argsort(codes, kind="stable")
        codes, kept = codes[order], kept[order]
        for part in self._blocks(kept.size, rows.shape):
            self._add(unit_images(rows[kept[part]])[0], codes[part])

    def update_images(self, images: ImageTable, place: npt.NDArray[np.intp]) -> None:
        """Add a whole table of images, whose running class code k is class `place[k]`."""
        for means, running in images.images():
            codes = place[running]
            order = np.argsort(codes, kind="stable")
            for part in self._blocks(len(means), means.shape):
                self._add(means[order[part]], codes[order[part]])

    def merge(self, other: SecondPass) -> None:
        """Add what `other` has read."""
        self._counts += other._counts
        self._squares += other._squares
        self._pooled += other._pooled
        for mine, theirs in ((self._full, other._full), (self._projected, other._projected)):
            if mine is not None and theirs is not None:
                mine += theirs

    def finish(self) -> WithinClass:
        """Covariances; `InvalidInputError` where the rows were not those of the first pass."""
        different = np.flatnonzero(self._counts != self._expected)
        if different.size:
            k = int(different[0])
            name = list(self._place)[k]
            raise self._changed(f"class {name} has {self._counts[k]} images instead of {self._expected[k]}")
        degrees = np.where(self._counts > 1, self._counts - 1.0, math.nan)
        total = float((self._counts - 1).sum())
        full, projected = self._full, self._projected
        if full is not None:
            pooled = full.sum(axis=0) / (total or math.nan)
            self._full = None  # divided in place: it may be the largest array of all, and this is its end
            full /= degrees[:, None, None]
        else:
            pooled = self._pooled / (total or math.nan)
        if projected is None and full is not None and self._wanted:
            projected = _projections(full, self._directions)
        elif projected is not None:
            projected = projected / degrees[:, None]
            projected[~self._known] = math.nan
            projected[:, ~self._known] = math.nan
        return WithinClass(pooled, self._squares / degrees, full, projected)

    def _blocks(self, rows: int, shape: tuple[int, ...]) -> Iterable[slice]:
        """Slices of rows, such that their projections are not too many either."""
        if self._projected is None:
            return blocks(rows, math.prod(shape[1:]), _OUTER_AT_ONCE)
        return blocks(rows, max(math.prod(shape[1:]), self._counts.size), _PROJECTED_AT_ONCE)

    def _add(self, images: Array, codes: npt.NDArray[np.intp]) -> None:
        """Add images (b, d) sorted by class."""
        first, last = int(codes[0]), int(codes[-1])
        starts = np.searchsorted(codes, np.arange(first, last + 2))
        images -= self._means[codes]
        self._counts += np.bincount(codes, minlength=self._counts.size)
        self._squares += np.bincount(codes, weights=np.einsum("ij,ij->i", images, images), minlength=self._counts.size)
        if self._full is not None:
            for c in np.unique(codes).tolist():
                own = images[starts[c - first] : starts[c - first + 1]]
                self._full[c] += own.T @ own
        else:
            self._pooled += images.T @ images
        if self._projected is None:
            return
        own_vectors = self._vectors[codes]
        images -= np.einsum("ij,ij->i", images, own_vectors)[:, None] * own_vectors
        products = images @ self._vectors.T
        for c in np.unique(codes).tolist():
            own = products[starts[c - first] : starts[c - first + 1]]
            self._projected[c] += np.einsum("ij,ij->j", own, own)

    def _changed(self, what: str) -> InvalidInputError:
        return InvalidInputError(
            f"`embeddings` must be the same rows in both passes; got others{of_source(self._source)}: {what} "
            "(is the file being written?)"
        )


def _projections(full: Array, directions: Array) -> Array:
    """u_e' P_c S_c P_c u_e at [c, e]; nan where a direction is."""
    projected = np.empty((len(full), len(full)))
    for c, covariance in enumerate(full):
        moved = directions - np.outer(directions @ directions[c], directions[c])
        projected[c] = np.einsum("ed,ed->e", moved @ covariance, moved)
    return projected


def from_single_pass(moments: ClassMoments) -> WithinClass:
    """What is known of the covariances after one pass: the pooled shape, and the trace of each class.

    Parameters
    ----------
    moments : ClassMoments
        With `total_scatter`.

    Returns
    -------
    WithinClass
        Without `full` and `projected`. Accurate to about 1e-16 of the total scatter, not of itself: classes that are
        tight to 1e-6 keep four digits.
    """
    if moments.total_scatter is None:
        raise InvalidInputError(
            "`moments` must have a total scatter; got None (read the source twice, or ask for the total scatter)"
        )
    counts = moments.counts.astype(np.float64)
    means = moments.sums / counts[:, None]
    inside = moments.squares - counts * np.einsum("cd,cd->c", means, means)
    degrees = np.where(counts > 1, counts - 1, math.nan)
    pooled = (moments.total_scatter - means.T @ moments.sums) / (float((counts - 1).sum()) or math.nan)
    return WithinClass((pooled + pooled.T) / 2, np.maximum(inside, 0.0) / degrees)
