r"""Contrastive losses of random batches at class means: what a batch costs when only its classes matter.

With every sample at the mean of its class, the loss of a batch depends on the Gram matrix A of the means and on how
often each class occurs, so a step costs O(C^2) or O(B C), not O(B^2 d). Batches are drawn as in the theory: classes
i.i.d. with the class law, negatives i.i.d. with the law of the loss. The expectation of these losses is the risk of the
program.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import torch
from torch import Tensor

from optgeom.inputs.classes import ClassDistribution
from optgeom.losses import InfoNCE, SupCon
from optgeom.losses.base import Loss
from optgeom.training.losses import InfoNCEPsi
from optgeom.training.losses.class_weights import ClassWeights, tables


class ClassBatchLoss(torch.nn.Module):
    """Sum of the loss terms of one random batch and number of its anchors, from cosines of class means."""

    law: Tensor  # cumulative proportions (C,)
    expected_count: float

    def __init__(self, classes: ClassDistribution, loss: Loss) -> None:
        super().__init__()
        self.temperature = loss.temperature
        self.weights = tables(loss.class_values(classes))
        self.register_buffer("law", _cumulative(classes.proportions), persistent=False)

    @abstractmethod
    def draw(self, generator: torch.Generator) -> Tensor:
        """Classes of the next batch, on the device of the generator."""

    @abstractmethod
    def forward(self, cosines: Tensor, drawn: Tensor) -> tuple[Tensor, Tensor]:
        """Sum and count for a drawn batch, from (C, C) cosines."""

    def _classes(self, size: tuple[int, ...], generator: torch.Generator) -> Tensor:
        numbers = torch.rand(size, generator=generator, dtype=torch.float64)
        return torch.searchsorted(self.law.to(numbers.device), numbers, right=True)


class SupConBatches(ClassBatchLoss):
    r"""SupCon of N images with V views each, L_out: with n_i images of class i and x_ij = exp((A_ij - 1)/T),

        sum_i V n_i log( V n_i - 1 + sum_{j != i} V n_j x_ij )      over the i with V n_i >= 2.

    Parameters
    ----------
    classes : ClassDistribution
    loss : SupCon
        With a finite batch size.
    """

    def __init__(self, classes: ClassDistribution, loss: SupCon) -> None:
        super().__init__(classes, loss)
        self.views, self.size, self.skip = loss.views, int(loss.batch_size), loss.singletons == "skip"
        self.expected_count = float(self.size * self.views)

    def draw(self, generator: torch.Generator) -> Tensor:
        """(C,) rows of each class, float64."""
        chosen = self._classes((self.size,), generator)
        rows = torch.zeros(self.law.shape[0], dtype=torch.float64)
        return rows.index_add_(0, chosen, torch.full((self.size,), float(self.views), dtype=torch.float64))

    def forward(self, cosines: Tensor, drawn: Tensor) -> tuple[Tensor, Tensor]:
        """`drawn` (C,) rows of each class."""
        rows = drawn.to(cosines.dtype)
        if self.weights is not None:
            return self._weighted(self.weights, cosines, rows)
        others = (cosines - 1.0) / self.temperature + rows.log()[None, :]
        # Without the anchor itself; an anchor alone in its class contributes log 0.
        own = (rows - 1.0).clamp_min(0.0).log()
        log_sum = torch.logsumexp(torch.where(_diagonal(others), own[None, :], others), dim=1)
        anchors = torch.where(rows > 1.0, rows, 0.0)
        total = torch.where(rows > 1.0, rows * log_sum, 0.0).sum()
        return total, anchors.sum() if self.skip else rows.sum()

    def _weighted(self, weights: ClassWeights, cosines: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        log_weight = weights.log_negative.to(rows.dtype)
        log_rows = (rows.clamp_max(1.0) if weights.averaged else rows).log()[None, :] + log_weight
        others = (cosines - 1.0) / weights.temperature.to(rows.dtype)[:, None] + log_rows
        own = torch.ones_like(rows)
        if weights.with_own and not weights.averaged:
            own = (self.views - 1) + (rows - self.views).clamp_min(0.0) * log_weight.diagonal().exp()
        log_sum = torch.logsumexp(torch.where(_diagonal(others), own.log()[None, :], others), dim=1)
        anchors = rows * weights.anchor.to(rows.dtype)
        valid = torch.where(rows > 1.0, anchors, 0.0)
        total = torch.where(rows > 1.0, anchors * log_sum, 0.0).sum()
        return total, valid.sum() if self.skip else anchors.sum()


class InfoNCEBatches(ClassBatchLoss):
    r"""InfoNCE of B anchors with k negatives each: sum_b log( alpha + q sum_l exp((A_{i_b, c_bl} - 1)/T) ).

    Parameters
    ----------
    classes : ClassDistribution
    loss : InfoNCE
        With finitely many negatives.
    anchors : int
        B.
    """

    def __init__(self, classes: ClassDistribution, loss: InfoNCE, anchors: int) -> None:
        super().__init__(classes, loss)
        self.size, self.negatives = anchors, int(loss.negatives)
        self.expected_count = float(anchors)
        self.psi = InfoNCEPsi(loss.alpha, negatives_reduction=loss.negatives_reduction)
        self.negative_law: Tensor
        law = loss.negative_law
        if law is None:
            law = classes.proportions[None, :].repeat(classes.num_classes, axis=0)
            if loss.sampling == "scl":
                law = law * (1 - np.eye(classes.num_classes))
        self.register_buffer("negative_law", _cumulative(law), persistent=False)

    def draw(self, generator: torch.Generator) -> Tensor:
        """(B, 1 + k) the class of each anchor, then those of its negatives."""
        anchors = self._classes((self.size,), generator)
        numbers = torch.rand((self.size, self.negatives), generator=generator, dtype=torch.float64)
        law = self.negative_law.to(numbers.device)
        return torch.cat([anchors[:, None], torch.searchsorted(law[anchors], numbers, right=True)], dim=1)

    def forward(self, cosines: Tensor, drawn: Tensor) -> tuple[Tensor, Tensor]:
        """`drawn` as made by `draw`."""
        classes = cosines.shape[0]
        pairs = (drawn[:, :1] * classes + drawn[:, 1:]).flatten()
        if self.weights is not None:
            log_weight = self.weights.log_negative.to(cosines.dtype)
            scaled = (cosines - 1.0) / self.weights.temperature.to(cosines.dtype)[:, None] + log_weight
            t = scaled.flatten().index_select(0, pairs).view(drawn.shape[0], -1)
            anchor = self.weights.anchor.to(cosines.dtype)[drawn[:, 0]]
            return (anchor * self.psi(t)).sum(), anchor.sum()
        t = ((cosines - 1.0) / self.temperature).flatten().index_select(0, pairs).view(drawn.shape[0], -1)
        return self.psi(t).sum(), cosines.new_full((), float(drawn.shape[0]))


def _cumulative(law: np.ndarray) -> Tensor:
    """Cumulative sums along the last axis; they end at exactly 1, so that any number below 1 finds a possible class."""
    sums = np.cumsum(law, axis=-1)
    sums /= sums[..., -1:]
    # Trailing classes of probability 0 share the last sum: the first entry that exceeds a number is then never one of
    # them.
    return torch.from_numpy(sums)


def _diagonal(matrix: Tensor) -> Tensor:
    return torch.eye(matrix.shape[0], dtype=torch.bool, device=matrix.device)
