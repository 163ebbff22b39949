"""Functions psi of the scaled differences of similarities, as torch modules."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from optgeom import _checks

REDUCTIONS = ("sum", "mean")


class InfoNCEPsi(torch.nn.Module):
    r"""psi(t_1, ..., t_k) = log( alpha + q sum_l exp t_l ), q = 1 (`sum`) or 1/k (`mean`); as `optgeom.InfoNCE`.

    Parameters
    ----------
    alpha : float
        >= 0; 1 puts the positive into the denominator, 0 leaves it out.
    negatives_reduction : {"sum", "mean"}

    References
    ----------
    van den Oord, Li, Vinyals 2018, arXiv 1807.03748.
    """

    def __init__(self, alpha: float = 1.0, negatives_reduction: str = "sum") -> None:
        super().__init__()
        self.alpha = _checks.real(
            "alpha", alpha, at_least=0.0, hint="1 keeps the positive in the denominator, 0 leaves it out"
        )
        self.negatives_reduction = _checks.choice("negatives_reduction", negatives_reduction, REDUCTIONS)

    def forward(self, t: Tensor) -> Tensor:
        """(...) values at t of shape (..., k)."""
        total = torch.logsumexp(t, dim=-1)
        if self.negatives_reduction == "mean":
            total = total - math.log(t.shape[-1])
        if self.alpha == 0:
            return total
        return torch.logaddexp(total, total.new_full((), math.log(self.alpha)))

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}, negatives_reduction={self.negatives_reduction!r}"
