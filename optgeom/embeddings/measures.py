"""All metrics of one validation, each as a number or as n/a with the reason."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from optgeom._numerics import Array
from optgeom.embeddings.metrics.class_metrics import (
    ClassMetrics,
    class_metrics,
    effective_rank,
    simplex_distance,
    singular_values_of_scatter,
)
from optgeom.embeddings.metrics.empirical_risk import within_term
from optgeom.embeddings.metrics.metric import NOTHING, RiskEstimate
from optgeom.embeddings.metrics.sample_metrics import ROWS, SampleMetrics, sample_metrics
from optgeom.embeddings.metrics.similarity import class_optimum_r2, procrustes_r2, sample_similarity_r2
from optgeom.embeddings.moments.class_moments import ClassMoments, WithinClass
from optgeom.embeddings.moments.row_sample import SampledRows
from optgeom.embeddings.reference import Reference
from optgeom.embeddings.result import Metric
from optgeom.embeddings.statistics.deviation import Deviations
from optgeom.embeddings.statistics.directions import Directions
from optgeom.embeddings.statistics.excess_risk import ExcessRisk, excess_risk, risk_of_products
from optgeom.errors import IncompatibleError, InvalidInputError
from optgeom.losses import SupCon, SupConFullBatch
from optgeom.prototypes import from_gram

NO_VIEWS = "the images have one view each"
ONE_IMAGE = "no class has two images"


@dataclass(frozen=True, eq=False)
class Measured:
    """Metrics of an embedding.

    Attributes
    ----------
    metrics : dict of str to Metric
    excess_risk : ExcessRisk
    cdnv : (C,)
        Largest CDNV of each class with another one; inf where two means coincide, nan where n/a.
    nearest_mean, cac, saa : (C,)
        By class; nan where n/a.
    """

    metrics: dict[str, Metric]
    excess_risk: ExcessRisk
    cdnv: Array
    nearest_mean: Array
    cac: Array
    saa: Array


@dataclass(frozen=True, eq=False)
class Sampled:
    """Sampled unit rows, all views of an image one after the other.

    Attributes
    ----------
    rows : (s, d)
    codes : (s,) intp
    groups : (s,) or None
        Image of each row, where images have views.
    whole : bool
        Every row of the embeddings is in it.
    """

    rows: Array
    codes: npt.NDArray[np.intp]
    groups: npt.NDArray[np.intp] | None
    whole: bool

    @classmethod
    def of(cls, sample: SampledRows, images: int) -> Sampled:
        """From images as `RowSample` keeps them; `images` is how many there are."""
        rows, codes = sample.rows, sample.codes
        whole = len(rows) == images and not sample.cut
        if rows.ndim == 2:
            return cls(rows, codes, None, whole)
        views = rows.shape[1]
        return cls(
            rows.reshape(-1, rows.shape[2]), np.repeat(codes, views), np.repeat(np.arange(len(rows)), views), whole
        )


def measure(
    moments: ClassMoments,
    within: WithinClass,
    directions: Directions,
    deviations: Deviations,
    optimum: Reference,
    classes: npt.NDArray[np.intp],
    sample: Sampled,
    stratified: Sampled,
    seed: int = 0,
) -> Measured:
    """All metrics.

    Parameters
    ----------
    moments, within, directions, deviations
        Of the classes compared, in the order of the geometry.
    optimum : Reference
    classes : (C,)
        Index in the geometry of each class compared.
    sample : Sampled
        Rows drawn uniformly, for the metrics of rows.
    stratified : Sampled
        Rows in which rare classes are not lost, for the loss.
    seed : int
    """
    shape = class_metrics(moments, within)
    means = moments.sums / moments.counts[:, None]
    scatter = moments.sums.T @ means + np.nan_to_num(within.pooled) * float((moments.counts - 1).sum())
    scatter = (scatter + scatter.T) / 2
    temperature = None if optimum.loss is None else optimum.loss.temperature
    rows = _of_rows(sample, moments, temperature, seed)
    found = {
        **_against_optimum(deviations),
        **_of_samples(moments, scatter, sample, optimum, classes, seed),
        **_of_classes(shape, directions, moments, scatter),
        **_of_sample_metrics(rows),
    }
    excess, found["empirical_loss"] = _risk(directions, optimum, classes, stratified, seed)
    blank = np.full(len(moments.names), math.nan)
    finite = np.where(np.isnan(shape.separation.matrix), -math.inf, shape.separation.matrix).max(axis=1)
    singles = moments.counts < 2
    nearest = blank if rows is None else np.where(singles, math.nan, [one.value for one in rows.nearest_mean_per_class])
    cac = blank if rows is None else np.array([one.value for one in rows.cac_per_class])
    saa = blank if rows is None or rows.saa_per_class is None else np.array([one.value for one in rows.saa_per_class])
    return Measured(found, excess, np.where(np.isneginf(finite), math.nan, finite), nearest, cac, saa)


def _against_optimum(deviations: Deviations) -> dict[str, Metric]:
    r2 = deviations.class_r2
    untested = "no pair of classes could be tested"
    reason = (
        untested
        if deviations.max_angle_error_deg is None
        else "the optimal cosines are all equal: there is no variation to explain"
    )
    weak = "the optimal cosines differ by less than .05: mostly noise" if deviations.class_r2_weak else None
    return {
        "relative_frobenius": Metric.of(deviations.relative_frobenius, untested),
        "class_r2": Metric(r2, reason=reason if r2 is None else weak),
    }


def _of_samples(
    moments: ClassMoments, scatter: Array, sample: Sampled, optimum: Reference, classes: npt.NDArray[np.intp], seed: int
) -> dict[str, Metric]:
    """Rows against the prototypes of their classes.

    All of them at once, or sampled views, whose means are no unit rows.
    """
    target = np.asarray(optimum.geometry.gram)[np.ix_(classes, classes)]
    reason = "fewer than three rows" if moments.counts.sum() < 3 else "the optimal similarities are all equal"
    if sample.groups is None:
        exact = class_optimum_r2(moments.counts, moments.sums, scatter, target)
        return {
            "sample_r2": Metric.of(exact.sample_r2, reason),
            "procrustes_r2": Metric.of(exact.procrustes_r2, reason),
        }
    index = np.arange(len(sample.rows))
    if index.size > ROWS:
        index = np.sort(np.random.default_rng([seed, 1]).choice(index, ROWS, replace=False))
    vertices = from_gram(target)[sample.codes[index]]
    values = (sample_similarity_r2(sample.rows[index], vertices), procrustes_r2(sample.rows[index], vertices))
    rows = int(index.size)
    return {
        name: replace(Metric.of(value, reason), rows=rows)
        for name, value in zip(("sample_r2", "procrustes_r2"), values, strict=True)
    }


def _of_classes(
    shape: ClassMetrics, directions: Directions, moments: ClassMoments, scatter: Array
) -> dict[str, Metric]:
    several = moments.counts > 1
    spread = ONE_IMAGE if not several.any() else "the class means coincide"
    apart = "fewer than two classes have two images" if several.sum() == 1 else spread
    simplex = simplex_distance(directions.gram)
    lost = len(simplex.left_out)
    lacking = "fewer than two classes have a direction"
    collapsed = shape.separation.num_collapsed_pairs
    beside = f"{collapsed} pair{'' if collapsed == 1 else 's'} of coinciding means left out" if collapsed else None
    return {
        "nc1": Metric.of(shape.nc1, spread),
        "cdnv_mean": _noted(Metric.of(shape.separation.mean, apart), beside),
        "cdnv_max": _noted(Metric.of(shape.separation.max, apart), beside),
        "simplex_frobenius": _noted(Metric.of(simplex.relative_frobenius, lacking), _left_out(lost)),
        "simplex_max_angle_deg": _noted(Metric.of(simplex.max_angle_deg, lacking), _left_out(lost)),
        "effective_rank": Metric.of(effective_rank(singular_values_of_scatter(scatter))),
    }


def _left_out(number: int) -> str | None:
    return f"{number} class{'' if number == 1 else 'es'} without a direction left out" if number else None


def _noted(metric: Metric, reason: str | None) -> Metric:
    return metric if metric.reason is not None or reason is None else replace(metric, reason=reason)


def _of_rows(sample: Sampled, moments: ClassMoments, temperature: float | None, seed: int) -> SampleMetrics | None:
    if len(sample.rows) < 2:
        return None
    means = None
    if not sample.whole:
        # The means of all rows, since those of a sample are noisy; a class of one image is nearest to itself, which
        # says nothing.
        means = np.where((moments.counts > 1)[:, None], moments.sums / moments.counts[:, None], math.nan)
    return sample_metrics(sample.rows, sample.codes, len(moments.names), sample.groups, temperature, means, seed)


def _of_sample_metrics(rows: SampleMetrics | None) -> dict[str, Metric]:
    reasons = {
        "uniformity": "fewer than two rows",
        "tolerance": "fewer than two rows",
        "conditional_tolerance": ONE_IMAGE,
        "alignment": NO_VIEWS,
        "saa": NO_VIEWS,
        "cac": ONE_IMAGE,
        "nearest_mean": ONE_IMAGE,
        "penalty_entropy": "the temperature of the loss is not known",
    }
    if rows is None:
        return {name: Metric(None, reason="fewer than two rows") for name in reasons}
    return {name: Metric.of(getattr(rows, name), reason) for name, reason in reasons.items()}


def _risk(
    directions: Directions,
    optimum: Reference,
    classes: npt.NDArray[np.intp],
    sample: Sampled,
    seed: int,
) -> tuple[ExcessRisk, Metric]:
    """Excess risk, and the loss of the rows in the units of the geometry's risk.

    L - F(M) is estimated from the same draws for rows and class means, and F(M) is known exactly: L as their sum is far
    more precise than a mean over batches of all compositions.
    """
    geometry, loss = optimum.geometry, optimum.loss
    if loss is None:
        unknown = f"the loss {geometry.loss.get('name')} is not kept in a geometry: give it to validate"
        return ExcessRisk(reason=unknown), Metric(None, reason=unknown)
    terms = excess_risk(directions, geometry.classes, loss, geometry.risk)
    if terms.direction is None or terms.unit is None:
        return terms, Metric(None, reason=terms.reason)
    try:
        inside = _within(sample, directions, optimum, classes, seed)
    except (InvalidInputError, IncompatibleError) as error:
        # What validate was given is fine: it is these rows on which the loss is not defined, or a loss of one's own.
        return replace(terms, reason=str(error)), Metric(None, reason=str(error))
    risk = risk_of_products(directions.mean_gram, geometry.classes, loss)
    whole = replace(terms, within=inside.value / terms.unit, within_error=_error(inside, terms.unit), reason=None)
    return whole, Metric(risk + inside.value, _error(inside, 1.0), inside.rows, _caveats(inside))


def _error(found: RiskEstimate, unit: float) -> float | None:
    return None if math.isnan(found.standard_error) else found.standard_error / unit


def _within(
    sample: Sampled, directions: Directions, optimum: Reference, classes: npt.NDArray[np.intp], seed: int
) -> RiskEstimate:
    held = optimum.geometry.classes
    loss: Any = optimum.loss
    counts = None
    if isinstance(loss, SupConFullBatch) and held.counts is not None:
        counts = held.counts[classes] * loss.views
    rows, codes, groups = sample.rows, sample.codes, sample.groups
    return within_term(
        rows,
        codes,
        loss,
        directions.mean_gram,
        held.proportions[classes],
        seed,
        groups=groups,
        counts=counts,
        batches=batches_of(loss),
    )


def batches_of(loss: Any) -> int:
    """Batches of SupCon: about 32 000 anchors in all, between 4 and 32."""
    if not isinstance(loss, SupCon) or loss.batch_size == math.inf:
        return 32
    return int(np.clip(2**15 // (loss.batch_size * loss.views), 4, 32))


def _caveats(found: RiskEstimate) -> str | None:
    said: Sequence[str] = [
        found.convention if found.convention != NOTHING else "",
        "other images of the class stood for views" if found.views_missing else "",
        f"{found.stand_ins} rows stood in for themselves, their classes being too small" if found.stand_ins else "",
    ]
    return "; ".join(filter(None, said)) or None
