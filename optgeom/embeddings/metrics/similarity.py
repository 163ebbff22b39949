r"""Does an embedding of samples have the geometry of the optimum? Sample similarity r2 and Procrustes r2.

Both compare samples, row by row, with the optimum of weighted InfoNCE. The class similarity r2 of class means is
another quantity.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.linalg

from optgeom import _checks, choices
from optgeom._numerics import Array, blocks
from optgeom.embeddings.metrics.pair_risk import cosines_of_rows
from optgeom.embeddings.moments.unit_rows import ENTRIES, normalised
from optgeom.errors import InvalidInputError
from optgeom.prototypes import align, from_gram

# standard deviation, relative to the largest |s*|, below which s* is constant: a regular simplex has nothing to explain
CONSTANT = 1e-6


def sample_similarity_r2(rows: npt.ArrayLike, optimum: npt.ArrayLike, *, latent: str = "cosine") -> float:
    r"""Share of the variation of the optimal similarities that the embedding has, over pairs of distinct samples:

        1 - sum_{i<j} (s_ij - s*_ij)^2 / sum_{i<j} (s*_ij - mean s*)^2.

    Parameters
    ----------
    rows : (n, d)
        The embedding; cosine: any non-zero rows.
    optimum : (n, q)
        Vectors of the optimum (`Realization.embedding`), in the same order.
    latent : {"cosine", "euclidean"}
        s_ij is the cosine, or -|z_i - z_j|^2. The temperature cancels.

    Returns
    -------
    float
        At most 1, negative where the constant mean s* is nearer than the embedding; nan where s* is constant (n/a).

    Raises
    ------
    InvalidInputError
        Tables that are not finite or of different lengths, fewer than three rows, or a zero row under the cosine.
    """
    given, target = _pair(rows, optimum)
    if _checks.choice("latent", latent, choices.Similarity) == "cosine":
        given, target = _unit("rows", given), _unit("optimum", target)
        return _r2(cosines_of_rows(given), cosines_of_rows(target), given.shape[0])
    return _r2(_distances(given), _distances(target), given.shape[0])


def procrustes_r2(rows: npt.ArrayLike, optimum: npt.ArrayLike, *, latent: str = "cosine", scale: bool = False) -> float:
    r"""Share of the spread of the optimum that the embedding has after the best rotation or reflection:

        1 - min_{Q, s, b} sum_i |y_i - s Q z_i - b|^2 / sum_i |y_i - mean y|^2,      Q in O(d).

    Parameters
    ----------
    rows : (n, d)
        z_i; the narrower of the two tables is padded with zero columns.
    optimum : (n, q)
        y_i.
    latent : {"cosine", "euclidean"}
        The translation b is allowed for the Euclidean latent only: on the sphere it is not a symmetry. Rows are taken
        as they are.
    scale : bool
        Allow a scale s >= 0; s = 1 otherwise, since the temperature fixes it.

    Returns
    -------
    float
        At most 1; nan where all rows of the optimum coincide (n/a). With translation and scale it is 1 minus the
        disparity of `scipy.spatial.procrustes`.

    Raises
    ------
    InvalidInputError
        Tables that are not finite or of different lengths, or fewer than three rows.

    References
    ----------
    Schoenemann 1966, A generalized solution of the orthogonal Procrustes problem; Gower 1975, Generalized Procrustes
    analysis.
    """
    source, target = _pair(rows, optimum)
    _checks.choice("latent", latent, choices.Similarity)
    centred = target - target.mean(axis=0)
    total = float(np.sum(centred**2))
    if total <= CONSTANT**2 * max(float(np.sum(target**2)), np.finfo(np.float64).tiny):
        return math.nan
    if latent == "euclidean":
        source, target = source - source.mean(axis=0), centred
    turned = align(source, target)
    padded = np.pad(target, ((0, 0), (0, turned.shape[1] - target.shape[1])))
    if scale:
        size = float(np.sum(turned**2))
        turned = turned * (float(np.sum(turned * padded)) / size if size > 0 else 0.0)
    return 1.0 - float(np.sum((padded - turned) ** 2)) / total


@dataclass(frozen=True)
class ClassOptimumR2:
    """Both r2 of samples whose optimum is the prototype of their class; nan where n/a."""

    sample_r2: float
    procrustes_r2: float


def class_optimum_r2(
    counts: npt.ArrayLike, sums: npt.ArrayLike, scatter: npt.ArrayLike, gram: npt.ArrayLike
) -> ClassOptimumR2:
    r"""Both r2 of all unit rows against the prototypes of their classes, exactly, without the pairs.

    With Z (n, d) the rows, S (C, d) their class sums, n_c the counts and A* = Y Y' the optimal cosines of the classes,

        sum_ij s_ij^2 = |Z'Z|^2,
        sum_ij s_ij s*_ij = sum_cd A*_cd S_c.S_d,
        max_Q sum_i y_i.Q z_i = |Y'S|_nuclear.

    Parameters
    ----------
    counts : (C,)
        n_c.
    sums : (C, d)
        S_c, of unit rows.
    scatter : (d, d)
        Z'Z.
    gram : (C, C)
        A*.

    Raises
    ------
    InvalidInputError
        Shapes that do not fit.
    """
    number, table = np.asarray(counts, dtype=np.float64), np.asarray(sums, dtype=np.float64)
    total, target = np.asarray(scatter, dtype=np.float64), np.asarray(gram, dtype=np.float64)
    size, dim = number.size, table.shape[-1]
    if table.shape != (size, dim) or total.shape != (dim, dim) or target.shape != (size, size):
        came = f"{table.shape}, {total.shape} and {target.shape}"
        raise InvalidInputError(
            f"`sums`, `scatter`, `gram` must be (C, d), (d, d), (C, C) for {size} counts; got {came}"
        )
    n = float(number.sum())
    pairs = n * (n - 1)
    if pairs < 6:
        return ClassOptimumR2(math.nan, math.nan)
    # Every row is 1 with itself, in the embedding as at the optimum.
    mean = (float(number @ target @ number) - n) / pairs
    apart = number[:, None] * number[None, :] - np.diag(number)
    spread = float(np.sum(apart * (target - mean) ** 2))
    error = float(np.sum(total**2)) - 2 * float(np.sum(target * (table @ table.T))) + float(number @ target**2 @ number)
    similar = math.nan if spread <= CONSTANT**2 * pairs else 1 - error / spread
    vertices = from_gram(target)
    centre = number @ vertices / n
    around = n * (1 - float(centre @ centre))
    overlap = float(scipy.linalg.svdvals(vertices.T @ table).sum())
    turned = math.nan if around <= CONSTANT**2 * n else 1 - (2 * n - 2 * overlap) / around
    return ClassOptimumR2(similar, turned)


Similarities = Callable[[slice], Array]


def _distances(rows: Array) -> Similarities:
    from scipy.spatial.distance import cdist

    return lambda block: np.asarray(-cdist(rows[block], rows, "sqeuclidean"))


def _r2(given: Similarities, optimal: Similarities, n: int) -> float:
    """Two passes: the mean first, so that a small spread keeps its digits."""
    parts = list(blocks(n, n, ENTRIES))
    total, largest = 0.0, 0.0
    for block in parts:
        target = _without_diagonal(optimal(block), block)
        total += float(target.sum())
        largest = max(largest, float(np.abs(target).max()))
    mean = total / (n * (n - 1.0))
    error, spread = 0.0, 0.0
    for block in parts:
        target = optimal(block)
        error += float(np.sum(_without_diagonal(given(block) - target, block) ** 2))
        spread += float(np.sum(_without_diagonal(target - mean, block) ** 2))
    if spread <= CONSTANT**2 * largest**2 * n * (n - 1.0):
        return math.nan
    return 1.0 - error / spread


def _without_diagonal(values: Array, block: slice) -> Array:
    at = np.arange(block.start, block.start + values.shape[0])
    values[at - block.start, at] = 0.0
    return values


def _pair(rows: npt.ArrayLike, optimum: npt.ArrayLike) -> tuple[Array, Array]:
    given, target = np.asarray(rows, dtype=np.float64), np.asarray(optimum, dtype=np.float64)
    if given.ndim != 2 or target.ndim != 2 or given.shape[0] != target.shape[0] or given.shape[0] < 3:
        came = f"{given.shape} and {target.shape}"
        raise InvalidInputError(
            f"`rows` and `optimum` must be (n, d) and (n, q) with the same n >= 3; got {came} (one row per sample)"
        )
    for name, table in (("rows", given), ("optimum", target)):
        if not np.all(np.isfinite(table)):
            row, column = np.argwhere(~np.isfinite(table))[0]
            raise InvalidInputError(
                f"`{name}` must be finite; got {table[row, column]} in row {row}, column {column} (leave the row out)"
            )
    return given, target


def _unit(name: str, table: Array) -> Array:
    zero = np.flatnonzero(~table.any(axis=1))
    if zero.size:
        raise InvalidInputError(
            f"`{name}` must have no zero row, which has no cosine; got one in row {int(zero[0])} (leave it out)"
        )
    return normalised(table)
