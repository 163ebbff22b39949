"""Hard contrastive loss: only the most similar negatives count."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from optgeom import _checks
from optgeom.errors import InvalidInputError
from optgeom.training.losses.base import ContrastiveLoss, check_anchors, check_features, check_labels
from optgeom.training.losses.classes import class_codes
from optgeom.training.losses.rows import Rows, row_terms
from optgeom.training.losses.views import log_ratio, positive_similarities


class HardContrastiveLoss(ContrastiveLoss):
    r"""InfoNCE with the hardest negatives of every anchor, those above the upper quantile of its similarities:

        term_i = mean_p -log( exp(s_ip) / ( exp(s_ip) + sum_{j in H_i} exp(s_ij) ) ),      s_ij = z_i.z_j / T,

    where p runs over the other views of the image, and H_i holds the ceil(share |N_i|) most similar of the negatives
    N_i: all rows of other images (UCL) or, where labels are given, of images of other classes (SCL). At equal
    similarities just as many are kept, so the loss is continuous; share = 1 is InfoNCE. H_i is held fixed in the
    gradient, which is the gradient wherever the choice is unique.

    On features at class means with all rows of other images as negatives, the expectation is that of the convex psi
    log( 1 + the sum of the largest exp t ): `optgeom.GeneralizedContrastive` takes it.

    Parameters
    ----------
    temperature : float
        T > 0, dimensionless.
    share : float
        In (0, 1], the upper alpha of the paper.
    singletons : {"zero", "skip"}
        Anchors without a negative, whose term would be 0 (labels with one class in the batch).
    normalize : bool

    References
    ----------
    Wang, Liu 2021, arXiv 2012.09740, equation 8.
    """

    def __init__(
        self, temperature: float = 0.1, share: float = 0.1, singletons: str = "zero", normalize: bool = True
    ) -> None:
        super().__init__(temperature, singletons, normalize)
        self.share = _checks.real("share", share, above=0.0, hint="the share of the negatives that counts; 1 for all")
        if self.share > 1:
            raise InvalidInputError(
                f"`share` must be in (0, 1]; got {share!r} (the share of the negatives that counts)"
            )

    def sum_and_count(
        self, features: Tensor, labels: Tensor | None = None, anchors: slice | None = None
    ) -> tuple[Tensor, Tensor]:
        """Sum of the terms and number of anchors.

        Parameters
        ----------
        features : (N, V, d)
            V >= 2 views of each of N images.
        labels : (N,), optional
            Class of each image: its other images are then no negatives (and no positives either).
        anchors : slice, optional
            Of images, as in `SupConLoss`.
        """
        check_features(features, "several")
        samples, views, _ = features.shape
        images = torch.arange(samples, device=features.device)
        if labels is not None:
            check_labels(labels, samples)
        codes = (images if labels is None else class_codes(labels)).repeat_interleave(views)
        start, stop = check_anchors(anchors, samples)
        unit = self._rows(features)
        most = max(1, self._kept(views * (samples - 1)))
        # As many as are kept of each anchor; without labels they are the same for all.
        own = torch.zeros_like(codes).index_add(0, codes, torch.ones_like(codes))
        negatives = codes.shape[0] - own.index_select(0, codes)
        kept = torch.ceil(negatives * self.share - ROUNDING).long()
        ranks = torch.arange(most, device=codes.device)

        def hardest(block: slice, similarities: Tensor) -> Tensor:
            same = codes[block, None] == codes[None, :]
            chosen = similarities.masked_fill(same, -torch.inf).topk(most, dim=1).indices
            log_count = torch.where(ranks[None, :] < kept[block, None], 0.0, -torch.inf).to(similarities.dtype)
            return torch.full_like(similarities, -torch.inf).scatter_(1, chosen, log_count)

        part = slice(start * views, stop * views)
        log_sum, _, _ = row_terms(unit.flatten(0, 1), Rows(self.temperature, part.start, part.stop, contrast=hardest))
        terms = log_ratio(log_sum, positive_similarities(unit, self.temperature)[part], 1.0)
        return self._total(terms, negatives[part] > 0)

    def _kept(self, negatives: int) -> int:
        return math.ceil(negatives * self.share - ROUNDING)

    def extra_repr(self) -> str:
        return f"temperature={self.temperature}, share={self.share}, singletons={self.singletons!r}, normalize={self.normalize}"


ROUNDING = 1e-6  # .07 of 100 is 7.000000000000001 in floating point, and must keep 7
