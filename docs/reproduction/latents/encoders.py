"""Encoders of generated data: MLPs with and without batch normalisation, and one of the form of the inverse."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from latents import generators, require
from latents.generators import Generator
from optgeom.errors import IncompatibleError

ENCODERS = ("batchnorm-mlp", "mlp", "matched")
ANGLE_WIDTH = 64
SMALLEST_PIXEL = 1e-30


class DeepMLP(nn.Sequential):
    """`depth` hidden layers of linear, ReLU and, where asked for, batch normalisation AFTER the ReLU; then linear.

    The place matters: normalised before the ReLU, 5 and 7 layers often ended in a fold of the sphere (linear R2 of two
    thirds) on latents that they recover when normalised after it.

    Parameters
    ----------
    inputs, dim : int
        Numbers in and out; inputs are flattened.
    width, depth : int
    batch_norm : bool
    """

    def __init__(self, inputs: int, dim: int, *, width: int, depth: int, batch_norm: bool) -> None:
        layers: list[nn.Module] = [nn.Flatten()]
        before = inputs
        for _ in range(depth):
            layers += [nn.Linear(before, width), nn.ReLU()]
            if batch_norm:
                layers.append(nn.BatchNorm1d(width))
            before = width
        super().__init__(*layers, nn.Linear(before, dim))


class InverseMLP(nn.Module):
    """The inverse of an `InvertibleMLP`: matrices to be learnt, and leaky ReLU of the reciprocal slope, in turn.

    It starts from random orthogonal matrices. Without spare width it has local optima: for three layers in three
    dimensions it ended at a linear R2 of .90 to .94 from each of three starts.
    """

    def __init__(self, dimension: int, layers: int, slope: float) -> None:
        super().__init__()
        self.slope = slope
        self.layers = nn.ModuleList(nn.Linear(dimension, dimension, bias=False) for _ in range(layers))
        for layer in self.layers:
            nn.init.orthogonal_(layer.weight)

    def forward(self, x: Tensor) -> Tensor:
        *others, last = self.layers
        for layer in others:
            x = nn.functional.leaky_relu(layer(x), 1 / self.slope)
        return last(x)


class Unwind(nn.Module):
    """The inverse of a `Spiral`: a small network of the last coordinate says how far to turn the first two."""

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.angle = nn.Sequential(nn.Linear(1, ANGLE_WIDTH), nn.Tanh(), nn.Linear(ANGLE_WIDTH, 1))
        self.out = nn.Linear(dimension, dimension, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(generators.turned(x, self.angle(x[:, -1:])[:, 0]))


class UnturnBands(nn.Module):
    """The inverse of `Patches`: the bands are known, the angles by which they are turned back are learnt, from 0."""

    def __init__(self, dimension: int, bands: int) -> None:
        super().__init__()
        self.bands = bands
        self.angles = nn.Parameter(torch.zeros(2, bands))
        self.out = nn.Linear(dimension, dimension, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        for angles in self.angles:
            x = x.roll(-1, dims=1)
            x = generators.turned(x, angles[generators.band(x, self.bands)])
        return self.out(x)


class LogPixels(nn.Module):
    """The inverse of `Blobs`, its matrix to be learnt: linear in the log of the pixels minus that of a central blob.

    Without the central blob a large constant hides what depends on the latents, and the start decides whether they are
    recovered.
    """

    def __init__(self, generator: generators.Blobs) -> None:
        super().__init__()
        middle = generator(torch.zeros(1, generator.dimension, dtype=torch.float64)).flatten().log()
        self.register_buffer("middle", middle.float())
        self.out = nn.Linear(middle.numel(), generator.dimension)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(x.flatten(1).clamp_min(SMALLEST_PIXEL).log() - self.middle)


def make_latent_encoder(
    kind: str, generator: Generator, *, dim: int | None = None, seed: int = 0, width: int = 64, depth: int | None = None
) -> nn.Module:
    """Make an encoder of the outputs of a generator.

    Parameters
    ----------
    kind : {"batchnorm-mlp", "mlp", "matched"}
        Matched: a learnable map of the form of the inverse, linear for the identity and linear generators. An
        orthogonal map of the true latents is then within reach, and little else.
    generator : Generator
    dim : int, optional
        Of the features, before they are brought to length 1; that of the latents by default, and always where matched.
    seed : int
        Of the weights.
    width, depth : int
        Of an MLP; 10 hidden layers with batch normalisation and 3 without by default.

    Raises
    ------
    IncompatibleError
        A matched encoder into another dimension, or of a generator of unknown kind.
    """
    require(kind in ENCODERS, f"`kind` must be one of {', '.join(ENCODERS)}; got {kind!r}")
    size = generator.dimension if dim is None else dim
    require(size >= 1, f"`dim` must be a whole number >= 1; got {dim!r}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if kind == "matched":
            if size != generator.dimension:
                raise IncompatibleError(
                    f"`dim` must be that of the latents, {generator.dimension}, for a matched encoder; got {size} "
                    f"(leave it out)"
                )
            return _matched(generator)
        normed = kind == "batchnorm-mlp"
        layers = (10 if normed else 3) if depth is None else depth
        require(layers >= 1, f"`depth` must be a whole number >= 1; got {depth!r}")
        return DeepMLP(math.prod(generator.shape), size, width=width, depth=layers, batch_norm=normed)


def _matched(generator: Generator) -> nn.Module:
    d = generator.dimension
    if isinstance(generator, generators.Identity | generators.LinearGenerator):
        return nn.Linear(generator.shape[0], d, bias=False)
    if isinstance(generator, generators.InvertibleMLP):
        return InverseMLP(d, generator.weights.shape[0], generator.slope)
    if isinstance(generator, generators.Spiral):
        return Unwind(d)
    if isinstance(generator, generators.Patches):
        return UnturnBands(d, generator.bands)
    if isinstance(generator, generators.Blobs):
        return LogPixels(generator)
    raise IncompatibleError(
        f"`generator` must be of a kind with a matched encoder; got {type(generator).__name__} (take an MLP)"
    )
