r"""Augmented Lagrangian for weighted programs whose optimum has nearly full rank (weights that are nearly realizable).

There the dual has low rank and the primal factor is as large as the matrix itself, so a low-rank primal method has
nothing to gain. With f = n L, the multiplier Z (positive semidefinite, Z G = 0 at the optimum) and a penalty s,

    phi(G) = f(G) + |PSD part of (Z - s G)|^2 / (2 s),       diagonal of G fixed at 1,       Z <- PSD part of (Z - s G),

phi is convex and once continuously differentiable; it is minimised by a semismooth Newton method with conjugate
gradients in matrix space. With V the eigenvectors of Z - s G and only its few positive eigenvalues involved, a Hessian
product costs a few n x n x k products.

References
----------
Zhao, Sun, Toh 2010, A Newton-CG augmented Lagrangian method for semidefinite programming, SIAM J. Optim. 20.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import scipy.linalg

from optgeom._numerics import Array, Square
from optgeom.certificates import Certified
from optgeom.certificates.repair import repair
from optgeom.programs import group_matrix
from optgeom.programs.weighted import WeightedProgram
from optgeom.solvers.base import Attempt, Judge

OUTER_STEPS = 60
NEWTON_STEPS = 30
PRODUCTS = 300
GOOD_GAP = 1e-11
FIRST_PENALTY, LARGEST_PENALTY, GROWTH = (
    10.0,
    600.0,
    3.0,
)  # in units of 1/(n tau^2): uncapped, the inner system becomes too hard


class _Point:
    """phi, its gradient and Hessian products at one matrix."""

    def __init__(self, program: WeightedProgram, gram: Array, multiplier: Array, penalty: float) -> None:
        self.program, self.gram, self.penalty = program, gram, penalty
        n = program.num_samples
        eigenvalues, vectors = scipy.linalg.eigh(multiplier - penalty * gram)
        positive = eigenvalues > 0
        self.upper, self.lower = vectors[:, positive], vectors[:, ~positive]
        high, low = eigenvalues[positive], eigenvalues[~positive]
        self.weights = high[:, None] / (high[:, None] - low[None, :])
        self.projection = (self.upper * high) @ self.upper.T
        with np.errstate(over="ignore"):  # a trial far outside has an infinite value, and is refused for it
            self.value = n * program.risk(gram) + float(np.sum(high**2)) / (2 * penalty)
        self.force = n * program.gradient(gram)
        gradient = self.force - self.projection
        np.fill_diagonal(gradient, 0.0)
        self.gradient = gradient
        self.derivative = program.gradient_derivative(gram)
        self.curvature = n * program.pair_curvature(gram, self.force)

    def product(self, direction: Array) -> Array:
        """Hessian of phi applied to a symmetric direction with zero diagonal (Frobenius metric)."""
        upper, lower = self.upper, self.lower
        half = upper.T @ direction
        inner = (half @ upper) @ upper.T
        outer = (self.weights * (half @ lower)) @ lower.T
        mixed = upper @ (0.5 * inner + outer)
        image = self.program.num_samples * self.derivative(direction) + self.penalty * (mixed + mixed.T)
        np.fill_diagonal(image, 0.0)
        return np.asarray(image)

    def preconditioner(self) -> Array:
        """Diagonal of the Hessian: exact curvature of the pair plus the penalty's average over the projection."""
        share = (self.upper**2).sum(axis=1)
        return np.asarray(self.curvature + self.penalty * np.minimum(1.0, share[:, None] + share[None, :]) / 2 + 1e-300)


def _newton_step(here: _Point, accuracy: float) -> Array:
    scale = here.preconditioner()
    step = np.zeros_like(here.gram)
    residual = -here.gradient
    solved = residual / scale
    direction, inner = solved, float(np.sum(residual * solved))
    target = accuracy**2 * inner
    for _ in range(PRODUCTS):
        image = here.product(direction)
        curvature = float(np.sum(direction * image))
        if curvature <= 0:
            break
        length = inner / curvature
        step = step + length * direction
        residual = residual - length * image
        solved = residual / scale
        following = float(np.sum(residual * solved))
        if following <= target:
            break
        direction, inner = solved + (following / inner) * direction, following
    return step


def _minimise(
    program: WeightedProgram, gram: Array, multiplier: Array, penalty: float, tolerance: float
) -> tuple[_Point, int]:
    here = _Point(program, gram, multiplier, penalty)
    for iteration in range(NEWTON_STEPS):
        size = float(np.linalg.norm(here.gradient))
        if size <= tolerance:
            return here, iteration
        with np.errstate(over="ignore", invalid="ignore"):
            step = _newton_step(here, min(0.1, max(1e-3, size)))
        # Pairs without curvature, at temperatures near 0, may overflow.
        if not np.isfinite(step).all():
            return here, iteration
        slope = float(np.sum(here.gradient * step))
        length = 1.0
        while True:
            there = _Point(program, here.gram + length * step, multiplier, penalty)
            if there.value <= here.value + 1e-4 * length * slope + 1e-14 * abs(here.value):
                break
            length /= 2
            if length < 1e-6:
                return here, iteration
        here = there
    return here, NEWTON_STEPS


@dataclass(frozen=True, kw_only=True)
class AugmentedLagrangian:
    """The augmented Lagrangian method; members of a group are taken apart, and their matrices averaged again.

    Attributes
    ----------
    good_gap : float
        Gap relative to 1 + |risk| at which the search ends; it also ends where the gap stops falling.
    """

    name: ClassVar[str] = "augmented Lagrangian"
    needs: ClassVar[frozenset[str]] = frozenset({"row-softmax"})
    good_gap: float = GOOD_GAP

    def solve(self, program: WeightedProgram, start: Square, judge: Judge) -> Attempt:
        """From a group-form Gram matrix near the optimum, for example the clipped target."""
        sizes = program.sizes
        index = np.repeat(np.arange(sizes.size), sizes)
        member = (index[:, None] == np.arange(sizes.size)).astype(np.float64)
        pairs = sizes[:, None] * program.count

        def together(gram: Array) -> Array:
            off = gram - np.diag(np.diag(gram))
            return np.asarray(np.where(pairs > 0, member.T @ off @ member / np.maximum(pairs, 1.0), 1.0))

        apart, gram = _apart(program, index), group_matrix.expand(start, np.ones(sizes.size), index)
        n, unit = program.num_samples, 1.0 / (program.num_samples * program.temperature**2)
        penalty = FIRST_PENALTY * unit
        gradient = n * apart.gradient(gram)
        multiplier = gradient - np.diag((gradient * gram).sum(axis=1))
        eigenvalues, vectors = scipy.linalg.eigh(multiplier)
        multiplier = (vectors * np.maximum(eigenvalues, 0.0)) @ vectors.T
        best: Certified | None = None
        total, stalled, tolerance = 0, 0, 1e-2 * float(np.linalg.norm(gradient)) + 1e-12
        for _ in range(OUTER_STEPS):
            here, steps = _minimise(apart, gram, multiplier, penalty, tolerance)
            total += steps
            gram, multiplier = here.gram, here.projection
            there = judge(repair(together(gram), sizes).cosines)
            improved = best is None or there.certificate.gap < 0.7 * best.certificate.gap
            if best is None or there.certificate.gap < best.certificate.gap:
                best = there
            if best.certificate.gap <= self.good_gap * (1 + abs(best.risk)):
                break
            stalled = 0 if improved else stalled + 1
            if stalled >= 5:
                break
            penalty = min(penalty * GROWTH, LARGEST_PENALTY * unit)
            tolerance = max(1e-13, 0.3 * tolerance)
        assert best is not None
        return Attempt(best, self.name, total)


def _apart(program: WeightedProgram, index: npt.NDArray[np.intp]) -> WeightedProgram:
    """The program with every member a group of its own."""
    n = index.size
    rows = program.rows[np.ix_(index, index)]
    np.fill_diagonal(rows, 0.0)
    ones = np.ones(n, dtype=np.int64)
    return WeightedProgram(ones, 1.0 - np.eye(n), rows, program.anchored[index], program.temperature)
