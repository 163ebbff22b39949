r"""Maps of the latents that have a part in the answer: orthogonal ones, and those that beat them when diversity is
violated.

A map takes (n, d) latents to (n, q) unit rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from optgeom import _checks
from optgeom._numerics import Array
from optgeom.errors import InvalidInputError

Map = Callable[[Array], Array]


def identity(z: Array) -> Array:
    """h(z) = z: the true latents. All orthogonal maps have its loss."""
    return z


@dataclass(frozen=True)
class GreatCircles:
    """h(z) = v/|v|: slices lose their fixed coordinates and become great spheres.

    Attributes
    ----------
    axes : tuple of int
        The fixed coordinates.
    """

    axes: tuple[int, ...]

    def __call__(self, z: Array) -> Array:
        free = np.delete(z, self.axes, axis=1)
        length = np.linalg.norm(free, axis=1)[:, None]
        first = np.zeros_like(free)
        first[:, 0] = 1.0
        return np.asarray(np.where(length > 0, free / np.where(length > 0, length, 1.0), first))


@dataclass(frozen=True)
class Twist:
    """Turn every circular slice by its own angle, `rate` radians for each unit of the fixed coordinate.

    Products within slices stay and those between slices do not, but the uniform law of the sphere does: no orthogonal
    map, and the same loss as the identity for every share of corrected negatives. Not even the corrected loss can tell
    the two apart.

    Attributes
    ----------
    axis : int
        The fixed coordinate of S^2.
    rate : float
    """

    axis: int
    rate: float

    def __call__(self, z: Array) -> Array:
        free = [axis for axis in range(3) if axis != self.axis]
        turn = self.rate * z[:, self.axis]
        found = z.copy()
        found[:, free[0]] = np.cos(turn) * z[:, free[0]] - np.sin(turn) * z[:, free[1]]
        found[:, free[1]] = np.sin(turn) * z[:, free[0]] + np.cos(turn) * z[:, free[1]]
        return found


@dataclass(frozen=True)
class RingsToFibonacci:
    """Every band of height 2/R around an axis of S^2 goes to one point of a Fibonacci lattice of R points.

    The band says all that matters about the fixed coordinate, so positives coincide, and the points are spread evenly:
    for R to infinity the loss falls to the infimum over all maps into S^2.

    Attributes
    ----------
    rings : int
    axis : int
        The fixed coordinate.
    """

    rings: int
    axis: int = 2

    @property
    def edges(self) -> Array:
        """(R + 1,) heights at which the map jumps: break the quadrature there."""
        return np.linspace(-1.0, 1.0, self.rings + 1)

    def __call__(self, z: Array) -> Array:
        band = np.clip(np.floor((z[:, self.axis] + 1) / 2 * self.rings).astype(np.intp), 0, self.rings - 1)
        return np.asarray(fibonacci(self.rings)[band])


def fibonacci(n: int) -> Array:
    """(n, 3) Fibonacci lattice: heights -1 + (2i + 1)/n, each turned by the golden angle."""
    _checks.integer("n", n, at_least=1)
    i = np.arange(n)
    height = -1 + (2 * i + 1) / n
    angle = math.pi * (3 - math.sqrt(5)) * i
    radius = np.sqrt(1 - height**2)
    return np.column_stack([radius * np.cos(angle), radius * np.sin(angle), height])


def image(mapping: Map, z: Array) -> Array:
    """Apply a map and check that its rows are unit vectors."""
    found = np.asarray(mapping(z), dtype=np.float64)
    if found.ndim != 2 or found.shape[0] != z.shape[0]:
        raise InvalidInputError(
            f"`mapping` must return a row for each of {z.shape[0]} latents; got shape {found.shape} (keep the rows)"
        )
    worst = float(np.max(np.abs((found**2).sum(axis=1) - 1)))
    if not worst <= 1e-6:
        raise InvalidInputError(
            f"`mapping` must return unit rows; got a squared length off by {worst:.3g} (normalise its output)"
        )
    return found
