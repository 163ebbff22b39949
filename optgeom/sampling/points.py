r"""Points that stand for a continuum of latents, with the law of positives on them.

    w_ij ~ p(z_j | z_i), rows normalised over the points that can be positives, the anchor included or not.

Slices need points in common: heights of equal shares of the sphere, and the same points on every slice. (Fibonacci heights are all
different: no two of its points share a slice.) Full support works with any points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from optgeom import _checks
from optgeom._numerics import Array, read_only
from optgeom.errors import InvalidInputError
from optgeom.programs.sampling import SamplingProgram
from optgeom.sampling import latents
from optgeom.sampling.asymptotic import check_rho
from optgeom.sampling.conditionals import Conditional, Slice
from optgeom.sampling.maps import fibonacci

LARGEST = 3000


@dataclass(frozen=True, eq=False)
class PointSet:
    """Points with the law of positives.

    Attributes
    ----------
    conditional : Conditional
    points : (n, d)
    rows : (n, n)
        Probabilities of the positives; rows sum to 1.
    component : (n,) int
        Connected component of the support graph that each point belongs to.
    slices, per_slice : int
        R slices of m points each, slice by slice; one slice where the whole sphere is one component.
    self_included : bool
        Whether the anchor is one of its positives and negatives.
    """

    conditional: Conditional
    points: Array
    rows: Array
    component: npt.NDArray[np.intp]
    slices: int
    per_slice: int
    self_included: bool

    @property
    def n(self) -> int:
        return int(self.points.shape[0])

    @property
    def num_components(self) -> int:
        return int(self.component.max()) + 1

    @property
    def equispaced(self) -> bool:
        """Whether every slice is a circle (or a pair) of equispaced points, which rotations move around."""
        return isinstance(self.conditional, Slice) and len(self.conditional.free) <= 2

    def program(self, temperature: float, rho: float = 0.0) -> SamplingProgram:
        """The convex program at this temperature; rho is the share of negatives from the anchor's own component."""
        tau = _checks.real("temperature", temperature, above=0.0, hint="usual values are 0.05 to 1")
        check_rho(rho)
        if not self.self_included:
            raise InvalidInputError("`self_included` must be true for this program; got False (without the anchor it is og.realize)")
        same = self.component[:, None] == self.component[None, :]
        own = np.bincount(self.component)[self.component]
        return SamplingProgram(self.rows, 1 - rho + rho * same * (self.n / own)[:, None], tau)


def point_set(
    conditional: Conditional, slices: int = 40, per_slice: int = 10, *, self_included: bool | None = None, points: Array | None = None
) -> PointSet:
    """Discretise the sphere: R slices of m points where coordinates are fixed, R m points elsewhere.

    Parameters
    ----------
    conditional : Conditional
    slices, per_slice : int
        R >= 1 and m >= 2.
    self_included : bool, optional
        By default with slices or caps, where leaving the anchor out would bias the loss; not with full support, where any points do.
    points : (n, d), optional
        Unit rows to use instead; without fixed coordinates only.
    """
    count = int(_checks.integer("slices", slices, at_least=1))
    each = int(_checks.integer("per_slice", per_slice, at_least=2))
    included = not conditional.full_support if self_included is None else self_included
    if count * each > LARGEST:
        raise InvalidInputError(f"`slices` times `per_slice` must be at most {LARGEST}; got {count * each} (take fewer points)")
    if isinstance(conditional, Slice):
        _checks.integer("slices", slices, at_least=2, hint="a single slice does not show that slices are apart")
        if points is not None:
            raise InvalidInputError("`points` must be left out where coordinates are fixed; got some (no two would share a slice)")
        if not included:
            raise InvalidInputError("`self_included` must be true on slices; got False (the anchor is a sizeable part of its slice)")
        return _on_slices(conditional, count, each)
    if conditional.fixed:
        raise InvalidInputError("`conditional` must be a single slice to be discretised; got a mixture of slices (take its parts)")
    z = _evenly(count * each, conditional.dimension) if points is None else latents.unit_rows("points", points, conditional.dimension)
    logs = conditional.log_density(z[:, None, :], z[None, :, :])
    if not included:
        np.fill_diagonal(logs, -np.inf)
    if not np.isfinite(logs.max(axis=1)).all():
        raise InvalidInputError("`points` must give every anchor a positive; got one without (take more points, or a wider law)")
    component = _components(np.isfinite(logs))
    return PointSet(conditional, read_only(z), _softmax(logs), component, 1, z.shape[0], included)


def _on_slices(conditional: Slice, count: int, each: int) -> PointSet:
    free, fixed = list(conditional.free), list(conditional.fixed)
    # Quantiles of a coordinate, or of the length of several, at the middle of equal shares: -1 + (2r+1)/R on S^2.
    middle = (np.arange(count) + 0.5) / count
    d = conditional.dimension
    if len(fixed) == 1:
        still = (2 * special.betaincinv((d - 1) / 2, (d - 1) / 2, middle) - 1)[:, None]
    else:
        # Two slices of each radius, as the heights of S^2 have: slices of one radius are cheap.
        levels = -(-count // 2)
        square = special.betaincinv(len(fixed) / 2, len(free) / 2, (np.arange(count) // 2 + 0.5) / levels)
        still = np.sqrt(square)[:, None] * _evenly(count, len(fixed))
    direction = np.array([[1.0], [-1.0]]) if len(free) == 1 else _evenly(each, len(free))
    each = direction.shape[0]
    radius = np.sqrt(np.maximum(0.0, 1 - (still**2).sum(axis=1)))
    z = np.empty((count, each, d))
    z[:, :, fixed] = still[:, None, :]
    z[:, :, free] = radius[:, None, None] * direction
    logs = conditional.concentration(z[:, 0])[:, None, None] * (direction @ direction.T)
    rows = np.zeros((count * each, count * each))
    for ring in range(count):
        part = slice(ring * each, (ring + 1) * each)
        rows[part, part] = _softmax(logs[ring])
    return PointSet(conditional, read_only(z.reshape(-1, d)), read_only(rows), np.repeat(np.arange(count), each), count, each, True)


def _evenly(n: int, dimension: int) -> Array:
    """Equispaced on a circle, a Fibonacci lattice on S^2, seeded and random above."""
    if dimension == 2:
        turn = 2 * math.pi * np.arange(n) / n
        return np.column_stack([np.cos(turn), np.sin(turn)])
    return fibonacci(n) if dimension == 3 else latents.uniform(np.random.default_rng(0), n, dimension)


def _softmax(logs: Array) -> Array:
    found = np.exp(logs - logs.max(axis=1)[:, None])
    return read_only(np.asarray(found / found.sum(axis=1)[:, None]))


def _components(linked: npt.NDArray[np.bool_]) -> npt.NDArray[np.intp]:
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    return np.asarray(connected_components(csr_array(linked), directed=False)[1], dtype=np.intp)
