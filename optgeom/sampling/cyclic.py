r"""Points on a sphere that a rotation of order m moves around: their Gram matrix is circulant.

Every such set is an orbit of x_k = (a_f cos(2 pi f k/m), a_f sin(2 pi f k/m))_f over some frequencies f, where f = m/2
has one coordinate, (-1)^k. With amplitudes in proportion to the number of coordinates the points have mean 0 and the
same second moment in all directions: a regular simplex for m - 1 coordinates, the octahedron for six points of R^3.
They lie on a curve, so they stand for the sphere only while they are few.
"""

from __future__ import annotations

import math

import numpy as np

from optgeom._numerics import Array

FEW = 4  # points for each coordinate; beyond, other points are spread better


def cyclic_points(m: int, dimension: int) -> Array | None:
    """(m, dimension) points in cyclic order, well apart; 2 in dimension 1.

    None where there are none, or only bad ones.
    """
    if dimension == 1:
        return np.array([[1.0], [-1.0]])
    if dimension > 2 and m > FEW * dimension:
        return None
    width = min(dimension, m - 1)
    if width % 2 == 1 and m % 2 == 1:  # an odd number of coordinates needs the alternating one
        return None
    turns = 2 * math.pi * np.arange(m) / m
    chosen = [0.5 * m] if width % 2 == 1 else []
    square = np.cos(0.5 * m * turns) / width if chosen else np.zeros(m)  # cosines at each lag
    left = list(range(1, (m + 1) // 2))
    for _ in range(width // 2):
        # The first frequency keeps all points different; each further one is that which keeps the nearest two furthest
        # apart.
        nearest = (
            [float(np.max((square + 2 * np.cos(f * turns) / width)[1:])) for f in left]
            if square.any() and 1 not in left
            else []
        )
        best = left[int(np.argmin(nearest))] if nearest else left[0]
        left.remove(best)
        chosen.append(float(best))
        square = square + 2 * np.cos(best * turns) / width
    columns = [np.cos(chosen[0] * turns)[:, None] / math.sqrt(width)] if width % 2 == 1 else []
    for frequency in chosen[width % 2 :]:
        columns.append(np.column_stack([np.cos(frequency * turns), np.sin(frequency * turns)]) * math.sqrt(2 / width))
    return np.pad(np.hstack(columns), ((0, 0), (0, dimension - width)))
