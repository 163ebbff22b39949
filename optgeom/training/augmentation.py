"""Views of a sample: shifted, mirrored and noisy images, noisy vectors; on the device, for a whole batch at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from optgeom import _checks
from optgeom.errors import InvalidInputError

LARGEST_NOISE = 1e30


@dataclass(frozen=True)
class Augmentation:
    """How a view is made.

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

    def check(self, shape: tuple[int, ...]) -> None:
        """Refuse a shift of what has no pixels, or of an image by more than its size, which leaves nothing of it.

        Raises
        ------
        InvalidInputError
        """
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
        return {"shift": self.shift, "mirror": self.mirror, "noise": self.noise}


def usual_augmentation(shape: tuple[int, ...], mirrored: bool) -> Augmentation:
    """Noise for vectors.

    An eighth of the width to shift by for images, as the 4 pixels of CIFAR, and mirroring where it means nothing.
    """
    if len(shape) == 1:
        return Augmentation(noise=0.1)
    return Augmentation(shift=max(1, shape[-1] // 8), mirror=mirrored, noise=0.05)
