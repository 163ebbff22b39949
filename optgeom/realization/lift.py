"""Linear algebra of both latent similarities: a basis that starts with the ones vector, ranks, lift from groups."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.linalg

from optgeom._numerics import EPS, Array
from optgeom.certificates.certificate import RANK_EIGENVALUE
from optgeom.errors import InvalidInputError
from optgeom.programs.group_matrix import Sizes
from optgeom.prototypes import LARGEST_TABLE, simplex_vertices

# Eigenvalues of a matrix with rounded entries are wrong by a few units of rounding of its norm; 450 leaves room for
# thousands of samples.
NORM_ROUNDING = 1e-13


def ones_first(block: Array, sizes: Sizes) -> Array:
    """H S H with the reflection H that maps the normalised ones vector, sqrt(m_g/n) on groups, to the first axis.

    The rows and columns after the first are S on the complement of the ones vector.
    """
    axis = np.sqrt(sizes / sizes.sum())
    axis[0] += 1.0  # all entries are positive: no cancellation
    axis /= np.linalg.norm(axis)
    image = block @ axis
    cross = 2.0 * (image - float(axis @ image) * axis)
    return np.asarray(block - np.outer(axis, cross) - np.outer(cross, axis))


def tridiagonal(block: Array, sizes: Sizes) -> tuple[Array, Array]:
    """Diagonal and off-diagonal of a tridiagonal matrix orthogonally similar to S.

    Its basis starts with the vector of ones.

    In this basis S - c I + c n e1 e1' is tridiagonal for every c: one reduction serves all shifts.
    """
    rotated = ones_first(block, sizes)
    size = rotated.shape[0]
    if size == 1:
        return rotated[0].copy(), np.zeros(0)
    # The reflections of the lower variant leave the first axis alone.
    work, _ = scipy.linalg.lapack.dsytrd_lwork(size, lower=1)
    _, diagonal, off, _, info = scipy.linalg.lapack.dsytrd(rotated, lower=1, lwork=int(work))
    if info != 0:
        raise InvalidInputError(
            "`weights` must be finite numbers of moderate size; the reduction to tridiagonal form failed"
        )
    return diagonal, off


def rounding(entries: Array, sizes: Sizes, precision: float, temperature: float) -> float:
    """Bound on the error of the eigenvalues of the (n, n) matrix with these group-form entries.

    Two sources: the arithmetic, a few units of the norm; and the weights themselves, whose relative error `precision`
    is an absolute one of log w and adds a random matrix of spectral norm about 2 precision temperature sqrt(n).
    """
    norm = 1.0 + float((np.abs(entries) @ sizes).max())
    noise = 0.0 if precision <= EPS else 4.0 * temperature * precision * float(np.sqrt(sizes.sum()))
    return NORM_ROUNDING * norm + noise


def rank_threshold(mean_eigenvalue: float, floor: float) -> float:
    """Threshold above which eigenvalues count: 1e-7 of their mean, but never below the rounding."""
    return max(RANK_EIGENVALUE * mean_eigenvalue, floor)


def lift(
    block: Array, rest: Array, sizes: Sizes, index: npt.NDArray[np.intp], threshold: float, dim: int | None
) -> Array:
    """(n, dim) vectors whose Gram matrix is given in group form.

    It is S on the group indicators, and one number on the complement of each group.

    Eigenvalues up to `threshold` are dropped. The mean of group g comes from S; its samples are placed around the mean
    on a regular simplex, at squared radius rest_g (m_g - 1)/m_g.

    Raises
    ------
    InvalidInputError
        `dim` below the number of eigenvalues kept, or a table too large to write down.
    """
    eigenvalues, vectors = scipy.linalg.eigh(block, subset_by_value=(threshold, np.inf))
    means = ((vectors * np.sqrt(eigenvalues)) / np.sqrt(sizes.astype(np.float64))[:, None])[:, ::-1]
    spread = (sizes > 1) & (rest > threshold)
    least = means.shape[1] + int((sizes[spread] - 1).sum())
    columns = max(least, 1) if dim is None else dim
    if columns < least:
        raise InvalidInputError(f"`dim` must be at least {least}, the dimension of this geometry; got {columns}")
    if index.size * columns > LARGEST_TABLE:
        raise InvalidInputError(
            f"embeddings of {index.size} samples in {columns} dimensions do not fit in memory; use the group form"
        )
    table = np.zeros((index.size, columns))
    table[:, : means.shape[1]] = means[index]
    offset = means.shape[1]
    for group in np.flatnonzero(spread):
        members = np.flatnonzero(index == group)
        radius = np.sqrt(rest[group] * (members.size - 1) / members.size)
        table[members, offset : offset + members.size - 1] = radius * simplex_vertices(members.size)
        offset += members.size - 1
    return table
