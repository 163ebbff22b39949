r"""Primal-dual Newton method for weighted programs whose dual has low rank (weights that are nearly realizable).

With f = n L, the dual matrix Z (positive semidefinite, its diagonal free) and P the softmax of A / tau, the optimum is where

    P_ij + P_ji = w~_ij + w~_ji + 2 tau Z_ij   (i != j),          Z = PSD part of (Z - s A)   for any s > 0,

the second being A, Z positive semidefinite with A Z = 0. With V the eigenvectors of Z - s A to its k positive eigenvalues z_a, and
g_b the other eigenvalues of -(Z - s A)/s with eigenvectors U, the semismooth Newton step is dZ = V X' + X V' with

    (dA) V + U diag(g_b / z_a) (U' X) = - A V,          H dA = dZ + residual,

where H is the Hessian of f. H is elementwise but for the coupling within rows, which is a graph Laplacian on n points; eliminating dA
leaves a positive definite system in X, of size n x k instead of n x n, and conjugate gradients with the k x k blocks of one row as
preconditioner solve it mostly in 50 to 200 products of 4 n^2 k operations. (In matrix space, as in the augmented Lagrangian, 300 were
often not enough: pairs of samples with hardly any weight have hardly any curvature. Here they are inverted exactly.)

A step sized by its largest entry would be ruled by those flat pairs. As log(P_ij + P_ji) is what is nearly linear in A_ij, a rise dA
is replaced by tau log(1 + dA / tau), a fall is limited to tau; near the optimum both are the Newton step itself. There is no further
safeguard: the method is fast, not infallible, and the certificate judges what it returns.

References
----------
Qi, Sun 1993 (semismooth Newton); Zhao, Sun, Toh 2010, SIAM J. Optim. 20 (its use in semidefinite programming). The reduction to n x k and
the damping in logarithms are ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import scipy.linalg

from optgeom._numerics import Array
from optgeom.certificates.certificate import RANK_EIGENVALUE
from optgeom.programs.weighted import WeightedProgram
from optgeom.solvers.low_rank import Judged

STEPS = 60
PATIENCE = 12  # steps without a smaller violation after which the search is given up
SETTLING = 5  # first steps, which fit cosines and dual to each other: the violation says nothing yet
PENALTY = 0.05  # s: weighs cosines against the dual; for tau from .05 to .5 all of .01 to .1 converged, .3 in part only
WORTH_JUDGING = 1e-4  # violation; gaps of 1e-9 came with 1e-7 to 1e-6
ACCURACY = 1e-3  # of the linear system: at 1e-2 the set of dual directions no longer settles
PRODUCTS = 600
SMALLEST_SUM = 1e-150  # of P_ij + P_ji: the curvature of flatter pairs has no inverse in floating point
LARGEST_SHARE = 0.65  # of n in dual directions; beyond, the optimum has low rank and the staircase is the method
LARGEST_BLOCKS = 2**25  # numbers in the row blocks, n k^2

J = TypeVar("J", bound=Judged)


class _Inverse:
    """H^-1 on symmetric matrices with zero diagonal: elementwise, with the rows' coupling through a Laplacian."""

    def __init__(self, program: WeightedProgram, gram: Array) -> None:
        n, tau = program.num_samples, program.temperature
        self.p = program.probabilities(gram)
        self.sums = self.p + self.p.T
        np.fill_diagonal(self.sums, 1.0)
        if self.sums.min() < SMALLEST_SUM:
            raise np.linalg.LinAlgError("pairs without curvature")
        self.elementwise = 2 * tau**2 / self.sums
        np.fill_diagonal(self.elementwise, 0.0)
        self.half = self.p / (2 * tau**2)
        laplacian = -self.p * self.p.T / self.sums
        np.fill_diagonal(laplacian, 0.0)
        np.fill_diagonal(laplacian, -laplacian.sum(axis=1))
        # The risk does not see a constant added to all cosines; a little curvature stands in for the infinite inverse.
        laplacian += 1e-7 * float(np.mean(np.diag(laplacian))) / n
        self.factor = scipy.linalg.cho_factor(laplacian, overwrite_a=True, check_finite=False)

    def __call__(self, force: Array) -> Array:
        moved = self.elementwise * force
        rows = scipy.linalg.cho_solve(self.factor, np.einsum("ij,ij->i", self.p, moved), check_finite=False)
        coupling = self.half * rows[:, None]
        coupling += coupling.T
        moved += self.elementwise * coupling
        return np.asarray(moved)


@dataclass
class _Step:
    gram: Array
    dual: Array
    violation: float


def _newton_step(program: WeightedProgram, gram: Array, dual: Array) -> _Step:
    n, tau = program.num_samples, program.temperature
    eigenvalues, vectors = scipy.linalg.eigh(dual - PENALTY * gram, check_finite=False)
    # Far from the optimum nearly half of all directions may be positive: the largest will do there.
    k = min(int((eigenvalues > 0).sum()), int(np.sqrt(LARGEST_BLOCKS / n)), max(1, int(LARGEST_SHARE * n)))
    upper, lower = np.ascontiguousarray(vectors[:, n - k :]), np.ascontiguousarray(vectors[:, : n - k])
    high, rest = eigenvalues[n - k :], np.maximum(0.0, -eigenvalues[: n - k]) / PENALTY
    projected = (upper * high) @ upper.T
    inverse = _Inverse(program, gram)
    missing = (program.rows + program.rows.T - inverse.sums) / (2 * tau) + projected
    np.fill_diagonal(missing, 0.0)
    settled = inverse(missing)
    violation = gram @ upper
    ratio = rest[:, None] / high[None, :]

    def spread(unknown: Array) -> Array:
        change = upper @ unknown.T
        change += change.T
        np.fill_diagonal(change, 0.0)
        return np.asarray(change)

    def operator(unknown: Array) -> Array:
        return np.asarray(inverse(spread(unknown)) @ upper + lower @ (ratio * (lower.T @ unknown)))

    unknown = _conjugate_gradients(operator, _Blocks(inverse, gram, upper, high), -(violation + settled @ upper))
    change = spread(unknown)
    move = (settled + inverse(change)) / tau
    move = np.where(move > 0, np.log1p(np.maximum(move, 0.0)), np.maximum(move, -1.0))
    dual_change = upper @ unknown.T
    return _Step(gram + tau * move, projected + dual_change + dual_change.T, float(np.linalg.norm(violation)))


class _Blocks:
    """Preconditioner: the k x k block of every row, and the direction of the constant that the risk hardly sees."""

    def __init__(self, inverse: _Inverse, gram: Array, upper: Array, high: Array) -> None:
        n, k = upper.shape
        outer = (upper[:, :, None] * upper[:, None, :]).reshape(n, k * k)
        blocks = (inverse.elementwise @ outer).reshape(n, k, k)
        blocks[:, np.arange(k), np.arange(k)] += np.abs(np.diag(gram))[:, None] / high[None, :]
        self.inverse = np.linalg.inv(blocks)
        ones = 1.0 - np.eye(n)
        weight = float(np.sum(ones * inverse(ones))) / float(n * (n - 1)) ** 2
        self.constant = ones @ upper
        self.solved = self._rows(self.constant)
        self.weight = 2 * weight / (1 + 2 * weight * float(np.sum(self.constant * self.solved)))

    def _rows(self, residual: Array) -> Array:
        return np.asarray(np.einsum("iab,ib->ia", self.inverse, residual))

    def __call__(self, residual: Array) -> Array:
        solved = self._rows(residual)
        return np.asarray(solved - (self.weight * float(np.sum(self.constant * solved))) * self.solved)


def _conjugate_gradients(operator: Callable[[Array], Array], precondition: Callable[[Array], Array], right: Array) -> Array:
    unknown = np.zeros_like(right)
    residual = right.copy()
    solved = precondition(residual)
    direction, inner = solved, float(np.sum(residual * solved))
    target = ACCURACY**2 * inner
    for _ in range(PRODUCTS):
        image = operator(direction)
        curvature = float(np.sum(direction * image))
        if not curvature > 0 or not inner > 0:
            break
        length = inner / curvature
        unknown += length * direction
        residual -= length * image
        solved = precondition(residual)
        following = float(np.sum(residual * solved))
        if following <= target:
            break
        direction, inner = solved + (following / inner) * direction, following
    return unknown


def dual_start(program: WeightedProgram, gram: Array) -> Array:
    """PSD part of the dual matrix that belongs to a Gram matrix."""
    gradient = program.num_samples * program.gradient(gram)
    dual = gradient - np.diag((gradient * gram).sum(axis=1))
    eigenvalues, vectors = scipy.linalg.eigh(dual)
    return np.asarray((vectors * np.maximum(eigenvalues, 0.0)) @ vectors.T)


def applies(program: WeightedProgram) -> bool:
    """Whether every pair of samples has curvature: each sample a group of its own, at most one of them no anchor."""
    return bool(np.all(program.sizes == 1)) and int(program.anchored.sum()) >= program.num_samples - 1


def solve_primal_dual(
    program: WeightedProgram, start: Array, judge: Callable[[Array], J], good_gap: float, most: int = STEPS
) -> tuple[J | None, int]:
    """Best judged matrix, None where the method found nothing to judge, and the number of steps.

    Parameters
    ----------
    program : WeightedProgram
        Every sample a group of its own. Where pairs have no curvature (`applies`) nothing is found.
    start : (n, n)
        Positive semidefinite, unit diagonal.
    judge : callable
        Matrix -> risk and certificate; it may be given matrices that are slightly indefinite.
    good_gap : float
        Gap relative to 1 + |risk| at which the search ends.
    most : int
        Steps after which the search is given up.
    """
    best: J | None = None
    if not applies(program):
        return None, 0
    gram, dual = start, dual_start(program, start)
    smallest, since, judged = np.inf, 0, np.inf
    for taken in range(1, most + 1):
        try:
            step = _newton_step(program, gram, dual)
        except np.linalg.LinAlgError:
            return best, taken
        if not np.isfinite(step.gram).all():
            return best, taken
        gram, dual = step.gram, step.dual
        falls = taken <= SETTLING or step.violation < 0.9 * smallest
        smallest, since = (step.violation, 0) if falls else (smallest, since + 1)
        given_up = since >= PATIENCE or taken == most
        # Judging costs as much as a step: only where the violation is small, and has fallen by a good part since, or falls no more.
        if (step.violation < WORTH_JUDGING and (step.violation < 0.3 * judged or since > 0)) or given_up:
            judged = min(judged, step.violation)
            found = judge(gram)
            if best is None or found.certificate.gap < best.certificate.gap:
                best = found
            good = good_gap * (1 + abs(best.risk))
            if best.certificate.gap <= good:
                # Only in the limit are the cosines of low rank: what does not count for it would still count for an embedding.
                exact = judge(_of_low_rank(gram))
                return (exact if exact.certificate.gap <= good else best), taken
        if given_up:
            break
    return best, taken


def _of_low_rank(gram: Array) -> Array:
    """A Gram matrix without the eigenvalues that do not count for its rank, its diagonal brought back to 1."""
    eigenvalues, vectors = scipy.linalg.eigh(gram, check_finite=False)
    kept = eigenvalues > RANK_EIGENVALUE
    rows = vectors[:, kept] * np.sqrt(eigenvalues[kept])
    rows /= np.maximum(np.linalg.norm(rows, axis=1), 1e-300)[:, None]
    return np.asarray(rows @ rows.T)
