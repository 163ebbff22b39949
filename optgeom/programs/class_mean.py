r"""The class-mean Gram program: class proportions x loss x sampling law.

    minimise  F(A) = sum_i lam_i E[ psi( (A_ij - 1)/tau, ... ) ]     over  A positive semidefinite, diag A = 1.

Classes of equal probability have equal cosines with every other class (arXiv 2605.11291, theorem 3), so A is kept in
group form: a (G, G) matrix `cosines` with the cosine between one class of group g and another class of group h; the
diagonal is the cosine within the group, and 1 where the group holds a single class.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from optgeom._numerics import Array, Square, Vector, log_nonnegative
from optgeom.errors import IncompatibleError
from optgeom.inputs.classes import ClassDistribution, ClassGroups
from optgeom.losses.base import Loss
from optgeom.losses.rows import RowLoss
from optgeom.programs import group_matrix


@dataclass(frozen=True)
class ClassMeanProgram:
    """A class-mean program on groups.

    Attributes
    ----------
    groups : ClassGroups
        Groups of interchangeable classes; `groups.index` maps each class to its group.
    loss : Loss
    rows : RowLoss
        The loss bound to these groups.
    coincident : (G,) bool
        Groups whose classes are known to coincide (singletons of a full batch).
    """

    groups: ClassGroups
    loss: Loss
    rows: RowLoss
    coincident: npt.NDArray[np.bool_]

    @classmethod
    def build(cls, classes: ClassDistribution, loss: Loss, grouped: bool = True) -> ClassMeanProgram:
        """Bind a loss to class proportions.

        `grouped=False` keeps every class apart, as an explicit negative law needs.
        """
        groups = loss.groups(classes)
        if not (grouped and "groups" in loss.gives):
            groups = _apart(groups, loss.coincident(groups)[groups.index])
        return cls(groups, loss, loss.rows(groups), loss.coincident(groups))

    @property
    def dual(self) -> Literal["gradient", "cuts"]:
        """Which dual bounds it: that of the gradient, or of one of several where the rows have kinks."""
        return "cuts" if "cuts" in self.rows.gives else "gradient"

    def require_smooth(self, parameter: str, what: str) -> None:
        """Raise `IncompatibleError` for a loss with kinks, which has no derivative where its optimum lies."""
        if self.dual == "cuts":
            raise IncompatibleError(
                f"`{parameter}` must be smooth for {what}; got {self.loss.label()}, whose slope jumps (smooth its "
                "kinks, as log(1 + exp(t)) smooths max(0, t))"
            )

    @property
    def temperature(self) -> float:
        return self.loss.temperature

    @cached_property
    def temperatures(self) -> Vector:
        """(G,) temperature of the anchors of each group."""
        return self.loss.temperatures(self.groups)

    @cached_property
    def pair_temperature(self) -> Array | float:
        """Harmonic mean of the temperatures of two classes: how far a cosine moves per unit of its log force, about."""
        tau = self.temperatures
        if np.all(tau == tau[0]):
            return float(tau[0])
        return np.asarray(2 / (1 / tau[:, None] + 1 / tau[None, :]))

    @property
    def gives(self) -> frozenset[str]:
        """What the loss and its rows give."""
        return self.loss.gives | self.rows.gives

    def known_gap(self, cosines: Square) -> None:
        """Nothing is known of the optimum beforehand."""

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        return self.groups.sizes

    @property
    def num_classes(self) -> int:
        return int(self.groups.sizes.sum())

    def exponents(self, cosines: Square) -> Square:
        """t = (A - 1)/tau, with the temperature of the anchor."""
        return np.asarray((cosines - 1.0) / self.temperatures[:, None])

    def risk(self, cosines: Square) -> float:
        """F at a group-form Gram matrix."""
        value = self.rows.value(self.exponents(cosines))
        weight = self.sizes * self.rows.anchor_weight
        return float(np.sum(np.where(weight > 0, weight * value, 0.0)))

    def risk_above_floor(self, cosines: Square) -> float:
        """F minus its constant, what is left of it when all cosines with other classes are far below 1.

        A difference of such values keeps the digits that F itself loses beside the constant.
        """
        above = self.rows.value_above_floor(self.exponents(cosines))
        weight = self.sizes * self.rows.anchor_weight
        return float(np.sum(np.where(weight > 0, weight * above, 0.0)))

    def log_gradient(self, cosines: Square) -> Square:
        """(G, G) log of G'_ij = (r_i pull_ij / tau_i + r_j pull_ji / tau_j) / 2, for one pair of classes.

        G' is half the derivative in A_ij = A_ji; the logarithm is -inf where a pair exerts no force, or where no pair
        exists (a group of one class, diagonal).
        """
        level = log_nonnegative(self.rows.anchor_weight) - np.log(2 * self.temperatures)
        log_pull = self.rows.log_pull(self.exponents(cosines)) + level[:, None]
        log_pull = np.where(self.rows.count > 0, log_pull, -np.inf)
        return np.asarray(np.logaddexp(log_pull, log_pull.T))

    def forces(self) -> npt.NDArray[np.bool_]:
        """(G, G) whether two classes of these groups push each other apart; True also where there is no such pair."""
        pushed = self.rows.reaches() & (self.rows.anchor_weight > 0)[:, None]
        return np.asarray(pushed | pushed.T | (self.rows.count == 0))

    @property
    def count(self) -> Array:
        return self.rows.count

    @property
    def index(self) -> npt.NDArray[np.intp]:
        """(C,) group of each class."""
        return self.groups.index

    @property
    def anchor_weight(self) -> Array:
        """(G,) weight of one class of each group in the risk."""
        return self.rows.anchor_weight

    def free_classes(self) -> npt.NDArray[np.intp]:
        """Indices of the classes on which no other class exerts a force: their direction does not matter."""
        pushed = self.rows.reaches() & (self.rows.anchor_weight > 0)[:, None] & (self.rows.count > 0)
        met = np.asarray((pushed | pushed.T).any(axis=1))
        return np.flatnonzero(~met[self.groups.index])

    def gradient(self, cosines: Square) -> Square:
        """(G, G) G' itself; it underflows at very small temperatures, where certificates use its logarithm."""
        weighted = (self.rows.anchor_weight / self.temperatures)[:, None] * self.rows.pull(self.exponents(cosines))
        weighted = np.where((self.rows.count > 0) & (self.rows.anchor_weight > 0)[:, None], weighted, 0.0)
        return np.asarray((weighted + weighted.T) / 2)

    def pair_curvature(self, cosines: Square, gradient: Square) -> Square:
        """G'/tau: exact for a log-sum but for the coupling within a row."""
        return np.asarray(gradient / self.pair_temperature)

    def gradient_derivative(self, cosines: Square) -> Callable[[Array], Array]:
        """Function from a symmetric (G, G) direction of the cosines to the derivative of G' along it."""
        product = self.rows.curvature(self.exponents(cosines))
        # Where there is no pair there is no pull, so nothing to derive.
        weight = (self.rows.anchor_weight / (2 * self.temperatures) / self.temperatures)[:, None]

        def derivative(direction: Square) -> Square:
            half = product(direction) * weight
            return np.asarray(half + half.T)

        return derivative

    def pair_counts(self) -> Square:
        """(G, G) number of ordered pairs of different classes: m_g m_h, and m_g (m_g - 1) on the diagonal."""
        return np.asarray(self.sizes[:, None] * self.rows.count)

    def resampled(self, power: float) -> ClassMeanProgram:
        """The program of proportions lam^power, and of weights bent likewise.

        From power 0 to 1 these programs lead from balanced classes to the given ones.
        """
        groups = self.groups.bent(power)
        return replace(self, groups=groups, rows=self.loss.rows(groups))

    def with_apart(self, classes: tuple[int, ...]) -> tuple[ClassMeanProgram, npt.NDArray[np.intp]]:
        """The same program with these classes in groups of their own, and the old group of each new group."""
        index, _, source = group_matrix.with_apart(self.groups.index, self.groups.sizes, classes)
        finer = self.groups.regrouped(index, source)
        program = replace(self, groups=finer, rows=self.loss.rows(finer), coincident=self.loss.coincident(finer))
        return program, source

    def merged(self) -> ClassMeanProgram:
        """The program in which every coincident group is one pseudo-class.

        Solvers see this one, certificates the original.
        """
        if not self.coincident.any():
            return self
        groups = replace(self.groups, sizes=np.where(self.coincident, 1, self.sizes))
        nothing = np.zeros_like(self.coincident)
        return replace(self, groups=groups, rows=self.rows.merge(self.coincident), coincident=nothing)


def _apart(groups: ClassGroups, merged: npt.NDArray[np.bool_]) -> ClassGroups:
    """One group per class in class order; the marked classes, which coincide at the optimum, share one."""
    first = np.flatnonzero(~merged | (np.cumsum(merged) == 1) & merged)
    index = np.empty(groups.index.size, dtype=np.intp)
    index[first] = np.arange(first.size)
    if merged.any():
        index[merged] = index[np.flatnonzero(merged)[0]]
    return groups.regrouped(index, groups.index[first])


def lift(program: ClassMeanProgram, cosines: Square) -> Array:
    """(C, C) Gram matrix in class order, with unit diagonal, from group form."""
    return group_matrix.expand(cosines, np.ones(program.sizes.size), program.groups.index)
