"""What all losses of this room share: one term per anchor, its exact sum and count, and the checks of their inputs."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from optgeom import _checks
from optgeom.errors import InvalidInputError
from optgeom.losses.supcon import SINGLETONS


class ContrastiveLoss(torch.nn.Module):
    """A loss that is a mean of one term per anchor.

    `loss(...)` is that mean. `loss.sum_and_count(...)`, with the same arguments, gives the sum of the terms and the
    number of anchors that it runs over: added up over micro-batches or devices before the division they give the mean
    over all anchors, which the mean of the means of batches does not where the counts differ.

    Everything is computed in float32 (in float64 where the features are float64), also under autocast. Nothing waits
    for the device, so values that only the device knows (negative weights, labels without a positive) are not checked.

    Parameters
    ----------
    temperature : float
        T > 0, dimensionless (usual values .05 to 1).
    singletons : {"zero", "skip"}
        Anchors without a term (no positive; each loss says what that means) count as 0, or are left out of the count.
    normalize : bool
        Bring every row of the features to length 1.

    Notes
    -----
    A batch in which no anchor has a term must not end a training run: the sum is 0, attached to the graph, with
    gradient 0. The count is 0 under `skip` and all anchors under `zero`; the mean is 0 in both. Do not read this 0 as
    an attained optimum: look at the count.
    """

    shown: ClassVar[tuple[str, ...]] = ("temperature", "singletons", "normalize")  # in the repr

    def __init__(self, temperature: float, singletons: str, normalize: bool) -> None:
        super().__init__()
        self.temperature = _checks.real("temperature", temperature, above=0.0, hint="usual values are 0.05 to 1")
        self.singletons = _checks.choice("singletons", singletons, SINGLETONS)
        self.normalize = bool(normalize)

    def forward(self, *inputs: Any, **options: Any) -> Tensor:
        """Mean over the anchors, 0 where the count is 0; takes what `sum_and_count` takes."""
        total, count = self.sum_and_count(*inputs, **options)
        return total / count.clamp_min(1.0)

    def sum_and_count(self, *inputs: Any, **options: Any) -> tuple[Tensor, Tensor]:
        """Sum of the terms and number of anchors, both scalar tensors."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in self.shown)

    def _rows(self, features: Tensor) -> Tensor:
        """The features as (..., d) rows to compute with."""
        rows = features if features.dtype == torch.float64 else features.float()
        return torch.nn.functional.normalize(rows, dim=-1) if self.normalize else rows

    def _total(self, terms: Tensor, valid: Tensor, weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
        if weight is not None:
            weight = weight.to(terms.dtype)
            total = torch.where(valid, weight * terms, 0.0).sum()
            return total, (torch.where(valid, weight, 0.0) if self.singletons == "skip" else weight).sum()
        total = torch.where(valid, terms, 0.0).sum()
        count = valid.sum().to(total.dtype) if self.singletons == "skip" else total.new_full((), valid.numel())
        return total, count


def check_features(features: Any, views: str) -> None:
    """Refuse what is not floating features of shape (B, d) or (N, V, d); `views` is "none", "any" or "several"."""
    shapes = {"none": "(B, d)", "any": "(N, V, d) or (B, d)", "several": "(N, V, d) with V >= 2 views"}[views]
    if not isinstance(features, torch.Tensor) or not features.is_floating_point():
        came = str(features.dtype) if isinstance(features, torch.Tensor) else type(features).__name__
        raise InvalidInputError(
            f"`features` must be a floating tensor of shape {shapes}; got {came} (convert it: features.float())"
        )
    dimensions = {"none": (2,), "any": (2, 3), "several": (3,)}[views]
    if features.ndim not in dimensions or (views == "several" and features.shape[1] < 2):
        remedy = "stack the views: torch.stack([first, second], dim=1)" if views == "several" else "one row per sample"
        raise InvalidInputError(f"`features` must have shape {shapes}; got {tuple(features.shape)} ({remedy})")


def check_labels(labels: Any, length: int, name: str = "labels") -> None:
    """Refuse what is not one label per sample."""
    if not isinstance(labels, torch.Tensor):
        raise InvalidInputError(
            f"`{name}` must be a tensor of shape ({length},); got {type(labels).__name__} (use torch.as_tensor)"
        )
    if labels.ndim != 1 or labels.shape[0] != length:
        remedy = "one-hot rows: labels.argmax(1); several classes per sample: WeightedInfoNCELoss, SupCon has one"
        raise InvalidInputError(
            f"`{name}` must have shape ({length},), one per sample; got {tuple(labels.shape)} ({remedy})"
        )


def anchor_range(anchors: slice | None, length: int) -> tuple[int, int]:
    """Start and stop of the samples that are anchors; all by default."""
    if anchors is None:
        return 0, length
    start, stop, step = anchors.indices(length)
    if step != 1 or stop < start:
        raise InvalidInputError(
            f"`anchors` must be a slice of consecutive samples; got {anchors} of {length} samples (slice(start, stop))"
        )
    return start, stop
