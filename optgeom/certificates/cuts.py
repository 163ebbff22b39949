r"""Dual bound of a class-mean program with kinks, where the gradient is one of many.

With any affine minorants of the terms and any mixture of them, mu >= 0 with sum 1 for each term,

    F(B) >= l(mu) + <G(mu), B>     for every B,        hence, for every zeta,
    F*   >= l(mu) - sum_i zeta_i - C max(0, -lambda_min(G(mu) + Diag zeta)),

since B is positive semidefinite with unit diagonal. A small conic program looks for the best (mu, zeta) among the
tangents on both sides of the kinks near A; what it returns is only a suggestion: the bound is computed from it.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg

from optgeom._numerics import Array, Square
from optgeom.certificates.dual import EIGENVALUE_ROUNDING, DualCheck
from optgeom.losses.rows import Cuts
from optgeom.programs import group_matrix
from optgeom.programs.class_mean import ClassMeanProgram

CONTRADICTION = 1e-9  # relative to 1 + |risk|: rounding of the bound stays far below


def check(program: ClassMeanProgram, cosines: Square, risk: float) -> DualCheck:
    """Gap at a feasible group-form matrix, by the tangents near it; there is no backward error."""
    cuts = program.rows.cuts(program.exponents(cosines))
    chosen = mixture(program, cuts)
    if chosen is None:
        return DualCheck(np.inf, None)
    bound = lower_bound(program, cuts, *chosen)
    # A bound above the risk itself says that the tangents are none: psi is not convex, or its derivative is wrong.
    if bound > risk + CONTRADICTION * (1 + abs(risk)):
        return DualCheck(np.inf, None)
    return DualCheck(max(0.0, risk - bound), None)


@dataclass(frozen=True)
class _Linear:
    """l(mu) and G(mu) as linear maps: level (K,), and for each pair g <= h with classes its gradient (P, K)."""

    level: Array
    left: npt.NDArray[np.intp]
    right: npt.NDArray[np.intp]
    gradient: Array


def _linear(program: ClassMeanProgram, cuts: Cuts) -> _Linear:
    """Every cut weighted; G_gh for one pair of classes, half the derivative in A_ij = A_ji."""
    rows, tau = program.rows, program.temperatures
    row, weight = cuts.row[cuts.term], cuts.weight[cuts.term]
    counted = rows.count[row] * cuts.slope
    # t = (A - 1)/tau: the constant -1/tau goes to the level.
    level = weight * (cuts.level - counted.sum(axis=1) / tau[row])
    left, right = np.nonzero(np.triu(rows.count > 0))
    per_class = weight[:, None] * cuts.slope / (program.sizes[row] * tau[row])[:, None]
    gradient = np.zeros((left.size, cuts.term.size))
    for pair, (g, h) in enumerate(zip(left, right, strict=True)):
        gradient[pair, row == g] += per_class[row == g, h] / 2
        gradient[pair, row == h] += per_class[row == h, g] / 2
    return _Linear(level, left, right, gradient)


def _constant(program: ClassMeanProgram) -> float:
    """The part of the risk that belongs to no term, negatives of the anchor's own class: where all points coincide.

    There t = 0, and each term is the level of its greatest tangent.
    """
    one = np.ones_like(program.rows.count)
    cuts = program.rows.cuts(np.zeros_like(one))
    top = np.full(cuts.row.size, -np.inf)
    np.maximum.at(top, cuts.term, cuts.level)
    return program.risk(one) - float(np.sum(cuts.weight * top))


def mixture(program: ClassMeanProgram, cuts: Cuts) -> tuple[Array, Array] | None:
    """(K,) mu and (G,) zeta that make the bound large; None where the conic solver gave nothing."""
    import cvxpy

    linear, sizes = _linear(program, cuts), program.sizes
    groups, number = sizes.size, cuts.term.size
    scale = float(np.max(np.abs(linear.gradient))) or 1.0
    mu, zeta = cvxpy.Variable(number, nonneg=True), cvxpy.Variable(groups)
    between = linear.gradient / scale @ mu
    block, rest = symmetric_form(linear.left, linear.right, between, zeta, sizes)
    terms = np.zeros((cuts.row.size, number))
    terms[cuts.term, np.arange(number)] = 1.0
    constraints = [terms @ mu == 1, block >> 0, *([] if rest is None else [rest >= 0])]
    objective = cvxpy.Maximize(linear.level / scale @ mu - sizes.astype(float) @ zeta)
    problem = cvxpy.Problem(objective, constraints)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of accuracy: the bound is computed from what comes back
        try:
            problem.solve(solver="CLARABEL", tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)
        except cvxpy.error.SolverError:
            return None
    if mu.value is None or zeta.value is None or not np.all(np.isfinite(mu.value)):
        return None
    weights = np.maximum(mu.value, 0.0)
    total = np.zeros(cuts.row.size)
    np.add.at(total, cuts.term, weights)
    if not np.all(total > 0):
        return None
    return weights / total[cuts.term], np.asarray(zeta.value) * scale


def symmetric_form(
    left: npt.NDArray[np.intp], right: npt.NDArray[np.intp], between: Any, diagonal: Any, sizes: group_matrix.Sizes
) -> tuple[Any, Any]:
    """The block of a symmetric matrix in group form as an expression of cvxpy, and what must be >= 0 beside it.

    Parameters
    ----------
    left, right : (P,)
        Groups of each pair g <= h with classes.
    between : expression of (P,)
        Entry between two classes of them.
    diagonal : expression of (G,)
    sizes : (G,)
    """
    import cvxpy

    groups = sizes.size
    m = sizes.astype(np.float64)
    maps = np.zeros((groups * groups, left.size))
    for pair, (g, h) in enumerate(zip(left, right, strict=True)):
        factor = m[g] - 1 if g == h else np.sqrt(m[g] * m[h])
        maps[g * groups + h, pair] = factor
        maps[h * groups + g, pair] = factor
    block = cvxpy.reshape(maps @ between, (groups, groups), order="C") + cvxpy.diag(diagonal)
    several = np.flatnonzero(m > 1)
    if several.size == 0:
        return block, None
    own = np.zeros((several.size, left.size))
    for place, g in enumerate(several):
        own[place, np.flatnonzero((left == g) & (right == g))[0]] = 1.0
    return block, diagonal[several] - own @ between


def lower_bound(program: ClassMeanProgram, cuts: Cuts, mu: Array, zeta: Array) -> float:
    """The bound of these minorants, this mixture and this diagonal, with the rounding of its eigenvalues."""
    linear, sizes = _linear(program, cuts), program.sizes
    gradient = np.zeros((sizes.size, sizes.size))
    gradient[linear.left, linear.right] = linear.gradient @ mu
    gradient[linear.right, linear.left] = gradient[linear.left, linear.right]
    eigenvalues = scipy.linalg.eigvalsh(group_matrix.symmetric_block(gradient, zeta, sizes))
    rest = group_matrix.complement(gradient, zeta, sizes)
    largest = max(abs(float(eigenvalues[-1])), abs(float(eigenvalues[0])))
    shift = max(0.0, EIGENVALUE_ROUNDING * largest - min(float(eigenvalues[0]), float(rest.min())))
    return _constant(program) + float(linear.level @ mu) - float(sizes @ zeta) - float(sizes.sum()) * shift
