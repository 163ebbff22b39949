"""Rows that come in groups although nobody gave ids of images: noticed, and each group counted as one image."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from optgeom.embeddings.moments.collect import Collected, collect
from optgeom.embeddings.moments.rounding import rounding_angle
from optgeom.embeddings.moments.unit_rows import UnitRows
from optgeom.embeddings.readers.in_memory import ArraySource
from optgeom.embeddings.statistics.dependent_rows import NearestInClass, linked_units, query_rows, row_groups


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
