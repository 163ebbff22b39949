r"""Primal-dual Newton method for weighted programs whose dual has low rank (weights that are nearly realizable).

With f = n L, the dual matrix Z (positive semidefinite, its diagonal free) and P the softmax of A / tau, the optimum is
where

    P_ij + P_ji = w~_ij + w~_ji + 2 tau Z_ij   (i != j),          Z = PSD part of (Z - s A)   for any s > 0,

the second being A, Z positive semidefinite with A Z = 0. With V the eigenvectors of Z - s A to its k positive
eigenvalues z_a, and g_b the other eigenvalues of -(Z - s A)/s with eigenvectors U, the semismooth Newton step is dZ = V
X' + X V' with

    (dA) V + U diag(g_b / z_a) (U' X) = - A V,          H dA = dZ + residual,

where H is the Hessian of f. H is elementwise but for the coupling within rows, which is a graph Laplacian on n points;
eliminating dA leaves a positive definite system in X, of size n x k instead of n x n, and conjugate gradients with the
k x k blocks of one row as preconditioner solve it mostly in 50 to 200 products of 4 n^2 k operations. (In matrix space,
as in the augmented Lagrangian, 300 were often not enough: pairs of samples with hardly any weight have hardly any
curvature. Here they are inverted exactly.)

Samples with the same weights are groups, and everything above stays within the matrices that do not change when they
are exchanged (`group_matrix`). Off the diagonal such a matrix is kept as sqrt(m_g m_h) times its entries, and on the
diagonal, for the pairs within a group, as sqrt(m_g (m_g - 1)) times theirs: this keeps inner products, H stays
elementwise but for the Laplacian, and only the way from and to the eigenvalues knows of the sizes. Where samples of a
group want to coincide, the whole within-group complement (m_g - 1 directions) belongs to V, with one unknown: V and X
have one more column for it, so that a program of G groups costs what one of G samples costs.

A step sized by its largest entry would be ruled by those flat pairs. As log(P_ij + P_ji) is what is nearly linear in
A_ij, a rise dA is replaced by tau log(1 + dA / tau), a fall is limited to tau; near the optimum both are the Newton
step itself. There is no further safeguard: the method is fast, not infallible, and the certificate judges what it
returns.

References
----------
Qi, Sun 1993 (semismooth Newton); Zhao, Sun, Toh 2010, SIAM J. Optim. 20 (its use in semidefinite
programming). The reduction to n x k and the damping in logarithms are ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.linalg

from optgeom._numerics import Array, Square
from optgeom.programs import group_matrix
from optgeom.programs.weighted import WeightedProgram
from optgeom.solvers.base import Attempt, FeasibleInTheLimit, Judge

STEPS = 60
GOOD_GAP = 3e-10
PATIENCE = 12  # steps without a smaller violation after which the search is given up
SETTLING = 5  # first steps, which fit cosines and dual to each other: the violation says nothing yet
# s for samples apart: weighs cosines against the dual; for tau from .05 to .5 all of .01 to .1 converged, .3 in part
# only. For groups of mean size m it is divided by the root of m, which was best for m = 6, 18 and 500.
PENALTY = 0.05
WORTH_JUDGING = 1e-4  # violation; gaps of 1e-9 came with 1e-7 to 1e-6
ACCURACY = 1e-3  # of the linear system: at 1e-2 the set of dual directions no longer settles
PRODUCTS = 600
SMALLEST_SUM = 1e-150  # of P_ij + P_ji: the curvature of flatter pairs has no inverse in floating point
LARGEST_SHARE = (
    0.65  # of the groups in dual directions; beyond, the optimum has low rank and the staircase is the method
)
LARGEST_BLOCKS = 2**25  # numbers in the row blocks, G k^2


class _Frame:
    """The isometry from invariant matrices without diagonal to (G, G) matrices, and to the two kinds of eigenspaces."""

    def __init__(self, program: WeightedProgram, caution: float) -> None:
        m = program.sizes.astype(np.float64)
        self.size = np.sqrt(m)
        self.scale = np.sqrt(m[:, None] * program.count)
        self.paired = program.count > 0
        self.within = np.sqrt((m - 1) / m)
        self.penalty = PENALTY / (caution * float(np.sqrt(m.mean())))
        self.unit = float(np.sqrt(m.mean()))
        share = LARGEST_SHARE if np.all(program.sizes == 1) else 1.0
        self.most = min(int(np.sqrt(LARGEST_BLOCKS / m.size)), max(1, int(share * m.size)))

    def isometric(self, between: Array) -> Array:
        return np.asarray(self.scale * between)

    def between(self, isometric: Array) -> Array:
        return np.asarray(np.where(self.paired, isometric / np.where(self.paired, self.scale, 1.0), 0.0))

    def block(self, isometric: Array) -> Array:
        """On the group indicators; on the complements the eigenvalue is - diagonal / sqrt(m (m - 1))."""
        invariant = isometric.copy()
        invariant[np.diag_indices_from(invariant)] *= self.within
        return invariant


class _Inverse:
    """H^-1 on isometric matrices: elementwise, with the rows' coupling through a Laplacian."""

    def __init__(self, program: WeightedProgram, gram: Array, frame: _Frame) -> None:
        tau = program.temperature
        p = program.probabilities(gram)
        self.sums = np.where(frame.paired, p + p.T, 1.0)
        if self.sums.min() < SMALLEST_SUM:
            raise np.linalg.LinAlgError("pairs without curvature")
        self.elementwise = np.where(frame.paired, 2 * tau**2 / self.sums, 0.0)
        self.p = np.sqrt(program.count) * p
        self.half = self.p / (2 * tau**2)
        laplacian = -self.p * self.p.T / self.sums
        np.fill_diagonal(laplacian, 0.0)
        np.fill_diagonal(laplacian, -(laplacian @ frame.size) / frame.size)
        # The risk does not see a constant added to all cosines; a little curvature stands in for the infinite inverse.
        constant = frame.size / np.linalg.norm(frame.size)
        laplacian += 1e-7 * float(np.mean(np.diag(laplacian))) * np.outer(constant, constant)
        self.factor = scipy.linalg.cho_factor(laplacian, overwrite_a=True, check_finite=False)

    def __call__(self, force: Array) -> Array:
        moved = self.elementwise * force
        rows = scipy.linalg.cho_solve(self.factor, np.einsum("ij,ij->i", self.p, moved), check_finite=False)
        coupling = self.half * rows[:, None]
        coupling += coupling.T
        moved += self.elementwise * coupling
        return np.asarray(moved)


@dataclass
class _Dual:
    """An invariant matrix by its eigenspaces: on the group indicators, and a number on each within-group complement."""

    block: Array
    rest: Array


@dataclass
class _Step:
    gram: Array
    dual: _Dual
    violation: float


class _Split:
    """Z - s A by the sign of its eigenvalues."""

    def __init__(self, program: WeightedProgram, frame: _Frame, gram: Array, dual: _Dual) -> None:
        ones = np.ones(program.sizes.size)
        self.gram = group_matrix.symmetric_block(gram, ones, program.sizes)
        self.gram_rest = group_matrix.complement(gram, ones, program.sizes)
        eigenvalues, vectors = scipy.linalg.eigh(dual.block - frame.penalty * self.gram, check_finite=False)
        groups = ones.size
        # Far from the optimum nearly half of all directions may be positive: the largest will do there.
        k = min(int((eigenvalues > 0).sum()), frame.most)
        self.upper, self.lower = (
            np.ascontiguousarray(vectors[:, groups - k :]),
            np.ascontiguousarray(vectors[:, : groups - k]),
        )
        self.high, self.rest = eigenvalues[groups - k :], np.maximum(0.0, -eigenvalues[: groups - k]) / frame.penalty
        complement = dual.rest - frame.penalty * self.gram_rest
        self.merged = (program.sizes > 1) & (complement > 0)
        self.projected = _Dual((self.upper * self.high) @ self.upper.T, np.where(self.merged, complement, 0.0))
        # An unknown x of a complement stands for 2 x / sqrt(m - 1) times its identity.
        self.pull = np.where(self.merged, -1.0 / frame.size, 0.0)

    def spread(self, frame: _Frame, unknown: Array) -> Array:
        """V X' + X V', without diagonal, isometric."""
        change = self.upper @ unknown[:, :-1].T
        change += change.T
        on_diagonal = np.diag_indices_from(change)
        change[on_diagonal] = frame.within * change[on_diagonal] + 2 * self.pull * unknown[:, -1]
        return np.asarray(change)

    def along(self, frame: _Frame, isometric: Array) -> Array:
        """D V of an isometric matrix D."""
        return np.column_stack([frame.block(isometric) @ self.upper, self.pull * np.diag(isometric)])


def _newton_step(program: WeightedProgram, frame: _Frame, gram: Array, dual: _Dual) -> _Step:
    tau = program.temperature
    split = _Split(program, frame, gram, dual)
    inverse = _Inverse(program, gram, frame)
    projected, _ = group_matrix.from_blocks(split.projected.block, split.projected.rest, program.sizes)
    missing = np.where(frame.paired, (program.rows + program.rows.T - inverse.sums) / (2 * tau) + projected, 0.0)
    settled = inverse(frame.isometric(missing))
    root = np.sqrt(np.maximum(program.sizes - 1.0, 0.0))
    violation = np.column_stack([split.gram @ split.upper, np.where(split.merged, root * split.gram_rest, 0.0)])
    ratio = split.rest[:, None] / split.high[None, :]

    def operator(unknown: Array) -> Array:
        image = split.along(frame, inverse(split.spread(frame, unknown)))
        image[:, :-1] += split.lower @ (ratio * (split.lower.T @ unknown[:, :-1]))
        image[:, -1] += np.where(split.merged, 0.0, unknown[:, -1])
        return image

    precondition = _Blocks(inverse, frame, split)
    unknown = _conjugate_gradients(operator, precondition, -(violation + split.along(frame, settled)))
    move = frame.between(settled + inverse(split.spread(frame, unknown))) / tau
    move = np.where(move > 0, np.log1p(np.maximum(move, 0.0)), np.maximum(move, -1.0))
    change = split.upper @ unknown[:, :-1].T
    rest = np.where(split.merged, 2 * unknown[:, -1] / np.where(split.merged, root, 1.0), 0.0)
    moved = _Dual(split.projected.block + change + change.T, split.projected.rest + rest)
    return _Step(gram + tau * move, moved, float(np.linalg.norm(violation)) / frame.unit)


class _Blocks:
    """Preconditioner: the block of every row, and the direction of the constant that the risk hardly sees."""

    def __init__(self, inverse: _Inverse, frame: _Frame, split: _Split) -> None:
        g, k = split.upper.shape
        outer = (split.upper[:, :, None] * split.upper[:, None, :]).reshape(g, k * k)
        blocks = np.zeros((g, k + 1, k + 1))
        own = np.diag(inverse.elementwise)
        blocks[:, :k, :k] = (inverse.elementwise @ outer - own[:, None] * outer).reshape(g, k, k)
        blocks[:, np.arange(k), np.arange(k)] += np.abs(np.diag(split.gram))[:, None] / split.high[None, :]
        pair = np.column_stack([frame.within[:, None] * split.upper, split.pull])
        blocks += 2 * own[:, None, None] * pair[:, :, None] * pair[:, None, :]
        blocks[:, k, k] += np.where(split.merged, 0.0, 1.0)
        self.inverse = np.linalg.inv(blocks)
        ones = frame.isometric(frame.paired.astype(np.float64))
        weight = float(np.sum(ones * inverse(ones))) / float(np.sum(ones**2)) ** 2
        self.constant = split.along(frame, ones)
        self.solved = self._rows(self.constant)
        self.weight = 2 * weight / (1 + 2 * weight * float(np.sum(self.constant * self.solved)))

    def _rows(self, residual: Array) -> Array:
        return np.asarray(np.einsum("iab,ib->ia", self.inverse, residual))

    def __call__(self, residual: Array) -> Array:
        solved = self._rows(residual)
        return np.asarray(solved - (self.weight * float(np.sum(self.constant * solved))) * self.solved)


def _conjugate_gradients(
    operator: Callable[[Array], Array], precondition: Callable[[Array], Array], right: Array
) -> Array:
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


def _dual_start(program: WeightedProgram, gram: Array) -> _Dual:
    """PSD part of the dual matrix that belongs to a Gram matrix."""
    gradient = program.num_samples * program.gradient(gram)
    diagonal = -(program.count * gradient * gram).sum(axis=1)
    eigenvalues, vectors = scipy.linalg.eigh(group_matrix.symmetric_block(gradient, diagonal, program.sizes))
    rest = np.maximum(group_matrix.complement(gradient, diagonal, program.sizes), 0.0)
    return _Dual((vectors * np.maximum(eigenvalues, 0.0)) @ vectors.T, rest)


def applies(program: WeightedProgram) -> bool:
    """Whether every pair of samples has curvature: at most one of them is no anchor."""
    return int(program.sizes[program.anchored].sum()) >= program.num_samples - 1


@dataclass(frozen=True, kw_only=True)
class PrimalDual:
    """The primal-dual Newton method.

    Attributes
    ----------
    good_gap : float
        Gap relative to 1 + |risk| at which the search ends.
    most : int
        Steps after which the search is given up.
    caution : float
        Divides s: larger ones need more steps, and converge on some large groups where 1 does not.
    """

    name: ClassVar[str] = "primal-dual Newton"
    needs: ClassVar[frozenset[str]] = frozenset({"row-softmax"})
    good_gap: float = GOOD_GAP
    most: int = STEPS
    caution: float = 1.0

    def solve(self, program: WeightedProgram, start: Square, judge: Judge) -> Attempt | None:
        """From a feasible group-form matrix; None where pairs have no curvature (`applies`)."""
        if not applies(program):
            return None
        frame = _Frame(program, self.caution)
        search = FeasibleInTheLimit(judge, program.sizes, self.good_gap)
        gram, dual = start, _dual_start(program, start)
        smallest, since, judged, taken = np.inf, 0, np.inf, 0
        for taken in range(1, self.most + 1):
            try:
                step = _newton_step(program, frame, gram, dual)
            except np.linalg.LinAlgError:
                break
            if not np.isfinite(step.gram).all():
                break
            gram, dual = step.gram, step.dual
            falls = taken <= SETTLING or step.violation < 0.9 * smallest
            smallest, since = (step.violation, 0) if falls else (smallest, since + 1)
            given_up = since >= PATIENCE or taken == self.most
            # Judging costs as much as a step: only where the violation is small, and has fallen by a good part since,
            # or falls no more.
            if (step.violation < WORTH_JUDGING and (step.violation < 0.3 * judged or since > 0)) or given_up:
                judged = min(judged, step.violation)
                if search.good(gram):
                    break
            if given_up:
                break
        return search.attempt(self.name, taken)
