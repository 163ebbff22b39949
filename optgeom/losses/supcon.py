"""Supervised contrastive loss: i.i.d. batches, their limit, and the full batch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from optgeom import _checks
from optgeom._numerics import log_nonnegative
from optgeom.errors import InvalidInputError
from optgeom.losses import law
from optgeom.losses.base import Loss, plain
from optgeom.losses.expectation import Multinomial
from optgeom.losses.rows import LogSumRows, MultinomialRows, RowLoss

if TYPE_CHECKING:
    from optgeom.inputs.classes import ClassGroups

SINGLETONS = ("zero", "skip")


@dataclass(frozen=True)
class SupCon(Loss):
    r"""SupCon (L_out, all positives averaged, anchor excluded) over batches of N images drawn i.i.d., with V views
    each.

    At collapsed features, with t_j = (A_ij - 1)/tau:

        V >= 2:  F = sum_i lam_i E log( (V - 1) + V sum_{l <= N-1} exp t_{c_l} ),     c_l i.i.d. with law lam;
        V = 1:   F = sum_i lam_i E[ 1{n_i >= 1} log( n_i + sum_{j != i} n_j exp t_j ) ],     n ~ Multinomial(N - 1, lam);
        N = inf: F = sum_i lam_i log( sum_j lam_j exp t_j ),  the limit of the loss minus log(V (N - 1)).

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

    Raises
    ------
    InvalidInputError
        A parameter outside its domain.

    References
    ----------
    Khosla et al. 2020, arXiv 2004.11362, equation 2.
    """

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

    @property
    def uniform_negatives(self) -> bool:  # type: ignore[override]
        return self.views >= 2 or self.batch_size == math.inf

    def rows(self, groups: ClassGroups) -> RowLoss:
        found = law.ucl(groups.sizes, groups.proportions)
        weight = groups.proportions
        if self.batch_size == math.inf:
            return LogSumRows(found.count, weight, found.own, log_nonnegative(found.other))
        k = int(self.batch_size) - 1
        if self.views >= 2:
            counts = Multinomial(found, k, (self.views - 1) / self.views)
            return MultinomialRows(found.count, weight, counts, math.log(self.views - 1), math.log(self.views))
        counts = Multinomial(found, k, 0.0, positive_required=True)
        if self.singletons == "skip":
            weight = weight / float(np.sum(groups.sizes * weight * counts.mass()))
        return MultinomialRows(found.count, weight, counts, -math.inf, 0.0)

    def describe(self) -> dict[str, Any]:
        described = {
            "name": "supcon",
            "temperature": self.temperature,
            "batch_size": plain(self.batch_size),
            "views": self.views,
            "singletons": self.singletons,
        }
        if self.batch_size == math.inf:
            described["note"] = "risk is the limit of the loss minus log(views * (batch_size - 1))"
        return described


@dataclass(frozen=True)
class SupConFullBatch(Loss):
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

    Raises
    ------
    InvalidInputError
        At `rows`: proportions without counts, or not one class with two rows.

    References
    ----------
    Khosla et al. 2020, arXiv 2004.11362, equation 2.
    """

    temperature: float = 0.1
    views: int = 1
    singletons: str = "zero"

    def __post_init__(self) -> None:
        _checks.real("temperature", self.temperature, above=0.0, hint="usual values are 0.05 to 1")
        _checks.integer("views", self.views, at_least=1)
        _checks.choice("singletons", self.singletons, SINGLETONS)

    def _row_counts(self, groups: ClassGroups) -> npt.NDArray[np.float64]:
        if groups.counts is None:
            raise InvalidInputError(
                "`classes` must hold whole counts for the full-batch SupCon loss; got proportions (give counts, without a sampler)"
            )
        return groups.counts.astype(np.float64) * self.views

    def coincident(self, groups: ClassGroups) -> npt.NDArray[np.bool_]:
        return np.asarray(self._row_counts(groups) == 1)

    def rows(self, groups: ClassGroups) -> RowLoss:
        rows = self._row_counts(groups)
        if np.all(rows == 1):
            raise InvalidInputError(
                "`counts` must hold a class with two rows or more; got only singletons (no anchor has a positive: SupCon is undefined)"
            )
        with_positive = rows > 1  # not >= 2: the homotopy of the solver passes through counts that are not whole
        total = np.sum(groups.sizes * rows * (with_positive if self.singletons == "skip" else 1.0))
        count = law.other_classes(groups.sizes)
        log_weight = np.where(count > 0, np.log(rows)[None, :], -np.inf)
        return LogSumRows(count, np.where(with_positive, rows, 0.0) / total, rows - 1.0, log_weight)

    def describe(self) -> dict[str, Any]:
        return {
            "name": "supcon-full",
            "temperature": self.temperature,
            "views": self.views,
            "singletons": self.singletons,
        }
