r"""Which samples make a batch, and the class law that follows: the optimum is that of the sampler, not of the data.

A sampler with power q draws a class with probability ~ n^q and then one of its samples: q = 1 takes every sample
equally often, q = 0 every class. Draws are independent, as the theory has it; `shuffled` goes through the data in
epochs instead, where counts vary a little less from batch to batch than in i.i.d. draws.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from optgeom import _checks
from optgeom.errors import InvalidInputError
from optgeom.inputs.classes import ClassDistribution
from optgeom.training.data import LabelledData


class Sampler:
    """Draws batches of sample numbers, on the CPU, from a generator of its own.

    Parameters
    ----------
    data : LabelledData
        Every class must have a sample.
    power : float
        q; 1 instance sampling, 0 class-balanced, 0.5 square root.
    shuffled : bool
        Epochs in random order, instead of independent draws; only for q = 1.
    seed : int

    Raises
    ------
    InvalidInputError
        A class without samples, or epochs with another power.
    """

    def __init__(self, data: LabelledData, power: float = 1.0, shuffled: bool = False, seed: int = 0) -> None:
        self.power = _checks.real("power", power, hint="1 is instance sampling, 0 balanced, 0.5 square root")
        if shuffled and self.power != 1:
            needs = "1 for shuffled epochs, which take every sample once"
            raise InvalidInputError(f"`power` must be {needs}; got {power!r} (draw instead: shuffled=False)")
        counts = data.counts
        if counts.min() == 0:
            empty = data.names[int(counts.argmin())]
            raise InvalidInputError(
                f"`data` must have a sample of every class; got none of class {empty} (leave the class out)"
            )
        self._classes = data.classes().resample(self.power)
        self.shuffled = shuffled
        self._generator = torch.Generator().manual_seed(seed)
        self._codes = data.codes
        # Samples by class: `_order` lists them, class c begins at `_begin[c]`.
        self._order = torch.argsort(data.codes, stable=True)
        self._sizes = torch.from_numpy(counts)
        self._begin = torch.from_numpy(np.concatenate([[0], np.cumsum(counts)[:-1]]))
        law = np.cumsum(self._classes.proportions)
        self._law = torch.from_numpy(law / law[-1])
        self._epoch = torch.empty(0, dtype=torch.int64)
        self._position = 0

    def classes(self) -> ClassDistribution:
        """The classes as they are drawn: realised counts, bent by the power."""
        return self._classes

    def draw(self, number: int, views: int = 1, positives: str = "image") -> Tensor:
        """(number, views) sample numbers of the next batch.

        Parameters
        ----------
        number : int
        views : int
        positives : {"image", "class"}
            The views of a row are one sample, to be augmented differently, or independent samples of one class.
        """
        first = self._next(number)
        if positives == "image" or views == 1:
            return first[:, None].expand(number, views)
        others = self._within(self._codes[first][:, None].expand(number, views - 1))
        return torch.cat([first[:, None], others], dim=1)

    def _next(self, number: int) -> Tensor:
        if not self.shuffled:
            drawn = torch.rand(number, generator=self._generator, dtype=torch.float64)
            return self._within(torch.searchsorted(self._law, drawn, right=True))
        parts: list[Tensor] = []
        while number > 0:
            if self._position == self._epoch.shape[0]:
                self._epoch, self._position = torch.randperm(self._codes.shape[0], generator=self._generator), 0
            parts.append(self._epoch[self._position : self._position + number])
            self._position += parts[-1].shape[0]
            number -= parts[-1].shape[0]
        return torch.cat(parts)

    def _within(self, classes: Tensor) -> Tensor:
        """A sample of each of these classes."""
        sizes = self._sizes[classes]
        numbers = torch.rand(classes.shape, generator=self._generator, dtype=torch.float64)
        # A product may round up to the size itself.
        place = torch.minimum((numbers * sizes).long(), sizes - 1)
        return self._order[self._begin[classes] + place]

    def state(self) -> dict[str, Any]:
        """Generator, and the place in the epoch."""
        return {"generator": self._generator.get_state(), "epoch": self._epoch, "position": self._position}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self._generator.set_state(state["generator"])
        self._epoch, self._position = state["epoch"], int(state["position"])
