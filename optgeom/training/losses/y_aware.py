"""y-Aware: samples with close continuous labels are positives of each other."""

from __future__ import annotations

import torch
from torch import Tensor

from optgeom import _checks
from optgeom.training.losses.base import check_features
from optgeom.training.losses.weighted import TargetLoss, label_table, softmax_targets


class YAwareLoss(TargetLoss):
    r"""Weighted InfoNCE with w_ij = exp(-|y_i - y_j|^2 / (2 bandwidth^2)), computed block by block from the labels:

        term_i = log sum_{j != i} exp(s_ij) - sum_{j != i} w~_ij s_ij,      w~ = w with rows normalised to 1.

    Weights are kept in logarithms, so a bandwidth far below the distances of labels leaves the nearest sample as the
    positive.

    Parameters
    ----------
    temperature : float
        T > 0.
    bandwidth : float
        > 0, in the unit of the labels.
    similarity : {"cosine", "euclidean"}
    paper : bool
        The form without the 2.

    References
    ----------
    Dufumier et al. 2021, arXiv 2106.08808.
    """

    def __init__(
        self, temperature: float = 0.1, bandwidth: float = 1.0, similarity: str = "cosine", paper: bool = False
    ) -> None:
        super().__init__(temperature, similarity, "zero")
        self.bandwidth = _checks.real("bandwidth", bandwidth, above=0.0, hint="in the unit of the labels")
        self.paper = bool(paper)

    def sum_and_count(self, features: Tensor, labels: Tensor, anchors: slice | None = None) -> tuple[Tensor, Tensor]:
        """Sum of the terms and number of anchors.

        `features` (B, d), `labels` (B,) or (B, p) finite numbers, `anchors` a slice of rows.
        """
        check_features(features, "none")
        scaled = label_table(labels, features.shape[0]) / (self.bandwidth if self.paper else self.bandwidth * 2**0.5)
        into = torch.float64 if features.dtype == torch.float64 else torch.float32

        def targets(block: slice) -> Tensor:
            # Not by products: labels far from the origin would lose the digits of their differences.
            distances = torch.cdist(scaled[block], scaled, compute_mode="donot_use_mm_for_euclid_dist")
            return softmax_targets(distances.square_().neg_(), block, into)

        return self._against(features, targets, anchors)

    def extra_repr(self) -> str:
        return f"temperature={self.temperature}, bandwidth={self.bandwidth}, similarity={self.similarity!r}, paper={self.paper}"
