"""InfoNCE with k negatives, and its limit of infinitely many."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from optgeom import _checks
from optgeom._numerics import Array, log_nonnegative
from optgeom.errors import IncompatibleError, InvalidInputError
from optgeom.losses import law
from optgeom.losses.base import BatchPlan, negatives_words, plain
from optgeom.losses.expectation import LARGEST_EXPONENT
from optgeom.losses.on_rows import DrawnBatches, PairSum, explicit_mass, sampled_mass
from optgeom.losses.options import REDUCTION, SAMPLING
from optgeom.losses.rows import LinearRows, LogSumRows, MultinomialRows, RowLoss, RowWeights
from optgeom.losses.weights import WEIGHTED_FORMULA, ClassValues, ClassWeighted, refuse_empty_rows, smallest_temperature

if TYPE_CHECKING:
    from optgeom.inputs.classes import ClassDistribution, ClassGroups
    from optgeom.training.class_batches import ClassBatchLoss
    from optgeom.training.losses import ContrastiveLoss

# Sufficient thresholds printed in arXiv 2605.11291 at temperature 1, whatever the number of classes and negatives.
PUBLISHED_SUFFICIENT = {"ucl": 0.9292, "scl": 0.9438}
ENCODER_BATCH = 64  # samples per batch of an encoder, where the negatives ask for no more


@dataclass(frozen=True, eq=False)
class InfoNCE(ClassWeighted):
    r"""Generalized contrastive loss with k independent negatives.

    For an anchor of class i, with t_l = (A[i, c_l] - 1)/tau and c_1..c_k i.i.d. with law p[i, :],

        psi = log( alpha + q sum_l exp t_l ),        q = 1 (`sum`) or 1/k (`mean`);        F = sum_i lam_i E psi.

    Parameters
    ----------
    temperature : float
        tau > 0, dimensionless (usual values .05 to 1).
    negatives : int or math.inf
        k >= 1. Infinitely many need the `mean` reduction: log(alpha + sum_j p[i, j] exp t_ij).
    alpha : float
        1 puts the positive into the denominator, 0 is the decoupled form.
    negatives_reduction : {"sum", "mean"}
    sampling : {"ucl", "scl"}
        Negatives from everywhere (p[i, j] = lam_j) or from other classes only (p[i, j] = lam_j / (1 - lam_i)).
    negative_law : (C, C) array, optional
        Any row-stochastic law in class order; replaces `sampling`.
    anchor_weights, negative_weights, own_class_in_denominator, class_temperatures, margin
        Weights per class, as in `ClassWeighted`; none by default. Negatives of class j count b_ij times for an anchor
        of class i, alpha once; negatives of its own class (collisions) may be left out of the denominator.

    Raises
    ------
    InvalidInputError
        A parameter outside its domain.

    References
    ----------
    van den Oord, Li, Vinyals 2018, arXiv 1807.03748. Nguyen, Aeron, Brown, Ishwar 2026, arXiv 2605.11291 (UCL, SCL,
    imbalance).
    """

    name = "infonce"
    lacking: ClassVar[Mapping[str, str]] = {
        "groups": "an explicit negative_law does not (use sampling='ucl' or 'scl')",
    }

    temperature: float = 0.1
    negatives: float = 256
    alpha: float = 1.0
    negatives_reduction: str = "sum"
    sampling: str = "ucl"
    negative_law: npt.NDArray[np.float64] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        _checks.real("temperature", self.temperature, above=0.0, hint="usual values are 0.05 to 1")
        _checks.integer_or_inf("negatives", self.negatives, at_least=1, hint="use inf for the limit of many negatives")
        _checks.real("alpha", self.alpha, at_least=0.0, hint="1 keeps the positive in the denominator, 0 leaves it out")
        _checks.choice("negatives_reduction", self.negatives_reduction, REDUCTION.choices)
        _checks.choice("sampling", self.sampling, SAMPLING.choices)
        if self.negatives == math.inf and self.negatives_reduction == "sum":
            raise InvalidInputError(
                "`negatives_reduction` must be 'mean' for infinitely many negatives; got 'sum' (their sum is infinite)"
            )
        self._check_weights()
        if self.averages_batches:
            raise InvalidInputError(
                "`negative_weights` must not be 'batch-average' for InfoNCE; got it (its negatives are drawn one by "
                "one: use SupCon, or 'class-average')"
            )
        coldest = smallest_temperature(self.temperature, self.class_temperatures)
        if self.alpha == 0 and self.negatives != math.inf and 2 / coldest > LARGEST_EXPONENT:
            raise InvalidInputError(
                f"`temperature` must be >= {2 / LARGEST_EXPONENT:.4f} for alpha = 0 and finitely many negatives; "
                f"got {coldest!r} (exp(-2/temperature) underflows: take alpha > 0 or infinitely many negatives)"
            )
        collisions = self.negative_law is not None or self.sampling == "ucl"
        if self.alpha == 0 and self.negatives != math.inf and collisions and not self.own_class_in_denominator:
            raise InvalidInputError(
                "`own_class_in_denominator` must be True for alpha = 0 and finitely many negatives from all classes; "
                "got False (all negatives may be of the own class, the logarithm of 0: take alpha > 0)"
            )

    @property
    def gives(self) -> frozenset[str]:
        given = {"proportions", "class-weights"}
        if self.negative_law is None:
            uniform = self.sampling == "ucl" and not self.is_weighted
            given |= {"groups", "uniform-negatives"} if uniform else {"groups"}
        if not (self.alpha == 0 and self.negatives == 1):
            given.add("strictly-convex")
        return frozenset(given)

    @classmethod
    def implied(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        # Infinitely many negatives can only be averaged: asking for the one reduction that exists would be pedantry.
        return {"negatives_reduction": "mean"} if given.get("negatives") == math.inf else {}

    @classmethod
    def debiased(
        cls, classes: ClassDistribution, *, tau_plus: float, temperature: float = 0.1, weight: float = 1.0
    ) -> Self:
        r"""The debiased loss in the limit of many negatives, as a loss with weights per class.

            F = sum_i lam_i log( 1 + Q/(1 - tau_plus) [ (lam_i - tau_plus) + sum_{j != i} lam_j exp((A_ij - 1)/tau) ] )

        Parameters
        ----------
        classes : ClassDistribution
        tau_plus : float
            >= 0: share of the negatives that are taken to be of the anchor's class.
        temperature : float
        weight : float
            Q > 0 of the negatives.

        Returns
        -------
        InfoNCE
            With a (C, C) table of weights.

        Raises
        ------
        InvalidInputError
            A tau_plus above the share of a class: more than its own images would be taken from its denominator, which
            is clipped there, and the clipped row is not convex.

        References
        ----------
        Chuang et al. 2020, arXiv 2007.00224.
        """
        _checks.real("tau_plus", tau_plus, at_least=0.0, hint="the share of a class, 1/C for balanced ones")
        _checks.real("weight", weight, above=0.0, hint="1 is usual")
        share = classes.proportions
        rarest = int(np.argmin(share))
        if tau_plus > share[rarest]:
            name, least = classes.names[rarest], share[rarest]
            raise InvalidInputError(
                f"`tau_plus` must be at most the share of every class; got {tau_plus:g}, and {name} has {least:.4g}: "
                f"its denominator would lose {tau_plus - least:.3g} more than its own images, and the clipped loss is "
                "not convex (lower tau_plus)"
            )
        table = np.full((share.size, share.size), weight / (1.0 - tau_plus))
        np.fill_diagonal(table, weight / (1.0 - tau_plus) * (share - tau_plus) / share)
        return cls(temperature, math.inf, 1.0, "mean", negative_weights=table)

    def _law(self, groups: ClassGroups) -> law.NegativeLaw:
        if self.negative_law is not None:
            return law.explicit(self.negative_law, groups.sizes.size)
        return (law.ucl if self.sampling == "ucl" else law.scl)(groups.sizes, groups.proportions)

    def rows(self, groups: ClassGroups) -> RowLoss:
        of_negatives, weights = self._law(groups), self.row_weights(groups)
        offset = self.alpha + of_negatives.own * weights.own
        few = self.negatives != math.inf
        refuse_empty_rows(weights, np.full_like(offset, self.alpha) if few else offset, of_negatives.other > 0, few)
        # With finitely many negatives the own class may be among them, or not.
        self.refuse_idle_margins(offset if not (few and self.negatives == 1) else np.full_like(offset, self.alpha))
        if self.negatives == math.inf:
            log_weight = log_nonnegative(of_negatives.other * weights.negative)
            return LogSumRows(of_negatives.count, weights.anchor, offset, log_weight)
        k = int(self.negatives)
        factor = 1.0 if self.negatives_reduction == "sum" else 1.0 / k
        if k == 1 and self.alpha == 0:
            # The logarithm of one weighted term is linear: weights add a constant.
            mean = _mean_log(of_negatives, weights)
            return LinearRows(of_negatives.count, weights.anchor, of_negatives, math.log(factor) + mean)
        return MultinomialRows.of(of_negatives, k, weights, alpha=self.alpha, factor=factor)

    def to_dict(self) -> dict[str, Any]:
        described = {
            "name": self.name,
            "temperature": self.temperature,
            "negatives": plain(self.negatives),
            "alpha": self.alpha,
            "negatives_reduction": self.negatives_reduction,
            "sampling": self.sampling,
            **self.weights_to_dict(),
        }
        if self.negative_law is not None:
            described |= {"sampling": "explicit", "negative_law": plain(np.asarray(self.negative_law))}
        return described

    @classmethod
    def from_parameters(cls, given: dict[str, Any]) -> InfoNCE | None:
        if given.get("sampling") == "explicit":
            if "negative_law" not in given:  # files of 0.1.0 do not keep the law
                return None
            given = {**given, "sampling": "ucl", "negative_law": np.asarray(given["negative_law"], dtype=np.float64)}
        return super().from_parameters(given)

    def words(self) -> str:
        if self.alpha == 0:
            positive = "positive left out of the denominator"
        else:
            positive = "positive in the denominator" + ("" if self.alpha == 1 else f" with weight {self.alpha:g}")
        negatives = negatives_words(self.to_dict())
        return f"{self._heading()}, {negatives}, {positive}{self.weights_words()}"

    def collapsed_formula(self, rows: int | None, value: float) -> str:
        if self.is_weighted:
            return WEIGHTED_FORMULA
        if self.negatives == math.inf:
            return f"ln({self.alpha:g} + 1)"
        factor = 1.0 if self.negatives_reduction == "sum" else 1 / self.negatives
        return f"ln({self.alpha:g} + {factor * self.negatives:g})"

    @property
    def published_threshold(self) -> float | None:
        usual = self.temperature == 1.0 and self.alpha == 1.0 and self.negatives_reduction == "sum"
        usual = usual and not self.is_weighted
        return PUBLISHED_SUFFICIENT[self.sampling] if usual else None

    def on_rows(self, share: Array, *, images: Array, values: ClassValues | None = None) -> DrawnBatches | PairSum:
        law_given = self.negative_law
        mass = sampled_mass(self.sampling, share) if law_given is None else explicit_mass(law_given, share)
        if self.negatives == math.inf:
            pairs = PairSum(anchor_weight=share, mass=mass, alpha=self.alpha)
        else:
            each = 1.0 if self.negatives_reduction == "sum" else 1.0 / self.negatives
            draws = int(self.negatives)
            pairs = PairSum(anchor_weight=share, mass=mass, alpha=self.alpha, draws=draws, draw_weight=each)
        return pairs if values is None else pairs.weighted(values)

    def torch_module(self, *, seed: int = 0, classes: ClassDistribution | None = None) -> ContrastiveLoss:
        if self.negatives == math.inf or self.negative_law is not None:
            super().torch_module(seed=seed)
        from optgeom.training.losses import GeneralizedContrastiveLoss, InfoNCEPsi

        psi = InfoNCEPsi(self.alpha, negatives_reduction=self.negatives_reduction)
        return GeneralizedContrastiveLoss(
            self.temperature,
            int(self.negatives),
            psi=psi,
            sampling=self.sampling,
            seed=seed,
            weights=self.values_for_batches(classes),
        )

    def class_batches(self, classes: ClassDistribution, *, anchors: int) -> ClassBatchLoss:
        if self.negatives == math.inf:
            return super().class_batches(classes, anchors=anchors)
        from optgeom.training.class_batches import InfoNCEBatches

        return InfoNCEBatches(classes, self, anchors)

    def batch_plan(self, *, batch: int | None, num_samples: int) -> BatchPlan:
        if self.negatives == math.inf or self.negative_law is not None:
            return super().batch_plan(batch=batch, num_samples=num_samples)
        least = int(self.negatives) + 1
        size = max(ENCODER_BATCH, least) if batch is None else batch
        if size < least:
            wanted = f"above the {least - 1} negatives of an anchor, which come from it"
            raise IncompatibleError(f"`batch` must be {wanted}; got {size} (raise it, or lower the negatives)")
        return BatchPlan(size=size, positives="class")


def _mean_log(law_given: law.NegativeLaw, weights: RowWeights) -> Array:
    """(G,) expected log of the weight of one negative."""
    chance = law_given.count * law_given.other
    others = np.where(chance > 0, chance * np.log(np.where(chance > 0, weights.negative, 1.0)), 0.0)
    own = np.where(law_given.own > 0, weights.own, 1.0)
    return np.asarray(others.sum(axis=1) + law_given.own * np.log(own))
