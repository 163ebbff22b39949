"""Supervised contrastive loss: i.i.d. batches, their limit, and the full batch."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from optgeom import _checks
from optgeom._numerics import Array, log_nonnegative
from optgeom.errors import IncompatibleError, InvalidInputError
from optgeom.losses import law
from optgeom.losses.base import BatchPlan, Loss
from optgeom.losses.on_rows import LIMIT, DrawnBatches, PairSum, averaged_batch, uniform_mass, whole_batch
from optgeom.losses.options import SINGLETONS as SINGLETONS_OPTION
from optgeom.losses.presence import PresenceRows
from optgeom.losses.rows import LogSumRows, MultinomialRows, RowLoss
from optgeom.losses.weights import FIELDS, WEIGHTED_FORMULA, ClassValues, ClassWeighted, refuse_empty_rows

if TYPE_CHECKING:
    from optgeom.inputs.classes import ClassDistribution, ClassGroups
    from optgeom.training.class_batches import ClassBatchLoss
    from optgeom.training.losses import ContrastiveLoss

SINGLETONS = SINGLETONS_OPTION.choices


@dataclass(frozen=True)
class SupCon(ClassWeighted):
    r"""SupCon over batches of N images drawn i.i.d., with V views each.

    L_out: all positives averaged, the anchor excluded. At collapsed features, with t_j = (A_ij - 1)/tau:

        V >= 2:  F = sum_i lam_i E log( (V - 1) + V sum_{l <= N-1} exp t_{c_l} ),     c_l i.i.d. with law lam;
        V = 1:   F = sum_i lam_i E[ 1{n_i >= 1} log( n_i + sum_{j != i} n_j exp t_j ) ],
                 n ~ Multinomial(N - 1, lam);
        N = inf: F = sum_i lam_i log( sum_j lam_j exp t_j ),  the limit of the loss minus log(V (N - 1)).

    With weights per class, rows of class j count b_ij times for an anchor of class i (the other views of its image
    once), anchors count r_i in place of lam_i, and tau is that of the anchor's class. Without the own class in the
    denominator the positive alone stands for it: 1 in place of V - 1 and n_i, and 0 in the limit. "batch-average" has
    1 for the own class and exp t_j for every other class that the batch holds; its limit leaves nothing out.

    Parameters
    ----------
    temperature : float
        tau > 0, dimensionless (usual values .05 to 1).
    batch_size : int or math.inf
        N images (rows = N V); N >= 2, and N >= 3 with one view, where N = 2 gives F = 0 for every geometry.
    views : int
        V >= 1.
    singletons : {"zero", "skip"}
        With one view, an anchor may have no positive: `zero` counts it as 0 (SupContrast), `skip` leaves it out of
        numerator and denominator, i.e. F_zero / sum_i lam_i P(n_i >= 1) (pytorch-metric-learning). The geometry is the
        same.
    anchor_weights, negative_weights, own_class_in_denominator, class_temperatures, margin
        Weights per class, as in `ClassWeighted`; none by default.

    Raises
    ------
    InvalidInputError
        A parameter outside its domain.

    References
    ----------
    Khosla et al. 2020, arXiv 2004.11362, equation 2.
    """

    name = "supcon"

    temperature: float = 0.1
    batch_size: float = math.inf
    views: int = 2
    singletons: str = "zero"

    def __post_init__(self) -> None:
        _checks.real("temperature", self.temperature, above=0.0, hint="usual values are 0.05 to 1")
        _checks.integer("views", self.views, at_least=1)
        _checks.choice("singletons", self.singletons, SINGLETONS)
        least = 2 if self.views >= 2 else 3
        why = (
            "one view: two images leave nothing to contrast with"
            if least == 3
            else "images in a batch; inf for the limit"
        )
        _checks.integer_or_inf("batch_size", self.batch_size, at_least=least, hint=why)
        self._check_weights()

    @property
    def gives(self) -> frozenset[str]:
        uniform = (self.views >= 2 or self.batch_size == math.inf) and not self.is_weighted
        return super().gives | ({"uniform-negatives"} if uniform else set())

    def rows(self, groups: ClassGroups) -> RowLoss:
        of_negatives, weights = law.ucl(groups.sizes, groups.proportions), self.row_weights(groups)
        seen = of_negatives.other > 0
        if self.batch_size == math.inf:
            if self.averages_batches:
                averaged = np.where(seen, log_nonnegative(weights.negative), -np.inf)
                return LogSumRows(of_negatives.count, weights.anchor, np.ones(groups.sizes.size), averaged)
            offset = of_negatives.own * weights.own
            refuse_empty_rows(weights, offset, seen, finite=False)
            self.refuse_idle_margins(offset)
            log_weight = log_nonnegative(of_negatives.other * weights.negative)
            return LogSumRows(of_negatives.count, weights.anchor, offset, log_weight)
        k, alone = int(self.batch_size) - 1, self.views == 1
        rows: PresenceRows | MultinomialRows
        if self.averages_batches:
            shift = np.log(weights.negative) if self.margin is not None else 0.0
            rows = PresenceRows(of_negatives.count, weights.anchor, of_negatives, k, alone, shift)
            return self._without_singletons(rows, rows.mass, groups)
        own = self.own_class_in_denominator
        alpha = float(self.views - 1 if own else 1)
        # With a positive in the batch, its own row stands in the denominator.
        refuse_empty_rows(weights, alpha + weights.own * alone, seen, finite=True)
        rows = MultinomialRows.of(
            of_negatives, k, weights, alpha=alpha, factor=float(self.views), positive_required=alone
        )
        return self._without_singletons(rows, rows.counts.mass(), groups)

    def _without_singletons(
        self, rows: PresenceRows | MultinomialRows, mass: Array, groups: ClassGroups
    ) -> PresenceRows | MultinomialRows:
        """With one view, anchors without a positive may be skipped; `mass` is the probability of one."""
        if self.views > 1 or self.singletons == "zero":
            return rows
        valid = float(np.sum(groups.sizes * rows.anchor_weight * mass))
        return dataclasses.replace(rows, anchor_weight=rows.anchor_weight / valid)

    def to_dict(self) -> dict[str, Any]:
        described = super().to_dict()
        if self.omitted is not None:
            described["note"] = "risk is the limit of the loss minus log(views * (batch_size - 1))"
        return described

    def words(self) -> str:
        if self.batch_size == math.inf:
            return f"{self._heading()}, the limit of large batches{self.weights_words()}"
        images = f"batches of {self.batch_size} images, {'one view' if self.views == 1 else f'{self.views} views'} each"
        alone = f", {_fate(self.singletons)}" if self.views == 1 else ""
        return f"{self._heading()}, {images}{alone}{self.weights_words()}"

    def notes(self, classes: ClassDistribution) -> tuple[str, ...]:
        if self.omitted is not None:
            exact = "up to terms of order 1/N (a batch size gives exact values)"
            return (f"limit of large batches: batches of N images add ln({self.omitted}), {exact}",)
        groups = classes.groups
        n, share = int(self.batch_size), groups.proportions
        absent = float(np.sum(groups.sizes * np.exp(n * np.log1p(-share))))
        single = float(np.sum(groups.sizes * n * share * np.exp((n - 1) * np.log1p(-share))))
        average = f"on average {single:.1f} classes have one image in a batch and {absent:.1f} none"
        notes = [f"exact for batches of {n} images drawn independently; {average}"]
        if self.views == 1:
            alone = f"{100 * single / n:.2g} % of the anchors have no positive and {FATES[self.singletons]}"
            notes.append(f"on average {alone}")
        return tuple(notes)

    @property
    def omitted(self) -> str | None:
        if self.batch_size != math.inf or self.averages_batches:
            return None
        return "N - 1" if self.views == 1 else f"{self.views} (N - 1)"

    def collapsed_formula(self, rows: int | None, value: float) -> str:
        if self.is_weighted:
            return WEIGHTED_FORMULA
        return "the limit of ln(n - 1) - ln(n - views)" if rows is None else _formula(rows, value)

    def collapsed_of_rows(self, rows: int) -> float:
        self.refuse_weights("rows of unknown classes")
        return math.log(rows - 1)

    def in_rows(self, rows: int | None, classes: ClassDistribution | None) -> tuple[Loss, int | None]:
        known = None if self.batch_size == math.inf else int(self.batch_size) * self.views
        if rows is None or rows == known:
            return self, known
        if known is not None:
            raise InvalidInputError(f"`rows` must be batch_size times views, {known}; got {rows} (give one of the two)")
        if classes is not None and rows % self.views:
            raise InvalidInputError(
                f"`rows` must be a multiple of the {self.views} views; got {rows} (a batch holds every "
                "view of its images)"
            )
        return (self if classes is None else dataclasses.replace(self, batch_size=rows // self.views)), rows

    def batch_values(self, cosines: Array, images: Array, values: ClassValues | None = None) -> Array | None:
        return batch_values(cosines, images, self.temperature, self.views, self.singletons, values)

    @property
    def images_per_batch(self) -> int | None:
        return None if self.batch_size == math.inf else int(self.batch_size)

    def on_batch(self) -> tuple[Loss, int]:
        weights = {name: getattr(self, name) for name in FIELDS}
        return SupConFullBatch(self.temperature, self.views, self.singletons, **weights), self.views

    def sampled(self, batch: int) -> SupCon:
        return dataclasses.replace(self, batch_size=batch) if self.batch_size == math.inf else self

    def on_rows(self, share: Array, *, images: Array, values: ClassValues | None = None) -> DrawnBatches | PairSum:
        if self.batch_size != math.inf:
            return DrawnBatches(
                batch_size=int(self.batch_size), views=self.views, singletons=self.singletons, values=values
            )
        if values is None:
            return PairSum(anchor_weight=share, mass=uniform_mass(share), convention=LIMIT)
        if values.averaged:
            return averaged_batch(share, values)
        return PairSum(anchor_weight=share, mass=uniform_mass(share), convention=LIMIT).weighted(values)

    def torch_module(self, *, seed: int = 0, classes: ClassDistribution | None = None) -> ContrastiveLoss:
        if self.batch_size == math.inf:
            super().torch_module(seed=seed)
        from optgeom.training.losses import SupConLoss

        return SupConLoss(self.temperature, singletons=self.singletons, weights=self.values_for_batches(classes))

    def class_batches(self, classes: ClassDistribution, *, anchors: int) -> ClassBatchLoss:
        if self.batch_size == math.inf:
            return super().class_batches(classes, anchors=anchors)
        from optgeom.training.class_batches import SupConBatches

        return SupConBatches(classes, self)

    def batch_plan(self, *, batch: int | None, num_samples: int) -> BatchPlan:
        if self.batch_size == math.inf:
            return super().batch_plan(batch=batch, num_samples=num_samples)
        size = int(self.batch_size)
        if batch is not None and batch != size:
            wanted = f"the batch size of the loss, {size}, since the optimum depends on it"
            raise IncompatibleError(f"`batch` must be {wanted}; got {batch} (leave it out, or change the loss)")
        return BatchPlan(size=size, views=self.views)


@dataclass(frozen=True)
class SupConFullBatch(ClassWeighted):
    r"""SupCon when the whole data set is one batch: n_i rows of class i, n rows in all, anchor excluded.

        F = sum_i (n_i / n) log( (n_i - 1) + sum_{j != i} n_j exp((A_ij - 1)/tau) )        (`zero`)

    A singleton class has no positive: it carries no anchor term and acts as a negative only, and all singletons
    coincide at the optimum. `skip` divides by the rows that have a positive instead of n.

    Parameters
    ----------
    temperature : float
        tau > 0, dimensionless.
    views : int
        Rows per image: n_i = views * counts_i.
    singletons : {"zero", "skip"}
    anchor_weights, negative_weights, own_class_in_denominator, class_temperatures, margin
        Weights per class, as in `SupCon`; none by default.

    Raises
    ------
    InvalidInputError
        At `rows`: proportions without counts, or not one class with two rows.

    References
    ----------
    Khosla et al. 2020, arXiv 2004.11362, equation 2.
    """

    name = "supcon-full"
    lacking: ClassVar[Mapping[str, str]] = {
        "proportions": "the full batch depends on counts (use SupCon with its batch size)"
    }

    temperature: float = 0.1
    views: int = 1
    singletons: str = "zero"

    def __post_init__(self) -> None:
        _checks.real("temperature", self.temperature, above=0.0, hint="usual values are 0.05 to 1")
        _checks.integer("views", self.views, at_least=1)
        _checks.choice("singletons", self.singletons, SINGLETONS)
        self._check_weights()

    @property
    def gives(self) -> frozenset[str]:
        return super().gives - {"proportions"}

    def _row_counts(self, groups: ClassGroups) -> npt.NDArray[np.float64]:
        if groups.counts is None:
            raise InvalidInputError(
                "`classes` must hold whole counts for the full-batch SupCon loss; got proportions "
                "(give counts, without a sampler)"
            )
        return groups.counts.astype(np.float64) * self.views

    def coincident(self, groups: ClassGroups) -> npt.NDArray[np.bool_]:
        alone = np.asarray(self._row_counts(groups) == 1)
        # Singletons of different weights coincide too, but not as one class of the sum of them.
        return alone if alone.sum() == 1 or not self.is_weighted else np.zeros_like(alone)

    def rows(self, groups: ClassGroups) -> RowLoss:
        rows = self._row_counts(groups)
        if np.all(rows == 1):
            raise InvalidInputError(
                "`counts` must hold a class with two rows or more; got only singletons (no anchor has "
                "a positive: SupCon is undefined)"
            )
        with_positive = rows > 1  # not >= 2: the homotopy of the solver passes through counts that are not whole
        weights = self.row_weights(groups)
        anchors = rows * (weights.anchor / groups.proportions)
        total = np.sum(groups.sizes * anchors * (with_positive if self.singletons == "skip" else 1.0))
        anchor_weight = np.where(with_positive, anchors, 0.0) / total
        count = law.other_classes(groups.sizes)
        if self.averages_batches:
            averaged = np.where(count > 0, log_nonnegative(weights.negative), -np.inf)
            return LogSumRows(count, anchor_weight, np.ones(rows.size), averaged)
        # The other views of the image have no weight of their own; alone, the positive stands for the class.
        own = (self.views - 1) + (rows - self.views) * weights.own
        offset = own if self.own_class_in_denominator else np.where(with_positive, 1.0, 0.0)
        refuse_empty_rows(dataclasses.replace(weights, anchor=anchor_weight), offset, count > 0, finite=False)
        self.refuse_idle_margins(np.where(with_positive, offset, 1.0))
        log_weight = np.where(count > 0, np.log(rows)[None, :] + log_nonnegative(weights.negative), -np.inf)
        return LogSumRows(count, anchor_weight, offset, log_weight)

    def words(self) -> str:
        rows = "" if self.views == 1 else f", {self.views} rows per sample"
        whole = f"the whole data set as one batch{rows}"
        return f"{self._heading()}, {whole}, {_fate(self.singletons)}{self.weights_words()}"

    def notes(self, classes: ClassDistribution) -> tuple[str, ...]:
        if classes.counts is None:
            return ()
        alone = int(np.sum(classes.counts * self.views == 1))
        number = int(classes.counts.sum()) * self.views
        return (f"{alone} of {number} anchors without a positive: they {FATES[self.singletons]}",) if alone else ()

    def collapsed_formula(self, rows: int | None, value: float) -> str:
        if self.is_weighted:
            return WEIGHTED_FORMULA
        return "psi(0, ..., 0)" if rows is None else _formula(rows, value)

    def collapsed_of_rows(self, rows: int) -> float:
        self.refuse_weights("rows of unknown classes")
        return math.log(rows - 1)

    def in_rows(self, rows: int | None, classes: ClassDistribution | None) -> tuple[Loss, int | None]:
        if classes is None:
            return self, rows
        total = None if classes.counts is None else int(classes.counts.sum()) * self.views
        if rows is not None and rows != total:
            wanted = f"the sum of all counts times the views, {total}, for the full batch"
            raise InvalidInputError(
                f"`rows` must be {wanted}; got {rows} (leave it out, or use SupCon with its batch size)"
            )
        return self, total

    def on_batch(self) -> tuple[Loss, int]:
        return self, self.views

    def on_rows(self, share: Array, *, images: Array, values: ClassValues | None = None) -> DrawnBatches | PairSum:
        rows = np.asarray(images, dtype=np.float64) * self.views
        return whole_batch(rows, self.views, self.singletons, values)

    def torch_module(self, *, seed: int = 0, classes: ClassDistribution | None = None) -> ContrastiveLoss:
        from optgeom.training.losses import SupConLoss

        return SupConLoss(self.temperature, singletons=self.singletons, weights=self.values_for_batches(classes))

    def batch_plan(self, *, batch: int | None, num_samples: int) -> BatchPlan:
        if batch is not None and batch != num_samples:
            raise IncompatibleError(
                f"`batch` must be all {num_samples} samples for a full batch; got {batch} (leave it out)"
            )
        return BatchPlan(size=num_samples, views=self.views, everything=True)


def batch_values(
    cosines: Array,
    images: Array,
    temperature: float,
    views: int,
    singletons: str,
    values: ClassValues | None = None,
) -> Array:
    """(b,) SupCon of batches with `images` (b, C) of each class, all features at class means with these (C, C) cosines.

    An anchor of class i has V n_i - 1 rows of its own class and V n_j of class j beside it, with their weights.
    """
    own, rows, anchors = views * images - 1.0, views * images, images
    if values is None:
        apart = np.exp((cosines - 1) / temperature)
    else:
        apart = values.negative * np.exp((cosines - 1) / values.temperature[:, None])
        anchors = images * values.anchor
        if values.averaged or not values.with_own:
            own = np.minimum(np.maximum(own, 0.0), 1.0)
        else:
            own = (views - 1) + views * (images - 1) * np.diag(values.negative)
        if values.averaged:
            rows = np.minimum(images, 1.0)
    apart = apart - np.diag(np.diag(apart))
    sums = np.maximum(own, 0.0) + rows @ apart.T
    valid = np.where(views * images > 1, anchors, 0.0)
    total = (valid * np.log(np.where(valid > 0, sums, 1.0))).sum(axis=1)
    number = valid.sum(axis=1) if singletons == "skip" else anchors.sum(axis=1)
    return np.asarray(total / np.maximum(number, 1.0))


# What becomes of anchors without a positive, in the middle of a sentence.
FATES = {"zero": "count as 0", "skip": "are skipped, left out of the mean"}


def _fate(singletons: str) -> str:
    return f"anchors without a positive {'count as 0' if singletons == 'zero' else 'left out'}"


def _formula(rows: int, value: float) -> str:
    short = value < math.log(rows - 1) * (1 - 1e-12)
    return f"ln({rows} - 1)" + (" times the share of anchors that have a positive" if short else "")
