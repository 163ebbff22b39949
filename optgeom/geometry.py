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
from optgeom.certificates import Certificate
from optgeom.certificates.few_dimensions import least_risk
from optgeom.errors import IncompatibleError, InvalidInputError
from optgeom.formatting import to_json
from optgeom.geometry_file import bind, check_sound, leave_unverified, read_classes, verify, verify_bracket
from optgeom.inputs.classes import ClassDistribution
from optgeom.io import FileKind, plain_certificate, save_table
from optgeom.losses.base import Loss
from optgeom.programs import group_matrix
from optgeom.result import Result, SolverRun

COINCIDENT_COSINE = 1 - 1e-9
NEAR_ANGLE_DEG = 1.0
LARGEST_GRAM = 20000  # classes up to which the C x C matrix is written down (3 GiB)
LISTED_PAIRS = 10000
LISTED_CLASSES = 1000  # classes up to which JSON lists every one; beyond, groups stand for classes
GRAM_CLASSES = 64  # classes up to which JSON has the matrix
FILE = FileKind("optgeom-geometry", "a geometry", "prototypes alone: save_prototypes")


@dataclass(frozen=True)
class Pair:
    """Two classes and the angle between their means, in degrees."""

    first: int
    second: int
    angle_deg: float


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Geometry(Result):
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
    certificate : Certificate
    loss : Loss
        From a file without its code (your own psi): a description only.
    solver : SolverRun
    dim : int or None
        Embedding dimension that was asked for.
    bracket : (float, float) or None
        With `dim` below the rank of the unrestricted optimum: a lower bound of the risk and the best risk found, not
        certified to meet.
    relaxed : Geometry or None
        With a bracket: the unrestricted optimum, whose certificate is the lower end.
    """

    classes: ClassDistribution
    index: npt.NDArray[np.intp]
    group_sizes: npt.NDArray[np.int64]
    group_cosines: Array
    risk: float
    certificate: Certificate
    loss: Loss
    solver: SolverRun
    dim: int | None = None
    bracket: tuple[float, float] | None = None
    notes: tuple[str, ...] = field(default=())
    relaxed: Geometry | None = None
    _required_rank: int | None = None

    def __post_init__(self) -> None:
        freeze(self)

    def __reduce__(self) -> tuple[Any, ...]:
        # A pickled array comes back writable: rebuilding freezes it again.
        return _geometry, ({part.name: getattr(self, part.name) for part in fields(self)},)

    def __repr__(self) -> str:
        state = "certified" if self.certificate.certified else "NOT certified"
        return (
            f"Geometry(num_classes={self.num_classes}, loss={self.loss.name!r}, risk={self.risk:.12g}, "
            f"rank={self.rank}, regime={self.regime!r}, {state}, gap={self.certificate.gap:.1e})"
        )

    @property
    def rank(self) -> int:
        """Eigenvalues of the Gram matrix above 1e-7 (their mean is 1)."""
        return self.certificate.rank

    @property
    def required_rank(self) -> int | None:
        """With a bracket: the rank, hence the embedding dimension, of the unrestricted optimum."""
        return self._required_rank if self.relaxed is None else self.relaxed.rank

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
        """Pairs of groups (g <= h) with a pair of classes between them: groups, angles, numbers of pairs of classes."""
        left, right = np.triu_indices(self.group_sizes.size)
        sizes = self.group_sizes.astype(np.float64)
        number = np.where(left == right, sizes[left] * (sizes[left] - 1) / 2, sizes[left] * sizes[right])
        some = number > 0
        left, right = left[some], right[some]
        cosines = self.group_cosines[left, right]
        # arccos turns one unit of rounding below 1 into a microdegree; coincident classes are at 0.
        angles = np.where(cosines > COINCIDENT_COSINE, 0.0, np.degrees(arccos_clipped(cosines)))
        return left, right, angles, number[some]

    def _pairs(self, order: npt.NDArray[np.intp], left: Any, right: Any, angles: Array, limit: int) -> tuple[Pair, ...]:
        pairs: list[Pair] = []
        for which in order:
            first = np.flatnonzero(self.index == left[which])[: limit + 1]
            second = np.flatnonzero(self.index == right[which])[: limit + 1]
            for i in first:
                for j in second:
                    if (left[which] != right[which] or i < j) and len(pairs) < limit:
                        pairs.append(Pair(int(min(i, j)), int(max(i, j)), float(angles[which])))
            if len(pairs) >= limit:
                break
        return tuple(pairs)

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
        coincident = []
        for label in np.unique(cluster):
            groups = np.flatnonzero(cluster == label)
            if groups.size > 1 or inside[groups[0]]:
                coincident.append(tuple(int(i) for i in np.flatnonzero(np.isin(self.index, groups))))
        return tuple(sorted(coincident))

    @functools.cached_property
    def num_near_coincident_pairs(self) -> int:
        """Number of pairs of classes at less than 1 degree."""
        _, _, angles, number = self._pair_angles()
        return int(number[angles < NEAR_ANGLE_DEG].sum())

    @functools.cached_property
    def near_coincident_pairs(self) -> tuple[tuple[int, int], ...]:
        """Pairs of class indices at less than 1 degree, closest first: the first 10000 of them."""
        left, right, angles, _ = self._pair_angles()
        near = np.flatnonzero(angles < NEAR_ANGLE_DEG)
        order = near[np.argsort(angles[near], kind="stable")]
        return tuple((pair.first, pair.second) for pair in self._pairs(order, left, right, angles, LISTED_PAIRS))

    def as_dict(self, full: bool | None = None) -> dict[str, Any]:
        """Plain values for JSON.

        Parameters
        ----------
        full : bool, optional
            True for every class and the matrix `gram`, however many classes there are. By default `gram` is there up to
            64 classes, and above 1000 classes groups stand for classes.
        """
        listed = self.num_classes <= LISTED_CLASSES or bool(full)
        values: dict[str, Any] = {
            "num_classes": self.num_classes,
            "names": list(self.names) if listed else None,
            "loss": self.loss.to_dict(),
            "risk": self.risk,
            "rank": self.rank,
            "regime": self.regime,
            "min_angle_deg": self.min_angle_deg,
            "coincident_classes": [list(classes) for classes in self.coincident_classes],
            "num_near_coincident_pairs": self.num_near_coincident_pairs,
            "near_coincident_pairs": [list(pair) for pair in self.near_coincident_pairs],
            "certificate": self.certificate.as_dict(),
            "solver": self.solver.as_dict(),
            "notes": [*self.classes.notes, *self.notes],
        }
        if listed:
            values["proportions"] = self.proportions.tolist()
        else:
            values["groups"] = [
                {
                    "size": int(size),
                    "proportion": float(self.proportions[np.argmax(self.index == group)]),
                    "within_cosine": float(self.group_cosines[group, group]) if size > 1 else None,
                }
                for group, size in enumerate(self.group_sizes)
            ]
        if full or (full is None and self.num_classes <= GRAM_CLASSES):
            values["gram"] = self.gram.tolist()
        if self.dim is not None:
            values["dim"] = self.dim
        if self.bracket is not None:
            values["bracket"] = to_json(self.bracket)
            values["required_rank"] = self.required_rank
        return values

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to `.npz` or `.json` (versioned, nothing pickled); `Geometry.load` reads it back."""
        document: dict[str, Any] = {
            "names": None if self.classes.given_names is None else list(self.classes.given_names),
            "dropped": list(self.classes.dropped),
            "class_notes": list(self.classes.notes),
            "sampler_power": self.classes.sampler_power,
            "loss": self.loss.to_dict(),
            "dim": self.dim,
            "notes": list(self.notes),
            **_stored(self),
        }
        groups = self.classes.groups
        arrays: dict[str, npt.NDArray[Any]] = {
            "index": self.index,
            "group_sizes": self.group_sizes,
            "group_cosines": self.group_cosines,
            "class_index": groups.index,
            "class_sizes": groups.sizes,
            "class_proportions": groups.proportions,
            "kept": self.classes.kept,
        }
        if groups.counts is not None:
            arrays["class_counts"] = groups.counts
        if self.relaxed is not None:
            document["relaxed"] = _stored(self.relaxed)
            arrays["relaxed_index"] = self.relaxed.index
            arrays["relaxed_cosines"] = self.relaxed.group_cosines
        FILE.write(path, document, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str], loss: Loss | None = None) -> Geometry:
        """Read a geometry written by `save`, and compute its certificate anew.

        Parameters
        ----------
        path : str or path-like
        loss : Loss, optional
            The loss of the geometry. Only your own psi needs it, of which a file keeps a description: without it the
            certificate is not certified, and its reason begins with "unverified".

        Raises
        ------
        InvalidInputError
            Any other file, a damaged one, or one whose figures are not those of its arrays.
        """
        return FILE.read(path, lambda document, arrays: Geometry(**_rebuild(document, arrays, loss)))

    def save_prototypes(self, path: str | os.PathLike[str], dim: int | None = None) -> None:
        """Write `prototypes(dim)` to `.npy`, `.npz`, `.csv`, `.pt` or `.safetensors`, with class names if possible."""
        save_table(path, lambda: self.prototypes(dim), self.names)


def _geometry(parts: dict[str, Any]) -> Geometry:
    return Geometry(**parts)


# --- files


def _stored(geometry: Geometry) -> dict[str, Any]:
    """What a file says of a geometry, to be compared with its arrays."""
    return {
        "risk": geometry.risk,
        "rank": geometry.rank,
        "certificate": plain_certificate(geometry.certificate),
        "solver": geometry.solver.as_dict(),
        "bracket": geometry.bracket,
        "required_rank": geometry.required_rank,
    }


def _rebuild(document: dict[str, Any], arrays: dict[str, Any], loss: Loss | None) -> dict[str, Any]:
    """Parts of the geometry in a file, with figures that were computed anew."""
    check_sound(document, arrays)
    classes = read_classes(document, arrays)
    described = Loss.from_dict(document["loss"])
    if loss is not None and not _describes(described, loss):
        raise InvalidInputError(f"`loss` must be that of the geometry: {described.words()}; got {loss.words()}")
    parts = {
        "classes": classes,
        "index": arrays["index"].astype(np.intp),
        "group_sizes": arrays["group_sizes"].astype(np.int64),
        "group_cosines": arrays["group_cosines"].astype(np.float64),
        "loss": described if loss is None else loss,
        "dim": document["dim"],
        "notes": tuple(document["notes"]),
        "solver": SolverRun(**document["solver"]),
        "_required_rank": document["required_rank"],
    }
    try:
        program = bind(classes, parts["loss"], parts["index"])
    except IncompatibleError as error:
        return {**parts, **leave_unverified(document, f"unverified: {error}")}
    if document["bracket"] is None:
        return {**parts, **verify(program, parts["group_cosines"], document)}
    if "relaxed" not in document:  # 0.1.0
        return {**parts, **verify_bracket(program, parts["group_cosines"], document, None)}
    parts["_required_rank"] = None
    free = bind(classes, parts["loss"], arrays["relaxed_index"])
    cosines = arrays["relaxed_cosines"].astype(np.float64)
    optimum = {
        "index": free.groups.index,
        "group_sizes": free.sizes,
        "group_cosines": cosines,
        "solver": SolverRun(**document["relaxed"]["solver"]),
        **verify(free, cosines, document["relaxed"]),
    }
    relaxed = Geometry(**{**parts, **optimum})
    lower = max(relaxed.certificate.lower_bound, least_risk(classes, parts["loss"], document["dim"]))
    figures = verify_bracket(program, parts["group_cosines"], document, lower)
    return {**parts, **figures, "relaxed": relaxed}


def _describes(described: Loss, loss: Loss) -> bool:
    """Whether a loss has every parameter of a description; those of 0.1.0 have fewer."""
    parameters = loss.to_dict()
    return all(key in parameters and parameters[key] == value for key, value in described.to_dict().items())
