r"""Wanted geometries, and whether any loss has them.

A loss whose classes all push each other apart has an optimum T with a dual Z (certificates.dual): Z positive
semidefinite, Z T = 0, and Z_ij > 0 for i != j, the force between two classes. Such a Z exists if and only if some
positive combination of the class means vanishes,

    T z = 0     with all z_i > 0,

for zz' is one, and the leading eigenvector of any other is positive (Perron) and in the null space of T, too. It exists
unless all class means lie on one side of a hyperplane and not all in it (Gordan's theorem): this is what a refusal
shows. With rank T = C - 1 the z is unique up to its length; otherwise a linear program finds one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.optimize

from optgeom import _checks
from optgeom._numerics import Array
from optgeom.errors import InvalidInputError
from optgeom.formatting import first_of
from optgeom.geometry import Geometry
from optgeom.inputs import files, tables
from optgeom.inputs.classes import ClassDistribution
from optgeom.io import FileMismatchError

SIMPLEX = "simplex"
NULL = 1e-9  # eigenvalues of a Gram matrix (mean 1) up to here are zero
ROUNDED = 1e-3  # entries of a Gram matrix may be rounded by this much before it counts as another matrix
ONE_SIDED = 1e-9  # smallest z relative to the mean of all that counts as positive


@dataclass(frozen=True, eq=False)
class Target:
    """A geometry that some loss has.

    Attributes
    ----------
    gram : (C, C) or None
        Inner products of class means, in class order; None for the regular simplex.
    balance : (C,) or None
        z > 0 with sum_i z_i v_i = 0, mean 1; None for the simplex, where it is constant.
    words : str
        What it is, for people.
    notes : tuple of str
        How it was changed.
    """

    gram: Array | None
    balance: Array | None
    words: str
    notes: tuple[str, ...] = ()

    def on_groups(self, index: npt.NDArray[np.intp]) -> tuple[Array, Array] | None:
        """Cosines (G, G) and balance (G,) of groups of classes; None where the target tells their classes apart."""
        number, groups = index.size, int(index.max()) + 1
        if self.gram is None or self.balance is None:
            cosines = np.full((groups, groups), -1.0 / (number - 1))
            alone = np.bincount(index, minlength=groups) == 1
            cosines[alone, alone] = 1.0
            return cosines, np.ones(groups)
        first, last = np.zeros(groups, dtype=np.intp), np.zeros(groups, dtype=np.intp)
        last[index] = np.arange(number)
        first[index[::-1]] = np.arange(number)[::-1]
        cosines = self.gram[np.ix_(first, first)].copy()
        cosines[np.diag_indices(groups)] = self.gram[first, last]
        balance = np.bincount(index, self.balance, groups) / np.bincount(index, minlength=groups)
        spread = cosines[np.ix_(index, index)]
        np.fill_diagonal(spread, 1.0)
        return (cosines, balance) if np.array_equal(spread, self.gram) else None

    def in_full(self, num_classes: int) -> Array:
        """(C, C) Gram matrix."""
        if self.gram is not None:
            return self.gram
        return (num_classes * np.eye(num_classes) - 1.0) / (num_classes - 1)


def resolve(target: Any, classes: ClassDistribution) -> Target:
    """The target in one of the forms that `prescribe` takes.

    Raises
    ------
    InvalidInputError
        Anything else, or a geometry that is the optimum of no loss.
    """
    if isinstance(target, str):
        if target != SIMPLEX:
            raise InvalidInputError(
                f"`target` must be 'simplex', a (C, C) Gram matrix, a Geometry or a tree of classes; got {target!r}"
            )
        return Target(None, None, "the regular simplex")
    if isinstance(target, Geometry):
        return of_gram(_in_order(target, classes), classes, f"the optimum of {target.loss.words()}")
    if isinstance(target, Mapping):
        return of_gram(tree_gram(target, classes), classes, "a tree of classes")
    return of_gram(target, classes, "a Gram matrix")


def of_gram(gram: Any, classes: ClassDistribution, words: str) -> Target:
    """A Gram matrix as a target, brought to unit diagonal and to the rank that its rounding hides."""
    try:
        given = np.array(gram, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"`target` must be 'simplex', a (C, C) Gram matrix, a Geometry or a tree of classes; "
            f"got {type(gram).__name__}"
        ) from error
    number = classes.num_classes
    if given.shape != (number, number):
        raise InvalidInputError(
            f"`target` must have shape (C, C) = ({number}, {number}) in class order; got {given.shape}"
        )
    if not np.all(np.isfinite(given)):
        row, column = np.argwhere(~np.isfinite(given))[0]
        raise InvalidInputError(f"`target` must be finite; got {given[row, column]} in row {row}, column {column}")
    unit = (given + given.T) / 2
    off = float(max(np.max(np.abs(unit - given)), np.max(np.abs(np.diag(unit) - 1.0))))
    if off > ROUNDED:
        raise InvalidInputError(
            f"`target` must be symmetric with ones on its diagonal: cosines of class means; got a matrix that is off "
            f"by {off:.2g} (divide by the lengths)"
        )
    np.fill_diagonal(unit, 1.0)
    unit = np.clip(unit, -1.0, 1.0)
    unit, moved = _reduced(unit, classes)
    notes = (f"the target was moved by {moved:.1e} to lose the dimension that its rounding hid",) if moved else ()
    return Target(unit, _balance(unit, classes), words, notes)


def _reduced(unit: Array, classes: ClassDistribution) -> tuple[Array, float]:
    """The nearest matrix without the eigenvalues that rounding has left, and how far an entry moved."""
    eigenvalues, vectors = np.linalg.eigh(unit)
    if eigenvalues[0] < -ROUNDED * unit.shape[0]:
        raise InvalidInputError(
            f"`target` must be positive semidefinite: cosines of class means; got an eigenvalue of {eigenvalues[0]:.3g}"
        )
    if abs(eigenvalues[0]) < NULL:
        return unit, 0.0
    # Rounding leaves every eigenvalue that was zero at about the same size.
    small = eigenvalues <= min(10 * abs(eigenvalues[0]), ROUNDED * unit.shape[0])
    if small.any():
        points = vectors[:, ~small] * np.sqrt(eigenvalues[~small])
        points /= np.linalg.norm(points, axis=1, keepdims=True)
        reduced = points @ points.T
        np.fill_diagonal(reduced, 1.0)
        moved = float(np.max(np.abs(reduced - unit)))
        if moved <= ROUNDED:
            return reduced, moved
    raise InvalidInputError(
        "`target` must have rank C - 1 or less: at the optimum of every loss a positive combination of the class "
        f"means vanishes; got full rank {classes.num_classes} with least eigenvalue {eigenvalues[0]:.3g} (subtract "
        "their common part, as `tree_gram` does)"
    )


def _balance(unit: Array, classes: ClassDistribution) -> Array:
    """z > 0 with T z = 0, or the refusal that shows why there is none."""
    eigenvalues, vectors = np.linalg.eigh(unit)
    null = vectors[:, eigenvalues < NULL]
    number = unit.shape[0]
    if null.shape[1] == 1:
        balance = null[:, 0] * np.sign(null[:, 0].sum() or 1.0)
    else:
        # maximise s  over  y, s  with  (N y)_i >= s,  sum_i (N y)_i = C.
        cost = np.zeros(null.shape[1] + 1)
        cost[-1] = -1.0
        below = np.column_stack([-null, np.ones(number)])
        total = np.append(null.sum(axis=0), 0.0)[None, :]
        free = [(None, None)] * cost.size
        result = scipy.optimize.linprog(
            cost, A_ub=below, b_ub=np.zeros(number), A_eq=total, b_eq=[number], bounds=free, method="highs"
        )
        # All means of the null space may cancel in the sum: then no combination is positive either.
        balance = null @ np.asarray(result.x)[:-1] if result.status == 0 else np.zeros(number)
        balance = null @ (null.T @ balance)
    if balance.min() > ONE_SIDED * max(balance.mean(), 0.0):
        return np.asarray(balance / balance.mean())
    raise InvalidInputError(f"`target` must be the optimum of some loss; {_one_sided(unit, classes)}")


def _one_sided(unit: Array, classes: ClassDistribution) -> str:
    """The direction on whose side all class means lie."""
    number = unit.shape[0]
    # maximise sum_j u_j  over  0 <= u_j <= 1, u_j <= (T y)_j: at its end u_j = 1 for every class that a direction from
    # which none points away can have on its side, for sums of such directions are such directions.
    result = scipy.optimize.linprog(
        np.concatenate([-np.ones(number), np.zeros(number)]),
        A_ub=np.hstack([np.eye(number), -unit]),
        b_ub=np.zeros(number),
        bounds=[(0, 1)] * number + [(None, None)] * number,
        method="highs",
    )
    inner = np.asarray(result.x)[:number] if result.status == 0 else np.zeros(number)
    beside = [name for name, value in zip(classes.names, inner, strict=True) if value > 0.5]
    return (
        "no positive combination of these class means vanishes, as it does at every optimum: there is a direction from "
        f"which none points away and which {first_of(beside)} {'points' if len(beside) == 1 else 'point'} to (move a "
        "class to the other side)"
    )


def _in_order(geometry: Geometry, classes: ClassDistribution) -> Array:
    """The Gram matrix of a geometry in the order of these classes."""
    if set(geometry.names) != set(classes.names):
        missing = [name for name in classes.names if name not in set(geometry.names)]
        came = f"none for {first_of(missing)}" if missing else f"{geometry.num_classes} classes"
        raise InvalidInputError(
            f"`target` must be a geometry of the {classes.num_classes} classes; got {came} (give the same names)"
        )
    position = {name: place for place, name in enumerate(geometry.names)}
    order = [position[name] for name in classes.names]
    return geometry.gram[np.ix_(order, order)]


def tree_gram(
    tree: Mapping[str, Any], classes: ClassDistribution, *, similarities: Sequence[float] | None = None
) -> Array:
    r"""Target in which classes of one branch of a tree are closer to each other.

    With the similarity K_ij of the smallest branch that holds both classes (1 for i = j, 0 for the whole tree),

        T = (K - c 11') / (1 - c),      c = 1 / (1' K^{-1} 1):

    the common part of all class means is taken away, as it is at every optimum. K is ultrametric, so that the balance
    z = K^{-1} 1 is positive and some loss has this optimum. Without branches T is the regular simplex.

    Parameters
    ----------
    tree : mapping
        Branches by name, each a mapping of branches or a list of class names:
        ``{"animal": ["cat", "dog"], "vehicle": {"road": ["car"], "air": ["plane"]}}``.
    classes : ClassDistribution
        Every class is in the tree once.
    similarities : sequence of float, optional
        K of each level below the whole tree, increasing in [0, 1). By default in equal steps: 1/2 with one level of
        branches, 1/3 and 2/3 with two.

    Returns
    -------
    (C, C)

    Raises
    ------
    InvalidInputError
        A class that is not in the tree, or twice; names that no class has; similarities outside their domain.

    References
    ----------
    Martinez, Michon, San Martin 1994, SIAM J. Matrix Anal. Appl. 15 (inverse of a strictly ultrametric matrix).

    Examples
    --------
    >>> import optgeom as og
    >>> classes = og.ClassDistribution.from_counts({"cat": 500, "dog": 90, "car": 300, "bus": 20})
    >>> gram = og.tree_gram({"animal": ["cat", "dog"], "vehicle": ["car", "bus"]}, classes)
    >>> print(gram[0].round(3))
    [ 1.   0.2 -0.6 -0.6]
    """
    paths = _paths(tree, classes)
    depth = max(len(path) for path in paths.values())
    if similarities is None:
        levels = np.arange(depth + 1) / (depth + 1)
    else:
        given = np.array([_checks.real("similarities", value, at_least=0.0) for value in similarities])
        levels = np.concatenate([[0.0], given])
        if given.size != depth or np.any(np.diff(levels) < 0) or levels[-1] >= 1:
            raise InvalidInputError(
                f"`similarities` must be {depth} numbers from 0 to below 1, one for each level of branches, none "
                f"smaller than the one before; got {given.tolist()}"
            )
    ordered = [paths[name] for name in classes.names]
    kernel = np.eye(classes.num_classes)
    for i, one in enumerate(ordered):
        for j, other in enumerate(ordered[:i]):
            shared = next((place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
            kernel[i, j] = kernel[j, i] = levels[min(len(one), len(other)) if shared is None else shared]
    common = 1.0 / float(np.linalg.solve(kernel, np.ones(classes.num_classes)).sum())
    gram = (kernel - common) / (1.0 - common)
    np.fill_diagonal(gram, 1.0)
    return gram


def _paths(tree: Mapping[str, Any], classes: ClassDistribution) -> dict[str, tuple[str, ...]]:
    """Branches above each class, from the top."""
    paths: dict[str, tuple[str, ...]] = {}
    for name, path in _leaves(tree, ()):
        if name in paths:
            raise InvalidInputError(f"`tree` must hold every class once; got {name!r} twice (remove one)")
        paths[name] = path
    known = set(classes.names)
    foreign = [name for name in paths if name not in known]
    if foreign:
        raise InvalidInputError(
            f"`tree` must name classes; got {foreign[0]!r} (the classes are {first_of(classes.names)})"
        )
    missing = [name for name in classes.names if name not in paths]
    if missing:
        raise InvalidInputError(f"`tree` must hold every class; got none for {first_of(missing)} (add it)")
    return paths


def _leaves(branch: Any, above: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    if isinstance(branch, Mapping):
        for name, part in branch.items():
            yield from _leaves(part, (*above, str(name)))
    elif isinstance(branch, (list, tuple)):
        for part in branch:
            if isinstance(part, (Mapping, list, tuple)):
                raise InvalidInputError(
                    f"`tree` must have names in its lists; got {type(part).__name__} within {'/'.join(above)!r} (give "
                    "branches as a mapping)"
                )
            yield str(part), above
    else:
        raise InvalidInputError(
            f"`tree` must be a mapping of branches to mappings or lists of class names; got {type(branch).__name__} at "
            f"{'/'.join(above)!r}"
        )


def read_target(path: str | os.PathLike[str], classes: ClassDistribution) -> Target:
    """A target from a file: a saved geometry, a Gram matrix as .npy, .npz or .csv, or a tree of classes as .json.

    Raises
    ------
    InvalidInputError
        Any other file, or a target that `prescribe` refuses.
    """
    suffix = Path(path).suffix.lower()
    if suffix == ".json":
        content = tables.load_json(path, tables.read_text(path, "target"))
        if isinstance(content, Mapping) and "format" not in content:
            return _named(path, content, classes)
        return _named(path, Geometry.load(path), classes)
    if suffix == ".csv":
        rows = tables.read_rows(path, tables.read_text(path, "target"))
        try:
            return _named(path, np.array([[float(cell) for cell in cells] for _, cells in rows]), classes)
        except ValueError as error:
            raise InvalidInputError(f"{path}: a target must be C rows of C numbers; got {error}") from error
    if suffix not in (".npy", ".npz"):
        raise InvalidInputError(f"a target is read from .npy, .npz, .csv or .json; got {str(path)!r}")
    try:
        with files.open_regular(path) as file, files.opened(file) as loaded:
            if isinstance(loaded, np.ndarray):
                return _named(path, loaded, classes)
            saved = "document" in loaded
            if not saved:
                if "gram" not in loaded:
                    arrays = ", ".join(loaded) or "nothing"
                    raise InvalidInputError(f"{path}: a target must be the array `gram`; got {arrays} (rename it)")
                return _named(path, loaded["gram"], classes)
    except OSError as error:
        raise InvalidInputError(f"cannot read the target {path}: {error.strerror or error}") from error
    except (FileMismatchError, *files.DAMAGE) as error:
        raise InvalidInputError(f"cannot read the target {path}: {files.reason(error)} (save it again)") from error
    return _named(path, Geometry.load(path), classes)


def _named(path: object, target: Any, classes: ClassDistribution) -> Target:
    try:
        return resolve(target, classes)
    except InvalidInputError as error:
        raise InvalidInputError(f"{path}: {error}") from error
