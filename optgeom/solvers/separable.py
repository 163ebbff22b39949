r"""Newton on the rank-one dual for a loss whose force between two classes depends on their cosine only.

With one negative, or an additive psi, G_ij(t_ij) is a known function of one number; at the optimum G_ij(t_ij) = z_i z_j
and A z = 0. The unknowns are all t_ij and y = log z; the t_ij are eliminated pair by pair from the linearised first
equation,

    dt_ij = ( R_ij + dy_i + dy_j ) / kappa_ij,      R_ij = y_i + y_j - log G_ij(t_ij),      kappa_ij = d log G_ij / dt,

which leaves a G x G system for dy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from optgeom._numerics import EPS, Array, Square, log_nonnegative
from optgeom.programs.class_mean import ClassMeanProgram
from optgeom.solvers.base import Attempt, Judge
from optgeom.solvers.newton import NewtonResult, judged, simplex

STEPS = 100
SMALLEST_DAMPING = 1e-8


@dataclass(frozen=True)
class SeparableNewton:
    """Newton on the rank-one dual of a separable loss, from the simplex."""

    name: ClassVar[str] = "newton"
    needs: ClassVar[frozenset[str]] = frozenset({"pair-slopes"})

    def solve(self, program: ClassMeanProgram, start: Square, judge: Judge) -> Attempt | None:
        return judged(solve_separable(program), judge, self.name)


def solve_separable(program: ClassMeanProgram) -> NewtonResult:
    """Damped Newton from the simplex.

    Converged False where it stalls (the geometry has collapsed, or psi is not strictly convex).
    """
    pairs = program.rows.count > 0
    count, tau = program.rows.count, program.temperature
    log_anchor = log_nonnegative(program.rows.anchor_weight)[:, None]
    tolerance = 8 * EPS * max(float(program.sizes.max()), 1 / tau)

    def force(t: Square) -> Array:
        log_pull = program.rows.log_pull(t) + log_anchor
        return np.asarray(np.logaddexp(log_pull, log_pull.T) - np.log(tau))

    def residuals(t: Square, y: Array) -> tuple[Array, Array]:
        balance = np.where(pairs, y[:, None] + y[None, :] - force(t), 0.0)
        z = np.exp(y - y.max())
        cosines = np.where(pairs, 1 + tau * t, 1.0)
        return balance, z + (count * cosines) @ z

    def size(parts: tuple[Array, Array]) -> float:
        return float(max(np.max(np.abs(parts[0])), np.max(np.abs(parts[1]))))

    t = program.exponents(simplex(program))
    row = (count * np.where(pairs, np.exp(force(t)), 0.0)).sum(axis=1)
    y = np.log(row) - 0.5 * np.log(np.sum(program.sizes * row))
    parts = residuals(t, y)
    steps, converged = -1, False
    with np.errstate(all="ignore"):  # a trial point may leave the domain of psi; it is then refused
        while (steps := steps + 1) < STEPS:
            if size(parts) <= tolerance:
                converged = True
                break
            slope = program.rows.pair_slopes(t) * program.rows.anchor_weight[:, None]
            kappa = np.where(pairs, (slope + slope.T) / (tau * np.exp(force(t))), 1.0)
            balance, closing = parts
            z = np.exp(y - y.max())
            mass = count * z[None, :]
            give = tau * mass / kappa
            jacobian = mass * (1 + tau * t) + give
            jacobian[np.diag_indices_from(jacobian)] += z + give.sum(axis=1)
            try:
                dy = np.linalg.solve(jacobian, -closing - (give * balance).sum(axis=1))
            except np.linalg.LinAlgError:
                break
            dt = np.where(pairs, (balance + dy[:, None] + dy[None, :]) / kappa, 0.0)
            damping = 1.0
            while damping >= SMALLEST_DAMPING:
                trial = residuals(t + damping * dt, y + damping * dy)
                if size(trial) <= (1 - damping / 10) * size(parts):
                    break
                damping /= 2
            if damping < SMALLEST_DAMPING:
                converged = size(parts) <= 1e3 * tolerance
                break
            t, y, parts = t + damping * dt, y + damping * dy, trial
    return NewtonResult(np.where(pairs, 1 + tau * t, 1.0), y, converged, steps)
