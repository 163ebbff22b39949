r"""Euclidean similarity: embeddings with s_ij = -|z_i - z_j|^2 / tau = log w_ij + const, by classical scaling.

The squared distances are known up to one constant c,

    D(c) = -tau log W - c (off the diagonal),      B(c) = -1/2 J D(c) J = B(0) - (c/2) J,      J = I - 11'/n,

and they are Euclidean iff B(c), the Gram matrix of the centred embedding, is positive semidefinite: for every c <= c*,
where c*/2 is the least eigenvalue of B(0) on the complement of the ones vector (Lingoes' additive constant is -c*/2).
So positive weights always attain the bound: at c* in n - 2 dimensions or fewer, below it in n - 1; fewer dimensions
than at c* never do.

References
----------
Torgerson 1958, Theory and methods of scaling; Lingoes 1971, Psychometrika 36:195; Vock, Duchesnay,
Dufumier 2026, arXiv 2605.13943.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.linalg
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from optgeom._numerics import EPS, Array
from optgeom.errors import InvalidInputError
from optgeom.programs import group_matrix
from optgeom.programs.group_matrix import Sizes
from optgeom.realization import lift as _lift
from optgeom.realization.spherical import check_target
from optgeom.realization.weights import Weights


@dataclass(frozen=True)
class Spectrum:
    """Eigenvalues of B(0) on the complement of the ones vector.

    Attributes
    ----------
    values : (k,)
        Distinct places of the spectrum, unordered: those on the group indicators, then one for each group of two
        samples or more.
    times : (k,) int64
        How often each occurs; the sum is n - 1.
    rounding : float
        Bound on the error of each.
    """

    values: Array
    times: Sizes
    rounding: float

    @property
    def largest_shift(self) -> float:
        """c*: the largest c for which D(c) is Euclidean."""
        return 2.0 * float(self.values.min())

    @property
    def lingoes(self) -> float:
        """Least h >= 0 such that D + 2h (off the diagonal) is Euclidean."""
        return max(0.0, -float(self.values.min()))

    def threshold(self, shift: float) -> float:
        """Eigenvalues of B(c) above it count for the rank: 1e-7 of their mean, or the rounding."""
        mean = float(((self.values - shift / 2) * self.times).sum() / self.times.sum())
        return _lift.rank_threshold(mean, self.rounding)

    def rank(self, shift: float) -> int:
        """Dimension of the embedding at c."""
        return int(self.times[self.values - shift / 2 > self.threshold(shift)].sum())

    @property
    def min_dimension(self) -> int:
        """Rank at c*, the least dimension that attains the bound; 0 where all samples coincide."""
        return self.rank(self.largest_shift)


def spectrum(squared: npt.ArrayLike, sizes: npt.ArrayLike | None = None, noise: float = 0.0) -> Spectrum:
    """Eigenvalues of -1/2 J D J on the complement of the ones vector.

    Parameters
    ----------
    squared : (G, G)
        Squared distances, or any symmetric numbers in their place; in group form with `sizes`, where the diagonal
        belongs to two different samples of a group, and ignored without.
    sizes : (G,), optional
        Samples of each group; 1 by default.
    noise : float
        Further error of the entries' spectral norm.
    """
    distances, count = check_group_form(squared, sizes)
    block = group_matrix.symmetric_block(distances, np.zeros(count.size), count)
    inner = -0.5 * _lift.ones_first(block, count)[1:, 1:]
    several = count > 1
    values = np.concatenate(
        [scipy.linalg.eigvalsh(inner) if inner.size else np.zeros(0), np.diag(distances)[several] / 2]
    )
    times = np.concatenate([np.ones(inner.shape[0], dtype=np.int64), count[several] - 1])
    return Spectrum(values, times, _lift.NORM_ROUNDING * float((np.abs(distances) @ count).max()) + noise)


def lingoes(squared: npt.ArrayLike, sizes: npt.ArrayLike | None = None) -> float:
    """Lingoes' constant h: D + 2h (off the diagonal) are squared Euclidean distances, in n - 2 dimensions.

    0 if D already are.
    """
    return spectrum(squared, sizes).lingoes


def squared_distances(weights: Weights, temperature: float, shift: float) -> Array:
    """(G, G) D(c) = -tau log W - c between different samples, in group form.

    0 on the diagonal of a group of one sample.
    """
    check_target(weights)
    return np.where(
        weights.count > 0, -temperature * np.where(weights.count > 0, weights.log_weights, 0.0) - shift, 0.0
    )


def target_spectrum(weights: Weights, temperature: float) -> Spectrum:
    """`spectrum` of the target at c = 0: c* and the dimensions of every c follow from it."""
    noise = 0.0 if weights.precision <= EPS else 2.0 * temperature * weights.precision * float(np.sqrt(weights.n))
    return spectrum(squared_distances(weights, temperature, 0.0), weights.sizes, noise)


def embedding(weights: Weights, temperature: float, shift: float, dim: int | None = None) -> Array:
    """(n, dim) centred embedding with squared distances D(c), by classical scaling (Torgerson).

    It is unique up to rigid motions.
    `dim` is the rank at c by default (1 at least); further columns are zero.
    """
    threshold = target_spectrum(weights, temperature).threshold(shift)
    squared = squared_distances(weights, temperature, shift)
    return classical_scaling(squared, weights.sizes, weights.index, threshold, dim)


def classical_scaling(
    squared: Array, sizes: Sizes, index: npt.NDArray[np.intp], threshold: float, dim: int | None = None
) -> Array:
    """(n, dim) centred vectors with the given squared distances in group form.

    Eigenvalues up to `threshold` are dropped.
    """
    block = group_matrix.symmetric_block(squared, np.zeros(sizes.size), sizes)
    axis = np.sqrt(sizes / sizes.sum())
    image = block @ axis
    gram = -0.5 * (block - np.outer(axis, image) - np.outer(image, axis) + float(axis @ image) * np.outer(axis, axis))
    return _lift.lift(gram, np.where(sizes > 1, np.diag(squared) / 2, 0.0), sizes, index, threshold, dim)


def limit_dimension(weights: Weights, temperature: float) -> tuple[int, bool]:
    """Least dimension in which a hard scheme comes arbitrarily close to the bound, and whether it is exact.

    Where it is not exact it is an upper bound.
    Pairs of weight zero must move infinitely far apart. Where positive weights fall into components without a zero
    inside, each component is realised with its own constant and the components are moved apart along one direction.
    Otherwise n - 1 dimensions are enough: squared distances t (1 + delta 1{w_ij = 0}) - tau log w_ij are Euclidean for
    a small delta and a large t.
    """
    positive = np.isfinite(weights.log_weights)
    parts, label = connected_components(csr_array(positive.astype(np.int8)), directed=False)
    needed = 0
    for part in range(parts):
        groups = np.flatnonzero(label == part)
        inside, sizes = positive[np.ix_(groups, groups)], weights.sizes[groups]
        if groups.size == 1 and not inside[0, 0]:
            continue  # samples without a positive: single points
        if not np.all(inside | (np.eye(groups.size, dtype=bool) & (sizes == 1)[:, None])):
            return weights.n - 1, False
        squared = np.where(
            inside, -temperature * np.where(inside, weights.log_weights[np.ix_(groups, groups)], 0.0), 0.0
        )
        if sizes.sum() > 1:
            needed = max(needed, spectrum(squared, sizes).min_dimension)
    return max(needed, 1), True


def check_group_form(values: npt.ArrayLike, sizes: npt.ArrayLike | None) -> tuple[Array, Sizes]:
    """Distances as a finite symmetric matrix in group form, and the samples of each group (1 by default)."""
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] != table.shape[1] or not np.isfinite(table).all():
        raise InvalidInputError(
            f"`distances` must be a finite square matrix; got shape {table.shape} (one row and one column per point)"
        )
    if not np.array_equal(table, table.T):
        raise InvalidInputError("`distances` must be symmetric; got d_ij != d_ji (pass (D + D.T) / 2)")
    count = np.ones(table.shape[0], dtype=np.int64) if sizes is None else np.asarray(sizes, dtype=np.int64)
    hollow = table.copy()
    alone = count == 1
    hollow[alone, alone] = 0.0
    return hollow, count
