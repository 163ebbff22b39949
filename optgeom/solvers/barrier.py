r"""Barrier method for weighted programs of few groups: slow, but it works where hardly any pair has curvature.

Minimise n L(A) - mu log det A over matrices with unit diagonal, mu -> 0. At each minimum Z = mu A^-1 is feasible for
the dual with A Z = mu I, so the loss is within mu of its optimum. At very low temperatures almost all softmax
probabilities are below the rounding: the loss has no curvature in those pairs, and methods that invert it
(`primal_dual`) or follow it (`low_rank`) lose their way. The barrier has curvature in every pair.

In group form log det A = log det S + sum_g (m_g - 1) log(1 - b_gg) (`group_matrix`), the unknowns are the G (G + 1) / 2
entries, and the Newton system is dense: a Cholesky factorisation of that size a step.

References
----------
Boyd, Vandenberghe 2004, Convex Optimization, chapter 11; Nesterov, Nemirovskii 1994.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.linalg

from optgeom._numerics import Array, Square
from optgeom.programs import group_matrix
from optgeom.programs.weighted import WeightedProgram
from optgeom.solvers.base import Attempt, FeasibleInTheLimit, Judge

LARGEST = 64  # groups: 2080 unknowns, some 100 factorisations
STEPS = 60  # of Newton's method for one mu
FALL = 10.0  # of mu
DECREMENT = 1e-3  # in units of mu, at which mu falls
WORTH_JUDGING = 1e-6
LEAST = 1e-14
GOOD_GAP = 3e-10


class _Pairs:
    """The unknowns: one for each pair of groups, and for each group of two samples or more."""

    def __init__(self, program: WeightedProgram) -> None:
        self.program = program
        m = program.sizes.astype(np.float64)
        first, second = np.triu_indices(m.size)
        paired = program.count[first, second] > 0
        self.first, self.second = first[paired], second[paired]
        self.index = np.full((m.size, m.size), -1)
        self.index[self.first, self.second] = self.index[self.second, self.first] = np.arange(self.first.size)
        own = self.first == self.second
        times = m[self.first] * program.count[self.first, self.second]
        self.ordered = np.where(own, 1.0, 2.0) * times  # ordered pairs of samples behind an unknown
        # The unknown moves S by this much times e_g e_h' + e_h e_g'.
        self.factor = np.where(own, (m[self.first] - 1) / 2, np.sqrt(m[self.first] * m[self.second]))
        self.own = np.flatnonzero(own)
        self.many = m[self.first[own]] - 1

    def value(self, cosines: Array, mu: float) -> float:
        """The function to minimise; inf outside."""
        block = group_matrix.symmetric_block(cosines, np.ones(len(cosines)), self.program.sizes)
        rest = 1.0 - cosines.diagonal()[self.first[self.own]]
        if not np.isfinite(block).all() or np.any(rest <= 0):
            return np.inf
        try:
            root = np.diag(np.linalg.cholesky(block))
        except np.linalg.LinAlgError:
            return np.inf
        barrier = 2 * float(np.log(root).sum()) + float(self.many @ np.log(rest))
        return self.program.num_samples * self.program.risk(cosines) - mu * barrier

    def newton_step(self, cosines: Array, mu: float) -> tuple[Array, float]:
        """(G, G) step and its decrement."""
        program, n = self.program, self.program.num_samples
        inverse = np.linalg.inv(group_matrix.symmetric_block(cosines, np.ones(len(cosines)), program.sizes))
        inverse = (inverse + inverse.T) / 2
        i, j = self.first, self.second
        rest = 1.0 - cosines.diagonal()[i[self.own]]
        gradient = self.ordered * (n * program.gradient(cosines)[i, j]) - 2 * mu * self.factor * inverse[i, j]
        gradient[self.own] += mu * self.many / rest
        hessian = inverse[np.ix_(i, i)] * inverse[np.ix_(j, j)] + inverse[np.ix_(i, j)] * inverse[np.ix_(j, i)]
        hessian *= 2 * mu * self.factor[:, None] * self.factor[None, :]
        hessian[self.own, self.own] += mu * self.many / rest**2
        counted = program.count * program.probabilities(cosines)
        for row, (p, m) in enumerate(zip(counted, program.sizes, strict=True)):
            columns = np.flatnonzero(program.count[row] > 0)
            at, p = self.index[row, columns], p[columns]
            curvature = (np.diag(p) - np.outer(p, p)) * (float(m) / program.temperature**2)
            hessian[np.ix_(at, at)] += curvature
        # Pairs far apart in curvature would drown each other's digits.
        scale = 1.0 / np.sqrt(np.diag(hessian))
        factor = scipy.linalg.cho_factor(
            hessian * scale[:, None] * scale[None, :], overwrite_a=True, check_finite=False
        )
        solved = -scale * scipy.linalg.cho_solve(factor, scale * gradient, check_finite=False)
        step = np.zeros_like(cosines)
        step[i, j] = step[j, i] = solved
        return step, -float(gradient @ solved)


def _centre(pairs: _Pairs, cosines: Array, mu: float) -> tuple[Array, int, bool]:
    """Minimum for one mu, steps, and whether rounding ended the search."""
    value = pairs.value(cosines, mu)
    for taken in range(1, STEPS + 1):
        try:
            step, decrement = pairs.newton_step(cosines, mu)
        except np.linalg.LinAlgError:
            return cosines, taken, True
        if not decrement > DECREMENT * mu:
            return cosines, taken, not decrement >= 0
        length = 1.0
        there = pairs.value(cosines + step, mu)
        while not there <= value - 1e-4 * length * decrement:
            length /= 2
            if length < 1e-9:
                return cosines, taken, True
            there = pairs.value(cosines + length * step, mu)
        cosines, value = cosines + length * step, there
    return cosines, STEPS, False


@dataclass(frozen=True, kw_only=True)
class Barrier:
    """The barrier method, for at most 64 groups.

    Attributes
    ----------
    good_gap : float
        Gap relative to 1 + |risk| at which the search ends.
    """

    name: ClassVar[str] = "barrier method"
    needs: ClassVar[frozenset[str]] = frozenset({"row-softmax"})
    good_gap: float = GOOD_GAP

    def solve(self, program: WeightedProgram, start: Square, judge: Judge) -> Attempt | None:
        """From half way between a group-form matrix and the identity; None for more than 64 groups."""
        groups = program.sizes.size
        if groups > LARGEST:
            return None
        pairs = _Pairs(program)
        search = FeasibleInTheLimit(judge, program.sizes, self.good_gap)
        cosines = start / 2
        cosines[np.diag_indices(groups)] = np.where(program.sizes > 1, np.diag(start) / 2, 1.0)
        mu, steps = 1.0, 0
        while mu >= LEAST:
            cosines, taken, ended = _centre(pairs, cosines, mu)
            steps += taken
            if (mu <= WORTH_JUDGING or ended) and search.good(cosines):
                break
            if ended:
                break
            mu /= FALL
        return search.attempt(self.name, steps)
