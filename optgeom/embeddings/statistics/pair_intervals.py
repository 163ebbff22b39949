r"""Simultaneous intervals of the cosines between class directions that hold under structured classes.

For a pair of classes c, d with V_cd, the images' covariance on the sphere F_c F_c' and n_c as in `class_noise`, A the
estimated and A* the optimal cosine, over the tested pairs:

* **First order.** se^2 = V_cd + V_dc; t is the quantile of Student's t at alpha/(2 pairs), with Welch's degrees of
  freedom.
* **Curvature.** A class that scatters along one axis moves the cosine as A + a s - (A/2) s^2, and a derivative taken at
  the estimate is near 0 by chance just where the deviation is largest. With t_c the quantile at n_c - 1 degrees and
  l_c = t_c^2 x the largest eigenvalue of F_c F_c',

      K = half the largest eigenvalue of [[|A| l_c, sqrt(l_c l_d)], [sqrt(l_c l_d), |A| l_d]],
      q = sqrt(t^2 se^2 + K^2).

* **Kinds of images that the sample does not show.** A sample cannot tell about them, so this is an assumption: up to a
  share eps0 of a class (`unseen`, 5 % by default, 0 switches it off) may be of one. With e_c =
  min(t_c/n_c, eps0)/rho_c,

      ad = sqrt(1 - A*^2) sqrt(e_c^2 + e_d^2) + |A*| (e_c + e_d)^2/2.

* **Half width** q without, sqrt(q^2 + ad^2) with the allowance, as a far kind that no image shows and noise at its
  quantile are two rare events. Where |A*| > cos 5 degrees the latter is sqrt(t^2 se^2 + (sqrt ad + sqrt K)^4): there
  the cosine is quadratic in the displacements of noise and of unseen kinds, which add up.
* **Near +-1** an interval is never narrower than that of a measurement exactly at the boundary: the lower end is at
  most 1 - half width (mirrored at -1).
* **Rounding** of the input, an angle r per direction (`rounding`), adds sqrt(1 - A*^2) 2 r + |A*| (2 r)^2/2.
* **Few images.** Two modes of a class coincide in all of n_c images with probability 2^(1 - n_c): pairs of a class with
  fewer than 8 images decide nothing, and have the interval [-1, 1].

Two intervals come of it: [lower, upper] with noise and rounding only, which is what these images tell and what is
shown, and [wide_lower, wide_upper] with the kinds that they do not show. A tolerance delta is granted for whatever
keeps a network from its optimum, so delta and the allowance are not added: a pair is **beyond** delta (`beyond`) where
its optimal angle is more than delta outside the first interval and outside the second at all. At delta = 0 only the
second counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from optgeom import _checks
from optgeom._numerics import Array, arccos_clipped, freeze
from optgeom.embeddings.moments.directions import Directions
from optgeom.embeddings.statistics.class_noise import ClassNoise
from optgeom.errors import InvalidInputError

ALPHA = 0.05
UNSEEN = 0.05  # share of a class that may be of a kind that its images do not show
FEWEST_IMAGES = 8  # 2^(1-n) < .8 %: below, all images may be of one of two modes
# arccos turns one unit of rounding next to a cosine of 1 into a microdegree: an exact embedding must not differ.
ROUNDING_DEG = 1e-5
BOUNDARY_COSINE = float(np.cos(np.radians(5.0)))


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
        Ends of the intervals of the cosines, not clipped; -1 and 1 where the pair cannot be decided.
    wide_lower, wide_upper : (C, C)
        The same with the allowance for kinds of images that the sample does not show.
    shares : (C, C)
        At [c, d] the part of se_cd^2 that is due to the images of class c; 1/n_c for pairs that cannot be decided.
    tested : (C, C) bool
        Pairs of two different classes that both have a direction.
    decidable : (C, C) bool
        Tested pairs of classes that both have at least 8 images.
    num_pairs, num_decidable : int
        Numbers of (unordered) tested pairs, and of decidable ones, over which alpha is divided.
    alpha : float
        Probability that any interval misses.
    unseen : float
        eps0.
    source : {"full", "projected", "pooled"}
        Where the first-order terms come from, as in `ClassNoise`.
    """

    cosines: Array
    standard_errors: Array
    degrees_of_freedom: Array
    lower: Array
    upper: Array
    wide_lower: Array
    wide_upper: Array
    shares: Array
    tested: npt.NDArray[np.bool_]
    decidable: npt.NDArray[np.bool_]
    num_pairs: int
    num_decidable: int
    alpha: float
    unseen: float
    source: str

    def __post_init__(self) -> None:
        freeze(self)


def pair_intervals(
    directions: Directions,
    noise: ClassNoise,
    optimal: Array,
    *,
    alpha: float = ALPHA,
    unseen: float = UNSEEN,
    rounding: float = 0.0,
) -> PairIntervals:
    """Intervals of all cosines that hold simultaneously with probability 1 - alpha.

    Parameters
    ----------
    directions : Directions
    noise : ClassNoise
        Of these directions.
    optimal : (C, C)
        Optimal Gram matrix, in the order of `directions`.
    alpha : float
        In (0, 1).
    unseen : float
        In [0, 1): share of a class that may be of a kind that its images do not show.
    rounding : float
        Angle (radians) by which rounding of the input may have moved a direction, as `rounding.rounding_angle` tells.

    Raises
    ------
    InvalidInputError
        `optimal` of another shape, or `alpha` or `unseen` outside of its range.
    """
    level = _checks.real("alpha", alpha, above=0.0, hint="0.05 is usual")
    if level >= 1:
        raise InvalidInputError(f"`alpha` must be < 1; got {alpha!r} (0.05 is usual)")
    share = checked_unseen(unseen)
    size, known = directions.num_classes, noise.known
    target = matched(optimal, directions)[np.ix_(known, known)]
    enough = noise.counts >= FEWEST_IMAGES
    decidable = enough[:, None] & enough[None, :] & ~np.eye(known.size, dtype=bool)
    number = int(decidable.sum()) // 2
    tail = level / (2 * max(number, 1))
    variance = noise.shares + noise.shares.T
    freedom = welch(noise.shares, noise.counts - 1)
    width = student_quantile(freedom, tail) * np.sqrt(variance)
    own = student_quantile(noise.counts - 1, tail)
    bend = curvature(noise.cosines, own**2 * noise.tops)
    allowance = unseen_kinds(target, noise, own, share)
    rounded = rounding_cosine(target, rounding)
    lower, upper = at_boundaries(noise.cosines, np.hypot(width, bend) + rounded)
    wide_lower, wide_upper = at_boundaries(noise.cosines, half_width(target, width, bend, allowance) + rounded)
    shares = np.where(decidable, noise.shares, 1 / noise.counts[:, None])
    np.fill_diagonal(shares, 0.0)
    tested = directions.known[:, None] & directions.known[None, :]
    np.fill_diagonal(tested, False)
    return PairIntervals(
        cosines=directions.gram,
        standard_errors=spread(np.sqrt(variance), known, size),
        degrees_of_freedom=spread(freedom, known, size),
        lower=spread(np.where(decidable, lower, -1.0), known, size),
        upper=spread(np.where(decidable, upper, 1.0), known, size),
        wide_lower=spread(np.where(decidable, wide_lower, -1.0), known, size),
        wide_upper=spread(np.where(decidable, wide_upper, 1.0), known, size),
        shares=spread(shares, known, size),
        tested=tested,
        decidable=spread(decidable, known, size, False),
        num_pairs=known.size * (known.size - 1) // 2,
        num_decidable=number,
        alpha=level,
        unseen=share,
        source=noise.source,
    )


class Ends(Protocol):
    """Intervals of cosines: `PairIntervals` and `bootstrap.NullIntervals`."""

    @property
    def lower(self) -> Array: ...
    @property
    def upper(self) -> Array: ...
    @property
    def wide_lower(self) -> Array: ...
    @property
    def wide_upper(self) -> Array: ...


def beyond(ends: Ends, optimal: Array, tolerance_deg: float) -> npt.NDArray[np.bool_]:
    """(C, C) pairs whose angle is off by more than a tolerance, beyond noise and beyond kinds of images not shown.

    Parameters
    ----------
    ends : PairIntervals or NullIntervals
    optimal : (C, C)
        Optimal cosines, in the same order.
    tolerance_deg : float
        Degrees >= 0.
    """
    best = arccos_clipped(optimal)
    inner = np.maximum(arccos_clipped(ends.upper) - best, best - arccos_clipped(ends.lower))
    outer = np.maximum(arccos_clipped(ends.wide_upper) - best, best - arccos_clipped(ends.wide_lower))
    with np.errstate(invalid="ignore"):
        mask = (np.degrees(inner) > tolerance_deg + ROUNDING_DEG) & (np.degrees(outer) > ROUNDING_DEG)
    np.fill_diagonal(mask, False)
    return np.asarray(mask)


def checked_unseen(unseen: float, name: str = "unseen") -> float:
    """A share in [0, 1), an argument of this name."""
    share = _checks.real(name, unseen, at_least=0.0, hint="0.05 is usual, 0 assumes that the images show all kinds")
    if share >= 1:
        raise InvalidInputError(
            f"`{name}` must be < 1; got {unseen!r} (a share of the images of a class, 0.05 is usual)"
        )
    return share


def matched(optimal: Array, directions: Directions) -> Array:
    """The optimal cosines, clipped; refused unless they are (C, C)."""
    size = directions.num_classes
    if optimal.shape != (size, size):
        raise InvalidInputError(
            f"`optimal` must have shape (C, C) = ({size}, {size}), matched to the classes; got {optimal.shape}"
        )
    return np.clip(optimal, -1.0, 1.0)


def curvature(cosines: Array, lengths: Array) -> Array:
    """K: half the largest eigenvalue of [[|A| l_c, sqrt(l_c l_d)], [sqrt(l_c l_d), |A| l_d]], for l (K,)."""
    size = np.minimum(np.abs(cosines), 1.0)
    one, other = lengths[:, None], lengths[None, :]
    return np.asarray(size * (one + other) / 4 + np.sqrt((size * (one - other) / 2) ** 2 + one * other) / 2)


def unseen_kinds(target: Array, noise: ClassNoise, quantiles: Array, share: float) -> Array:
    """ad: how far kinds of images that no sample shows may have moved each cosine; quantiles t_c (K,)."""
    moved = np.minimum(quantiles / noise.counts, share) / noise.rho
    one, other = moved[:, None], moved[None, :]
    across = np.sqrt(np.maximum(1 - target**2, 0.0))
    return np.asarray(across * np.hypot(one, other) + np.abs(target) * (one + other) ** 2 / 2)


def half_width(target: Array, first: Array, bend: Array, allowance: Array) -> Array:
    """First-order noise, curvature and the allowance for unseen kinds together."""
    boundary = np.hypot(first, (np.sqrt(allowance) + np.sqrt(bend)) ** 2)
    return np.where(np.abs(target) > BOUNDARY_COSINE, boundary, np.sqrt(first**2 + bend**2 + allowance**2))


def rounding_cosine(target: Array, rounding: float) -> Array:
    """How far two directions moved by the angle `rounding` each can move the cosine between them."""
    both = 2 * rounding
    return np.asarray(np.sqrt(np.maximum(1 - target**2, 0.0)) * both + np.abs(target) * both**2 / 2)


def at_boundaries(cosines: Array, reach: Array) -> tuple[Array, Array]:
    """Ends of the intervals, at least as wide inside [-1, 1] as those of a measurement exactly at the boundary."""
    return np.minimum(cosines - reach, 1 - reach), np.maximum(cosines + reach, reach - 1)


def welch(shares: Array, freedom: Array) -> Array:
    """(s_c + s_d)^2/(s_c^2/f_c + s_d^2/f_d) for shares s_c at [c, d] and degrees f (K,); inf where both are 0."""
    # Divided by the larger one first: squares of tiny variances would underflow.
    top = np.maximum(shares, shares.T)
    scaled = shares / np.where(top > 0, top, 1.0)
    below = scaled**2 / freedom[:, None]
    below = below + below.T
    return np.where(below > 0, (scaled + scaled.T) ** 2 / np.where(below > 0, below, 1.0), np.inf)


def spread(
    part: npt.NDArray[Any], known: npt.NDArray[np.intp], size: int, empty: float | bool = np.nan
) -> npt.NDArray[Any]:
    """(C, C) with `part` (K, K) at the known classes and `empty` elsewhere."""
    whole: npt.NDArray[Any] = np.full((size, size), empty)
    whole[np.ix_(known, known)] = part
    return whole


def student_quantile(freedom: Array, tail: float) -> Array:
    """Upper quantile of Student's t."""
    from scipy.special import stdtrit

    return np.asarray(-stdtrit(np.minimum(freedom, 1e300), tail), dtype=np.float64)
