r"""Maps of the latents: orthogonal ones, and those that beat them where diversity is violated.

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
    rows = np.asarray(mapping(z), dtype=np.float64)
    if rows.ndim != 2 or rows.shape[0] != z.shape[0]:
        raise InvalidInputError(
            f"`mapping` must return one row per latent, {z.shape[0]} in all; got shape {rows.shape} (keep the rows)"
        )
    worst = float(np.max(np.abs((rows**2).sum(axis=1) - 1)))
    if not worst <= 1e-6:
        raise InvalidInputError(
            f"`mapping` must return unit rows; got a squared length off by {worst:.3g} (normalise its output)"
        )
    return rows
