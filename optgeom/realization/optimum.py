"""The true optimum of weighted InfoNCE on the sphere, where the entropic bound is out of reach."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optgeom._numerics import Array
from optgeom.certificates import Certificate, Certified, certify
from optgeom.programs.weighted import WeightedProgram
from optgeom.realization import spherical
from optgeom.realization.weights import Weights
from optgeom.solvers.drive import drive


@dataclass(frozen=True, kw_only=True)
class Optimum:
    """Optimum over all dimensions.

    Attributes
    ----------
    cosines : (G, G)
        Group-form Gram matrix (see `Weights`).
    loss : float
    rank : int
        Dimension that it needs.
    certificate : Certificate
    solver : str
    iterations : int
    """

    cosines: Array
    loss: float
    rank: int
    certificate: Certificate
    solver: str
    iterations: int


def program_of(weights: Weights, temperature: float) -> WeightedProgram:
    """The convex program of these weights."""
    rows, anchored = np.exp(weights.log_rows), weights.with_positive
    return WeightedProgram(weights.sizes, weights.count, rows, anchored, temperature, weights.index)


def start_cosines(weights: Weights, temperature: float) -> Array:
    """Group-form start.

    The target at its best constant, or for hard and asymmetric weights one with bounded logarithms.
    """
    if weights.symmetric and not weights.hard:
        return spherical.target_cosines(
            weights, temperature, spherical.feasible_shifts(weights, temperature).best_shift
        )
    logs = (weights.log_rows + weights.log_rows.T) / 2
    finite = np.isfinite(logs)
    top = logs[finite].max() if finite.any() else 0.0
    apart = -1.0 / max(1, weights.sizes.size - 1)
    bounded = np.where(finite, np.maximum(apart, 1.0 + temperature * (np.where(finite, logs, top) - top)), apart)
    bounded[np.diag_indices_from(bounded)] = np.where(weights.sizes > 1, np.diag(bounded), 1.0)
    return np.asarray(bounded)


def optimal_cosines(weights: Weights, temperature: float, tolerance: float = 1e-9) -> Optimum:
    """Minimise the loss over all Gram matrices.

    Parameters
    ----------
    weights : Weights
    temperature : float
        tau > 0.
    tolerance : float
        Gap of the certificate, relative to 1 + |loss|.
    """
    program = program_of(weights, temperature)

    def judge(cosines: Array) -> Certified:
        return certify(program, cosines, tolerance=tolerance)

    attempt = drive(program, start_cosines(weights, temperature), judge, tolerance=tolerance)
    best = attempt.certified
    return Optimum(
        cosines=best.cosines,
        loss=best.risk,
        rank=best.certificate.rank,
        certificate=best.certificate,
        solver=attempt.solver,
        iterations=attempt.iterations,
    )
