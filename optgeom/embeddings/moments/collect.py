"""Class moments and covariances of a source, in one or two passes, shard by shard where it has shards."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from optgeom import _checks
from optgeom._numerics import Array
from optgeom.embeddings.moments.directions import class_directions
from optgeom.embeddings.moments.first_pass import ClassMoments, FirstPass
from optgeom.embeddings.moments.rounding import BITS
from optgeom.embeddings.moments.second_pass import SecondPass, WithinClass, from_single_pass
from optgeom.embeddings.moments.source import Source, display_name, source_parts
from optgeom.embeddings.moments.unit_rows import NormSpread, UnitRows
from optgeom.errors import OptGeomError
from optgeom.inputs import parallel

# Shards are read in at most so many units, whatever the number of workers: the sums are then added in the same order,
# so that the result does not depend on the number of workers, and not more than so many states are sent.
MOST_UNITS = 64
LOST = "read the embeddings again, with fewer workers or in smaller shards"
_BATCH_ENTRIES = 2**23  # 32 MiB of float32, where the source says how long its rows are
_BATCH_ROWS = 16384


@dataclass(frozen=True, kw_only=True, eq=False)
class Collected:
    """What two passes know about the rows of a source.

    Attributes
    ----------
    moments : ClassMoments
    within : WithinClass
    num_rows : int
        Rows read, those with ignored labels too.
    num_views : int
        Unit rows that the images are made of.
    norms : NormSpread
        Norms of the rows as stored.
    bits : int
        Significant bits of their values.
    ignored : dict
        Rows of each ignored label that occurs.
    two_passes : bool
        False where the source could be read only once: the covariance of a class is then known up to its trace.
    notes : tuple of str
        What was done to the rows and labels, and what could not be done.
    samples : tuple of UnitRows
        One per seed, where a sample was asked for.
    """

    moments: ClassMoments
    within: WithinClass
    num_rows: int
    num_views: int
    norms: NormSpread
    bits: int = BITS[-1]
    ignored: dict[str, int] = field(default_factory=dict)
    two_passes: bool = True
    notes: tuple[str, ...] = ()
    samples: tuple[UnitRows, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class _Reading:
    """What the workers need besides their shards."""

    ignore: tuple[int | str, ...]
    rows: int | None
    total_scatter: bool
    sample: int
    seeds: tuple[int, ...]
    moments: ClassMoments | None = None
    directions: Array | None = None


@dataclass(frozen=True, eq=False)
class _Unit:
    """Consecutive shards that are read by one worker."""

    first: int
    shards: list[Source]


def collect(
    source: Source,
    *,
    ignore: Sequence[int | str] = (),
    workers: int = 1,
    dask: Any = None,
    batch_rows: int | None = None,
    sample: int = 0,
    seeds: Sequence[int] = (0, 1, 2),
) -> Collected:
    """Read a source and return its class moments.

    Parameters
    ----------
    source : Source
        A method `shards()`, where there is one, gives sources that can be read by themselves; each is read by one
        worker.
    ignore : sequence of int or str
        Labels to leave out.
    workers : int
        Processes (joblib) over which the shards are spread; 1 reads them in this one.
    dask : str or distributed.Client, optional
        Address of a dask.distributed scheduler, whose workers can read the shards; replaces `workers`.
    batch_rows : int, optional
        Rows at a time; chosen from the length of a row.
    sample : int
        Rows (images, where views are rows) to keep for each of the `seeds`; 0 keeps none.

    Returns
    -------
    Collected
        Equal to 1e-10 however the rows are split into batches, and equal to the last bit for any number of workers.

    Raises
    ------
    InvalidInputError
        Rows that are not finite or zero (found in the whole source, the first is named), labels that are missing or not
        of one kind, a group with two labels, or a source that changed between the passes. Rows are numbered within
        their shard, which is named.
    MissingDependencyError
        joblib or dask is needed and not there.
    SolverError
        A worker was lost.
    """
    workers = _checks.integer("workers", workers, at_least=1, hint="1 reads in this process")
    if batch_rows is not None:
        batch_rows = _checks.integer("batch_rows", batch_rows, at_least=1)
    sample = _checks.integer("sample", sample, at_least=0, hint="0 keeps none")
    parts = source_parts(source)
    twice = source.re_readable and all(part.re_readable for part in parts)
    reading = _Reading(
        ignore=tuple(ignore), rows=batch_rows, total_scatter=not twice, sample=sample, seeds=tuple(seeds)
    )
    units = _units(parts)
    first = _merged(_run(_read_first, reading, units, workers, dask), FirstPass(ignore, sample=sample, seeds=seeds))
    moments = first.finish()
    _, place, notes = first.names.finish()
    if first.images is not None:
        # All images are in memory: the second pass is over them, whether the source can be read again or not.
        second = SecondPass(moments, ignore=ignore, source=display_name(source))
        second.update_images(first.images, place)
        within = second.finish()
    elif twice:
        again = replace(reading, moments=moments, directions=class_directions(moments).vectors)
        total = SecondPass(moments, ignore=ignore, source=display_name(source), directions=again.directions)
        second = _merged(_run(_read_second, again, units, workers, dask), total)
        within = second.finish()
    else:
        within = from_single_pass(moments)
    exact = twice or first.images is not None
    samples = first.samples()
    return Collected(
        moments=moments,
        within=within,
        num_rows=first.num_rows,
        num_views=first.norms.count,
        norms=first.norms,
        bits=first.bits,
        ignored=first.names.left_out,
        two_passes=exact,
        notes=(*notes, *_notes(first, moments, within, samples, exact)),
        samples=samples,
    )


def _notes(
    first: FirstPass, moments: ClassMoments, within: WithinClass, samples: tuple[UnitRows, ...], exact: bool
) -> Iterator[str]:
    norms = first.norms
    if first.names.not_met:
        yield f"no row has the ignored label {', '.join(first.names.not_met)}"
    if not norms.unit:
        spread = f"norms {norms.smallest:.3g} to {norms.largest:.3g}, mean {norms.mean:.3g}"
        yield f"rows were not of length 1 ({spread}): normalised"
    images = int(moments.counts.sum())
    if first.images is not None:
        least, most = int(first.images.views.min()), int(first.images.views.max())
        each = str(least) if least == most else f"{least} to {most}"
        yield f"{norms.count} rows are views of {images} images, {each} each: averaged"
    elif norms.count != images:
        yield f"{images} images of {norms.count // images} views each: averaged"
    if any(sample.cut for sample in samples):
        yield f"{max(sample.cut for sample in samples)} views of sampled images left out, so that all have as many"
    if not exact:
        yield "the source could be read only once: covariances of single classes have the pooled shape"
    elif within.projected is None and within.full is None:
        many = f"too many classes ({len(moments.names)}) for the projections of each"
        yield f"{many}: covariances of single classes have the pooled shape"


def _units(parts: list[Source]) -> list[_Unit]:
    step = math.ceil(len(parts) / MOST_UNITS) or 1
    return [_Unit(start, parts[start : start + step]) for start in range(0, len(parts), step)]


def _run(
    function: Callable[[_Reading, _Unit], Any], reading: _Reading, units: list[_Unit], workers: int, dask: Any
) -> Iterator[Any]:
    """States of all units, in their order, so that sums do not depend on the number of workers."""
    return parallel.run(
        function, units, workers, dask, shared=(reading,), in_order=True, errors=(OptGeomError, OSError), remedy=LOST
    )


def _merged(states: Iterator[Any], total: Any) -> Any:
    for state in states:
        total.merge(state)
    return total


def _read_first(reading: _Reading, unit: _Unit) -> FirstPass:
    total: FirstPass | None = None
    for shard, source in enumerate(unit.shards, unit.first):
        state = FirstPass(
            reading.ignore,
            total_scatter=reading.total_scatter,
            sample=reading.sample,
            seeds=reading.seeds,
            source=display_name(source),
            shard=shard,
        )
        for batch in source.batches(reading.rows or _rows_at_once(source)):
            state.update(batch)
        if total is None:
            total = state
        else:
            total.merge(state)
    assert total is not None, "a unit has at least one shard"
    return total


def _read_second(reading: _Reading, unit: _Unit) -> SecondPass:
    assert reading.moments is not None
    state = SecondPass(reading.moments, ignore=reading.ignore, directions=reading.directions)
    for source in unit.shards:
        state.begin(display_name(source))
        for batch in source.batches(reading.rows or _rows_at_once(source)):
            state.update(batch)
    return state


def _rows_at_once(source: Source) -> int:
    shape = getattr(source, "row_shape", None)
    return _BATCH_ROWS if shape is None else min(max(_BATCH_ENTRIES // max(1, math.prod(shape)), 256), 4 * _BATCH_ROWS)
