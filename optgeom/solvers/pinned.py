r"""Newton's method with one cosine fixed, and how far each cosine moves with a tilt.

Where several dimensions are lost the dual has a factor of r columns.

With A_ab = cosine fixed, the optimum has G'_ij - c T_ij = Y_i . Y_j / 2 off the diagonal with A Y = 0 and Y of as many
columns as dimensions are lost. Every other cosine is explicit, as in the rank-one dual (`newton`, r = 1):

    A_ij = 1 + tau log( tau Y_i . Y_j / c_ij ).

Unknowns are the row normalisers u and the (G, r) factor Y; a rotation of its columns changes nothing, so the Jacobian
is bordered by the r (r - 1)/2 rotations, which are its null vectors on both sides.

The number of columns is not known beforehand. A solution that is not positive semidefinite has too few: its directions
of negative curvature become further columns, with the length that makes A vanish along them to first order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from optgeom._numerics import EPS, Array, Square
from optgeom.programs import group_matrix
from optgeom.programs.class_mean import ClassMeanProgram
from optgeom.solvers.newton import (
    MAJORIZER_STEPS,
    NEWTON_STEPS,
    SMALLEST_DAMPING,
    NewtonResult,
    fit_log_dual,
    solve_newton,
)
from optgeom.solvers.rank_one import Pin, System

NEGATIVE = -1e-10  # of the largest eigenvalue: below it a direction is taken for a lost dimension
# Four were the most in a hundred classes. A column that Newton's method brings back to 0 would be added for ever.
MOST_COLUMNS = 8
SHORT = 0.5  # of a product Y_i . Y_j, the most that a new column may take away from it


@dataclass(frozen=True)
class Face:
    """A solution.

    Attributes
    ----------
    cosines : (G, G)
    factor : (G, r)
        Y.
    tilt : float
        c, the derivative of the least risk in the fixed cosine.
    """

    cosines: Array
    factor: Array
    tilt: float


@dataclass(frozen=True)
class _Point:
    u: Array
    factor: Array
    r1: Array
    r2: Array
    cosines: Array
    share: Array
    reach: Array | float
    pull: Array
    product: Array

    @property
    def residual(self) -> float:
        size = float(max(np.max(np.abs(self.r1)), np.max(np.abs(self.r2))))
        return size if np.isfinite(size) else np.inf


def _at(system: System, u: Array, factor: Array) -> _Point:
    product = factor @ factor.T
    cosines, share, reach = system.cosines(u, np.log(product))
    r1, pull = system.normalised(u, cosines, reach)
    r2 = (factor + (system.count * cosines) @ factor) / np.max(np.abs(factor))
    return _Point(u, factor, r1, r2, cosines, share, reach, pull, product)


def _direction(system: System, point: _Point, sizes: Array) -> tuple[Array, Array]:
    """Newton direction; dA_ij = reach_ij ((dY_i . Y_j + Y_i . dY_j) / P_ij + W_ij du_i + W_ji du_j), 0 for the pair."""
    factor, share, pull = point.factor, point.share, point.pull
    g, r = factor.shape
    inverse = np.where(system.moves, 1.0 / np.where(system.moves, point.product, 1.0), 0.0)
    mass = system.count
    # Blocks of r1: the pull of each pair times dA / reach.
    matrix = np.zeros((g * (r + 1), g * (r + 1)))
    which = np.arange(g)
    matrix[:g, :g] = pull * share.T
    matrix[which, which] += (pull * share).sum(axis=1) - 1.0
    pulled = pull * inverse
    for k in range(r):
        columns = slice(g * (k + 1), g * (k + 2))
        matrix[:g, columns] = pulled * factor[:, k][:, None]
        matrix[which, which + g * (k + 1)] += pulled @ factor[:, k]
    # Blocks of r2, column l of A Y.
    unit = np.max(np.abs(factor))
    for l in range(r):  # noqa: E741
        rows = slice(g * (l + 1), g * (l + 2))
        weighted = point.reach * mass * factor[:, l][None, :]
        matrix[rows, :g] = weighted * share.T
        matrix[which + g * (l + 1), which] += (weighted * share).sum(axis=1)
        spread = weighted * inverse
        for k in range(r):
            columns = slice(g * (k + 1), g * (k + 2))
            matrix[rows, columns] = spread * factor[:, k][:, None]
            matrix[which + g * (l + 1), which + g * (k + 1)] += spread @ factor[:, k]
        matrix[rows, g * (l + 1) : g * (l + 2)] += mass * point.cosines
        matrix[which + g * (l + 1), which + g * (l + 1)] += 1.0
        matrix[rows] /= unit
    right = -np.concatenate([point.r1, point.r2.T.ravel()])
    turns = []
    for k in range(r):
        for l in range(k):  # noqa: E741
            turn = np.zeros((r + 1, g))
            turn[k + 1], turn[l + 1] = factor[:, l], -factor[:, k]
            turns.append(turn.ravel())
    if turns:
        border = np.array(turns)
        border /= np.linalg.norm(border, axis=1)[:, None]
        left = border * np.concatenate([np.ones(g), *[sizes] * r])[None, :]
        matrix = np.block([[matrix, left.T], [border, np.zeros((len(turns), len(turns)))]])
        right = np.concatenate([right, np.zeros(len(turns))])
    step = np.linalg.solve(matrix, right)
    return step[:g], step[g : g * (r + 1)].reshape(r, g).T


def _newton(system: System, u: Array, factor: Array, sizes: Array, tolerance: float) -> tuple[_Point, bool]:
    with np.errstate(all="ignore"):  # a trial point may overflow; it is then refused
        point = _at(system, u, factor)
        if not np.isfinite(point.residual):
            return point, False
        for _ in range(NEWTON_STEPS):
            if point.residual <= tolerance:
                return point, True
            try:
                du, change = _direction(system, point, sizes)
            except np.linalg.LinAlgError:
                return point, False
            damping = 1.0
            while True:
                trial = _at(system, point.u + damping * du, point.factor + damping * change)
                if trial.residual <= (1 - damping / 10) * point.residual:
                    break
                if point.residual <= 1e4 * tolerance * max(1.0, system.tau):
                    return point, True
                damping /= 2
                if damping < SMALLEST_DAMPING:
                    return point, False
            point = trial
    return point, False


def solve_on_face(
    program: ClassMeanProgram, pin: Pin, cosines: Square, factor: Array, accuracy: float = 0.0
) -> Face | None:
    """Minimise F with the cosine of one pair fixed, from a nearby solution and its dual factor.

    Columns are added where the solution is not positive semidefinite. None where Newton's method fails, or that needs
    more than a few columns.

    Parameters
    ----------
    program : ClassMeanProgram
        Its rows have a majorizer.
    pin : (int, int, float)
        Two groups of one member each, and their cosine.
    cosines, factor : (G, G) and (G, r)
        Where to start.
    accuracy : float
        Change of (A - 1)/tau between two majorizers at which they count as settled.
    """
    sizes = program.sizes.astype(np.float64)
    tolerance = 8 * EPS * float(sizes.max())
    while True:
        solved = _settle(program, pin, cosines, factor, accuracy, tolerance)
        if solved is None:
            return None
        point, system = solved
        wider = _with_columns(program, point, system)
        if wider is None:
            a, b, _ = pin
            force = 2 * float(np.exp(program.log_gradient(point.cosines)[a, b]))
            return Face(point.cosines, point.factor, force - float(point.product[a, b]))
        if wider.shape[1] == point.factor.shape[1] or wider.shape[1] > min(MOST_COLUMNS, sizes.size - 1):
            return None
        cosines, factor = point.cosines, wider


def _settle(
    program: ClassMeanProgram, pin: Pin, cosines: Array, factor: Array, accuracy: float, tolerance: float
) -> tuple[_Point, System] | None:
    """Newton for one majorizer after the other, until they no longer change."""
    sizes = program.sizes.astype(np.float64)
    for _ in range(MAJORIZER_STEPS):
        majorizer = program.rows.majorizer(program.exponents(cosines))
        system = System(program, majorizer, pin)
        point, converged = _newton(system, system.normaliser(cosines), factor, sizes, tolerance)
        if not converged:
            return None
        change = float(np.max(np.abs(point.cosines - cosines))) / float(program.temperatures.min())
        cosines, factor = point.cosines, point.factor
        if majorizer.exact or change <= max(accuracy, 1e-10):
            return point, system
    return None


def _with_columns(program: ClassMeanProgram, point: _Point, system: System) -> Array | None:
    """The factor with columns along the negative directions of A; None where there is none."""
    sizes = program.sizes.astype(np.float64)
    ones = np.ones(sizes.size)
    block = group_matrix.symmetric_block(point.cosines, ones, program.sizes)
    eigenvalues, vectors = scipy.linalg.eigh((block + block.T) / 2)
    bar = NEGATIVE * float(eigenvalues[-1])
    if float(group_matrix.complement(point.cosines, ones, program.sizes).min()) < bar:
        return point.factor  # the members of a group coincide: no factor of group vectors has that
    negative = eigenvalues < bar
    if not negative.any():
        return None
    columns = [point.factor]
    for value, vector in zip(eigenvalues[negative], vectors[:, negative].T, strict=True):
        v = vector / np.sqrt(sizes)
        outer = v[:, None] * v[None, :]
        ratio = np.where(system.moves, outer / np.where(system.moves, point.product, 1.0), 0.0)
        # v'A v rises by s^2 sum of reach_ij (v_i v_j)^2 / P_ij to first order.
        rise = float(np.sum(point.reach * sizes[:, None] * system.count * outer * ratio))
        square = min(-float(value) / rise, SHORT / max(-float(ratio.min()), 1e-300))
        columns.append(np.sqrt(square) * v[:, None])
    return np.column_stack(columns)


def solve_pinned(
    program: ClassMeanProgram, pin: Pin, cosines: Square, log_dual: Array, accuracy: float = 0.0
) -> tuple[NewtonResult, float]:
    r"""Minimise F with the cosine of one pair fixed; the solution, and the derivative of the minimum in that cosine.

    Where one dimension is lost only, the dual is G'_ij - c T_ij = z_i z_j / 2 with T_ab = T_ba = 1/2 and 0 elsewhere,
    so every other cosine is explicit as before, and c = 2 G'_ab - z_a z_b is the derivative.

    Parameters
    ----------
    program : ClassMeanProgram
    pin : (int, int, float)
        Groups a and b of one member each, and their cosine, strictly between -1 and 1.
    cosines, log_dual : (G, G) and (G,)
        Where to start.
    accuracy : float
        As in `solve_newton`.
    """
    first, second, _ = pin
    solution = solve_newton(program, cosines, log_dual, pin, accuracy)
    force = 2 * float(np.exp(program.log_gradient(solution.cosines)[first, second]))
    return solution, force - float(np.exp(solution.log_dual[first] + solution.log_dual[second]))


def susceptibilities(program: ClassMeanProgram, cosines: Square) -> Array:
    r"""(G, G) derivative in c, at c = 0, of the cosine of a pair when the program is tilted towards it by c A_ab.

    The excess of the tilted optimum begins as c^2 chi / 2, so a slack s moves the cosine by sqrt(2 s chi) to second
    order.
    With J the Jacobian of the equations of `System`, the tilt changes log of the force of the pair by
    1/(z_a z_b), and

        chi = reach / (z_a z_b) (1 - l' J^-1 q),

    where reach is tau where all classes have one, q is the derivative of the equations and l that of the cosine in the
    unknowns, four entries each. For finitely many negatives the majorizer at the optimum stands for the rows: it lies
    above them, so chi is a little too small.

    Parameters
    ----------
    program : ClassMeanProgram
        Every class in a group of its own; at least three.
    cosines : (C, C)
        Its optimum, of rank C - 1.
    """
    system = System(program, program.rows.majorizer(program.exponents(cosines)))
    y = fit_log_dual(program, cosines)
    with np.errstate(divide="ignore", invalid="ignore"):  # a class without a positive exerts no force on itself
        point = system.at(system.normaliser(cosines), y)
    g = y.size
    inverse = np.linalg.inv(system.jacobian(point))
    uu, uy, yu, yy = inverse[:g, :g], inverse[:g, g:], inverse[g:, :g], inverse[g:, g:]
    z = np.exp(y - y.max())
    moved = point.reach * (system.count * z[None, :])
    pull, share = point.pull, point.share
    # Entries of q at u_a, u_b, y_a, y_b, per unit change of log force, and of l (`slope`) at the same places.
    q = (pull, pull.T, moved, moved.T)
    slope = (share, share.T, np.ones_like(share), np.ones_like(share))
    own = [np.diag(block) for block in (uu, uy, yu, yy)]
    total = np.zeros_like(pull)
    for row in range(4):
        for column in range(4):
            which = 2 * (row // 2) + column // 2
            block = (uu, uy, yu, yy)[which]
            left, right = row % 2, column % 2  # 0: class a, 1: class b
            if left == right:
                entry = own[which][:, None] if left == 0 else own[which][None, :]
            else:
                entry = block if left == 0 else block.T
            total += slope[row] * entry * q[column]
    change = point.reach * np.exp(-(y[:, None] + y[None, :])) * (1.0 - total)
    return np.asarray(np.where(system.pairs, np.maximum((change + change.T) / 2, 0.0), 0.0))
