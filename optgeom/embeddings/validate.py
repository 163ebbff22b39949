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

from optgeom import _checks, choices
from optgeom._numerics import Array
from optgeom.embeddings.assessment import Assessment, assess, by_units
from optgeom.embeddings.matching import Matching, match_names, match_shapes
from optgeom.embeddings.measures import METRICS, Embedding
from optgeom.embeddings.moments.collect import Collected, collect
from optgeom.embeddings.moments.first_pass import ClassMoments
from optgeom.embeddings.moments.row_sample import sample_rows
from optgeom.embeddings.moments.second_pass import WithinClass
from optgeom.embeddings.moments.source import Source
from optgeom.embeddings.moments.unit_rows import UnitRows
from optgeom.embeddings.readers.in_memory import as_source
from optgeom.embeddings.readers.open import open_embeddings
from optgeom.embeddings.reference import Reference, ReferenceChoice, choose_reference
from optgeom.embeddings.result import Validation
from optgeom.embeddings.seeds import several_seeds, validate_seeds
from optgeom.embeddings.statistics.judgement import DEFAULT_SLACK, DEFAULT_TOLERANCE_DEG
from optgeom.embeddings.statistics.pair_intervals import ALPHA, UNSEEN, checked_unseen
from optgeom.embeddings.statistics.pair_ranges import EXACT_PAIRS, PairRanges, pair_ranges
from optgeom.embeddings.summary import class_rows, notes_on_rows, repeated_rows
from optgeom.errors import InvalidInputError
from optgeom.formatting import first_of
from optgeom.geometry import Geometry
from optgeom.inputs.classes import ClassDistribution
from optgeom.losses import Loss

MOST_CLASSES = 4096  # some twenty (C, C) matrices: 2.6 GiB
SAMPLE_ENTRIES = 2**23  # of the sampled rows, 64 MiB in float64: all of 50 000 rows of length 128
FEWEST_SAMPLED = 4096
UNKNOWN_LENGTH = 1024  # of a row, where a source does not tell
FEW_ROWS = 8  # of a class in the sample, below which its own rows are looked for
TOPPED_ROWS = 64
SHOWN_PAIRS = 5  # whose ranges are exact although no pair is off


def validate(
    embeddings: Any,
    labels: Any = None,
    geometry: Geometry | str | os.PathLike[str] | None = None,
    *,
    classes: ClassDistribution | None = None,
    loss: Loss | None = None,
    tolerance_deg: float = DEFAULT_TOLERANCE_DEG,
    slack: float = DEFAULT_SLACK,
    unseen_share: float = UNSEEN,
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
    """How close are the class means of a trained embedding to the optimum, and is the difference more than noise?

    Rows are normalised, then averaged by class (views of one image first); the cosines between the means are freed from
    the shortening by finite samples, given simultaneous intervals, and compared with the optimal ones. Null hypothesis:
    no angle is off by more than the tolerance.

    Parameters
    ----------
    embeddings : array (n, d) or (n, V, d), tensor, path, iterable of batches, Source, or a list of several of them
        As in `embeddings.readers.in_memory.as_source` and `embeddings.readers.open.open_embeddings`: V views of an
        image; a memory map; batches (X, y) or (X, y, groups), those of a generator being read once. A list of paths,
        arrays or tensors holds one embedding per training seed: they get one verdict (`embeddings.seeds`).
    labels : array-like of shape (n,), or path, optional
        Where the embeddings do not hold them. Several embeddings have the same labels, or a list of one per seed.
    geometry : Geometry or path, optional
        The optimum, of the training classes. Where its rank exceeds d it is solved again in d dimensions.
    classes : ClassDistribution, optional
        Of the training data, instead of a geometry. With neither, the label counts of the embeddings stand in, and the
        verdict says so.
    loss : Loss, optional
        Of the training; `SupCon()` by default, or that of the geometry.
    tolerance_deg : float
        Degrees >= 0 up to which an angle counts as optimal. No trained network attains the optimum: 0 asks for sampling
        noise only.
    slack : float
        >= 0: share of the loss range (collapsed minus optimal risk), per image of the two classes of a pair, up to
        which an angle that is off counts as one that the loss hardly asks for. 0 lets every pair count.
    unseen_share : float
        In [0, 1): share of a class that may be of a kind that its images do not show. 0 takes the images to show all.
    group_ids : array-like of shape (n,), or path, optional
        Id of the image that a row is a view of; of every seed.
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
        A file format, several workers or a cluster need a package that is not installed.
    NotCertifiedError
        The optimum was computed and is not certified.

    Notes
    -----
    The statistics are derived in `embeddings.statistics`; formulas and sources of the metrics are in
    `embeddings.metrics`. A page for people: `optgeom.plotting.validation_report.write_report`.
    """
    if several_seeds(embeddings):
        arguments = {name: value for name, value in locals().items() if name not in ("embeddings", "labels")}
        return validate_seeds(embeddings, labels, _validate, arguments)
    return _validate(**locals())


def _validate(
    embeddings: Any,
    labels: Any,
    geometry: Any,
    *,
    classes: ClassDistribution | None,
    loss: Loss | None,
    tolerance_deg: float,
    slack: float,
    unseen_share: float,
    group_ids: Any,
    ignore_labels: int | str | Sequence[int | str],
    ignore_extra: bool,
    match: str,
    sampler_power: float,
    label_column: str | None,
    vector_column: str | None,
    group_column: str | None,
    workers: int,
    dask: Any,
    batch_rows: int | None,
    seed: int,
    alpha: float = ALPHA,
) -> Validation:
    """One embedding."""
    began = time.perf_counter()
    tolerance_deg = _checks.real(
        "tolerance_deg", tolerance_deg, at_least=0.0, hint="degrees; 2 is usual, 0 asks for sampling noise only"
    )
    slack = _checks.real(
        "slack", slack, at_least=0.0, hint="a share of the loss range; 1e-3 is usual, 0 switches it off"
    )
    unseen_share = checked_unseen(unseen_share, "unseen_share")
    _checks.choice("match", match, choices.Match)
    seed = _checks.integer("seed", seed, at_least=0)
    choice = choose_reference(geometry, classes, loss, sampler_power)
    if match == "hungarian" and choice.geometry is None and classes is None:
        raise InvalidInputError(
            "`match` 'hungarian' needs a geometry or classes to match with; got neither (give one, or match names)"
        )
    columns = {"label_column": label_column, "vector_column": vector_column, "group_column": group_column}
    source = _opened(embeddings, labels, group_ids, columns)
    reader = _Reader(source, _ignored(ignore_labels), workers, dask, batch_rows, seed)
    compared = _compared(reader, choice, match, ignore_extra)
    return _validation(reader, compared, _Options(tolerance_deg, slack, unseen_share, alpha), match, began)


@dataclass(frozen=True)
class _Options:
    """What counts as a difference."""

    tolerance_deg: float
    slack: float
    unseen_share: float
    alpha: float


@dataclass(frozen=True, eq=False)
class _Reader:
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
        return collect(
            self.source,
            ignore=ignore,
            workers=self.workers,
            dask=self.dask,
            batch_rows=self.batch_rows,
            sample=size,
            seeds=(self.seed,),
        )

    def topped_up(self, sample: UnitRows, moments: ClassMoments, names: list[str]) -> UnitRows:
        """The sample with more rows of the classes that it has few of; `names` are those of the labels."""
        counts = sample.image_counts
        lacking = np.flatnonzero((counts < FEW_ROWS) & (counts < moments.counts))
        if not lacking.size or not self.source.re_readable:
            return sample
        more = sample_rows(self.source, [names[c] for c in lacking.tolist()], TOPPED_ROWS * lacking.size, self.seed)
        if more.views != sample.views:  # images of rare classes have other numbers of views
            return sample
        kept = np.flatnonzero(~np.isin(sample.codes, lacking))
        return sample.subset(kept).joined(more.with_classes(lacking, sample.num_classes))


@dataclass(frozen=True, eq=False)
class _Compared:
    """Embeddings and the reference with the same classes in the same order.

    Attributes
    ----------
    collected : Collected
        Under the names of the geometry.
    labels : list of str
        Names of the same classes among the labels.
    matching : Matching
    reference : Reference
    extra : dict of str to int
        Images of each class left out, since the geometry does not have it.
    ignored : dict of str to int
        Rows of each ignored label.
    """

    collected: Collected
    labels: list[str]
    matching: Matching
    reference: Reference
    extra: dict[str, int]
    ignored: dict[str, int]

    @property
    def missing(self) -> tuple[str, ...]:
        """Classes of the geometry without embeddings."""
        return tuple(self.reference.geometry.names[k] for k in self.matching.missing)


def _compared(reader: _Reader, choice: ReferenceChoice, match: str, ignore_extra: bool) -> _Compared:
    """Read the embeddings, make the reference, and match the classes of both."""
    collected = reader.collect()
    moments = collected.moments
    if len(moments.names) > MOST_CLASSES:
        raise InvalidInputError(
            f"`labels` must have at most {MOST_CLASSES} classes, since all pairs are compared; got "
            f"{len(moments.names)} (compare superclasses, or leave classes out: ignore_labels, --ignore-label)"
        )
    reference = choice.solved(moments)
    geometry = reference.geometry
    if match == "hungarian":
        means = np.asarray(moments.sums / moments.counts[:, None])
        matching = match_shapes(moments.names, moments.counts, means, geometry)
    else:
        matching = match_names(moments.names, geometry.names, ignore_extra=ignore_extra)
    extra = {moments.names[c]: int(moments.counts[c]) for c in matching.extra}
    ignored = collected.ignored
    if extra and reader.source.re_readable:
        # Read again without them, so that neither the pooled covariance nor the sample of rows has rows of them.
        collected = reader.collect(tuple(extra))
        learned = match_names(collected.moments.names, geometry.names).learned
        matching = replace(matching, learned=learned)
    return _Compared(
        _chosen(collected, matching.learned, tuple(geometry.names[k] for k in matching.optimal)),
        [collected.moments.names[c] for c in matching.learned],
        matching,
        reference,
        extra,
        ignored,
    )


def _chosen(collected: Collected, order: npt.NDArray[np.intp], names: tuple[str, ...]) -> Collected:
    """Some classes, in another order and under other names."""
    moments, within = collected.moments, collected.within
    chosen = ClassMoments(names, moments.counts[order], moments.sums[order], moments.squares[order])
    place = np.full(len(moments.names), -1, dtype=np.intp)
    place[order] = np.arange(order.size)
    sample = collected.samples[0].with_classes(place, order.size)
    if np.array_equal(order, np.arange(len(moments.names))):  # covariances are large
        return replace(collected, moments=chosen, samples=(sample,))
    # Of a source that can be read only once the pooled covariance has classes that are left out: only its shape counts.
    part = WithinClass(
        within.pooled,
        within.traces[order],
        None if within.full is None else within.full[order],
        None if within.projected is None else within.projected[np.ix_(order, order)],
    )
    return replace(collected, moments=chosen, within=part, samples=(sample,))


def _validation(reader: _Reader, compared: _Compared, options: _Options, match: str, began: float) -> Validation:
    """Judge and measure."""
    collected, reference, places = compared.collected, compared.reference, compared.matching.optimal
    geometry, moments = reference.geometry, collected.moments
    sample = collected.samples[0]
    balanced = reader.topped_up(sample, moments, compared.labels)
    repeated = repeated_rows(sample)
    # Classes collapsed to one point repeat it exactly: no groups are to be seen among equal rows.
    counted, grouped = (collected, "") if repeated else by_units(collected, _complete(sample, moments), reader.seed)
    assessment = assess(
        counted,
        geometry,
        places,
        rows=counted.samples[0] if grouped else balanced,
        tolerance_deg=options.tolerance_deg,
        slack=options.slack,
        unseen_share=options.unseen_share,
        alpha=options.alpha,
        missing=compared.missing,
        seed=reader.seed,
    )
    directions, judgement = assessment.directions, assessment.judgement
    embedding = Embedding(
        moments=moments,
        within=collected.within,
        directions=directions,
        deviations=assessment.deviations,
        reference=reference,
        places=places,
        sample=_complete(sample, moments),
        balanced=_complete(balanced, moments),
        seed=reader.seed,
    )
    known = np.flatnonzero(directions.known)
    notes = [*notes_on_rows(collected, compared.extra), *repeated, *([grouped] if grouped else [])]
    return Validation(
        geometry=geometry,
        names=moments.names,
        optimal=assessment.optimal,
        directions=directions,
        intervals=assessment.intervals,
        deviations=assessment.deviations,
        judgement=judgement,
        reference=assessment.reference,
        excess_risk=embedding.risk[0],
        sentence=_sentence(assessment, compared, embedding.risk[0].direction, grouped),
        metrics={definition.name: definition.of(embedding) for definition in METRICS},
        classes=class_rows(embedding, judgement),
        learned_spectrum=_spectrum(directions.gram[np.ix_(known, known)]),
        optimal_spectrum=_spectrum(assessment.optimal[np.ix_(known, known)]),
        num_rows=collected.num_rows,
        num_images=int(directions.counts.sum()),
        dim=int(moments.sums.shape[1]),
        norms=collected.norms,
        embeddings_from=reader.source.name,
        optimum_from=reference.origin,
        slack=options.slack,
        own_excess=assessment.own_excess,
        confusion=assessment.confusion,
        ranges=_pair_ranges(geometry, assessment, embedding.risk[0].direction),
        own_counts=reference.own_counts,
        matching=match,
        matched=dict(compared.matching.renamed),
        ignored=compared.ignored,
        extra=compared.extra,
        missing=compared.missing,
        notes=(*notes, *reference.notes, *geometry.classes.notes, *geometry.notes),
        seconds=time.perf_counter() - began,
    )


def _pair_ranges(geometry: Geometry, assessment: Assessment, excess: float | None) -> PairRanges | None:
    """At the excess of all angles together: exactly for pairs that are off, or for the first ones where none is."""
    chosen = assessment.deviations.worst_pairs(EXACT_PAIRS[0], assessment.beyond & np.triu(assessment.intervals.tested))
    chosen = chosen or assessment.deviations.worst_pairs(SHOWN_PAIRS)
    # An excess is known only where every class of the geometry is there: positions are the same in both.
    pairs = [(pair.first, pair.second) for pair in chosen]
    return pair_ranges(geometry, excess, pairs, tolerance_deg=assessment.judgement.tolerance_deg)


def _spectrum(gram: Array) -> Array:
    """Eigenvalues of a symmetric matrix, descending."""
    return np.asarray(np.linalg.eigvalsh(gram)[::-1].copy())


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
        from optgeom.inputs.tables import read_labels

        labels = read_labels(labels)
    return as_source(embeddings, labels, group_ids)


def _ignored(labels: Any) -> tuple[int | str, ...]:
    """One label or several; -1.0 is -1, as it is among the labels."""
    if isinstance(labels, (str, bytes)) or not hasattr(labels, "__iter__"):
        labels = (labels,)
    ignored: list[int | str] = []
    for label in labels:
        value = label.item() if isinstance(label, np.generic) else label
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, (int, str)):
            raise InvalidInputError(
                f"`ignore_labels` must be whole numbers or text; got {label!r} (for example [-1, 255])"
            )
        ignored.append(value)
    return tuple(ignored)


def _complete(sample: UnitRows, moments: ClassMoments) -> UnitRows:
    """The sample, which knows whether all images of the classes are in it."""
    return replace(sample, whole=sample.num_images == int(moments.counts.sum()) and not sample.cut)


def _sentence(assessment: Assessment, compared: _Compared, direction: float | None, grouped: str) -> str:
    """The verdict, with what it rests on.

    `direction` is the joint cost of all angles, as a share of the loss range; `grouped` the note on rows in groups.
    """
    judgement, simplex_or_optimum = assessment.judgement, assessment.reference
    parts = [judgement.sentence]
    if judgement.verdict == "within-slack" and direction is not None:
        # Pairs can be fine one by one and not together.
        parts[0] += f" All angles together put the loss {100 * max(direction, 0.0):.2g} % of the way above its floor."
    if compared.matching.renamed:
        parts = [f"after matching the classes by their shape: {parts[0]}"]
    if simplex_or_optimum is not None and simplex_or_optimum.two_geometries:
        parts.append(f"All angles together: {simplex_or_optimum.sentence()}.")
    reference = compared.reference
    geometry = reference.geometry
    if geometry.bracket is not None:
        (low, high), dim = geometry.bracket, compared.collected.moments.sums.shape[1]
        parts.append(
            f"The optimum needs {geometry.required_rank} dimensions and the embeddings have {dim}: compared with the "
            f"best geometry found in {geometry.dim}, whose risk {high:.6g} no geometry there can beat by more than "
            f"{max(high - low, 0.0):.2g}."
        )
    if grouped:
        parts.append(grouped[:1].upper() + grouped[1:] + ".")
    if compared.extra:
        parts.append(f"Left out, since the geometry does not have them: {first_of(compared.extra)}.")
    if reference.own_counts:
        parts.append(
            "The optimum was computed from the label counts of the embeddings themselves, not from the training data: "
            "if these differ, give the training counts."
        )
    if reference.default_loss:
        parts.append(
            f"No loss was given: the optimum is that of the default, {geometry.loss.words()}; if training had "
            "another, give it (loss, or --loss and --temperature)."
        )
    return " ".join(" ".join(parts).split())  # a name may have a line end
