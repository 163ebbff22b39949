r"""Decide all pairs of classes at once by drawing the noise of the class means around the optimum.

The intervals of `pair_intervals` hold for one pair at a time, and ignore that an optimum fixes all directions up to one
rotation. Here the null hypothesis is the whole optimum A* = U* U*':

1. Rotate it onto the data (weighted Procrustes): R maximises sum_c w_c u_c . R u*_c over R with orthonormal columns,
   with w_c = 1/(tr V_c + median of the tr V), V_c = F_c F_c' as in `class_noise`.
2. Draw directions R u*_c + e_c, e_c = F_c xi sqrt((n_c - 1)/chi^2) with xi standard normal and chi^2 of n_c - 1
   degrees, and their cosines divided by sqrt(|R u* + e|^2 - tr V_c), as the estimate is freed of its bias too. (Draws
   brought to unit length reject a true optimum in 25 % of the samples where cosines are near 1.)
3. The first half of the draws gives centre mu and scale sd of each cosine, the second half the quantile c of
   max |A - mu|/sd over the pairs.
4. A pair differs where |A - mu| exceeds the half width of `pair_intervals` with c sd in place of q (and of K near +-1).

Pairs within 2 degrees of coincident or opposite have no Gaussian scale (two modes per class: 6 to 14 % false): there
the intervals decide, and alpha is divided over all pairs in both. Hence each pair has intervals that the decision rests
on, A - (mu - A*) -+ half width without and with unseen kinds, which serve a tolerance as well
(`pair_intervals.beyond`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from optgeom import _checks
from optgeom._numerics import Array, freeze
from optgeom.embeddings.moments.directions import Directions
from optgeom.embeddings.statistics.class_noise import ClassNoise
from optgeom.embeddings.statistics.pair_intervals import (
    PairIntervals,
    at_boundaries,
    half_width,
    matched,
    rounding_cosine,
    spread,
    student_quantile,
    unseen_kinds,
)

DRAWS = 400
EDGE_COSINE = float(np.cos(np.radians(2.0)))
ENTRIES = 2**21  # of a block of draws, 16 MiB
SHORTEST = 0.05  # squared length of a drawn direction: below, a class of this noise has no direction


@dataclass(frozen=True, kw_only=True, eq=False)
class NullIntervals:
    """Intervals of all tested cosines that the verdict rests on. All arrays are read-only and symmetric.

    Attributes
    ----------
    lower, upper : (C, C)
        Ends, in cosines, not clipped.
    wide_lower, wide_upper : (C, C)
        The same with the allowance for kinds of images that the sample does not show.
    centre, scale : (C, C)
        mu and sd of the drawn cosines.
    drawn : (C, C) bool
        Pairs that the draws decide; the others have the interval of `pair_intervals`.
    critical : float
        c; nan where no pair is decided by draws.
    draws : int
    """

    lower: Array
    upper: Array
    wide_lower: Array
    wide_upper: Array
    centre: Array
    scale: Array
    drawn: npt.NDArray[np.bool_]
    critical: float
    draws: int

    def __post_init__(self) -> None:
        freeze(self)


def null_intervals(
    directions: Directions,
    noise: ClassNoise,
    intervals: PairIntervals,
    optimal: Array,
    *,
    rounding: float = 0.0,
    draws: int = DRAWS,
    seed: int = 0,
) -> NullIntervals:
    """Intervals of all cosines that hold together with probability 1 - alpha if the optimum is the truth.

    Parameters
    ----------
    directions : Directions
    noise : ClassNoise
    intervals : PairIntervals
        Both of these directions; alpha and the share of unseen kinds are those of the intervals.
    optimal : (C, C)
        Optimal Gram matrix, in the order of `directions`.
    rounding : float
        As in `pair_intervals`.
    draws : int
        Even, at least 100.
    seed : int

    Returns
    -------
    NullIntervals
        Those of `intervals` throughout where the noise of the classes is known by its size only (`noise.roots` is
        None).
    """
    number = _checks.integer("draws", draws, at_least=100)
    known, size = noise.known, directions.num_classes
    target = matched(optimal, directions)[np.ix_(known, known)]
    drawn = intervals.decidable[np.ix_(known, known)] & (np.abs(target) < EDGE_COSINE)
    given = (intervals.lower, intervals.upper, intervals.wide_lower, intervals.wide_upper)
    arrays = [array.copy() for array in given] + [np.full((size, size), np.nan) for _ in range(2)]
    if noise.roots is None or not drawn.any():
        return _assembled(arrays, np.zeros((size, size), dtype=bool), np.nan, 0)
    kept = np.flatnonzero(drawn.any(axis=0))
    inner, noise, target, drawn = (
        known[kept],
        chosen(noise, kept),
        target[np.ix_(kept, kept)],
        drawn[np.ix_(kept, kept)],
    )
    null = rotated(target, noise)
    half = number // 2
    pairs = np.nonzero(np.triu(drawn))
    mu, sd = moments_of_draws(null, noise, pairs, half, seed)
    furthest = np.concatenate(
        [(np.abs(block - mu) / sd).max(axis=1) for block in cosine_draws(null, noise, pairs, half, seed + 1)]
    )
    level = intervals.alpha * pairs[0].size / max(intervals.num_decidable, 1)
    critical = upper_quantile(furthest, level)
    cosines, wanted = noise.cosines[pairs], target[pairs]
    own = student_quantile(noise.counts - 1, intervals.alpha / (2 * max(intervals.num_decidable, 1)))
    allowance = unseen_kinds(target, noise, own, intervals.unseen)[pairs]
    blur, rounded = critical * sd, rounding_cosine(wanted, rounding)
    middle = cosines - (mu - wanted)
    low, high = at_boundaries(middle, blur + rounded)
    wide_low, wide_high = at_boundaries(middle, half_width(wanted, np.zeros_like(blur), blur, allowance) + rounded)
    places = (inner[pairs[0]], inner[pairs[1]])
    for whole, part in zip(arrays, (low, high, wide_low, wide_high, mu, sd), strict=True):
        whole[places] = part
        whole[places[::-1]] = part
    return _assembled(arrays, spread(drawn, inner, size, False), critical, 2 * half)


def _assembled(arrays: list[Array], drawn: npt.NDArray[np.bool_], critical: float, draws: int) -> NullIntervals:
    lower, upper, wide_lower, wide_upper, centre, scale = arrays
    return NullIntervals(
        lower=lower,
        upper=upper,
        wide_lower=wide_lower,
        wide_upper=wide_upper,
        centre=centre,
        scale=scale,
        drawn=drawn,
        critical=critical,
        draws=draws,
    )


def chosen(noise: ClassNoise, kept: npt.NDArray[np.intp]) -> ClassNoise:
    """The noise of some of the classes, by their position in `noise.known`."""
    square = np.ix_(kept, kept)
    return ClassNoise(
        known=noise.known[kept],
        counts=noise.counts[kept],
        vectors=noise.vectors[kept],
        cosines=noise.cosines[square],
        rho=noise.rho[kept],
        shares=noise.shares[square],
        traces=noise.traces[kept],
        tops=noise.tops[kept],
        roots=None if noise.roots is None else tuple(noise.roots[k] for k in kept),
        freedom=noise.freedom[kept],
        source=noise.source,
    )


def rotated(target: Array, noise: ClassNoise) -> Array:
    """(K, d) unit rows with Gram matrix `target`, turned onto the estimated directions.

    Where `target` has rank above d, those of its d largest eigenvalues.
    """
    values, vectors = np.linalg.eigh(target)
    dim = noise.vectors.shape[1]
    kept = np.flatnonzero(values > 1e-12 * values[-1])[-dim:]
    points = vectors[:, kept] * np.sqrt(values[kept])
    points /= np.linalg.norm(points, axis=1)[:, None]
    weights = noise.traces + max(float(np.median(noise.traces)), 1e-12)
    left, _, right = np.linalg.svd((noise.vectors / weights[:, None]).T @ points, full_matrices=False)
    return np.asarray(points @ (left @ right).T)


def cosine_draws(
    null: Array, noise: ClassNoise, pairs: tuple[npt.NDArray[np.intp], ...], draws: int, seed: int
) -> Iterator[Array]:
    """Blocks (b, P) of drawn cosines of the pairs (i, j), each an array (P,).

    Parameters
    ----------
    null : (K, d)
        Directions around which noise is drawn.
    noise : ClassNoise
        With roots.
    """
    assert noise.roots is not None
    rng = np.random.default_rng([seed, 25])
    size, dim = null.shape
    step = max(1, min(draws, ENTRIES // max(size * max(dim, size), 1)))
    for start in range(0, draws, step):
        block = min(step, draws - start)
        moved = np.empty((block, size, dim))
        for k, root in enumerate(noise.roots):
            stretch = np.sqrt(noise.freedom[k] / rng.chisquare(noise.freedom[k], size=block))
            moved[:, k] = null[k] + stretch[:, None] * (rng.normal(size=(block, len(root))) @ root)
        squares = np.einsum("bkd,bkd->bk", moved, moved) - noise.traces
        moved /= np.sqrt(np.maximum(squares, SHORTEST))[:, :, None]
        yield (moved @ moved.transpose(0, 2, 1))[:, pairs[0], pairs[1]]


def moments_of_draws(
    null: Array, noise: ClassNoise, pairs: tuple[npt.NDArray[np.intp], ...], draws: int, seed: int
) -> tuple[Array, Array]:
    """Mean and standard deviation (P,) of the drawn cosines; a scale of 0 becomes that of rounding."""
    total, square = np.zeros(pairs[0].size), np.zeros(pairs[0].size)
    shift = np.einsum("pd,pd->p", null[pairs[0]], null[pairs[1]])
    for block in cosine_draws(null, noise, pairs, draws, seed):
        block -= shift
        total += block.sum(axis=0)
        square += np.einsum("bp,bp->p", block, block)
    mean = total / draws
    variance = np.maximum(square - draws * mean**2, 0.0) / (draws - 1)
    return shift + mean, np.sqrt(variance) + 1e-15


def upper_quantile(values: Array, level: float) -> float:
    """The order statistic that one more exchangeable value exceeds with probability at most `level`, or the largest."""
    place = int(np.ceil((1 - level) * (values.size + 1))) - 1
    return float(np.sort(values)[min(place, values.size - 1)])
