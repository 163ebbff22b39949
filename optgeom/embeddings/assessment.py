"""What the statistics say of an embedding beside an optimum: intervals, verdict, and all angles together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from optgeom._numerics import Array
from optgeom.embeddings.moments.collect import Collected
from optgeom.embeddings.moments.directions import Directions, class_directions
from optgeom.embeddings.statistics.bootstrap import null_intervals
from optgeom.embeddings.statistics.class_noise import ClassNoise, class_noise
from optgeom.embeddings.statistics.deviation import Deviations, deviations
from optgeom.embeddings.statistics.excess_risk import own_excess
from optgeom.embeddings.statistics.judgement import Judgement, judge
from optgeom.embeddings.statistics.pair_intervals import PairIntervals, beyond, pair_intervals
from optgeom.embeddings.statistics.reference_test import ReferenceTest, reference_test
from optgeom.geometry import Geometry


@dataclass(frozen=True, kw_only=True, eq=False)
class Assessment:
    """Attributes are those of `Validation` with the same names; `own_excess` is None without a slack."""

    optimal: Array
    directions: Directions
    intervals: PairIntervals
    deviations: Deviations
    own_excess: Array | None
    judgement: Judgement
    reference: ReferenceTest | None


def assess(
    collected: Collected,
    geometry: Geometry,
    places: npt.NDArray[np.intp],
    *,
    tolerance_deg: float,
    slack: float,
    unseen_share: float,
    missing: tuple[str, ...],
    seed: int,
) -> Assessment:
    """Assess class means.

    Parameters
    ----------
    collected : Collected
        Of the classes `places` of the geometry, in this order, with one sample.
    geometry : Geometry
    places : (C,) intp
    tolerance_deg, slack, unseen_share : float
        As in `validate`.
    missing : tuple of str
        Classes of the geometry without embeddings.
    seed : int
        Of the draws.
    """
    optimal = np.asarray(geometry.gram)[np.ix_(places, places)]
    directions = class_directions(collected.moments)
    noise = _noise(collected, directions)
    intervals = pair_intervals(directions, noise, optimal, unseen=unseen_share)
    null = null_intervals(directions, noise, intervals, optimal, seed=seed)
    deviation = deviations(intervals, optimal)
    off = beyond(null, optimal, tolerance_deg)
    costs = own_excess(geometry, places, deviation, off) if slack > 0 else None
    certified = geometry.bracket is None and geometry.certified
    return Assessment(
        optimal=optimal,
        directions=directions,
        intervals=intervals,
        deviations=deviation,
        own_excess=costs,
        judgement=judge(
            directions,
            intervals,
            deviation,
            beyond=off,
            tolerance_deg=tolerance_deg,
            bracket=geometry.bracket is not None,
            missing=missing,
            own_excess=costs,
            slack=slack,
        ),
        reference=reference_test(directions, noise, optimal, num_classes=geometry.num_classes, seed=seed)
        if certified
        else None,
    )


def _noise(collected: Collected, directions: Directions) -> ClassNoise:
    """Rows of the sample stand in for covariances that are too large."""
    sample = collected.samples[0]
    needed = collected.within.full is None and not sample.has_views
    rows = sample.take(slice(None)) if needed else None
    return class_noise(directions, collected.within, rows=rows, codes=sample.codes if needed else None)
