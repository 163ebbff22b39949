r"""Share of the images of a class that lie nearer to the mean of another class: does the encoder separate the two?

For an image z of class c the mean of its own class is taken over the other images, m_c^(-z) = (s_c - z)/(n_c - 1), so
that it does not pull z; then

    confusion[c, d] = share of the images of class c with |z - m_d| < |z - m_c^(-z)|,     ties counting half.

The theory's features are free: it puts each class where the loss asks for. Where classes are confused the encoder could
not, and a pair that stays too close is overlap, not a lack of training.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from optgeom._numerics import EPS, Array, blocks
from optgeom.embeddings.moments.first_pass import ClassMoments
from optgeom.embeddings.moments.unit_rows import sum_by

ENTRIES = 2**21  # of a block of scores, 16 MiB


class Confusion:
    """Counts of confused images, over any number of batches.

    Parameters
    ----------
    moments : ClassMoments
        Of all images: sums and counts of the first pass.
    """

    def __init__(self, moments: ClassMoments) -> None:
        self._counts = np.asarray(moments.counts, dtype=np.float64)
        self._sums = np.asarray(moments.sums, dtype=np.float64)
        self._means = self._sums / self._counts[:, None]
        self._squares = np.einsum("cd,cd->c", self._means, self._means)
        size = len(self._counts)
        self._confused, self._seen = np.zeros((size, size)), np.zeros(size)

    def update(self, images: Array, codes: npt.NDArray[np.intp]) -> None:
        """Look at images (b, d) of classes `codes` (b,)."""
        for part in blocks(len(images), max(len(self._counts), images.shape[1]), ENTRIES):
            self._add(images[part], codes[part])

    def merge(self, other: Confusion) -> None:
        """Add what `other`, of the same moments, has seen."""
        self._confused += other._confused
        self._seen += other._seen

    def shares(self) -> Array:
        """(C, C) share of the images of class c that are nearer to class d, at [c, d].

        0 on the diagonal; nan for classes of one image and for classes without images seen.
        """
        with np.errstate(invalid="ignore", divide="ignore"):
            shares = self._confused / self._seen[:, None]
        shares[self._counts < 2] = np.nan
        return shares

    def of_pairs(self) -> Array:
        """(C, C) share of confused images of each pair of classes, both classes weighted alike; nan where unknown."""
        shares = self.shares()
        return (shares + shares.T) / 2

    def _add(self, images: Array, codes: npt.NDArray[np.intp]) -> None:
        # Squared distances without |z|^2, which is common to all.
        others = self._squares - 2 * images @ self._means.T
        own = (self._sums[codes] - images) / np.maximum(self._counts[codes] - 1, 1)[:, None]
        mine = np.einsum("bd,bd->b", own, own) - 2 * np.einsum("bd,bd->b", own, images)
        difference = mine[:, None] - others
        # Distances of coincident rows differ by rounding only: a tie.
        tie = np.abs(difference) <= 16 * EPS
        nearer = np.where(tie, 0.5, difference > 0)
        nearer[np.arange(len(codes)), codes] = 0.0
        self._confused += sum_by(codes, nearer, len(self._seen))
        self._seen += np.bincount(codes, minlength=len(self._seen))


def close_neighbours(first: Array, second: Array, share: float = 0.05, budget: int = ENTRIES) -> float:
    """Share of the rows of two classes that have a close copy in the other class.

    Its nearest row of the other class is nearer than `share` times the nearest one of its own.

    Parameters
    ----------
    first, second : (n, d), (m, d)
        Rows of the two classes, at least two each.

    Returns
    -------
    float
        In [0, 1]: near 0 for classes that are separated or scattered side by side, large where the same images are in
        both.
    """
    close = 0
    for mine, theirs in ((first, second), (second, first)):
        square, other = np.einsum("ij,ij->i", mine, mine), np.einsum("ij,ij->i", theirs, theirs)
        for part in blocks(len(mine), len(mine) + len(theirs), budget):
            here = np.arange(len(mine))[part]
            own = square[here, None] + square - 2 * mine[here] @ mine.T
            own[np.arange(here.size), here] = np.inf
            across = square[here, None] + other - 2 * mine[here] @ theirs.T
            close += int((np.maximum(across.min(axis=1), 0.0) < share**2 * np.maximum(own.min(axis=1), 0.0)).sum())
    return close / (len(first) + len(second))
