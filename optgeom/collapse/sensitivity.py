r"""Sensitivities of the optimal geometry by implicit differentiation.

At an optimum of rank C - 1, log G_ij(A; theta) = y_i + y_j and A z = 0 with z = exp y. Differentiating in a parameter
theta,

    (H[dA])_ij / G_ij - dy_i - dy_j = - d log G_ij / d theta,
    sum_j dA_ij z_j + z_i dy_i + sum_{j != i} A_ij z_j dy_j = 0,

a linear system in (dA, dy) with the Jacobian that Newton uses. It is solved by GMRES; the preconditioner drops the
coupling within a row, which leaves dA_ij = tau (dy_i + dy_j + ...) and a G x G system. The explicit derivative of log G
at fixed A is a four-point difference of the exact gradient (error h^4: below 1e-12 here), so that any loss is covered;
nothing is solved again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg

from optgeom import _checks
from optgeom._numerics import Array
from optgeom.errors import IncompatibleError, InvalidInputError, SolverError
from optgeom.geometry import Geometry
from optgeom.inputs.classes import ClassDistribution, ClassGroups
from optgeom.losses import Loss
from optgeom.programs.class_mean import ClassMeanProgram
from optgeom.solvers.api import solve

STEP = 1e-3  # of the four-point difference, in log theta
LARGEST = 2000  # classes up to which the C x C derivative is returned


@dataclass(frozen=True)
class Sensitivity:
    """Derivative of the optimum in one parameter.

    Attributes
    ----------
    gram : (C, C)
        d A_ij / d theta, zero diagonal, in class order.
    risk : float
        d F / d theta at the optimum (by the envelope theorem: the explicit derivative).
    geometry : Geometry
        The optimum itself.
    """

    gram: Array
    risk: float
    geometry: Geometry

    def angles(self) -> Array:
        """(C, C) derivative of the angles in degrees; NaN where two means coincide or are opposite."""
        sine = np.sqrt(np.maximum(0.0, 1 - self.geometry.gram**2))
        with np.errstate(divide="ignore", invalid="ignore"):
            angles = np.degrees(-self.gram / np.where(sine > 1e-7, sine, np.nan))
        np.fill_diagonal(angles, 0.0)
        return angles


def sensitivity(classes: ClassDistribution, loss: Loss, *, to: str | int = "temperature") -> Sensitivity:
    """Derivative of the optimal cosines and of the risk: in a parameter of the loss, or in the size of one class.

    Parameters
    ----------
    classes : ClassDistribution
        At most 2000 classes.
    loss : Loss
        For a class size: with negatives that depend on proportions alone.
    to : str or int
        A real parameter theta > 0 of the loss, as "temperature": dA/dtheta and dF/dtheta. Or the index of a class, 0 to
        C - 1: d/d log lam_c, as the class grows by the factor 1 + eps and the proportions are normalised again.

    Raises
    ------
    InvalidInputError
        No such class or parameter, or too many classes for a C x C answer.
    IncompatibleError
        The optimum has collapsed (rank below C - 1) and need not be differentiable, or the loss depends on whole
        counts.
    """
    _checks.instance("classes", classes, ClassDistribution, "ClassDistribution.from_counts(...)")
    _checks.instance("loss", loss, Loss, "for example SupCon(temperature=0.1)", what="a loss")
    return _to_parameter(classes, loss, to) if isinstance(to, str) else _to_class(classes, loss, to)


def _to_parameter(classes: ClassDistribution, loss: Loss, name: str) -> Sensitivity:
    smooth = tuple(option.name for option in loss.options() if option.kind == "real")
    _checks.choice("to", name, smooth)
    if name == "temperature":
        loss.require_shared_temperature(name)
    value = _checks.real(name, getattr(loss, name), above=0.0, hint="the derivative is in its logarithm")
    geometry = _spread(classes, loss)
    program = ClassMeanProgram.build(classes, loss)

    def at(log_factor: float) -> ClassMeanProgram:
        moved = loss.with_options({name: value * math.exp(log_factor)})
        return ClassMeanProgram(program.groups, moved, moved.rows(program.groups), program.coincident)

    derivative = _solve(program, geometry.group_cosines, at, geometry)
    return Sensitivity(derivative.gram / value, derivative.risk / value, geometry)


def _to_class(classes: ClassDistribution, loss: Loss, which: int) -> Sensitivity:
    loss.require("proportions", "groups")
    which = _checks.index("to", which, classes.num_classes)
    geometry = _spread(classes, loss)
    groups, cosines, own = _single_out(loss.groups(classes), geometry.group_cosines, which)
    program = ClassMeanProgram(groups, loss, loss.rows(groups), np.zeros(groups.sizes.size, dtype=np.bool_))

    def at(log_factor: float) -> ClassMeanProgram:
        weight = groups.proportions * np.where(np.arange(groups.sizes.size) == own, math.exp(log_factor), 1.0)
        moved = replace(groups, proportions=weight / np.sum(weight * groups.sizes))
        return ClassMeanProgram(moved, loss, loss.rows(moved), program.coincident)

    return _solve(program, cosines, at, geometry)


def _spread(classes: ClassDistribution, loss: Loss) -> Geometry:
    ClassMeanProgram.build(classes, loss).require_smooth("loss", "derivatives of its optimum")
    if classes.num_classes > LARGEST:
        most = f"at most {LARGEST} for a C x C sensitivity"
        raise InvalidInputError(f"`classes` must be {most}; got {classes.num_classes} (take differences of `solve`)")
    geometry = solve(classes, loss)
    if geometry.rank < classes.num_classes - 1:
        raise IncompatibleError(
            f"the optimum has collapsed to rank {geometry.rank} of {classes.num_classes - 1}; "
            "sensitivities need the spread regime"
        )
    if geometry.certificate.unique is False:
        raise IncompatibleError(
            "the optimum is not unique, so it has no derivative; use alpha > 0 or more than one negative"
        )
    return geometry


def _single_out(groups: ClassGroups, cosines: Array, which: int) -> tuple[ClassGroups, Array, int]:
    """Groups in which class `which` stands alone, with the cosines and the number of its group."""
    group = int(groups.index[which])
    if groups.sizes[group] == 1:
        return groups, cosines, group
    index = groups.index.copy()
    own = groups.sizes.size
    index[which] = own
    source = np.append(np.arange(own), group)
    grown = cosines[np.ix_(source, source)].copy()
    finer = groups.regrouped(index, source)
    single = np.flatnonzero(finer.sizes == 1)
    grown[single, single] = 1.0
    return finer, grown, own


def _four_points(function: Callable[[float], Array | float]) -> Array:
    near = np.asarray(function(STEP)) - np.asarray(function(-STEP))
    far = np.asarray(function(2 * STEP)) - np.asarray(function(-2 * STEP))
    return np.asarray((8 * near - far) / (12 * STEP))


def _solve(
    program: ClassMeanProgram, cosines: Array, at: Callable[[float], ClassMeanProgram], geometry: Geometry
) -> Sensitivity:
    from scipy.sparse.linalg import LinearOperator, gmres

    count, pairs, tau = program.rows.count, program.rows.count > 0, program.pair_temperature
    g = count.shape[0]
    gradient = np.exp(program.log_gradient(cosines))
    safe = np.where(pairs, gradient, 1.0)
    z = np.sqrt(-(count * gradient * cosines).sum(axis=1))
    z /= z.max()
    closing = count * cosines * z[None, :] + np.diag(z)
    explicit = np.where(
        pairs, np.nan_to_num(_four_points(lambda step: np.where(pairs, at(step).log_gradient(cosines), 0.0))), 0.0
    )
    derivative = program.gradient_derivative(cosines)
    mass = count * z[None, :]
    moved = tau * mass
    reduced = scipy.linalg.lu_factor(closing + moved + np.diag(moved.sum(axis=1)))

    def product(vector: Array) -> Array:
        change, dy = vector[: g * g].reshape(g, g), vector[g * g :]
        symmetric = (change + change.T) / 2
        force = np.where(pairs, derivative(symmetric) / safe - dy[:, None] - dy[None, :], 0.0)
        # The entries that stand for no pair, and the antisymmetric part, are kept at zero by rows of their own.
        force = force + np.where(pairs, (change - change.T) / (2 * tau), change / tau)
        return np.concatenate([force.ravel(), (mass * np.where(pairs, symmetric, 0.0)).sum(axis=1) + closing @ dy])

    def precondition(vector: Array) -> Array:
        force, rest = vector[: g * g].reshape(g, g), vector[g * g :]
        symmetric = np.where(pairs, (force + force.T) / 2, 0.0)
        dy = scipy.linalg.lu_solve(reduced, rest - (moved * symmetric).sum(axis=1))
        change = tau * (force + np.where(pairs, dy[:, None] + dy[None, :], 0.0))
        return np.concatenate([change.ravel(), dy])

    right = np.concatenate([-explicit.ravel(), np.zeros(g)])
    size = g * g + g
    solution, failed = gmres(
        LinearOperator((size, size), matvec=product, dtype=np.float64),
        right,
        M=LinearOperator((size, size), matvec=precondition, dtype=np.float64),
        rtol=1e-12,
        restart=80,
        maxiter=5,
    )
    if failed:
        raise SolverError("the sensitivity system did not converge (the optimum is too close to losing rank)")
    change = np.where(pairs, solution[: g * g].reshape(g, g), 0.0)
    index = program.groups.index
    gram = change[np.ix_(index, index)]
    np.fill_diagonal(gram, 0.0)
    risk = float(_four_points(lambda step: at(step).risk(cosines)))
    return Sensitivity((gram + gram.T) / 2, risk, geometry)
