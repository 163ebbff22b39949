"""X-CLR: similarities of label embeddings, captions for instance, say how similar samples should be."""

from __future__ import annotations

import torch
from torch import Tensor

from optgeom import _checks
from optgeom.training.losses.base import check_features
from optgeom.training.losses.weighted import TargetLoss, label_table, softmax_targets


class XCLRLoss(TargetLoss):
    r"""Weighted InfoNCE with w_ij = exp(cos(y_i, y_j) / T_label), computed block by block from the label embeddings y:

        term_i = log sum_{j != i} exp(s_ij) - sum_{j != i} w~_ij s_ij,      w~ = w with rows normalised to 1.

    With cosines and T = T_label the optimum is z = Q y / |y| for an orthogonal Q.

    Parameters
    ----------
    temperature : float
        T > 0.
    label_temperature : float
        T_label > 0, dimensionless.
    similarity : {"cosine", "euclidean"}

    References
    ----------
    Sobal et al. 2024, arXiv 2407.18134.
    """

    def __init__(self, temperature: float = 0.1, label_temperature: float = 0.1, similarity: str = "cosine") -> None:
        super().__init__(temperature, similarity, "zero")
        hint = "the temperature of the label similarities, usually 0.1 to 1"
        self.label_temperature = _checks.real("label_temperature", label_temperature, above=0.0, hint=hint)

    def sum_and_count(self, features: Tensor, labels: Tensor, anchors: slice | None = None) -> tuple[Tensor, Tensor]:
        """Sum of the terms and number of anchors.

        `features` (B, d), `labels` (B, p) label embeddings, `anchors` a slice of rows.
        """
        check_features(features, "none")
        unit = torch.nn.functional.normalize(label_table(labels, features.shape[0]), dim=1)
        into = torch.float64 if features.dtype == torch.float64 else torch.float32

        def targets(block: slice) -> Tensor:
            return softmax_targets(torch.mm(unit[block], unit.T).div_(self.label_temperature), block, into)

        return self._against(features, targets, anchors)

    def extra_repr(self) -> str:
        return f"temperature={self.temperature}, label_temperature={self.label_temperature}, similarity={self.similarity!r}"
