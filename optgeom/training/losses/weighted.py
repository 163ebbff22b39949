"""Weighted InfoNCE: weights given as a matrix, from label embeddings (X-CLR) or from continuous labels (y-Aware)."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from optgeom import _checks, choices
from optgeom.errors import InvalidInputError
from optgeom.training.losses.base import ContrastiveLoss, anchor_range, check_features
from optgeom.training.losses.rows import Rows, Targets, row_terms


class TargetLoss(ContrastiveLoss):
    r"""Cross-entropy of the softmax of similarities against normalised weights w~:

        term_i = log sum_{j != i} exp(s_ij) - sum_{j != i} w~_ij s_ij,      s_ij = z_i.z_j / T  or  -|z_i - z_j|^2 / T.

    Parameters
    ----------
    temperature : float
        T > 0; dimensionless for cosines, in the unit of squared features for distances.
    similarity : {"cosine", "euclidean"}
        Rows are brought to length 1 for cosines only.
    singletons : {"zero", "skip"}
        Rows without a positive weight.
    """

    shown: ClassVar[tuple[str, ...]] = ("temperature", "similarity", "singletons")

    def __init__(self, temperature: float, similarity: str, singletons: str) -> None:
        _checks.choice("similarity", similarity, choices.Similarity)
        super().__init__(temperature, singletons, normalize=similarity == "cosine")
        self.similarity = similarity

    def _cross_entropy(self, features: Tensor, targets: Targets, anchors: slice | None) -> tuple[Tensor, Tensor]:
        start, stop = anchor_range(anchors, features.shape[0])
        rows = Rows(self.temperature, start, stop, euclidean=self.similarity == "euclidean", targets=targets)
        log_sum, pulled, mass = row_terms(self._rows(features), rows)
        return self._total(log_sum - pulled, mass > 0)


class WeightedInfoNCELoss(TargetLoss):
    r"""Weighted InfoNCE with weights given as a matrix, w~_ij = w_ij / sum_{k != i} w_ik:

        term_i = log sum_{j != i} exp(s_ij) - sum_{j != i} w~_ij s_ij.

    On n samples the mean (`zero`) is the loss that `optgeom.realize` minimises. Memory: the weights and O(B d).

    Parameters
    ----------
    temperature : float
        T > 0.
    similarity : {"cosine", "euclidean"}
    singletons : {"zero", "skip"}
        Rows without a positive weight off the diagonal.

    References
    ----------
    Vock, Duchesnay, Dufumier 2026, arXiv 2605.13943.
    """

    def __init__(self, temperature: float = 0.1, *, similarity: str = "cosine", singletons: str = "zero") -> None:
        super().__init__(temperature, similarity, singletons)

    def sum_and_count(
        self, features: Tensor, weights: Tensor, *, anchors: slice | None = None
    ) -> tuple[Tensor, Tensor]:
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
                f"`weights` must be a tensor of shape ({size}, {size}), one row per row of the features; got {came}"
            )
        given = weights.detach()
        kind = torch.float64 if torch.float64 in (features.dtype, weights.dtype) else torch.float32
        into = torch.float64 if features.dtype == torch.float64 else torch.float32

        def targets(block: slice) -> Tensor:
            part = given[block].to(kind, copy=True)
            part.diagonal(block.start).zero_()
            mass = part.sum(dim=1, keepdim=True)
            return part.div_(mass.masked_fill_(mass == 0, 1.0)).to(into)

        return self._cross_entropy(features, targets, anchors)


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

    shown = ("temperature", "label_temperature", "similarity")

    def __init__(self, temperature: float = 0.1, label_temperature: float = 0.1, *, similarity: str = "cosine") -> None:
        super().__init__(temperature, similarity, "zero")
        hint = "the temperature of the label similarities, usually 0.1 to 1"
        self.label_temperature = _checks.real("label_temperature", label_temperature, above=0.0, hint=hint)

    def sum_and_count(self, features: Tensor, labels: Tensor, *, anchors: slice | None = None) -> tuple[Tensor, Tensor]:
        """Sum of the terms and number of anchors.

        `features` (B, d), `labels` (B, p) label embeddings, `anchors` a slice of rows.
        """
        check_features(features, "none")
        unit = torch.nn.functional.normalize(_label_table(labels, features.shape[0]), dim=1)
        into = torch.float64 if features.dtype == torch.float64 else torch.float32

        def targets(block: slice) -> Tensor:
            return _softmax_targets(torch.mm(unit[block], unit.T).div_(self.label_temperature), block, into)

        return self._cross_entropy(features, targets, anchors)


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

    shown = ("temperature", "bandwidth", "similarity", "paper")

    def __init__(
        self, temperature: float = 0.1, bandwidth: float = 1.0, *, similarity: str = "cosine", paper: bool = False
    ) -> None:
        super().__init__(temperature, similarity, "zero")
        self.bandwidth = _checks.real("bandwidth", bandwidth, above=0.0, hint="in the unit of the labels")
        self.paper = bool(paper)

    def sum_and_count(self, features: Tensor, labels: Tensor, *, anchors: slice | None = None) -> tuple[Tensor, Tensor]:
        """Sum of the terms and number of anchors.

        `features` (B, d), `labels` (B,) or (B, p) finite numbers, `anchors` a slice of rows.
        """
        check_features(features, "none")
        scaled = _label_table(labels, features.shape[0]) / (self.bandwidth if self.paper else self.bandwidth * 2**0.5)
        into = torch.float64 if features.dtype == torch.float64 else torch.float32

        def targets(block: slice) -> Tensor:
            # Not by products: labels far from the origin would lose the digits of their differences.
            distances = torch.cdist(scaled[block], scaled, compute_mode="donot_use_mm_for_euclid_dist")
            return _softmax_targets(distances.square_().neg_(), block, into)

        return self._cross_entropy(features, targets, anchors)


def _softmax_targets(log_weights: Tensor, block: slice, into: torch.dtype) -> Tensor:
    """w~ of a block of rows from its log weights, which are overwritten.

    A row that is alone has no positive, hence zeros.
    """
    if log_weights.shape[1] == 1:
        return torch.zeros_like(log_weights, dtype=into)
    log_weights.diagonal(block.start).fill_(-torch.inf)
    return torch.softmax(log_weights, dim=1).to(into)


def _label_table(labels: Any, size: int) -> Tensor:
    """Continuous labels as (B, p) float32 or float64."""
    if not isinstance(labels, torch.Tensor) or labels.ndim not in (1, 2) or labels.shape[0] != size:
        came: Any = tuple(labels.shape) if isinstance(labels, torch.Tensor) else type(labels).__name__
        raise InvalidInputError(
            f"`labels` must be a tensor of shape ({size},) or ({size}, p), one row per sample; got {came}"
        )
    table = labels.detach().reshape(size, -1)
    return table if table.dtype == torch.float64 else table.float()
