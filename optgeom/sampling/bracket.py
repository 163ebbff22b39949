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
from optgeom.solvers.limited import quasi_newton

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

    Starts are the identity, collapsed slices, great circles, the projected optimum, and random points.
    """
    size = wanted = _checks.integer("dim", dimension, at_least=1, hint="the dimension of the map")
    held, identity = optimum.held, optimum.loss_identity
    if optimum.identity_is_optimal and size >= held.points.shape[1]:
        return Bracket(
            dimension=size,
            lower=optimum.lower_bound,
            best=identity,
            start="identity",
            gain=0.0,
            rows=held.points,
        )
    # As many columns as there are points hold every map of them: more change nothing.
    size = min(size, max(held.points.shape))
    program = gram_program(held, optimum.temperature, optimum.rho)
    rng = np.random.default_rng(0)
    best, name, gram = np.inf, "", np.eye(held.n)
    for start, rows in _starts(optimum, program, size, rng).items():
        rows = rows + DISTURBANCE * rng.standard_normal(rows.shape)
        reached, risk, _ = quasi_newton(program, rows / np.linalg.norm(rows, axis=1)[:, None])
        if risk < best:
            best, name, gram = risk, start, reached
    if size >= held.points.shape[1] and identity - best <= FOUND * (1 + abs(best)):
        best, name, gram = identity, "identity", held.points @ held.points.T
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
    held = optimum.held
    fits = rows.ndim == 2 and rows.shape[0] == held.n and rows.shape[1] <= max(dimension, held.points.shape[1])
    if not fits or not np.all(np.abs((rows**2).sum(axis=1) - 1) <= UNIT):
        raise ValueError("its best map is not one of unit rows for its points")
    gram = rows @ rows.T
    np.fill_diagonal(gram, 1.0)
    loss = gram_program(held, optimum.temperature, optimum.rho).risk(gram)
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
    held = optimum.held
    found = {"identity": _columns(held.points, size)}
    if held.num_components > 1 and isinstance(program, SamplingProgram):
        found["collapsed slices"] = _collapsed(held, program, size, rng)
    law = held.conditional
    if isinstance(law, Slice) and len(law.free) <= size:
        found["great circles"] = _columns(GreatCircles(law.fixed)(held.points), size)
    values, axes = np.linalg.eigh(optimum.cosines)
    # Of equal eigenvalues a random part: columns of their eigenvectors can miss some points altogether.
    found["optimum, projected"] = (axes * np.sqrt(np.maximum(values, 0.0))) @ rng.standard_normal((values.size, size))
    for number in range(RANDOM_STARTS):
        found[f"random {number}"] = latents.uniform(rng, held.n, size)
    return found


def _collapsed(held: PointSet, program: SamplingProgram, size: int, rng: np.random.Generator) -> Array:
    """Every component a point: placed evenly, then minimised as a program of that many points."""
    count = held.num_components
    places = fibonacci(count) if size == 3 else latents.uniform(rng, count, size)
    member = np.zeros((held.n, count))
    member[np.arange(held.n), held.component] = 1.0
    sizes = member.sum(axis=0)
    masses = member.T @ program.masses @ member / sizes[:, None]
    small = SamplingProgram(np.eye(count), (masses + masses.T) / 2, program.temperature)
    gram, _, _ = quasi_newton(small, places)
    values, axes = np.linalg.eigh(gram)
    return np.asarray((axes[:, -size:] * np.sqrt(np.maximum(values[-size:], 0.0)))[held.component])


def _columns(rows: Array, size: int) -> Array:
    """Exactly `size` columns."""
    return rows[:, :size] if rows.shape[1] >= size else np.pad(rows, ((0, 0), (0, size - rows.shape[1])))
