r"""Generators x = g(z): what an encoder sees in place of latents on the unit sphere.

All of them are injective and have an exact inverse.

* `Identity`;
* `LinearGenerator`: a matrix of full column rank;
* `InvertibleMLP`: orthogonal weights and leaky ReLU in turn, each a bijection of R^d;
* `Spiral`: the sphere is wound around an axis, a diffeomorphism of the sphere;
* `Patches`: bands of the sphere are turned against each other, twice, a bijection of the sphere that is not continuous;
* `Blobs`: a small image for each latent, smooth and injective.

References
----------
Zimmermann, Sharma, Schneider, Bethge, Brendel 2021, arXiv 2102.08850 (invertible MLP);
Zaliaduonis, Putzky, Richter, Gatidis 2026, arXiv 2606.04280 (linear, invertible MLP, spiral, patches).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from latents import require

SLOPE = 0.2  # of leaky ReLU below 0, as published


class Generator(nn.Module):
    """A fixed injective map: buffers and no parameters.

    Attributes
    ----------
    dimension : int
        d of the latents, unit rows (n, d).
    shape : tuple of int
        Of one output; g takes (n, d) to (n, *shape).
    """

    shape: tuple[int, ...]

    def __init__(self, dimension: int, at_least: int = 2) -> None:
        super().__init__()
        require(dimension >= at_least, f"`dimension` must be a whole number >= {at_least}; got {dimension!r}")
        self.dimension = dimension

    def inverse(self, x: Tensor) -> Tensor:
        """(n, d) latents of (n, *shape) outputs of g."""
        raise NotImplementedError


class Identity(Generator):
    """x = z."""

    def __init__(self, dimension: int) -> None:
        super().__init__(dimension)
        self.shape = (self.dimension,)

    def forward(self, z: Tensor) -> Tensor:
        return z

    def inverse(self, x: Tensor) -> Tensor:
        return x


class LinearGenerator(Generator):
    r"""x = A z with A = U diag(s) V', U and V random with orthonormal columns.

    s falls geometrically from 1 to 1/condition. Injective, since no s is 0; z = V diag(1/s) U' x.

    Parameters
    ----------
    dimension : int
    outputs : int, optional
        D >= d; d by default.
    condition : float
        Condition number of A, at least 1.
    seed : int
    """

    def __init__(self, dimension: int, *, outputs: int | None = None, condition: float = 3.0, seed: int = 0) -> None:
        super().__init__(dimension)
        size = dimension if outputs is None else outputs
        require(size >= dimension, f"`outputs` must be a whole number >= {dimension}; got {outputs!r}")
        require(condition >= 1, f"`condition` must be >= 1; got {condition!r} (1 is orthogonal)")
        random = torch.Generator().manual_seed(seed)
        scale = condition ** (-torch.arange(dimension, dtype=torch.float64) / (dimension - 1))
        left, right = orthogonal(size, random)[:, :dimension], orthogonal(dimension, random)
        self.register_buffer("matrix", left * scale @ right.T)
        self.register_buffer("inverted", right / scale @ left.T)
        self.shape = (size,)

    def forward(self, z: Tensor) -> Tensor:
        return z @ self.matrix.to(z.dtype).T

    def inverse(self, x: Tensor) -> Tensor:
        return x @ self.inverted.to(x.dtype).T


class InvertibleMLP(Generator):
    r"""x = Q_L a(Q_(L-1) ... a(Q_1 z)), a leaky ReLU, Q random orthogonal (d, d).

    Every layer is a bijection of R^d: an orthogonal matrix has its transpose as inverse, and leaky ReLU is strictly
    increasing, so that it can be undone coordinate by coordinate (a division by the slope below 0). A composition of
    bijections is one. Smooth except where a coordinate before an activation is 0.

    Parameters
    ----------
    dimension : int
    layers : int
        L >= 1 matrices, with L - 1 activations between them.
    slope : float
        Of the activation below 0, in (0, 1].
    seed : int
    """

    def __init__(self, dimension: int, *, layers: int = 3, slope: float = SLOPE, seed: int = 0) -> None:
        super().__init__(dimension)
        require(layers >= 1, f"`layers` must be a whole number >= 1; got {layers!r}")
        require(slope > 0, f"`slope` must be > 0; got {slope!r} (0.2 is usual; with 0 it is not a bijection)")
        require(slope <= 1, f"`slope` must be in (0, 1]; got {slope!r} (1 is a linear map)")
        self.slope = slope
        random = torch.Generator().manual_seed(seed)
        self.register_buffer("weights", torch.stack([orthogonal(dimension, random) for _ in range(layers)]))
        self.shape = (self.dimension,)

    def forward(self, z: Tensor) -> Tensor:
        first, *others = self.weights.to(z.dtype)
        x = z @ first.T
        for weight in others:
            x = nn.functional.leaky_relu(x, self.slope) @ weight.T
        return x

    def inverse(self, x: Tensor) -> Tensor:
        *others, last = self.weights.to(x.dtype).flip(0)
        for weight in others:
            x = x @ weight
            # The inverse of leaky ReLU is leaky ReLU with the reciprocal slope.
            x = nn.functional.leaky_relu(x, 1 / self.slope)
        return x @ last


class Spiral(Generator):
    """The first two coordinates are turned by the angle `turns` pi z_d: meridians become spirals around the last axis.

    A diffeomorphism of the sphere that preserves the uniform law: the last coordinate stays, so that turning back is
    the inverse.

    Parameters
    ----------
    dimension : int
        d >= 3.
    turns : float
        Half turns for each unit of the last coordinate; 2 in the published experiments.
    """

    def __init__(self, dimension: int, *, turns: float = 2.0) -> None:
        super().__init__(dimension, at_least=3)
        require(turns >= 0, f"`turns` must be >= 0; got {turns!r} (2 is usual)")
        self.turns = turns
        self.shape = (self.dimension,)

    def forward(self, z: Tensor) -> Tensor:
        return turned(z, self.turns * math.pi * z[:, -1])

    def inverse(self, x: Tensor) -> Tensor:
        return turned(x, -self.turns * math.pi * x[:, -1])


class Patches(Generator):
    """The sphere in patches: bands of |z_d| are turned, coordinates move on by one, and bands are turned again.

    The S bands have equal heights and turn by pi/S, pi/(S-1), ..., pi in the first two coordinates. Each step is a
    bijection that keeps |z_d|, hence the band, so that turning back is its inverse. It preserves the uniform law
    and is NOT continuous: neighbours on two sides of an edge are torn apart.

    Parameters
    ----------
    dimension : int
        d >= 3.
    bands : int
        S >= 1; 4 in the published experiments.
    """

    def __init__(self, dimension: int, *, bands: int = 4) -> None:
        super().__init__(dimension, at_least=3)
        require(bands >= 1, f"`bands` must be a whole number >= 1; got {bands!r}")
        self.bands = bands
        self.register_buffer("angles", math.pi / (self.bands - torch.arange(self.bands, dtype=torch.float64)))
        self.shape = (self.dimension,)

    def forward(self, z: Tensor) -> Tensor:
        angles = self.angles.to(z.dtype)
        for _ in range(2):
            z = turned(z, angles[band(z, self.bands)]).roll(1, dims=1)
        return z

    def inverse(self, x: Tensor) -> Tensor:
        angles = self.angles.to(x.dtype)
        for _ in range(2):
            x = x.roll(-1, dims=1)
            x = turned(x, -angles[band(x, self.bands)])
        return x


class Blobs(Generator):
    r"""Images (1, side, side ceil(d/2)): a square per two coordinates, with a blob at the place that they give,

        x_p = exp( -|u_p - (z_a, z_b)|^2 / (2 width^2) ),      u_p the pixels of a grid on [-1, 1]^2,

    the place of an odd last coordinate being (z_d, 0). Smooth. Injective, as log x_p + |u_p|^2/(2 width^2) is linear in
    u_p with slope (z_a, z_b)/width^2: the inverse is a linear regression on the log of the pixels.

    Parameters
    ----------
    dimension : int
    side : int
        At least 2 pixels.
    width : float
        Of a blob; .5 by default, where the darkest pixel is 5e-6 and float32 has all its digits.
    """

    def __init__(self, dimension: int, *, side: int = 6, width: float = 0.5) -> None:
        super().__init__(dimension)
        require(side >= 2, f"`side` must be a whole number >= 2; got {side!r}")
        require(width > 0, f"`width` must be > 0; got {width!r} (0.5 is usual)")
        self.side, self.width = side, width
        self.squares = (dimension + 1) // 2
        line = torch.linspace(-1, 1, side, dtype=torch.float64)
        self.register_buffer("grid", torch.cartesian_prod(line, line))
        self.shape = (1, side, side * self.squares)

    def forward(self, z: Tensor) -> Tensor:
        places = nn.functional.pad(z, (0, 2 * self.squares - self.dimension)).view(-1, self.squares, 1, 2)
        square = (self.grid.to(z.dtype) - places).square().sum(dim=-1)
        drawn = torch.exp(-square / (2 * self.width**2)).view(-1, self.squares, self.side, self.side)
        return drawn.transpose(1, 2).reshape(-1, *self.shape)

    def inverse(self, x: Tensor) -> Tensor:
        grid = self.grid.to(x.dtype)
        drawn = x.view(-1, self.side, self.squares, self.side).transpose(1, 2).reshape(-1, self.squares, self.side**2)
        logs = drawn.log() + grid.square().sum(dim=1) / (2 * self.width**2)
        # The grid is centred and its two columns are orthogonal, so each slope is a product.
        slopes = logs @ grid / grid.square().sum(dim=0)
        return (slopes * self.width**2).flatten(1)[:, : self.dimension]


GENERATORS = ("identity", "linear", "invertible-mlp", "spiral", "patches", "blobs")


def make_generator(name: str, dimension: int, *, seed: int = 0) -> Generator:
    """A generator by name, with its usual settings; the linear one has twice as many outputs as latents.

    Parameters
    ----------
    name : {"identity", "linear", "invertible-mlp", "spiral", "patches", "blobs"}
    dimension : int
        d of the latents.
    seed : int
        Of random weights, where there are any.
    """
    require(name in GENERATORS, f"`generator` must be one of {', '.join(GENERATORS)}; got {name!r}")
    made: dict[str, Any] = {
        "identity": lambda: Identity(dimension),
        "linear": lambda: LinearGenerator(dimension, outputs=2 * dimension, seed=seed),
        "invertible-mlp": lambda: InvertibleMLP(dimension, seed=seed),
        "spiral": lambda: Spiral(dimension),
        "patches": lambda: Patches(dimension),
        "blobs": lambda: Blobs(dimension),
    }
    generator: Generator = made[name]()
    return generator


def turned(z: Tensor, angle: Tensor) -> Tensor:
    """(n, d) rows with their first two coordinates turned by (n,) angles."""
    cos, sin = torch.cos(angle), torch.sin(angle)
    first, second = z[:, 0], z[:, 1]
    plane = torch.stack([cos * first - sin * second, sin * first + cos * second], dim=1)
    return torch.cat([plane, z[:, 2:]], dim=1)


def band(z: Tensor, bands: int) -> Tensor:
    """(n,) the band of |z_d| in which each row lies, 0 at the equator."""
    return (z[:, -1].abs() * bands).long().clamp_max(bands - 1)


def orthogonal(size: int, random: torch.Generator) -> Tensor:
    """(size, size) orthogonal matrix, uniform (QR of a normal matrix, with the signs that make it so)."""
    q, r = torch.linalg.qr(torch.randn(size, size, dtype=torch.float64, generator=random))
    return q * r.diagonal().sign()
