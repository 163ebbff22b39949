r"""Dual bound and dual residual of the class-mean program at a feasible matrix, from the gradient alone.

With G' the gradient (half the derivative in A_ij = A_ji), nu_i = sum_j G'_ij A_ij and Z = G' - Diag nu, convexity gives
for every B in the elliptope F(B) >= F(A) + <Z, B>, hence

    F* >= F(A) - C max(0, -lambda_min(Z)),                                    because tr B = C, and
    F* >= F(A) - max(0, -lambda_min(D Z D)) sum_i (-nu_i),   d_i = 1/sqrt(-nu_i),      because B_ii = 1.

The second is the better one when classes are rare. The dual residual compares G' entry by entry with the positive
semidefinite part of D Z D scaled back: the figure that still means something when the objective is flat. Everything is
computed relative to the largest entry of G', in logarithms, so that a temperature at which G' underflows changes
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.linalg

from optgeom._numerics import EPS, Array, Square
from optgeom.programs import group_matrix
from optgeom.programs.class_mean import ClassMeanProgram
from optgeom.programs.gram_program import GramProgram

# The eigenvalue solver errs by a few units of rounding of the largest eigenvalue; the bounds pay for it.
EIGENVALUE_ROUNDING = 4 * EPS
# A cheap upper bound of the backward error serves up to here, far below every tolerance; the exact figure needs
# eigenvectors.
ENOUGH = 1e-10


@dataclass(frozen=True)
class DualCheck:
    """Duality gap and dual residual.

    Attributes
    ----------
    gap : float
        F(A) - lower bound, >= 0; inf when no bound exists.
    backward_error : float
        Largest relative change of a gradient entry that makes the dual exactly feasible (an upper bound of it, at most
        a few times too large, when it is far below every tolerance); inf if some nu_i >= 0. None where the dual does
        not measure it.
    """

    gap: float
    backward_error: float | None


def check(program: ClassMeanProgram, cosines: Square, risk: float) -> DualCheck:
    """Evaluate the dual at a feasible group-form matrix."""
    sizes, pairs = program.sizes, program.rows.count > 0
    log_gradient = program.log_gradient(cosines)
    top = float(np.max(log_gradient, where=pairs, initial=-np.inf))
    if not np.isfinite(top):
        return DualCheck(np.inf, np.inf)
    gradient = np.where(pairs, np.exp(log_gradient - top), 0.0)
    nu = (program.rows.count * gradient * cosines).sum(axis=1)
    unit = float(np.exp(top))

    if np.any(nu >= 0):
        return DualCheck(_uniform_gap(program, gradient, nu) * unit, np.inf)
    scale = 1.0 / np.sqrt(-nu)
    scaled = gradient * scale[:, None] * scale[None, :]
    shift, lowest, rest = _shift(scaled, np.ones_like(nu), sizes)
    gap = shift * float(np.sum(-nu * sizes)) * unit
    if gap > 1e-12 * (1 + abs(risk)):  # otherwise the other bound could only improve on rounding
        gap = min(gap, _uniform_gap(program, gradient, nu) * unit)
    backward = _residual_bound(scaled, max(0.0, -lowest), pairs, sizes)
    if backward > ENOUGH:
        # Both are upper bounds. With millions of classes the rounding that the exact figure pays for is the larger one.
        backward = min(backward, _residual(scaled, rest, pairs, sizes))
    return DualCheck(gap, backward)


def check_linear(program: GramProgram, cosines: Square, risk: float) -> DualCheck:
    """The two bounds for a program whose gradient may have entries of any sign; it has no backward error.

    Nothing is in logarithms here: such programs are solved where their gradient does not underflow.
    """
    sizes, count = program.sizes, program.count
    gradient = np.where(count > 0, program.gradient(cosines), 0.0)
    nu = (count * gradient * cosines).sum(axis=1)
    gap = float(sizes.sum()) * _shift(gradient, -nu, sizes)[0]
    if np.all(nu < 0):
        scale = 1.0 / np.sqrt(-nu)
        scaled = gradient * scale[:, None] * scale[None, :]
        gap = min(gap, float(np.sum(-nu * sizes)) * _shift(scaled, np.ones_like(nu), sizes)[0])
    return DualCheck(gap, None)


def _uniform_gap(program: ClassMeanProgram, gradient: Square, nu: Array) -> float:
    return program.num_classes * _shift(gradient, -nu, program.sizes)[0]


def _shift(between: Square, diagonal: Array, sizes: group_matrix.Sizes) -> tuple[float, float, Array]:
    """Shift that certainly makes a matrix positive semidefinite; its lowest eigenvalue; those within the groups."""
    eigenvalues = scipy.linalg.eigvalsh(group_matrix.symmetric_block(between, diagonal, sizes))
    rest = group_matrix.complement(between, diagonal, sizes)
    lowest = min(float(eigenvalues[0]), float(rest.min()))
    rounding = EIGENVALUE_ROUNDING * max(abs(float(eigenvalues[-1])), abs(float(eigenvalues[0])))
    return max(0.0, rounding - lowest), lowest, rest


def _residual_bound(scaled: Square, negative: float, pairs: npt.NDArray[np.bool_], sizes: group_matrix.Sizes) -> float:
    """Upper bound of the dual residual from the size of the negative part alone.

    None of its entries exceeds its norm.
    """
    m = sizes.astype(np.float64)
    per_pair = 1.0 / np.sqrt(m[:, None] * m[None, :])
    per_pair[np.diag_indices_from(per_pair)] = 2.0 / m
    relative = negative * per_pair / np.where(scaled > 0, scaled, 1.0)
    return float(np.max(relative, where=pairs, initial=0.0))


def _residual(scaled: Square, rest: Array, pairs: npt.NDArray[np.bool_], sizes: group_matrix.Sizes) -> float:
    """max over pairs of |G' - N| / G', N the positive semidefinite part; |N_ij| / sqrt(N_ii N_jj) where G' is 0.

    The difference is the negative part itself. Subtracting a recomposed positive part instead would leave the rounding
    of its large entries on the pairs of rare classes, whose entries are small in a collapsed geometry. For the same
    reason an eigenvalue that is negative by less than the rounding of the eigenvalue solver counts as the zero that
    complementarity makes it.
    """
    eigenvalues, vectors = scipy.linalg.eigh(group_matrix.symmetric_block(scaled, np.ones(sizes.size), sizes))
    rounding = 2 * EIGENVALUE_ROUNDING * max(abs(float(eigenvalues[-1])), abs(float(eigenvalues[0])))
    below = eigenvalues < -rounding
    removed = (vectors[:, below] * -eigenvalues[below]) @ vectors[:, below].T
    change, diagonal = group_matrix.from_blocks(removed, np.where(rest < -rounding, -rest, 0.0), sizes)
    root = np.sqrt(1.0 + diagonal)
    free = np.abs(change) / (root[:, None] * root[None, :])
    forced = np.abs(change) / np.where(scaled > 0, scaled, 1.0)
    return max(rounding, float(np.max(np.where(scaled > 0, forced, free), where=pairs, initial=0.0)))
