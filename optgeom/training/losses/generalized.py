"""Generalized contrastive loss: a psi of k negatives that are drawn from the batch, or given."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from optgeom import _checks
from optgeom.errors import InvalidInputError
from optgeom.losses.weights import ClassValues
from optgeom.training.losses.base import ContrastiveLoss, anchor_range, check_features, check_labels
from optgeom.training.losses.class_weights import class_labels, tables
from optgeom.training.losses.rows import class_codes

SAMPLING = ("ucl", "scl")
REDUCTIONS = ("sum", "mean")
ENTRIES = 1 << 20  # random numbers in memory at once


class InfoNCEPsi(torch.nn.Module):
    r"""psi(t_1, ..., t_k) = log( alpha + q sum_l exp t_l ), q = 1 (`sum`) or 1/k (`mean`); as `optgeom.InfoNCE`.

    Parameters
    ----------
    alpha : float
        >= 0; 1 puts the positive into the denominator, 0 leaves it out.
    negatives_reduction : {"sum", "mean"}

    References
    ----------
    van den Oord, Li, Vinyals 2018, arXiv 1807.03748.
    """

    def __init__(self, alpha: float = 1.0, *, negatives_reduction: str = "sum") -> None:
        super().__init__()
        self.alpha = _checks.real(
            "alpha", alpha, at_least=0.0, hint="1 keeps the positive in the denominator, 0 leaves it out"
        )
        self.negatives_reduction = _checks.choice("negatives_reduction", negatives_reduction, REDUCTIONS)

    def forward(self, t: Tensor) -> Tensor:
        """(...) values at t of shape (..., k)."""
        total = torch.logsumexp(t, dim=-1)
        if self.negatives_reduction == "mean":
            total = total - math.log(t.shape[-1])
        if self.alpha == 0:
            return total
        return torch.logaddexp(total, total.new_full((), math.log(self.alpha)))

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}, negatives_reduction={self.negatives_reduction!r}"


class GeneralizedContrastiveLoss(ContrastiveLoss):
    r"""Generalized contrastive loss with k negatives:

        term_i = psi(t_1, ..., t_k),      t_l = ( z_i.n_l - z_i.z_i+ ) / T,

    the positive z_i+ being the next view of the same image, and n_l negatives drawn from that view of other images
    (UCL) or of images of other classes (SCL), or given. On features at class means t_l = (A_{i, c_l} - 1) / T, and the
    expectation is the risk of `optgeom.InfoNCE` or, with your own psi, of `optgeom.GeneralizedContrastive`; no
    constant is left out. Drawn negatives are distinct images, hence i.i.d. in batches with i.i.d. classes; under SCL
    this needs k images of other classes (fewer are repeated).

    Parameters
    ----------
    temperature : float
        T > 0, dimensionless.
    negatives : int
        k >= 1, where they are drawn; at most N - 1.
    psi : callable, optional
        From (..., k) to (...): convex, increasing, symmetric, in torch. `InfoNCEPsi()` by default; the parameters of
        a module are trained too.
    sampling : {"ucl", "scl"}
    seed : int
        Of the draws. Their state is part of `state_dict`, so that a resumed run goes on with the same draws.
    singletons : {"zero", "skip"}
        Under SCL, anchors without an image of another class.
    normalize : bool
    weights : ClassValues, optional
        Weights and temperatures per class of `InfoNCEPsi`, as `og.InfoNCE(...).class_values(classes)` gives them.
        Labels are then numbers in class order, negatives are drawn, and log b_il is added to t_l; terms are weighted
        by their anchors, and the count is the sum of these weights.

    References
    ----------
    Nguyen, Aeron, Brown, Ishwar 2026, arXiv 2605.11291.
    """

    shown = ("temperature", "negatives", "sampling", "seed")

    def __init__(
        self,
        temperature: float = 0.1,
        negatives: int = 1,
        *,
        psi: Callable[[Tensor], Tensor] | None = None,
        sampling: str = "ucl",
        seed: int = 0,
        singletons: str = "zero",
        normalize: bool = True,
        weights: ClassValues | None = None,
    ) -> None:
        super().__init__(temperature, singletons, normalize)
        self.weights = tables(weights)
        self.negatives = _checks.integer("negatives", negatives, at_least=1)
        self.sampling = _checks.choice("sampling", sampling, SAMPLING)
        self.seed = _checks.integer("seed", seed, at_least=0)
        self.psi = InfoNCEPsi() if psi is None else psi
        self._generators: dict[str, torch.Generator] = {}

    def sum_and_count(
        self,
        features: Tensor,
        labels: Tensor | None = None,
        *,
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
        start, stop = anchor_range(anchors, samples)
        unit = self._rows(features)
        anchor = None
        if self.weights is not None:
            labels = class_labels(labels)
            check_labels(labels, samples)
            if negatives is not None:
                raise InvalidInputError(
                    "`negatives` must be drawn from the batch for weights per class; got a tensor, whose classes are "
                    "unknown (leave it out)"
                )
            anchor = self.weights.anchor[labels[start:stop], None].expand(-1, features.shape[1])
        with torch.autocast(features.device.type, enabled=False):
            if negatives is None:
                scaled, valid = self._against_batch(unit, labels, start, stop)
            else:
                if negatives.ndim != 3 or (negatives.shape[0], negatives.shape[2]) != (samples, size):
                    came = tuple(negatives.shape)
                    raise InvalidInputError(
                        f"`negatives` must have shape ({samples}, k, {size}), k per image; got {came} "
                        "(or leave them out: they are then drawn from the batch)"
                    )
                mine = unit[start:stop]
                away = torch.einsum("nvd,nkd->nvk", mine, self._rows(negatives[start:stop]))
                scaled = (away - _next_view(mine)[:, :, None]) / self.temperature
                valid = torch.ones(scaled.shape[:2], dtype=torch.bool, device=scaled.device)
            terms = self.psi(scaled)
        return self._total(terms, valid, anchor)

    def _against_batch(self, unit: Tensor, labels: Tensor | None, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """(n, V, k) t of the anchors against drawn negatives, and (n, V) whether there was a negative to draw."""
        samples, views, _ = unit.shape
        if self.negatives > samples - 1:
            raise InvalidInputError(
                f"`negatives` must be at most N - 1 = {samples - 1} for {samples} images, drawn without replacement; "
                f"got {self.negatives} (take larger batches, or give the negatives)"
            )
        codes = None
        if self.sampling == "scl":
            if labels is None:
                raise InvalidInputError(
                    "`labels` must be given to draw negatives from other classes (scl); got none (or take ucl)"
                )
            check_labels(labels, samples)
            codes = class_codes(labels)
        scaled, valid, logs = [], [], []
        for view in range(views):
            chosen, available = draw_others(samples, self.negatives, codes, self._generator(unit.device))
            # All N products and then a choice: N^2 numbers, where gathering the negatives themselves would take N k d.
            products = torch.mm(unit[start:stop, view], unit[:, (view + 1) % views].T)
            scaled.append(products.gather(1, chosen[start:stop]))
            valid.append(available[start:stop] > 0)
            if self.weights is not None:
                assert labels is not None
                logs.append(self.weights.of_pairs(labels[start:stop], labels[chosen[start:stop]]).to(unit.dtype))
        away = torch.stack(scaled, dim=1) - _next_view(unit[start:stop])[:, :, None]
        if self.weights is None:
            return away / self.temperature, torch.stack(valid, dim=1)
        assert labels is not None
        temperature = self.weights.temperature.to(unit.dtype)[labels[start:stop], None, None]
        return away / temperature + torch.stack(logs, dim=1), torch.stack(valid, dim=1)

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
        for name, generator_state in state.items():
            self._generator(torch.device(name)).set_state(generator_state)


def _next_view(unit: Tensor) -> Tensor:
    """(n, V) z.z+, the cosines of each view with the next."""
    return (unit * unit.roll(-1, dims=1)).sum(dim=2)


def draw_others(samples: int, k: int, codes: Tensor | None, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """(N, k) images drawn for each of N images, and (N,) how many there are to draw from.

    Without replacement, from all other images, or from those of another class where codes are given. In batches with
    i.i.d. classes the classes of the negatives of an anchor are then i.i.d. too, exactly as in `optgeom.InfoNCE`; drawn
    with replacement they would not be, as the same image could come twice. Where fewer than k images are of another
    class, they are repeated in turn.
    """
    device = generator.device
    images = torch.arange(samples, device=device)
    chosen, available = [], []
    step = max(1, ENTRIES // samples)
    for begin in range(0, samples, step):
        mine = images[begin : begin + step]
        keys = torch.rand((mine.shape[0], samples), generator=generator, device=device)
        barred = mine[:, None] == images[None, :] if codes is None else codes[mine][:, None] == codes[None, :]
        allowed = samples - barred.sum(dim=1)
        order = keys.masked_fill_(barred, -1.0).topk(k, dim=1).indices
        turn = images[:k][None, :] % allowed.clamp_min(1)[:, None]
        chosen.append(order.gather(1, turn))
        available.append(allowed)
    return torch.cat(chosen), torch.cat(available)
