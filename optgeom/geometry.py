"""Geometry: the frozen result of a solve, in group form, with the certificate that says how far to trust it."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from optgeom import _checks
from optgeom import prototypes as _prototypes
from optgeom._numerics import Array, arccos_clipped, freeze, read_only
from optgeom.certificates.certificate import Certificate
from optgeom.errors import InvalidInputError
from optgeom.inputs.classes import ClassDistribution
from optgeom.programs import group_matrix

COINCIDENT_COSINE = 1 - 1e-9
NEAR_ANGLE_DEG = 1.0
LARGEST_GRAM = 20000  # classes up to which the C x C matrix is written down (3 GiB)
LISTED_PAIRS = 10000


@dataclass(frozen=True)
class SolverRun:
    """Which solver produced a geometry: its name, iterations and wall-clock seconds (certificate included)."""

    name: str
    iterations: int
    seconds: float


@dataclass(frozen=True)
class Pair:
    """Two classes and the angle between their means, in degrees."""

    first: int
    second: int
    angle_deg: float


@dataclass(frozen=True, eq=False, repr=False)
class Geometry:
    """The optimal class-mean geometry of a class distribution and a loss.

    All arrays are read-only. Classes are numbered in the order of `classes`.

    Attributes
    ----------
    classes : ClassDistribution
        Proportions, names, counts.
    index : (C,) intp
        Group of each class; classes of one group are interchangeable.
    group_sizes : (G,) int64
    group_cosines : (G, G)
        Cosine between one class of group g and ANOTHER class of group h; on the diagonal the cosine within the group (1
        for one class).
    risk : float
        Population loss F at this geometry (see the loss for constants left out).
    rank : int
        Eigenvalues of the Gram matrix above 1e-7 (their mean is 1).
    certificate : Certificate
    loss : dict
        Name and parameters of the loss.
    solver : SolverRun
    dim : int or None
        Embedding dimension that was asked for.
    bracket : (float, float) or None
        With `dim` below the rank of the unrestricted optimum: a lower bound of the risk and the best risk found, not
        certified to meet.
    required_rank : int or None
        With a bracket: the rank, hence the embedding dimension, of the unrestricted optimum.
    """

    classes: ClassDistribution
    index: npt.NDArray[np.intp]
    group_sizes: npt.NDArray[np.int64]
    group_cosines: Array
    risk: float
    rank: int
    certificate: Certificate
    loss: dict[str, Any]
    solver: SolverRun
    dim: int | None = None
    bracket: tuple[float, float] | None = None
    notes: tuple[str, ...] = field(default=())
    required_rank: int | None = None

    def __post_init__(self) -> None:
        freeze(self)

    def __reduce__(self) -> tuple[Any, ...]:
        # A pickled array comes back writable: rebuilding freezes it again.
        return type(self), tuple(getattr(self, part.name) for part in fields(self))

    def __repr__(self) -> str:
        state = "certified" if self.certificate.certified else "NOT certified"
        return (
            f"Geometry(num_classes={self.num_classes}, loss={self.loss.get('name')!r}, risk={self.risk:.12g}, rank={self.rank}, "
            f"regime={self.regime!r}, {state}, gap={self.certificate.gap:.1e})"
        )

    @property
    def num_classes(self) -> int:
        """C."""
        return self.classes.num_classes

    @property
    def names(self) -> tuple[str, ...]:
        """Class names, in class order."""
        return self.classes.names

    @property
    def proportions(self) -> Array:
        """(C,) class proportions."""
        return self.classes.proportions

    @property
    def regime(self) -> str:
        """One of "spread", "partial-collapse", "minority-collapse" or "dimension-limited"."""
        if self.bracket is not None:
            return "dimension-limited"
        if self.rank >= self.num_classes - 1 or self.num_classes == 2:
            return "spread"
        return "minority-collapse" if self.rank == 1 else "partial-collapse"

    @functools.cached_property
    def gram(self) -> Array:
        """(C, C) Gram matrix of the class means, unit diagonal, in class order.

        Raises
        ------
        InvalidInputError
            More classes than fit in memory: the group form says the same.
        """
        if self.num_classes > LARGEST_GRAM:
            raise InvalidInputError(
                f"`gram` of {self.num_classes} classes would need {self.num_classes**2 * 8 / 2**30:.0f} GiB; "
                "use the group form (`group_cosines`, `cosine(i, j)`)"
            )
        return read_only(group_matrix.expand(self.group_cosines, np.ones(self.group_sizes.size), self.index))

    def cosine(self, first: int, second: int) -> float:
        """Cosine between the means of two classes.

        Parameters
        ----------
        first, second : int
            Class indices, 0 to C - 1; equal ones have cosine 1.

        Raises
        ------
        InvalidInputError
            No such class.
        """
        first, second = (
            _checks.index("first", first, self.num_classes),
            _checks.index("second", second, self.num_classes),
        )
        return 1.0 if first == second else float(self.group_cosines[self.index[first], self.index[second]])

    def prototypes(self, dim: int | None = None) -> Array:
        """(C, dim) unit class means with V V^T equal to the Gram matrix to 1e-12.

        Parameters
        ----------
        dim : int, optional
            Embedding dimension, at least `rank` (the default); further columns are zero.

        Raises
        ------
        InvalidInputError
            `dim` below the rank, or a table too large to write down.
        """
        columns = None if dim is None else _checks.integer("dim", dim, at_least=1)
        return _prototypes.factor(self.group_cosines, self.group_sizes, self.index, columns)

    def angles(self) -> Array:
        """(C, C) angles between class means in degrees, 0 on the diagonal."""
        angles = np.degrees(arccos_clipped(self.gram))
        np.fill_diagonal(angles, 0.0)
        return angles

    def eigenvalues(self) -> Array:
        """Eigenvalues of the Gram matrix, descending.

        Above 20000 classes each group's repeated eigenvalue is listed once.
        """
        ones = np.ones(self.group_sizes.size)
        block = np.linalg.eigvalsh(group_matrix.symmetric_block(self.group_cosines, ones, self.group_sizes))
        rest = group_matrix.complement(self.group_cosines, ones, self.group_sizes)
        times = self.group_sizes - 1 if self.num_classes <= LARGEST_GRAM else np.minimum(self.group_sizes - 1, 1)
        return np.sort(np.concatenate([block, np.repeat(rest, times)]))[::-1]

    def _pair_angles(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], Array, Array]:
        """Pairs of groups (g <= h) that hold at least one pair of classes, their angle, and how many pairs of classes they stand for."""
        left, right = np.triu_indices(self.group_sizes.size)
        sizes = self.group_sizes.astype(np.float64)
        number = np.where(left == right, sizes[left] * (sizes[left] - 1) / 2, sizes[left] * sizes[right])
        held = number > 0
        left, right = left[held], right[held]
        cosines = self.group_cosines[left, right]
        # arccos turns one unit of rounding below 1 into a microdegree; coincident classes are at 0.
        angles = np.where(cosines > COINCIDENT_COSINE, 0.0, np.degrees(arccos_clipped(cosines)))
        return left, right, angles, number[held]

    def _pairs(self, order: npt.NDArray[np.intp], left: Any, right: Any, angles: Array, limit: int) -> tuple[Pair, ...]:
        found: list[Pair] = []
        for which in order:
            first = np.flatnonzero(self.index == left[which])[: limit + 1]
            second = np.flatnonzero(self.index == right[which])[: limit + 1]
            for i in first:
                for j in second:
                    if (left[which] != right[which] or i < j) and len(found) < limit:
                        found.append(Pair(int(min(i, j)), int(max(i, j)), float(angles[which])))
            if len(found) >= limit:
                break
        return tuple(found)

    @functools.cached_property
    def min_angle_deg(self) -> float:
        """Smallest angle between two class means, in degrees."""
        return float(self._pair_angles()[2].min())

    def closest_pairs(self, limit: int = 5) -> tuple[Pair, ...]:
        """The pairs with the smallest angles, closest first."""
        left, right, angles, _ = self._pair_angles()
        return self._pairs(np.argsort(angles, kind="stable")[: max(limit, 1)], left, right, angles, limit)

    def farthest_pairs(self, limit: int = 5) -> tuple[Pair, ...]:
        """The pairs with the largest angles, farthest first."""
        left, right, angles, _ = self._pair_angles()
        return self._pairs(np.argsort(-angles, kind="stable")[: max(limit, 1)], left, right, angles, limit)

    @functools.cached_property
    def coincident_classes(self) -> tuple[tuple[int, ...], ...]:
        """Sets of classes whose means coincide (cosine above 1 - 1e-9), as tuples of class indices."""
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        same = self.group_cosines > COINCIDENT_COSINE
        np.fill_diagonal(same, False)
        _, cluster = connected_components(coo_array(same), directed=False)
        inside = (np.diag(self.group_cosines) > COINCIDENT_COSINE) & (self.group_sizes > 1)
        found = []
        for label in np.unique(cluster):
            groups = np.flatnonzero(cluster == label)
            if groups.size > 1 or inside[groups[0]]:
                found.append(tuple(int(i) for i in np.flatnonzero(np.isin(self.index, groups))))
        return tuple(sorted(found))

    @functools.cached_property
    def num_near_coincident_pairs(self) -> int:
        """Number of pairs of classes at less than 1 degree."""
        _, _, angles, number = self._pair_angles()
        return int(number[angles < NEAR_ANGLE_DEG].sum())

    @functools.cached_property
    def near_coincident_pairs(self) -> tuple[tuple[int, int], ...]:
        """Pairs of class indices at less than 1 degree, closest first.

        The first 10000 of `num_near_coincident_pairs`.
        """
        left, right, angles, _ = self._pair_angles()
        near = np.flatnonzero(angles < NEAR_ANGLE_DEG)
        order = near[np.argsort(angles[near], kind="stable")]
        return tuple((pair.first, pair.second) for pair in self._pairs(order, left, right, angles, LISTED_PAIRS))

    def as_dict(self, full: bool | None = None) -> dict[str, Any]:
        """Plain values for JSON: `gram` up to 64 classes, or always with `full`.

        Above 1000 classes groups stand for classes.
        """
        from optgeom import io

        return io.as_dict(self, full)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to `.npz` or `.json` (versioned, nothing pickled); `Geometry.load` reads it back."""
        from optgeom import io

        io.save(self, path)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Geometry:
        """Read a geometry written by `save`; raises `InvalidInputError` for any other file."""
        from optgeom import io

        return io.load(path)

    def save_prototypes(self, path: str | os.PathLike[str], dim: int | None = None) -> None:
        """Write `prototypes(dim)` to `.npy`, `.npz`, `.csv`, `.pt` or `.safetensors`, with class names where the format has room."""
        from optgeom import io

        io.save_prototypes(self, path, dim)
