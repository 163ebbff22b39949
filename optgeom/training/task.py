"""What a loop needs to know about the thing that it trains."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from optgeom.training.distance import GramDistance


@dataclass(frozen=True)
class Terms:
    """One batch, forward; scalar tensors on the device.

    Attributes
    ----------
    total, count : Tensor
        Sum of the loss terms (attached to the graph) and number of anchors.
    inputs, features : Tensor
        Any function of the inputs, and of the features, that is not finite as soon as one of them is not: their sums.
        They tell where a NaN came from.
    """

    total: Tensor
    count: Tensor
    inputs: Tensor
    features: Tensor


class Task(ABC):
    """A module with a loss on random batches, and a way to measure its geometry.

    Attributes
    ----------
    module : torch.nn.Module
        Whose parameters are trained; the loss belongs to it if it has any state.
    expected_count : float
        Anchors of a batch, on average or at most; it only keeps gradients in the range of half precision.
    optimal_loss : float or None
        Smallest possible expectation of the loss.
    describe : dict
        What was trained on what, ready for JSON; a run is only resumed under the same description.
    """

    module: torch.nn.Module
    expected_count: float
    optimal_loss: float | None
    describe: dict[str, Any]

    @abstractmethod
    def to(self, device: torch.device) -> None:
        """Move everything to a device, before the first batch."""

    @abstractmethod
    def terms(self) -> Terms:
        """Draw the next batch and evaluate the loss on it, without waiting for the device."""

    @abstractmethod
    def distance(self) -> GramDistance:
        """The geometry of the module now, without drawing any random number."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Position in the data and random states, in tensors and plain values."""

    @abstractmethod
    def load(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""

    def refresh(self) -> None:  # noqa: B027 - most modules have nothing to refresh
        """After parameters were replaced by their average.

        Recompute what depends on them (statistics of batch normalisation).
        """
