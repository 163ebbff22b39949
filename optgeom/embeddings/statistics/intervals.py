r"""Standard errors and simultaneous intervals of the cosines between class directions.

With Sigma_c the covariance within class c, u_c its direction, P_c = I - u_c u_c' and V_c = P_c Sigma_c P_c / (n_c
rho_c^2), which is the covariance of the estimated direction, the variance of A_cd is, to second order and with A*_cd
the optimum,

    se_cd^2 = u_d' V_c u_d + u_c' V_d u_c + tr(V_c V_d) + (A*_cd^2 / 2) (tr V_c^2 + tr V_d^2).

The first two terms vanish where u_c = +-u_d (A* = +-1, coincident and opposite classes): there the last two are all
there is. Everything on the right is estimated:

* Rows of unit length do not scatter along their own mean, so the pooled covariance S lacks scatter along the u_d, most
  of all along those of large classes, although the other classes scatter there: standard errors would be up to a third
  too small. The common shape R is what leaves S when every class c loses its own direction: sum_c g_c P_c R P_c = S
  with g_c proportional to (n_c - 1) tr S_c.
* Sigma_c is the sample covariance S_c, shrunk to this shape with weight w_c = (n_c - 1)/(n_c - 1 + 30): in the tangent
  space w_c P_c S_c P_c + (1 - w_c) b_c P_c R P_c with b_c = tr S_c / tr(P_c R P_c). The exact first-order terms of a
  second pass are shrunk likewise, so that both give the same. Without full covariances w_c = 0 in the other terms,
  without a second pass in all.
* Products of a covariance estimate with itself are biased: at f degrees of freedom
  E tr S^2 = (1 + 1/f) tr Sigma^2 + (tr Sigma)^2 / f. Hence tr V^2 is estimated by (tr S^2 - (tr S)^2/f) / (1 + 1/f),
  with f = n_c - 1 for S_c and f = sum (n_c - 1) for the pooled shape.
* u_d carries noise itself, of covariance V_d, and A_cd in P_c u_d = u_d - A_cd u_c too: u_d' V_c u_d comes out too
  large by tr(V_c V_d) + A*^2 tr V_c^2 on average, which is taken off again (not below zero). At A* = +-1 this is the
  whole first-order term.

Degrees of freedom after Welch, the second-order terms going to both classes; Bonferroni over the tested pairs. At A* =
+-1 A - A* is, to this order, a centred sum of squares: its long tail, on the side away from +-1, is that of a
chi-square of the same skewness.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from optgeom import _checks
from optgeom._numerics import Array, freeze
from optgeom.embeddings.moments.second_pass import WithinClass
from optgeom.embeddings.statistics.directions import Directions
from optgeom.errors import InvalidInputError

ALPHA = 0.05
PRIOR_DEGREES = 30.0  # the pooled shape counts as much as 30 images
SHAPE_STEPS = 20  # leaves .01 of the misfit along the mean of a class that holds .8 of the scatter


@dataclass(frozen=True, kw_only=True, eq=False)
class PairIntervals:
    """Simultaneous intervals of all tested cosines. All arrays are read-only and symmetric, but for `shares`.

    Attributes
    ----------
    cosines : (C, C)
        De-attenuated cosines A, unclipped.
    standard_errors : (C, C)
        se_cd; 0 on the diagonal, nan where a class has no direction.
    degrees_of_freedom : (C, C)
        Welch; inf where the standard error is 0.
    lower, upper : (C, C)
        Ends of the intervals of the cosines, not clipped.
    shares : (C, C)
        At [c, d] the part of se_cd^2 that is due to the images of class c.
    tested : (C, C) bool
        Pairs of two different classes that both have a direction.
    num_pairs : int
        Number of (unordered) pairs tested, over which alpha is divided.
    alpha : float
        Probability that any interval misses.
    source : {"projected", "full", "pooled"}
        Where the first-order terms come from: exact from a second pass, from full covariances, or from the pooled
        shape.
    """

    cosines: Array
    standard_errors: Array
    degrees_of_freedom: Array
    lower: Array
    upper: Array
    shares: Array
    tested: npt.NDArray[np.bool_]
    num_pairs: int
    alpha: float
    source: str

    def __post_init__(self) -> None:
        freeze(self)


@dataclass(frozen=True, eq=False)
class _Terms:
    """Parts of the variance over the K classes that have a direction."""

    first: Array  # (K, K) u_d' V_c u_d at [c, d], with the noise of u in it
    cross: Array  # (K, K) tr(V_c V_d); tr V_c^2 on the diagonal
    trace: Array  # (K,) tr V_c


def pair_intervals(directions: Directions, within: WithinClass, optimal: Array, alpha: float = ALPHA) -> PairIntervals:
    """Intervals of all cosines that hold simultaneously with probability 1 - alpha.

    Parameters
    ----------
    directions : Directions
    within : WithinClass
        Covariances within the same classes.
    optimal : (C, C)
        Optimal Gram matrix, in the order of `directions`.
    alpha : float
        In (0, 1).

    Raises
    ------
    InvalidInputError
        `optimal` of another shape, or `alpha` outside (0, 1).
    """
    level = _checks.real("alpha", alpha, above=0.0, hint="0.05 is usual")
    if level >= 1:
        raise InvalidInputError(f"`alpha` must be < 1; got {alpha!r} (0.05 is usual)")
    size = directions.num_classes
    if optimal.shape != (size, size):
        raise InvalidInputError(
            f"`optimal` must have shape (C, C) = ({size}, {size}), matched to the classes; got {optimal.shape}"
        )
    known = np.flatnonzero(directions.known)
    number = known.size * (known.size - 1) // 2
    target = np.clip(optimal[np.ix_(known, known)], -1.0, 1.0)
    cosines = directions.gram[np.ix_(known, known)]
    terms = _terms(directions, within, known)
    variance, shares, skewness = _variances(terms, target)
    freedom = _welch(shares, directions.counts[known].astype(np.float64) - 1)
    # A balanced layout has few distinct values, a long-tailed one many: the quantile is computed for one triangle only.
    upper_triangle = np.triu_indices(known.size, 1)
    near, far = _quantiles(freedom[upper_triangle], skewness[upper_triangle], level / (2 * max(number, 1)))
    reach = np.zeros((2, known.size, known.size))
    reach[:, *upper_triangle] = np.stack([near, far])
    reach += reach.transpose(0, 2, 1)
    error = np.sqrt(variance)
    # The long tail of A is on the side of 0, so the interval reaches far on the side of +-1.
    lower = cosines - error * np.where(target > 0, reach[0], reach[1])
    upper = cosines + error * np.where(target > 0, reach[1], reach[0])
    tested = directions.known[:, None] & directions.known[None, :]
    np.fill_diagonal(tested, False)
    source = "projected" if within.projected is not None else "full" if within.full is not None else "pooled"

    def of_all(part: Array) -> Array:
        """(C, C), nan for classes without a direction."""
        whole = np.full((size, size), np.nan)
        whole[np.ix_(known, known)] = part
        return whole

    return PairIntervals(
        cosines=directions.gram,
        standard_errors=of_all(error),
        degrees_of_freedom=of_all(freedom),
        lower=of_all(lower),
        upper=of_all(upper),
        shares=of_all(shares),
        tested=tested,
        num_pairs=number,
        alpha=level,
        source=source,
    )


def _variances(terms: _Terms, target: Array) -> tuple[Array, Array, Array]:
    """se^2, the share of each class, and the skewness (absolute) of A."""
    own = np.diag(terms.cross)
    square = target**2
    first = np.maximum(terms.first - terms.cross - square * own[:, None], 0.0)
    shares = first + terms.cross / 2 + square * own[:, None] / 2
    np.fill_diagonal(shares, 0.0)
    variance = shares + shares.T
    # -(A/2) |e_c -+ e_d|^2 has the skewness of a chi-square, 2 sd/mean if its weights are equal.
    second = square * (own[:, None] + own[None, :]) / 2 + square * terms.cross
    mean = (terms.trace[:, None] + terms.trace[None, :]) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        skewness = 2 * np.abs(target) ** 3 * second**2 / (mean * variance**1.5)
    return variance, shares, np.where(np.isfinite(skewness), skewness, 0.0)


def _welch(shares: Array, freedom: Array) -> Array:
    """(s_c + s_d)^2 / (s_c^2 / f_c + s_d^2 / f_d)."""
    # Divided by the larger one first: squares of tiny variances would underflow.
    top = np.maximum(shares, shares.T)
    scaled = shares / np.where(top > 0, top, 1.0)
    below = scaled**2 / freedom[:, None]
    below = below + below.T
    return np.where(below > 0, (scaled + scaled.T) ** 2 / np.where(below > 0, below, 1.0), np.inf)


def _quantiles(freedom: Array, skewness: Array, tail: float) -> tuple[Array, Array]:
    """Standard errors to the near end of an interval (Student's t) and to the far one (through a skewed chi-square)."""
    from scipy.special import stdtrit

    t = -np.asarray(stdtrit(np.minimum(freedom, 1e300), tail), dtype=np.float64)
    # Wilson and Hilferty: a chi-square of k degrees of freedom is k (1 - 2/(9k) + normal sqrt(2/(9k)))^3; k =
    # 8/skewness^2.
    small = skewness > 1e-6
    ninth = np.where(small, skewness, 1.0) ** 2 / 36  # 2/(9k)
    far = ((1 - ninth + t * np.sqrt(ninth)) ** 3 - 1) / (3 * np.sqrt(ninth))
    return t, np.where(small, np.maximum(far, t), t)


def _terms(directions: Directions, within: WithinClass, known: npt.NDArray[np.intp]) -> _Terms:
    vectors, cosines = directions.vectors[known], directions.gram[np.ix_(known, known)]
    counts = directions.counts[known].astype(np.float64)
    traces = within.traces[known]
    scale = 1 / (counts * directions.rho_squared[known])
    # At least 1: the sum is 0 where every class has one image, and then nothing is known.
    total = max(float((directions.counts - 1).sum()), 1.0)
    shape = _common_shape(_tangential(within, directions, known, total), vectors, (counts - 1) * traces)
    pooled = _pooled(shape, vectors, cosines, total)
    relative = np.where(pooled.trace > 0, traces / np.where(pooled.trace > 0, pooled.trace, 1.0), 0.0)
    weight = (counts - 1) / (counts - 1 + PRIOR_DEGREES)
    amount = relative * scale
    if within.projected is not None:
        exact = within.projected[np.ix_(known, known)]
        first = scale[:, None] * (weight[:, None] * exact + ((1 - weight) * relative)[:, None] * pooled.first)
    if within.full is None:
        if within.projected is None:
            first = amount[:, None] * pooled.first
        return _Terms(first, np.outer(amount, amount) * pooled.cross, amount * pooled.trace)
    # Symmetric matrices by their upper triangle, with the root of 2 off the diagonal: half the memory, and the same
    # products.
    dim = within.pooled.shape[0]
    triangle = np.triu_indices(dim)
    weighted = np.where(triangle[0] == triangle[1], 1.0, np.sqrt(2.0))
    moved = np.empty((known.size, triangle[0].size))
    part = np.empty_like(moved)
    trace, part_trace = np.empty(known.size), np.empty(known.size)
    full_first = np.empty_like(cosines)
    for row, c in enumerate(known):
        u = vectors[row]
        sample = _projected(within.full[c], u)
        shrunk = weight[row] * sample + (1 - weight[row]) * relative[row] * _projected(shape, u)
        full_first[row] = np.einsum("ed,ed->e", vectors @ shrunk, vectors) * scale[row]
        moved[row] = shrunk[triangle] * weighted * scale[row]
        part[row] = sample[triangle] * weighted * (weight[row] * scale[row])
        trace[row], part_trace[row] = np.trace(shrunk) * scale[row], np.trace(sample) * weight[row] * scale[row]
    # Only what involves the pooled shape is a product of an estimate with itself here; samples of different classes are
    # independent.
    samples = part @ part.T
    pooling = 1 - np.outer(weight, weight)
    shared = _unbiased(moved @ moved.T - samples, np.outer(trace, trace) * pooling, total)
    np.fill_diagonal(samples, _unbiased(np.diag(samples), part_trace**2, counts - 1))
    cross = np.maximum(samples + shared, 0.0)
    return _Terms(first if within.projected is not None else full_first, cross, trace)


def _tangential(within: WithinClass, directions: Directions, known: npt.NDArray[np.intp], total: float) -> Array:
    """Pooled covariance without the scatter of each class along its own mean.

    Of unit rows z = rho u + tangential part e, the part along the mean is sqrt(1 - |e|^2), with variance var |e|^2 / (4
    rho^2), which is tr Sigma^2 / (2 rho^2) for Gaussian e. Full covariances give it exactly.
    """
    unit = directions.vectors[known] / np.linalg.norm(directions.vectors[known], axis=1)[:, None]
    freedom = directions.counts[known] - 1.0
    if within.full is not None:
        projected = np.zeros_like(within.pooled)
        for u, c, f in zip(unit, known, freedom, strict=True):
            projected += f / total * _projected(within.full[c], u)
        return projected
    size = float(np.trace(within.pooled))
    square = max(float(_unbiased(np.sum(within.pooled**2), np.array(size**2), total)), 0.0)
    concentration = square / size**2 if size > 0 else 0.0
    along = within.traces[known] ** 2 * concentration / (2 * directions.rho_squared[known])
    return np.asarray(within.pooled - (unit * (freedom / total * along)[:, None]).T @ unit)


def _common_shape(tangential: Array, vectors: Array, weights: Array) -> Array:
    """R with sum_c g_c P_c R P_c = S, the tangential scatter, and g = weights over their sum; its size does not matter.

    R <- R + (S - sum_c g_c P_c R P_c), from S with the mean scatter put where a class has none. It converges like
    (largest g)^k: what a dominant class leaves unknown, its own direction, keeps the mean scatter.
    """
    total = float(weights.sum())
    if not total > 0:
        return tangential
    share = weights / total
    lengths = np.linalg.norm(vectors, axis=1)
    unit = vectors / lengths[:, None]
    dim = tangential.shape[0]
    lost = np.asarray((unit * share[:, None]).T @ unit)
    shape = tangential + float(np.trace(tangential)) / max(dim - 1, 1) * lost
    for _ in range(SHAPE_STEPS):
        own = np.einsum("cd,cd->c", unit @ shape, unit)
        image = shape @ lost
        step = tangential - shape + image + image.T - np.asarray((unit * (share * own)[:, None]).T @ unit)
        shape = shape + step
        if np.abs(step).max() <= 1e-4 * np.abs(shape).max():
            break
    return np.asarray(shape)


def _projected(covariance: Array, u: Array) -> Array:
    """P S P with P = I - u u'."""
    image = covariance @ u
    outer = np.outer(u, image)
    return np.asarray(covariance - outer - outer.T + float(u @ image) * np.outer(u, u))


def _pooled(shape: Array, vectors: Array, cosines: Array, freedom: float) -> _Terms:
    """The terms for V_c = P_c S P_c, by products with the vectors only.

    With q_cd = u_c' S u_d, r_cd = u_c' S^2 u_d and g = u_c . u_d: P_c u_d = u_d - g u_c and P_c P_d = I - u_c u_c' -
    u_d u_d' + g u_c u_d'.
    """
    image = vectors @ shape
    q = image @ vectors.T
    r = image @ image.T
    trace, square = float(np.trace(shape)), float(np.sum(shape**2))
    q_own, r_own = np.diag(q), np.diag(r)
    first = q_own[None, :] - 2 * cosines * q + cosines**2 * q_own[:, None]
    g = vectors @ vectors.T  # not `cosines`, whose diagonal is 1: vectors are a little longer
    q_sum, r_sum = q_own[:, None] + q_own[None, :], r_own[:, None] + r_own[None, :]
    quartic = q_own[:, None] ** 2 + q_own[None, :] ** 2 + 2 * q**2 - 2 * g * q * q_sum + g**2 * np.outer(q_own, q_own)
    cross = square - 2 * (r_sum - g * r) + quartic
    linear = trace - q_sum + g * q  # tr(P_c P_d S)
    corrected = np.maximum(_unbiased(cross, linear**2, freedom), 0.0)
    return _Terms(np.maximum(first, 0.0), corrected, np.diag(linear).copy())


def _unbiased(products: Array | np.float64, squared_traces: Array, freedom: Array | float) -> Array:
    """tr Sigma^2 from tr S^2 and (tr S)^2: (tr S^2 - (tr S)^2 / f) / (1 + 1/f)."""
    return np.asarray((products - squared_traces / freedom) / (1 + 1 / freedom))
