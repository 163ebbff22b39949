"""Training in torch: how long do losses and the monitor take, and how much memory, beside the implementation that people use?

    python benchmarks/bench_training.py             the measurement in benchmarks/README.md
    python benchmarks/bench_training.py --quick     smaller batches and fewer repeats, half a minute; prints the tables and writes nothing
    python benchmarks/bench_training.py --only NAME one hypothesis; the rows of the others stay

Hypotheses, each with its target:

* `loss`: blocks of rows beat a matrix. SupCon, forward and backward, of 2048 rows of length 128 is at least 2.5 times as fast as
  pytorch-metric-learning's SupConLoss, with the same value and gradient.
* `memory`: a (B, B) matrix need not exist. The same step takes at most a quarter of the memory beyond what was there before it.
* `monitor`: watching costs nothing that one would notice. An update of the monitor after each step is at most 3 % of the step of an MLP
  (784-512-512-128, SupCon, 256 images x 2 views, 10 classes). Both are timed within the same steps.

Rivals run in turns on one core, and a ratio is the median of the ratios of neighbouring runs; where there are pairs beside less than a
tenth of a core of other work (Linux), only they count. Value and gradient are compared in float64, to 1e-10.

Memory: each rival in a fresh process takes a step with 64 rows, which loads the libraries, then the high-water mark of resident memory is
reset (/proc/self/clear_refs, Linux) and read again after the step (VmHWM); what was resident before is subtracted. On a CUDA device:
`torch.cuda.max_memory_allocated` beyond what was allocated before. Where a CUDA device is present each hypothesis has a second row.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

# Set before torch is loaded, so that nobody gains by a second core.
os.environ.update({name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")})

import _harness
import torch
from bench_scan import _busy_seconds, _wait_for_quiet
from bench_validate import ratios

import optgeom as og
from optgeom.training.losses import SupConLoss
from optgeom.training.monitor import GeometryMonitor

HERE = Path(__file__).resolve().parent
SECTION = "bench_training"
TITLES = {"loss": "SupCon, forward and backward", "memory": "The same step, memory beyond what was there before"}
TITLES["monitor"] = "Update of the monitor, beside a training step of an MLP"
NAMES = tuple(TITLES)
OURS, PEER = "optgeom", "pytorch-metric-learning"
TEMPERATURE = 0.1
AGREEMENT = 1e-10
STEPS = 5  # in one measurement: the system counts the time of other programs in ticks of 10 ms
TARGETS = {"loss": 2.5, "memory": 0.25, "monitor": 0.03}
MONITOR, STEP = "update of the monitor", "training step"
WIDTHS = (784, 512, 512, 128)
TAIL = (2000, 1200, 800, 500, 300, 200, 120, 80, 50, 20)


@dataclass(frozen=True)
class Plan:
    """Rows, their length, classes, repeats by hypothesis, whether to wait for quiet, and images in a batch of the MLP."""

    rows: int
    size: int
    classes: int
    repeats: Mapping[str, int]
    wait: bool
    images: int = 256


FULL = Plan(2048, 128, 100, {"loss": 15, "memory": 3, "monitor": 15}, True)
QUICK = Plan(1024, 128, 100, {"loss": 5, "memory": 1, "monitor": 5}, False)


@dataclass(frozen=True)
class Run:
    """One run; memory in MiB beyond what was there before, the largest relative difference of value and gradient from the peer's."""

    hypothesis: str
    what: str
    device: str
    rows: int
    size: int
    classes: int
    repeat: int
    seconds: float = math.nan
    extra_mb: float = math.nan
    difference: float = math.nan
    busy_elsewhere: float = math.nan
    note: str = ""


def batch(rows: int, size: int, classes: int, device: str, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    """Features that need a gradient, and labels; every class has a positive."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(rows, size, generator=generator, dtype=torch.float64).to(device, dtype).requires_grad_()
    labels = (torch.randperm(rows, generator=generator) % classes).to(device)
    return features, labels


def loss_of(name: str) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    if name == OURS:
        return SupConLoss(TEMPERATURE, singletons="skip")
    from pytorch_metric_learning.losses import SupConLoss as Peer

    return Peer(temperature=TEMPERATURE)


def step(loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    features.grad = None
    value = loss(features, labels)
    value.backward()
    if features.is_cuda:
        torch.cuda.synchronize()
    return value


def steps(loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], features: torch.Tensor, labels: torch.Tensor) -> None:
    for _ in range(STEPS):
        step(loss, features, labels)


def difference(plan: Plan, device: str) -> float:
    """Largest relative difference of the values, and of the gradients in units of the largest entry, in float64."""
    found = []
    for name in (OURS, PEER):
        features, labels = batch(plan.rows, plan.size, plan.classes, device, torch.float64)
        value = step(loss_of(name), features, labels)
        found.append((value.item(), features.grad))
    (ours, mine), (theirs, others) = found
    return max(abs(ours - theirs) / abs(theirs), ((mine - others).abs().max() / others.abs().max()).item())


def devices() -> list[str]:
    return ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


def of_loss(plan: Plan) -> Iterator[Run]:
    for device in devices():
        away = difference(plan, device)
        features, labels = batch(plan.rows, plan.size, plan.classes, device)
        calls = {name: partial(steps, loss_of(name), features, labels) for name in (OURS, PEER)}
        for call in calls.values():
            call()
        for turn in range(plan.repeats["loss"]):
            if plan.wait and turn % 3 == 0:
                _wait_for_quiet()
            for name in list(calls)[:: -1 if turn % 2 else 1]:
                busy = _busy_seconds()
                seconds, _ = _harness.timed(calls[name])
                elsewhere = max(0.0, (_busy_seconds() - busy) / seconds)
                yield Run("loss", name, device, plan.rows, plan.size, plan.classes, turn, seconds / STEPS, math.nan, away, elsewhere)


def of_memory(plan: Plan) -> Iterator[Run]:
    for device in devices():
        for turn in range(plan.repeats["memory"]):
            for name in (OURS, PEER):
                size = {"rows": plan.rows, "size": plan.size, "classes": plan.classes}
                found = _harness.in_fresh_process(Path(__file__), {"name": name, "device": device, **size})
                run = Run("memory", name, device, plan.rows, plan.size, plan.classes, turn)
                yield replace(run, **found)


def of_monitor(plan: Plan) -> Iterator[Run]:
    for device in devices():
        watched = WatchedTraining(plan.images, device)
        for turn in range(-1, plan.repeats["monitor"]):
            if plan.wait and turn % 5 == 0:
                _wait_for_quiet()
            busy = _busy_seconds()
            total, (seconds, update) = _harness.timed(watched.steps)
            elsewhere = max(0.0, (_busy_seconds() - busy) / total)
            for what, took in ((STEP, seconds), (MONITOR, update)) if turn >= 0 else ():  # the first turn loads what it needs
                yield Run(
                    "monitor", what, device, 2 * plan.images, WIDTHS[-1], len(TAIL), turn, took / STEPS, busy_elsewhere=elsewhere
                )


class WatchedTraining:
    """An MLP trained on random images, and a monitor of its features."""

    def __init__(self, images: int, device: str) -> None:
        torch.manual_seed(0)
        layers = [torch.nn.Linear(*shape) for shape in itertools.pairwise(WIDTHS)]
        self.net = torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1], torch.nn.ReLU(), layers[2]).to(device)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.05, momentum=0.9)
        self.loss = SupConLoss(TEMPERATURE)
        self.monitor = GeometryMonitor(og.ClassDistribution.from_counts(TAIL), og.SupCon(TEMPERATURE))
        self.inputs = torch.randn(2 * images, WIDTHS[0], device=device)
        self.labels = torch.randint(len(TAIL), (images,), device=device)

    def steps(self) -> tuple[float, float]:
        """Seconds of the training and of the updates in some steps."""
        training = updates = 0.0
        for _ in range(STEPS):
            began = time.perf_counter()
            features = self.net(self.inputs).unflatten(0, (-1, 2))
            self.optimizer.zero_grad()
            self.loss(features, self.labels).backward()
            self.optimizer.step()
            self._finish()
            trained = time.perf_counter()
            self.monitor.update(features, self.labels)
            self._finish()
            training += trained - began
            updates += time.perf_counter() - trained
        return training, updates

    def _finish(self) -> None:
        if self.inputs.is_cuda:
            torch.cuda.synchronize()


MEASURES: dict[str, Callable[[Plan], Iterator[Run]]] = {"loss": of_loss, "memory": of_memory, "monitor": of_monitor}


def child(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """One step of one rival, and the memory that it took."""
    loss = loss_of(arguments["name"])
    where = arguments["device"]
    step(loss, *batch(64, arguments["size"], min(arguments["classes"], 16), where))
    features, labels = batch(arguments["rows"], arguments["size"], arguments["classes"], where)
    if where == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step(loss, features, labels)
        return {"extra_mb": (torch.cuda.max_memory_allocated() - before) / 2**20}
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = resident_mb("VmRSS")
    began = time.perf_counter()
    step(loss, features, labels)
    return {"seconds": time.perf_counter() - began, "extra_mb": resident_mb("VmHWM") - before}


def resident_mb(what: str) -> float:
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    return int(status.split(f"{what}:")[1].split()[0]) / 1024


def report_text(runs: Sequence[Run], machine: Mapping[str, str]) -> str:
    """The tables, from the rows alone: every target beside what was reached."""
    parts = ["Machine: " + "; ".join(f"{name} {value}" for name, value in machine.items()) + "."]
    for name in NAMES:
        header = ["case", *((MONITOR, STEP) if name == "monitor" else (OURS, PEER)), "target", "reached", "met", "other programs"]
        own = [run for run in runs if run.hypothesis == name]
        lines = [_line(name, [run for run in own if run.device == device]) for device in dict.fromkeys(run.device for run in own)]
        if lines:
            parts.append(f"### `{name}`: {TITLES[name]}\n\n{_harness.markdown(header, lines)}")
    return "\n\n".join(parts)


def _line(name: str, runs: Sequence[Run]) -> list[str]:
    one, target = runs[0], TARGETS[name]
    case = f"{one.rows} rows of {one.size}, {one.classes} classes, {one.device}"
    failed = [run.note for run in runs if run.note]
    if failed:
        return [case, "failed", failed[0], "-", "-", "**no**", "-"]
    if name == "memory":
        ours, theirs = (statistics.median(run.extra_mb for run in runs if run.what == what) for what in (OURS, PEER))
        reached = ours / theirs
        return [case, f"{ours:.1f} MiB", f"{theirs:.1f} MiB", f"<= {target:g} x", f"{reached:.3f} x", _yes(reached <= target), "-"]
    left, right = (MONITOR, STEP) if name == "monitor" else (OURS, PEER)
    reached, pairs, quiet = ratios(runs, left, right) if name == "monitor" else ratios(runs, right, left)
    ours, theirs = (f"{1e3 * statistics.median(run.seconds for run in runs if run.what == what):.3g} ms" for what in (left, right))
    elsewhere = [run.busy_elsewhere for run in runs if run.busy_elsewhere == run.busy_elsewhere]
    busy = f"{statistics.median(elsewhere):.1f} cores" if elsewhere else "-"
    ours = f"{ours} (n = {pairs} pairs{'' if quiet else ', beside other work'})"
    if name == "monitor":
        return [case, ours, theirs, f"<= {100 * target:g} %", f"{100 * reached:.2f} %", _yes(reached <= target), busy]
    met = reached >= target and one.difference <= AGREEMENT
    case = f"{case}; value and gradient equal to {one.difference:.0e}"
    return [case, ours, theirs, f">= {target:g} x", f"{reached:.2f} x", _yes(met), busy]


def _yes(met: bool) -> str:
    return "yes" if met else "**no**"


def main(argv: Sequence[str] | None = None, plans: tuple[Plan, Plan] = (FULL, QUICK)) -> int:
    about = "Time and memory of training losses and the monitor."
    options = _harness.read_options(about, NAMES, "smaller batches, half a minute", HERE, argv)
    if options.child:
        print(json.dumps(child(json.loads(options.child))))
        return 0
    names = [name for name in NAMES if options.only is None or name in options.only]
    plan = plans[1 if options.quick else 0]
    results, readme = options.into / "results", options.into / "README.md"
    machine = {**_harness.environment(), **_harness.versions("torch", "pytorch-metric-learning")}
    runs: list[Run] = []
    if not options.quick and options.only and (results / "training.csv").exists():
        runs = [run for run in _harness.read_rows(results / "training.csv", Run) if run.hypothesis not in names]
    for name in names:
        for run in MEASURES[name](plan):
            runs.append(run)
            line = f"{name:8s} {run.what:24s} {run.device:5s} {1e3 * run.seconds:8.2f} ms {run.extra_mb:8.1f} MiB  {run.note}"
            print(line, file=sys.stderr, flush=True)
    text = report_text(runs, machine)
    print(text)
    if not options.quick:
        results.mkdir(parents=True, exist_ok=True)
        _harness.write_rows(results / "training.csv", runs, Run)
        readme.write_text(_harness.replace_between(readme.read_text(encoding="utf-8"), SECTION, text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
