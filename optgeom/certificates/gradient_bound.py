r"""Lower bound of any convex program over group-form Gram matrices from its gradient, whatever the signs of its entries.

With G' half the derivative in A_ij = A_ji, nu_i = sum_j G'_ij A_ij and Z = G' - Diag nu, convexity gives for every feasible B
F(B) >= F(A) + <Z, B>, hence for every d > 0

    min F >= F(A) - max(0, -lambda_min(D Z D)) sum_i 1/d_i^2,

with d = 1 and, where all nu_i < 0, d_i = 1/sqrt(-nu_i): the better of the two.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg

from optgeom._numerics import EPS, Array
from optgeom.programs import group_matrix
from optgeom.programs.gram_program import GramProgram

EIGENVALUE_ROUNDING = 4 * EPS


def gradient_gap(program: GramProgram, cosines: Array) -> float:
    """F exceeds its minimum by at most this much at a feasible group-form matrix; rounding of eigenvalues included."""
    count, sizes = program.count, program.sizes
    gradient = np.where(count > 0, program.gradient(cosines), 0.0)
    nu = (count * gradient * cosines).sum(axis=1)
    gap = float(sizes.sum()) * _shift(gradient, -nu, sizes)
    if np.all(nu < 0):
        scale = 1.0 / np.sqrt(-nu)
        scaled = gradient * scale[:, None] * scale[None, :]
        gap = min(gap, float(np.sum(-nu * sizes)) * _shift(scaled, np.ones_like(nu), sizes))
    return gap


def _shift(between: Array, diagonal: Array, sizes: group_matrix.Sizes) -> float:
    eigenvalues = scipy.linalg.eigvalsh(group_matrix.symmetric_block(between, diagonal, sizes))
    lowest = min(float(eigenvalues[0]), float(group_matrix.complement(between, diagonal, sizes).min()))
    return max(0.0, EIGENVALUE_ROUNDING * max(abs(float(eigenvalues[0])), abs(float(eigenvalues[-1]))) - lowest)
