"""Validation of trained embeddings: time and memory of passes over a file, a second worker, and the whole command.

The file is made in a temporary folder (2 GB) and read once before anything is measured, so that it lies in the cache of
the system. Rivals run in turns, one BLAS thread per process, and a ratio is the median of the ratios of neighbouring
runs. Every run says how many cores other programs kept busy meanwhile (Linux; empty elsewhere); where there are pairs
with less than a tenth of a core, only they count.
"""

from __future__ import annotations

import math
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import _tables
import numpy as np
from _harness import OURS, Row, in_fresh_process, memory_mb, wait_for_quiet, watched
from _suite import Effort, Table

from optgeom.embeddings.moments.collect import collect
from optgeom.embeddings.moments.first_pass import FirstPass
from optgeom.embeddings.readers.open import open_embeddings
from optgeom.inputs.labels import ClassNames

DIM = 256
ROWS_AT_ONCE = 32768
SUM, MOMENTS = "chunked sum", "first pass"
ONE, TWO = "one worker", "two workers"
WITH, WITHOUT = "with ranges", "without"
RIVALS = {"first": (MOMENTS, SUM), "workers": (ONE, TWO), "ranges": (WITH, WITHOUT)}
TARGETS = {"first": 2.5, "memory": 400.0, "workers": 1.6, "labels": 5e-3, "report": 10.0, "ranges": 1.5}


@dataclass(frozen=True)
class Plan:
    """Rows and classes of the file, rows per shard (eight), repeats by table, labels, rows of what is validated."""

    rows: int
    classes: int
    shard_rows: int
    repeats: Mapping[str, int]
    labels: int
    validated: int


ONCE = dict.fromkeys(TARGETS, 1)
FULL = Plan(
    2_000_000, 1000, 40_000, {**ONCE, "first": 7, "workers": 5, "labels": 7, "report": 5, "ranges": 5}, 100_000, 50_000
)
QUICK = Plan(200_000, 1000, 8_000, ONCE, 100_000, 10_000)
TINY = Plan(400, 5, 40, ONCE, 1000, 2000)


def plan(effort: Effort) -> Plan:
    return effort.plan(FULL, QUICK, TINY)


def make_file(folder: Path, rows: int, classes: int, name: str = "x", seed: int = 0) -> Path:
    """Rows about class means, and shuffled labels beside them."""
    rng = np.random.default_rng(seed)
    means = rng.standard_normal((classes, DIM), dtype=np.float32)
    labels = rng.integers(0, classes, rows)
    path = folder / f"{name}.npy"
    table = np.lib.format.open_memmap(path, "w+", np.float32, (rows, DIM))
    for start in range(0, rows, ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        table[part] = means[labels[part]] + 0.5 * rng.standard_normal((len(labels[part]), DIM), dtype=np.float32)
    table.flush()
    np.save(folder / f"{name}-labels.npy", labels)
    return path


def opened(path: Path) -> Any:
    return open_embeddings(path, labels=np.load(path.with_name(f"{path.stem}-labels.npy")))


def chunked_sum(path: Path) -> Any:
    table = np.load(path, mmap_mode="r")
    total = np.zeros(table.shape[1])
    for start in range(0, len(table), ROWS_AT_ONCE):
        total += table[start : start + ROWS_AT_ONCE].sum(axis=0, dtype=np.float64)
    return total


def first_pass(path: Path) -> Any:
    state = FirstPass()
    for batch in opened(path).batches(ROWS_AT_ONCE):
        state.update(batch)
    return state.finish()


def case(rows: int, classes: int, of: str = f"rows of {DIM}") -> tuple[str, int]:
    return f"{rows} {of}, {classes} classes", rows


def in_turns(name: str, effort: Effort, what: tuple[str, int], calls: Mapping[str, Callable[[], Any]]) -> Iterator[Row]:
    """Rivals in turns after a warm-up; every second round goes backwards."""
    for call in calls.values():
        call()
    names = list(calls)
    for turn in range(effort.times(plan(effort).repeats[name])):
        if effort.patient:
            wait_for_quiet()
        for who in names[:: -1 if turn % 2 else 1]:
            seconds, _, elsewhere = watched(calls[who])
            yield Row(what[0], who, what[1], turn, seconds, busy_elsewhere=elsewhere)


def of_first(effort: Effort, folder: Path) -> Iterator[Row]:
    held = plan(effort)
    path = make_file(folder, held.rows, held.classes)
    calls = {SUM: partial(chunked_sum, path), MOMENTS: partial(first_pass, path)}
    yield from in_turns("first", effort, case(held.rows, held.classes), calls)


def of_memory(effort: Effort, folder: Path) -> Iterator[Row]:
    held = plan(effort)
    path = make_file(folder, held.rows, held.classes)
    for turn in range(effort.times(held.repeats["memory"])):
        what, size = case(held.rows, held.classes)
        yield replace(Row(what, OURS, size, turn), **in_fresh_process("bench_validate", {"path": str(path)}))


def of_workers(effort: Effort, folder: Path) -> Iterator[Row]:
    held = plan(effort)
    labels = []
    for number in range(8):
        made = make_file(folder, held.shard_rows, held.classes, f"shard-{number}", number)
        beside = made.with_name(f"{made.stem}-labels.npy")
        labels.append(np.load(beside))
        beside.unlink()
    source = open_embeddings(folder, labels=np.concatenate(labels))
    calls = {ONE: partial(collect, source, workers=1), TWO: partial(collect, source, workers=2)}
    yield from in_turns("workers", effort, case(8 * held.shard_rows, held.classes), calls)


def of_labels(effort: Effort, folder: Path) -> Iterator[Row]:
    held = plan(effort)
    labels = np.random.default_rng(0).integers(0, held.classes, held.labels)
    # A state of its own each time, so that nothing is known from the run before. Too short a time to ask what other
    # programs did in it.
    for row in in_turns(
        "labels", effort, case(labels.size, held.classes, "labels"), {OURS: lambda: ClassNames().encode(labels)}
    ):
        yield replace(row, busy_elsewhere=math.nan)


def of_report(effort: Effort, folder: Path) -> Iterator[Row]:
    """The command as a person starts it, in a process of its own."""
    rng = np.random.default_rng(0)
    classes, dim = 100, 128
    shares = np.geomspace(100.0, 1.0, classes)
    labels = rng.permutation(
        np.repeat(np.arange(classes), np.maximum(2, shares / shares.sum() * plan(effort).validated).astype(int))
    )
    means = rng.standard_normal((classes, dim))
    np.save(
        folder / "validated.npy", (means[labels] + 0.5 * rng.standard_normal((labels.size, dim))).astype(np.float32)
    )
    np.save(folder / "validated-labels.npy", labels)
    command = [
        sys.executable,
        "-m",
        "optgeom_cli.main",
        "validate",
        "--batch-size",
        "256",
        "--report",
        str(folder / "report.html"),
    ]
    command += [
        "--embeddings",
        str(folder / "validated.npy"),
        "--labels",
        str(folder / "validated-labels.npy"),
        "--json",
    ]

    def whole() -> None:
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"exit status {done.returncode}: {done.stderr.strip()}")

    what = case(labels.size, classes, f"rows of {dim}")
    try:
        yield from in_turns("report", effort, what, {OURS: whole})
    except RuntimeError as error:
        yield Row(what[0], OURS, what[1], 0, note=f"failed: {error}")


def of_ranges(effort: Effort, _: Path) -> Iterator[Row]:
    """`validate` at the optimum with a little scatter of the means, with and without what the loss allows each pair."""
    import optgeom as og

    rng, dim = np.random.default_rng(0), 128
    images = min(20_000, plan(effort).validated)
    for profile, loss in (
        (profile, og.SupCon(temperature=temperature, batch_size=batch_size))
        for profile in ("cifar10-lt:100", "cifar100-lt:100")
        for temperature in (0.1, 0.5)
        for batch_size in (math.inf, 256)
    ):
        geometry = og.solve(og.ClassDistribution.from_profile(profile), loss)
        means = geometry.prototypes(dim) + 0.02 * rng.standard_normal((geometry.num_classes, dim)) / math.sqrt(dim)
        labels = np.repeat(np.arange(geometry.num_classes), images // geometry.num_classes)
        rows = means[labels] + 0.3 * rng.standard_normal((labels.size, dim)) / math.sqrt(dim)
        whole = partial(og.validate, rows, labels, geometry)

        def without(whole: Callable[[], Any] = whole) -> None:
            with (
                mock.patch("optgeom.embeddings.validate.pair_ranges", return_value=None),
                mock.patch("optgeom.embeddings.assessment.own_excess", return_value=None),
            ):
                whole()

        size = "large batches" if math.isinf(loss.batch_size) else f"batches of {loss.batch_size:.0f}"
        what = f"{profile}, T = {loss.temperature:g}, {size}", geometry.num_classes
        yield from in_turns("ranges", effort, what, {WITH: whole, WITHOUT: without})


def child(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Both passes, while a thread looks at the anonymous memory."""
    source = opened(Path(arguments["path"]))
    before, peak, done = memory_mb("RssAnon"), 0.0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.005):
            peak = max(peak, memory_mb("RssAnon"))

    watcher = threading.Thread(target=watch)
    watcher.start()
    began = time.perf_counter()
    try:
        collect(source)
    finally:
        seconds = time.perf_counter() - began
        done.set()
        watcher.join()
    return {"seconds": seconds, "peak_mb": max(peak, before), "baseline_mb": before}


def measure(made: Callable[[Effort, Path], Iterator[Row]], effort: Effort) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        yield from made(effort, Path(folder))


def render(name: str, rows: Sequence[Row]) -> str:
    header = ["case", "measured", "target", "reached", "met", "other programs"]
    return _tables.a_line_a_case(header, rows, partial(_line, name))


def _line(name: str, rows: Sequence[Row]) -> list[str]:
    what, target, busy = rows[0].case, TARGETS[name], _tables.busy(rows)
    failed = [row.note for row in rows if row.failed]
    if failed:
        return [what, "failed", "-", failed[0], "**no**", "-"]
    if name in RIVALS:
        above, below = RIVALS[name]
        reached, pairs, quiet = _tables.ratios(rows, above, below)
        medians = [
            f"{who} {_tables.median(row.seconds for row in rows if row.solver == who):.3g} s" for who in (below, above)
        ]
        measured = ", ".join(medians) + f" (n = {pairs} pairs{'' if quiet else ', beside other work'})"
        at_most = name != "workers"
        met = reached <= target if at_most else reached >= target
        return [
            what,
            measured,
            f"{'<=' if at_most else '>='} {target:g} x",
            f"{reached:.2f} x",
            _tables.yes(met),
            busy,
        ]
    seconds = statistics.median(row.seconds for row in rows)
    if name == "memory":
        peak, baseline = max(row.peak_mb for row in rows), max(row.baseline_mb for row in rows)
        measured = f"{seconds:.3g} s, {baseline:.0f} MiB before"
        return [what, measured, f"<= {target:g} MiB", f"{peak:.0f} MiB", _tables.yes(peak <= target), busy]
    if name == "report":
        return [what, f"n = {len(rows)}", f"<= {target:g} s", f"{seconds:.2f} s", _tables.yes(seconds <= target), busy]
    return [
        what,
        f"n = {len(rows)}",
        f"<= {1e3 * target:g} ms",
        f"{1e3 * seconds:.2f} ms",
        _tables.yes(seconds <= target),
        busy,
    ]


def table(name: str, title: str, hypothesis: str, made: Callable[[Effort, Path], Iterator[Row]]) -> Table:
    return Table(f"validate-{name}", title, hypothesis, partial(measure, made), partial(render, name))


TABLES = (
    table(
        "first",
        "First pass against a plain sum",
        "Reading dominates: norms, unit rows and class sums take at most 2.5 times "
        "as long as the plain sum of the same file over chunks.",
        of_first,
    ),
    table("memory", "Both passes, in a fresh process", "A file need not fit in memory.", of_memory),
    table(
        "workers",
        "Eight shards, both passes",
        "Shards are independent: a second worker, once started, is worth it.",
        of_workers,
    ),
    table("labels", "Integer labels", "Labels are cheap.", of_labels),
    table(
        "report",
        "The whole command, with its report",
        "An answer is a matter of seconds, the optimum solved on the way.",
        of_report,
    ),
    table(
        "ranges",
        "What the loss allows each pair",
        "20 000 rows of 128: the ranges and costs of the pairs that are off add at most half to a validation.",
        of_ranges,
    ),
)
