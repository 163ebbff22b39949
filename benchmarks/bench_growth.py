"""Growth: time and memory against classes, groups, negatives and samples.

Each point is a process of its own. It warms up on a small problem, solves once and reads the high-water mark of
resident memory, solves again for the median of the times, and at last once more under `tracemalloc`, which sees every
array but no workspace inside BLAS.
"""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import _figures
import _tables
from _harness import OURS, Row, in_fresh_process, peak_mb, timed
from _suite import Effort, Table
from _versus import of_class_means
from bench_realize import Case, judged, solve
from bench_speed import TEMPERATURE, solve_from, tailed_groups, zipf

import optgeom as og
from optgeom.losses.base import Loss
from optgeom.programs.class_mean import ClassMeanProgram

TOLERANCE = 1e-8  # of weighted programs
REPEATS = 3
LONG = 5.0  # seconds from which one run is enough


@dataclass(frozen=True)
class Curve:
    """One line of a figure: `make(size)` is what is solved, by name for the fresh process."""

    case: str
    make: str
    full: tuple[int, ...]
    quick: tuple[int, ...]
    tiny: tuple[int, ...]


CURVES: dict[str, tuple[Curve, ...]] = {
    "classes": (
        Curve("infinitely many negatives", "limit", (10, 20, 50, 100, 200, 500, 1000, 2000), (10, 50, 200), (5, 10)),
        Curve("batches of 256", "batches", (10, 20, 50, 100, 200, 500, 1000), (10, 50, 200), (5, 10)),
    ),
    "groups": (
        Curve("1e7 classes", "groups-7", (10, 20, 50, 100, 200, 500, 1000), (10, 100), (5,)),
        Curve("1e5 classes", "groups-5", (10, 20, 50, 100, 200, 500, 1000), (10, 100), (5,)),
    ),
    "negatives": (Curve("100 classes", "negatives", tuple(10**power for power in range(8)), (1, 100, 10**4), (1, 10)),),
    "samples": (
        Curve("labels in 3 dimensions", "samples-3", (30, 60, 100, 200, 500, 1000, 2000), (30, 60), (10, 20)),
        Curve("labels in 1 dimension", "samples-1", (30, 60, 100, 200, 500), (30, 60), (10, 20)),
    ),
}


def problem(make: str, size: int) -> tuple[Callable[[], Any], Loss | None]:
    """What a user runs, the data of the problem ready; and the loss of class means."""
    name, _, number = make.partition("-")
    if name == "samples":
        case = Case(size, int(number), 0.5)
        return partial(solve, case.labels, case.tau, TOLERANCE), None
    if name == "negatives":
        finite = og.InfoNCE(
            temperature=TEMPERATURE, negatives=size, alpha=1.0, negatives_reduction="sum", sampling="ucl"
        )
        return partial(solve_from, zipf(100), finite), finite
    loss = og.SupCon(temperature=TEMPERATURE, batch_size=256 if name == "batches" else math.inf, views=2)
    if name == "groups":
        counts, sizes = tailed_groups(10 ** int(number), size)
        return lambda: og.solve(og.ClassDistribution.from_groups(counts, sizes), loss), loss
    return partial(solve_from, zipf(size), loss), loss


def child(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """One point; the certificate is recomputed after everything is measured."""
    make, size = arguments["make"], arguments["size"]
    problem("groups-3" if make.startswith("groups") else make, 5)[0]()
    call, loss = problem(make, size)
    before = peak_mb()
    first, found = timed(call)
    peak = peak_mb()
    repeats = arguments["repeats"] if first < LONG else 1
    times = [timed(call)[0] for _ in range(repeats)] if repeats > 1 else [first]
    tracemalloc.start()
    call()
    traced = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    row = partial(Row, "", OURS, size, 0)
    if loss is None:
        held = judged(row, found, TOLERANCE)
    else:
        held = of_class_means(ClassMeanProgram.build(found.classes, loss))(found.group_cosines).row(row)
    kept = {name: getattr(held, name) for name in ("gap", "certified", "note")}
    return {"times": times, "peak_mb": peak, "baseline_mb": before, "extra_mb": traced, **kept}


def measure(name: str, effort: Effort) -> Iterator[Row]:
    for curve in CURVES[name]:
        for size in effort.plan(curve.full, curve.quick, curve.tiny):
            if effort.wants(size):
                repeats = effort.times(effort.plan(REPEATS, 1, 1))
                found = in_fresh_process("bench_growth", {"make": curve.make, "size": size, "repeats": repeats})
                times = found.pop("times", [math.nan])
                row = replace(Row(curve.case, OURS, size, 0), **found)
                yield from (replace(row, repeat=turn, seconds=seconds) for turn, seconds in enumerate(times))


def render(size: str, rows: Sequence[Row]) -> str:
    """Exponents are between neighbouring sizes."""
    lines = []
    before: dict[str, tuple[int, float, float]] = {}
    for (case, number), solvers in _tables.cases(rows).items():
        found = solvers[OURS]
        powers = ["-", "-"]
        if case in before:
            smaller, seconds, memory = before[case]
            ratios = (found.seconds / seconds, found.extra_mb / memory)
            powers = [
                "-" if math.isnan(ratio) else f"{math.log(ratio) / math.log(number / smaller):.2f}" for ratio in ratios
            ]
        before[case] = number, found.seconds, found.extra_mb
        resident = f"{found.peak_mb - found.baseline_mb:.0f} MiB"
        arrays = f"{found.extra_mb:.3g} MiB"
        if found.failed:
            lines.append([case, str(number), "failed", "-", "-", "-", "-", found.note.split("Error: ")[-1]])
        else:
            lines.append(
                [
                    case,
                    str(number),
                    _tables.timing(found),
                    powers[0],
                    arrays,
                    powers[1],
                    resident,
                    _tables.certificate(found),
                ]
            )
    return _tables.markdown(["case", size, "time", "its exponent", "arrays", "its exponent", "resident", "gap"], lines)


def table(name: str, title: str, hypothesis: str, size: str) -> Table:
    draw = partial(_figures.growth, axis=size, beside=_figures.BESIDE.get(name, {}))
    return Table(f"growth-{name}", title, hypothesis, partial(measure, name), partial(render, size), draw)


TABLES = (
    table(
        "classes",
        "Growth with the number of classes, all distinct (zipf), temperature 0.1",
        "Time grows at most like the cube of C and memory like its square.",
        "number of classes C",
    ),
    table(
        "groups",
        "Growth with the number of groups of equal classes, SupCon limit, temperature 0.1",
        "Solving costs what the groups cost; what grows with the classes is the list of which group each is in.",
        "number of groups G",
    ),
    table(
        "negatives",
        "Growth with the number of negatives, InfoNCE, temperature 0.1",
        "The integral over the negatives costs about the same for every k.",
        "number of negatives k",
    ),
    table(
        "samples",
        "Growth with the number of samples, y-Aware weights, temperature 0.5",
        "The cost follows the rank of the optimum, which depends on the labels more than on n.",
        "number of samples n",
    ),
)
