r"""Losses with kinks: hinges, hardest negatives. Affine minorants of the terms of a row, and where slopes jump.

A convex term f lies above each of its tangents, f(s) >= f(u) + <q, s - u> with q a derivative at u, and above every
mixture of them. Where f has a kink near t, the tangents from both sides of it, in a mixture that is free to choose, are
what certificates and solvers need in place of a gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from optgeom._numerics import Array, Vector

SEGMENTS = 64  # into which a range is cut where jumps of the slope are looked for
HALVINGS = 48
JUMP = 1e-6  # of the slope within rounding, relative to the largest slope: what counts as a kink
NEAR = 1e-7  # how far from a point the tangents on both sides of it are taken, relative to the range of t


@dataclass(frozen=True)
class Cuts:
    """Affine minorants of the terms of all rows.

    The risk is constant + sum over terms of weight (term); a cut of term k of row g says
    term >= level + sum_h count_gh slope_h t_gh.

    Attributes
    ----------
    row : (T,) intp
        Row g of each term.
    weight : (T,)
        m_g r_g times the weight of the term within its row.
    term : (K,) intp
        Term of each cut.
    level : (K,)
    slope : (K, G)
        Derivative in t_gh of one class.
    """

    row: npt.NDArray[np.intp]
    weight: Vector
    term: npt.NDArray[np.intp]
    level: Vector
    slope: Array

    def joined(self, other: Cuts) -> Cuts:
        """These cuts and others of the same terms, each once."""
        term, level = np.concatenate([self.term, other.term]), np.concatenate([self.level, other.level])
        slope = np.concatenate([self.slope, other.slope])
        size = np.maximum(1.0, np.abs(np.column_stack([level, slope])).max(axis=0))
        rounded = np.round(np.column_stack([level, slope]) / size, 13)
        kept = np.sort(np.unique(np.column_stack([term, rounded]), axis=0, return_index=True)[1])
        return Cuts(self.row, self.weight, term[kept], level[kept], slope[kept])


def jumps(slope: Callable[[Vector], Vector], low: float, high: float) -> Vector:
    """Points of [low, high] at which a non-decreasing slope jumps, ascending.

    Parameters
    ----------
    slope : callable
        From (n,) points to (n,) slopes.
    low, high : float

    Returns
    -------
    (m,)
        To rounding; jumps below `JUMP` of the largest slope, and several within one of 64 segments, may be missed.
    """
    edges = np.linspace(low, high, SEGMENTS + 1)
    at = np.asarray(slope(edges), dtype=np.float64)
    least = JUMP * max(float(np.max(np.abs(at))), 1e-300)
    left, right = edges[:-1].copy(), edges[1:].copy()
    from_left, from_right = at[:-1].copy(), at[1:].copy()
    for _ in range(HALVINGS):
        middle = (left + right) / 2
        between = np.asarray(slope(middle), dtype=np.float64)
        # The half with the larger rise; of a smooth slope the rise halves too, and is gone in the end.
        upper = from_right - between > between - from_left
        left, from_left = np.where(upper, middle, left), np.where(upper, between, from_left)
        right, from_right = np.where(upper, right, middle), np.where(upper, from_right, between)
    return np.asarray(((left + right) / 2)[from_right - from_left > least])
