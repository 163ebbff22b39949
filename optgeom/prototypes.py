r"""From a Gram matrix to vectors, and alignment of vectors.

Group structure lifts in closed form. The G group means come from one eigendecomposition of the G x G matrix S_gh =
sqrt(m_g m_h) A_gh; the m classes of a group are its mean plus sqrt(1 - |mean|^2) times the vertices of a regular
simplex in m - 1 dimensions of its own.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg

from optgeom._numerics import Array, psd_part
from optgeom.errors import InvalidInputError
from optgeom.programs import group_matrix
from optgeom.programs.group_matrix import Sizes

LARGEST_TABLE = 1 << 28  # entries of a prototype table: 2 GiB
NEGLIGIBLE = 1e-13  # eigenvalues that may be left out: no entry of V V^T changes by more


def simplex_vertices(count: int) -> Array:
    """(count, count - 1) unit vectors with pairwise cosine -1/(count - 1)."""
    # Helmert's orthonormal contrasts: rows of the projection onto the complement of the ones vector.
    contrasts = np.zeros((count, count - 1))
    for column in range(1, count):
        contrasts[:column, column - 1] = 1.0
        contrasts[column, column - 1] = -column
        contrasts[:, column - 1] /= np.sqrt(column * (column + 1.0))
    return np.asarray(contrasts * np.sqrt(count / (count - 1.0)))


def factor(cosines: Array, sizes: Sizes, index: np.ndarray[tuple[int], np.dtype[np.intp]], dim: int | None) -> Array:
    """(C, dim) unit rows V with V V^T equal to the Gram matrix.

    Parameters
    ----------
    cosines : (G, G)
        Group-form Gram matrix, positive semidefinite with unit diagonal.
    sizes : (G,)
    index : (C,)
        Group of each class.
    dim : int or None
        Number of columns; the least possible by default, zeros fill the rest.

    Raises
    ------
    InvalidInputError
        `dim` below the rank, or a table too large to write down.
    """
    block = group_matrix.symmetric_block(cosines, np.ones(sizes.size), sizes)
    eigenvalues, vectors = scipy.linalg.eigh(block)
    kept = eigenvalues > NEGLIGIBLE * max(1.0, eigenvalues[-1])
    means = (vectors[:, kept] * np.sqrt(eigenvalues[kept]))[:, ::-1] / np.sqrt(sizes.astype(np.float64))[:, None]
    spread = np.where(sizes > 1, (sizes - 1.0) / sizes * (1.0 - np.diag(cosines)), 0.0)  # 1 - |mean|^2
    own = np.where(spread > NEGLIGIBLE, sizes - 1, 0)
    least = int(kept.sum() + own.sum())
    columns = least if dim is None else dim
    if columns < least:
        remedy = f"solve with dim={columns} for the best geometry there"
        raise InvalidInputError(f"`dim` must be at least the rank of the geometry, {least}; got {columns} ({remedy})")
    if index.size * columns > LARGEST_TABLE:
        wanted = f"prototypes of {index.size} classes in {columns} dimensions"
        raise InvalidInputError(f"{wanted} do not fit in memory; use the group form (`group_cosines`)")
    table = np.zeros((index.size, columns))
    table[:, : means.shape[1]] = means[index]
    offset = means.shape[1]
    for group in np.flatnonzero(own):
        members = np.flatnonzero(index == group)
        width = int(own[group])
        table[members, offset : offset + width] = np.sqrt(spread[group]) * simplex_vertices(width + 1)
        offset += width
    return table


def from_gram(gram: Array, dim: int | None = None) -> Array:
    """(C, dim) rows V with V V^T nearest to a symmetric (C, C) matrix in Frobenius norm.

    Rank many columns by default.
    """
    part, eigenvalues = psd_part((gram + gram.T) / 2)
    least = int((eigenvalues > NEGLIGIBLE * max(1.0, eigenvalues[-1])).sum())
    values, vectors = scipy.linalg.eigh(part)
    columns = least if dim is None else dim
    order = np.argsort(values)[::-1][: min(columns, values.size)]
    table = np.zeros((gram.shape[0], columns))
    table[:, : order.size] = vectors[:, order] * np.sqrt(np.maximum(values[order], 0.0))
    return table


def align(source: Array, target: Array) -> Array:
    """`source` after the rotation or reflection that brings its rows nearest to those of `target`.

    Both are (n, d); the narrower one is padded with zeros. Returns (n, max d).

    Raises
    ------
    InvalidInputError
        Tables of different lengths, or not finite.

    References
    ----------
    Schoenemann 1966, A generalized solution of the orthogonal Procrustes problem.
    """
    source, target = np.asarray(source, dtype=np.float64), np.asarray(target, dtype=np.float64)
    if source.ndim != 2 or target.ndim != 2 or source.shape[0] != target.shape[0]:
        came = f"{source.shape} and {target.shape}"
        raise InvalidInputError(
            f"`source` and `target` must be (n, d) with the same n; got {came} (row i of both is class i)"
        )
    if not (np.all(np.isfinite(source)) and np.all(np.isfinite(target))):
        raise InvalidInputError(
            "`source` and `target` must be finite; got NaN or infinity (leave those rows out of both)"
        )
    width = max(source.shape[1], target.shape[1])
    left = np.pad(source, ((0, 0), (0, width - source.shape[1])))
    right = np.pad(target, ((0, 0), (0, width - target.shape[1])))
    u, _, vt = scipy.linalg.svd(left.T @ right)
    return np.asarray(left @ (u @ vt))
