"""Weighted InfoNCE: any matrix of weights says who should be similar to whom."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from optgeom import _checks
from optgeom.errors import InvalidInputError
from optgeom.training.losses.base import ContrastiveLoss, check_anchors, check_features
from optgeom.training.losses.rows import Rows, Targets, row_terms

SIMILARITIES = ("cosine", "euclidean")


class TargetLoss(ContrastiveLoss):
    r"""Cross-entropy of the softmax of similarities against normalised weights w~:

        term_i = log sum_{j != i} exp(s_ij) - sum_{j != i} w~_ij s_ij,      s_ij = z_i.z_j / T   or   -|z_i - z_j|^2 / T.

    Parameters
    ----------
    temperature : float
        T > 0; dimensionless for cosines, in the unit of squared features for distances.
    similarity : {"cosine", "euclidean"}
        Rows are brought to length 1 for cosines only.
    singletons : {"zero", "skip"}
        Rows without any positive weight.
    """

    def __init__(self, temperature: float, similarity: str, singletons: str) -> None:
        self_similarity = _checks.choice("similarity", similarity, SIMILARITIES)
        super().__init__(temperature, singletons, normalize=self_similarity == "cosine")
        self.similarity = self_similarity

    def _against(self, features: Tensor, targets: Targets, anchors: slice | None) -> tuple[Tensor, Tensor]:
        start, stop = check_anchors(anchors, features.shape[0])
        rows = Rows(self.temperature, start, stop, euclidean=self.similarity == "euclidean", targets=targets)
        log_sum, pulled, mass = row_terms(self._rows(features), rows)
        return self._total(log_sum - pulled, mass > 0)

    def extra_repr(self) -> str:
        return f"temperature={self.temperature}, similarity={self.similarity!r}, singletons={self.singletons!r}"


class WeightedInfoNCELoss(TargetLoss):
    r"""Weighted InfoNCE with weights given as a matrix, w~_ij = w_ij / sum_{k != i} w_ik:

        term_i = log sum_{j != i} exp(s_ij) - sum_{j != i} w~_ij s_ij.

    On n samples the mean (`zero`) is the loss that `optgeom.realize` minimises. Beside the weights memory is O(B d).

    Parameters
    ----------
    temperature : float
        T > 0.
    similarity : {"cosine", "euclidean"}
    singletons : {"zero", "skip"}
        Rows without any positive weight off the diagonal.

    References
    ----------
    Vock, Duchesnay, Dufumier 2026, arXiv 2605.13943.
    """

    def __init__(self, temperature: float = 0.1, similarity: str = "cosine", singletons: str = "zero") -> None:
        super().__init__(temperature, similarity, singletons)

    def sum_and_count(self, features: Tensor, weights: Tensor, anchors: slice | None = None) -> tuple[Tensor, Tensor]:
        """Sum of the terms and number of anchors.

        Parameters
        ----------
        features : (B, d)
        weights : (B, B)
            Non-negative and finite, which is not checked; symmetric or not. The diagonal is ignored and no gradient
            flows back to them.
        anchors : slice, optional
            Of rows, as in `SupConLoss`.
        """
        check_features(features, "none")
        size = features.shape[0]
        if not isinstance(weights, torch.Tensor) or weights.shape != (size, size):
            came: Any = tuple(weights.shape) if isinstance(weights, torch.Tensor) else type(weights).__name__
            raise InvalidInputError(
                f"`weights` must be a tensor of shape ({size}, {size}), the rows of the features; got {came}"
            )
        given = weights.detach()
        kind = torch.float64 if torch.float64 in (features.dtype, weights.dtype) else torch.float32
        into = torch.float64 if features.dtype == torch.float64 else torch.float32

        def targets(block: slice) -> Tensor:
            part = given[block].to(kind, copy=True)
            part.diagonal(block.start).zero_()
            mass = part.sum(dim=1, keepdim=True)
            return part.div_(mass.masked_fill_(mass == 0, 1.0)).to(into)

        return self._against(features, targets, anchors)


def softmax_targets(log_weights: Tensor, block: slice, into: torch.dtype) -> Tensor:
    """w~ of a block of rows from its log weights, which are overwritten.

    A row that is alone has no positive, hence zeros.
    """
    if log_weights.shape[1] == 1:
        return torch.zeros_like(log_weights, dtype=into)
    log_weights.diagonal(block.start).fill_(-torch.inf)
    return torch.softmax(log_weights, dim=1).to(into)


def label_table(labels: Any, size: int) -> Tensor:
    """Continuous labels as (B, p) float32 or float64."""
    if not isinstance(labels, torch.Tensor) or labels.ndim not in (1, 2) or labels.shape[0] != size:
        came: Any = tuple(labels.shape) if isinstance(labels, torch.Tensor) else type(labels).__name__
        raise InvalidInputError(
            f"`labels` must be a tensor of shape ({size},) or ({size}, p), one row a sample; got {came}"
        )
    table = labels.detach().reshape(size, -1)
    return table if table.dtype == torch.float64 else table.float()
