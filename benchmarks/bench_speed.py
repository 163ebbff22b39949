"""Class means: time and memory of optgeom.solve against CVXPY, pymanopt and one eigendecomposition."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import _rivals
import _tables
import numpy as np
import scipy.linalg
from _harness import OURS, Row, alternate, attempt, failure, in_fresh_process, peak_mb, timed
from _suite import Effort, Table
from _versus import Contest, Rival, conic_rival, contest, oblique_rivals, of_class_means

import optgeom as og
from optgeom.losses.base import Loss
from optgeom.programs import group_matrix
from optgeom.programs.class_mean import ClassMeanProgram

TEMPERATURE = 0.1


@dataclass(frozen=True)
class Plan:
    """Sizes and repeats of one measurement."""

    rivals: Mapping[str, Mapping[int, int]]  # who -> classes -> runs of the rival
    temperatures: tuple[float, ...]
    eigh: tuple[int, ...]
    profiles: tuple[str, ...]
    finite_k: tuple[int, int, int]  # classes, k, runs
    many: tuple[int, int]  # classes, groups
    growth: tuple[int, int, int]  # classes: time at the first two, memory at all
    repeats: int  # runs of everything that takes seconds


FULL = Plan(
    rivals={"clarabel": {20: 5, 40: 3, 60: 2}, "scs": {60: 2, 100: 1}, "pymanopt": {20: 3, 60: 1, 100: 1, 200: 1}},
    temperatures=(0.1, 1.0),
    eigh=(365, 1203),
    profiles=("places-lt", "lvis-v1"),
    finite_k=(1000, 4096, 3),
    many=(10**7, 650),
    growth=(1000, 2000, 4000),
    repeats=7,
)
QUICK = Plan(
    rivals={"clarabel": {10: 1, 20: 1}, "scs": {10: 1, 20: 1}, "pymanopt": {10: 1, 20: 1}},
    temperatures=(0.1, 1.0),
    eigh=(100, 365),
    profiles=("places-lt",),
    finite_k=(200, 4096, 1),
    many=(10**6, 650),
    growth=(250, 500, 1000),
    repeats=1,
)
TINY = Plan(
    rivals={"clarabel": {4: 1}, "scs": {4: 1}, "pymanopt": {4: 1}},
    temperatures=(1.0,),
    eigh=(6,),
    profiles=("inaturalist2018-supercategories",),
    finite_k=(5, 3, 1),
    many=(1000, 20),
    growth=(4, 8, 16),
    repeats=1,
)


def plan(effort: Effort) -> Plan:
    return effort.plan(FULL, QUICK, TINY)


def zipf(classes: int) -> Any:
    """(C,) proportions 1/i."""
    weights = 1.0 / np.arange(1, classes + 1)
    return weights / weights.sum()


def solve_from(proportions: Any, loss: Loss) -> og.Geometry:
    """What a user of optgeom runs: from an array of proportions to the certified geometry."""
    return og.solve(og.ClassDistribution.from_proportions(proportions), loss)


def against(name: str, rivals: Callable[[Effort], Mapping[str, Rival]], effort: Effort) -> Iterator[Row]:
    held = plan(effort)
    problems = []
    for temperature in held.temperatures:
        loss = og.SupCon(temperature=temperature)
        for classes, runs in held.rivals[name].items():
            p = zipf(classes)
            judge = of_class_means(
                ClassMeanProgram.build(og.ClassDistribution.from_proportions(p), loss, grouped=False)
            )
            theirs = partial(_rivals.supcon_limit, p, temperature)
            ours = partial(solve_from, p, loss)
            problems.append(
                Contest(
                    f"zipf, temperature {temperature}",
                    classes,
                    ours,
                    lambda g: (g.gram, ""),
                    theirs,
                    judge,
                    runs,
                    "inf",
                )
            )
    return contest(effort, problems, rivals(effort), held.repeats)


def against_eigh(effort: Effort) -> Iterable[Row]:
    loss = og.SupCon(temperature=TEMPERATURE)
    held = plan(effort)
    distributions = [
        (f"zipf, {classes} groups", og.ClassDistribution.from_proportions(zipf(classes))) for classes in held.eigh
    ]
    for profile in held.profiles:
        classes = og.ClassDistribution.from_profile(profile)
        distributions.append((f"{profile}, {classes.groups.num_groups} groups", classes))
    for case, classes in distributions:
        if not effort.wants(classes.num_classes):
            continue
        program = ClassMeanProgram.build(classes, loss)
        geometry = attempt(partial(og.solve, classes, loss))
        if isinstance(geometry, Exception):
            yield Row(case, OURS, classes.num_classes, 0, note=failure(geometry))
            continue
        gram = np.array(geometry.gram)
        block = group_matrix.symmetric_block(geometry.group_cosines, np.ones(program.sizes.size), program.sizes)
        calls: dict[str, Callable[[], Any]] = {
            OURS: partial(og.solve, classes, loss),
            "eigh C x C": partial(scipy.linalg.eigh, gram),
        }
        if program.sizes.size < classes.num_classes:
            calls["eigh G x G"] = partial(scipy.linalg.eigh, block)
        for call in calls.values():
            attempt(call)
        for who, turn, seconds, result in alternate(calls, dict.fromkeys(calls, effort.times(held.repeats))):
            row = partial(Row, case, who, classes.num_classes, turn, seconds, "inf")
            if isinstance(result, Exception):
                yield row(note=failure(result))
            else:
                yield of_class_means(program)(result.group_cosines).row(row) if who == OURS else row()


def finite_negatives(effort: Effort) -> Iterable[Row]:
    classes, k, repeats = plan(effort).finite_k
    for turn in range(effort.times(repeats) if effort.wants(classes) else 0):
        yield child_row("zipf, InfoNCE (sum, alpha 1, UCL), temperature 0.1", classes, k, turn)


def many_classes(effort: Effort) -> Iterable[Row]:
    """Long-tailed counts 1 to G, the number of classes with count n falling as n^-1.5."""
    classes, groups = plan(effort).many
    if not effort.wants(classes):
        return
    loss = og.SupCon(temperature=TEMPERATURE)
    counts, sizes = tailed_groups(classes, groups)
    every = np.random.default_rng(0).permutation(np.repeat(counts, sizes))
    calls: dict[str, Callable[[], Any]] = {
        "from_groups": lambda: og.solve(og.ClassDistribution.from_groups(counts, sizes), loss),
        "from_counts": lambda: og.solve(og.ClassDistribution.from_counts(every), loss),
    }
    judge = of_class_means(ClassMeanProgram.build(og.ClassDistribution.from_groups(counts, sizes), loss))
    attempt(calls["from_groups"])
    for how, turn, seconds, result in alternate(calls, dict.fromkeys(calls, effort.times(plan(effort).repeats))):
        row = partial(Row, f"{groups} groups, ClassDistribution.{how}", OURS, classes, turn, seconds, "inf")
        yield row(note=failure(result)) if isinstance(result, Exception) else judge(result.group_cosines).row(row)


def tailed_groups(classes: int, groups: int) -> tuple[Any, Any]:
    """(G,) counts 1 to G and how many classes have each, falling as n^-1.5."""
    counts = np.arange(1, groups + 1)
    sizes = np.maximum(1, np.floor(counts**-1.5 / np.sum(counts**-1.5) * classes)).astype(np.int64)
    sizes[0] += classes - sizes.sum()
    return counts, sizes


def doubling(effort: Effort) -> Iterable[Row]:
    loss = og.SupCon(temperature=TEMPERATURE)
    held = plan(effort)
    calls = {
        str(classes): partial(solve_from, zipf(classes), loss) for classes in held.growth[:2] if effort.wants(classes)
    }
    for call in calls.values():
        attempt(call)
    for size, turn, seconds, result in (
        alternate(calls, dict.fromkeys(calls, effort.times(max(2, held.repeats - 2)))) if calls else ()
    ):
        row = partial(Row, "zipf, time", OURS, int(size), turn, seconds, "inf")
        if isinstance(result, Exception):
            yield row(note=failure(result))
        else:
            yield of_class_means(ClassMeanProgram.build(result.classes, loss))(result.group_cosines).row(row)
    for classes in held.growth:
        if effort.wants(classes):
            yield child_row("zipf, memory", classes, math.inf, 0)


def child_row(case: str, classes: int, k: float, turn: int) -> Row:
    """One run in a fresh process, for its peak memory."""
    found = in_fresh_process("bench_speed", {"classes": classes, "k": k if math.isfinite(k) else None})
    return Row(case, OURS, classes, turn, found.pop("seconds", math.nan), f"{k:.0f}", **found)


def child(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What the fresh process does: warm up on a small problem, solve, read the peak, and only then certify again."""
    k = arguments["k"]
    loss = (
        og.SupCon(temperature=TEMPERATURE)
        if k is None
        else og.InfoNCE(temperature=TEMPERATURE, negatives=k, alpha=1.0, negatives_reduction="sum", sampling="ucl")
    )
    solve_from(zipf(5), loss)
    baseline = peak_mb()
    seconds, geometry = timed(partial(solve_from, zipf(arguments["classes"]), loss))
    peak = peak_mb()
    found = of_class_means(ClassMeanProgram.build(geometry.classes, loss))(geometry.group_cosines)
    kept = {"gap": found.gap, "backward_error": found.backward_error, "certified": found.certified, "note": found.why}
    return {"seconds": seconds, **kept, "peak_mb": peak, "baseline_mb": baseline}


@dataclass(frozen=True)
class Targets:
    """By number of classes: least ratios of time, and seconds."""

    clarabel: dict[int, float] = field(default_factory=lambda: {20: 30.0, 40: 300.0, 60: 2000.0})
    scs: dict[int, float] = field(default_factory=lambda: {60: 300.0, 100: 2000.0})
    pymanopt: dict[int, float] = field(default_factory=dict)

    def of(self, name: str) -> dict[tuple[str, int], float]:
        held: dict[int, float] = getattr(self, name)
        return {
            (f"zipf, temperature {temperature}", classes): held[classes]
            for temperature in (0.1, 1.0)
            for classes in held
        }


TARGETS = Targets()
EIGH = 6.0
FINITE_K = {1000: (15.0, 1024.0)}  # seconds, MiB
MANY = {(f"650 groups, ClassDistribution.{how}", 10**7): (3.0, math.nan) for how in ("from_groups", "from_counts")}
CONIC = (
    "The structure of the optimum (one linear relation between the class means) beats a general conic solver, "
    "more so the more classes."
)

TABLES = (
    Table(
        "speed-clarabel",
        "Class means against CVXPY + Clarabel, SupCon limit, all classes distinct",
        CONIC,
        partial(against, "clarabel", lambda effort: conic_rival("CLARABEL")),
        partial(_tables.versus, targets=TARGETS.of("clarabel")),
    ),
    Table(
        "speed-scs",
        "Class means against CVXPY + SCS, SupCon limit, all classes distinct",
        CONIC,
        partial(against, "scs", lambda effort: conic_rival("SCS")),
        partial(_tables.versus, targets=TARGETS.of("scs")),
    ),
    Table(
        "speed-pymanopt",
        "Class means against pymanopt, SupCon limit, all classes distinct",
        "A first-order condition in logarithms reaches a certificate sooner than a trust region on the oblique "
        "manifold, whose Hessian is singular at an optimum of rank C - 1. No target was set.",
        partial(against, "pymanopt", oblique_rivals),
        partial(_tables.versus, targets=TARGETS.of("pymanopt")),
    ),
    Table(
        "speed-eigh",
        "Class means against one `scipy.linalg.eigh`, SupCon limit, temperature 0.1",
        "A certified solve costs a few eigendecompositions of the same matrix.",
        against_eigh,
        partial(_tables.eigh, most=EIGH),
    ),
    Table(
        "speed-finite-k",
        "Finitely many negatives, in a fresh process",
        "The exact expectation over 4096 negatives and 1000 classes takes seconds and less than a gigabyte.",
        finite_negatives,
        partial(_tables.finite_negatives, targets=FINITE_K),
    ),
    Table(
        "speed-many-classes",
        "Ten million classes, construction included; SupCon limit, temperature 0.1",
        "Equal classes are one group: the cost is that of the groups.",
        many_classes,
        partial(_tables.within, targets=MANY),
    ),
    Table(
        "speed-growth",
        "Twice the classes, all distinct; SupCon limit, temperature 0.1",
        "Time grows no faster than the cube, memory no faster than the square of the classes.",
        doubling,
        _tables.doubling,
    ),
)
