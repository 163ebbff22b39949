r"""Embedding dimension below the rank of the optimum: a bracket, honestly not a certificate.

The rank constraint makes the program non-convex (an open problem in the literature). Factors with exactly d columns are
minimised from several starts; the best risk found is the upper end of the bracket. The lower end is the certified risk
without the constraint, or `certificates.few_dimensions.least_risk` where that is higher.

Small problems are minimised to second order (`low_rank.local_minimum`). Large ones are flat along many directions, and
the Newton systems there take thousands of products each: a quasi-Newton method gets as low in a twentieth of the time,
to the accuracy of a bracket.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TypeGuard

import numpy as np

from optgeom._numerics import Array, Square
from optgeom.losses.rows import LogSumRows
from optgeom.programs.class_mean import ClassMeanProgram
from optgeom.programs.gram_program import GramProgram
from optgeom.solvers import line
from optgeom.solvers.low_rank import local_minimum

# Small problems have many local minima and cost milliseconds per start; the minima of large ones are alike.
MOST_STARTS, START_BUDGET = 24, 2000
LARGE = 2000  # coordinates beyond which the accuracy of a bracket is enough, and one start
ACCURATE = (1e-10, 300)  # stationarity and steps
# Up to this many rows a hundred descents cost a fraction of a second: random starts, then pairs of rows exchanged in
# the lowest of them, up to a number of descents in all. The lowest then are minimised to second order.
SMALL, SCREENED, EXCHANGES, POLISHED = 12, 40, 360, 10
SCREENING, DISTINCT = 1e-9, 1e-8  # relative: decrease of a step at the end of these descents, difference of two minima
# Relative decrease per step at which a large problem ends: the bracket is thousands of times wider.
SMALLEST_DECREASE, MOST_STEPS, MEMORY = 1e-7, 400, 20
ROUNDS = 20  # of majorizers


def best_found(program: GramProgram, relaxed: Square, dim: int) -> tuple[Array, float, int]:
    """Best Gram matrix of `dim` columns found, its risk, and the number of steps.

    `program` keeps every member apart (in so few dimensions equal ones need not be treated equally); `relaxed` is the
    optimum without the constraint, whose leading eigenvectors are the first start. Starts are seeded: the answer is
    reproducible. It is never worse than all rows at one point, which no descent reaches from elsewhere.
    """
    if dim == 1:
        return line.best_on_line(program, relaxed)
    rng = np.random.default_rng(0)
    first = spectral_start(relaxed, dim, rng)
    cosines, risk, steps = _best_reached(program, first, rng)
    together = np.ones_like(relaxed)
    at_one_point = program.risk(together)
    return (together, at_one_point, steps) if at_one_point < risk else (cosines, risk, steps)


def _best_reached(program: GramProgram, first: Array, rng: np.random.Generator) -> tuple[Array, float, int]:
    """The lowest of the local minima below `first` and random starts."""
    if first.size > LARGE:
        return quasi_newton(program, first)
    dim, steps, starts = first.shape[1], 0, [first]
    if len(first) <= SMALL:
        low, steps = _screen(_cheap(program, first), first, rng)
        starts += [points_of(cosines, dim) for cosines in low]
    else:
        starts += list(rng.standard_normal((int(np.clip(START_BUDGET // first.size, 1, MOST_STARTS)), *first.shape)))
    minima = [local_minimum(program, _unit(start), *ACCURATE) for start in starts]
    steps += sum(taken for *_, taken in minima)
    best = min(minima, key=lambda minimum: minimum[1])
    if len(first) <= SMALL and _is_expectation(program):  # what was exchanged so far is near it only
        (near, *_), _ = _exchange(program, best, dim, EXCHANGES // 12)
        there = local_minimum(program, points_of(near, dim), *ACCURATE)
        best, steps = min(best, there, key=lambda minimum: minimum[1]), steps + there[2]
    return best[0], best[1], steps


def _screen(program: GramProgram, first: Array, rng: np.random.Generator) -> tuple[list[Array], int]:
    """Low local minima, roughly, and the steps: of random starts the best, then rows exchanged.

    Most local minima are the same shape with its places given to other rows. Exchanging two rows of a good one and
    descending again finds better ones with fewer descents than further random starts.
    """
    reached = [quasi_newton(program, start, SCREENING) for start in rng.standard_normal((SCREENED, *first.shape))]
    steps = sum(taken for *_, taken in reached)
    lowest = _distinct(reached)
    improved, left = [], EXCHANGES
    for minimum in [quasi_newton(program, first, SCREENING), *lowest]:
        better, tried = _exchange(program, minimum, first.shape[1], left)
        improved.append(better)
        left, steps = left - tried, steps + better[2]
        if left <= 0:
            break
    return [cosines for cosines, *_ in _distinct([*improved, *lowest])[:POLISHED]], steps


def _distinct(minima: list[tuple[Array, float, int]]) -> list[tuple[Array, float, int]]:
    """From the lowest on, each with another risk."""
    kept: list[tuple[Array, float, int]] = []
    for minimum in sorted(minima, key=lambda minimum: minimum[1]):
        if not kept or minimum[1] - kept[-1][1] > DISTINCT * (1 + abs(minimum[1])):
            kept.append(minimum)
    return kept


def _exchange(
    program: GramProgram, minimum: tuple[Array, float, int], dim: int, most: int
) -> tuple[tuple[Array, float, int], int]:
    """Exchange pairs of rows and descend, until no pair lowers the risk.

    Gram matrix, risk and steps, and the number of descents, `most` at most.
    """
    cosines, risk, _ = minimum
    steps = 0
    pairs = list(itertools.combinations(range(len(cosines)), 2))
    since = tried = 0  # pairs without success since the last one, and in all
    for first, second in itertools.islice(itertools.cycle(pairs), most):
        if since == len(pairs):
            break
        tried += 1
        rows = points_of(cosines, dim)
        rows[[first, second]] = rows[[second, first]]
        there, lower, taken = quasi_newton(program, rows, SCREENING)
        steps, since = steps + taken, since + 1
        if risk - lower > DISTINCT * (1 + abs(risk)):
            cosines, risk, since = there, lower, 0
    return (cosines, risk, steps), tried


def _cheap(program: GramProgram, start: Array) -> GramProgram:
    """The program, or a log-sum near it where its exact expectation takes hundreds of exponentials per entry."""
    return surrogate(program, _gram(_unit(start))) if _is_expectation(program) else program


def spectral_start(relaxed: Square, dim: int, rng: np.random.Generator) -> Array:
    """(n, d) leading eigenvectors of the optimum without the constraint, disturbed, since they may be a saddle."""
    eigenvalues, vectors = np.linalg.eigh(relaxed)
    spectral = vectors[:, -dim:] * np.sqrt(np.maximum(eigenvalues[-dim:], 0.0))
    return np.asarray(spectral + 1e-3 * rng.standard_normal(spectral.shape))


def quasi_newton(
    program: GramProgram, start: Array, smallest_decrease: float = SMALLEST_DECREASE
) -> tuple[Array, float, int]:
    """L-BFGS over rows of any length, which are divided by it: Gram matrix, risk, steps."""
    from scipy.optimize import minimize

    def unit(coordinates: Array) -> tuple[Array, Array, Array]:
        rows = coordinates.reshape(start.shape)
        lengths = np.linalg.norm(rows, axis=1)[:, None]
        rows = rows / lengths
        cosines = np.clip(rows @ rows.T, -1.0, 1.0)
        np.fill_diagonal(cosines, 1.0)
        return rows, lengths, cosines

    def value(coordinates: Array) -> tuple[float, Array]:
        rows, lengths, cosines = unit(coordinates)
        force = program.gradient(cosines)
        np.fill_diagonal(force, 0.0)
        slope = 2 * force @ rows
        slope -= np.einsum("ij,ij->i", slope, rows)[:, None] * rows
        return program.risk(cosines), (slope / lengths).ravel()

    minimum = minimize(
        value,
        start.ravel(),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": MOST_STEPS, "maxcor": MEMORY, "ftol": smallest_decrease, "gtol": 0.0},
    )
    return unit(minimum.x)[2], float(minimum.fun), int(minimum.nit)


def best_class_means(program: ClassMeanProgram, relaxed: Square, dim: int) -> tuple[Array, float, int]:
    """Best Gram matrix of `dim` columns that was reached, its risk, and the number of steps.

    The exact expectation of finitely many negatives costs hundreds of exponentials per entry, and a minimisation in few
    dimensions hundreds of evaluations. Jensen's majorizer (`losses.rows.Majorizer`) is a log-sum of one exponential per
    entry that, up to a constant, touches the exact risk where it was taken and lies above it elsewhere: each round
    minimises it, so that the exact risk never increases, and the limit is stationary for the exact risk. A few rounds
    are enough, since the two differ only by how much the negatives of one batch differ from those of the next. Small
    problems, and rows without a majorizer or with one that is exact, are left to `best_found`.
    """
    if len(relaxed) * dim <= LARGE or not _is_expectation(program):
        return best_found(program, relaxed, dim)
    vectors = _unit(spectral_start(relaxed, dim, np.random.default_rng(0)))
    cosines = _gram(vectors)
    risk, taken = program.risk(cosines), 0
    for _ in range(ROUNDS):
        there, _, steps = quasi_newton(surrogate(program, cosines), vectors)
        lower = program.risk(there)
        taken += steps
        gain = risk - lower
        if gain > 0:
            cosines, risk = there, lower
            vectors = points_of(there, dim)
        if not gain > SMALLEST_DECREASE * max(abs(risk), 1.0):
            break
    return cosines, risk, taken


def _is_expectation(program: GramProgram) -> TypeGuard[ClassMeanProgram]:
    """Whether its rows are means of log-sums, with a majorizer that is a single one."""
    gives: frozenset[str] = getattr(program, "gives", frozenset())
    return "majorizer" in gives and "log-sum" not in gives


def surrogate(program: ClassMeanProgram, cosines: Square) -> ClassMeanProgram:
    """The log-sum program that touches `program` at `cosines` and lies above it, up to a constant."""
    upper = program.rows.majorizer(program.exponents(cosines))
    weight = program.rows.anchor_weight * upper.mass
    return replace(program, rows=LogSumRows(program.rows.count, weight, np.exp(upper.log_offset), upper.log_weight))


def points_of(cosines: Square, dim: int) -> Array:
    """(C, d) unit rows with these products, of rank d at most."""
    values, vectors = np.linalg.eigh(cosines)
    return _unit(vectors[:, -dim:] * np.sqrt(np.maximum(values[-dim:], 0.0)))


def _unit(rows: Array) -> Array:
    return np.asarray(rows / np.linalg.norm(rows, axis=1)[:, None])


def _gram(unit: Array) -> Array:
    cosines = np.clip(unit @ unit.T, -1.0, 1.0)
    np.fill_diagonal(cosines, 1.0)
    return np.asarray(cosines)
