"""Validation of trained embeddings: time and memory of a pass over a file, the gain of a second worker, and the whole command.

    python benchmarks/bench_validate.py             the measurement in benchmarks/README.md
    python benchmarks/bench_validate.py --quick     smaller sizes, under a minute; prints the tables and writes nothing
    python benchmarks/bench_validate.py --only NAME one hypothesis; the rows of the others stay

Hypotheses, each with its target:

* `first`: reading dominates. Norms, unit rows and class sums of 2 000 000 float32 rows of length 256 in 1000 classes take at most 2.5 times
  as long as the plain sum of the same file over chunks, in float64.
* `memory`: a file need not fit. Both passes over it take at most 400 MiB of anonymous memory (RssAnon, Linux), interpreter included.
* `workers`: shards are independent. Two workers on eight shards are at least 1.6 times as fast as one; both passes, workers had started.
* `labels`: labels are cheap. 100 000 integer labels in 1000 classes are turned into codes in at most 5 ms.
* `report`: an answer is a matter of seconds. The command `optgeom validate`, from its start to the finished report, takes at most 10 s for
  50 000 rows of length 128 in 100 classes of 100:1, the optimum solved on the way.

The file is made in a temporary folder (2 GB) and read once before anything is measured, so that it lies in the cache of the system. Rivals
run in turns, one BLAS thread a process, and a ratio is the median of the ratios of neighbouring runs. Every run says how many cores other
programs kept busy meanwhile (Linux; empty elsewhere); where there are pairs with less than a tenth of a core, only they count.
"""

from __future__ import annotations

import json
import math
import os
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

# Set before numpy is loaded, so that one worker means one core.
os.environ.update({name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")})

import _harness
import numpy as np
from bench_scan import QUIET, _busy_seconds, _wait_for_quiet

from optgeom.embeddings.class_names import ClassNames
from optgeom.embeddings.collect import collect
from optgeom.embeddings.first_pass import FirstPass
from optgeom.embeddings.readers.open import open_embeddings

HERE = Path(__file__).resolve().parent
SECTION = "bench_validate"
TITLES = {
    "first": "First pass against a plain sum",
    "memory": "Both passes, in a fresh process",
    "workers": "Eight shards, both passes",
    "labels": "100 000 integer labels",
    "report": "The whole command, with its report",
}
NAMES = tuple(TITLES)
DIM = 256
ROWS_AT_ONCE = 32768
SUM, MOMENTS = "chunked sum", "first pass"
ONE, TWO = "one worker", "two workers"
TARGETS = {"first": 2.5, "memory": 400.0, "workers": 1.6, "labels": 5e-3, "report": 10.0}


@dataclass(frozen=True)
class Plan:
    """Sizes: rows and classes of the file, rows of each of the eight shards, repeats by hypothesis, whether to wait for quiet, and rows of
    what is validated."""

    rows: int
    classes: int
    shard_rows: int
    repeats: Mapping[str, int]
    wait: bool
    validated: int = 50_000


FULL = Plan(2_000_000, 1000, 40_000, {"first": 7, "memory": 1, "workers": 5, "labels": 7, "report": 5}, True)
QUICK = Plan(200_000, 1000, 8_000, {"first": 5, "memory": 1, "workers": 3, "labels": 5, "report": 1}, False, 10_000)


@dataclass(frozen=True)
class Run:
    """One run; `peak_mb` is the largest RssAnon, `baseline_mb` what it was before, in MiB."""

    hypothesis: str
    what: str
    rows: int
    classes: int
    repeat: int
    seconds: float
    peak_mb: float = math.nan
    baseline_mb: float = math.nan
    busy_elsewhere: float = math.nan
    note: str = ""


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


def in_turns(hypothesis: str, plan: Plan, size: tuple[int, int], calls: Mapping[str, Callable[[], Any]]) -> Iterator[Run]:
    """Rivals in turns after a warm-up; every second round goes backwards."""
    for call in calls.values():
        call()
    names = list(calls)
    for turn in range(plan.repeats[hypothesis]):
        if plan.wait:
            _wait_for_quiet()
        for name in names[:: -1 if turn % 2 else 1]:
            busy = _busy_seconds()
            seconds, _ = _harness.timed(calls[name])
            yield Run(hypothesis, name, *size, turn, seconds, busy_elsewhere=max(0.0, (_busy_seconds() - busy) / seconds))


def of_first(plan: Plan, folder: Path) -> Iterator[Run]:
    path = folder / "x.npy"
    calls = {SUM: partial(chunked_sum, path), MOMENTS: partial(first_pass, path)}
    yield from in_turns("first", plan, (plan.rows, plan.classes), calls)


def of_memory(plan: Plan, folder: Path) -> Iterator[Run]:
    for turn in range(plan.repeats["memory"]):
        found = _harness.in_fresh_process(Path(__file__), {"path": str(folder / "x.npy")})
        empty = {"seconds": math.nan, "note": ""}
        yield replace(Run("memory", "both passes", plan.rows, plan.classes, turn, math.nan), **{**empty, **found})


def of_workers(plan: Plan, folder: Path) -> Iterator[Run]:
    shards = folder / "shards"
    shards.mkdir()
    labels = []
    for number in range(8):
        made = make_file(shards, plan.shard_rows, plan.classes, f"shard-{number}", number)
        beside = made.with_name(f"{made.stem}-labels.npy")
        labels.append(np.load(beside))
        beside.unlink()
    source = open_embeddings(shards, labels=np.concatenate(labels))
    calls = {ONE: partial(collect, source, workers=1), TWO: partial(collect, source, workers=2)}
    yield from in_turns("workers", plan, (8 * plan.shard_rows, plan.classes), calls)


def of_labels(plan: Plan, folder: Path) -> Iterator[Run]:
    labels = np.random.default_rng(0).integers(0, plan.classes, 100_000)
    # A state of its own each time, so that nothing is known from the run before. Too short a time to ask what other programs did in it.
    for run in in_turns("labels", plan, (labels.size, plan.classes), {"codes": lambda: ClassNames().encode(labels)}):
        yield replace(run, busy_elsewhere=math.nan)


def of_report(plan: Plan, folder: Path) -> Iterator[Run]:
    """The command as a person starts it, in a process of its own."""
    rng = np.random.default_rng(0)
    classes, dim = 100, 128
    shares = np.geomspace(100.0, 1.0, classes)
    labels = rng.permutation(np.repeat(np.arange(classes), np.maximum(2, shares / shares.sum() * plan.validated).astype(int)))
    means = rng.standard_normal((classes, dim))
    np.save(folder / "validated.npy", (means[labels] + 0.5 * rng.standard_normal((labels.size, dim))).astype(np.float32))
    np.save(folder / "validated-labels.npy", labels)
    command = [sys.executable, "-m", "optgeom_cli.main", "validate", "--batch-size", "256", "--report", str(folder / "report.html")]
    command += ["--embeddings", str(folder / "validated.npy"), "--labels", str(folder / "validated-labels.npy"), "--json"]

    def whole() -> None:
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"exit status {done.returncode}: {done.stderr.strip()}")

    try:
        yield from in_turns("report", plan, (labels.size, classes), {"validate": whole})
    except RuntimeError as error:
        yield Run("report", "validate", labels.size, classes, 0, math.nan, note=str(error))


MEASURES: dict[str, Callable[[Plan, Path], Iterator[Run]]] = {
    "first": of_first,
    "memory": of_memory,
    "workers": of_workers,
    "labels": of_labels,
    "report": of_report,
}


def anonymous_mb() -> float:
    """Anonymous resident memory of this process in MiB; NaN where the system does not say."""
    try:
        return int(Path("/proc/self/status").read_text(encoding="ascii").split("RssAnon:")[1].split()[0]) / 1024
    except (OSError, IndexError):
        return math.nan


def child(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Both passes, while a thread looks at the memory."""
    source = opened(Path(arguments["path"]))
    before, peak, done = anonymous_mb(), 0.0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.005):
            peak = max(peak, anonymous_mb())

    watcher = threading.Thread(target=watch)
    watcher.start()
    began = time.perf_counter()
    try:
        collect(source)
    finally:
        seconds = time.perf_counter() - began
        done.set()
        watcher.join()
    return {"seconds": seconds, "peak_mb": peak, "baseline_mb": before}


def ratios(runs: Sequence[Run], above: str, below: str) -> tuple[float, int, bool]:
    """Median of the ratios of neighbouring runs, their number, and whether they are from a quiet machine."""
    turns: dict[int, dict[str, Run]] = {}
    for run in runs:
        turns.setdefault(run.repeat, {})[run.what] = run
    pairs = [turn for turn in turns.values() if {above, below} <= set(turn)]
    quiet = [turn for turn in pairs if not any(run.busy_elsewhere > QUIET for run in turn.values())]
    chosen = quiet or pairs
    return statistics.median(turn[above].seconds / turn[below].seconds for turn in chosen), len(chosen), bool(quiet)


def report_text(runs: Sequence[Run], machine: Mapping[str, str]) -> str:
    """The tables, from the rows alone: every target beside what was reached."""
    parts = ["Machine: " + "; ".join(f"{name} {value}" for name, value in machine.items()) + "."]
    for name in NAMES:
        own = [run for run in runs if run.hypothesis == name]
        if own:
            header = ["case", "measured", "target", "reached", "met", "other programs"]
            parts.append(f"### `{name}`: {TITLES[name]}\n\n{_harness.markdown(header, [_line(name, own)])}")
    return "\n\n".join(parts)


def _line(name: str, runs: Sequence[Run]) -> list[str]:
    one = runs[0]
    what = {"labels": "labels", "report": "rows of 128"}.get(name, f"rows of {DIM}")
    case = f"{one.rows} {what}, {one.classes} classes"
    failed = [run.note for run in runs if run.note]
    if failed:
        return [case, "failed", "-", failed[0], "**no**", "-"]
    target = TARGETS[name]
    elsewhere = [run.busy_elsewhere for run in runs if run.busy_elsewhere == run.busy_elsewhere]
    busy = f"{statistics.median(elsewhere):.1f} cores" if elsewhere else "-"
    if name in ("first", "workers"):
        above, below = (MOMENTS, SUM) if name == "first" else (ONE, TWO)
        reached, pairs, quiet = ratios(runs, above, below)
        medians = [f"{what} {statistics.median(run.seconds for run in runs if run.what == what):.3g} s" for what in (below, above)]
        measured = ", ".join(medians) + f" (n = {pairs} pairs{'' if quiet else ', beside other work'})"
        met = reached <= target if name == "first" else reached >= target
        return [case, measured, f"{'<=' if name == 'first' else '>='} {target:g} x", f"{reached:.2f} x", _yes(met), busy]
    if name == "memory":
        peak, baseline = max(run.peak_mb for run in runs), max(run.baseline_mb for run in runs)
        measured = f"{statistics.median(run.seconds for run in runs):.3g} s, {baseline:.0f} MiB before"
        return [case, measured, f"<= {target:g} MiB", f"{peak:.0f} MiB", _yes(peak <= target), busy]
    seconds = statistics.median(run.seconds for run in runs)
    if name == "report":
        return [case, f"n = {len(runs)}", f"<= {target:g} s", f"{seconds:.2f} s", _yes(seconds <= target), busy]
    return [case, f"n = {len(runs)}", f"<= {1e3 * target:g} ms", f"{1e3 * seconds:.2f} ms", _yes(seconds <= target), busy]


def _yes(met: bool) -> str:
    return "yes" if met else "**no**"


def main(argv: Sequence[str] | None = None, plans: tuple[Plan, Plan] = (FULL, QUICK)) -> int:
    about = "Time and memory of validating trained embeddings."
    options = _harness.read_options(about, NAMES, "smaller sizes, under a minute", HERE, argv)
    if options.child:
        print(json.dumps(child(json.loads(options.child))))
        return 0
    names = [name for name in NAMES if options.only is None or name in options.only]
    plan = plans[1 if options.quick else 0]
    results, readme = options.into / "results", options.into / "README.md"
    machine = _harness.environment()
    runs: list[Run] = []
    if not options.quick and options.only and (results / "validate.csv").exists():
        runs = [run for run in _harness.read_rows(results / "validate.csv", Run) if run.hypothesis not in names]
    with tempfile.TemporaryDirectory() as folder:
        if {"first", "memory"} & set(names):
            make_file(Path(folder), plan.rows, plan.classes)
        for name in names:
            for run in MEASURES[name](plan, Path(folder)):
                runs.append(run)
                line = f"{name:8s} {run.what:12s} {run.seconds:9.4f} s  {run.busy_elsewhere:4.1f} cores elsewhere  {run.note}"
                print(line, file=sys.stderr, flush=True)
    text = report_text(runs, machine)
    print(text)
    if not options.quick:
        results.mkdir(parents=True, exist_ok=True)
        _harness.write_rows(results / "validate.csv", runs, Run)
        readme.write_text(_harness.replace_between(readme.read_text(encoding="utf-8"), SECTION, text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
