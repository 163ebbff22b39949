r"""How far each angle between class means is from the optimal one, with its interval, and summaries over the pairs.

With theta_cd = arccos A_cd and [a, b] its interval (the interval of the cosine mapped through arccos; cosines are
clipped here only),

    deviation = |theta - theta*|,     low = distance of theta* from [a, b], 0 inside,     high = max(|a - theta*|, |b - theta*|).

Maximal angle error: max deviation, with interval [max low, max high]. Over pairs of different classes,

    class r2             = 1 - [sum (A - A*)^2 - sum se^2] / sum (A* - mean A*)^2
    relative Frobenius   = sqrt( sum (A - A*)^2 / sum A*^2 ).

The class r2 asks whether the differences between the optimal cosines are reproduced: it is undefined at the regular
simplex, and says little where the optimum is close to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from optgeom._numerics import Array, arccos_clipped, freeze
from optgeom.embeddings.statistics.directions import Directions
from optgeom.embeddings.statistics.intervals import PairIntervals
from optgeom.formatting import finite

EQUAL_COSINES = 1e-6  # standard deviation of A* below which the optimum is a regular simplex
NEARLY_EQUAL_COSINES = 0.05
LISTED_PAIRS = 1000


@dataclass(frozen=True)
class PairDeviation:
    """One pair of classes, first < second, angles in degrees; None where one of the two has no direction."""

    first: int
    second: int
    angle_deg: float | None
    ci_deg: tuple[float, float] | None
    optimal_deg: float
    deviation: float | None
    deviation_ci: tuple[float, float] | None


@dataclass(frozen=True, eq=False)
class Deviations:
    """Deviation of every pair. All arrays are read-only; nan on the diagonal and where a class has no direction.

    Attributes
    ----------
    names : tuple of str, length C
    counts : (C,) int64
    rho : (C,)
        Length of the class mean; nan where the class has no direction.
    angles, angles_low, angles_high : (C, C)
        Angle and the ends of its simultaneous interval, degrees.
    optimal : (C, C)
        Optimal angle, degrees, 0 on the diagonal.
    deviation, low, high : (C, C)
        Degrees.
    max_angle_error_deg : float or None
        None where no pair could be tested.
    max_angle_error_ci_deg : (float, float) or None
    relative_frobenius : float or None
    class_r2 : float or None
        None where the optimal cosines are equal (standard deviation below 1e-6), or no pair could be tested.
    class_r2_weak : bool
        The standard deviation of the optimal cosines is below .05: class r2 mostly measures noise.
    """

    names: tuple[str, ...]
    counts: npt.NDArray[np.int64]
    rho: Array
    angles: Array
    angles_low: Array
    angles_high: Array
    optimal: Array
    deviation: Array
    low: Array
    high: Array
    max_angle_error_deg: float | None
    max_angle_error_ci_deg: tuple[float, float] | None
    relative_frobenius: float | None
    class_r2: float | None
    class_r2_weak: bool

    def __post_init__(self) -> None:
        freeze(self)

    def pair(self, first: int, second: int) -> PairDeviation:
        """One pair of classes."""
        i, j = min(first, second), max(first, second)
        optimal = float(self.optimal[i, j])
        if i == j or np.isnan(self.deviation[i, j]):
            return PairDeviation(i, j, None, None, optimal, None, None)
        interval = (float(self.angles_low[i, j]), float(self.angles_high[i, j]))
        reach = (float(self.low[i, j]), float(self.high[i, j]))
        return PairDeviation(i, j, float(self.angles[i, j]), interval, optimal, float(self.deviation[i, j]), reach)

    def worst_pairs(self, limit: int) -> tuple[PairDeviation, ...]:
        """Tested pairs, the most surely deviating first (by low, then by deviation)."""
        i, j = np.triu_indices(len(self.names), 1)
        held = ~np.isnan(self.deviation[i, j])
        i, j = i[held], j[held]
        order = np.lexsort((-self.deviation[i, j], -self.low[i, j]))[:limit]
        return tuple(self.pair(int(i[k]), int(j[k])) for k in order)

    def per_class(self) -> list[dict[str, Any]]:
        """Plain values of every class.

        Images, rho, and the pair in which it deviates most (None where it has no direction).
        """
        found: list[dict[str, Any]] = []
        for c, name in enumerate(self.names):
            entry: dict[str, Any] = {"name": name, "count": int(self.counts[c]), "rho": finite(self.rho[c])}
            held = np.flatnonzero(~np.isnan(self.deviation[c]))
            if held.size:
                other = int(held[np.lexsort((-self.deviation[c, held], -self.low[c, held]))[0]])
                reach = [float(self.low[c, other]), float(self.high[c, other])]
                entry |= {
                    "worst_pair": self.names[other],
                    "deviation": float(self.deviation[c, other]),
                    "deviation_ci": reach,
                }
            else:
                entry |= {"worst_pair": None, "deviation": None, "deviation_ci": None}
            found.append(entry)
        return found

    def as_dict(self, limit: int = LISTED_PAIRS) -> dict[str, Any]:
        """Plain values for JSON, with the `limit` most surely deviating pairs."""
        interval = self.max_angle_error_ci_deg
        return {
            "max_angle_error_deg": self.max_angle_error_deg,
            "max_angle_error_ci_deg": None if interval is None else list(interval),
            "class_r2": self.class_r2,
            "relative_frobenius": self.relative_frobenius,
            "pairs": [self._named(pair) for pair in self.worst_pairs(limit)],
            "per_class": self.per_class(),
        }

    def _named(self, pair: PairDeviation) -> dict[str, Any]:
        return {
            "first": self.names[pair.first],
            "second": self.names[pair.second],
            "angle_deg": pair.angle_deg,
            "ci_deg": None if pair.ci_deg is None else list(pair.ci_deg),
            "optimal_deg": pair.optimal_deg,
            "deviation": pair.deviation,
            "deviation_ci": None if pair.deviation_ci is None else list(pair.deviation_ci),
        }


def deviations(directions: Directions, intervals: PairIntervals, optimal: Array) -> Deviations:
    """Deviation of every pair from the optimum.

    Parameters
    ----------
    directions : Directions
    intervals : PairIntervals
        Of these directions.
    optimal : (C, C)
        Optimal Gram matrix, in the order of `directions`.
    """
    tested = intervals.tested
    best = np.degrees(arccos_clipped(optimal))
    np.fill_diagonal(best, 0.0)
    angle, below, above = (
        np.where(tested, np.degrees(arccos_clipped(cosines)), np.nan)
        for cosines in (intervals.cosines, intervals.upper, intervals.lower)
    )
    deviation = np.abs(angle - best)
    low = np.maximum(np.maximum(below - best, best - above), 0.0)
    high = np.maximum(np.abs(below - best), np.abs(above - best))
    target = optimal[tested]
    missed = float(np.sum((intervals.cosines[tested] - target) ** 2))
    noise = float(np.sum(intervals.standard_errors[tested] ** 2))
    spread = float(np.std(target)) if target.size else 0.0
    size = float(np.sum(target**2))
    some = bool(tested.any())
    r2 = None if spread < EQUAL_COSINES else 1 - (missed - noise) / (target.size * spread**2)
    return Deviations(
        directions.names,
        directions.counts,
        directions.rho,
        angle,
        below,
        above,
        best,
        deviation,
        low,
        high,
        max_angle_error_deg=float(deviation[tested].max()) if some else None,
        max_angle_error_ci_deg=(float(low[tested].max()), float(high[tested].max())) if some else None,
        relative_frobenius=float(np.sqrt(missed / size)) if size > 0 else None,
        class_r2=r2,
        class_r2_weak=r2 is not None and spread < NEARLY_EQUAL_COSINES,
    )
