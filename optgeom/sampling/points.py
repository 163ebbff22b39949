r"""Points that stand for a continuum of latents, with the law of positives on them.

    w_ij ~ p(z_j | z_i), rows normalised over the points that can be positives, the anchor included or not.

Slices need points in common: heights of equal shares of the sphere, and the same points on every slice. (Fibonacci
heights are all different: no two of its points share a slice.) Full support works with any points. A mixture of slices
with the same fixed coordinates, or of such slices and laws of full support, is put on slices too; slices that fix
different coordinates have no points in common.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from optgeom import _checks
from optgeom._numerics import Array, read_only
from optgeom.errors import IncompatibleError, InvalidInputError
from optgeom.programs.sampling import SamplingProgram
from optgeom.sampling import latents
from optgeom.sampling.asymptotic import check_rho
from optgeom.sampling.caps import Cap
from optgeom.sampling.conditionals import Conditional, Mixture, Slice, VonMisesFisher
from optgeom.sampling.maps import fibonacci

LARGEST = 3000
FEW = 4  # points per coordinate in cyclic order; beyond, other points are spread better

LAWS: dict[str, type[Conditional]] = {
    "von-mises-fisher": VonMisesFisher,
    "slice": Slice,
    "cap": Cap,
    "mixture": Mixture,
}


def law_to_dict(law: Conditional) -> dict[str, Any]:
    """Name and parameters of a law, ready for JSON."""
    for name, kind in LAWS.items():
        if type(law) is kind:
            parameters = {part.name: getattr(law, part.name) for part in fields(law)}  # type: ignore[arg-type]
            if name == "mixture":
                parameters["parts"] = [law_to_dict(part) for part in parameters["parts"]]
            return {"name": name, **parameters}
    raise IncompatibleError(
        f"`conditional` must be one of {', '.join(LAWS)} to be saved; got {type(law).__name__} "
        "(save its figures: as_dict)"
    )


def law_from_dict(described: dict[str, Any]) -> Conditional:
    """Law that `law_to_dict` described."""
    parameters = {key: value for key, value in described.items() if key != "name"}
    if described["name"] == "mixture":
        parameters["parts"] = [law_from_dict(part) for part in parameters["parts"]]
    lists = {key: tuple(value) for key, value in parameters.items() if isinstance(value, list)}
    return LAWS[described["name"]](**{**parameters, **lists})


@dataclass(frozen=True, eq=False, kw_only=True)
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
        """E z.z+ on the points; it differs from that of the law where the points are too coarse."""
        return float(np.einsum("ij,ij->", self.rows, self.points @ self.points.T)) / self.n

    def to_parts(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Plain values and arrays for a file, which `from_parts` reads."""
        document = {
            "law": law_to_dict(self.conditional),
            "slices": self.slices,
            "per_slice": self.per_slice,
            "self_included": self.self_included,
        }
        return document, {"points": self.points}

    @staticmethod
    def from_parts(document: dict[str, Any], arrays: dict[str, Any]) -> PointSet:
        """Point set in a file, of its law; raises ValueError where the points are not those of the law."""
        law, given = law_from_dict(document["law"]), arrays["points"].astype(np.float64)
        if on_slices(law):
            made = point_set(law, document["slices"], document["per_slice"])
        else:
            made = point_set(law, self_included=bool(document["self_included"]), points=given)
        if made.points.shape != given.shape or not np.allclose(made.points, given, rtol=0, atol=1e-9):
            raise ValueError("its points are not those of its law")
        return made

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
    return PointSet(
        conditional=conditional,
        points=read_only(z),
        rows=_softmax(logs),
        component=component,
        slices=1,
        per_slice=z.shape[0],
        self_included=included,
    )


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
            "`conditional` must be slices with the same fixed coordinates, or these with laws of full support, to be "
            "discretised; got a mixture of other slices (take its parts)"
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
    return PointSet(
        conditional=conditional,
        points=read_only(z.reshape(-1, d)),
        rows=read_only(rows),
        component=component,
        slices=count,
        per_slice=each,
        self_included=True,
        circulant=alone,
    )


def cyclic_points(m: int, dimension: int) -> Array | None:
    r"""(m, dimension) points in cyclic order, well apart (2 points in dimension 1); None where no good ones are known.

    A rotation of order m permutes the points, so their Gram matrix is circulant. Every such set is an orbit of x_k =
    (a_f cos(2 pi f k/m), a_f sin(2 pi f k/m))_f over some frequencies f, where f = m/2 has one coordinate, (-1)^k.
    With amplitudes in proportion to the number of coordinates the points have mean 0 and the same second moment in all
    directions: a regular simplex for m - 1 coordinates, the octahedron for six points of R^3. They lie on a curve, so
    they stand for the sphere only while they are few.
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


def _evenly(n: int, dimension: int) -> Array:
    """Equispaced on a circle, a Fibonacci lattice on S^2, seeded and random above."""
    if dimension == 2:
        turn = 2 * math.pi * np.arange(n) / n
        return np.column_stack([np.cos(turn), np.sin(turn)])
    return fibonacci(n) if dimension == 3 else latents.uniform(np.random.default_rng(0), n, dimension)


def _softmax(logs: Array) -> Array:
    shares = np.exp(logs - logs.max(axis=1)[:, None])
    return read_only(np.asarray(shares / shares.sum(axis=1)[:, None]))


def _components(linked: npt.NDArray[np.bool_]) -> npt.NDArray[np.intp]:
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    return np.asarray(connected_components(csr_array(linked.astype(np.int8)), directed=False)[1], dtype=np.intp)
