"""What a validation says beside its verdict: notes on the rows, and the table of classes."""

from __future__ import annotations

import math

from optgeom.embeddings.measures import Embedding
from optgeom.embeddings.moments.collect import Collected
from optgeom.embeddings.moments.unit_rows import UnitRows
from optgeom.embeddings.result import ClassRow
from optgeom.embeddings.statistics.judgement import Judgement
from optgeom.formatting import finite

REPEATED_SHARE = 0.01  # of the rows; a few equal images are in every large data set


def notes_on_rows(collected: Collected, extra: dict[str, int]) -> tuple[str, ...]:
    """Notes on the rows, but not one for every class that is left out as extra: the sentence counts these."""
    counted = {f"{rows} rows with label {name} left out" for name, rows in collected.ignored.items() if name in extra}
    return tuple(note for note in collected.notes if note not in counted)


def repeated_rows(sample: UnitRows) -> tuple[str, ...]:
    """A note where rows occur more than once, which a mean over independent images would not have."""
    images = sample.rows.reshape(sample.num_images, -1)
    equal = len(images) - len({hash(image.tobytes()) for image in images})  # a set of bytes would keep all rows
    if equal <= REPEATED_SHARE * len(images):
        return ()
    return (
        f"{equal} of {len(images)} rows looked at repeat another one exactly: images that were read twice (by a "
        "sampler with replacement?) are not new images, and intervals are too narrow (give each row the id of its "
        "image as group_ids, --group-ids)",
    )


def class_rows(embedding: Embedding, judgement: Judgement) -> tuple[ClassRow, ...]:
    """The classes in most trouble first.

    The order is by the number of pairs that decided the verdict, then by sure deviation; then come classes too small to
    tell, and the others by possible deviation.
    """
    deciding = dict(judgement.classes)
    directions, deviation = embedding.directions, embedding.deviations
    columns = {"cdnv": embedding.largest_cdnv()}
    columns |= {name: embedding.by_class(name) for name in ("nearest_mean", "cac", "saa")}
    rows = []
    for c, name in enumerate(directions.names):
        other = deviation.worst_partner(c)
        pair = None if other is None else deviation.pair(c, other)
        low, high = (None, None) if pair is None or pair.deviation_ci is None else pair.deviation_ci
        values = {column: None if math.isnan(value[c]) else float(value[c]) for column, value in columns.items()}
        rows.append(
            ClassRow(
                name=name,
                count=int(directions.counts[c]),
                rho=finite(directions.rho[c]),
                pairs=deciding.get(name, 0),
                worst_pair=None if other is None else directions.names[other],
                deviation=None if pair is None else pair.deviation,
                low=low,
                high=high,
                **values,
            )
        )
    unsure = set(judgement.too_small) | set(judgement.without_direction)
    order = sorted(
        rows, key=lambda row: (-row.pairs, -(row.low or 0.0), row.name not in unsure, -(row.high or 180.0), row.name)
    )
    return tuple(order)
