r"""From forces between classes to the weights, margins and temperatures of a loss that exerts them.

At a target T with balance z (`targets`) a loss has its optimum at T if the forces

    F_ij = r_i pull_ij / tau_i                  (pull_ij the derivative of the row of anchor i in one t_ij)

satisfy (F_ij + F_ji)/2 = s z_i z_j for some s > 0: then the dual is s zz'. How large s can be, and whether values
of the parameters give these forces, depends on the parameter:

*Weights of negatives* enter a row as t_ij + log b_ij, so the row of every anchor can be solved for its own weights: the
value of the row minus <F, t> is convex in them. With a log-sum, log(o_i + sum_j w_ij x_ij), they are explicit,

    p_ij = F_ij tau_i / r_i,   D_i = o_i / (1 - sum_j p_ij),   w_ij x_ij = p_ij D_i,

and with finitely many negatives the log-sum bounds of the rows lead to them, each exact in value and slope.

*One value per class* (margins, temperatures, weights of anchors, both weights) leaves fewer numbers than pairs: the
conditions are solved as least squares in log F, and what remains is told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.optimize

from optgeom._numerics import Array, Square, Vector
from optgeom.errors import InvalidInputError, SolverError
from optgeom.inputs.classes import ClassDistribution
from optgeom.losses.base import Loss
from optgeom.losses.rows import RowLoss
from optgeom.programs.class_mean import ClassMeanProgram

ROUNDS = 5000
MATCHED = 1e-13  # largest error of log pull at which weights of negatives are found
NEARLY_MATCHED = 1e-11  # what rounding may leave of it
EXACT = 1e-9  # largest error of a log force that a certificate lets pass
EVALUATIONS = 60
PULLED_BACK = (1e-2, 1e-4)  # weights of the squared distance from the start, in logarithms
POLISHING, POLISHED = 10, 1e-13  # last steps, and the error at which they end
MOST_GROUPS = 150  # groups up to which weights of negatives per class are fitted: a Hessian product for each
COLDEST, WARMEST, GRID = 2e-2, 1e3, 121  # temperatures, relative to the usual one, among which the largest force lies
GOLDEN, GOLDEN_STEPS = (np.sqrt(5) - 1) / 2, 45
BISECTIONS, BISECTED = 70, 10.0  # halvings of the logarithm of a temperature, and how far below the peak they begin


def weights_for_pulls(rows: RowLoss, t: Square, wanted: Square) -> Square:
    """(G, G) logarithms of the weights of negatives, relative to those of `rows`, with which every pull is as wanted.

    Parameters
    ----------
    rows : RowLoss
        They give a "majorizer".
    t : (G, G)
        Exponents (A - 1)/tau.
    wanted : (G, G)
        Pulls of one class, > 0 where there is one, each row within reach (`RowLoss.largest_multiple`).

    Raises
    ------
    SolverError
        The weights were not found.
    """
    pairs = rows.count > 0
    log_wanted = np.log(np.where(pairs, wanted, 1.0))
    total = (rows.count * np.where(pairs, wanted, 0.0)).sum(axis=1)
    s, off = t, np.inf
    for _ in range(ROUNDS):
        off = float(np.max(np.abs(rows.log_pull(s) - log_wanted), where=pairs, initial=0.0))
        if off <= MATCHED:
            break
        bound = rows.majorizer(s)
        based = np.isfinite(bound.log_offset)
        # Without a constant in a row its weights count relative to each other only.
        rest = np.where(based, -np.log1p(-np.minimum(total / bound.mass, 1.0 - 1e-16)), 0.0)
        log_sum = np.where(based, bound.log_offset, 0.0) + rest
        moved = log_wanted - np.log(bound.mass)[:, None] + log_sum[:, None] - bound.log_weight
        step = np.where(pairs, moved - s, 0.0)
        s = s + step
        if float(np.max(np.abs(step))) <= MATCHED:
            break
    off = float(np.max(np.abs(rows.log_pull(s) - log_wanted), where=pairs, initial=0.0))
    if not off <= NEARLY_MATCHED:
        raise SolverError(
            f"the weights of negatives for these forces were not found: they are off by {off:.1e} (lower `strength`)"
        )
    return np.where(pairs, s - t, 0.0)


@dataclass(frozen=True, eq=False)
class Conditions:
    """What the forces of a loss must be at the target.

    Attributes
    ----------
    classes : ClassDistribution
    cosines : (G, G)
        The target in group form.
    balance : (G,)
        z.
    index : (C,) intp
        Group of each class.
    grouped : bool
        Whether groups are those of equal classes, or one per class.
    """

    classes: ClassDistribution
    cosines: Square
    balance: Vector
    index: npt.NDArray[np.intp]
    grouped: bool

    def bind(self, loss: Loss) -> ClassMeanProgram:
        """The program of a loss whose values per class are equal in each group."""
        return ClassMeanProgram.build(self.classes, loss, self.grouped)

    def by_class(self, name: str, values: Vector) -> dict[str, float]:
        """Values per group by class name; weights of anchors get the mean 1 over the images."""
        every = values[self.index]
        if name == "anchor_weights":
            every = every / float(self.classes.proportions @ every)
        return dict(zip(self.classes.names, every.tolist(), strict=True))

    def error(self, program: ClassMeanProgram) -> float:
        """Largest error of the logarithm of a force, whatever the scale."""
        left, right, share = PerClass._pairs(program)
        error = (program.log_gradient(self.cosines) - self.log_products)[left, right]
        return float(np.max(np.abs(error - share @ error)))

    @property
    def log_products(self) -> Square:
        """(G, G) log z_i z_j."""
        return np.log(self.balance)[:, None] + np.log(self.balance)[None, :]


@dataclass(frozen=True, eq=False)
class Fit:
    """Values per class that come closest to the forces of a target.

    Attributes
    ----------
    values : mapping of str to (G,)
        By field of the loss.
    loss : Loss
    error : float
        Largest error of the logarithm of a force.
    """

    values: Mapping[str, Vector]
    loss: Loss
    error: float


@dataclass(frozen=True, eq=False)
class PerClass:
    """Fields of a loss that have one value per class, fitted to the forces of a target.

    Attributes
    ----------
    conditions : Conditions
    base : Loss
        With its other parameters.
    start : mapping of str to (G,)
        The fields and their first values.
    log_scale : float or None
        log s; None where it follows from the fit.
    """

    conditions: Conditions
    base: Loss
    start: Mapping[str, Vector]
    log_scale: float | None = None
    seen: dict[bytes, ClassMeanProgram] = field(default_factory=dict, repr=False)

    def fit(self) -> Fit:
        """Least squares in the logarithms of the forces, weighted by pairs of classes.

        Where several values do, those near the start are wanted: what they move from there counts a little, less and
        less, and the last steps are the shortest that meet the conditions. Weights of negatives keep their geometric
        mean: ever smaller ones would meet the conditions ever better, and hold the target ever less firmly.
        """
        level = self._level()
        start = np.concatenate([_to_free(name, values) for name, values in self.start.items()])
        free, identity = start, np.eye(start.size)
        for pull_back in PULLED_BACK:

            def errors(x: Vector, weight: float = pull_back) -> Vector:
                return np.concatenate([self._errors(x), weight * (x - start), level @ (x - start)])

            def jacobian(x: Vector, weight: float = pull_back) -> Array:
                return np.vstack([self._jacobian(x), weight * identity, level])

            result = scipy.optimize.least_squares(
                errors, free, jac=jacobian, xtol=1e-12, ftol=1e-12, gtol=1e-12, max_nfev=EVALUATIONS
            )
            free = result.x
        polished, error = free, self._largest(free)
        for _ in range(POLISHING):
            conditions = np.vstack([self._jacobian(polished), level])
            off = np.concatenate([self._errors(polished), level @ (polished - start)])
            step = np.linalg.lstsq(conditions, -off, rcond=1e-12)[0]
            if not np.max(np.abs(step)) < 1.0:
                break
            polished = polished + step
            after = self._largest(polished)
            if after < error:
                free, error = polished, after
            if error <= POLISHED:
                break
        values = self._values(free)
        return Fit(values, self._loss(values), error)

    def _level(self) -> Array:
        """(0 or 1, parameters) what keeps the geometric mean of weights of negatives."""
        if "negative_weights" not in self.start:
            return np.empty((0, sum(part.size for part in self.start.values())))
        parts = [np.full(part.size, float(name == "negative_weights")) for name, part in self.start.items()]
        mean = np.concatenate(parts)
        return np.asarray(mean[None, :] / np.sqrt(mean.sum()))

    def _largest(self, free: Vector) -> float:
        """Largest error of the logarithm of a force, at values of the parameters."""
        weights = np.sqrt(self._pairs(self._program(free))[2])
        return float(np.max(np.abs(self._errors(free) / weights), initial=0.0))

    def _values(self, free: Vector) -> dict[str, Vector]:
        parts = np.split(free, len(self.start))
        return {name: _from_free(name, part) for name, part in zip(self.start, parts, strict=True)}

    def _loss(self, values: Mapping[str, Vector]) -> Loss:
        return self.base.with_options({name: self.conditions.by_class(name, part) for name, part in values.items()})

    def _program(self, free: Vector) -> ClassMeanProgram:
        key = free.tobytes()
        if key not in self.seen:
            self.seen.clear()
            self.seen[key] = self.conditions.bind(self._loss(self._values(free)))
        return self.seen[key]

    @staticmethod
    def _pairs(program: ClassMeanProgram) -> tuple[Any, Any, Vector]:
        """Groups of every pair (g <= h), and the share of all pairs of classes that each stands for."""
        left, right = np.nonzero(np.triu(program.rows.count > 0))
        number = program.sizes[left] * program.rows.count[left, right] * np.where(left == right, 0.5, 1.0)
        return left, right, np.asarray(number / number.sum())

    def _errors(self, free: Vector) -> Vector:
        program = self._program(free)
        left, right, share = self._pairs(program)
        log_force = program.log_gradient(self.conditions.cosines)
        error = (log_force - self.conditions.log_products)[left, right]
        error -= float(share @ error) if self.log_scale is None else self.log_scale
        return np.asarray(error * np.sqrt(share))

    def _jacobian(self, free: Vector) -> Array:
        program, values = self._program(free), self._values(free)
        left, right, share = self._pairs(program)
        rows, tau = program.rows, program.temperatures
        t = program.exponents(self.conditions.cosines)
        pull = np.exp(rows.log_pull(t))
        pull = np.where((rows.count > 0) & (pull > 0), pull, 1.0)
        level = (rows.anchor_weight / tau)[:, None] * pull
        share_of_first = level[left, right] / (level[left, right] + level[right, left])
        curved = rows.curvature(t)
        columns = []

        def add_by_anchor(change: Square) -> None:
            """A parameter of each anchor changes log F_ij by `change`."""
            for group in range(tau.size):
                first = share_of_first * np.where(left == group, change[left, right], 0.0)
                second = (1 - share_of_first) * np.where(right == group, change[right, left], 0.0)
                columns.append(first + second)

        for name in values:
            if name == "anchor_weights":
                add_by_anchor(np.ones_like(pull))
            elif name == "margin":
                add_by_anchor(curved(np.ones_like(pull) / tau[:, None]) / pull)
            elif name == "class_temperatures":
                add_by_anchor(-1.0 - curved(t) / pull)
            else:
                own = self._own_change(free, name) - curved(np.ones_like(pull)) / pull
                for group in range(tau.size):
                    direction = np.zeros_like(pull)
                    direction[:, group] = 1.0
                    change = curved(direction) / pull
                    change[group] += own[group]
                    first = share_of_first * change[left, right]
                    columns.append(first + (1 - share_of_first) * change[right, left])
        jacobian = np.column_stack(columns)
        if self.log_scale is None:
            jacobian -= share @ jacobian
        return np.asarray(jacobian * np.sqrt(share)[:, None])

    def _own_change(self, free: Vector, name: str, step: float = 1e-6) -> Square:
        """Derivative of log pull in the logarithm of all weights at once, as a difference.

        It is what the weight of the anchor's own class adds to those of the others.
        """
        place, size = list(self.start).index(name), free.size // len(self.start)
        moved = free.copy()
        moved[place * size : (place + 1) * size] += step
        program = self._program(free)
        t, pairs = program.exponents(self.conditions.cosines), program.rows.count > 0
        before = np.where(pairs, program.rows.log_pull(t), 0.0)
        after = self.conditions.bind(self._loss(self._values(moved))).rows.log_pull(t)
        return (np.where(pairs, after, 0.0) - before) / step


def _to_free(name: str, values: Vector) -> Vector:
    return np.asarray(values if name == "margin" else np.log(values))


def _from_free(name: str, free: Vector) -> Vector:
    return np.asarray(free if name == "margin" else np.exp(free))


def linear_forces(program: ClassMeanProgram, conditions: Conditions) -> Vector:
    """(G,) q_i with q_i pull_ij / tau_i + q_j pull_ji / tau_j as close to 2 z_i z_j as least squares bring it.

    A q_i that is not positive says that no weights of anchors have these forces. Raises `InvalidInputError` where they
    underflow.
    """
    left, right, share = PerClass._pairs(program)
    pull = np.exp(program.rows.log_pull(program.exponents(conditions.cosines))) / program.temperatures[:, None]
    if not np.all((pull[left, right] > 0) & (pull[right, left] > 0)):
        coldest = float(np.min(program.temperatures))
        raise InvalidInputError(
            f"`temperature` must be higher for this target; got {coldest:g}, at which forces are below the range of "
            "floating-point numbers"
        )
    wanted = 2 * np.exp(conditions.log_products[left, right])
    matrix = np.zeros((left.size, program.sizes.size))
    place = np.arange(left.size)
    np.add.at(matrix, (place, left), pull[left, right] / wanted)
    np.add.at(matrix, (place, right), pull[right, left] / wanted)
    # Columns of equal length: pulls of different anchors may differ by many orders.
    length = np.linalg.norm(matrix, axis=0)
    root = np.sqrt(share)
    solution = np.linalg.lstsq(matrix / length * root[:, None], root, rcond=None)[0]
    return np.asarray(solution / length)


@dataclass(frozen=True, eq=False)
class Warming:
    """The force that anchors exert as a function of their temperature, which rises from cold and then falls.

    Attributes
    ----------
    forces : callable
        From (G,) temperatures to (G,) forces.
    peak, at : (G,)
        The largest force, and its temperature.
    """

    forces: Callable[[Array], Array]
    peak: Vector
    at: Vector

    @classmethod
    def of(cls, forces: Callable[[Array], Array], middle: Vector) -> Warming:
        """Look for the first largest force, around temperatures of the right order.

        Raises
        ------
        InvalidInputError
            A force that does not rise.
        """
        factors = np.exp(np.linspace(np.log(COLDEST), np.log(WARMEST), GRID))
        table = np.array([forces(middle * factor) for factor in factors])
        falls = np.diff(table, axis=0) < 0
        top = np.where(falls.any(axis=0), falls.argmax(axis=0), GRID - 1)
        # At the coldest end forces may be zero and equal.
        if np.any(top == 0) or np.any(top == GRID - 1):
            raise InvalidInputError(
                "`by` must not be 'temperatures' where nothing but negatives stands in the denominator; got a loss "
                "whose forces only fall with the temperature (keep the positive, or use 'negative-weights')"
            )
        low, high = np.log(middle * factors[top - 1]), np.log(middle * factors[top + 1])
        for _ in range(GOLDEN_STEPS):
            left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
            better = forces(np.exp(left)) > forces(np.exp(right))
            low, high = np.where(better, low, left), np.where(better, right, high)
        at = np.exp((low + high) / 2)
        return cls(forces, forces(at), at)

    def below(self, wanted: Vector) -> Vector:
        """(G,) temperatures on the rising side with these forces, which are below the largest."""
        low, high = np.log(self.at) - BISECTED, np.log(self.at)
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            short = self.forces(np.exp(middle)) < wanted
            low, high = np.where(short, middle, low), np.where(short, high, middle)
        return np.asarray(np.exp((low + high) / 2))
