r"""What the loss allows each pair of classes at the excess risk of an embedding, and what it would take to fix it.

With e the excess of all angles together (`excess_risk`, term "direction", a share of the loss range), the angles of a
pair that geometries with the same excess have, and the slack needed to fix its angle to the tolerance, per image of its
two classes (`collapse.ranges`). Pairs that are off are solved exactly, as many as are affordable; the others are known
to second order: half-width sqrt(2 e R chi) of the cosine, R the loss range and chi its susceptibility.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from optgeom._numerics import Array, arccos_clipped, freeze
from optgeom.collapse.paired_optimum import PairedOptimum
from optgeom.collapse.ranges import ranges, slack_needed
from optgeom.embeddings.statistics.excess_risk import measures_slack
from optgeom.geometry import Geometry

# Pairs that are solved exactly, for up to `FEW_CLASSES` and beyond: a validation is to take at most 1.5 times as long
# as without ranges. Losses whose rows are expectations over batches cost ten times as much per pair.
FEW_CLASSES = 30
EXACT_PAIRS = (20, 5)
EXACT_COSTLY = (5, 2)
SMALLEST_EXCESS = 1e-12  # a share of the loss range: below, every range is the optimum itself
SMALLEST_TOLERANCE = 1e-3  # degrees


@dataclass(frozen=True, kw_only=True, eq=False)
class PairRanges:
    """Ranges of all pairs at one excess. All arrays are read-only and symmetric; nan where a pair is not known.

    Attributes
    ----------
    excess : float
        Share of the loss range that all angles together cost.
    tolerance_deg : float
        Of `slack_needed`.
    closest, farthest : (C, C)
        Degrees.
    slack_needed : (C, C)
        Share of the loss range, per image of the two classes, at which the angle is free by the tolerance.
    exact : (C, C) bool
        Bounds (outer ends, certified or not); elsewhere second-order estimates.
    """

    excess: float
    tolerance_deg: float
    closest: Array
    farthest: Array
    slack_needed: Array
    exact: npt.NDArray[np.bool_]

    def __post_init__(self) -> None:
        freeze(self)


def pair_ranges(
    geometry: Geometry,
    excess: float | None,
    pairs: list[tuple[int, int]],
    *,
    tolerance_deg: float,
) -> PairRanges | None:
    """Ranges of the pairs of a certified geometry at an excess risk.

    Parameters
    ----------
    geometry : Geometry
    excess : float or None
        Share of the loss range; ranges are that of the optimum where it is not above 0.
    pairs : list of (int, int)
        Class indices; the first of them are solved exactly.
    tolerance_deg : float
        Degrees to which an angle is to be fixed.

    Returns
    -------
    PairRanges or None
        None without an excess, a certified optimum, or a loss that was kept.
    """
    if excess is None or not measures_slack(geometry):
        return None
    optimum = PairedOptimum(geometry)
    share, tolerance = max(excess, SMALLEST_EXCESS), max(tolerance_deg, SMALLEST_TOLERANCE)
    cosines = np.asarray(geometry.gram)
    ends = optimum.second_order_ends(share, own=False)
    unknown = np.full_like(cosines, np.nan)
    closest, farthest = (np.degrees(arccos_clipped(end)) for end in ends or (unknown, unknown))
    slack = _slack_to_second_order(optimum, cosines, tolerance)
    exact = np.zeros(closest.shape, dtype=bool)
    number = EXACT_PAIRS if "log-sum" in optimum.program.gives else EXACT_COSTLY
    chosen = pairs[: number[geometry.num_classes > FEW_CLASSES]]
    if chosen:
        solved = ranges(geometry, slack=share, own=False, pairs=chosen).pairs
        needed = slack_needed(geometry, tolerance_deg=tolerance, pairs=chosen).pairs
        for pair, fixed in zip(solved, needed, strict=True):
            for place in ((pair.first, pair.second), (pair.second, pair.first)):
                closest[place], farthest[place], slack[place] = pair.closest_deg, pair.farthest_deg, fixed.own
                exact[place] = True
    return PairRanges(
        excess=excess, tolerance_deg=tolerance, closest=closest, farthest=farthest, slack_needed=slack, exact=exact
    )


def _slack_to_second_order(optimum: PairedOptimum, cosines: Array, tolerance_deg: float) -> Array:
    """Slack needed of every pair, per image of its classes, to second order; nan where that does not exist."""
    chi = optimum.susceptibilities
    if chi is None:
        return np.full_like(cosines, np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        angles = np.degrees(arccos_clipped(cosines))
        # The smaller step of the cosine of the two sides, as long as there are two.
        steps = [
            np.where((moved >= 0) & (moved <= 180), np.abs(np.cos(np.radians(moved)) - cosines), np.inf)
            for moved in (angles - tolerance_deg, angles + tolerance_deg)
        ]
        slack = np.minimum(*steps) ** 2 / (2 * chi * optimum.loss_range * optimum.pair_weights)
    slack[~(chi > 0)] = np.nan
    return slack
