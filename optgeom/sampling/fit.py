r"""The law that fits observed pairs, and how well they determine its concentration.

With v and v' the parts of an anchor and its positive in the directions that vary, w = |v|^2 and s = v.v' (theory) or w
= 1 and s their cosine (reported, and where nothing is fixed), n pairs have the log likelihood

    l(kappa) = kappa sum_i s_i - sum_i log M(kappa w_i),        M(k) = E exp(k t),  t the cosine of a uniform direction,

up to a constant. It is concave, its maximum solves mean s_i = mean w_i A(kappa w_i), A = (log M)', and by Wilks'
theorem

    { kappa :  2 (l(kappa_hat) - l(kappa)) <= chi^2_1 quantile }

covers the true concentration with nearly the stated probability. The interval does not tell whether the law has this
form.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import special
from scipy.optimize import brentq

from optgeom import _checks
from optgeom._numerics import EPS, Array
from optgeom.errors import InvalidInputError
from optgeom.sampling import latents
from optgeom.sampling.conditionals import Conditional, Slice, VonMisesFisher
from optgeom.sampling.diversity import Diversity
from optgeom.sampling.latents import check_dimension
from optgeom.sampling.pairs import Pairs

LARGEST_KAPPA = 1e6  # beyond, positives hardly differ from their anchors
LEVEL = 0.95
FARTHER = 5.0  # standard errors: positives further from their anchors than chance follow no law of this kind
MOST_WEIGHTS = 20_000  # different w; more are averaged in runs of neighbours, whose spread is then below 1e-4


@dataclass(frozen=True)
class Fit:
    """A fitted law.

    Attributes
    ----------
    conditional : VonMisesFisher or Slice
        Its last coordinates are the fixed directions.
    kappa : float
        Most likely concentration, in [0, 1e6].
    interval : (float, float)
        Likelihood interval of 95 %; it ends at inf where pairs do not bound the concentration below 1e6.
    """

    conditional: Conditional
    kappa: float
    interval: tuple[float, float]


def law_of(latent_dim: int, kappa: float, fixed: int, *, convention: str = "theory") -> Conditional:
    """The law with the last `fixed` coordinates fixed; von Mises-Fisher where no coordinate is fixed."""
    size = check_dimension("latent_dim", latent_dim)
    still = _checks.integer("fixed", fixed, at_least=0, hint="the number of latent coordinates that never vary")
    if still >= size:
        raise InvalidInputError(
            f"`fixed` must be below `latent_dim` {size}; got {still} (one coordinate must stay free)"
        )
    return Slice(size, kappa, tuple(range(size - still, size)), convention) if still else VonMisesFisher(size, kappa)


def fit(pairs: Pairs, variation: Diversity, *, convention: str = "theory") -> Fit:
    """Most likely law with the fixed directions of the observed variation.

    Raises
    ------
    InvalidInputError
        No direction varies, or positives are further from their anchors than independent points would be.
    """
    d, still = pairs.dimension, variation.fixed_dimensions
    if still >= d:
        raise InvalidInputError(
            "`pairs` must vary in some direction; got positives equal to their anchors (augment more strongly)"
        )
    free = d - still
    weight, pull = _statistics(pairs, variation.fixed_directions, convention)
    values, counts = _runs(weight)
    share, mean = counts / weight.size, float(pull.mean())

    if mean < -FARTHER / math.sqrt(weight.size * free):
        raise InvalidInputError(
            f"`pairs` must be nearer than chance; the mean cosine of what varies is {mean:.3g} "
            "(are the rows of z_plus in the order of z?)"
        )

    def slope(kappa: float) -> float:
        return float(share @ (values * latents.mean_cosine(kappa * values, free))) - mean

    def height(kappa: float) -> float:
        return kappa * mean - float(share @ latents.log_mean_exp(kappa * values, free))

    kappa = LARGEST_KAPPA
    if slope(LARGEST_KAPPA) > 0:
        kappa = 0.0 if slope(0.0) >= 0 else _root(slope, 0.0, LARGEST_KAPPA)
    least = height(kappa) - float(special.chdtri(1, 1 - LEVEL)) / (2 * weight.size)

    def inside(other: float) -> float:
        return height(other) - least

    low = 0.0 if kappa == 0 or inside(0.0) >= 0 else _root(inside, 0.0, kappa)
    high = math.inf if kappa == LARGEST_KAPPA or inside(LARGEST_KAPPA) >= 0 else _root(inside, kappa, LARGEST_KAPPA)
    return Fit(law_of(d, kappa, still, convention=convention), kappa, (low, high))


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    return float(brentq(function, low, high, xtol=1e-12, rtol=4 * EPS))


def _statistics(pairs: Pairs, directions: Array, convention: str) -> tuple[Array, Array]:
    """w and s of every pair."""
    if directions.shape[1] == 0:
        return np.ones(len(pairs)), np.asarray((pairs.z * pairs.z_plus).sum(axis=1))
    v = pairs.z - (pairs.z @ directions) @ directions.T
    v_plus = pairs.z_plus - (pairs.z_plus @ directions) @ directions.T
    product = (v * v_plus).sum(axis=1)
    if convention == "theory":
        return (v**2).sum(axis=1), product
    lengths = np.linalg.norm(v, axis=1) * np.linalg.norm(v_plus, axis=1)
    return np.ones(len(pairs)), np.clip(product / np.where(lengths > 0, lengths, 1.0), -1.0, 1.0)


def _runs(weight: Array) -> tuple[Array, Array]:
    """Different weights and how often they occur."""
    values, counts = np.unique(weight, return_counts=True)
    if values.size <= MOST_WEIGHTS:
        return values, counts.astype(np.float64)
    ordered = np.array_split(np.sort(weight), MOST_WEIGHTS)
    return np.array([part.mean() for part in ordered]), np.array([float(part.size) for part in ordered])
