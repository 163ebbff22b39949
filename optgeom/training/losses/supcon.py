"""SupCon: all other rows of the class are positives, all other rows are contrasted with."""

from __future__ import annotations

import torch
from torch import Tensor

from optgeom import _checks
from optgeom.errors import InvalidInputError
from optgeom.training.losses.base import ContrastiveLoss, check_anchors, check_features, check_labels
from optgeom.training.losses.classes import class_codes, class_sums
from optgeom.training.losses.rows import Rows, row_terms


class SupConLoss(ContrastiveLoss):
    r"""Supervised contrastive loss, L_out, the anchor itself excluded:

        term_i = log sum_{j != i} exp(z_i.z_j / T) - (1/|P_i|) sum_{p in P_i} z_i.z_p / T,       P_i the other rows of its class.

    On features that sit at class means its expectation over i.i.d. batches is the risk of `optgeom.SupCon` with this
    batch size and number of views, and on one batch that of `optgeom.SupConFullBatch`; no constant is left out. SimCLR
    is this loss without labels.

    The positives enter as z_i . (sum of the class - z_i), so that time is O(B^2 d) and memory O(B d).

    Parameters
    ----------
    temperature : float
        T > 0, dimensionless.
    base_temperature : float, optional
        Multiply by T / base_temperature, as SupContrast does with .07.
    singletons : {"zero", "skip"}
        Anchors without a positive count as 0 (SupContrast), or are left out (pytorch-metric-learning).
    normalize : bool

    References
    ----------
    Khosla et al. 2020, arXiv 2004.11362, equation 2.
    """

    def __init__(
        self,
        temperature: float = 0.1,
        base_temperature: float | None = None,
        singletons: str = "zero",
        normalize: bool = True,
    ) -> None:
        super().__init__(temperature, singletons, normalize)
        if base_temperature is not None:
            hint = "SupContrast has 0.07; None for no factor"
            base_temperature = _checks.real("base_temperature", base_temperature, above=0.0, hint=hint)
        self.base_temperature = base_temperature

    def sum_and_count(
        self, features: Tensor, labels: Tensor | None = None, anchors: slice | None = None
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
            Of images or rows: only their terms are summed, all rows are contrasted with. So each device takes its own
            part of the gathered features.
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
        start, stop = check_anchors(anchors, samples)
        rows = self._rows(features).reshape(samples * views, -1)
        part = slice(start * views, stop * views)
        log_sum, _, _ = row_terms(rows, Rows(self.temperature, part.start, part.stop))
        sums, counts = class_sums(rows, codes.repeat_interleave(views))
        others = counts[part] - 1.0
        pulled = (rows[part] * (sums[part] - rows[part])).sum(dim=1) / (others.clamp_min(1.0) * self.temperature)
        total, count = self._total(log_sum - pulled, others > 0)
        return total if self.base_temperature is None else total * (self.temperature / self.base_temperature), count
