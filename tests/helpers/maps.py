"""Maps of the latents that serve as witnesses: one that no loss tells from the identity, one that nears the infimum."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optgeom._numerics import Array
from optgeom.sampling.maps import fibonacci


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
        twisted = z.copy()
        twisted[:, free[0]] = np.cos(turn) * z[:, free[0]] - np.sin(turn) * z[:, free[1]]
        twisted[:, free[1]] = np.sin(turn) * z[:, free[0]] + np.cos(turn) * z[:, free[1]]
        return twisted


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
