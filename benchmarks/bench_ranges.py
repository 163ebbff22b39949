"""Near-optimal ranges of angles: time to certified ends, for long-tailed CIFAR and SupCon.

A slack of a thousandth per image of the two classes of a pair, the default of `og.ranges`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import _rivals
import _tables
import numpy as np
from _harness import OURS, Row, alternate, attempt, failure
from _suite import Effort, Table

import optgeom as og
from optgeom.collapse.least_risk import Path, Point
from optgeom.collapse.paired_optimum import PairedOptimum
from optgeom.collapse.ranges import AGREEMENT_DEG

SLACK = 1e-3
SIGNS = (1.0, -1.0)  # towards each other, apart
REPEATS = 5
FEW, MANY, SMALL = "cifar10-lt:100", "cifar100-lt:100", "zipf:4:1"
ALL, CHOSEN, SCREENED = "all pairs", "20 distinct pairs", "screening of all pairs"
MOST = {ALL: 1.0, CHOSEN: 10.0, SCREENED: 2.0}  # seconds
RIVALS: dict[str, dict[str, float]] = {
    _rivals.NAMES["CLARABEL"]: {},
    "the same, tolerances 1e-12": {"tol_gap_abs": 1e-12, "tol_gap_rel": 1e-12, "tol_feas": 1e-12},
}

Problem = tuple[str, str, float, float]  # profile, what is asked, temperature, batch size


def solved(profile: str, temperature: float, batch_size: float) -> og.Geometry:
    return og.solve(og.ClassDistribution.from_profile(profile), og.SupCon(temperature, batch_size=batch_size))


def case(profile: str, what: str, temperature: float, batch_size: float) -> str:
    size = "large batches" if math.isinf(batch_size) else f"batches of {batch_size:.0f}"
    return f"{profile}, {what}, T = {temperature:g}, {size}"


def distinct_pairs(geometry: og.Geometry, number: int) -> list[tuple[int, int]]:
    """Pairs of different group pairs from the closest to the farthest: equal ones would be computed once."""
    optimum, classes = PairedOptimum(geometry), geometry.num_classes
    every = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    distinct = sorted(dict.fromkeys(optimum.representatives(every).values()), key=lambda pair: -optimum.cosine(*pair))
    places = np.linspace(0, len(distinct) - 1, min(number, len(distinct))).round().astype(int)
    return [distinct[place] for place in places]


def question(what: str, geometry: og.Geometry) -> Callable[[], og.Ranges]:
    """The call that is timed; screening has one exact pair."""
    if what == ALL:
        return partial(og.ranges, geometry, slack=SLACK)
    pairs = distinct_pairs(geometry, 20 if what == CHOSEN else 1)
    return partial(og.ranges, geometry, slack=SLACK, pairs=pairs, screen=what == SCREENED)


def of_times(effort: Effort) -> Iterator[Row]:
    held = ((FEW, ALL), (MANY, CHOSEN), (MANY, SCREENED))
    laws = [(temperature, batch_size) for temperature in (0.1, 0.5) for batch_size in (math.inf, 256)]
    full: list[Problem] = [(profile, what, *law) for profile, what in held for law in laws]
    small: list[Problem] = [(SMALL, what, 0.5, math.inf) for what in MOST]
    for profile, what, temperature, batch_size in effort.plan(full, small, small):
        geometry = solved(profile, temperature, batch_size)
        if not effort.wants(geometry.num_classes):
            continue
        call = question(what, geometry)
        attempt(call)
        times = effort.times(effort.plan(REPEATS, 1, 1))
        for _, turn, seconds, result in alternate({OURS: call}, {OURS: times}):
            row = partial(Row, case(profile, what, temperature, batch_size), OURS, geometry.num_classes, turn, seconds)
            yield row(note=failure(result)) if isinstance(result, Exception) else judged(row, result)


def judged(row: Callable[..., Row], near: og.Ranges) -> Row:
    """Certified where all exact ends are; `difference` is the worst disagreement of two ends in degrees."""
    exact = [pair for pair in near.pairs if pair.exact]
    further = len(near) - len(exact)
    note = f"{len(exact)} exact" + (f", {further} to second order" if further else "")
    apart = max(
        max(pair.closest_attained_deg - pair.closest_deg, pair.farthest_deg - pair.farthest_attained_deg)
        for pair in exact
    )
    return row(difference=apart, certified=all(pair.certified for pair in exact), note=note)


def render_times(rows: Sequence[Row]) -> str:
    lines = []
    for (name, classes), found in _tables.cases(rows).items():
        ours = found[OURS]
        most = next(most for what, most in MOST.items() if f", {what}," in name)
        met = _tables.yes(ours.certified and ours.seconds <= most)
        lines.append(
            [
                name,
                str(classes),
                ours.note,
                _tables.timing(ours),
                _tables.number(ours.difference),
                f"<= {most:g} s",
                met,
            ]
        )
    return _tables.markdown(["case", "C", "pairs", "reached", "ends apart (degrees)", "target", "met"], lines)


def of_rival(effort: Effort) -> Iterator[Row]:
    """Both ends of the closest pair, by optgeom and by two conic programs, with default and with tight tolerances."""
    full: tuple[tuple[str, float], ...] = ((FEW, 0.1), (FEW, 0.5))
    for profile, temperature in effort.plan(full, full, ((SMALL, 0.5),)):
        geometry = solved(profile, temperature, math.inf)
        if not effort.wants(geometry.num_classes):
            continue
        optimum = PairedOptimum(geometry)
        (pair,) = distinct_pairs(geometry, 1)
        room = SLACK * optimum.loss_range * optimum.pair_weight(*pair)
        program = _rivals.supcon_limit(geometry.classes.proportions, temperature)
        limit = program.value(np.array(geometry.gram)) + room

        (ours,) = og.ranges(geometry, slack=SLACK, pairs=[pair]).pairs
        certified = [math.cos(math.radians(end)) for end in (ours.closest_deg, ours.farthest_deg)]
        calls: dict[str, Callable[[], Any]] = {
            OURS: partial(og.ranges, geometry, slack=SLACK, pairs=[pair]),
            **{who: partial(_both_ends, program, pair, limit, options) for who, options in RIVALS.items()},
        }
        for call in calls.values():
            attempt(call)
        repeats = {who: effort.times(effort.plan(REPEATS, 1, 1)) for who in calls}
        for name, turn, seconds, result in alternate(calls, repeats):
            row = partial(
                Row, case(profile, "the closest pair", temperature, math.inf), name, geometry.num_classes, turn, seconds
            )
            if isinstance(result, Exception):
                yield row(note=failure(result))
            elif name == OURS:
                yield judged(row, result)
            else:
                found = [ends_of(optimum, pair, sign, end, room) for sign, end in zip(SIGNS, result, strict=True)]
                apart = max(abs(outer - attained) for attained, outer in found)
                yield row(
                    difference=apart,
                    cosine_error=max(
                        abs(math.cos(math.radians(attained)) - true)
                        for (attained, _), true in zip(found, certified, strict=True)
                    ),
                    certified=apart <= AGREEMENT_DEG,
                    note=result[0].answer.note,
                    solver_seconds=sum(end.answer.solver_seconds for end in result),
                )


def _both_ends(
    program: _rivals.RowsProgram, pair: tuple[int, int], limit: float, options: Mapping[str, float]
) -> list[_rivals.RangeEnd]:
    return [_rivals.conic_end(program, pair, sign, limit, options) for sign in SIGNS]


def ends_of(
    optimum: PairedOptimum, pair: tuple[int, int], sign: float, end: _rivals.RangeEnd, room: float
) -> tuple[float, float]:
    """Degrees that the rival attains, and those that its answer proves: our bound at its matrix and its tilt.

    A matrix a little beyond the slack is drawn back towards the optimum, which the slack allows by convexity.
    """
    frame = optimum.frame(*pair)
    root = np.sqrt(np.diag(end.answer.gram))
    order = np.argsort(frame.program.index)  # all classes are distinct here
    cosines = (end.answer.gram / np.outer(root, root))[np.ix_(order, order)]
    path = Path(frame, sign)
    excess = path.excess(cosines)
    kept = min(1.0, room / excess) if excess > 0 else 1.0
    attained = frame.cosine + kept * (float(cosines[frame.first, frame.second]) - frame.cosine)
    point = Point(math.log(end.tilt), cosines, excess, float(cosines[frame.first, frame.second]))
    outer = path.outer_cosine(point, room)
    attained_deg, outer_deg = (math.degrees(math.acos(np.clip(cosine, -1, 1))) for cosine in (attained, outer))
    return attained_deg, outer_deg


def render_rival(rows: Sequence[Row]) -> str:
    lines = []
    for (name, classes), found in _tables.cases(rows).items():
        ours = found[OURS]
        for who, rival in found.items():
            if who == OURS:
                continue
            ratio = rival.seconds / ours.seconds
            proof = _tables.number(rival.difference) + ("" if rival.certified else ", not certified")
            lines.append(
                [
                    name,
                    str(classes),
                    _tables.timing(ours),
                    who,
                    _tables.timing(rival),
                    f"{ratio:.2g} x",
                    _tables.number(ours.difference),
                    proof,
                    _tables.number(rival.cosine_error),
                ]
            )
    header = ["case", "C", OURS, "rival", "its time", "ratio", "ends apart (degrees)"]
    return _tables.markdown([*header, "rival's ends apart", "rival's cosine error"], lines)


TABLES = (
    Table(
        "ranges-time",
        "Certified ranges, and screening to second order",
        "All pairs of ten classes, or a choice of a hundred classes, take seconds; all others are known to second "
        "order in less.",
        of_times,
        render_times,
    ),
    Table(
        "ranges-clarabel",
        "Both ends of one pair against CVXPY + Clarabel",
        "Newton's method from the optimum is faster than two conic programs from nothing, and comes with a proof. "
        "No target was set.",
        of_rival,
        render_rival,
    ),
)
