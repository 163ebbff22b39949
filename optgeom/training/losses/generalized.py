"""Generalized contrastive loss: a psi of k sampled negatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from optgeom import _checks
from optgeom.errors import InvalidInputError
from optgeom.training.losses.base import ContrastiveLoss, check_anchors, check_features, check_labels
from optgeom.training.losses.classes import class_codes
from optgeom.training.losses.draws import draw_others
from optgeom.training.losses.psi import InfoNCEPsi

SAMPLING = ("ucl", "scl")


class GeneralizedContrastiveLoss(ContrastiveLoss):
    r"""Generalized contrastive loss with k negatives:

        term_i = psi(t_1, ..., t_k),      t_l = ( z_i.n_l - z_i.z_i+ ) / T,

    the positive z_i+ being the next view of the same image, and n_l negatives drawn from that view of other images
    (UCL) or of images of other classes (SCL), or given. On features at class means t_l = (A_{i, c_l} - 1) / T, and the
    expectation is the risk of `optgeom.InfoNCE` or, with a psi of one's own, of `optgeom.GeneralizedContrastive`; no
    constant is left out. Drawn negatives are distinct images, hence i.i.d. in batches with i.i.d. classes; under SCL
    this needs k images of other classes (fewer are repeated).

    Parameters
    ----------
    temperature : float
        T > 0, dimensionless.
    negatives : int
        k >= 1, where they are drawn; at most N - 1.
    psi : callable, optional
        From (..., k) to (...): convex, increasing, symmetric, in torch. `InfoNCEPsi()` by default; its parameters are
        trained along where it is a module.
    sampling : {"ucl", "scl"}
    seed : int
        Of the draws. Their state is part of `state_dict`, so that a resumed run goes on with the same draws.
    singletons : {"zero", "skip"}
        Under SCL, anchors without an image of another class.
    normalize : bool

    References
    ----------
    Nguyen, Aeron, Brown, Ishwar 2026, arXiv 2605.11291.
    """

    def __init__(
        self,
        temperature: float = 0.1,
        negatives: int = 1,
        psi: Callable[[Tensor], Tensor] | None = None,
        sampling: str = "ucl",
        seed: int = 0,
        singletons: str = "zero",
        normalize: bool = True,
    ) -> None:
        super().__init__(temperature, singletons, normalize)
        self.negatives = _checks.integer("negatives", negatives, at_least=1)
        self.sampling = _checks.choice("sampling", sampling, SAMPLING)
        self.seed = _checks.integer("seed", seed, at_least=0)
        self.psi = InfoNCEPsi() if psi is None else psi
        self._generators: dict[str, torch.Generator] = {}

    def sum_and_count(
        self,
        features: Tensor,
        labels: Tensor | None = None,
        negatives: Tensor | None = None,
        anchors: slice | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Sum of the terms and number of anchors (N V of them).

        Parameters
        ----------
        features : (N, V, d)
            V >= 2 views of each of N images.
        labels : (N,), optional
            Class of each image; needed to draw with SCL.
        negatives : (N, k, d), optional
            Negatives of each image, for all of its views; drawn from the batch without them.
        anchors : slice, optional
            Of images, as in `SupConLoss`. The draws are those of the whole batch: devices with the same seed agree on
            them.
        """
        check_features(features, "several")
        samples, _, size = features.shape
        start, stop = check_anchors(anchors, samples)
        unit = self._rows(features)
        with torch.autocast(features.device.type, enabled=False):
            if negatives is None:
                scaled, valid = self._against_batch(unit, labels, start, stop)
            else:
                if negatives.ndim != 3 or (negatives.shape[0], negatives.shape[2]) != (samples, size):
                    came = tuple(negatives.shape)
                    raise InvalidInputError(
                        f"`negatives` must have shape ({samples}, k, {size}), k for each image; got {came}"
                    )
                mine = unit[start:stop]
                away = torch.einsum("nvd,nkd->nvk", mine, self._rows(negatives[start:stop]))
                scaled = (away - _next_view(mine)[:, :, None]) / self.temperature
                valid = torch.ones(scaled.shape[:2], dtype=torch.bool, device=scaled.device)
            terms = self.psi(scaled)
        return self._total(terms, valid)

    def _against_batch(self, unit: Tensor, labels: Tensor | None, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """(n, V, k) t of the anchors against drawn negatives, and whether there was any to draw."""
        samples, views, _ = unit.shape
        if self.negatives > samples - 1:
            raise InvalidInputError(
                f"`negatives` must be at most N - 1 = {samples - 1} for {samples} images, drawn without replacement; got {self.negatives} "
                "(larger batches, or give the negatives)"
            )
        codes = None
        if self.sampling == "scl":
            if labels is None:
                raise InvalidInputError(
                    "`labels` must be given to draw negatives from other classes (scl); got none (or take ucl)"
                )
            check_labels(labels, samples)
            codes = class_codes(labels)
        scaled, valid = [], []
        for view in range(views):
            chosen, available = draw_others(samples, self.negatives, codes, self._generator(unit.device))
            # All N products and then a choice: N^2 numbers, where gathering the negatives themselves would take N k d.
            products = torch.mm(unit[start:stop, view], unit[:, (view + 1) % views].T)
            scaled.append(products.gather(1, chosen[start:stop]))
            valid.append(available[start:stop] > 0)
        away = torch.stack(scaled, dim=1)
        return (away - _next_view(unit[start:stop])[:, :, None]) / self.temperature, torch.stack(valid, dim=1)

    def _generator(self, device: torch.device) -> torch.Generator:
        name = str(device)
        if name not in self._generators:
            self._generators[name] = torch.Generator(device=device).manual_seed(self.seed)
        return self._generators[name]

    def get_extra_state(self) -> dict[str, Tensor]:
        """State of the draws, by device."""
        return {name: generator.get_state() for name, generator in self._generators.items()}

    def set_extra_state(self, state: Any) -> None:
        """Go on with these draws."""
        self._generators = {}
        for name, held in state.items():
            self._generator(torch.device(name)).set_state(held)

    def extra_repr(self) -> str:
        return (
            f"temperature={self.temperature}, negatives={self.negatives}, sampling={self.sampling!r}, seed={self.seed}"
        )


def _next_view(unit: Tensor) -> Tensor:
    """(n, V) z.z+, the cosines of each view with the next."""
    return (unit * unit.roll(-1, dims=1)).sum(dim=2)
