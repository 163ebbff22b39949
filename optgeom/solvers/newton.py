r"""Newton's method on the rank-one dual: the exact optimum where only one dimension is lost.

At the generic optimum (rank C - 1) the dual is Z = z z^T with z > 0 and A z = 0, and every cosine is explicit:

    A_ij = 1 + tau log( tau z_i z_j / c_ij ),      c_ij = r_i omega_ij + r_j omega_ji.

Unknowns are u_i (log of the row normaliser, omega_ij = w_ij exp(-u_i)) and y_i = log z_i. A loss whose rows are a fixed log-sum is solved
by one such Newton run; otherwise its Jensen majorizer is, again and again (majorize-minimize), each run started from the last and
the sequence accelerated by Anderson mixing. All on groups of equal classes: 2G unknowns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optgeom._numerics import EPS, Array, log_nonnegative
from optgeom.losses.rows import Majorizer
from optgeom.programs.class_mean import ClassMeanProgram


@dataclass(frozen=True)
class NewtonState:
    """A point of the Newton iteration.

    Attributes
    ----------
    log_norm : (G,)
        u, log of the row normaliser of the majorizer.
    log_dual : (G,)
        y = log z.
    cosines : (G, G)
        The group-form matrix that u and y determine.
    residual : float
        max of |r1| and |r2|.
    iterations : int
        Newton steps so far.
    """

    log_norm: Array
    log_dual: Array
    cosines: Array
    residual: float
    iterations: int


class _System:
    """Residuals and Jacobian of the two equations for one majorizer."""

    def __init__(self, program: ClassMeanProgram, majorizer: Majorizer) -> None:
        self.count = program.rows.count
        self.tau = program.temperature
        self.offset = np.exp(majorizer.log_offset)
        self.log_weight = majorizer.log_weight
        self.log_anchor = log_nonnegative(program.rows.anchor_weight * majorizer.mass)
        self.pairs = self.count > 0

    def cosines(self, u: Array, y: Array) -> tuple[Array, Array]:
        """Group-form matrix and the share W_ij = r_i omega_ij / c_ij of the row anchor in each pair."""
        log_omega = self.log_weight + (self.log_anchor - u)[:, None]
        log_c = np.logaddexp(log_omega, log_omega.T)
        share = np.where(self.pairs, np.exp(log_omega - np.where(self.pairs, log_c, 0.0)), 0.0)
        log_ratio = np.log(self.tau) + y[:, None] + y[None, :] - log_c
        return np.where(self.pairs, 1.0 + self.tau * np.where(self.pairs, log_ratio, 0.0), 1.0), share

    def row_sums(self, cosines: Array) -> tuple[Array, Array]:
        """Normaliser offset + sum_h count w x, and its terms."""
        terms = self.count * np.exp(np.where(self.pairs, self.log_weight, -np.inf) + (cosines - 1.0) / self.tau)
        return self.offset + terms.sum(axis=1), terms

    def residuals(self, u: Array, y: Array) -> tuple[Array, Array, Array, Array, Array]:
        cosines, share = self.cosines(u, y)
        norm, terms = self.row_sums(cosines)
        z = np.exp(y)
        r1 = np.log(norm) - u
        r2 = (z + (self.count * cosines) @ z) / z.max()
        return r1, r2, cosines, share, terms / norm[:, None]

    def step(self, u: Array, y: Array, parts: tuple[Array, Array, Array, Array, Array]) -> tuple[Array, Array]:
        """Newton direction from the 2G x 2G system."""
        r1, r2, cosines, share, pull = parts
        z = np.exp(y - y.max())
        mass = self.count * z[None, :]
        g = u.size
        diagonal = np.arange(g)
        jacobian = np.empty((2 * g, 2 * g))
        jacobian[:g, :g] = pull * share.T
        jacobian[diagonal, diagonal] += (pull * share).sum(axis=1) - 1.0
        jacobian[:g, g:] = pull
        jacobian[diagonal, g + diagonal] += pull.sum(axis=1)
        jacobian[g:, :g] = self.tau * mass * share.T
        jacobian[g + diagonal, diagonal] += self.tau * (mass * share).sum(axis=1)
        jacobian[g:, g:] = mass * (cosines + self.tau)
        jacobian[g + diagonal, g + diagonal] += z + self.tau * mass.sum(axis=1)
        direction = np.linalg.solve(jacobian, np.concatenate([-r1, -r2]))
        return direction[:g], direction[g:]
