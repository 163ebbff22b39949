r"""Finitely many negatives in too few dimensions: majorize, minimise, repeat.

The exact expectation costs hundreds of exponentials an entry, and a minimisation in few dimensions hundreds of
evaluations. Jensen's majorizer (`losses.rows.Majorizer`) is a log-sum of one exponential an entry that, up to a
constant, touches the exact risk where it was taken and lies above it elsewhere: each round minimises it, so that the
exact risk never increases, and the limit is stationary for the exact risk. A few rounds are enough, since the two
differ only by how much the negatives of one batch differ from those of the next.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from optgeom._numerics import Array
from optgeom.losses.rows import LogSumRows
from optgeom.programs.class_mean import ClassMeanProgram
from optgeom.solvers import dimension_limited

ROUNDS = 20


def best_found(program: ClassMeanProgram, relaxed: Array, dim: int) -> tuple[Array, float, int]:
    """As `dimension_limited.best_found`, whose answer it is for small problems and for losses without a majorizer or with an exact one."""
    rows = program.rows
    if len(relaxed) * dim <= dimension_limited.LARGE or not rows.has_majorizer or isinstance(rows, LogSumRows):
        return dimension_limited.best_found(program, relaxed, dim)
    vectors = _unit(dimension_limited.spectral_start(relaxed, dim, np.random.default_rng(0)))
    cosines = _gram(vectors)
    risk, taken = program.risk(cosines), 0
    for _ in range(ROUNDS):
        found, _, steps = dimension_limited.quasi_newton(_surrogate(program, cosines), vectors)
        lower = program.risk(found)
        taken += steps
        gain = risk - lower
        if gain > 0:
            cosines, risk = found, lower
            vectors = _factor(found, dim)
        if not gain > dimension_limited.SMALLEST_DECREASE * max(abs(risk), 1.0):
            break
    return cosines, risk, taken


def _surrogate(program: ClassMeanProgram, cosines: Array) -> ClassMeanProgram:
    """The log-sum program that touches `program` at `cosines` and lies above it, up to a constant."""
    upper = program.rows.majorizer(program.exponents(cosines))
    weight = program.rows.anchor_weight * upper.mass
    return replace(program, rows=LogSumRows(program.rows.count, weight, np.exp(upper.log_offset), upper.log_weight))


def _factor(cosines: Array, dim: int) -> Array:
    """(C, d) unit rows with these products, of rank d at most."""
    values, vectors = np.linalg.eigh(cosines)
    return _unit(vectors[:, -dim:] * np.sqrt(np.maximum(values[-dim:], 0.0)))


def _unit(rows: Array) -> Array:
    return np.asarray(rows / np.linalg.norm(rows, axis=1)[:, None])


def _gram(unit: Array) -> Array:
    cosines = np.clip(unit @ unit.T, -1.0, 1.0)
    np.fill_diagonal(cosines, 1.0)
    return np.asarray(cosines)
