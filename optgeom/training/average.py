"""The average of the iterates."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class IterateAverage:
    """Mean of the parameters over the steps at which `add` was called (Polyak and Juditsky 1992).

    Parameters
    ----------
    parameters : list of Parameter
        In the order that the averages keep.
    """

    def __init__(self, parameters: list[torch.nn.Parameter]) -> None:
        self._parameters = parameters
        self._means: list[Tensor] = []
        self.number = 0

    @torch.no_grad()
    def add(self) -> None:
        """Count the parameters as they are now."""
        self.number += 1
        if self.number == 1:
            self._means = [parameter.detach().clone() for parameter in self._parameters]
        else:
            torch._foreach_lerp_(self._means, [parameter.detach() for parameter in self._parameters], 1.0 / self.number)

    @torch.no_grad()
    def put(self) -> None:
        """Replace the parameters by their average."""
        for parameter, mean in zip(self._parameters, self._means, strict=True):
            parameter.copy_(mean)

    def state(self) -> dict[str, Any]:
        """Number and means."""
        return {"number": self.number, "means": self._means}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self.number = int(state["number"])
        self._means = [
            mean.to(held.device, copy=True) for mean, held in zip(state["means"], self._parameters, strict=False)
        ]
