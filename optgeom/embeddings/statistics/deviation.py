r"""How far each angle between class means is from the optimal one, with its interval, and summaries over the pairs.

With theta_cd = arccos A_cd and [a, b] its interval (the interval of the cosine mapped through arccos; cosines are
clipped here only),

    deviation = |theta - theta*|,
    low       = distance of theta* from [a, b], 0 inside,
    high      = max(|a - theta*|, |b - theta*|).

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
from optgeom.embeddings.statistics.pair_intervals import PairIntervals

EQUAL_COSINES = 1e-6  # standard deviation of A* below which the optimum is a regular simplex
NEARLY_EQUAL_COSINES = 0.05


@dataclass(frozen=True, kw_only=True)
class PairDeviation:
    """One pair of classes, first < second, angles in degrees; None where one of the two has no direction."""

    first: int
    second: int
    angle_deg: float | None = None
    ci_deg: tuple[float, float] | None = None
    optimal_deg: float
    deviation: float | None = None
    deviation_ci: tuple[float, float] | None = None

    def as_dict(self, names: tuple[str, ...]) -> dict[str, Any]:
        """Plain values for JSON; `names` are those of the classes."""
        return {
            "first": names[self.first],
            "second": names[self.second],
            "angle_deg": self.angle_deg,
            "ci_deg": None if self.ci_deg is None else list(self.ci_deg),
            "optimal_deg": self.optimal_deg,
            "deviation": self.deviation,
            "deviation_ci": None if self.deviation_ci is None else list(self.deviation_ci),
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class Deviations:
    """Deviation of every pair. All arrays are read-only; nan on the diagonal and where a class has no direction.

    Attributes
    ----------
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
            return PairDeviation(first=i, second=j, optimal_deg=optimal)
        return PairDeviation(
            first=i,
            second=j,
            angle_deg=float(self.angles[i, j]),
            ci_deg=(float(self.angles_low[i, j]), float(self.angles_high[i, j])),
            optimal_deg=optimal,
            deviation=float(self.deviation[i, j]),
            deviation_ci=(float(self.low[i, j]), float(self.high[i, j])),
        )

    def worst_pairs(self, limit: int, chosen: npt.NDArray[np.bool_] | None = None) -> tuple[PairDeviation, ...]:
        """Tested pairs, the most surely deviating first (by low, then by deviation).

        Parameters
        ----------
        limit : int
        chosen : (C, C) bool, optional
            The pairs to order, marked above the diagonal; all tested ones by default.
        """
        i, j = np.nonzero(np.triu(~np.isnan(self.deviation), 1) if chosen is None else chosen)
        order = np.lexsort((-self.deviation[i, j], -self.low[i, j]))[:limit]
        return tuple(self.pair(int(i[k]), int(j[k])) for k in order)

    def worst_partner(self, c: int) -> int | None:
        """The class to which the angle of class `c` deviates most surely; None where it is in no tested pair."""
        others = np.flatnonzero(~np.isnan(self.deviation[c]))
        if others.size == 0:
            return None
        return int(others[np.lexsort((-self.deviation[c, others], -self.low[c, others]))[0]])


def deviations(intervals: PairIntervals, optimal: Array) -> Deviations:
    """Deviation of every pair from the optimum.

    Parameters
    ----------
    intervals : PairIntervals
        Of the cosines between class directions.
    optimal : (C, C)
        Optimal Gram matrix, in the order of the classes.
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
    error = float(np.sum((intervals.cosines[tested] - target) ** 2))
    noise = float(np.sum(intervals.standard_errors[tested] ** 2))
    spread = float(np.std(target)) if target.size else 0.0
    size = float(np.sum(target**2))
    r2 = None if spread < EQUAL_COSINES else 1 - (error - noise) / (target.size * spread**2)
    any_tested = bool(tested.any())
    return Deviations(
        angles=angle,
        angles_low=below,
        angles_high=above,
        optimal=best,
        deviation=deviation,
        low=low,
        high=high,
        max_angle_error_deg=float(deviation[tested].max()) if any_tested else None,
        max_angle_error_ci_deg=(float(low[tested].max()), float(high[tested].max())) if any_tested else None,
        relative_frobenius=float(np.sqrt(error / size)) if size > 0 else None,
        class_r2=r2,
        class_r2_weak=r2 is not None and spread < NEARLY_EQUAL_COSINES,
    )
