"""What the statistics say of an embedding beside an optimum: intervals, verdict, and all angles together.

Rows that come in groups although nobody gave ids of images are noticed first (`by_units`), and each group is counted as
one image.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from optgeom._numerics import Array
from optgeom.embeddings.moments.collect import Collected, collect
from optgeom.embeddings.moments.directions import Directions, class_directions
from optgeom.embeddings.moments.rounding import rounding_angle
from optgeom.embeddings.moments.unit_rows import UnitRows
from optgeom.embeddings.readers.in_memory import ArraySource
from optgeom.embeddings.statistics.bootstrap import null_intervals
from optgeom.embeddings.statistics.class_noise import ClassNoise, class_noise
from optgeom.embeddings.statistics.confusion import Confusion, close_neighbours
from optgeom.embeddings.statistics.dependent_rows import NearestInClass, linked_units, query_rows, row_groups
from optgeom.embeddings.statistics.deviation import Deviations, deviations
from optgeom.embeddings.statistics.excess_risk import own_excess
from optgeom.embeddings.statistics.judgement import Judgement, judge
from optgeom.embeddings.statistics.limited_risk import limited_risk
from optgeom.embeddings.statistics.pair_intervals import PairIntervals, beyond, pair_intervals
from optgeom.embeddings.statistics.reference_test import ReferenceTest, reference_test
from optgeom.embeddings.statistics.saddle import Saddle, saddle_test
from optgeom.geometry import Geometry
from optgeom.programs.class_mean import ClassMeanProgram


@dataclass(frozen=True, kw_only=True, eq=False)
class Assessment:
    """Attributes are those of `Validation` with the same names; `beyond` are the pairs that are off."""

    optimal: Array
    directions: Directions
    intervals: PairIntervals
    deviations: Deviations
    beyond: npt.NDArray[np.bool_]
    own_excess: Array | None
    confusion: Array
    judgement: Judgement
    reference: ReferenceTest | None


def assess(
    collected: Collected,
    geometry: Geometry,
    places: npt.NDArray[np.intp],
    *,
    rows: UnitRows,
    tolerance_deg: float,
    slack: float,
    unseen_share: float,
    alpha: float,
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
    rows : UnitRows
        Rows in which rare classes are not lost, of the same classes.
    tolerance_deg, slack, unseen_share : float
        As in `validate`.
    alpha : float
        Probability that any pair of a true optimum is called off.
    missing : tuple of str
        Classes of the geometry without embeddings.
    seed : int
        Of the draws.
    """
    optimal = np.asarray(geometry.gram)[np.ix_(places, places)]
    directions = class_directions(collected.moments)
    noise = _noise(collected, directions)
    rounding = rounding_angle(collected.bits)
    intervals = pair_intervals(directions, noise, optimal, alpha=alpha, unseen=unseen_share, rounding=rounding)
    null = null_intervals(directions, noise, intervals, optimal, rounding=rounding, seed=seed)
    deviation = deviations(intervals, optimal)
    off = beyond(null, optimal, tolerance_deg)
    costs = own_excess(geometry, places, deviation, off) if slack > 0 else None
    certified = geometry.bracket is None and geometry.certified
    images, codes = rows.image_means()
    confusion = Confusion(collected.moments)
    confusion.update(images, codes)
    confused = confusion.of_pairs()

    def close(first: int, second: int) -> float:
        return close_neighbours(images[codes == first], images[codes == second])

    def find_saddle() -> Saddle:
        program = ClassMeanProgram.build(geometry.classes, geometry.loss, grouped=False)
        return saddle_test(directions.gram, optimal, program.gradient, noise, close=close, seed=seed)

    every = len(places) == geometry.num_classes and bool(directions.known.all())
    return Assessment(
        optimal=optimal,
        directions=directions,
        intervals=intervals,
        deviations=deviation,
        beyond=off,
        own_excess=costs,
        confusion=confused,
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
            confusion=confused,
            find_saddle=find_saddle if certified and every and geometry.loss.gives else None,
            limited_risk=limited_risk(directions, noise, geometry, seed=seed),
        ),
        reference=reference_test(
            directions, noise, optimal, num_classes=geometry.num_classes, rounding=rounding, seed=seed
        )
        if certified
        else None,
    )


def _noise(collected: Collected, directions: Directions) -> ClassNoise:
    """Rows of the sample stand in for covariances that are too large."""
    if collected.within.full is not None:
        return class_noise(directions, collected.within)
    rows, codes = collected.samples[0].image_means()
    return class_noise(directions, collected.within, rows=rows, codes=codes)


def by_units(collected: Collected, sample: UnitRows, seed: int) -> tuple[Collected, str]:
    """The same rows with each group as one image, and a note; as they are, and "", where no groups are seen.

    Parameters
    ----------
    collected : Collected
    sample : UnitRows
        Of the same classes. Not asked of views, nor of a part of the rows, in which groups are torn apart.
    seed : int
        Of the rows that are looked at.
    """
    if not sample.whole or sample.images is not None:
        return collected, ""
    queries = query_rows(sample.codes, sample.num_classes, seed)
    nearest = NearestInClass(sample.take(queries), sample.codes[queries])
    for block, part in sample.in_blocks():
        nearest.update(part, sample.codes[block])
    scales = np.sqrt(2 * np.nan_to_num(collected.within.traces))
    rounding = rounding_angle(collected.bits)
    groups = row_groups(nearest.distances(), sample.codes[queries], sample.counts, scales, rounding)
    if not groups.dependent:
        return collected, ""
    units = linked_units(sample.take(slice(None)), sample.codes, groups.radius)
    again = collect(ArraySource(sample.rows, sample.codes, units))
    images = int(again.moments.counts.sum())
    grouped = replace(
        collected,
        moments=replace(again.moments, names=collected.moments.names),
        within=again.within,
        samples=(replace(sample, images=units),),
    )
    return grouped, groups.sentence(images)
