"""The best map into a given dimension: a bracket, from several starts, certified only where its ends meet."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optgeom import _checks
from optgeom._numerics import Array
from optgeom.io import check_figure
from optgeom.programs.sampling import SamplingProgram
from optgeom.sampling import latents
from optgeom.sampling.conditionals import Slice
from optgeom.sampling.maps import GreatCircles, fibonacci
from optgeom.sampling.optimum import SamplingOptimum, gram_program
from optgeom.sampling.points import PointSet
from optgeom.solvers.limited import SMALL, best_found, quasi_newton

RANDOM_STARTS = 2
FOUND = 1e-7  # relative: what is below the identity by less is rounding of the search
DISTURBANCE = 1e-3  # lets symmetric starts move
UNIT = 1e-9  # error of a squared length


@dataclass(frozen=True, eq=False, kw_only=True)
class Bracket:
    """The least loss of a map into this dimension lies between the two.

    Attributes
    ----------
    dimension : int
    lower : float
        Certified optimum over all dimensions.
    best : float
        Least loss found.
    start : str
        Where the best one came from.
    gain : float
        How much the best one is below the identity, >= 0 where the identity fits into the dimension.
    rows : (n, columns)
        The best map of the points; columns of zeros are left out.
    """

    dimension: int
    lower: float
    best: float
    start: str
    gain: float
    rows: Array


def best_in_dimension(optimum: SamplingOptimum, dimension: int) -> Bracket:
    """Minimise over unit vectors of `dimension` columns.

    Starts are the identity, collapsed slices, great circles, the projected optimum, random points, and all at one
    point; few points are also searched as class means are, in one dimension over their signs.
    """
    size = wanted = _checks.integer("dim", dimension, at_least=1, hint="the dimension of the map")
    point_set, identity = optimum.point_set, optimum.loss_identity
    if optimum.identity_is_optimal and size >= point_set.points.shape[1]:
        return Bracket(
            dimension=size,
            lower=optimum.lower_bound,
            best=identity,
            start="identity",
            gain=0.0,
            rows=point_set.points,
        )
    # As many columns as there are points hold every map of them: more change nothing.
    size = min(size, max(point_set.points.shape))
    program = gram_program(point_set, optimum.temperature, optimum.rho)
    rng = np.random.default_rng(0)
    best, name, gram = np.inf, "", np.eye(point_set.n)
    for start, rows in _starts(optimum, program, size, rng).items():
        rows = rows + DISTURBANCE * rng.standard_normal(rows.shape)
        reached, risk, _ = quasi_newton(program, rows / np.linalg.norm(rows, axis=1)[:, None])
        if risk < best:
            best, name, gram = risk, start, reached
    together = np.ones((point_set.n, point_set.n))
    reached, risk = together, program.risk(together)
    if point_set.n <= SMALL or size == 1:
        reached, risk, _ = best_found(program, optimum.cosines, size)
    if risk < best:
        best, name, gram = risk, "one point" if reached is together else "search", reached
    if size >= point_set.points.shape[1] and identity - best <= FOUND * (1 + abs(best)):
        best, name, gram = identity, "identity", point_set.points @ point_set.points.T
    return Bracket(
        dimension=wanted,
        lower=optimum.lower_bound,
        best=best,
        start=name,
        gain=identity - best,
        rows=_rows(gram, size),
    )


def bracket_of(optimum: SamplingOptimum, rows: Array, *, dimension: int, best: float, start: str) -> Bracket:
    """The bracket of a map that is given: its loss is computed, and compared with the stated one.

    Raises
    ------
    ValueError
        Rows that are not unit rows of the points in this dimension.
    """
    point_set = optimum.point_set
    fits = (
        rows.ndim == 2 and rows.shape[0] == point_set.n and rows.shape[1] <= max(dimension, point_set.points.shape[1])
    )
    if not fits or not np.all(np.abs((rows**2).sum(axis=1) - 1) <= UNIT):
        raise ValueError("its best map is not one of unit rows for its points")
    gram = rows @ rows.T
    np.fill_diagonal(gram, 1.0)
    loss = gram_program(point_set, optimum.temperature, optimum.rho).risk(gram)
    check_figure("loss in this dimension", best, loss, 1 + abs(loss))
    return Bracket(
        dimension=dimension,
        lower=optimum.lower_bound,
        best=float(best),
        start=start,
        gain=optimum.loss_identity - float(best),
        rows=rows,
    )


def _rows(gram: Array, size: int) -> Array:
    """(n, size) unit rows of a Gram matrix of this rank."""
    values, axes = np.linalg.eigh(gram)
    rows = axes[:, -size:] * np.sqrt(np.maximum(values[-size:], 0.0))
    return np.asarray(rows / np.linalg.norm(rows, axis=1)[:, None])


def _starts(optimum: SamplingOptimum, program: object, size: int, rng: np.random.Generator) -> dict[str, Array]:
    point_set = optimum.point_set
    starts = {"identity": _columns(point_set.points, size)}
    if point_set.num_components > 1 and isinstance(program, SamplingProgram):
        starts["collapsed slices"] = _collapsed(point_set, program, size, rng)
    law = point_set.conditional
    if isinstance(law, Slice) and len(law.free) <= size:
        starts["great circles"] = _columns(GreatCircles(law.fixed)(point_set.points), size)
    values, axes = np.linalg.eigh(optimum.cosines)
    # Of equal eigenvalues a random part: columns of their eigenvectors can miss some points altogether.
    starts["optimum, projected"] = (axes * np.sqrt(np.maximum(values, 0.0))) @ rng.standard_normal((values.size, size))
    for number in range(RANDOM_STARTS):
        starts[f"random {number}"] = latents.uniform(rng, point_set.n, size)
    return starts


def _collapsed(point_set: PointSet, program: SamplingProgram, size: int, rng: np.random.Generator) -> Array:
    """Every component a point: placed evenly, then minimised as a program of that many points."""
    count = point_set.num_components
    places = fibonacci(count) if size == 3 else latents.uniform(rng, count, size)
    member = np.zeros((point_set.n, count))
    member[np.arange(point_set.n), point_set.component] = 1.0
    sizes = member.sum(axis=0)
    masses = member.T @ program.masses @ member / sizes[:, None]
    small = SamplingProgram(np.eye(count), (masses + masses.T) / 2, program.temperature)
    gram, _, _ = quasi_newton(small, places)
    values, axes = np.linalg.eigh(gram)
    return np.asarray((axes[:, -size:] * np.sqrt(np.maximum(values[-size:], 0.0)))[point_set.component])


def _columns(rows: Array, size: int) -> Array:
    """Exactly `size` columns."""
    return rows[:, :size] if rows.shape[1] >= size else np.pad(rows, ((0, 0), (0, size - rows.shape[1])))
