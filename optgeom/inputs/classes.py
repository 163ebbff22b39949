"""How often each class occurs: the proportions that every program starts from, in group form."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from optgeom import _checks
from optgeom._numerics import freeze, read_only
from optgeom.errors import InvalidInputError
from optgeom.inputs import class_values
from optgeom.inputs.labels import encode


@dataclass(frozen=True, eq=False, repr=False)
class ClassGroups:
    """Classes with exactly equal counts, taken together.

    Equal classes have the same inner products with every other class (Theorem 3 of arXiv 2605.11291), so the programs
    need one unknown per group. Equality is exact: two nearly equal classes are two groups, since their optimal
    geometries differ.

    Attributes
    ----------
    index : (C,) intp
        Group of each class. Groups are in order of decreasing proportion, so they do not depend on the class order.
    sizes : (G,) int64
        Number of classes in each group.
    proportions : (G,) float64
        Proportion of ONE class of each group, strictly decreasing; ``sum(sizes * proportions) = 1``.
    counts : (G,) int64 or None
        Count of one class of each group, None where only proportions or weights are known.
    """

    index: npt.NDArray[np.intp]
    sizes: npt.NDArray[np.int64]
    proportions: npt.NDArray[np.float64]
    counts: npt.NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        freeze(self)

    def __reduce__(self) -> tuple[Any, ...]:
        # A pickled array comes back writable: rebuilding freezes it again.
        return ClassGroups, (self.index, self.sizes, self.proportions, self.counts)

    def __repr__(self) -> str:
        return f"ClassGroups(groups={self.num_groups}, classes={self.index.size})"

    @property
    def num_groups(self) -> int:
        """G, the number of distinct counts."""
        return int(self.sizes.size)

    def regrouped(self, index: npt.NDArray[np.intp], source: npt.NDArray[np.intp]) -> ClassGroups:
        """Other groups of the same classes: `index` (C,) is the new group of each class, `source` the old of each new.

        Every new group lies within one old group.
        """
        sizes = np.bincount(index, minlength=source.size).astype(np.int64)
        counts = None if self.counts is None else self.counts[source]
        return ClassGroups(index, sizes, self.proportions[source], counts)

    def bent(self, power: float) -> ClassGroups:
        """The groups with proportions lam^power (counts bent likewise, the largest kept)."""
        proportions = np.exp(power * np.log(self.proportions / self.proportions.max()))
        proportions /= np.sum(self.sizes * proportions)
        counts: Any = self.counts
        if counts is not None:
            counts = counts.max() * np.exp(power * np.log(counts / counts.max()))
        return replace(self, proportions=proportions, counts=counts)

    @functools.cached_property
    def order(self) -> npt.NDArray[np.intp]:
        """(C,) class indices by group, hence by decreasing proportion, ties by index."""
        # A stable sort of 16-bit keys is a radix sort: linear, which 10^7 classes need.
        keys = self.index.astype(np.uint16) if self.num_groups <= 2**16 else self.index
        return read_only(np.argsort(keys, kind="stable"))

    def members(self, group: int) -> npt.NDArray[np.intp]:
        """Class indices of one group, ascending."""
        group = _checks.index("group", group, self.num_groups, "group")
        start = int(self.sizes[:group].sum())
        return self.order[start : start + int(self.sizes[group])]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ClassDistribution:
    """Proportions of C >= 2 classes, made by one of the ``from_...`` constructors.

    It is kept in group form (see `ClassGroups`); the arrays over classes are made when asked for. All arrays are
    read-only.

    Attributes
    ----------
    groups : ClassGroups
        Groups of exactly equal classes.
    dropped : tuple of str
        Names of the empty classes that ``drop_empty=True`` left out.
    notes : tuple of str
        What was done to the input beyond reading it, to be shown to the user.
    sampler_power : float
        q of the sampler that was applied (`resample`), 1 if none was.
    given_names : tuple of str, optional
        Names of the classes as given; see `names`.
    given_kept : (C,) intp, optional
        Indices in the input, where empty classes were dropped; see `kept`.
    """

    groups: ClassGroups
    dropped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    sampler_power: float = 1.0
    given_names: tuple[str, ...] | None = None
    given_kept: npt.NDArray[np.intp] | None = None

    @classmethod
    def from_counts(
        cls,
        counts: Iterable[float] | Mapping[str, float] | npt.ArrayLike,
        names: Sequence[str] | None = None,
        *,
        drop_empty: bool = False,
    ) -> Self:
        """Classes from the number of samples of each.

        Parameters
        ----------
        counts : array-like of shape (C,), or mapping name -> count
            Positive numbers, C >= 2. Whole numbers below 2^63 are kept exactly, in `counts`; if any is fractional, all
            are weights of which only the ratios matter, and `counts` is None.
        names : sequence of str, length C, optional
            Names of the classes, all different; "0" to "C-1" by default.
        drop_empty : bool
            Leave out classes with count 0 (recorded in `dropped`, `kept` and `notes`) instead of refusing them.

        Raises
        ------
        InvalidInputError
            A count that is not positive and finite (the message names the class), or fewer than two classes.
        """
        if isinstance(counts, Mapping):
            names = list(counts) if names is None else names
            counts = list(counts.values())
        cleaned = class_values.clean("counts", counts, names, drop_empty)
        return cls._of(_grouped(cleaned.values), cleaned)

    @classmethod
    def from_proportions(
        cls,
        proportions: Iterable[float] | npt.ArrayLike,
        names: Sequence[str] | None = None,
        *,
        drop_empty: bool = False,
    ) -> Self:
        """Classes from their proportions.

        Parameters
        ----------
        proportions : array-like of shape (C,)
            Positive numbers whose sum is 1 to within 1e-9 (for narrower floating types, to within their rounding); they
            are then divided by their sum. `counts` of the result is None.
        names, drop_empty
            As in `from_counts`.

        Raises
        ------
        InvalidInputError
            As in `from_counts`, or a sum that is not 1.
        """
        cleaned = class_values.clean("proportions", proportions, names, drop_empty)
        with np.errstate(over="ignore"):
            total = float(cleaned.values.sum())
        if not abs(total - 1) <= max(1e-9, class_values.rounding(proportions)):
            raise InvalidInputError(
                f"`proportions` must sum to 1; got a sum of {total:.12g}, off by {total - 1:.3g} "
                "(if these are counts, give them as counts)"
            )
        return cls._of(_grouped(cleaned.values.astype(np.float64), whole=False), cleaned)

    @classmethod
    def _of(cls, groups: ClassGroups, cleaned: class_values.Cleaned) -> Self:
        return cls(
            groups=groups,
            dropped=cleaned.dropped,
            notes=cleaned.notes,
            given_names=cleaned.names,
            given_kept=cleaned.kept,
        )

    @classmethod
    def from_labels(cls, labels: Any, *, ignore: Sequence[int | str] = ()) -> Self:
        """Classes that occur in a column of labels, with the number of rows of each.

        Parameters
        ----------
        labels : array-like of shape (n,)
            Whole numbers (also as floats), text, bytes, booleans, or exact one-hot rows of shape (n, C).
        ignore : sequence of int or str
            Labels to leave out, such as -1 or 255; none by default.

        Notes
        -----
        Class order: whole numbers ascending, False before True, text by code point, except that text which is all whole
        numbers goes by value and then by text.

        Raises
        ------
        InvalidInputError
            A missing or fractional label (the message names the row), several labels per row, or fewer than two
            classes.
        """
        encoded = encode(labels, ignore=ignore)
        if len(encoded.names) == 1:
            rows = int(encoded.counts[0])
            raise InvalidInputError(
                f"no geometry with one class: all {rows} rows of `labels` have the label {encoded.names[0]!r} "
                "(at least 2 classes are needed)"
            )
        return cls(groups=_grouped(encoded.counts), notes=encoded.notes, given_names=encoded.names)

    @classmethod
    def from_profile(cls, name: str) -> Self:
        """Classes of a data set known by name ("places-lt") or formula ("cifar10-lt:100"); see `optgeom.profiles`."""
        from optgeom.inputs import profiles

        profile = profiles.load(name)
        if profile.counts is None:
            return cls.from_proportions(profile.proportions, profile.names)
        return cls.from_counts(profile.counts, profile.names)

    @classmethod
    def from_groups(cls, counts: npt.ArrayLike, sizes: npt.ArrayLike) -> Self:
        """Many classes with few distinct counts.

        Parameters
        ----------
        counts : array-like of shape (K,)
            Count of one class of each block, as in `from_counts`.
        sizes : array-like of shape (K,)
            Number of classes in each block, >= 1. Class order: the blocks as given. Blocks with equal counts become one
            group.

        Raises
        ------
        InvalidInputError
            As in `from_counts`; sizes that are not positive whole numbers, one for each count.
        """
        values = class_values.positive(
            "counts", class_values.numeric("counts", counts), 1, entry="block", remedy="leave the block out"
        )
        lengths = class_values.positive(
            "sizes", class_values.numeric("sizes", sizes), 1, entry="block", remedy="leave the block out"
        )
        if lengths.dtype.kind != "i":
            raise InvalidInputError(
                f"`sizes` must be whole numbers of classes; got {lengths.tolist()[:5]} "
                "(give one whole number per block)"
            )
        if lengths.size != values.size:
            raise InvalidInputError(
                f"`sizes` must have one entry for each of {values.size} counts; got {lengths.size} (match them)"
            )
        if lengths.sum() < 2:
            raise InvalidInputError("no geometry with one class: `sizes` sum to 1 (at least 2 classes are needed)")
        return cls(groups=_grouped(values, np.repeat(np.arange(values.size), lengths)))

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], *, drop_empty: bool = False) -> Self:
        """Classes from a counts file of any kind that `optgeom.inputs.tables.read_counts` reads."""
        from optgeom.inputs import tables

        table = tables.read_counts(path)
        try:
            return cls.from_counts(table.counts, table.names, drop_empty=drop_empty)
        except InvalidInputError as error:
            raise InvalidInputError(f"{path}: {error}") from error

    def resample(self, power: float) -> ClassDistribution:
        """The classes as a sampler with proportions ~ n^power draws them.

        Parameters
        ----------
        power : float
            1: each sample equally often (nothing changes, `self` is returned); 0: each class equally often; 0.5: square
            root. Finite.

        Returns
        -------
        ClassDistribution
            `counts` is None and `sampler_power` is the product of the powers applied. Equal classes stay exactly equal.

        Raises
        ------
        InvalidInputError
            `power` is not finite, or so large that the rarest class falls below the range of floats.
        """
        power = _checks.real("power", power, hint="1 is instance sampling, 0 balanced, 0.5 square root")
        if power == 1:
            return self
        with np.errstate(over="ignore", invalid="ignore"):
            logs = power * np.log(self.groups.proportions)
            weights = np.nan_to_num(np.exp(logs - logs.max()))
        groups = _grouped(weights, self.groups.index, whole=False)
        return replace(self, groups=groups, sampler_power=self.sampler_power * power)

    def __getstate__(self) -> dict[str, Any]:
        # Without the arrays over classes, which are made again when asked for.
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __repr__(self) -> str:
        figures = f"groups={self.groups.num_groups}, imbalance_factor={self.imbalance_factor:.6g}"
        return f"ClassDistribution(num_classes={self.num_classes}, {figures})"

    @property
    def num_classes(self) -> int:
        """C, the number of classes."""
        return int(self.groups.index.size)

    @functools.cached_property
    def proportions(self) -> npt.NDArray[np.float64]:
        """(C,) proportion of each class, positive, sum 1; equal counts have the same float."""
        return read_only(self.groups.proportions[self.groups.index])

    @functools.cached_property
    def counts(self) -> npt.NDArray[np.int64] | None:
        """(C,) number of samples of each class; None after `resample`, and where only proportions are known."""
        return None if self.groups.counts is None else read_only(self.groups.counts[self.groups.index])

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        """Name of each class; where none was given, the text of its index in the input."""
        return self.given_names if self.given_names is not None else tuple(map(str, self.kept.tolist()))

    @functools.cached_property
    def kept(self) -> npt.NDArray[np.intp]:
        """(C,) index in the input of each class: 0 to C-1 unless empty classes were dropped."""
        return read_only(np.arange(self.num_classes) if self.given_kept is None else self.given_kept)

    @property
    def imbalance_factor(self) -> float:
        """Largest over smallest count as they really are, which may differ from the nominal factor of a profile."""
        sizes = self.groups.proportions if self.groups.counts is None else self.groups.counts
        return float(sizes[0] / sizes[-1])

    def frequency_order(self) -> npt.NDArray[np.intp]:
        """(C,) class indices by decreasing proportion, ties by index."""
        return self.groups.order


def _grouped(values: npt.NDArray[Any], block: npt.NDArray[np.intp] | None = None, whole: bool = True) -> ClassGroups:
    """Groups of C classes whose class c has the positive value ``values[block[c]]`` (``values[c]`` without blocks).

    `whole` False says that integers here are weights, not counts.
    """
    distinct, position = _distinct(values)
    index = position if block is None else position[block]
    sizes = np.bincount(index, minlength=distinct.size).astype(np.int64)
    weights = distinct.astype(np.float64)
    with np.errstate(over="ignore"):
        total = float((weights * sizes).sum())
    if not math.isfinite(total):
        weights = weights / weights[0]
        total = float((weights * sizes).sum())
    proportions = weights / total
    # Below the smallest normal float the digits go, and with them the logarithms that the solvers work in.
    smallest = float(np.finfo(np.float64).tiny)
    if proportions[-1] < smallest:
        raise InvalidInputError(
            f"the rarest class must have a proportion above {smallest:.3g}; got {proportions[-1]:.3g} "
            "(lower the imbalance or the power)"
        )
    return ClassGroups(index, sizes, proportions, distinct if whole and distinct.dtype.kind == "i" else None)


def _distinct(values: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[np.intp]]:
    """Distinct values, decreasing, and the position of each value among them."""
    if values.dtype.kind == "i" and values.max() <= 4 * values.size:
        # Long-tailed counts are small and repeat: a table of all values up to the largest is linear, a sort of 10^7
        # classes is not.
        present = np.flatnonzero(np.bincount(values))[::-1].astype(np.int64)
        lookup = np.zeros(int(present[0]) + 1, dtype=np.intp)
        lookup[present] = np.arange(present.size)
        return present, lookup[values]
    distinct, position = np.unique(values, return_inverse=True)
    return distinct[::-1].copy(), (distinct.size - 1 - position).astype(np.intp)
