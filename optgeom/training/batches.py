r"""Batches of samples: which ones are drawn, the class law that follows, and how a view of each is made.

The optimum is that of the sampler, not of the data. A sampler with power q draws a class with probability ~ n^q and
then one of its samples: q = 1 takes every sample equally often, q = 0 every class. Draws are independent, as the theory
has it; `shuffled` goes through the data in epochs instead, where counts vary a little less from batch to batch than in
i.i.d. draws.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from optgeom import _checks
from optgeom.errors import InvalidInputError
from optgeom.inputs.classes import ClassDistribution
from optgeom.training.data import LabelledData

LARGEST_NOISE = 1e30


class Sampler:
    """Draws batches of sample numbers on the CPU, from its own generator.

    Parameters
    ----------
    data : LabelledData
        Every class must have a sample.
    power : float
        q; 1 instance sampling, 0 class-balanced, 0.5 square root.
    shuffled : bool
        Epochs in random order instead of independent draws; for q = 1 only.
    seed : int

    Raises
    ------
    InvalidInputError
        A class without samples, or epochs with another power.
    """

    def __init__(self, data: LabelledData, *, power: float = 1.0, shuffled: bool = False, seed: int = 0) -> None:
        self.power = _checks.real("power", power, hint="1 is instance sampling, 0 balanced, 0.5 square root")
        if shuffled and self.power != 1:
            wanted = "1 for shuffled epochs, which take every sample once"
            raise InvalidInputError(f"`power` must be {wanted}; got {power!r} (draw instead: shuffled=False)")
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
        """The classes as they are drawn: the realised counts, resampled by the power."""
        return self._classes

    def draw(self, number: int, *, views: int = 1, positives: str = "image") -> Tensor:
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


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """How a view of a sample is made: shifted, mirrored and noisy images, noisy vectors, a whole batch at once.

    Attributes
    ----------
    shift : int
        Images are moved by up to this many pixels in each direction, zeros following (a random crop after padding).
    mirror : bool
        Half of the images are mirrored left to right.
    noise : float
        Standard deviation of Gaussian noise added to every number.
    """

    shift: int = 0
    mirror: bool = False
    noise: float = 0.0

    def __post_init__(self) -> None:
        _checks.integer("shift", self.shift, at_least=0)
        if _checks.real("noise", self.noise, at_least=0.0, hint="0 for none") > LARGEST_NOISE:
            raise InvalidInputError(
                f"`noise` must be at most {LARGEST_NOISE:g}; got {self.noise!r} (inputs are of single precision)"
            )

    @classmethod
    def usual(cls, shape: tuple[int, ...], *, mirrored: bool) -> Augmentation:
        """Noise for vectors; for images also a shift by an eighth of the width, as the 4 pixels of CIFAR.

        Images are mirrored where a mirror image means the same.
        """
        if len(shape) == 1:
            return cls(noise=0.1)
        return cls(shift=max(1, shape[-1] // 8), mirror=mirrored, noise=0.05)

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise `InvalidInputError` for a shift of vectors, or of images by more than their size."""
        most = min(shape[1:]) if len(shape) == 3 else 0
        if self.shift > most:
            pixels = f"at most {most}, the size of an image" if most else "0 for samples without pixels"
            raise InvalidInputError(f"`shift` must be {pixels}; got {self.shift} (an eighth of the size is usual)")

    def __call__(self, inputs: Tensor, generator: torch.Generator) -> Tensor:
        """One view of each of (B, d) vectors or (B, channels, height, width) images.

        Random numbers come from the device of `generator`.
        """
        views = self._moved(inputs, generator) if inputs.ndim == 4 else inputs
        if self.noise == 0:
            return views
        noise = torch.randn(views.shape, generator=generator, device=generator.device, dtype=views.dtype)
        return torch.add(views, noise, alpha=self.noise)

    def _moved(self, images: Tensor, generator: torch.Generator) -> Tensor:
        number, _, height, width = images.shape
        device = generator.device
        rows, columns = torch.arange(height, device=device)[None, :], torch.arange(width, device=device)[None, :]
        if self.mirror:
            flipped = torch.rand((number, 1), generator=generator, device=device) < 0.5
            columns = torch.where(flipped, width - 1 - columns, columns)
        if self.shift:
            by = torch.randint(0, 2 * self.shift + 1, (2, number, 1), generator=generator, device=device)
            rows, columns = rows + by[0], columns + by[1]
            images = torch.nn.functional.pad(images, (self.shift,) * 4)
        if not (self.mirror or self.shift):
            return images
        index = torch.arange(number, device=device)[:, None, None]
        # Index arrays on both sides of the channels: these come last.
        return images[index, :, rows.expand(number, -1)[:, :, None], columns.expand(number, -1)[:, None, :]].permute(
            0, 3, 1, 2
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)
