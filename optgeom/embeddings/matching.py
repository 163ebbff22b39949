r"""Which class of the embeddings is which class of the geometry: by name, or, on request, by shape.

By name: equal texts; what is then left over, by whole numbers ("7", "07" and "7.0" are one number), where that is
unambiguous.

By shape: the permutation p that makes sum_{cd} (A_cd - A*_{p(c)p(d)})^2 small, with A the cosines between the class
means of the embeddings. This quadratic assignment problem is hard, so the answer is the best of several descents, not a
certified optimum. Starts: classes in the order given, classes by frequency, the assignment of sorted rows of A to
sorted rows of A* (a permutation does not change them), and the relaxation of Vogelstein et al. Each is improved by
turning the class means onto the prototypes (orthogonal Procrustes) and assigning them to the nearest ones (the
Hungarian method), in turns, and then by exchanging pairs. Classes that are interchangeable in the geometry (equal
proportions) may be matched either way: their order means nothing. The intervals know nothing of the choice among
permutations, which favours agreement; hence "after matching" in the verdict.

References
----------
Kuhn 1955, The Hungarian method for the assignment problem. Vogelstein et al. 2015, Fast
approximate quadratic programming for graph matching, PLOS ONE 10(4).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from optgeom._numerics import Array
from optgeom.errors import InvalidInputError
from optgeom.formatting import first_of
from optgeom.geometry import Geometry
from optgeom.prototypes import align, from_gram

_RELAXED_CLASSES = 300  # the relaxation and exchanges cost C^3 per step
_TURNS = 50
_GRID = 33  # points at which sorted rows of different length are compared
_NUMBER = re.compile(r"\s*([+-]?[0-9]{1,100})(?:\.0*)?\s*")


@dataclass(frozen=True, eq=False)
class Matching:
    """Classes that both have, in the order of the geometry.

    Attributes
    ----------
    learned, optimal : (K,) intp
        Class index in the embeddings and in the geometry.
    extra : tuple of int
        Classes of the embeddings that the geometry does not have.
    missing : tuple of int
        Classes of the geometry without embeddings.
    renamed : dict of str to str
        Name in the embeddings -> name in the geometry, where matched by shape.
    """

    learned: npt.NDArray[np.intp]
    optimal: npt.NDArray[np.intp]
    extra: tuple[int, ...] = ()
    missing: tuple[int, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)


def match_names(learned: Sequence[str], optimal: Sequence[str], *, ignore_extra: bool = False) -> Matching:
    """Match classes by name.

    Parameters
    ----------
    learned, optimal : sequence of str
        Class names of the embeddings and of the geometry, each all different.
    ignore_extra : bool
        Leave out classes that only the embeddings have, instead of refusing them.

    Raises
    ------
    InvalidInputError
        Classes that only the embeddings have, or fewer than two classes in common.
    """
    place = {name: k for k, name in enumerate(optimal)}
    partner = {c: place[name] for c, name in enumerate(learned) if name in place}
    taken = set(partner.values())
    mine = _by_number((c, name) for c, name in enumerate(learned) if c not in partner)
    theirs = _by_number((k, name) for k, name in enumerate(optimal) if k not in taken)
    partner |= {mine[number]: theirs[number] for number in mine.keys() & theirs.keys()}
    extra = tuple(c for c in range(len(learned)) if c not in partner)
    if extra and not ignore_extra:
        named = first_of(learned[c] for c in extra)
        raise InvalidInputError(
            f"`labels` must be classes of the geometry, {first_of(optimal)}; "
            f"got {len(extra)} other{'' if len(extra) == 1 else 's'}: {named} "
            f"({_remedy([learned[c] for c in extra], optimal)}, "
            "or leave these out: ignore_labels, ignore_extra; --ignore-label, --ignore-extra)"
        )
    if len(partner) < 2:
        raise InvalidInputError(
            f"`labels` must have two classes of the geometry at least; got {len(partner)} of {first_of(optimal)} "
            "(no angle to compare)"
        )
    order = sorted(partner, key=lambda c: partner[c])
    taken = set(partner.values())
    missing = tuple(k for k in range(len(optimal)) if k not in taken)
    return Matching(
        np.array(order, dtype=np.intp), np.array([partner[c] for c in order], dtype=np.intp), extra, missing
    )


def match_shapes(names: Sequence[str], counts: npt.NDArray[np.int64], means: Array, geometry: Geometry) -> Matching:
    """Match classes by the shape that they form.

    Parameters
    ----------
    names, counts : length C
        Of the classes of the embeddings.
    means : (C, d)
        Class means, not zero.
    geometry : Geometry
        Of C classes or more; those without a match are missing.

    Raises
    ------
    InvalidInputError
        More classes than the geometry has, or fewer than three.
    """
    size, most = len(names), geometry.num_classes
    if size > most:
        raise InvalidInputError(
            f"`match` 'hungarian' needs a partner for every class; got {size} classes for the {most} of the geometry "
            "(ignore the labels that it does not have)"
        )
    if size < 3:
        raise InvalidInputError(
            f"`match` 'hungarian' needs three classes at least; got {size} (the shape of two says nothing)"
        )
    lengths = np.linalg.norm(means, axis=1)
    if lengths.min() < 1e-12:
        raise InvalidInputError(
            f"`match` 'hungarian' needs class means with a direction; that of {names[int(lengths.argmin())]} is zero"
        )
    rows = means / lengths[:, None]
    cosines, target = rows @ rows.T, np.asarray(geometry.gram)
    vertices = from_gram(target)
    best: npt.NDArray[np.intp] | None = None
    least = np.inf
    for start in _starts(cosines, target, counts, geometry.proportions):
        candidate = _exchanged(_turned(rows, vertices, start), cosines, target)
        missed = float(np.sum((cosines - target[np.ix_(candidate, candidate)]) ** 2))
        # A later start must be better by more than rounding, so that the order given stays where it is as good.
        if missed < least - 1e-9 * max(1.0, least if np.isfinite(least) else 1.0):
            best, least = candidate, missed
    assert best is not None
    order = np.argsort(best)
    taken = set(best.tolist())
    renamed = {names[c]: geometry.names[best[c]] for c in range(size)}
    return Matching(order, best[order], (), tuple(k for k in range(most) if k not in taken), renamed)


def _remedy(extra: Sequence[str], optimal: Sequence[str]) -> str:
    """How to give both the same names."""
    mine, theirs = all(map(_NUMBER.fullmatch, extra)), all(map(_NUMBER.fullmatch, optimal))
    if mine and not any(map(_NUMBER.fullmatch, optimal)):
        return "the labels are numbers: give the training counts as a list in the order of these numbers"
    if theirs and not mine:
        return "the labels are names: give the training counts by name, as {name: count}"
    return "name the classes of the geometry as the labels do"


def _by_number(names: Iterator[tuple[int, str]]) -> dict[int, int]:
    """Class index by the whole number that its name is; numbers that two names share are left out."""
    indices_of: dict[int, list[int]] = {}
    for index, name in names:
        number = _NUMBER.fullmatch(name)
        if number:
            indices_of.setdefault(int(number[1]), []).append(index)
    return {number: indices[0] for number, indices in indices_of.items() if len(indices) == 1}


def _starts(
    cosines: Array, target: Array, counts: npt.NDArray[np.int64], proportions: Array
) -> Iterator[npt.NDArray[np.intp]]:
    from scipy.optimize import linear_sum_assignment, quadratic_assignment
    from scipy.spatial.distance import cdist

    size, most = len(cosines), len(target)
    yield np.arange(size)
    frequent = np.empty(size, dtype=np.intp)
    frequent[np.argsort(-counts, kind="stable")] = np.argsort(-proportions, kind="stable")[:size]
    yield frequent
    grid = np.linspace(0.0, 1.0, _GRID)
    shapes = [
        np.stack([np.quantile(np.delete(row, c), grid) for c, row in enumerate(matrix)]) for matrix in (cosines, target)
    ]
    yield np.asarray(linear_sum_assignment(cdist(shapes[0], shapes[1], "sqeuclidean"))[1], dtype=np.intp)
    if most <= _RELAXED_CLASSES:
        padded = np.zeros((most, most))
        padded[:size, :size] = cosines
        # Its generator only breaks ties; without one it would look at the global state of numpy.
        assigned = quadratic_assignment(padded, target, options={"maximize": True, "rng": np.random.default_rng(0)})
        yield np.asarray(assigned.col_ind[:size], dtype=np.intp)


def _turned(rows: Array, vertices: Array, start: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """Turn the rows onto their vertices and assign each to the nearest, until nothing changes."""
    from scipy.optimize import linear_sum_assignment

    vertex_of = start
    padded = np.pad(vertices, ((0, 0), (0, max(0, rows.shape[1] - vertices.shape[1]))))
    for _ in range(_TURNS):
        turned = align(rows, vertices[vertex_of])
        assigned = np.asarray(linear_sum_assignment(turned @ padded.T, maximize=True)[1], dtype=np.intp)
        # Among interchangeable classes the assignment is arbitrary: it must gain something.
        if np.sum(turned * padded[assigned]) <= np.sum(turned * padded[vertex_of]) + 1e-9:
            return vertex_of
        vertex_of = assigned
    return vertex_of


def _exchanged(start: npt.NDArray[np.intp], cosines: Array, target: Array) -> npt.NDArray[np.intp]:
    """Exchange the two classes that gain most, or give a class a free vertex, until nothing gains.

    With A the cosines and B = A*[p, p], exchanging r and s changes sum_{cd} A_cd B_cd by 2 sum_{k != r, s} (A_rk -
    A_sk)(B_sk - B_rk); moving r from p(r) to k changes sum_{cd} (A_cd - B_cd)^2 by 2 sum_{c != r} [(A_rc - A*_k,p(c))^2
    - (A_rc - B_rc)^2].
    """
    vertex_of = start.copy()
    if len(target) > _RELAXED_CLASSES:
        return vertex_of
    for _ in range(4 * len(target)):
        assigned = target[np.ix_(vertex_of, vertex_of)]
        product = cosines @ assigned
        own = np.diag(product)
        gain = product + product.T - own[:, None] - own[None, :] - 2 * (1 - cosines) * (assigned - 1)
        r, s = np.unravel_index(int(np.argmax(gain)), gain.shape)
        if gain[r, s] > 1e-9:
            vertex_of[[r, s]] = vertex_of[[s, r]]
            continue
        free = np.setdiff1d(np.arange(len(target)), vertex_of)
        if not free.size:
            return vertex_of
        other = target[np.ix_(free, vertex_of)]
        apart = np.sum(other**2, axis=1)[None, :] - 2 * cosines @ other.T - (1 - other.T) ** 2
        less = np.sum(assigned**2, axis=1) - 2 * own
        r, k = np.unravel_index(int(np.argmin(apart - less[:, None])), apart.shape)
        if apart[r, k] >= less[r] - 1e-9:
            return vertex_of
        vertex_of[r] = free[k]
    return vertex_of
