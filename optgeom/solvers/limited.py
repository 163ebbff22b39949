r"""Embedding dimension below the rank of the optimum: a bracket, honestly not a certificate.

The rank constraint makes the program non-convex (an open problem in the literature). Factors with exactly d columns are
minimised from several starts; the best risk found is the upper end of the bracket, the certified risk without the
constraint the lower end.

Small problems are minimised to second order (`low_rank.local_minimum`). Large ones are flat along many directions, and
the Newton systems there take thousands of products each: a quasi-Newton method gets as low in a twentieth of the time,
to the accuracy of a bracket.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from optgeom._numerics import Array, Square
from optgeom.losses.rows import LogSumRows
from optgeom.programs.class_mean import ClassMeanProgram
from optgeom.programs.gram_program import GramProgram
from optgeom.solvers.low_rank import local_minimum

# Small problems have many local minima and cost milliseconds per start; the minima of large ones are alike.
MOST_STARTS, START_BUDGET = 24, 2000
LARGE = 2000  # coordinates beyond which the accuracy of a bracket is enough, and one start
ACCURATE = (1e-10, 300)  # stationarity and steps
# Relative decrease per step at which a large problem ends: the bracket is thousands of times wider.
SMALLEST_DECREASE, MOST_STEPS, MEMORY = 1e-7, 400, 20
ROUNDS = 20  # of majorizers


def best_found(program: GramProgram, relaxed: Square, dim: int) -> tuple[Array, float, int]:
    """Best Gram matrix of `dim` columns found, its risk, and the number of steps.

    `program` keeps every member apart (in so few dimensions equal ones need not be treated equally); `relaxed` is the
    optimum without the constraint, whose leading eigenvectors are the first start. Starts are seeded: the answer is
    reproducible.
    """
    rng = np.random.default_rng(0)
    starts = [spectral_start(relaxed, dim, rng)]
    size = starts[0].size
    if size > LARGE:
        return quasi_newton(program, starts[0])
    starts += [rng.standard_normal(starts[0].shape) for _ in range(int(np.clip(START_BUDGET // size, 1, MOST_STARTS)))]
    best: tuple[Array, float] | None = None
    steps = 0
    for start in starts:
        cosines, risk, taken = local_minimum(program, start / np.linalg.norm(start, axis=1)[:, None], *ACCURATE)
        steps += taken
        if best is None or risk < best[1]:
            best = (cosines, risk)
    assert best is not None
    return best[0], best[1], steps


def spectral_start(relaxed: Square, dim: int, rng: np.random.Generator) -> Array:
    """(n, d) leading eigenvectors of the optimum without the constraint, disturbed, since they may be a saddle."""
    eigenvalues, vectors = np.linalg.eigh(relaxed)
    spectral = vectors[:, -dim:] * np.sqrt(np.maximum(eigenvalues[-dim:], 0.0))
    return np.asarray(spectral + 1e-3 * rng.standard_normal(spectral.shape))


def quasi_newton(program: GramProgram, start: Array) -> tuple[Array, float, int]:
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
        options={"maxiter": MOST_STEPS, "maxcor": MEMORY, "ftol": SMALLEST_DECREASE, "gtol": 0.0},
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
    if len(relaxed) * dim <= LARGE or "majorizer" not in program.gives or "log-sum" in program.gives:
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
            vectors = _factor(there, dim)
        if not gain > SMALLEST_DECREASE * max(abs(risk), 1.0):
            break
    return cosines, risk, taken


def surrogate(program: ClassMeanProgram, cosines: Square) -> ClassMeanProgram:
    """The log-sum program that touches `program` at `cosines` and lies above it, up to a constant."""
    upper = program.rows.majorizer(program.exponents(cosines))
    weight = program.rows.anchor_weight * upper.mass
    return replace(program, rows=LogSumRows(program.rows.count, weight, np.exp(upper.log_offset), upper.log_weight))


def _factor(cosines: Square, dim: int) -> Array:
    """(C, d) unit rows with these products, of rank d at most."""
    values, vectors = np.linalg.eigh(cosines)
    return _unit(vectors[:, -dim:] * np.sqrt(np.maximum(values[-dim:], 0.0)))


def _unit(rows: Array) -> Array:
    return np.asarray(rows / np.linalg.norm(rows, axis=1)[:, None])


def _gram(unit: Array) -> Array:
    cosines = np.clip(unit @ unit.T, -1.0, 1.0)
    np.fill_diagonal(cosines, 1.0)
    return np.asarray(cosines)
