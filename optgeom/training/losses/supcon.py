"""SupCon: all other rows of the class are positives; in Soft SupCon rows of other classes are, with a small weight."""

from __future__ import annotations

import torch
from torch import Tensor

from optgeom import _checks
from optgeom.errors import InvalidInputError
from optgeom.losses.weights import ClassValues
from optgeom.training.losses.base import ContrastiveLoss, anchor_range, check_features, check_labels
from optgeom.training.losses.class_weights import SMALLEST_LOG, ClassWeights, class_labels, tables
from optgeom.training.losses.rows import Rows, class_codes, class_sums, row_terms


class SupConLoss(ContrastiveLoss):
    r"""Supervised contrastive loss, L_out, the anchor itself excluded:

        term_i = log sum_{j != i} exp(z_i.z_j / T) - (1/|P_i|) sum_{p in P_i} z_i.z_p / T,

    P_i being the other rows of its class. On features at class means its expectation over i.i.d. batches is the risk of
    `optgeom.SupCon` with this batch size and number of views, and on one batch that of `optgeom.SupConFullBatch`; no
    constant is left out. SimCLR is this loss without labels.

    The positives enter as z_i . (sum of the class - z_i), so that time is O(B^2 d) and memory O(B d).

    Parameters
    ----------
    temperature : float
        T > 0, dimensionless.
    base_temperature : float, optional
        Multiply the loss by T / base_temperature, as SupContrast does with .07.
    singletons : {"zero", "skip"}
        Anchors without a positive count as 0 (SupContrast), or are left out (pytorch-metric-learning).
    normalize : bool
    weights : ClassValues, optional
        Weights and temperatures per class, as `og.SupCon(...).class_values(classes)` gives them. Labels are then
        numbers in class order, terms are weighted by their anchors, and the count is the sum of these weights. Rows j
        count with their weight, the other views of the anchor's image once; without the own class in the denominator

            term_i = (1/|P_i|) sum_{p in P_i} log( 1 + sum_{j of other classes} w_ij exp((z_i.z_j - z_i.z_p) / T_i) ),

        which takes O(B^2) memory.

    References
    ----------
    Khosla et al. 2020, arXiv 2004.11362, equation 2.
    """

    def __init__(
        self,
        temperature: float = 0.1,
        *,
        base_temperature: float | None = None,
        singletons: str = "zero",
        normalize: bool = True,
        weights: ClassValues | None = None,
    ) -> None:
        super().__init__(temperature, singletons, normalize)
        self.weights = tables(weights)
        if base_temperature is not None:
            hint = "SupContrast has 0.07; None for no factor"
            base_temperature = _checks.real("base_temperature", base_temperature, above=0.0, hint=hint)
            if weights is not None and len(set(weights.temperature.tolist())) > 1:
                raise InvalidInputError(
                    "`base_temperature` needs one temperature for all classes; got weights with several (leave it out)"
                )
        self.base_temperature = base_temperature

    def sum_and_count(
        self, features: Tensor, labels: Tensor | None = None, *, anchors: slice | None = None
    ) -> tuple[Tensor, Tensor]:
        """Sum of the terms and number of anchors.

        Parameters
        ----------
        features : (N, V, d) or (B, d)
            V views of each of N images, or rows.
        labels : (N,) or (B,), optional
            Class of each image or row, any integers; without labels every image is its own class (SimCLR), which needs
            V >= 2.
        anchors : slice, optional
            Of images or rows: only their terms are summed, all rows are contrasted with. Each device can thus take its
            own part of the gathered features.
        """
        check_features(features, "any")
        samples, views = features.shape[0], features.shape[1] if features.ndim == 3 else 1
        if labels is None:
            if views == 1:
                raise InvalidInputError(
                    "`labels` must be given for features of one view; got none (without labels: two views or more)"
                )
            codes = torch.arange(samples, device=features.device)
        else:
            check_labels(labels, samples)
            codes = class_codes(labels)
        start, stop = anchor_range(anchors, samples)
        rows = self._rows(features).reshape(samples * views, -1)
        part = slice(start * views, stop * views)
        if self.weights is not None:
            numbers = class_labels(labels).repeat_interleave(views)
            total, count = self._weighted(self.weights, rows, numbers, views, part)
        else:
            log_sum, _, _ = row_terms(rows, Rows(self.temperature, part.start, part.stop))
            pulled, others = _positives(rows, codes.repeat_interleave(views), part)
            total, count = self._total(log_sum - pulled / self.temperature, others > 0)
        return total if self.base_temperature is None else total * (self.temperature / self.base_temperature), count

    def _weighted(
        self, weights: ClassWeights, rows: Tensor, labels: Tensor, views: int, part: slice
    ) -> tuple[Tensor, Tensor]:
        temperature = weights.temperature.to(rows.dtype)[labels]
        images = torch.arange(rows.shape[0], device=rows.device) // views
        contrast = weights.contrast(labels, images, rows.dtype)
        log_sum, _, _ = row_terms(rows, Rows(temperature, part.start, part.stop, contrast=contrast))
        pulled, others = _positives(rows, labels, part)
        anchor = weights.anchor[labels[part]]
        if weights.with_own:
            return self._total(log_sum - pulled / temperature[part], others > 0, anchor)
        with torch.autocast(rows.device.type, enabled=False):
            similarities = rows[part] @ rows.T / temperature[part, None]
        positive = labels[part, None] == labels[None, :]
        positive.diagonal(part.start).fill_(False)
        each = torch.nn.functional.softplus(log_sum.clamp_min(SMALLEST_LOG)[:, None] - similarities)
        return self._total((each * positive).sum(dim=1) / others.clamp_min(1.0), others > 0, anchor)


def _positives(rows: Tensor, codes: Tensor, part: slice) -> tuple[Tensor, Tensor]:
    """Mean cosine of each anchor with the other rows of its class, 0 where there are none, and their number."""
    sums, counts = class_sums(rows, codes)
    others = counts[part] - 1.0
    return (rows[part] * (sums[part] - rows[part])).sum(dim=1) / others.clamp_min(1.0), others


class SoftSupConLoss(ContrastiveLoss):
    r"""Weighted InfoNCE with w_ij = 1 within a class and `epsilon` across, in O(B d) memory:

        term_i = log sum_{j != i} exp(z_i.z_j / T) - sum_{j != i} w_ij z_i.z_j / ( T sum_{j != i} w_ij ).

    On one batch it is the loss of `optgeom.realize` with the scheme soft-supcon.

    Parameters
    ----------
    temperature : float
        T > 0, dimensionless.
    epsilon : float
        In (0, 1]. T log(1/epsilon) <= C/(C - 1) is where the geometry no longer depends on class sizes.
    normalize : bool

    References
    ----------
    Vock, Duchesnay, Dufumier 2026, arXiv 2605.13943.
    """

    shown = ("temperature", "epsilon", "normalize")

    def __init__(self, temperature: float = 0.1, epsilon: float = 0.1, *, normalize: bool = True) -> None:
        super().__init__(temperature, "zero", normalize)
        self.epsilon = _checks.real(
            "epsilon", epsilon, above=0.0, hint="the weight across classes, in (0, 1]; for 0 use SupConLoss"
        )
        if self.epsilon > 1:
            raise InvalidInputError(
                f"`epsilon` must be in (0, 1]; got {epsilon!r} (it is the weight across classes, 1 the weight within)"
            )

    def sum_and_count(self, features: Tensor, labels: Tensor, *, anchors: slice | None = None) -> tuple[Tensor, Tensor]:
        """Sum of the terms and number of anchors; arguments as in `SupConLoss`, labels required."""
        check_features(features, "any")
        samples, views = features.shape[0], features.shape[1] if features.ndim == 3 else 1
        check_labels(labels, samples)
        start, stop = anchor_range(anchors, samples)
        rows = self._rows(features).reshape(samples * views, -1)
        part = slice(start * views, stop * views)
        log_sum, _, _ = row_terms(rows, Rows(self.temperature, part.start, part.stop))
        sums, counts = class_sums(rows, class_codes(labels).repeat_interleave(views))
        mine = rows[part]
        others = sums[part] - mine
        rest = rows.sum(dim=0) - sums[part]
        mass = (counts[part] - 1.0) + self.epsilon * (rows.shape[0] - counts[part])
        pulled = (mine * (others + self.epsilon * rest)).sum(dim=1) / (mass.clamp_min(self.epsilon) * self.temperature)
        return self._total(log_sum - pulled, mass > 0)
