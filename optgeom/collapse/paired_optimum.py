"""A certified optimum seen pair by pair: which pairs are asked about, and each one's program."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from optgeom import _checks
from optgeom._numerics import Array
from optgeom.collapse.least_risk import Frame
from optgeom.errors import IncompatibleError, InvalidInputError
from optgeom.programs.class_mean import ClassMeanProgram
from optgeom.result import GramResult
from optgeom.solvers.pinned import susceptibilities

ALL_PAIRS = 30  # classes up to which every pair gets an exact range
CHOSEN = 10  # pairs of each kind (closest, rarest, widest) beyond that
SCREENED = 1000  # classes up to which all pairs are screened to second order: two matrices of twice as many rows

Pairs = Sequence[tuple[str | int, str | int]]


class PairedOptimum:
    """A certified optimum as a program, with one frame for each pair of groups."""

    def __init__(self, result: GramResult) -> None:
        _checks.instance(
            "geometry", result, GramResult, "og.solve and og.realize give them", what="a Geometry or a Realization"
        )
        optimum = result.optimal_gram()
        program, cosines = optimum.program, optimum.cosines
        if isinstance(program, ClassMeanProgram):
            program.require_smooth("geometry", "near-optimal ranges")
        self.result, self.program, self.cosines, self.names = result, program, cosines, result.names
        collapsed = program.risk_above_floor(np.ones_like(cosines))
        self.loss_range = collapsed - program.risk_above_floor(cosines)
        if not self.loss_range > result.certificate.gap:
            raise IncompatibleError(
                "`geometry` must have a lower loss than the collapsed geometry, by which slacks are measured; got an "
                "optimum in which all points may coincide"
            )
        weight = program.anchor_weight
        self.weight = weight[program.index] / float(np.sum(program.sizes * weight))
        # Newton for a given cosine needs the rank-one dual: a log-sum, one dimension lost, a force between every two
        # classes.
        one_lost = self.num_points > 2 and result.certificate.rank == self.num_points - 1
        self.spread = (
            one_lost
            and isinstance(program, ClassMeanProgram)
            and "majorizer" in program.gives
            and bool(program.forces().all())
        )

    @property
    def num_points(self) -> int:
        """Classes, or samples."""
        return len(self.names)

    def cosine(self, first: int, second: int) -> float:
        """Cosine of two different points at the optimum."""
        index = self.program.index
        return float(self.cosines[index[first], index[second]])

    def frame(self, first: int, second: int) -> Frame:
        """The frame of a pair of points."""
        program, source = self.program.with_apart((first, second))
        cosines = self.cosines[np.ix_(source, source)].copy()
        single = program.sizes == 1
        cosines[single, single] = 1.0
        pair = int(program.index[first]), int(program.index[second])
        return Frame(program, cosines, *pair, gap=self.result.certificate.gap, spread=self.spread)

    @functools.cached_property
    def susceptibilities(self) -> Array | None:
        """(C, C) second-order widths per root of slack, where they exist and are affordable."""
        if not self.spread or self.num_points > SCREENED:
            return None
        apart, source = self.program.with_apart(tuple(range(self.num_points)))
        assert isinstance(apart, ClassMeanProgram)
        cosines = self.cosines[np.ix_(source, source)]
        np.fill_diagonal(cosines, 1.0)
        return susceptibilities(apart, cosines)[np.ix_(apart.index, apart.index)]

    def susceptibility(self, first: int, second: int) -> float | None:
        """That of one pair; None where it is not known."""
        known = self.susceptibilities
        value = None if known is None else float(known[first, second])
        return value if value is not None and value > 0 else None

    def pair_weight(self, first: int, second: int) -> float:
        """r_i + r_j: share of the risk that is about the images of the two classes; 1 where they have no anchors."""
        return float(self.weight[first] + self.weight[second]) or 1.0

    @property
    def pair_weights(self) -> Array:
        """(C, C) the same for all pairs."""
        total = self.weight[:, None] + self.weight[None, :]
        return np.where(total > 0, total, 1.0)

    def second_order_ends(self, slack: float, *, own: bool) -> tuple[Array, Array] | None:
        """Greatest and least cosine of every pair to second order, half-width sqrt(2 slack chi).

        Parameters
        ----------
        slack : float
            Share of the loss range.
        own : bool
            Per image of the two classes, or of all images.

        Returns
        -------
        tuple of (C, C), or None
            Up to +-1, nan where rounding leaves no susceptibility; None where there are none.
        """
        chi = self.susceptibilities
        if chi is None:
            return None
        room = slack * self.loss_range * (self.pair_weights if own else 1.0)
        with np.errstate(invalid="ignore"):
            width = np.sqrt(2 * room * chi)
        np.fill_diagonal(width, 0.0)
        cosines = self.cosines[np.ix_(self.program.index, self.program.index)]
        np.fill_diagonal(cosines, 1.0)
        return np.minimum(cosines + width, 1.0), np.maximum(cosines - width, -1.0)

    def representatives(self, pairs: Sequence[tuple[int, int]]) -> dict[tuple[int, int], tuple[int, int]]:
        """For each pair of classes, the first listed pair of the same two groups: equal classes have equal ranges."""
        index = self.program.index
        first_of: dict[tuple[int, ...], tuple[int, int]] = {}
        stand_in = {}
        for pair in pairs:
            groups = tuple(sorted((int(index[pair[0]]), int(index[pair[1]]))))
            stand_in[pair] = first_of.setdefault(groups, pair)
        return stand_in


def choose_pairs(optimum: PairedOptimum, pairs: Pairs | None) -> list[tuple[int, int]]:
    """Pairs of indices, each once, in order."""
    if pairs is not None:
        indices = [_pair_of_points(optimum, pair) for pair in pairs]
        if not indices:
            raise InvalidInputError(
                "`pairs` must hold at least one pair; got none (leave it out for a choice of pairs)"
            )
        return sorted(dict.fromkeys(indices))
    points = optimum.num_points
    if points <= ALL_PAIRS:
        return [(i, j) for i in range(points) for j in range(i + 1, points)]
    closest = [(pair.first, pair.second) for pair in optimum.result.closest_pairs(3 * CHOSEN)]
    if np.ptp(optimum.weight) > 0:
        rarest = np.argsort(optimum.weight, kind="stable")[: 2 * CHOSEN]
        extreme = [(int(min(i, j)), int(max(i, j))) for place, i in enumerate(rarest) for j in rarest[place + 1 :]]
        extreme.sort(key=lambda pair: optimum.pair_weight(*pair))
    else:
        extreme = [(pair.first, pair.second) for pair in optimum.result.farthest_pairs(2 * CHOSEN)]
    widths = optimum.susceptibilities
    widest: list[tuple[int, int]] = []
    if widths is not None:
        left, right = np.triu_indices(points, 1)
        order = np.argsort(-widths[left, right], kind="stable")[: 3 * CHOSEN]
        widest = [(int(left[which]), int(right[which])) for which in order]
    # The rarest classes are often the closest and the widest as well: each kind adds pairs that are not there yet.
    chosen: dict[tuple[int, int], None] = {}
    for candidates in (closest, extreme, widest):
        fresh = [pair for pair in candidates if pair not in chosen]
        chosen.update(dict.fromkeys(fresh[:CHOSEN]))
    return sorted(chosen)


def _pair_of_points(optimum: PairedOptimum, pair: tuple[str | int, str | int]) -> tuple[int, int]:
    """Indices of a pair given by names or by indices."""
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise InvalidInputError(f"`pairs` must hold pairs of classes; got {pair!r} (two names, or two indices)")
    first, second = (_index_of(optimum, value) for value in pair)
    if first == second:
        raise InvalidInputError(f"`pairs` must hold pairs of different classes; got {pair!r}")
    return min(first, second), max(first, second)


def _index_of(optimum: PairedOptimum, value: str | int) -> int:
    if isinstance(value, str):
        if value not in optimum.names:
            raise InvalidInputError(f"`pairs` must name classes of the geometry; got {value!r}")
        return optimum.names.index(value)
    return _checks.index("pairs", value, optimum.num_points)
