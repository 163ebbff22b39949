"""A certified optimum seen pair by pair: which pairs are asked about, and each one's program."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from optgeom import _checks
from optgeom._numerics import Array
from optgeom.collapse.near_optimal import Frame
from optgeom.errors import IncompatibleError, InvalidInputError
from optgeom.geometry import Geometry
from optgeom.programs.class_mean import ClassMeanProgram
from optgeom.solvers.newton import susceptibilities

ALL_PAIRS = 30  # classes up to which every pair gets an exact range
CHOSEN = 10  # pairs of each kind (closest, rarest, widest) beyond that
SCREENED = 1000  # classes up to which all pairs are screened to second order: two matrices of twice as many rows

Pairs = Sequence[tuple[str | int, str | int]]


class PairedOptimum:
    """A certified geometry as a program, with one frame for each pair of groups."""

    def __init__(self, geometry: Geometry) -> None:
        _checks.instance("geometry", geometry, Geometry, hint="og.solve gives one")
        if geometry.bracket is not None:
            raise IncompatibleError(
                "`geometry` must be an optimum without a limit of dimension; got a bracket (in fewer dimensions than "
                "classes - 1 an optimum is one of many, and has no ranges)"
            )
        if not geometry.certificate.certified:
            raise InvalidInputError("`geometry` must be certified; got one that is not (solve it again, more loosely)")
        self.geometry = geometry
        whole = ClassMeanProgram.build(geometry.classes, geometry.loss)
        if whole.sizes.size != geometry.group_sizes.size:
            whole = ClassMeanProgram.build(geometry.classes, geometry.loss, grouped=False)
        self.program = whole
        cosines = geometry.group_cosines.copy()
        collapsed = whole.risk_above_floor(np.ones_like(cosines))
        self.loss_range = collapsed - whole.risk_above_floor(cosines)
        weight = whole.rows.anchor_weight
        self.weight = weight[whole.groups.index] / float(np.sum(whole.sizes * weight))
        # Newton for a given cosine needs the rank-one dual: a log-sum, one dimension lost, a force between every two
        # classes.
        one_lost = geometry.num_classes > 2 and geometry.rank == geometry.num_classes - 1
        self.spread = one_lost and "majorizer" in whole.gives and bool(whole.forces().all())

    def frame(self, first: int, second: int) -> Frame:
        """The frame of a pair of classes."""
        program, source = self.program.with_apart((first, second))
        cosines = self.geometry.group_cosines[np.ix_(source, source)].copy()
        single = program.sizes == 1
        cosines[single, single] = 1.0
        index = program.groups.index
        pair = int(index[first]), int(index[second])
        return Frame(program, cosines, *pair, gap=self.geometry.certificate.gap, spread=self.spread)

    @functools.cached_property
    def susceptibilities(self) -> Array | None:
        """(C, C) second-order widths per root of slack, where they exist and are affordable."""
        geometry = self.geometry
        if not self.spread or geometry.num_classes > SCREENED:
            return None
        return susceptibilities(ClassMeanProgram.build(geometry.classes, geometry.loss, grouped=False), geometry.gram)

    def susceptibility(self, first: int, second: int) -> float | None:
        """That of one pair; None where it is not known."""
        known = self.susceptibilities
        value = None if known is None else float(known[first, second])
        return value if value is not None and value > 0 else None

    def pair_weight(self, first: int, second: int) -> float:
        """r_i + r_j: share of the risk that is about the images of the two classes; 1 where they have no anchors."""
        return float(self.weight[first] + self.weight[second]) or 1.0

    def representatives(self, pairs: Sequence[tuple[int, int]]) -> dict[tuple[int, int], tuple[int, int]]:
        """For each pair of classes, the first listed pair of the same two groups: equal classes have equal ranges."""
        index = self.program.groups.index
        first_of: dict[tuple[int, ...], tuple[int, int]] = {}
        stand_in = {}
        for pair in pairs:
            groups = tuple(sorted((int(index[pair[0]]), int(index[pair[1]]))))
            stand_in[pair] = first_of.setdefault(groups, pair)
        return stand_in


def choose_pairs(optimum: PairedOptimum, pairs: Pairs | None) -> list[tuple[int, int]]:
    """Pairs of class indices, each once, in order."""
    geometry = optimum.geometry
    if pairs is not None:
        indices = [_pair_of_classes(geometry, pair) for pair in pairs]
        if not indices:
            raise InvalidInputError(
                "`pairs` must hold at least one pair; got none (leave it out for a choice of pairs)"
            )
        return sorted(dict.fromkeys(indices))
    if geometry.num_classes <= ALL_PAIRS:
        return [(i, j) for i in range(geometry.num_classes) for j in range(i + 1, geometry.num_classes)]
    closest = [(pair.first, pair.second) for pair in geometry.closest_pairs(3 * CHOSEN)]
    rarest = np.argsort(optimum.weight, kind="stable")[: 2 * CHOSEN]
    rare = [(int(min(i, j)), int(max(i, j))) for place, i in enumerate(rarest) for j in rarest[place + 1 :]]
    rare.sort(key=lambda pair: optimum.pair_weight(*pair))
    widths = optimum.susceptibilities
    widest: list[tuple[int, int]] = []
    if widths is not None:
        left, right = np.triu_indices(geometry.num_classes, 1)
        order = np.argsort(-widths[left, right], kind="stable")[: 3 * CHOSEN]
        widest = [(int(left[which]), int(right[which])) for which in order]
    # The rarest classes are often the closest and the widest as well: each kind adds pairs that are not there yet.
    chosen: dict[tuple[int, int], None] = {}
    for candidates in (closest, rare, widest):
        fresh = [pair for pair in candidates if pair not in chosen]
        chosen.update(dict.fromkeys(fresh[:CHOSEN]))
    return sorted(chosen)


def _pair_of_classes(geometry: Geometry, pair: tuple[str | int, str | int]) -> tuple[int, int]:
    """Indices of a pair given by names or by indices."""
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise InvalidInputError(f"`pairs` must hold pairs of classes; got {pair!r} (two names, or two indices)")
    first, second = (_class_index(geometry, value) for value in pair)
    if first == second:
        raise InvalidInputError(f"`pairs` must hold pairs of different classes; got {pair!r}")
    return min(first, second), max(first, second)


def _class_index(geometry: Geometry, value: str | int) -> int:
    if isinstance(value, str):
        if value not in geometry.names:
            raise InvalidInputError(f"`pairs` must name classes of the geometry; got {value!r}")
        return geometry.names.index(value)
    return _checks.index("pairs", value, geometry.num_classes)
