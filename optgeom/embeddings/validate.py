"""validate: a trained embedding beside the optimum of its class proportions and loss."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from optgeom import _checks
from optgeom._numerics import Array
from optgeom.embeddings.measures import Measured, Sampled, measure
from optgeom.embeddings.moments.class_moments import ClassMoments, WithinClass
from optgeom.embeddings.moments.collect import Collected, collect
from optgeom.embeddings.moments.in_memory import as_source
from optgeom.embeddings.moments.matching import Matching, match_names, match_shapes
from optgeom.embeddings.moments.row_sample import SampledRows, sample_rows
from optgeom.embeddings.moments.source import Source
from optgeom.embeddings.readers.open import open_embeddings
from optgeom.embeddings.reference import Reference, choose_reference
from optgeom.embeddings.result import ClassRow, Validation, spectrum
from optgeom.embeddings.statistics.deviation import Deviations, deviations
from optgeom.embeddings.statistics.directions import class_directions
from optgeom.embeddings.statistics.intervals import pair_intervals
from optgeom.embeddings.statistics.verdict import DEFAULT_TOLERANCE_DEG, EmbeddingVerdict, embedding_verdict
from optgeom.errors import InvalidInputError
from optgeom.formatting import finite, first_of
from optgeom.geometry import Geometry
from optgeom.inputs.classes import ClassDistribution
from optgeom.losses import Loss
from optgeom.wording import describe_loss

MATCHES = ("names", "hungarian")
MOST_CLASSES = 4096  # some twenty (C, C) matrices are held: 2.6 GiB
SAMPLE_ENTRIES = 2**23  # of the sampled rows, 64 MiB in float64: all of 50 000 rows of length 128
FEWEST_SAMPLED = 4096
UNKNOWN_LENGTH = 1024  # of a row, where a source does not tell
FEW_ROWS = 8  # of a class in the sample, below which its own rows are looked for
TOPPED_ROWS = 64
REPEATED_SHARE = 0.01  # of the rows; a few equal images are in every large data set


def validate(
    embeddings: Any,
    labels: Any = None,
    geometry: Geometry | str | os.PathLike[str] | None = None,
    *,
    classes: ClassDistribution | None = None,
    loss: Loss | None = None,
    tolerance: float = DEFAULT_TOLERANCE_DEG,
    group_ids: Any = None,
    ignore_labels: int | str | Sequence[int | str] = (),
    ignore_extra: bool = False,
    match: str = "names",
    sampler_power: float = 1.0,
    label_column: str | None = None,
    vector_column: str | None = None,
    group_column: str | None = None,
    workers: int = 1,
    dask: Any = None,
    batch_rows: int | None = None,
    seed: int = 0,
) -> Validation:
    r"""How close are the class means of a trained embedding to the optimum, and is the difference more than sampling
    noise?

    Rows are normalised, then averaged by class (views of one image first); the cosines between the means are freed from
    the shortening by finite samples, given simultaneous intervals, and compared with the optimal ones. Null hypothesis:
    no angle is off by more than the tolerance.

    Parameters
    ----------
    embeddings : array (n, d) or (n, V, d), tensor, path, iterable of batches, or Source
        As in `embeddings.in_memory.as_source` and `embeddings.readers.open.open_embeddings`: V views of an image; a
        memory map; batches (X, y) or (X, y, groups), those of a generator being read once.
    labels : array-like of shape (n,), or path, optional
        Where the embeddings do not hold them.
    geometry : Geometry or path, optional
        The optimum, of the training classes. Where its rank exceeds d it is solved again in d dimensions.
    classes : ClassDistribution, optional
        Of the training data, instead of a geometry. With neither, the label counts of the embeddings stand in, and the
        verdict says so.
    loss : Loss, optional
        Of the training; `SupCon()` by default, or that of the geometry.
    tolerance : float
        Degrees >= 0 up to which an angle counts as optimal. No trained network attains the optimum: 0 asks for sampling
        noise only.
    group_ids : array-like of shape (n,), or path, optional
        Id of the image that a row is a view of.
    ignore_labels : int, str, or sequence of them
        Labels to leave out, such as -1.
    ignore_extra : bool
        Leave out classes that the geometry does not have, instead of refusing them.
    match : {"names", "hungarian"}
        Match classes by name, or by the shape they form (`embeddings.matching`); the verdict then says so.
    sampler_power : float
        q of a sampler that drew classes with proportions ~ n^q, applied to the label counts of the embeddings.
    label_column, vector_column, group_column : str, optional
        Columns of a file.
    workers : int
        Processes over which the shards of a folder are spread.
    dask : str or distributed.Client, optional
        A cluster instead.
    batch_rows : int, optional
        Rows read at a time.
    seed : int
        Of the rows that metrics of pairs are computed on.

    Returns
    -------
    Validation

    Raises
    ------
    InvalidInputError
        Rows or labels that cannot be used (the first is named, all are counted), classes that the geometry does not
        have, one class, or more than 4096.
    MissingDependencyError
        A file format, several workers or a cluster need a package that is not there.
    NotCertifiedError
        The optimum was solved for and is not certified.

    Notes ----- The statistics are derived in `embeddings.directions`, `embeddings.intervals`, `embeddings.deviation`
    and `embeddings.verdict`; formulas and sources of the metrics are in `embeddings.metrics`. A page for people:
    `optgeom.plotting.validation_report.write_report`.
    """
    began = time.perf_counter()
    tolerance = _checks.real(
        "tolerance", tolerance, at_least=0.0, hint="degrees; 2 is usual, 0 asks for sampling noise only"
    )
    _checks.choice("match", match, MATCHES)
    seed = _checks.integer("seed", seed, at_least=0)
    source_of_optimum = choose_reference(geometry, classes, loss, sampler_power)
    by_shape = match == "hungarian"
    if by_shape and source_of_optimum.geometry is None and classes is None:
        raise InvalidInputError(
            "`match` 'hungarian' needs a geometry or classes to match with; got neither (give one, or match names)"
        )
    columns = {"label_column": label_column, "vector_column": vector_column, "group_column": group_column}
    source = _opened(embeddings, labels, group_ids, columns)
    reading = _Reading(source, _ignored(ignore_labels), workers, dask, batch_rows, seed)
    found = reading.collect()
    _check_number(found.moments)
    optimum = source_of_optimum.solved(found.moments)
    held = optimum.geometry
    if by_shape:
        matching = match_shapes(found.moments.names, found.moments.counts, _means(found.moments), held)
    else:
        matching = match_names(found.moments.names, held.names, ignore_extra)
    extra = {found.moments.names[c]: int(found.moments.counts[c]) for c in matching.extra}
    ignored = found.ignored
    if extra and source.re_readable:
        # Read again without them, so that neither the pooled covariance nor the sample of rows knows them.
        found = reading.collect(tuple(extra))
        matching = replace(matching, learned=match_names(found.moments.names, held.names).learned)
    own_names = [found.moments.names[c] for c in matching.learned]
    found = _chosen(found, matching.learned, tuple(held.names[k] for k in matching.optimal))
    return _judged(reading, found, own_names, matching, optimum, tolerance, extra, ignored, match, began)


@dataclass(frozen=True, eq=False)
class _Reading:
    """How the source is read, perhaps more than once."""

    source: Source
    ignore: tuple[int | str, ...]
    workers: int
    dask: Any
    batch_rows: int | None
    seed: int

    def collect(self, beside: tuple[str, ...] = ()) -> Collected:
        """Moments and a sample of rows, labels `beside` left out too."""
        length = math.prod(getattr(self.source, "row_shape", (UNKNOWN_LENGTH,)))
        size = max(FEWEST_SAMPLED, SAMPLE_ENTRIES // max(length, 1))
        ignore = self.ignore + beside
        return collect(self.source, ignore, self.workers, self.dask, self.batch_rows, sample=size, seeds=(self.seed,))

    def topped(self, sample: SampledRows, moments: ClassMoments, names: list[str], images: int) -> SampledRows:
        """The sample with more rows of the classes that it has few of; `names` are those of the labels."""
        counts = np.bincount(sample.codes, minlength=len(names))
        lacking = np.flatnonzero((counts < FEW_ROWS) & (counts < moments.counts))
        if not lacking.size or not self.source.re_readable:
            return sample
        more = sample_rows(self.source, [names[c] for c in lacking.tolist()], TOPPED_ROWS * lacking.size, self.seed)
        if more.rows.shape[1:] != sample.rows.shape[1:]:  # images of rare classes have other numbers of views
            return sample
        kept = ~np.isin(sample.codes, lacking)
        rows = np.concatenate([sample.rows[kept], more.rows])
        return SampledRows(rows, np.concatenate([sample.codes[kept], lacking[more.codes]]), images - len(rows))


def _opened(embeddings: Any, labels: Any, group_ids: Any, columns: dict[str, str | None]) -> Source:
    given = {name: column for name, column in columns.items() if column is not None}
    if isinstance(embeddings, (str, os.PathLike)):
        return open_embeddings(embeddings, labels=labels, group_ids=group_ids, **given)
    if given:
        name, column = next(iter(given.items()))
        raise InvalidInputError(
            f"`{name}` is for files; got {column!r} beside embeddings in memory (give the arrays themselves)"
        )
    if isinstance(labels, (str, os.PathLike)):
        from optgeom.inputs.labels_files import read_labels

        labels = read_labels(labels)
    return as_source(embeddings, labels, group_ids)


def _ignored(labels: Any) -> tuple[int | str, ...]:
    """One label or several; -1.0 is -1, as it is among the labels."""
    if isinstance(labels, (str, bytes)) or not hasattr(labels, "__iter__"):
        labels = (labels,)
    found: list[int | str] = []
    for label in labels:
        value = label.item() if isinstance(label, np.generic) else label
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, (int, str)):
            raise InvalidInputError(
                f"`ignore_labels` must be whole numbers or text; got {label!r} (for example [-1, 255])"
            )
        found.append(value)
    return tuple(found)


def _check_number(moments: ClassMoments) -> None:
    if len(moments.names) > MOST_CLASSES:
        raise InvalidInputError(
            f"`labels` must have at most {MOST_CLASSES} classes, since all pairs are compared; got {len(moments.names)} "
            "(compare superclasses, or leave classes out: ignore_labels, --ignore-label)"
        )


def _means(moments: ClassMoments) -> Array:
    return np.asarray(moments.sums / moments.counts[:, None])


def _judged(
    reading: _Reading,
    found: Collected,
    own_names: list[str],
    matching: Matching,
    optimum: Reference,
    tolerance: float,
    extra: dict[str, int],
    ignored: dict[str, int],
    match: str,
    began: float,
) -> Validation:
    geometry = optimum.geometry
    missing = tuple(geometry.names[k] for k in matching.missing)
    moments, within, drawn = found.moments, found.within, found.samples[0]
    optimal = np.asarray(geometry.gram)[np.ix_(matching.optimal, matching.optimal)]
    directions = class_directions(moments)
    intervals = pair_intervals(directions, within, optimal)
    off = deviations(directions, intervals, optimal)
    judgement = embedding_verdict(directions, intervals, off, tolerance, geometry.bracket is not None, missing)
    images = int(moments.counts.sum())
    topped = reading.topped(drawn, moments, own_names, images)
    sample, stratified = Sampled.of(drawn, images), Sampled.of(topped, images)
    measured = measure(moments, within, directions, off, optimum, matching.optimal, sample, stratified, reading.seed)
    known = np.flatnonzero(directions.known)
    return Validation(
        geometry,
        moments.names,
        optimal,
        directions,
        intervals,
        off,
        judgement,
        measured.excess_risk,
        _sentence(judgement, optimum, matching, found.moments.sums.shape[1], extra),
        measured.metrics,
        _class_rows(off, judgement, measured),
        spectrum(directions.gram[np.ix_(known, known)]),
        spectrum(optimal[np.ix_(known, known)]),
        found.num_rows,
        images,
        int(moments.sums.shape[1]),
        found.norms,
        reading.source.name,
        optimum.origin,
        optimum.own_counts,
        match,
        dict(matching.renamed),
        ignored,
        extra,
        missing,
        (*_notes(found, extra), *_repeated(drawn), *optimum.notes, *geometry.classes.notes, *geometry.notes),
        time.perf_counter() - began,
    )


def _notes(found: Collected, extra: dict[str, int]) -> tuple[str, ...]:
    """Notes on the rows, but not one for every class that is left out as extra: the sentence counts these."""
    told = {f"{rows} rows with label {name} left out" for name, rows in found.ignored.items() if name in extra}
    return tuple(note for note in found.notes if note not in told)


def _repeated(sample: SampledRows) -> tuple[str, ...]:
    """A note where rows occur more than once, which a mean over independent images would not have."""
    distinct = len({hash(row.tobytes()) for row in sample.rows})  # whole rows would be kept in a set of bytes
    equal = len(sample.rows) - distinct
    if equal <= REPEATED_SHARE * len(sample.rows):
        return ()
    return (
        f"{equal} of {len(sample.rows)} rows looked at repeat another one exactly: images that were read twice (by a sampler with "
        "replacement?) are no new images, and intervals are too narrow (give each row the id of its image as group_ids, --group-ids)",
    )


def _chosen(found: Collected, order: npt.NDArray[np.intp], names: tuple[str, ...]) -> Collected:
    """Some classes, in another order and under other names."""
    moments, within = found.moments, found.within
    chosen = ClassMoments(names, moments.counts[order], moments.sums[order], moments.squares[order])
    sample = _recoded(found.samples[0], order, len(moments.names))
    if np.array_equal(order, np.arange(len(moments.names))):  # covariances are large
        return replace(found, moments=chosen, samples=(sample,))
    projected = None if within.projected is None else within.projected[np.ix_(order, order)]
    full = None if within.full is None else within.full[order]
    # The pooled covariance of a source that can be read only once keeps classes that are left out: it lends its shape
    # only.
    return replace(
        found,
        moments=chosen,
        within=WithinClass(within.pooled, within.traces[order], full, projected),
        samples=(sample,),
    )


def _recoded(sample: SampledRows, order: npt.NDArray[np.intp], classes: int) -> SampledRows:
    place = np.full(classes, -1, dtype=np.intp)
    place[order] = np.arange(order.size)
    codes = place[sample.codes]
    kept = codes >= 0
    return (
        sample
        if kept.all() and np.array_equal(codes, sample.codes)
        else SampledRows(sample.rows[kept], codes[kept], sample.cut)
    )


def _sentence(
    judgement: EmbeddingVerdict, optimum: Reference, matching: Matching, dim: int, extra: dict[str, int]
) -> str:
    """The verdict, with what it rests on."""
    parts = [judgement.sentence]
    if matching.renamed:
        parts = [f"after matching the classes by their shape: {judgement.sentence}"]
    geometry = optimum.geometry
    if geometry.bracket is not None:
        low, high = geometry.bracket
        parts.append(
            f"The optimum needs {geometry.required_rank} dimensions and the embeddings have {dim}: compared with the best geometry found "
            f"in {geometry.dim}, whose risk {high:.6g} no geometry there can beat by more than {max(high - low, 0.0):.2g}."
        )
    if extra:
        parts.append(f"Left out, since the geometry does not have them: {first_of(extra)}.")
    if optimum.own_counts:
        parts.append(
            "The optimum was computed from the label counts of the embeddings themselves, not from the training data: "
            "if these differ, give the training counts."
        )
    if optimum.usual_loss:
        held = describe_loss(geometry.loss)
        parts.append(
            f"No loss was given: the optimum is that of the default, {held}; if training had another, give it (loss, or --loss and "
            "--temperature)."
        )
    return " ".join(" ".join(parts).split())  # a name may have a line end


def _class_rows(off: Deviations, judgement: EmbeddingVerdict, measured: Measured) -> tuple[ClassRow, ...]:
    """The classes in most trouble first.

    By pairs that decided the verdict, by sure deviation, classes too small, by possible deviation.
    """
    deciding = dict(judgement.classes)
    rows = []
    for c, entry in enumerate(off.per_class()):
        reach = entry["deviation_ci"] or (None, None)
        cdnv = float(measured.cdnv[c])
        rows.append(
            ClassRow(
                entry["name"],
                entry["count"],
                entry["rho"],
                deciding.get(entry["name"], 0),
                entry["worst_pair"],
                entry["deviation"],
                reach[0],
                reach[1],
                None if math.isnan(cdnv) else cdnv,
                finite(measured.nearest_mean[c]),
                finite(measured.cac[c]),
                finite(measured.saa[c]),
            )
        )
    unsure = set(judgement.too_small) | set(judgement.without_direction)
    order = sorted(
        rows, key=lambda row: (-row.pairs, -(row.low or 0.0), row.name not in unsure, -(row.high or 180.0), row.name)
    )
    return tuple(order)
