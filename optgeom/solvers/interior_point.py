r"""Interior-point method for a linear program over the elliptope,

    minimise <L, A>   over   A positive semidefinite, diag A = 1;
    dual:  maximise sum y,   Z = L - Diag y positive semidefinite.

Each step solves Z A = mu I to first order: (Z^-1 o A) dy = 1 - mu diag(Z^-1), dA = mu Z^-1 + Z^-1 Diag(dy) A - A. Its
answer starts the low-rank method: with one negative and no positive the second-order landscape is so flat that a start
from the simplex crawls.

References
----------
Helmberg, Rendl, Vanderbei, Wolkowicz 1996, An interior-point method for semidefinite programming, SIAM J. Optim. 6.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import scipy.linalg

from optgeom._numerics import Array, Square
from optgeom.programs import group_matrix
from optgeom.programs.class_mean import ClassMeanProgram
from optgeom.solvers.base import Attempt, Judge
from optgeom.solvers.low_rank import LowRank
from optgeom.solvers.newton import simplex

STEPS = 120
LARGEST = 1000  # classes: each step factorises dense matrices of all of them
TARGET = 1e-11  # relative gap at which the low-rank method takes over
NEGLIGIBLE = 1e-4  # eigenvalues of the nearly optimal matrix that belong to its interior-point slack, not to its rank
INTERIOR = 0.95  # share of the way to the boundary


@dataclass(frozen=True)
class LinearLowRank:
    """The low-rank method from the answer of the interior-point method."""

    name: ClassVar[str] = "low-rank"
    needs: ClassVar[frozenset[str]] = frozenset({"linear"})

    def solve(self, program: ClassMeanProgram, start: Square, judge: Judge) -> Attempt:
        """The start is not used."""
        near, steps = start_linear(program)
        attempt = LowRank().solve(program, near, judge)
        return replace(attempt, iterations=steps + attempt.iterations)


def solve_linear_elliptope(cost: Array) -> tuple[Array, int]:
    """Nearly optimal (C, C) matrix of low rank for a symmetric cost with zero diagonal, and the number of steps."""
    n = cost.shape[0]
    cost = cost / np.max(np.abs(cost))
    gram = np.eye(n)
    y = -1.1 * np.abs(cost).sum(axis=1) - 1e-3
    dual = cost - np.diag(y)
    ones, shrink, step = np.ones(n), 0.4, 0
    while step < STEPS:
        step += 1
        gap = float(np.sum(dual * gram))
        if gap <= TARGET * (1 + abs(float(np.sum(cost * gram)))):
            break
        mu = gap / n * shrink
        inverse = scipy.linalg.cho_solve(scipy.linalg.cho_factor(dual), np.eye(n))
        dy = np.linalg.solve(inverse * gram, ones - mu * np.diag(inverse))
        change = mu * inverse + inverse @ (dy[:, None] * gram) - gram
        change = (change + change.T) / 2
        change[np.diag_indices_from(change)] = 0.0
        length = _length(gram, change)
        gram = gram + length * change
        dual_length = _length(dual, -np.diag(dy))
        # Full steps mean that the centre is near: aim lower (Helmberg et al., section 3).
        shrink = 0.1 if min(length, dual_length) > 0.9 else 0.4
        y = y + dual_length * dy
        dual = cost - np.diag(y)
    return _low_rank(gram), step


def start_linear(program: ClassMeanProgram) -> tuple[Array, int]:
    """Group-form start for the low-rank method on a linear program, and the steps taken.

    With too many classes for the interior-point method it is the simplex, after no step.
    """
    cosines = simplex(program)
    if program.num_classes > LARGEST:
        return cosines, 0
    force = np.exp(program.log_gradient(cosines))
    index = program.groups.index
    gram, steps = solve_linear_elliptope(group_matrix.expand(force, np.zeros(program.sizes.size), index))
    member = np.zeros((index.size, program.sizes.size))
    member[np.arange(index.size), index] = 1.0
    totals = member.T @ gram @ member
    totals[np.diag_indices_from(totals)] -= program.sizes
    return np.asarray(np.where(program.rows.count > 0, totals / np.maximum(program.pair_counts(), 1.0), 1.0)), steps


def _low_rank(gram: Array) -> Array:
    """Drop the slack: the leading eigenvectors, rows renormalised."""
    eigenvalues, vectors = scipy.linalg.eigh(gram)
    kept = eigenvalues > NEGLIGIBLE * eigenvalues[-1]
    factor = vectors[:, kept] * np.sqrt(eigenvalues[kept])
    factor /= np.linalg.norm(factor, axis=1)[:, None]
    return np.asarray(factor @ factor.T)


def _length(matrix: Array, change: Array) -> float:
    """Longest step, at most 1, that keeps the matrix well inside the cone."""
    try:
        factor = np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return 0.0
    relative = scipy.linalg.solve_triangular(
        factor, scipy.linalg.solve_triangular(factor, change, lower=True).T, lower=True
    )
    lowest = float(scipy.linalg.eigvalsh((relative + relative.T) / 2, subset_by_index=[0, 0])[0])
    return 1.0 if lowest >= -INTERIOR else -INTERIOR / lowest
