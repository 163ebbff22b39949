r"""Newton's method on the rank-one dual: the exact optimum where only one dimension is lost.

At the generic optimum (rank C - 1) the dual is Z = z z^T with z > 0 and A z = 0, and every cosine is explicit:

    A_ij = 1 + tau log( tau z_i z_j / c_ij ),      c_ij = r_i omega_ij + r_j omega_ji.

Unknowns are u_i (log of the row normaliser, omega_ij = w_ij exp(-u_i)) and y_i = log z_i; the equations are

    r1_i = log( offset_i + sum_j w_ij x_ij ) - u_i = 0,        r2_i = (A z)_i / max z = 0.

A loss whose rows are a fixed log-sum is solved by one such Newton run; otherwise its Jensen majorizer is, again and
again (majorize-minimize), each run started from the last. All on groups of equal classes: 2G unknowns. The result is
the optimum iff it is positive semidefinite; that is for the certificate to say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from optgeom._numerics import EPS, Array, Square, log_nonnegative, logsumexp_rows
from optgeom.losses.rows import Majorizer
from optgeom.programs.class_mean import ClassMeanProgram
from optgeom.solvers.base import Attempt, Judge

DIRECT_SIZE = 150  # unknowns up to which a dense factorisation beats an iterative solve
NEWTON_STEPS = 60
MAJORIZER_STEPS = 80
PATIENCE = 15  # majorizer steps in which the change must halve at least once
HOMOTOPY_STEP = 0.02  # the low-rank method is cheaper than a path that needs smaller steps
SMALLEST_DAMPING = 1e-6
SETTLED = 100  # units of rounding
PLAIN_RANGE = 600.0  # of logs, within which products of anchors and weights are floating-point numbers


@dataclass(frozen=True)
class NewtonResult:
    """Where Newton stopped.

    Attributes
    ----------
    cosines : (G, G)
        Group-form matrix, not necessarily positive semidefinite.
    log_dual : (G,)
        y = log z.
    converged : bool
        Whether both equations hold to rounding.
    iterations : int
        Newton steps in all.
    """

    cosines: Array
    log_dual: Array
    converged: bool
    iterations: int


Pin = tuple[int, int, float]  # two groups of one member, and the cosine that they keep


@dataclass(frozen=True)
class Newton:
    """Newton on the rank-one dual of a log-sum loss; along a homotopy of the proportions where it does not converge."""

    name: ClassVar[str] = "newton"
    needs: ClassVar[frozenset[str]] = frozenset({"majorizer"})

    def solve(self, program: ClassMeanProgram, start: Square, judge: Judge) -> Attempt | None:
        name, result = self.name, solve_newton(program)
        if not result.converged:
            followed = solve_by_homotopy(program)
            name, result = ("newton-homotopy", followed) if followed.converged else (name, result)
        return judged(result, judge, name)


def judged(result: NewtonResult, judge: Judge, name: str) -> Attempt | None:
    """Attempt of a Newton result; None where it is not finite."""
    if not np.all(np.isfinite(result.cosines)):
        return None
    return Attempt(judge(result.cosines), name, result.iterations)


@dataclass(frozen=True)
class _Point:
    """Unknowns with everything that is computed from them."""

    u: Array
    y: Array
    r1: Array
    r2: Array
    cosines: Array
    share: Array  # W_ij = r_i omega_ij / c_ij: the part of the force of a pair that comes from the row anchor
    pull: Array  # count w x / norm

    @property
    def residual(self) -> float:
        return float(max(np.max(np.abs(self.r1)), np.max(np.abs(self.r2))))


class PinnedSystem:
    """The two equations for one majorizer."""

    def __init__(self, program: ClassMeanProgram, majorizer: Majorizer, pin: Pin | None = None) -> None:
        self.pin = pin
        self.count = program.rows.count
        self.tau = program.temperature
        self.log_offset = majorizer.log_offset
        self.pairs = self.count > 0
        self.moves = self.pairs.copy()
        if pin is not None:
            self.moves[pin[0], pin[1]] = self.moves[pin[1], pin[0]] = False
        self.log_weight = np.where(self.pairs, majorizer.log_weight, 0.0)
        self.largest, self.smallest = float(np.max(self.log_weight)), float(np.min(self.log_weight))
        self.weight = np.exp(self.log_weight - self.largest)
        self.log_terms = np.where(self.pairs, majorizer.log_weight + log_nonnegative(self.count), -np.inf)
        self.log_anchor = log_nonnegative(program.rows.anchor_weight * majorizer.mass)

    def normaliser(self, cosines: Square) -> Array:
        """u that satisfies the first equation at given cosines."""
        return np.asarray(np.logaddexp(self.log_offset, logsumexp_rows(self.log_terms + (cosines - 1.0) / self.tau)))

    def start_dual(self, u: Array, cosines: Square, sizes: Array) -> Array:
        """y from the row sums of the force at given cosines: exact for the simplex of balanced classes."""
        log_omega = self.log_weight + (self.log_anchor - u)[:, None]
        log_force = np.logaddexp(log_omega, log_omega.T) + (cosines - 1.0) / self.tau - np.log(self.tau)
        row = logsumexp_rows(np.where(self.pairs, log_force, -np.inf) + log_nonnegative(self.count))
        return np.asarray(row - 0.5 * logsumexp_rows((np.log(sizes) + row)[None, :])[0])

    def forces(self, u: Array) -> tuple[Array, Array]:
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

    def fix(self, cosines: Array, share: Array) -> None:
        """Set the cosines that do not move with the unknowns."""
        if self.pin is not None:
            first, second, cosine = self.pin
            pair = ([first, second], [second, first])
            cosines[pair], share[pair] = cosine, 0.0
        single = ~self.pairs
        share[single] = 0.0
        cosines[single] = 1.0

    def at(self, u: Array, y: Array) -> _Point:
        log_c, share = self.forces(u)
        cosines = 1.0 + self.tau * (np.log(self.tau) + y[:, None] + y[None, :] - log_c)
        self.fix(cosines, share)
        # Relative to the normaliser that u stands for, so that nothing underflows at small temperatures.
        terms = np.exp(self.log_terms + (cosines - 1.0) / self.tau - u[:, None])
        norm = np.exp(self.log_offset - u) + terms.sum(axis=1)
        z = np.exp(y - y.max())
        r2 = z + (self.count * cosines) @ z
        return _Point(u, y, np.log(norm), r2, cosines, share, terms / norm[:, None])

    def derivative(self, point: _Point) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """Derivative of the 2G equations: four blocks, and what is added to their diagonals.

        r1:  sum_h pull_gh (dy_g + dy_h + W_gh du_g + W_hg du_h) - du_g
        r2:  z_g dy_g + sum_h count_gh z_h ( A_gh dy_h + tau (dy_g + dy_h + W_gh du_g + W_hg du_h) ).
        """
        tau, pull, share = self.tau, point.pull, point.share
        z = np.exp(point.y - point.y.max())
        mass = self.count * z[None, :]
        crossed = share.T
        # The cosine of a pinned pair moves with no unknown (its shares are 0).
        pull_y, mass_y = pull, mass
        if self.pin is not None:
            pair = ([self.pin[0], self.pin[1]], [self.pin[1], self.pin[0]])
            pull_y, mass_y = pull.copy(), mass.copy()
            pull_y[pair] = mass_y[pair] = 0.0
        blocks = (pull * crossed, pull_y, tau * (mass * crossed), mass * point.cosines + tau * mass_y)
        diagonals = (
            (pull * share).sum(axis=1) - 1.0,
            pull_y.sum(axis=1),
            tau * (mass * share).sum(axis=1),
            z + tau * mass_y.sum(axis=1),
        )
        return blocks, diagonals

    def jacobian(self, point: _Point) -> Array:
        """The (2G, 2G) matrix of `derivative`, in the unknowns u, y."""
        blocks, diagonals = self.derivative(point)
        g = point.u.size
        matrix = np.block([[blocks[0], blocks[1]], [blocks[2], blocks[3]]])
        which = np.arange(g)
        for block, diagonal in enumerate(diagonals):
            matrix[which + g * (block // 2), which + g * (block % 2)] += diagonal
        return np.asarray(matrix)

    def direction(self, point: _Point) -> tuple[Array, Array]:
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


def _newton(system: PinnedSystem, u: Array, y: Array, tolerance: float) -> tuple[_Point, int, bool]:
    """Damped Newton from (u, y): halve the step until the residual falls by the factor 1 - t/10."""
    with np.errstate(all="ignore"):  # a trial point may overflow; it is then refused
        point = system.at(u, y)
        residual = point.residual
        if not np.isfinite(residual):
            return point, 0, False
        for iteration in range(NEWTON_STEPS):
            if residual <= tolerance or (iteration and _settled(point, tolerance)):
                return point, iteration, True
            try:
                du, dy = system.direction(point)
            except np.linalg.LinAlgError:
                return point, iteration, False
            damping = 1.0
            while True:
                trial = system.at(point.u + damping * du, point.y + damping * dy)
                if trial.residual <= (1 - damping / 10) * residual:
                    break
                if residual <= 1e3 * tolerance * max(
                    1.0, system.tau
                ):  # cosines are 1 + tau log(...), rounded accordingly
                    return point, iteration, True  # Rounding, not the step, keeps the residual from falling further.
                damping /= 2
                if damping < SMALLEST_DAMPING:
                    return point, iteration, False
            point, residual = trial, trial.residual
    return point, NEWTON_STEPS, False


def _settled(point: _Point, tolerance: float) -> bool:
    """Both equations hold to a little more than rounding: after a Newton step the next one would only stir it.

    The second sums over all members of a group, hence its share of the tolerance, 8 eps max m; the first does not.
    """
    r1, r2 = float(np.max(np.abs(point.r1))), float(np.max(np.abs(point.r2)))
    return r1 <= SETTLED * EPS and r2 <= SETTLED / 8 * tolerance


def simplex(program: ClassMeanProgram) -> Array:
    """Group-form regular simplex."""
    return np.where(program.rows.count > 0, -1.0 / (program.num_classes - 1), 1.0)


def solve_newton(
    program: ClassMeanProgram,
    cosines: Array | None = None,
    log_dual: Array | None = None,
    pin: Pin | None = None,
    accuracy: float = 0.0,
) -> NewtonResult:
    """Solve the rank-one dual from the simplex, or from a given point.

    Parameters
    ----------
    program : ClassMeanProgram
        Its rows must have a majorizer (log-sum losses), and no coincident groups (`program.merged()`).
    cosines, log_dual : (G, G) and (G,), optional
        A starting point, e.g. the solution of a nearby program.
    pin : (int, int, float), optional
        Groups a and b of one member each, and the cosine that they keep: minimise F where A_ab = cosine.
    accuracy : float
        Change of (A - 1)/tau between two majorizers at which they count as settled; as far as rounding allows by
        default.
    """
    start = simplex(program) if cosines is None else cosines
    tolerance = 8 * EPS * float(program.sizes.max())
    mixing = _Anderson()
    current, y, total, last_change, loose = start, log_dual, 0, np.inf, 1e-4
    best = NewtonResult(start, np.zeros(program.sizes.size), False, 0)
    smallest, since = np.inf, 0
    for _ in range(MAJORIZER_STEPS):
        majorizer = program.rows.majorizer(program.exponents(current))
        system = PinnedSystem(program, majorizer, pin)
        u = system.normaliser(current)
        if y is None:
            y = system.start_dual(u, current, program.sizes.astype(np.float64))
        # A majorizer that will be replaced need not be solved much further than it is wrong.
        point, steps, converged = _newton(system, u, y, tolerance if majorizer.exact else loose)
        total += steps
        change = float(np.max(np.abs(point.cosines - current))) / program.temperature
        best = NewtonResult(point.cosines, point.y, converged, total)
        if majorizer.exact or not converged:
            break
        if change <= accuracy:
            break
        smallest, since = (change, 0) if change < 0.5 * smallest else (smallest, since + 1)
        if since > PATIENCE and change > 1e-10:
            best = NewtonResult(point.cosines, point.y, False, total)
            break
        if loose == tolerance and (change <= 2e-13 or (change <= 1e-10 and change > 0.5 * last_change)):
            break
        current, y, last_change = mixing.next(current, point.cosines), point.y, change
        loose = max(tolerance, min(loose, 1e-3 * change))
    else:
        best = NewtonResult(best.cosines, best.log_dual, False, total)
    return NewtonResult(
        _close(program, best) if best.converged else best.cosines, best.log_dual, best.converged, best.iterations
    )


def _close(program: ClassMeanProgram, result: NewtonResult) -> Array:
    """Remove the rounding of A = 1 + tau log(...) from A z = 0.

    That rounding, tau eps |log|, is summed over all classes and weighs against z_i, so it would spoil the dual of rare
    classes and of huge groups, while the force G hardly feels it. The symmetric change of rank two that closes A z = r,

        A - r s' - s r' + (r'z) s s',     s = z / |z|^2,

    lies on the pairs with frequent classes; leaving the diagonal at 1 costs r_i z_i^2 / |z|^2, so a second pass settles
    it.
    """
    m = program.sizes.astype(np.float64)
    count, pairs = program.rows.count, program.rows.count > 0
    z = np.exp(result.log_dual - result.log_dual.max())
    s = z / np.sum(m * z * z)
    # Symmetric to the last digit from here on: to average two entries that differ in it would undo the work.
    cosines = (result.cosines + result.cosines.T) / 2
    crossed = s[:, None] * s[None, :]
    for _ in range(2):
        r = z + (count * cosines) @ z
        change = r[:, None] * s[None, :]
        change = change + change.T - np.sum(m * r * z) * crossed
        cosines = np.where(pairs, cosines - change, 1.0)
    return cosines


def solve_by_homotopy(program: ClassMeanProgram) -> NewtonResult:
    """Follow proportions lam^q from the balanced simplex (q = 0) to the given classes (q = 1), by secants."""
    power, step, total = 0.0, 0.25, 0
    previous: tuple[float, NewtonResult] | None = None
    here = solve_newton(program.resampled(0.0))
    while power < 1.0 and here.converged:
        target = min(1.0, power + step)
        cosines, log_dual = here.cosines, here.log_dual
        if previous is not None:
            ratio = (target - power) / (power - previous[0])
            cosines = cosines + ratio * (cosines - previous[1].cosines)
            log_dual = log_dual + ratio * (log_dual - previous[1].log_dual)
        there = solve_newton(program.resampled(target) if target < 1.0 else program, cosines, log_dual)
        total += there.iterations
        if there.converged:
            previous, here, power = (power, here), there, target
            step *= 1.5
        else:
            step /= 2
            if step < HOMOTOPY_STEP:
                return NewtonResult(here.cosines, here.log_dual, False, total)
    return NewtonResult(here.cosines, here.log_dual, here.converged, total)


def fit_log_dual(program: ClassMeanProgram, cosines: Square) -> Array:
    """(G,) y with exp(y_i + y_j) nearest to 2 G'_ij in least squares of logarithms.

    At an optimum of rank C - 1 this is log z. The normal equations of y_i + y_j = log 2 G'_ij over all pairs give
    y_i = (R_i - S)/(C - 2), with the row sums R of the right-hand side and S = sum R / (2 (C - 1)). Needs C >= 3.
    """
    count, m = program.rows.count, program.sizes.astype(np.float64)
    classes = float(m.sum())
    logs = np.where(count > 0, program.log_gradient(cosines) + np.log(2.0), 0.0)
    rows = (count * logs).sum(axis=1)
    return np.asarray((rows - float(m @ rows) / (2 * (classes - 1))) / (classes - 2))


class _Anderson:
    """Extrapolate a fixed-point iteration x -> g(x) from its last few pairs (x, g(x)).

    Majorize-minimize steps converge linearly, with ratio up to 1/2.

    References
    ----------
    Walker, Ni 2011, Anderson acceleration for fixed-point iterations, SIAM J. Numer. Anal. 49.
    """

    def __init__(self, memory: int = 4) -> None:
        self.memory = memory
        self.images: list[Array] = []
        self.residuals: list[Array] = []

    def next(self, point: Array, image: Array) -> Array:
        """The next point, given g(point) = image."""
        residual = image - point
        if self.residuals and np.linalg.norm(residual) > 2 * np.linalg.norm(self.residuals[-1]):
            # Extrapolation made things worse: drop the earlier pairs, take the plain step.
            self.images, self.residuals = [], []
        self.images.append(image)
        self.residuals.append(residual)
        self.images, self.residuals = self.images[-self.memory :], self.residuals[-self.memory :]
        if len(self.images) == 1:
            return image
        differences = np.stack([(residual - old).ravel() for old in self.residuals[:-1]], axis=1)
        weights, *_ = np.linalg.lstsq(differences, residual.ravel(), rcond=1e-10)
        mixed = image.copy()
        for weight, old in zip(weights, self.images[:-1], strict=True):
            mixed -= weight * (image - old)
        return mixed
