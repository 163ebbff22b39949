r"""Weights and temperatures per class: what a loss may say of anchors, of negatives and of the denominator.

    F(A) = sum_i r_i E log( o_i + sum_{j != i} n_j b_ij exp((A_ij - 1 + m_i)/tau_i) ),  r_i ~ lam_i a_i with sum 1.

a_i weights anchors, b_ij negatives, b_ii the rows of the anchor's own class in the denominator (in o_i); each class may
have a temperature and a margin m_i, by which its similarity to other classes counts for more: a weight exp(m_i/tau_i)
on negatives of other classes. Weights are used as given, and only r is brought to sum 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from optgeom._numerics import Array, Vector
from optgeom.errors import IncompatibleError, InvalidInputError
from optgeom.inputs.classes import ClassGroups
from optgeom.losses.base import Loss, plain
from optgeom.losses.by_class import ByName, WeightedGroups
from optgeom.losses.options import BALANCED, BATCH_AVERAGE, CLASS_AVERAGE
from optgeom.losses.rows import RowWeights

if TYPE_CHECKING:
    from optgeom.inputs.classes import ClassDistribution

WEIGHTED_FORMULA = "the mean logarithm of the weighted denominators"
FIELDS = ("anchor_weights", "negative_weights", "own_class_in_denominator", "class_temperatures", "margin")
BY_CLASS = ("anchor_weights", "negative_weights", "class_temperatures", "margin")
LARGEST_MARGIN = 300.0  # times the temperature: exp of it is far from overflow, also times other weights


@dataclass(frozen=True, eq=False)
class ClassValues:
    """Weights and temperatures of single classes, in class order.

    Attributes
    ----------
    anchor : (C,)
        a, used as given.
    negative : (C, C)
        b with margins, exp(m_i/tau_i) b_ij; b_ii on the diagonal (0 where the own class is left out of the
        denominator). Where rows are averaged, their weights beside the average.
    temperature : (C,)
    with_own : bool
        Rows of the own class stand in the denominator.
    averaged : bool
        The rows of each class in a batch are averaged.
    """

    anchor: Array
    negative: Array
    temperature: Array
    with_own: bool
    averaged: bool

    def at(self, classes: npt.NDArray[np.intp]) -> ClassValues:
        """Those of some classes, in this order."""
        table = self.negative[np.ix_(classes, classes)]
        return replace(self, anchor=self.anchor[classes], negative=table, temperature=self.temperature[classes])


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassWeighted(Loss):
    """A loss with weights per class.

    Parameters
    ----------
    anchor_weights : "balanced" or mapping of names to positive numbers, optional
        a: weights of anchors. "balanced": 1/lam, so that every class has the same weight in the risk.
    negative_weights : "class-average", "batch-average", mapping of names to positive numbers or (C, C), optional
        b: weights of negatives, b_j or b_ij >= 0 with rows in class order. "class-average": 1/(C lam_j).
        "batch-average": the rows of each class that a batch holds are averaged (balanced contrastive learning).
    own_class_in_denominator : bool
        False leaves the rows of the anchor's own class out of it, but for the positive itself (SINCERE).
    class_temperatures : mapping of names to positive numbers, optional
        tau of the anchors of each class, in place of `temperature`.
    margin : mapping of names to numbers, optional
        m of the anchors of each class, in units of the cosine: similarities to other classes count as if they were
        larger by it. Absolute values matter, not differences.

    References
    ----------
    Zhu et al. 2022, arXiv 2207.09052 (averages over classes). Feeney, Hughes 2023, arXiv 2309.14277 (SINCERE).
    """

    anchor_weights: Any = None
    negative_weights: Any = None
    own_class_in_denominator: bool = True
    class_temperatures: Any = None
    margin: Any = None

    @property
    def gives(self) -> frozenset[str]:
        return super().gives | {"class-weights"}

    def _check_weights(self) -> None:
        """Refuse values outside their domain and make them immutable; for `__post_init__`."""
        if not isinstance(self.own_class_in_denominator, (bool, np.bool_)):
            came = repr(self.own_class_in_denominator)
            raise InvalidInputError(f"`own_class_in_denominator` must be True or False; got {came} (True is usual)")
        words = {"anchor_weights": (BALANCED,), "negative_weights": (CLASS_AVERAGE, BATCH_AVERAGE)}
        for name in BY_CLASS:
            given = getattr(self, name)
            if given is None or (isinstance(given, str) and given in words.get(name, ())):
                continue
            if isinstance(given, ByName):
                continue
            if isinstance(given, Mapping):
                kept: Any = ByName.of(name, given, positive=name != "margin")
            elif name == "negative_weights" and not isinstance(given, str):
                kept = _table(name, given)
            else:
                numbers = (
                    "one number per class by name" if name == "margin" else "one positive number per class by name"
                )
                known = " or ".join([*map(repr, words.get(name, ())), numbers])
                raise InvalidInputError(
                    f"`{name}` must be {known}; got {given!r} (for example {{'cat': 1.0, 'dog': 2.0}})"
                )
            object.__setattr__(self, name, kept)
        if self.margin is not None:
            most = LARGEST_MARGIN * smallest_temperature(self.temperature, self.class_temperatures)
            wrong = next((name for name, value in self.margin.items() if abs(value) > most), None)
            if wrong is not None:
                raise InvalidInputError(
                    f"`margin` must be at most {LARGEST_MARGIN:g} times the temperature, {most:g}; got "
                    f"{self.margin[wrong]:g} for {wrong} (cosines differ by at most 2)"
                )

    @property
    def is_weighted(self) -> bool:
        """Whether any of the four differs from its default."""
        return not self.own_class_in_denominator or any(
            getattr(self, name) is not None for name in FIELDS if name != "own_class_in_denominator"
        )

    def refuse_weights(self, came: str) -> None:
        """Raise `IncompatibleError` where the classes differ and are not known."""
        if self.is_weighted:
            raise IncompatibleError(f"`loss` has values per class; got {came} (give `classes`, two or more)")

    @property
    def averages_batches(self) -> bool:
        """Whether negatives are averaged over the rows of their class in the batch."""
        return isinstance(self.negative_weights, str) and self.negative_weights == BATCH_AVERAGE

    # --- bound to classes

    def groups(self, classes: ClassDistribution) -> ClassGroups:
        given = self._given(classes)
        return classes.groups if all(value is None for value in given) else WeightedGroups.of(classes, *given)

    def _given(self, classes: ClassDistribution) -> tuple[Array | None, Array | None, Array | None, Array | None]:
        """Weights of anchors (C,), of negatives (C,) or (C, C), temperatures (C,), margins (C,), as far as given."""
        values: list[Array | None] = []
        for name in BY_CLASS:
            given = getattr(self, name)
            if isinstance(given, ByName):
                values.append(given.in_order(name, classes))
            elif isinstance(given, tuple):
                table, number = np.array(given), classes.num_classes
                if table.shape != (number, number):
                    raise InvalidInputError(
                        f"`{name}` must have shape (C, C) = ({number}, {number}) in class order; got {table.shape}"
                    )
                values.append(table)
            else:
                values.append(None)
        return cast("tuple[Array | None, Array | None, Array | None, Array | None]", tuple(values))

    def temperatures(self, groups: ClassGroups) -> Vector:
        if isinstance(groups, WeightedGroups) and groups.temperature is not None:
            return groups.temperature
        self._refuse_unresolved(class_temperatures=self.class_temperatures)
        return super().temperatures(groups)

    @property
    def shared_temperature(self) -> float | None:
        return self.temperature if self.class_temperatures is None else None

    def row_weights(self, groups: ClassGroups) -> RowWeights:
        """Weights of the rows of these groups."""
        lam, number = groups.proportions, groups.sizes.size
        if self.anchor_weights is None:
            anchor = lam
        elif isinstance(self.anchor_weights, str):
            anchor = np.full(number, 1.0 / float(groups.sizes.sum()))
        else:
            given = groups.anchor if isinstance(groups, WeightedGroups) else None
            self._refuse_unresolved(anchor_weights=self.anchor_weights if given is None else None)
            anchor = lam * cast("Array", given)
            anchor = anchor / np.sum(groups.sizes * anchor)
        if isinstance(self.negative_weights, str) and self.negative_weights == CLASS_AVERAGE:
            own = 1.0 / (float(groups.sizes.sum()) * lam)
            negative = np.tile(own, (number, 1))
        elif self.negative_weights is None or isinstance(self.negative_weights, str):
            own, negative = np.ones(number), np.ones((number, number))
        else:
            table = groups.negative if isinstance(groups, WeightedGroups) else None
            self._refuse_unresolved(negative_weights=self.negative_weights if table is None else None)
            assert isinstance(groups, WeightedGroups)
            negative, own = cast("Array", table), cast("Array", groups.own)
        if not self.own_class_in_denominator:
            own = np.zeros(number)
        if self.margin is not None:
            margin = groups.margin if isinstance(groups, WeightedGroups) else None
            self._refuse_unresolved(margin=self.margin if margin is None else None)
            negative = negative * np.exp(cast("Array", margin) / self.temperatures(groups))[:, None]
        return RowWeights(anchor, negative, own)

    def refuse_idle_margins(self, offset: Array) -> None:
        """Raise `InvalidInputError` for margins where nothing but negatives of other classes stands in the denominator.

        Parameters
        ----------
        offset : (G,)
            What the denominator of each group holds beside them.
        """
        if self.margin is not None and not np.all(np.asarray(offset) > 0):
            raise InvalidInputError(
                "`margin` must be left out where nothing but negatives of other classes stands in the denominator; got "
                "margins, which only add a constant there (keep the positive or the own class in it)"
            )

    def _refuse_unresolved(self, **given: Any) -> None:
        for name, value in given.items():
            if value is not None:
                raise InvalidInputError(
                    f"`{name}` by class needs the classes; got groups without names (use `loss.groups(classes)`)"
                )

    def class_values(self, classes: ClassDistribution) -> ClassValues | None:
        if not self.is_weighted:
            return None
        groups = self.groups(classes)
        weights, index = self.row_weights(groups), groups.index
        anchor = weights.anchor[index] / groups.proportions[index]
        negative = weights.negative[np.ix_(index, index)]
        np.fill_diagonal(negative, weights.own[index])
        temperature = self.temperatures(groups)[index]
        return ClassValues(anchor, negative, temperature, self.own_class_in_denominator, self.averages_batches)

    def values_for_batches(self, classes: ClassDistribution | None) -> ClassValues | None:
        """`class_values`; raises `IncompatibleError` where weights need classes and there are none."""
        if classes is None:
            self.refuse_weights("a module for labels of unknown classes")
            return None
        return self.class_values(classes)

    # --- in files and words

    def weights_to_dict(self) -> dict[str, Any]:
        """The parameters of this class that are given, ready for JSON."""
        described: dict[str, Any] = {}
        for name in FIELDS:
            value = getattr(self, name)
            if value is not None and value is not True:
                described[name] = dict(value) if isinstance(value, ByName) else _listed(value)
        return described

    def to_dict(self) -> dict[str, Any]:
        described = super().to_dict()
        return {name: value for name, value in described.items() if name not in FIELDS} | self.weights_to_dict()

    def _heading(self) -> str:
        """Label and temperature, for the start of `words`."""
        shared = f", temperature {self.temperature:g}" if self.class_temperatures is None else ""
        return self.label() + shared

    def weights_words(self) -> str:
        """The weights in words, each after a comma; empty without weights."""
        anchors = "balanced anchors" if isinstance(self.anchor_weights, str) else "weighted anchors"
        named = {
            CLASS_AVERAGE: "class-averaged negatives",
            BATCH_AVERAGE: "negatives averaged over each class of a batch",
        }
        parts = []
        if self.anchor_weights is not None:
            parts.append(anchors)
        if self.negative_weights is not None:
            word = isinstance(self.negative_weights, str)
            parts.append(named[self.negative_weights] if word else "weighted negatives")
        if not self.own_class_in_denominator:
            parts.append("own class left out of the denominator")
        if self.class_temperatures is not None:
            parts.append("a temperature per class")
        if self.margin is not None:
            parts.append("a margin per class")
        return "".join(f", {part}" for part in parts)


def _table(name: str, given: Any) -> tuple[tuple[float, ...], ...]:
    """A square table of weights >= 0 as rows."""
    try:
        table = np.array(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"`{name}` must be a (C, C) table of numbers; got {type(given).__name__}") from error
    if table.ndim != 2 or table.shape[0] != table.shape[1]:
        raise InvalidInputError(
            f"`{name}` must have shape (C, C) in class order; got {table.shape} (one weight per class: by name)"
        )
    if not np.all(np.isfinite(table)) or table.min() < 0:
        row, column = np.argwhere(~(table >= 0) | ~np.isfinite(table))[0]
        raise InvalidInputError(
            f"`{name}` must hold finite weights >= 0; got {table[row, column]} in row {row}, column {column}"
        )
    return tuple(map(tuple, table.tolist()))


def _listed(value: Any) -> Any:
    return [list(row) for row in value] if isinstance(value, tuple) else plain(value)


def refuse_empty_rows(weights: RowWeights, offset: Array, seen: npt.NDArray[np.bool_], finite: bool) -> None:
    """Refuse rows whose logarithm is that of 0: with a constant of 0 every negative that may come needs a weight.

    Parameters
    ----------
    weights : RowWeights
    offset : (G,)
        What every denominator holds, whatever the negatives.
    seen : (G, G) bool
        Classes that occur among the negatives.
    finite : bool
        Finitely many negatives, of which one class may be all.
    """
    weighted = weights.negative > 0
    bare = (seen & ~weighted).any(axis=1) if finite else ~(seen & weighted).any(axis=1)
    if np.any(bare & ~(offset > 0) & (weights.anchor > 0)):
        raise InvalidInputError(
            "`negative_weights` must leave something in every denominator; got zeros where nothing else stands in it "
            "(give positive weights, or keep the positive: alpha > 0)"
        )


def smallest_temperature(temperature: float, by_class: Any) -> float:
    """The least temperature that any anchor has."""
    return float(temperature) if by_class is None else float(min(by_class.values()))
