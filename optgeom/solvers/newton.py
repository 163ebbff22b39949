r"""Newton's method on the rank-one dual: the exact optimum where only one dimension is lost.

At the generic optimum (rank C - 1) the dual is Z = z z^T with z > 0 and A z = 0, and every cosine is explicit:

    A_ij = 1 + tau log( tau z_i z_j / c_ij ),      c_ij = r_i omega_ij + r_j omega_ji.

Where anchors have temperatures of their own, A_ij solves one increasing equation per pair instead,

    r_i omega_ij exp((A_ij - 1)/tau_i)/tau_i + r_j omega_ji exp((A_ij - 1)/tau_j)/tau_j = z_i z_j.

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

from optgeom._numerics import EPS, Array, Square
from optgeom.programs.class_mean import ClassMeanProgram
from optgeom.solvers.base import Attempt, Judge
from optgeom.solvers.rank_one import Pin, Point, System

NEWTON_STEPS = 60
MAJORIZER_STEPS = 80
PATIENCE = 15  # majorizer steps in which the change must halve at least once
HOMOTOPY_STEP = 0.02  # the low-rank method is cheaper than a path that needs smaller steps
SMALLEST_DAMPING = 1e-6
SETTLED = 100  # units of rounding


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


def _newton(system: System, u: Array, y: Array, tolerance: float) -> tuple[Point, int, bool]:
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


def _settled(point: Point, tolerance: float) -> bool:
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
        system = System(program, majorizer, pin)
        u = system.normaliser(current)
        if y is None:
            y = system.start_dual(u, current, program.sizes.astype(np.float64))
        # A majorizer that will be replaced need not be solved much further than it is wrong.
        point, steps, converged = _newton(system, u, y, tolerance if majorizer.exact else loose)
        total += steps
        change = float(np.max(np.abs(point.cosines - current))) / float(program.temperatures.min())
        best = NewtonResult(point.cosines, point.y, converged, total)
        if majorizer.exact or not converged:
            break
        if change <= accuracy and loose <= accuracy:  # nothing changes either where a loose solution is left as it is
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
