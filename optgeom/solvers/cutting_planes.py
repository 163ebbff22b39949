r"""Kelley's cutting planes for losses with kinks, over Gram matrices.

    minimise  sum_k weight_k y_k    over A positive semidefinite, diag A = 1,   y_k >= every tangent of term k so far,

by a conic solver, then the tangents at its A, and again. A loss of straight pieces is its own tangents: few rounds.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from optgeom._numerics import Array, Square
from optgeom.certificates import Certified
from optgeom.certificates.cuts import symmetric_form
from optgeom.certificates.repair import repair
from optgeom.losses.rows import Cuts
from optgeom.programs.class_mean import ClassMeanProgram
from optgeom.solvers.base import Attempt, Judge

ROUNDS = 40
STALLED = 3  # rounds without a smaller gap after which nothing more is to be had from a conic solver


@dataclass(frozen=True)
class CuttingPlanes:
    """Cutting planes, whose master program Clarabel solves."""

    name: ClassVar[str] = "cutting-planes"
    needs: ClassVar[frozenset[str]] = frozenset({"cuts"})

    def solve(self, program: ClassMeanProgram, start: Square, judge: Judge) -> Attempt | None:
        """From the tangents all over the range; the start is one more point."""
        cuts = program.rows.first_cuts(program.exponents(start))
        best: Certified | None = None
        stalled = rounds = 0
        while rounds < ROUNDS:
            rounds += 1
            cosines = _master(program, cuts)
            if cosines is None:
                break
            feasible = repair(cosines, program.sizes).cosines
            there = judge(feasible)
            stalled += 1
            if best is None or there.certificate.gap < 0.5 * best.certificate.gap:
                stalled = 0
            if best is None or there.certificate.gap < best.certificate.gap:
                best = there
            if best.certificate.certified or stalled > STALLED:
                break
            cuts = cuts.joined(program.rows.cuts(program.exponents(feasible)))
        return None if best is None else Attempt(best, self.name, rounds)


def _master(program: ClassMeanProgram, cuts: Cuts) -> Array | None:
    """The matrix that minimises the greatest of these tangents, not quite feasible; None where there is none."""
    import cvxpy

    sizes, count, tau = program.sizes, program.rows.count, program.temperatures
    left, right = np.nonzero(np.triu(count > 0))
    entry = np.zeros(count.shape, dtype=np.intp)
    entry[left, right] = entry[right, left] = np.arange(left.size)
    row = cuts.row[cuts.term]
    coefficients = np.zeros((cuts.term.size, left.size))
    weighted = count[row] * cuts.slope / tau[row][:, None]
    for h in range(sizes.size):
        np.add.at(coefficients, (np.arange(row.size), entry[row, h]), np.where(count[row, h] > 0, weighted[:, h], 0.0))
    cosines, terms = cvxpy.Variable(left.size), cvxpy.Variable(cuts.row.size)
    block, rest = symmetric_form(left, right, cosines, np.ones(sizes.size), sizes)
    tangents = cuts.level - weighted.sum(axis=1) + coefficients @ cosines
    constraints = [terms[cuts.term] >= tangents, block >> 0, *([] if rest is None else [rest >= 0])]
    scale = float(np.max(cuts.weight))
    problem = cvxpy.Problem(cvxpy.Minimize(cuts.weight / scale @ terms), constraints)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            problem.solve(solver="CLARABEL", tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
        except cvxpy.error.SolverError:
            return None
    if cosines.value is None or not np.all(np.isfinite(cosines.value)):
        return None
    result = np.eye(sizes.size)
    result[left, right] = result[right, left] = cosines.value
    return result
