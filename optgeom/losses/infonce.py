"""InfoNCE with k negatives, and its limit of infinitely many."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from optgeom import _checks
from optgeom._numerics import log_nonnegative
from optgeom.errors import InvalidInputError
from optgeom.losses import law
from optgeom.losses.base import Loss, plain
from optgeom.losses.expectation import LARGEST_EXPONENT, Multinomial
from optgeom.losses.rows import LinearRows, LogSumRows, MultinomialRows, RowLoss

if TYPE_CHECKING:
    from optgeom.inputs.classes import ClassGroups


@dataclass(frozen=True, eq=False)
class InfoNCE(Loss):
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

    Raises
    ------
    InvalidInputError
        A parameter outside its domain.

    References ---------- van den Oord, Li, Vinyals 2018, arXiv 1807.03748. Nguyen, Aeron, Brown, Ishwar 2026, arXiv
    2605.11291 (UCL, SCL, imbalance).
    """

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
        _checks.choice("negatives_reduction", self.negatives_reduction, ("sum", "mean"))
        _checks.choice("sampling", self.sampling, ("ucl", "scl"))
        if self.negatives == math.inf and self.negatives_reduction == "sum":
            raise InvalidInputError(
                "`negatives_reduction` must be 'mean' for infinitely many negatives; got 'sum' (their sum is infinite)"
            )
        if self.alpha == 0 and self.negatives != math.inf and 2 / self.temperature > LARGEST_EXPONENT:
            raise InvalidInputError(
                f"`temperature` must be >= {2 / LARGEST_EXPONENT:.4f} for alpha = 0 and finitely many negatives; got {self.temperature!r} "
                "(exp(-2/temperature) underflows: take alpha > 0 or infinitely many negatives)"
            )

    @property
    def respects_groups(self) -> bool:  # type: ignore[override]
        return self.negative_law is None

    @property
    def strictly_convex(self) -> bool:  # type: ignore[override]
        return not (self.alpha == 0 and self.negatives == 1)

    @property
    def uniform_negatives(self) -> bool:  # type: ignore[override]
        return self.sampling == "ucl" and self.negative_law is None

    def _law(self, groups: ClassGroups) -> law.NegativeLaw:
        if self.negative_law is not None:
            return law.explicit(self.negative_law, groups.sizes.size)
        return (law.ucl if self.sampling == "ucl" else law.scl)(groups.sizes, groups.proportions)

    def rows(self, groups: ClassGroups) -> RowLoss:
        found = self._law(groups)
        weight = groups.proportions
        if self.negatives == math.inf:
            return LogSumRows(found.count, weight, self.alpha + found.own, log_nonnegative(found.other))
        k = int(self.negatives)
        factor = 1.0 if self.negatives_reduction == "sum" else 1.0 / k
        if k == 1 and self.alpha == 0:
            return LinearRows(found.count, weight, found, math.log(factor))
        counts = Multinomial(found, k, self.alpha / factor)
        return MultinomialRows(found.count, weight, counts, float(log_nonnegative(self.alpha)), math.log(factor))

    def describe(self) -> dict[str, Any]:
        return {
            "name": "infonce",
            "temperature": self.temperature,
            "negatives": plain(self.negatives),
            "alpha": self.alpha,
            "negatives_reduction": self.negatives_reduction,
            "sampling": self.sampling if self.negative_law is None else "explicit",
        }
