"""Encoders: a multilayer perceptron, a small convolutional network, and ResNet-18 for small images."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from optgeom import _checks, choices
from optgeom.errors import IncompatibleError


class MLP(nn.Sequential):
    """Two hidden layers with ReLU, on flattened inputs."""

    def __init__(self, inputs: int, dim: int, width: int = 256) -> None:
        super().__init__(
            nn.Flatten(), nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, dim)
        )


class SmallCNN(nn.Sequential):
    """Three convolutions of stride 1, 2, 2, mean over the image, linear head."""

    def __init__(self, channels: int, dim: int, width: int = 32) -> None:
        blocks: list[nn.Module] = []
        before = channels
        for stride, factor in ((1, 1), (2, 2), (2, 4)):
            after = width * factor
            blocks += [nn.Conv2d(before, after, 3, stride, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
            before = after
        super().__init__(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, dim))


class _Block(nn.Module):
    """Two 3 x 3 convolutions beside a shortcut."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(after)
        self.second = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(after)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: Tensor) -> Tensor:
        inner = torch.relu(self.first_norm(self.first(x)))
        return torch.relu(self.second_norm(self.second(inner)) + self.shortcut(x))


class ResNet18(nn.Sequential):
    """ResNet-18 (He et al. 2016) with the stem for images of 32 x 32: a 3 x 3 convolution of stride 1, no pooling.

    A head of two layers maps the 512 pooled features to `dim`, as in SupCon (Khosla et al. 2020).
    """

    def __init__(self, channels: int, dim: int, width: int = 64) -> None:
        layers: list[nn.Module] = [
            nn.Conv2d(channels, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
        ]
        before = width
        for factor, stride in ((1, 1), (2, 2), (4, 2), (8, 2)):
            layers += [_Block(before, width * factor, stride), _Block(width * factor, width * factor, 1)]
            before = width * factor
        head = (nn.Linear(before, before), nn.ReLU(), nn.Linear(before, dim))
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), *head)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")


def make_encoder(arch: str, shape: tuple[int, ...], *, dim: int, seed: int = 0) -> nn.Module:
    """Make an encoder for inputs of this shape.

    Parameters
    ----------
    arch : {"mlp", "cnn", "resnet18"}
    shape : tuple of int
        (d,) or (channels, height, width).
    dim : int
        Length of the features, before they are brought to length 1.
    seed : int
        Of the initial weights.

    Raises
    ------
    IncompatibleError
        A convolutional network for vectors.
    """
    _checks.choice("arch", arch, choices.Architecture)
    _checks.integer("dim", dim, at_least=1)
    if arch != "mlp" and len(shape) != 3:
        raise IncompatibleError(
            f"`arch` {arch!r} needs images (channels, height, width); got inputs of shape {shape} (take mlp)"
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if arch == "mlp":
            return MLP(math.prod(shape), dim)
        return SmallCNN(shape[0], dim) if arch == "cnn" else ResNet18(shape[0], dim)
