"""Metrics of class means and scatter: neural collapse, separation, distance from the simplex, effective rank.

They say how collapsed an embedding is and how far from the balanced answer; none of them knows the optimum of
imbalanced classes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.linalg
from scipy.spatial.distance import cdist

from optgeom._numerics import EPS, Array, arccos_clipped, blocks
from optgeom.embeddings.moments.first_pass import ClassMoments
from optgeom.embeddings.moments.second_pass import WithinClass
from optgeom.errors import InvalidInputError

# of the largest eigenvalue: class means stored as float32 carry differences of 1e-7, hence eigenvalues of 1e-14
PINV_CUTOFF = 1e-10
# of |m|^2: the squared distance of unit vectors at cosine 1 - 1e-9, where `Geometry` calls classes coincident
COINCIDENT = 2e-9
LISTED_PAIRS = 10000


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassSeparation:
    """CDNV of every pair of classes.

    Attributes
    ----------
    matrix : (C, C)
        (v_c + v_d) / (2 |m_c - m_d|^2); inf where the means coincide, nan on the diagonal and where it is n/a (a class
        of one image).
    mean, max : float
        Over the pairs with a finite value; nan where there is none.
    worst_pair : (int, int) or None
        Where the maximum is.
    collapsed_pairs : tuple of (int, int)
        Pairs whose means coincide, the first 10000 of `num_collapsed_pairs`. They are named here and left out of `mean`
        and `max`.
    num_collapsed_pairs : int
    not_available : tuple of int
        Classes without a within-class variance.
    """

    matrix: Array
    mean: float
    max: float
    worst_pair: tuple[int, int] | None
    collapsed_pairs: tuple[tuple[int, int], ...]
    num_collapsed_pairs: int
    not_available: tuple[int, ...]


@dataclass(frozen=True)
class SimplexDistance:
    """Distance of a Gram matrix from the regular simplex of as many classes, the answer for balanced classes.

    Attributes
    ----------
    relative_frobenius : float
        |A - A*|_F / |A*|_F over the entries off the diagonal, A*_cd = -1/(C - 1).
    max_angle_deg : float
        Largest |angle_cd - arccos(-1/(C - 1))|, in degrees.
    worst_pair : (int, int) or None
    left_out : tuple of int
        Classes without a mean direction (empty, or n/a); C counts the others.
    """

    relative_frobenius: float
    max_angle_deg: float
    worst_pair: tuple[int, int] | None
    left_out: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassMetrics:
    """Everything of this file for one embedding; classes that have images, in class order.

    Attributes
    ----------
    names : tuple of str, length C
    nc1 : float
        nan where it is n/a (`nc1`), or where the within-class covariance was not accumulated.
    variances : (C,)
        tr S_c, unbiased; nan for a class of one image.
    worst_class : str or None
        The class with the largest variance: an average hides it.
    separation : ClassSeparation
    simplex : SimplexDistance
        Of the cosines between class means.
    empty, singletons : tuple of str
        Classes without an image, left out of everything; classes of one image, without within-class statistics.
    """

    names: tuple[str, ...]
    nc1: float
    variances: Array
    worst_class: str | None
    separation: ClassSeparation
    simplex: SimplexDistance
    empty: tuple[str, ...]
    singletons: tuple[str, ...]


def nc1(means: npt.ArrayLike, within: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float:
    r"""Within-class variability relative to the spread of the class means, tr(S_w S_b^+) / C; 0 at collapse.

        S_b = sum_c w_c (m_c - m)(m_c - m)',     m = sum_c w_c m_c.

    Parameters
    ----------
    means : (C, d)
    within : (d, d)
        S_w, the mean over samples of (z - m_c)(z - m_c)'.
    weights : (C,), optional
        w_c, scaled to sum 1; all equal by default, as in the paper (its data are balanced). With n_c the decomposition
        of the total scatter is exact.

    Returns
    -------
    float
        nan where all means coincide, or where `within` is nan (n/a).

    Raises
    ------
    InvalidInputError
        Shapes that do not fit, means that are not finite, or weights that are not positive.

    References
    ----------
    Papyan, Han, Donoho 2020, arXiv 2008.08186 (NC1).
    """
    table, covariance = _means(means), np.asarray(within, dtype=np.float64)
    count, dim = table.shape
    if covariance.shape != (dim, dim):
        raise InvalidInputError(
            f"`within` must be (d, d) = ({dim}, {dim}) for these means; got {covariance.shape} (S_w of all classes)"
        )
    share = np.ones(count) if weights is None else np.asarray(weights, dtype=np.float64)
    if share.shape != (count,) or not np.all(np.isfinite(share)) or np.any(share <= 0):
        raise InvalidInputError(
            f"`weights` must be {count} positive numbers, one per class; got shape {share.shape} (counts will do)"
        )
    share = share / share.sum()
    # The factor of S_b: its singular values keep twice the digits of the eigenvalues of S_b, and C x d is smaller than
    # d x d.
    centred = np.sqrt(share)[:, None] * (table - share @ table)
    _, sigma, directions = scipy.linalg.svd(centred, full_matrices=False)
    between = sigma**2
    if not np.all(np.isfinite(covariance)) or between[0] <= COINCIDENT * np.max(np.sum(table**2, axis=1)):
        return math.nan
    kept = between > PINV_CUTOFF * between[0]
    spread = np.einsum("kd,de,ke->k", directions[kept], covariance, directions[kept], optimize=True)
    return float(np.sum(spread / between[kept]) / count)


def cdnv(means: npt.ArrayLike, variances: npt.ArrayLike) -> ClassSeparation:
    r"""Class-distance normalised variance, (v_c + v_d) / (2 |m_c - m_d|^2), of every pair of classes; 0 at collapse.

    Parameters
    ----------
    means : (C, d)
    variances : (C,)
        v_c = E |z - m_c|^2, unbiased (tr S_c); nan where a class has one image: its pairs are n/a, not 0.

    Returns
    -------
    ClassSeparation

    Raises
    ------
    InvalidInputError
        Shapes that do not fit, means that are not finite, or a negative variance.

    References
    ----------
    Galanti, Gyorgy, Hutter 2021, arXiv 2112.15121.
    """
    table, spread = _means(means), np.asarray(variances, dtype=np.float64)
    count = table.shape[0]
    if spread.shape != (count,) or np.any(spread < 0) or np.any(np.isinf(spread)):
        raise InvalidInputError(
            f"`variances` must be {count} numbers >= 0, nan where n/a; got shape {spread.shape} (tr S_c of each class)"
        )
    matrix = np.full((count, count), math.nan)
    squares = np.sum(table**2, axis=1)
    listed: list[tuple[int, int]] = []
    number = 0
    for block in blocks(count, count, 1 << 20):
        apart = cdist(table[block], table, "sqeuclidean")  # differences keep the digits of close means
        same = apart <= COINCIDENT * np.maximum(squares[block][:, None], squares[None, :])
        rows = np.arange(count)[block]
        value = (spread[block][:, None] + spread[None, :]) / (2 * np.where(same, 1.0, apart))
        value[same] = math.inf
        value[rows - block.start, rows] = math.nan
        value[np.isnan(spread)[block]] = math.nan
        value[:, np.isnan(spread)] = math.nan
        matrix[block] = value
        first, second = np.nonzero(same & (rows[:, None] < np.arange(count)[None, :]))
        number += first.size
        room = LISTED_PAIRS - len(listed)
        listed += [(int(rows[i]), int(j)) for i, j in zip(first[:room], second[:room], strict=True)]
    upper = np.triu(np.isfinite(matrix), 1)
    values = matrix[upper]
    worst = None
    if values.size:
        flat = int(np.argmax(np.where(upper, matrix, -1.0)))
        worst = (flat // count, flat % count)
    mean, largest = (float(values.mean()), float(values.max())) if values.size else (math.nan, math.nan)
    missing = tuple(int(c) for c in np.flatnonzero(np.isnan(spread)))
    return ClassSeparation(
        matrix=matrix,
        mean=mean,
        max=largest,
        worst_pair=worst,
        collapsed_pairs=tuple(listed),
        num_collapsed_pairs=number,
        not_available=missing,
    )


def simplex_distance(gram: npt.ArrayLike) -> SimplexDistance:
    """Distance from the regular simplex.

    Parameters
    ----------
    gram : (C, C)
        Inner products of class means, divided here by the square roots of the diagonal. A class whose diagonal is nan
        or not positive, or that has no finite entry with any other, is left out and named. Pairs that are nan are left
        out.

    Returns
    -------
    SimplexDistance
        nan where fewer than two classes are left.

    Raises
    ------
    InvalidInputError
        A matrix that is not square.
    """
    given = np.asarray(gram, dtype=np.float64)
    if given.ndim != 2 or given.shape[0] != given.shape[1]:
        raise InvalidInputError(f"`gram` must be square, (C, C); got {given.shape} (inner products of class means)")
    diagonal = np.diag(given)
    kept = np.isfinite(diagonal) & (np.nan_to_num(diagonal) > 0)
    finite = np.isfinite(given) & kept[:, None] & kept[None, :]
    np.fill_diagonal(finite, False)
    kept &= finite.any(axis=1)
    left_out = tuple(int(c) for c in np.flatnonzero(~kept))
    classes = np.flatnonzero(kept)
    if classes.size < 2:
        return SimplexDistance(math.nan, math.nan, None, left_out)
    root = np.sqrt(diagonal[classes])
    cosines = given[np.ix_(classes, classes)] / root[:, None] / root[None, :]
    target = -1.0 / (classes.size - 1)
    pairs = finite[np.ix_(classes, classes)]
    relative = math.sqrt(float(np.mean((cosines[pairs] - target) ** 2))) / abs(target)
    error = np.where(pairs, np.degrees(np.abs(arccos_clipped(cosines) - math.acos(target))), -1.0)
    first, second = np.unravel_index(int(np.argmax(error)), error.shape)
    pair = tuple(sorted((int(classes[first]), int(classes[second]))))
    return SimplexDistance(relative, float(error.max()), (pair[0], pair[1]), left_out)


def singular_values_of_scatter(matrix: npt.ArrayLike) -> Array:
    """Singular values of rows Z from Z'Z (d, d) or Z Z' (n, n), as square roots of the eigenvalues.

    Returns
    -------
    (d,) array
        Descending. Eigenvalues below d eps times the largest are rounding and become 0: a singular value below 1e-8
        sqrt(d) of the largest cannot be seen in a scatter matrix.

    Raises
    ------
    InvalidInputError
        A matrix that is not square, finite and symmetric to rounding.
    """
    given = _finite("matrix", matrix, "(n, n)", "leave such rows out")
    size = float(np.abs(given).max())
    if given.shape[0] != given.shape[1] or np.abs(given - given.T).max() > 1e-6 * size:
        raise InvalidInputError(
            f"`matrix` must be symmetric; got shape {given.shape} (a scatter or a Gram matrix of rows)"
        )
    eigenvalues = scipy.linalg.eigvalsh((given + given.T) / 2)[::-1]
    kept = eigenvalues > eigenvalues.size * EPS * max(float(eigenvalues[0]), 0.0)
    return np.asarray(np.sqrt(np.where(kept, eigenvalues, 0.0)))


def effective_rank(values: npt.ArrayLike) -> float:
    """exp( -sum_k p_k log p_k ) with p_k = sigma_k / sum sigma: between 1 and the number of non-zero singular values.

    Parameters
    ----------
    values : (r,)
        Singular values, >= 0, in any order.

    Returns
    -------
    float
        nan where all are zero (n/a).

    Raises
    ------
    InvalidInputError
        A value that is negative or not finite.

    References
    ----------
    Roy, Vetterli 2007, The effective rank: a measure of effective dimensionality, EUSIPCO.
    """
    sigma = np.asarray(values, dtype=np.float64)
    if sigma.ndim != 1 or not np.all(np.isfinite(sigma)) or np.any(sigma < 0):
        raise InvalidInputError(
            "`values` must be singular values, finite and >= 0; got others (for example from numpy.linalg.svd)"
        )
    total = float(sigma.sum())
    if total == 0:
        return float("nan")
    share = sigma[sigma > 0] / total
    return float(np.exp(-np.sum(share * np.log(share))))


def class_metrics(moments: ClassMoments, within: WithinClass | None = None, weighting: str = "classes") -> ClassMetrics:
    """All class metrics from the moments of an embedding.

    Parameters
    ----------
    moments : ClassMoments
        Classes with a count of 0 are named and left out.
    within : WithinClass, optional
        Of the classes of `moments` in the same order. Without it the variances come from the sums, with the rounding of
        n_c eps, and the within-class scatter from `moments.total_scatter` where it is there.
    weighting : {"classes", "samples"}
        Weights of the class means in NC1: equal, or n_c.

    Raises
    ------
    InvalidInputError
        No class with an image, or another `weighting`.
    """
    if weighting not in ("classes", "samples"):
        raise InvalidInputError(f"`weighting` must be classes or samples; got {weighting!r}")
    kept = np.flatnonzero(moments.counts > 0)
    if kept.size == 0:
        raise InvalidInputError(
            "`moments` must hold a class with images; got only empty classes (is every row ignored?)"
        )
    counts = moments.counts[kept].astype(np.float64)
    means = moments.sums[kept] / counts[:, None]
    names = _picked(moments.names, kept)
    scatter = _mean_scatter(moments, within, counts, means)
    norms = np.linalg.norm(means, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        directions = means / norms[:, None]
    variances = _variances(moments, within, kept, counts, means)
    known = np.flatnonzero(~np.isnan(variances))
    return ClassMetrics(
        names=names,
        nc1=math.nan if scatter is None else nc1(means, scatter, None if weighting == "classes" else counts),
        variances=variances,
        worst_class=names[int(known[np.argmax(variances[known])])] if known.size else None,
        separation=cdnv(means, variances),
        simplex=simplex_distance(directions @ directions.T),
        empty=_picked(moments.names, np.flatnonzero(moments.counts == 0)),
        singletons=_picked(names, np.flatnonzero(counts == 1)),
    )


def _variances(
    moments: ClassMoments, within: WithinClass | None, kept: npt.NDArray[np.intp], counts: Array, means: Array
) -> Array:
    if within is not None:
        return np.asarray(within.traces[kept] if within.traces.size == moments.counts.size else within.traces)
    # sum |z|^2 - n |m|^2 may come out as -1e-16 for a class at one point.
    total = np.maximum(moments.squares[kept] - counts * np.sum(means**2, axis=1), 0.0)
    return np.where(counts > 1, total / np.maximum(counts - 1, 1), math.nan)


def _mean_scatter(moments: ClassMoments, within: WithinClass | None, counts: Array, means: Array) -> Array | None:
    """S_w, the mean over images of the within-class scatter."""
    total = counts.sum()
    if within is not None:
        freedom = total - counts.size
        return np.asarray(within.pooled * (freedom / total)) if freedom > 0 else None
    if moments.total_scatter is None:
        return None
    return np.asarray((moments.total_scatter - (counts[:, None] * means).T @ means) / total)


def _picked(names: Sequence[str], index: npt.NDArray[np.intp]) -> tuple[str, ...]:
    return tuple(names[int(i)] for i in index)


def _means(means: npt.ArrayLike) -> Array:
    return _finite("means", means, "(C, d)", "leave empty classes out")


def _finite(name: str, values: npt.ArrayLike, shape: str, remedy: str) -> Array:
    """A finite table in float64."""
    table = np.asarray(values, dtype=np.float64)
    fits = table.ndim == 2 and table.size > 0
    if not fits or not np.all(np.isfinite(table)):
        came = "NaN or infinity" if fits else f"shape {table.shape}"
        raise InvalidInputError(f"`{name}` must be finite, {shape}; got {came} ({remedy})")
    return table
