"""InfoNCE whose negatives are reweighted: only the most similar ones count, or those of the anchor's own support."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from optgeom import _checks
from optgeom.errors import InvalidInputError
from optgeom.training.losses.base import ContrastiveLoss, anchor_range, check_features, check_labels
from optgeom.training.losses.rows import Rows, class_codes, log_ratio, positive_similarities, row_terms

ROUNDING = 1e-6  # .07 of 100 is 7.000000000000001 in floating point, and must keep 7


class HardContrastiveLoss(ContrastiveLoss):
    r"""InfoNCE with the hardest negatives of every anchor, those above the upper quantile of its similarities:

        term_i = mean_p -log( exp(s_ip) / ( exp(s_ip) + sum_{j in H_i} exp(s_ij) ) ),      s_ij = z_i.z_j / T,

    where p runs over the other views of the image, and H_i holds the ceil(share |N_i|) most similar of the negatives
    N_i: all rows of other images (UCL) or, where labels are given, of images of other classes (SCL). At equal
    similarities just as many are kept, so the loss is continuous; share = 1 is InfoNCE. H_i is constant in the
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

    shown = ("temperature", "share", "singletons", "normalize")

    def __init__(
        self, temperature: float = 0.1, share: float = 0.1, *, singletons: str = "zero", normalize: bool = True
    ) -> None:
        super().__init__(temperature, singletons, normalize)
        self.share = _checks.real("share", share, above=0.0, hint="the share of the negatives that counts; 1 for all")
        if self.share > 1:
            raise InvalidInputError(
                f"`share` must be in (0, 1]; got {share!r} (the share of the negatives that counts)"
            )

    def sum_and_count(
        self, features: Tensor, labels: Tensor | None = None, *, anchors: slice | None = None
    ) -> tuple[Tensor, Tensor]:
        """Sum of the terms and number of anchors.

        Parameters
        ----------
        features : (N, V, d)
            V >= 2 views of each of N images.
        labels : (N,), optional
            Class of each image: the other images of the class are then neither negatives nor positives.
        anchors : slice, optional
            Of images, as in `SupConLoss`.
        """
        check_features(features, "several")
        samples, views, _ = features.shape
        images = torch.arange(samples, device=features.device)
        if labels is not None:
            check_labels(labels, samples)
        codes = (images if labels is None else class_codes(labels)).repeat_interleave(views)
        start, stop = anchor_range(anchors, samples)
        unit = self._rows(features)
        most = max(1, self._kept(views * (samples - 1)))
        # Negatives per anchor, and how many of them are kept; without labels the same for all anchors.
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


class SupportCorrectedLoss(ContrastiveLoss):
    r"""InfoNCE in which a share rho of the negatives comes from the support of the anchor's positives:

        term_i = mean_p log( alpha + sum_j m_ij exp(s_ij - s_ip) ),      s_ij = z_i.z_j / T,
        m_ij   = 1 - rho + rho 1{j in the support of i} K / K_i,

    where p runs over the other views of the image and j over the K rows of all other images, of which K_i are in the
    support. The masses sum to K for every rho, so values at different rho compare: rho = 0 is InfoNCE with all K rows,
    rho = 1 has the own support only. alpha = 0 is the asymptotic form -E s_p + log( K E exp s ) of the theory; alpha =
    1 puts the positive into the denominator.

    How concentrated positives are within a support, in units of the latents or of their normalised free part, is a
    matter of the data, not of this loss.

    Parameters
    ----------
    temperature : float
        T > 0, dimensionless.
    rho : float
        In [0, 1].
    alpha : float
        >= 0.
    singletons : {"zero", "skip"}
        Anchors that have no negative in their own support although rho > 0.
    normalize : bool

    References
    ----------
    Zaliaduonis, Putzky, Richter, Gatidis 2026, arXiv 2606.04280.
    """

    shown = ("temperature", "rho", "alpha", "singletons")

    def __init__(
        self,
        temperature: float = 0.1,
        rho: float = 1.0,
        *,
        alpha: float = 0.0,
        singletons: str = "zero",
        normalize: bool = True,
    ) -> None:
        super().__init__(temperature, singletons, normalize)
        self.rho = _checks.real("rho", rho, at_least=0.0, hint="the share of negatives from the own support")
        if self.rho > 1:
            raise InvalidInputError(
                f"`rho` must be in [0, 1]; got {rho!r} (the share of negatives from the own support)"
            )
        self.alpha = _checks.real(
            "alpha", alpha, at_least=0.0, hint="1 keeps the positive in the denominator, 0 leaves it out"
        )

    def sum_and_count(
        self, features: Tensor, supports: Tensor, *, anchors: slice | None = None
    ) -> tuple[Tensor, Tensor]:
        """Sum of the terms and number of anchors.

        Parameters
        ----------
        features : (N, V, d)
            V >= 2 views of each of N images.
        supports : (N,) or (N, N)
            The support of each image, any integers, equal where it is shared (the slice of a sphere, the value of a
            fixed factor); or a boolean mask, true at (i, j) where image j lies in the support of image i.
        anchors : slice, optional
            Of images, as in `SupConLoss`.
        """
        check_features(features, "several")
        samples, views, _ = features.shape
        mask = isinstance(supports, torch.Tensor) and supports.ndim == 2
        if mask and (supports.shape != (samples, samples) or supports.dtype != torch.bool):
            came = f"{tuple(supports.shape)} of {supports.dtype}"
            raise InvalidInputError(
                f"`supports` must be labels ({samples},) or a boolean mask ({samples}, {samples}); "
                f"got {came} (supports.bool() for a mask of numbers)"
            )
        if not mask:
            check_labels(supports, samples, "supports")
        start, stop = anchor_range(anchors, samples)
        unit = self._rows(features)
        images = torch.arange(samples, device=features.device).repeat_interleave(views)
        every = float(views * (samples - 1))

        def inside(block: slice) -> Tensor:
            """(b, B) rows of other images that lie in the support."""
            mine = images[block]
            shared = supports[mine][:, images] if mask else supports[mine][:, None] == supports[images][None, :]
            return shared & (mine[:, None] != images[None, :])

        def log_masses(block: slice, similarities: Tensor) -> Tensor:
            own = inside(block).to(similarities.dtype)
            share = self.rho * every / own.sum(dim=1, keepdim=True).clamp_min(1.0)
            masses = own.mul_(share).add_(1.0 - self.rho)
            return masses.masked_fill_(images[block, None] == images[None, :], 0.0).log_()

        part = slice(start * views, stop * views)
        log_sum, _, _ = row_terms(
            unit.flatten(0, 1), Rows(self.temperature, part.start, part.stop, contrast=log_masses)
        )
        terms = log_ratio(log_sum, positive_similarities(unit, self.temperature)[part], self.alpha)
        if self.rho == 0:
            return self._total(terms, torch.full_like(terms, every) > 0)
        rows = Rows(self.temperature, part.start, part.stop)
        with_negatives = [inside(block).any(dim=1) for block in rows.blocks(unit.flatten(0, 1))]
        return self._total(terms, torch.cat(with_negatives) if with_negatives else terms > 0)
