r"""ranges, slack_needed: what the loss determines about each angle, and how closely it must be minimised to fix them.

At the temperatures in use the risk is so flat that its optimum alone says little: a network with a tiny excess risk may
have quite other angles. `ranges` gives, for each pair of classes, all angles that geometries within a slack of the
optimum have; `slack_needed` turns the question round.

*Loss range*: collapsed minus optimal value, F(11') - F*. *Slack*: a share of it. *Own slack* of a pair: the same per
image of its two classes, slack x (r_i + r_j) with the anchor weights r of the two: a rare pair can merge at hardly any
cost to the mean risk, while for its own images it is the whole loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence, Set
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from optgeom import _checks
from optgeom.collapse.batch_noise import batch_deviation
from optgeom.collapse.near_optimal import End, Excess, extreme_cosine, least_excess
from optgeom.collapse.paired_optimum import PairedOptimum, Pairs, choose_pairs
from optgeom.geometry import Geometry
from optgeom.inputs import parallel
from optgeom.result import GramResult

AGREEMENT_DEG = 1e-3  # of the attained and the outer end of a certified range
REMEDY = "run again: nothing was kept"


@dataclass(frozen=True, kw_only=True)
class PairRange:
    """Angles that one pair of class means can have within the slack.

    Attributes
    ----------
    first, second : int
        Class indices.
    angle_deg : float
        At the optimum.
    closest_deg, farthest_deg : float
        No near-optimal geometry has a smaller, or larger, angle.
    closest_attained_deg, farthest_attained_deg : float
        Angles of near-optimal geometries that were computed; of second-order widths the optimum alone.
    certified : bool
        The two kinds of ends agree to 0.001 degrees.
    exact : bool
        False: second-order widths, not bounds.
    """

    first: int
    second: int
    angle_deg: float
    closest_deg: float
    farthest_deg: float
    closest_attained_deg: float
    farthest_attained_deg: float
    certified: bool
    exact: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class Ranges:
    """Near-optimal ranges of the angles of a geometry.

    Attributes
    ----------
    geometry : Geometry or Realization
    slack : float
        Share of the loss range.
    own : bool
        Whether the slack is per image of the two classes of each pair (otherwise of all images).
    tolerance_deg : float
        Half-width up to which an angle counts as determined.
    loss_range : float
        Collapsed minus optimal risk.
    pairs : tuple of PairRange
        Sorted by class indices.
    """

    geometry: GramResult
    slack: float
    own: bool
    tolerance_deg: float
    loss_range: float
    pairs: tuple[PairRange, ...]

    def __len__(self) -> int:
        return len(self.pairs)

    def __repr__(self) -> str:
        kind = "own" if self.own else "whole"
        certified = sum(pair.certified for pair in self.pairs)
        return f"Ranges(pairs={len(self.pairs)}, slack={self.slack:g} ({kind}), certified={certified})"

    @property
    def determined(self) -> tuple[PairRange, ...]:
        """Pairs whose angle cannot be off by more than the tolerance within the slack."""

        def width(pair: PairRange) -> float:
            return max(pair.angle_deg - pair.closest_deg, pair.farthest_deg - pair.angle_deg)

        return tuple(pair for pair in self.pairs if pair.exact and width(pair) <= self.tolerance_deg)

    def records(self) -> list[dict[str, Any]]:
        """One dictionary per pair, with class names; angles in degrees."""
        return _with_names(self.geometry, self.pairs)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {"slack": self.slack, "own": self.own, "loss_range": self.loss_range, "pairs": self.records()}


@dataclass(frozen=True, kw_only=True)
class PairSlack:
    """Slack at which the angle of one pair is free by the tolerance.

    Attributes
    ----------
    first, second : int
        Class indices.
    angle_deg : float
        At the optimum.
    whole, own : float
        Least excess of a geometry whose angle is off by the tolerance, as a share of the loss range: of all images, and
        per image of the two classes.
    whole_lower : float
        No geometry that is off by the tolerance comes closer than this.
    """

    first: int
    second: int
    angle_deg: float
    whole: float
    own: float
    whole_lower: float


@dataclass(frozen=True, kw_only=True, eq=False)
class SlackNeeded:
    """How closely the loss must be minimised to fix every angle to the tolerance.

    Attributes
    ----------
    geometry : Geometry
    tolerance_deg : float
    loss_range : float
    pairs : tuple of PairSlack
    float32_share : float
        Half a unit in the last place of the optimal risk in single precision, as a share of the loss range: a loss
        curve cannot show less. (Its gradient keeps relative precision.)
    batch_share : float or None
        Standard deviation of the mean loss of one batch at the optimum, as a share of the loss range; None for losses
        without batches of a known size.
    """

    geometry: GramResult
    tolerance_deg: float
    loss_range: float
    pairs: tuple[PairSlack, ...]
    float32_share: float
    batch_share: float | None

    @property
    def smallest(self) -> PairSlack:
        """The pair whose angle the loss determines least, in shares of the whole."""
        return min(self.pairs, key=lambda pair: pair.whole)

    def records(self) -> list[dict[str, Any]]:
        """One dictionary per pair, with class names."""
        return _with_names(self.geometry, self.pairs)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON: the smallest over the pairs."""
        return {
            "tolerance_deg": self.tolerance_deg,
            "whole": self.smallest.whole,
            "own": min(pair.own for pair in self.pairs),
            "float32_share": self.float32_share,
            "batch_share": self.batch_share,
        }


def ranges(
    geometry: GramResult,
    *,
    slack: float = 1e-3,
    own: bool = True,
    pairs: Pairs | None = None,
    tolerance_deg: float = 2.0,
    screen: bool = False,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Ranges:
    r"""Angles that near-optimal geometries have, for each pair of classes.

        least / greatest A_ij   over   { A positive semidefinite, diag A = 1, F(A) <= F* + s },
        s = slack (F(11') - F*) (r_i + r_j)   (own),      or   slack (F(11') - F*).

    Parameters
    ----------
    geometry : Geometry or Realization
        A certified optimum over all dimensions; a realization with cosine similarity, whose pairs are of samples.
    slack : float
        > 0: share of the loss range that a geometry may be above the optimum.
    own : bool
        Count the excess per image of the two classes of a pair (the default), or of all images.
    pairs : sequence of (name, name) or (index, index), optional
        Pairs with exact ranges. By default all of up to 30 classes; else the 10 closest, the 10 of the rarest classes,
        and the 10 that are widest to second order; of more samples the 10 closest and the 10 farthest.
    tolerance_deg : float
        A range narrower than this on both sides counts as determined (`Ranges.determined`).
    screen : bool
        Also every other pair, to second order (`exact` and `certified` are False): half-width sqrt(2 s chi) of the
        cosine, chi its derivative in a force between the two. Pairs without a chi are left out: all of them where the
        optimum loses more than one dimension, a loss has no log-sum, or there are over a thousand classes.
    workers : int
        Processes.
    progress : callable, optional
        Called with (pairs done, pairs in all).

    Returns
    -------
    Ranges

    Raises
    ------
    InvalidInputError
        A value outside its domain, an unknown class, or a geometry that is not certified. (Where it is less exact than
        the slack, ranges are 0 to 180 degrees and not certified.)
    IncompatibleError
        A geometry in fewer dimensions than its optimum needs, Euclidean similarity, or an optimum in which all points
        may coincide.

    Examples
    --------
    >>> import optgeom as og
    >>> geometry = og.solve(og.ClassDistribution.from_counts([5000, 1500, 400, 100]), og.SupCon(temperature=0.1))
    >>> pair = og.ranges(geometry, slack=1e-6, own=False, pairs=[(0, 1)]).pairs[0]
    >>> ends = f"{pair.closest_deg:.2f} to {pair.farthest_deg:.2f}"
    >>> print(f"{pair.angle_deg:.2f} degrees at the optimum, {ends} within the slack")
    114.05 degrees at the optimum, 107.25 to 123.30 within the slack
    """
    _checks.real("slack", slack, above=0.0, hint="a share of the loss range, such as 1e-3")
    _checks.real("tolerance_deg", tolerance_deg, above=0.0, hint="degrees, such as 2")
    workers = _checks.integer("workers", workers, at_least=1, hint="1 works in this process")
    optimum = PairedOptimum(geometry)
    chosen = choose_pairs(optimum, pairs)
    ends = _for_pairs(_Task(geometry, "range", slack, own), optimum, chosen, workers, progress)
    records = [_pair_range(optimum, pair, *ends[pair]) for pair in chosen]
    if screen:
        records += _screened(optimum, slack, own, set(chosen))
    return Ranges(
        geometry=geometry,
        slack=slack,
        own=own,
        tolerance_deg=tolerance_deg,
        loss_range=optimum.loss_range,
        pairs=tuple(sorted(records, key=lambda pair: (pair.first, pair.second))),
    )


def slack_needed(
    geometry: GramResult,
    *,
    tolerance_deg: float = 2.0,
    pairs: Pairs | None = None,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> SlackNeeded:
    r"""Slack at which angles are free by a tolerance: the least excess of a geometry whose angle is off by it.

        min F(A) - F*   over   A positive semidefinite, diag A = 1, A_ij = cos(angle -+ tolerance),

    the smaller of the two sides (one side where the other is beyond 0 or 180 degrees).

    Parameters
    ----------
    geometry, pairs, workers, progress
        As for `ranges`.
    tolerance_deg : float
        > 0.

    Returns
    -------
    SlackNeeded

    Raises
    ------
    InvalidInputError, IncompatibleError
        As for `ranges`.
    """
    _checks.real("tolerance_deg", tolerance_deg, above=0.0, hint="degrees, such as 2")
    workers = _checks.integer("workers", workers, at_least=1, hint="1 works in this process")
    optimum = PairedOptimum(geometry)
    chosen = choose_pairs(optimum, pairs)
    excesses = _for_pairs(_Task(geometry, "excess", tolerance_deg, True), optimum, chosen, workers, progress)
    records = tuple(_pair_slack(optimum, pair, excesses[pair]) for pair in chosen)
    resolution = float(np.spacing(np.float32(abs(optimum.program.risk(optimum.cosines))))) / 2
    deviation = batch_deviation(geometry) if isinstance(geometry, Geometry) else None
    return SlackNeeded(
        geometry=geometry,
        tolerance_deg=tolerance_deg,
        loss_range=optimum.loss_range,
        pairs=records,
        float32_share=resolution / optimum.loss_range,
        batch_share=None if deviation is None else deviation / optimum.loss_range,
    )


@dataclass(frozen=True, kw_only=True)
class PairExcess:
    """Least risk above the optimum of a geometry in which one pair has a given angle, as a share of the loss range.

    Attributes
    ----------
    first, second : int
        Class indices.
    angle_deg : float
        The angle that was asked for.
    whole, own : float
        Of all images, and per image of the two classes.
    exact : bool
        False: to second order.
    """

    first: int
    second: int
    angle_deg: float
    whole: float
    own: float
    exact: bool


def excess_of_angles(
    geometry: GramResult, *, pairs: Sequence[tuple[int, int]], angles_deg: Sequence[float], exact: int = 20
) -> tuple[PairExcess, ...]:
    r"""What it costs, at least, that a pair of classes has an angle that is not the optimal one.

        min F(A) - F*   over   A positive semidefinite, diag A = 1, A_ij = cos(angle).

    Parameters
    ----------
    geometry : Geometry
        A certified optimum, in any regime but "dimension-limited".
    pairs : sequence of (int, int)
        Class indices.
    angles_deg : sequence of float
        One angle per pair, 0 to 180 degrees.
    exact : int
        Pairs that are solved, those that cost most to second order first; the others are left to second order, and are
        nan where that does not exist.

    Returns
    -------
    tuple of PairExcess
        In the order of `pairs`.
    """
    optimum = PairedOptimum(geometry)

    def second_order(pair: tuple[int, int], angle: float) -> float | None:
        chi = optimum.susceptibility(*pair)
        moved = math.cos(math.radians(angle)) - optimum.cosine(*pair)
        return None if chi is None else moved**2 / (2 * chi)

    estimates = [second_order(pair, angle) for pair, angle in zip(pairs, angles_deg, strict=True)]
    own = [
        math.inf if estimate is None else estimate / optimum.pair_weight(*pair)
        for estimate, pair in zip(estimates, pairs, strict=True)
    ]
    solved = {which for place, which in enumerate(sorted(range(len(own)), key=lambda i: -own[i])) if place < exact}
    results = []
    for which, (pair, angle) in enumerate(zip(pairs, angles_deg, strict=True)):
        estimate = estimates[which]
        if which in solved:
            cosine = math.cos(math.radians(angle))
            estimate = least_excess(optimum.frame(*pair), cosine, optimum.susceptibility(*pair)).attained
        whole = (math.nan if estimate is None else estimate) / optimum.loss_range
        results.append(
            PairExcess(
                first=pair[0],
                second=pair[1],
                angle_deg=angle,
                whole=whole,
                own=whole / optimum.pair_weight(*pair),
                exact=which in solved,
            )
        )
    return tuple(results)


@dataclass(frozen=True)
class _Task:
    """What is asked about each pair; this is what workers get."""

    geometry: GramResult
    what: str  # "range" or "excess"
    value: float  # slack, or degrees
    own: bool


def _for_pairs(
    task: _Task,
    optimum: PairedOptimum,
    pairs: Sequence[tuple[int, int]],
    workers: int,
    progress: Callable[[int, int], None] | None,
) -> dict[tuple[int, int], Any]:
    """The answer for every pair, computed once for pairs of the same groups."""
    stand_in = optimum.representatives(pairs)
    todo = list(dict.fromkeys(stand_in.values()))
    answers: dict[tuple[int, int], Any] = {}
    if workers == 1:
        for pair in todo:
            answers[pair] = _answer(task, optimum, pair)
            if progress is not None:
                progress(len(answers), len(todo))
    else:
        units = [(task, todo[start::workers]) for start in range(workers) if todo[start::workers]]
        for part in parallel.run(_answers, units, workers, None, remedy=REMEDY):
            answers.update(part)
            if progress is not None:
                progress(len(answers), len(todo))
    return {pair: answers[stand_in[pair]] for pair in pairs}


def _answers(unit: tuple[_Task, list[tuple[int, int]]]) -> dict[tuple[int, int], Any]:
    task, pairs = unit
    optimum = PairedOptimum(task.geometry)
    return {pair: _answer(task, optimum, pair) for pair in pairs}


def _answer(task: _Task, optimum: PairedOptimum, pair: tuple[int, int]) -> Any:
    frame, chi = optimum.frame(*pair), optimum.susceptibility(*pair)
    if task.what == "range":
        slack = task.value * optimum.loss_range * (optimum.pair_weight(*pair) if task.own else 1.0)
        return extreme_cosine(frame, 1.0, slack, chi), extreme_cosine(frame, -1.0, slack, chi)
    angle = _angle(frame.cosine)
    sides = [side for side in (angle - task.value, angle + task.value) if 0.0 <= side <= 180.0]
    if not sides:
        return Excess(math.inf, math.inf)
    excesses = [least_excess(frame, math.cos(math.radians(side)), chi) for side in sides]
    return Excess(min(excess.attained for excess in excesses), min(excess.lower for excess in excesses))


def _with_names(geometry: GramResult, pairs: Sequence[PairRange | PairSlack]) -> list[dict[str, Any]]:
    names = geometry.names
    return [{**asdict(pair), "first": names[pair.first], "second": names[pair.second]} for pair in pairs]


def _angle(cosine: float) -> float:
    return math.degrees(math.acos(max(-1.0, min(1.0, cosine))))


def _pair_range(
    optimum: PairedOptimum, pair: tuple[int, int], closest: End, farthest: End, *, exact: bool = True
) -> PairRange:
    ends = [_angle(end) for end in (closest.outer, farthest.outer, closest.attained, farthest.attained)]
    agree = abs(ends[0] - ends[2]) <= AGREEMENT_DEG and abs(ends[1] - ends[3]) <= AGREEMENT_DEG
    return PairRange(
        first=pair[0],
        second=pair[1],
        angle_deg=_angle(optimum.cosine(*pair)),
        # Where the ends agree, rounding may put the bound a little inside of what is attained.
        closest_deg=min(ends[0], ends[2]) if agree else ends[0],
        farthest_deg=max(ends[1], ends[3]) if agree else ends[1],
        closest_attained_deg=ends[2],
        farthest_attained_deg=ends[3],
        certified=agree and exact,
        exact=exact,
    )


def _screened(optimum: PairedOptimum, slack: float, own: bool, solved: Set[tuple[int, int]]) -> list[PairRange]:
    """All pairs that are not solved, to second order."""
    ends = optimum.second_order_ends(slack, own=own)
    if ends is None:
        return []
    closest, farthest = ends
    points = optimum.num_points
    return [
        _pair_range(optimum, pair, *(End(optimum.cosine(*pair), end[pair]) for end in (closest, farthest)), exact=False)
        for pair in ((i, j) for i in range(points) for j in range(i + 1, points))
        if pair not in solved and math.isfinite(closest[pair])
    ]


def _pair_slack(optimum: PairedOptimum, pair: tuple[int, int], excess: Excess) -> PairSlack:
    whole = excess.attained / optimum.loss_range
    return PairSlack(
        first=pair[0],
        second=pair[1],
        angle_deg=_angle(optimum.cosine(*pair)),
        whole=whole,
        own=whole / optimum.pair_weight(*pair),
        whole_lower=excess.lower / optimum.loss_range,
    )
