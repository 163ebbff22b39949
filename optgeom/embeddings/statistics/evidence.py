"""What is known of a trained embedding when a verdict on it is given: which pairs are off, merged, costly, unsure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from optgeom._numerics import Array
from optgeom.embeddings.moments.directions import Directions
from optgeom.embeddings.statistics.deviation import Deviations, PairDeviation
from optgeom.embeddings.statistics.limited_risk import LimitedRisk
from optgeom.embeddings.statistics.pair_intervals import PairIntervals
from optgeom.embeddings.statistics.saddle import Saddle

Mask = npt.NDArray[np.bool_]  # (C, C), above the diagonal: some pairs of classes

APART_DEG = 20.0  # optimal angle from which on coinciding is a collapse
TOGETHER_DEG = 10.0
CONSISTENT_DEG = 15.0
TIGHT_RHO = 0.7
KEPT_PAIRS = 1000


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence:
    """What is known when a verdict is given; each kind of verdict looks at some of it."""

    directions: Directions
    intervals: PairIntervals
    deviations: Deviations
    beyond: Mask
    tolerance_deg: float
    bracket: bool
    missing: tuple[str, ...]
    own_excess: Array | None = None  # (C, C) least cost of each different pair; nan where it is not known
    slack: float = 0.0
    confusion: Array | None = None  # (C, C) share of confused images of each pair; nan where it is not known
    find_saddle: Callable[[], Saddle] | None = None
    limited_risk: LimitedRisk | None = None  # with a bracket only

    @property
    def within_deg(self) -> float | None:
        """X, the largest deviation that is not ruled out."""
        interval = self.deviations.max_angle_error_ci_deg
        return None if interval is None else interval[1]

    @cached_property
    def tested(self) -> Mask:
        """Pairs with an interval."""
        return np.triu(self.intervals.tested)

    @cached_property
    def coincident(self) -> Mask:
        """Pairs that are certainly closer than 10 degrees."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self.tested & (self.deviations.angles_high <= TOGETHER_DEG))

    @cached_property
    def collapsed(self) -> Mask:
        """Coincident pairs that should be apart."""
        return self.coincident & self.different & (self.deviations.optimal >= APART_DEG)

    @cached_property
    def different(self) -> Mask:
        """Pairs that are off by more than the tolerance, noise and kinds of images not shown set aside."""
        return self.tested & self.beyond

    @cached_property
    def costly(self) -> Mask:
        """Different pairs for whose angle the loss asks: those that cost more than the slack, or an unknown amount."""
        if self.own_excess is None:
            return self.different
        with np.errstate(invalid="ignore"):
            return np.asarray(self.different & ~(self.own_excess <= self.slack))

    @cached_property
    def saddle(self) -> Saddle | None:
        """What the test for a saddle saw; asked only where the optimum is rejected."""
        return self.find_saddle() if self.find_saddle is not None and self.costly.any() else None

    @cached_property
    def stalled(self) -> Mask:
        """Costly pairs of two classes that a saddle keeps together; all costly ones where none is of these."""
        chosen = np.zeros(len(self.tested), dtype=bool)
        if self.saddle is not None:
            chosen[list(self.saddle.classes)] = True
        inside = self.costly & chosen[:, None] & chosen[None, :]
        return inside if inside.any() else self.costly

    @cached_property
    def as_predicted(self) -> Mask:
        """Pairs that coincide at the optimum, that are certainly closer than 15 degrees and not surely off."""
        with np.errstate(invalid="ignore"):
            near = self.tested & (self.deviations.angles_high <= CONSISTENT_DEG)
        return np.asarray(near & (self.deviations.optimal <= TOGETHER_DEG) & ~self.different)

    @cached_property
    def wide(self) -> Mask:
        """Pairs that could be off by more than 15 degrees."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self.tested & (self.deviations.high > CONSISTENT_DEG))

    @cached_property
    def too_small(self) -> tuple[str, ...]:
        """Classes of one image, then those that cause most of the uncertainty of a wide pair, by number of such pairs.

        A pair whose interval is wide because its angle is really off, not because of noise, counts for neither class.
        """
        i, j = np.nonzero(self.wide & (self.deviations.high - self.deviations.deviation > self.deviations.deviation))
        shares = self.intervals.shares
        larger = np.where(shares[i, j] >= shares[j, i], i, j)
        ordered = Counter(larger.tolist()).most_common()
        return self.directions.singletons + tuple(self.directions.names[c] for c, _ in ordered)

    @property
    def lacking(self) -> bool:
        """Some class has too few images or no direction, or no pair was tested."""
        return self.within_deg is None or bool(self.too_small) or bool(self.directions.without_direction)

    @property
    def spread(self) -> bool:
        """Whether the median of rho is small."""
        median = self.directions.median_rho
        return median is not None and median < TIGHT_RHO

    def worst(self, chosen: Mask) -> tuple[PairDeviation, ...]:
        """Some pairs, the most surely deviating first."""
        return self.deviations.worst_pairs(KEPT_PAIRS, chosen)

    def named(self, pair: PairDeviation) -> str:
        """Both classes of a pair."""
        return f"{self.directions.names[pair.first]} and {self.directions.names[pair.second]}"

    def busiest(self, chosen: Mask) -> str:
        """The class that most of several pairs have in common, as the end of a sentence."""
        number = int(chosen.sum())
        name, times = by_pairs(self.directions.names, chosen)[0]
        if number < 3 or times < 2:
            return ""
        return f"; class {name} is in {'all' if times == number else times} of them"

    def share_of_pairs(self, chosen: Mask) -> tuple[str, bool]:
        """Subject of a headline about some pairs, and whether it is singular."""
        number, tested = int(chosen.sum()), self.intervals.num_pairs
        return f"{number} of {tested} pairs of classes" if tested > 1 else "The pair of classes", number == 1


def by_pairs(names: tuple[str, ...], chosen: Mask) -> tuple[tuple[str, int], ...]:
    """Classes by the number of the chosen pairs that they are in."""
    number = chosen.sum(axis=0) + chosen.sum(axis=1)
    order = np.argsort(-number, kind="stable")
    return tuple((names[c], int(number[c])) for c in order if number[c])
