"""One number per class by name, and groups of classes that agree in all such numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from optgeom import _checks
from optgeom._numerics import Array
from optgeom.errors import InvalidInputError
from optgeom.formatting import first_of
from optgeom.inputs.classes import ClassGroups

if TYPE_CHECKING:
    from optgeom.inputs.classes import ClassDistribution


@dataclass(frozen=True, repr=False)
class ByName(Mapping[str, float]):
    """One number per class, by name; immutable, so that a loss that holds it can be compared and hashed."""

    entries: tuple[tuple[str, float], ...]

    @classmethod
    def of(cls, parameter: str, values: Mapping[Any, Any], *, positive: bool = True) -> ByName:
        """From any mapping; raises `InvalidInputError` for a value that is not finite, or not positive."""
        if not values:
            raise InvalidInputError(f"`{parameter}` must name every class; got no name (leave it out for equal values)")
        hint = f"give every class a {'positive ' if positive else ''}number"
        checked = {
            str(name): _checks.real(f"{parameter}[{name}]", value, above=0.0 if positive else None, hint=hint)
            for name, value in values.items()
        }
        return cls(tuple(checked.items()))

    def __getitem__(self, name: str) -> float:
        return dict(self.entries)[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __repr__(self) -> str:
        return repr(dict(self.entries))

    def in_order(self, parameter: str, classes: ClassDistribution) -> Array:
        """(C,) values in class order.

        Raises
        ------
        InvalidInputError
            A name that no class has, or a class without a value.
        """
        values = dict(self.entries)
        foreign = [name for name in values if name not in set(classes.names)]
        if foreign:
            known = first_of(classes.names)
            raise InvalidInputError(f"`{parameter}` must name classes; got {foreign[0]!r} (the classes are {known})")
        missing = [name for name in classes.names if name not in values]
        if missing:
            raise InvalidInputError(
                f"`{parameter}` must have a value for every class; got none for {first_of(missing)} (add it)"
            )
        return np.array([values[name] for name in classes.names])


@dataclass(frozen=True, eq=False, repr=False)
class WeightedGroups(ClassGroups):
    """Groups of classes that agree in their values per class too.

    Attributes
    ----------
    anchor : (G,) or None
        a of one class of each group; None where none was given by name.
    negative : (G, G) or None
        b between two different classes of these groups.
    own : (G,) or None
        b_ii.
    temperature : (G,) or None
    margin : (G,) or None
        m.
    """

    anchor: Array | None = None
    negative: Array | None = None
    own: Array | None = None
    temperature: Array | None = None
    margin: Array | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        parts = (self.index, self.sizes, self.proportions, self.counts)
        return WeightedGroups, (*parts, self.anchor, self.negative, self.own, self.temperature, self.margin)

    @classmethod
    def of(
        cls,
        classes: ClassDistribution,
        anchor: Array | None,
        negative: Array | None,
        temperature: Array | None,
        margin: Array | None = None,
    ) -> WeightedGroups:
        """From values in class order; `negative` is (C,) or (C, C)."""
        table = negative if negative is not None and negative.ndim == 2 else None
        columns = [anchor, negative if table is None else np.diag(table), temperature, margin]
        keys = np.column_stack([classes.groups.index, *(column for column in columns if column is not None)])
        first, index = np.unique(keys, axis=0, return_index=True, return_inverse=True)[1:]
        index = index.ravel().astype(np.intp)
        if table is not None and not _is_constant_on(index, table):
            order = classes.frequency_order()
            first, index = order, np.empty(order.size, dtype=np.intp)
            index[order] = np.arange(order.size)
        base = classes.groups.regrouped(index, classes.groups.index[first])

        def at(values: Array | None) -> Array | None:
            return None if values is None else values[first]

        own = at(negative if table is None else np.diag(table))
        between = None if own is None else np.tile(own, (own.size, 1))
        if table is not None:
            # The entry of a group with itself is between two of its classes.
            last = np.empty_like(first)
            last[index] = np.arange(index.size)
            between = table[np.ix_(first, first)]
            np.fill_diagonal(between, table[first, last])
        parts = (base.index, base.sizes, base.proportions, base.counts)
        return cls(*parts, at(anchor), between, own, at(temperature), at(margin))

    def regrouped(self, index: npt.NDArray[np.intp], source: npt.NDArray[np.intp]) -> WeightedGroups:
        base = super().regrouped(index, source)

        def at(values: Array | None) -> Array | None:
            return None if values is None else values[source]

        between = None if self.negative is None else self.negative[np.ix_(source, source)]
        return WeightedGroups(
            base.index,
            base.sizes,
            base.proportions,
            base.counts,
            at(self.anchor),
            between,
            at(self.own),
            at(self.temperature),
            at(self.margin),
        )

    def bent(self, power: float) -> WeightedGroups:
        base = super().bent(power)

        def bend(values: Array | None, about: float = 1.0) -> Array | None:
            return None if values is None else about * (values / about) ** power

        middle = 1.0 if self.temperature is None else float(np.exp(np.mean(np.log(self.temperature))))
        return WeightedGroups(
            base.index,
            base.sizes,
            base.proportions,
            base.counts,
            bend(self.anchor),
            bend(self.negative),
            bend(self.own),
            bend(self.temperature, middle),
            None if self.margin is None else power * self.margin,
        )


def _is_constant_on(index: npt.NDArray[np.intp], table: Array) -> bool:
    """Whether entries between different classes depend on their groups only."""
    groups = int(index.max()) + 1
    low, high = np.full((groups, groups), np.inf), np.full((groups, groups), -np.inf)
    off = ~np.eye(index.size, dtype=bool)
    rows, columns = np.nonzero(off)
    np.minimum.at(low, (index[rows], index[columns]), table[off])
    np.maximum.at(high, (index[rows], index[columns]), table[off])
    return bool(np.all((low == high) | (low > high)))
