"""Weighted InfoNCE: time from weights to certified optimum, against CVXPY and pymanopt, and targets for more samples.

Labels are `numpy.random.default_rng(0).normal(size=(n, dim))` with y-Aware weights exp(-|yi - yj|^2/2) and cosine
similarity, except under `realize-classes`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import _rivals
import _tables
import numpy as np
from _harness import OURS, Row, alternate, attempt, failure
from _suite import Effort, Table
from _versus import Contest, Rival, conic_rival, contest, oblique_rivals, of_weights

from optgeom.realization.api import Realization, realize
from optgeom.realization.optimum import program_of
from optgeom.realization.verdict import judge, soft_supcon_temperature
from optgeom.realization.weights import Weights

EPSILON = 0.1
TOLERANCE = 1e-9  # beside rivals


@dataclass(frozen=True)
class Case:
    """One problem with its targets.

    `seconds` is infinite where open; `gap` is what counts as certified, relative to 1 + |loss|. A gap of NaN stands for
    a problem of which the verdict alone is asked.
    """

    n: int
    dim: int
    tau: float
    seconds: float = math.inf
    gap: float = 1e-8
    repeats: int = 1

    @property
    def name(self) -> str:
        return f"dim {self.dim}, temperature {self.tau:g}" + (", verdict alone" if math.isnan(self.gap) else "")

    @property
    def labels(self) -> Any:
        return np.random.default_rng(0).normal(size=(self.n, self.dim))


@dataclass(frozen=True)
class Plan:
    """What one measurement covers.

    `rivals` has the problems of each rival, with the least ratio wanted and the number of its runs; `towards` has the
    problems that are measured against their own targets.
    """

    rivals: Mapping[str, Mapping[Case, tuple[float, int]]]
    towards: Mapping[str, tuple[Case, ...]]
    classes: tuple[int, int, float]  # samples, classes, seconds
    repeats: int


FULL = Plan(
    rivals={
        "clarabel": {
            Case(30, 3, 0.5): (10.0, 3),
            Case(30, 1, 0.5): (10.0, 3),
            Case(60, 3, 0.5): (100.0, 2),
            Case(60, 1, 0.5): (100.0, 2),
        },
        "scs": {Case(30, 3, 0.5): (math.nan, 3), Case(30, 1, 0.5): (math.nan, 3), Case(60, 3, 0.5): (math.nan, 1)},
        "pymanopt": {
            Case(60, 3, 0.5): (math.nan, 2),
            Case(60, 1, 0.5): (math.nan, 1),
            Case(200, 3, 0.5): (math.nan, 1),
        },
    },
    towards={
        "inconsistent": (
            Case(200, 3, 0.2, 15.0, repeats=2),
            Case(200, 1, 0.5, 15.0, repeats=2),
            Case(500, 3, 0.5, 6.0, repeats=2),
            Case(500, 1, 0.5, 20.0),
            Case(500, 3, 0.2, 60.0),
        ),
        "near": (Case(200, 3, 0.1, 20.0), Case(200, 3, 0.05, 20.0), Case(500, 3, 0.05)),
        "large": (Case(2000, 3, 0.5, 10.0, math.nan), Case(2000, 3, 0.5, 60.0), Case(2000, 3, 0.2, 240.0, 1e-7)),
    },
    classes=(50_000, 100, 1.0),
    repeats=5,
)
QUICK = Plan(
    rivals={who: {Case(20, 3, 0.5): (math.nan, 1)} for who in FULL.rivals},
    towards={
        "inconsistent": (Case(60, 3, 0.2), Case(60, 1, 0.5), Case(100, 3, 0.5)),
        "near": (Case(110, 3, 0.1),),
        "large": (Case(200, 3, 0.5, gap=math.nan), Case(200, 3, 0.5)),
    },
    classes=(5_000, 20, 1.0),
    repeats=1,
)
TINY = Plan(
    rivals={who: {Case(6, 3, 0.5): (math.nan, 1)} for who in FULL.rivals},
    towards={
        "inconsistent": (Case(12, 3, 0.5),),
        "near": (Case(10, 3, 0.1),),
        "large": (Case(12, 3, 0.5, gap=math.nan), Case(12, 3, 0.5)),
    },
    classes=(60, 3, 1.0),
    repeats=1,
)


def plan(effort: Effort) -> Plan:
    return effort.plan(FULL, QUICK, TINY)


def solve(y: Any, tau: float, tolerance: float) -> Realization:
    """What a user of optgeom runs: from labels to the certified optimum."""
    return realize(Weights.y_aware(y), "cosine", temperature=tau, tolerance=tolerance)


def read(found: Realization) -> tuple[Any, str]:
    return found.group_cosines, found.solver.name


def judged(row: Callable[..., Row], found: Realization, tolerance: float) -> Row:
    """The same certificate where there is a matrix; the closed form of an attained bound has its own."""
    if found.group_cosines is not None:
        return of_weights(program_of(found.weights, found.temperature), tolerance)(found.group_cosines).row(
            row, note=found.solver.name
        )
    return row(gap=abs(found.optimal_loss - found.lower_bound), certified=found.certified, note=found.solver.name)


def against(name: str, rivals: Callable[[Effort], Mapping[str, Rival]], effort: Effort) -> Iterator[Row]:
    problems = []
    for case, (_, runs) in plan(effort).rivals[name].items():
        y, tau = case.labels, case.tau
        judge_of = of_weights(program_of(Weights.y_aware(y), tau), TOLERANCE)
        theirs = partial(_rivals.y_aware, y, tau)
        problems.append(Contest(case.name, case.n, partial(solve, y, tau, TOLERANCE), read, theirs, judge_of, runs))
    return contest(effort, problems, rivals(effort), plan(effort).repeats)


def towards(name: str, effort: Effort) -> Iterator[Row]:
    attempt(partial(solve, Case(20, 3, 0.5).labels, 0.5, 1e-8))
    for case in plan(effort).towards[name]:
        if not effort.wants(case.n):
            continue
        y = case.labels
        alone = math.isnan(case.gap)
        call: Callable[[], Any] = partial(solve, y, case.tau, case.gap)
        if alone:
            call = partial(lambda y, tau: judge(Weights.y_aware(y), "cosine", tau), y, case.tau)
        for _, turn, seconds, result in alternate({OURS: call}, {OURS: effort.times(case.repeats)}):
            row = partial(Row, case.name, OURS, case.n, turn, seconds)
            if isinstance(result, Exception):
                yield row(note=failure(result))
            else:
                yield row(certified=True, note=result.regime) if alone else judged(row, result, case.gap)


def many_samples(effort: Effort) -> Iterator[Row]:
    n, classes, _ = plan(effort).classes
    if not effort.wants(n):
        return
    codes = np.random.default_rng(0).permutation(np.arange(n) % classes)
    border = soft_supcon_temperature(classes, EPSILON)
    calls: dict[str, Callable[[], Any]] = {
        word: partial(
            lambda tau: realize(Weights.soft_supcon(codes, EPSILON), "cosine", temperature=tau), factor * border
        )
        for word, factor in (("below the border", 0.8), ("beyond the border", 1.2))
    }
    for word, turn, seconds, result in alternate(calls, dict.fromkeys(calls, effort.times(plan(effort).repeats))):
        row = partial(Row, f"{classes} classes, {word}", OURS, n, turn, seconds)
        yield row(note=failure(result)) if isinstance(result, Exception) else judged(row, result, TOLERANCE)


def ratio_targets(name: str) -> dict[tuple[str, int], float]:
    return {(case.name, case.n): least for case, (least, _) in FULL.rivals[name].items() if least == least}


def rival_table(name: str, title: str, hypothesis: str, rivals: Callable[[Effort], Mapping[str, Rival]]) -> Table:
    render = partial(_tables.versus, targets=ratio_targets(name), size="n", loss="loss")
    return Table(f"realize-{name}", title, hypothesis, partial(against, name, rivals), render)


def target_table(name: str, title: str, hypothesis: str) -> Table:
    targets = {(case.name, case.n): (case.seconds, case.gap) for case in FULL.towards[name]}
    return Table(
        f"realize-{name}", title, hypothesis, partial(towards, name), partial(_tables.within, targets=targets, size="n")
    )


CONIC = (
    "The optimum has low rank; a low-rank method with a dual bound reaches a certificate sooner than a general conic "
    "solver."
)
TABLES = (
    rival_table(
        "clarabel",
        "Inconsistent y-Aware weights against CVXPY + Clarabel",
        CONIC,
        lambda effort: conic_rival("CLARABEL", by_rows=True),
    ),
    rival_table(
        "scs",
        "Inconsistent y-Aware weights against CVXPY + SCS",
        f"{CONIC} No target was set.",
        lambda effort: conic_rival("SCS", by_rows=True),
    ),
    rival_table(
        "pymanopt",
        "Inconsistent y-Aware weights against pymanopt",
        "A row-block preconditioner and a staircase of ranks reach a certificate sooner than a plain trust region "
        "at rank n. No target was set.",
        oblique_rivals,
    ),
    target_table("inconsistent", "Inconsistent y-Aware weights", "Hundreds of samples are certified in seconds."),
    target_table(
        "near", "Nearly realizable y-Aware weights", "So are the hard cases, whose optimum has nearly full rank."
    ),
    target_table("large", "Two thousand samples", "Two thousand samples are certified in minutes, judged in seconds."),
    Table(
        "realize-classes",
        "Soft SupCon, many samples of few classes, from the labels on",
        "Equal samples are one group.",
        many_samples,
        partial(
            _tables.within,
            size="n",
            targets={
                (f"100 classes, {word} the border", 50_000): (FULL.classes[2], TOLERANCE)
                for word in ("below", "beyond")
            },
        ),
    ),
)
