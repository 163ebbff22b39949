r"""Points that stand for a continuum of latents, with the law of positives on them.

    w_ij ~ p(z_j | z_i), rows normalised over the points that can be positives, the anchor included or not.

Slices need points in common: heights of equal shares of the sphere, and the same points on every slice. (Fibonacci
heights are all different: no two of its points share a slice.) Full support works with any points. A mixture of slices
with the same fixed coordinates, or of such slices and laws of full support, is put on slices too; slices that fix
different coordinates have no points in common.
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
from optgeom.sampling.conditionals import Conditional, Mixture, Slice
from optgeom.sampling.cyclic import cyclic_points
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
    circulant : bool
        Whether points are on slices alone, and every slice looks the same from each of its points, in cyclic order.
    """

    conditional: Conditional
    points: Array
    rows: Array
    component: npt.NDArray[np.intp]
    slices: int
    per_slice: int
    self_included: bool
    circulant: bool = False

    @property
    def n(self) -> int:
        return int(self.points.shape[0])

    @property
    def num_components(self) -> int:
        return int(self.component.max()) + 1

    @property
    def mean_cosine(self) -> float:
        """E z.z+ on the points, to be compared with that of the law: they differ where points are too coarse for it."""
        return float(np.einsum("ij,ij->", self.rows, self.points @ self.points.T)) / self.n

    def support(self) -> npt.NDArray[np.bool_]:
        """(n, n) whether j can be a positive of i."""
        if self.conditional.full_support or self.conditional.fixed:
            return np.asarray(self.component[:, None] == self.component[None, :])
        return self.conditional.contains(self.points[:, None, :], self.points[None, :, :])

    def program(self, temperature: float, rho: float = 0.0) -> SamplingProgram:
        """The convex program at this temperature; rho is the share of negatives from the anchor's own support."""
        tau = _checks.real("temperature", temperature, above=0.0, hint="usual values are 0.05 to 1")
        check_rho(rho)
        if not self.self_included:
            raise InvalidInputError(
                "`self_included` must be true for this program; got False (without the anchor it is og.realize)"
            )
        own = self.support().astype(np.float64)
        # Supports on a continuum are of one size each, those on points of a cap are not quite: their mean keeps masses
        # symmetric.
        return SamplingProgram(self.rows, 1 - rho + rho * own * (own.size / float(own.sum())), tau)


def point_set(
    conditional: Conditional,
    slices: int = 40,
    per_slice: int = 10,
    *,
    self_included: bool | None = None,
    points: Array | None = None,
) -> PointSet:
    """Discretise the sphere: R slices of m points where coordinates are fixed, R m points elsewhere.

    Parameters
    ----------
    conditional : Conditional
    slices, per_slice : int
        R >= 1 and m >= 2.
    self_included : bool, optional
        By default with slices or caps, where leaving the anchor out would bias the loss; not with full support, where
        any points do.
    points : (n, d), optional
        Unit rows to use instead; without fixed coordinates only.
    """
    count = _checks.integer("slices", slices, at_least=1)
    each = _checks.integer("per_slice", per_slice, at_least=2)
    included = not conditional.full_support if self_included is None else self_included
    if count * each > LARGEST:
        raise InvalidInputError(
            f"`slices` times `per_slice` must be at most {LARGEST}; got {count * each} (take fewer points)"
        )
    if count * each < 3:
        raise InvalidInputError(
            f"`slices` times `per_slice` must be at least 3; got {count * each} (two points have nothing to compare)"
        )
    if on_slices(conditional):
        _checks.integer("slices", slices, at_least=2, hint="a single slice does not show that slices are apart")
        if points is not None:
            raise InvalidInputError(
                "`points` must be left out where coordinates are fixed; got some (no two would share a slice)"
            )
        if self_included is False:
            raise InvalidInputError(
                "`self_included` must be true on slices; got False (the anchor is a sizeable part of its slice)"
            )
        return _on_slices(conditional, count, each)
    z = (
        _evenly(count * each, conditional.dimension)
        if points is None
        else latents.unit_rows("points", points, conditional.dimension)
    )
    logs = conditional.log_density(z[:, None, :], z[None, :, :])
    if not included:
        np.fill_diagonal(logs, -np.inf)
    if not np.isfinite(logs.max(axis=1)).all():
        raise InvalidInputError(
            "`points` must give every anchor a positive; got one without (take more points, or a wider law)"
        )
    component = _components(np.isfinite(logs))
    return PointSet(conditional, read_only(z), _softmax(logs), component, 1, z.shape[0], included)


def on_slices(conditional: Conditional) -> bool:
    """Whether points of this law are on slices.

    Raises
    ------
    InvalidInputError
        A mixture of slices that fix different coordinates, or of slices and caps.
    """
    if not isinstance(conditional, Mixture):
        return isinstance(conditional, Slice)
    slices = [part for part in conditional.parts if isinstance(part, Slice)]
    rest = [part for part in conditional.parts if not isinstance(part, Slice)]
    nested = any(part.fixed or (slices and not part.full_support) for part in rest)
    if nested or len({part.fixed for part in slices}) > 1:
        raise InvalidInputError(
            "`conditional` must be slices with the same fixed coordinates, or these with laws of full support, to be discretised; "
            "got a mixture of other slices (take its parts)"
        )
    return bool(slices)


def _on_slices(conditional: Conditional, count: int, each: int) -> PointSet:
    parts = conditional.parts if isinstance(conditional, Mixture) else (conditional,)
    weights = conditional.weights if isinstance(conditional, Mixture) else (1.0,)
    first = next(part for part in parts if isinstance(part, Slice))
    free, fixed = list(first.free), list(first.fixed)
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
    cyclic = cyclic_points(each, len(free))
    direction = _evenly(each, len(free)) if cyclic is None else cyclic
    each = direction.shape[0]
    radius = np.sqrt(np.maximum(0.0, 1 - (still**2).sum(axis=1)))
    z = np.empty((count, each, d))
    z[:, :, fixed] = still[:, None, :]
    z[:, :, free] = radius[:, None, None] * direction
    rows = np.zeros((count * each, count * each))
    for part, weight in zip(parts, weights, strict=True):
        if not isinstance(part, Slice):
            everywhere = z.reshape(-1, d)
            rows += weight * _softmax(part.log_density(everywhere[:, None, :], everywhere[None, :, :]))
            continue
        logs = part.concentration(z[:, 0])[:, None, None] * (direction @ direction.T)
        for ring in range(count):
            block = slice(ring * each, (ring + 1) * each)
            rows[block, block] += weight * _softmax(logs[ring])
    component = np.zeros(count * each, dtype=np.intp) if conditional.full_support else np.repeat(np.arange(count), each)
    alone = cyclic is not None and not conditional.full_support
    return PointSet(conditional, read_only(z.reshape(-1, d)), read_only(rows), component, count, each, True, alone)


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

    return np.asarray(connected_components(csr_array(linked.astype(np.int8)), directed=False)[1], dtype=np.intp)
