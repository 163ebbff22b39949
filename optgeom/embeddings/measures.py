"""All metrics of one validation: the list of them, and what they are taken from.

A metric is one entry of `METRICS`: its name, its words, and a function that takes it from an `Embedding`. Reports, the
JSON object and the command line read the list.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from optgeom._numerics import Array
from optgeom.embeddings.metrics import similarity
from optgeom.embeddings.metrics.class_metrics import (
    ClassMetrics,
    SimplexDistance,
    class_metrics,
    effective_rank,
    simplex_distance,
    singular_values_of_scatter,
)
from optgeom.embeddings.metrics.empirical_risk import empirical_risk
from optgeom.embeddings.metrics.metric import Definition, Metric
from optgeom.embeddings.metrics.pair_risk import RiskEstimate
from optgeom.embeddings.metrics.sample_metrics import ROWS, SampleMetrics, sample_metrics
from optgeom.embeddings.moments.directions import Directions
from optgeom.embeddings.moments.first_pass import ClassMoments
from optgeom.embeddings.moments.second_pass import WithinClass
from optgeom.embeddings.moments.unit_rows import UnitRows
from optgeom.embeddings.reference import Reference
from optgeom.embeddings.statistics.deviation import Deviations
from optgeom.embeddings.statistics.excess_risk import ExcessRisk, excess_risk, risk_of_products
from optgeom.errors import IncompatibleError, InvalidInputError
from optgeom.prototypes import from_gram

NO_VIEWS = "the images have one view each"
ONE_IMAGE = "no class has two images"
TWO_ROWS = "fewer than two rows"
UNTESTED = "no pair of classes could be tested"
COINCIDENT = "the class means coincide"


@dataclass(frozen=True, kw_only=True, eq=False)
class Embedding:
    """A trained embedding, ready to be measured.

    Attributes
    ----------
    moments, within, directions, deviations
        Of the classes compared, in the order of the geometry.
    reference : Reference
    places : (C,)
        Index in the geometry of each class compared.
    sample : UnitRows
        Rows drawn uniformly, for the metrics of rows.
    balanced : UnitRows
        Rows in which rare classes are not lost, for the loss.
    seed : int
    """

    moments: ClassMoments
    within: WithinClass
    directions: Directions
    deviations: Deviations
    reference: Reference
    places: npt.NDArray[np.intp]
    sample: UnitRows
    balanced: UnitRows
    seed: int = 0

    @cached_property
    def means(self) -> Array:
        """(C, d) class means."""
        return np.asarray(self.moments.sums / self.moments.counts[:, None])

    @cached_property
    def scatter(self) -> Array:
        """(d, d) sum over all images of z z'."""
        within = np.nan_to_num(self.within.pooled) * float((self.moments.counts - 1).sum())
        scatter = self.moments.sums.T @ self.means + within
        return np.asarray((scatter + scatter.T) / 2)

    @cached_property
    def optimal(self) -> Array:
        """(C, C) optimal cosines of the classes compared."""
        return np.asarray(self.reference.geometry.gram)[np.ix_(self.places, self.places)]

    @cached_property
    def classes(self) -> ClassMetrics:
        """Metrics of class means and scatter."""
        return class_metrics(self.moments, self.within)

    @cached_property
    def simplex(self) -> SimplexDistance:
        """Distance of the cosines from the regular simplex."""
        return simplex_distance(self.directions.gram)

    @cached_property
    def rows(self) -> SampleMetrics | None:
        """Metrics of the sampled rows; None where there are fewer than two."""
        sample, moments = self.sample, self.moments
        if len(sample.rows) < 2:
            return None
        # Of a part of the rows the means are noisy, so those of all rows are used; a class of one image is nearest to
        # itself, which says nothing.
        means = None if sample.whole else np.where((moments.counts > 1)[:, None], self.means, math.nan)
        loss = self.reference.loss
        temperature = None if loss is None else loss.shared_temperature
        return sample_metrics(
            sample.rows,
            sample.codes,
            num_classes=len(moments.names),
            groups=sample.images,
            temperature=temperature,
            means=means,
            seed=self.seed,
        )

    @cached_property
    def fit(self) -> dict[str, Metric]:
        """Both r2 of rows against the prototypes of their classes: of all images, or of sampled views.

        The means of views are not unit rows, so that their sums do not give the similarities.
        """
        reason = "fewer than three rows" if self.moments.counts.sum() < 3 else "the optimal similarities are all equal"
        if self.sample.images is None:
            exact = similarity.class_optimum_r2(self.moments.counts, self.moments.sums, self.scatter, self.optimal)
            values, number = (exact.sample_r2, exact.procrustes_r2), None
        else:
            index = np.arange(len(self.sample.rows))
            if index.size > ROWS:
                index = np.sort(np.random.default_rng([self.seed, 1]).choice(index, ROWS, replace=False))
            rows, optimal = self.sample.rows[index], from_gram(self.optimal)[self.sample.codes[index]]
            values = (similarity.sample_similarity_r2(rows, optimal), similarity.procrustes_r2(rows, optimal))
            number = int(index.size)
        names = ("sample_r2", "procrustes_r2")
        return {name: replace(Metric.of(value, reason), rows=number) for name, value in zip(names, values, strict=True)}

    @cached_property
    def risk(self) -> tuple[ExcessRisk, Metric]:
        """Excess risk, and the loss of the rows in the units of the geometry's risk.

        L - F(M) is estimated from the same draws for rows and class means, and F(M) is known exactly: L as their sum is
        far more precise than a mean over batches of all compositions.
        """
        geometry, loss = self.reference.geometry, self.reference.loss
        if loss is None:
            reason = (
                f"the file of the geometry has only a description of its loss {geometry.loss.name}: give it to validate"
            )
            return ExcessRisk(reason=reason), Metric(None, reason=reason)
        terms = excess_risk(self.directions, geometry.classes, loss, geometry.risk)
        if terms.unit is None:
            return terms, Metric(None, reason=terms.reason)
        try:
            within = self._within_term()
        except (InvalidInputError, IncompatibleError) as error:
            # The arguments of validate are right: the loss is not defined on these rows, or is the user's own.
            return replace(terms, reason=str(error)), Metric(None, reason=str(error))
        whole = risk_of_products(self.directions.mean_gram, geometry.classes, loss) + within.value
        spread = None if math.isnan(within.standard_error) else within.standard_error / terms.unit
        split = replace(terms, within=within.value / terms.unit, within_error=spread, reason=None)
        return split, Metric.of(replace(within, value=whole)).noted(within.caveats())

    def _within_term(self) -> RiskEstimate:
        classes, loss = self.reference.geometry.classes, self.reference.loss
        assert loss is not None
        values = loss.class_values(classes)
        return empirical_risk(
            self.balanced.rows,
            self.balanced.codes,
            loss,
            classes.proportions[self.places],
            values=values if values is None else values.at(self.places),
            gram=self.directions.mean_gram,
            seed=self.seed,
            groups=self.balanced.images,
            counts=None if classes.counts is None else classes.counts[self.places],
        )

    def largest_cdnv(self) -> Array:
        """(C,) largest CDNV of each class with another one; inf where two means coincide, nan where n/a."""
        matrix = self.classes.separation.matrix
        largest = np.where(np.isnan(matrix), -math.inf, matrix).max(axis=1)
        return np.where(np.isneginf(largest), math.nan, largest)

    def by_class(self, name: str) -> Array:
        """(C,) a metric of rows for each class, "nearest_mean", "cac" or "saa"; nan where n/a."""
        estimates = None if self.rows is None else getattr(self.rows, f"{name}_per_class")
        if estimates is None:
            return np.full(len(self.moments.names), math.nan)
        values = np.array([estimate.value for estimate in estimates])
        # A class of one image is nearest to itself.
        return np.where(self.moments.counts < 2, math.nan, values) if name == "nearest_mean" else values


def _class_r2(embedding: Embedding) -> Metric:
    deviations = embedding.deviations
    if deviations.max_angle_error_deg is None:
        return Metric(None, reason=UNTESTED)
    if deviations.class_r2 is None:
        return Metric(None, reason="the optimal cosines are all equal: there is no variation to explain")
    weak = "the optimal cosines differ by less than .05: mostly noise" if deviations.class_r2_weak else None
    return Metric(deviations.class_r2, reason=weak)


def _nc1(embedding: Embedding) -> Metric:
    several = bool((embedding.moments.counts > 1).any())
    return Metric.of(embedding.classes.nc1, COINCIDENT if several else ONE_IMAGE)


def _cdnv(name: str) -> Callable[[Embedding], Metric]:
    """The mean or the maximum of CDNV over pairs."""

    def measure(embedding: Embedding) -> Metric:
        separation = embedding.classes.separation
        several = int((embedding.moments.counts > 1).sum())
        reasons = {0: ONE_IMAGE, 1: "fewer than two classes have two images"}
        note = _left_out(separation.num_collapsed_pairs, "pair", "pairs", "of coinciding means")
        return Metric.of(getattr(separation, name), reasons.get(several, COINCIDENT)).noted(note)

    return measure


def _simplex(name: str) -> Callable[[Embedding], Metric]:
    """One of the distances from the regular simplex."""

    def measure(embedding: Embedding) -> Metric:
        metric = Metric.of(getattr(embedding.simplex, name), "fewer than two classes have a direction")
        return metric.noted(_left_out(len(embedding.simplex.left_out), "class", "classes", "without a direction"))

    return measure


def _left_out(number: int, singular: str, plural: str, which: str) -> str | None:
    return f"{number} {singular if number == 1 else plural} {which} left out" if number else None


def _of_rows(name: str, reason: str) -> Callable[[Embedding], Metric]:
    """A metric of the sampled rows; `reason` is why it may be n/a for two rows and more."""

    def measure(embedding: Embedding) -> Metric:
        return (
            Metric(None, reason=TWO_ROWS)
            if embedding.rows is None
            else Metric.of(getattr(embedding.rows, name), reason)
        )

    return measure


METRICS: tuple[Definition, ...] = (
    Definition(
        name="relative_frobenius",
        words="distance of the cosines from the optimal ones, relative to those; 0 is best",
        heading="Frobenius error",
        measure=lambda embedding: Metric.of(embedding.deviations.relative_frobenius, UNTESTED),
    ),
    Definition(
        name="class_r2",
        words="share of the differences between the optimal cosines of classes that the embedding has, noise set "
        "aside; 1 is best",
        measure=_class_r2,
    ),
    Definition(
        name="sample_r2",
        words="share of the variation of the optimal similarities between images that the embedding has; 1 is best",
        measure=lambda embedding: embedding.fit["sample_r2"],
    ),
    Definition(
        name="procrustes_r2",
        words="share of the spread of the optimum that the embedding has after the best rotation or reflection; 1 is "
        "best",
        measure=lambda embedding: embedding.fit["procrustes_r2"],
    ),
    Definition(
        name="nearest_mean",
        words="accuracy of assigning each image to the nearest class mean",
        heading="Accuracy",
        measure=_of_rows("nearest_mean", ONE_IMAGE),
    ),
    Definition(
        name="cac",
        words="share of the same class among the nearest 5 % of the images; 1 is best",
        heading="CAC",
        measure=_of_rows("cac", ONE_IMAGE),
    ),
    Definition(
        name="nc1",
        words="scatter within classes relative to that of the class means (neural collapse 1); 0 where every class is "
        "one point",
        heading="NC1",
        measure=_nc1,
    ),
    Definition(
        name="cdnv_mean",
        words="class-distance normalised variance, mean over pairs; 0 where every class is one point",
        heading="Mean CDNV",
        measure=_cdnv("mean"),
    ),
    Definition(
        name="cdnv_max",
        words="class-distance normalised variance of the worst pair",
        measure=_cdnv("max"),
    ),
    Definition(
        name="simplex_frobenius",
        words="distance of the cosines from the balanced simplex, relative; for comparison only",
        measure=_simplex("relative_frobenius"),
    ),
    Definition(
        name="simplex_max_angle_deg",
        words="largest difference from the angle of the balanced simplex, degrees; for comparison only",
        measure=_simplex("max_angle_deg"),
    ),
    Definition(
        name="effective_rank",
        words="how many dimensions the images really use",
        heading="Effective rank",
        measure=lambda embedding: Metric.of(effective_rank(singular_values_of_scatter(embedding.scatter))),
    ),
    Definition(
        name="uniformity",
        words="how evenly the images fill the sphere: logarithm of the mean Gaussian of their distances; lower is more "
        "even",
        heading="Uniformity",
        measure=_of_rows("uniformity", TWO_ROWS),
    ),
    Definition(
        name="tolerance",
        words="mean similarity of two images, counted only if they are of one class",
        measure=_of_rows("tolerance", TWO_ROWS),
    ),
    Definition(
        name="conditional_tolerance",
        words="mean similarity of two images of one class; 1 where every class is one point",
        measure=_of_rows("conditional_tolerance", ONE_IMAGE),
    ),
    Definition(
        name="alignment",
        words="mean squared distance of two views of one image; 0 is best",
        heading="Alignment",
        measure=_of_rows("alignment", NO_VIEWS),
    ),
    Definition(
        name="saa",
        words="share of images whose nearest neighbour is another view of the same image",
        heading="SAA",
        measure=_of_rows("saa", NO_VIEWS),
    ),
    Definition(
        name="penalty_entropy",
        words="how evenly the loss spreads its force over the negatives, in nats",
        measure=_of_rows("penalty_entropy", "the temperature of the loss is not known"),
    ),
    Definition(
        name="empirical_loss",
        words="loss of these images, as the training loss is defined",
        heading="Loss of the rows",
        measure=lambda embedding: embedding.risk[1],
    ),
)
