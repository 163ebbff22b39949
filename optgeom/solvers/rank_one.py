r"""The two equations of the rank-one dual for one log-sum bound, and their derivative (see `newton`)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optgeom._numerics import EPS, Array, Square, log_nonnegative, logsumexp_rows
from optgeom.losses.rows import Majorizer
from optgeom.programs.class_mean import ClassMeanProgram

DIRECT_SIZE = 150  # unknowns up to which a dense factorisation beats an iterative solve
PAIR_STEPS = 60  # of Newton's method for one pair; six are usual
PLAIN_RANGE = 600.0  # of logs, within which products of anchors and weights are floating-point numbers

Pin = tuple[int, int, float]  # two groups of one member, and the cosine that they keep


@dataclass(frozen=True)
class Point:
    """Unknowns with everything that is computed from them."""

    u: Array
    y: Array
    r1: Array
    r2: Array
    cosines: Array
    share: Array  # W_ij = r_i omega_ij / c_ij: the part of the force of a pair that comes from the row anchor
    reach: Array | float  # how far a cosine moves per unit of its log force: tau, or (G, G)
    pull: Array  # derivative of log norm in the log force of a pair: count w x / norm, times reach / tau_i

    @property
    def residual(self) -> float:
        return float(max(np.max(np.abs(self.r1)), np.max(np.abs(self.r2))))


class System:
    """The two equations for one majorizer."""

    def __init__(self, program: ClassMeanProgram, majorizer: Majorizer, pin: Pin | None = None) -> None:
        self.pin = pin
        self.count = program.rows.count
        self.temperatures = program.temperatures[:, None]
        self.reach = program.pair_temperature
        self.tau = float(program.temperatures.max())
        self.log_offset = majorizer.log_offset
        self.pairs = self.count > 0
        self.moves = self.pairs.copy()
        if pin is not None:
            self.moves[pin[0], pin[1]] = self.moves[pin[1], pin[0]] = False
        self.log_weight = np.where(self.pairs, majorizer.log_weight, 0.0)
        self.largest, self.smallest = float(np.max(self.log_weight)), float(np.min(self.log_weight))
        self.weight = np.exp(self.log_weight - self.largest)
        self.log_terms = np.where(self.pairs, majorizer.log_weight + log_nonnegative(self.count), -np.inf)
        self.log_anchor = log_nonnegative(program.rows.anchor_weight * majorizer.mass / program.temperatures)

    def normaliser(self, cosines: Square) -> Array:
        """u that satisfies the first equation at given cosines."""
        return np.asarray(
            np.logaddexp(self.log_offset, logsumexp_rows(self.log_terms + (cosines - 1.0) / self.temperatures))
        )

    def start_dual(self, u: Array, cosines: Square, sizes: Array) -> Array:
        """y from the row sums of the force at given cosines: exact for the simplex of balanced classes."""
        log_pull = self.log_weight + (self.log_anchor - u)[:, None] + (cosines - 1.0) / self.temperatures
        log_force = np.logaddexp(log_pull, log_pull.T)
        row = logsumexp_rows(np.where(self.pairs, log_force, -np.inf) + log_nonnegative(self.count))
        return np.asarray(row - 0.5 * logsumexp_rows((np.log(sizes) + row)[None, :])[0])

    def _forces(self, u: Array) -> tuple[Array, Array]:
        """log c_ij and the share of the row anchor in it."""
        level = self.log_anchor - u
        finite = level[np.isfinite(level)]
        top = float(finite.max())
        if top - float(finite.min()) + self.largest - self.smallest < PLAIN_RANGE:
            # One logarithm instead of the two exponentials and two logarithms of the general form: this is the
            # costliest line of a step.
            omega = self.weight * np.exp(level - top)[:, None]
            c = omega + omega.T
            return np.log(c) + (top + self.largest), omega / c
        log_omega = self.log_weight + level[:, None]
        log_c = np.logaddexp(log_omega, log_omega.T)
        return log_c, np.exp(log_omega - log_c)

    def cosines(self, u: Array, force: Array) -> tuple[Array, Array, Array | float]:
        """Cosine of each pair for the log of its force, the share of the row anchor in it, and the reach."""
        cosines, share, reach = self._free_cosines(u, force)
        if self.pin is not None:
            first, second, cosine = self.pin
            pair = ([first, second], [second, first])
            cosines[pair], share[pair] = cosine, 0.0
        single = ~self.pairs
        share[single] = 0.0
        cosines[single] = 1.0
        return cosines, share, reach

    def normalised(self, u: Array, cosines: Array, reach: Array | float) -> tuple[Array, Array]:
        """Log of the row normaliser relative to the one that u stands for, and its derivative in log forces."""
        # Relative, so that nothing underflows at small temperatures.
        terms = np.exp(self.log_terms + (cosines - 1.0) / self.temperatures - u[:, None])
        norm = np.exp(self.log_offset - u) + terms.sum(axis=1)
        pull = terms / norm[:, None]
        return np.log(norm), pull if isinstance(reach, float) else pull * reach / self.temperatures

    def _free_cosines(self, u: Array, force: Array) -> tuple[Array, Array, Array | float]:
        if isinstance(self.reach, float):
            log_c, share = self._forces(u)
            return 1.0 + self.reach * (force - log_c), share, self.reach
        log_omega = self.log_weight + (self.log_anchor - u)[:, None]
        mine, other = 1 / self.temperatures, 1 / self.temperatures.T
        # The larger term alone lies beyond the root, from where Newton's method on a convex function never overshoots.
        move = np.minimum((force - log_omega) / mine, (force - log_omega.T) / other)
        for _ in range(PAIR_STEPS):
            first, second = log_omega + move * mine, log_omega.T + move * other
            total = np.logaddexp(first, second)
            share = np.exp(first - total)
            reach = 1 / (share * mine + (1 - share) * other)
            step = (total - force) * reach
            move = move - step
            if not np.max(np.abs(step[self.pairs])) > 4 * EPS * self.tau * np.max(np.abs(force[self.pairs])):
                break
        return 1.0 + (move + move.T) / 2, share, reach

    def at(self, u: Array, y: Array) -> Point:
        cosines, share, reach = self.cosines(u, y[:, None] + y[None, :])
        r1, pull = self.normalised(u, cosines, reach)
        z = np.exp(y - y.max())
        r2 = z + (self.count * cosines) @ z
        return Point(u, y, r1, r2, cosines, share, reach, pull)

    def derivative(self, point: Point) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """Derivative of the 2G equations: four blocks, and what is added to their diagonals.

        r1:  sum_h pull_gh (dy_g + dy_h + W_gh du_g + W_hg du_h) - du_g
        r2:  z_g dy_g + sum_h count_gh z_h ( A_gh dy_h + reach_gh (dy_g + dy_h + W_gh du_g + W_hg du_h) ).
        """
        pull, share = point.pull, point.share
        z = np.exp(point.y - point.y.max())
        mass = self.count * z[None, :]
        moved = point.reach * mass
        crossed = share.T
        # The cosine of a pinned pair moves with no unknown (its shares are 0).
        pull_y, moved_y = pull, moved
        if self.pin is not None:
            pair = ([self.pin[0], self.pin[1]], [self.pin[1], self.pin[0]])
            pull_y, moved_y = pull.copy(), moved.copy()
            pull_y[pair] = moved_y[pair] = 0.0
        blocks = (pull * crossed, pull_y, moved * crossed, mass * point.cosines + moved_y)
        diagonals = (
            (pull * share).sum(axis=1) - 1.0,
            pull_y.sum(axis=1),
            (moved * share).sum(axis=1),
            z + moved_y.sum(axis=1),
        )
        return blocks, diagonals

    def jacobian(self, point: Point) -> Array:
        """The (2G, 2G) matrix of `derivative`, in the unknowns u, y."""
        blocks, diagonals = self.derivative(point)
        g = point.u.size
        matrix = np.block([[blocks[0], blocks[1]], [blocks[2], blocks[3]]])
        which = np.arange(g)
        for block, diagonal in enumerate(diagonals):
            matrix[which + g * (block // 2), which + g * (block % 2)] += diagonal
        return np.asarray(matrix)

    def direction(self, point: Point) -> tuple[Array, Array]:
        """Newton direction."""
        right = -np.concatenate([point.r1, point.r2])
        g = point.u.size
        step = None
        if 2 * g > DIRECT_SIZE:
            step = _solve_iteratively(*self.derivative(point), right, rtol=min(1e-2, 0.1 * point.residual))
        if step is None:
            step = np.linalg.solve(self.jacobian(point), right)
        return step[:g], step[g:]


def _solve_iteratively(
    blocks: tuple[Array, ...], diagonals: tuple[Array, ...], right: Array, rtol: float
) -> Array | None:
    """GMRES with the 2 x 2 diagonal blocks as preconditioner; None when it does not converge quickly.

    The preconditioned matrix is the identity plus two or three outlying directions (negatives of a row pull nearly
    alike), so 3 to 8 products do; a factorisation of the 2G x 2G matrix costs as much as several eigendecompositions.
    """
    from scipy.sparse.linalg import LinearOperator, gmres

    g = right.size // 2
    b11, b12, b21, b22 = blocks
    d11, d12, d21, d22 = diagonals
    p11, p12, p21, p22 = (np.diag(block) + diagonal for block, diagonal in zip(blocks, diagonals, strict=True))
    determinant = p11 * p22 - p12 * p21
    if not np.all(np.abs(determinant) > 1e-12 * (np.abs(p11 * p22) + np.abs(p12 * p21))):
        return None

    def product(vector: Array) -> Array:
        du, dy = vector[:g], vector[g:]
        return np.concatenate([b11 @ du + b12 @ dy + d11 * du + d12 * dy, b21 @ du + b22 @ dy + d21 * du + d22 * dy])

    def precondition(vector: Array) -> Array:
        r1, r2 = vector[:g], vector[g:]
        return np.concatenate([(p22 * r1 - p12 * r2) / determinant, (p11 * r2 - p21 * r1) / determinant])

    shape = (2 * g, 2 * g)
    operator = LinearOperator(shape, matvec=product, dtype=np.float64)
    preconditioner = LinearOperator(shape, matvec=precondition, dtype=np.float64)
    solution, failed = gmres(operator, right, M=preconditioner, rtol=max(rtol, 1e-10), atol=0.0, restart=40, maxiter=1)
    return None if failed else np.asarray(solution)
