"""Training in torch: time and memory of losses and the monitor, beside the implementation that people use.

Rivals run in turns on one core, and a ratio is the median of the ratios of neighbouring runs; where there are pairs
beside less than a tenth of a core of other work (Linux), only they count. Value and gradient are compared in float64,
to 1e-10.

Memory: each rival in a fresh process takes a step with 64 rows, which loads the libraries, then the high-water mark of
resident memory is reset (/proc/self/clear_refs, Linux) and read again after the step (VmHWM); what was resident before
is subtracted. On a CUDA device: `torch.cuda.max_memory_allocated` beyond what was allocated before. Where a CUDA device
is present each table has a second line.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import _tables
from _harness import OURS, Row, in_fresh_process, memory_mb, wait_for_quiet, watched
from _suite import Effort, Table

import optgeom as og

if TYPE_CHECKING:
    import torch

    Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

PEER = "pytorch-metric-learning"
TEMPERATURE = 0.1
AGREEMENT = 1e-10
STEPS = 5  # in one measurement: the system counts the time of other programs in ticks of 10 ms
TARGETS = {"loss": 2.5, "memory": 0.25, "monitor": 0.03}
MONITOR, STEP = "update of the monitor", "training step"
WIDTHS = (784, 512, 512, 128)
TAIL = (2000, 1200, 800, 500, 300, 200, 120, 80, 50, 20)


@dataclass(frozen=True)
class Plan:
    """Rows, their length, classes, repeats by table, and images in a batch of the MLP."""

    rows: int
    size: int
    classes: int
    repeats: Mapping[str, int]
    images: int


FULL = Plan(2048, 128, 100, {"loss": 15, "memory": 3, "monitor": 15}, 256)
QUICK = Plan(1024, 128, 100, {"loss": 1, "memory": 1, "monitor": 1}, 256)
TINY = Plan(128, 8, 10, {"loss": 1, "memory": 1, "monitor": 1}, 16)


def plan(effort: Effort) -> Plan:
    return effort.plan(FULL, QUICK, TINY)


def case(rows: int, size: int, classes: int, device: str) -> str:
    return f"{rows} rows of {size}, {classes} classes, {device}"


def batch(rows: int, size: int, classes: int, device: str, double: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """Features that need a gradient, and labels; every class has a positive."""
    import torch

    generator = torch.Generator().manual_seed(0)
    dtype = torch.float64 if double else torch.float32
    features = torch.randn(rows, size, generator=generator, dtype=torch.float64).to(device, dtype).requires_grad_()
    labels = (torch.randperm(rows, generator=generator) % classes).to(device)
    return features, labels


def loss_of(name: str) -> Loss:
    if name == OURS:
        from optgeom.training.losses import SupConLoss

        return SupConLoss(TEMPERATURE, singletons="skip")
    from pytorch_metric_learning.losses import SupConLoss as Peer

    peer: Loss = Peer(temperature=TEMPERATURE)
    return peer


def step(loss: Loss, features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    features.grad = None
    value = loss(features, labels)
    value.backward()
    finish(features)
    return value


def finish(tensor: torch.Tensor) -> None:
    """Wait for the device."""
    if tensor.is_cuda:
        import torch

        torch.cuda.synchronize()


def steps(loss: Loss, features: torch.Tensor, labels: torch.Tensor) -> None:
    for _ in range(STEPS):
        step(loss, features, labels)


def difference(held: Plan, device: str) -> float:
    """Largest relative difference of the values, and of the gradients in units of the largest entry, in float64."""
    found = []
    for name in (OURS, PEER):
        features, labels = batch(held.rows, held.size, held.classes, device, True)
        value = step(loss_of(name), features, labels)
        found.append((value.item(), features.grad))
    (ours, mine), (theirs, others) = found
    return max(float(abs(ours - theirs) / abs(theirs)), float((mine - others).abs().max() / others.abs().max()))


def devices() -> list[str]:
    import torch

    return ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


def of_loss(effort: Effort) -> Iterator[Row]:
    held = plan(effort)
    for device in devices():
        away = difference(held, device)
        features, labels = batch(held.rows, held.size, held.classes, device)
        calls = {name: partial(steps, loss_of(name), features, labels) for name in (OURS, PEER)}
        for call in calls.values():
            call()
        for turn in range(effort.times(held.repeats["loss"])):
            if effort.patient and turn % 3 == 0:
                wait_for_quiet()
            for name in list(calls)[:: -1 if turn % 2 else 1]:
                seconds, _, elsewhere = watched(calls[name])
                what = case(held.rows, held.size, held.classes, device)
                yield Row(what, name, held.rows, turn, seconds / STEPS, difference=away, busy_elsewhere=elsewhere)


def of_memory(effort: Effort) -> Iterator[Row]:
    held = plan(effort)
    size = {"rows": held.rows, "size": held.size, "classes": held.classes}
    for device in devices():
        for turn in range(effort.times(held.repeats["memory"])):
            for name in (OURS, PEER):
                found = in_fresh_process("bench_training", {"name": name, "device": device, **size})
                yield replace(Row(case(held.rows, held.size, held.classes, device), name, held.rows, turn), **found)


def of_monitor(effort: Effort) -> Iterator[Row]:
    images = plan(effort).images
    for device in devices():
        watching = WatchedTraining(images, device)
        for turn in range(-1, effort.times(plan(effort).repeats["monitor"])):
            if effort.patient and turn % 5 == 0:
                wait_for_quiet()
            _, (seconds, update), elsewhere = watched(watching.steps)
            for what, took in (
                ((STEP, seconds), (MONITOR, update)) if turn >= 0 else ()
            ):  # the first turn loads what it needs
                where = case(2 * images, WIDTHS[-1], len(TAIL), device)
                yield Row(where, what, 2 * images, turn, took / STEPS, busy_elsewhere=elsewhere)


class WatchedTraining:
    """An MLP trained on random images, and a monitor of its features."""

    def __init__(self, images: int, device: str) -> None:
        import torch

        from optgeom.training.losses import SupConLoss
        from optgeom.training.monitor import GeometryMonitor

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
            finish(self.inputs)
            trained = time.perf_counter()
            self.monitor.update(features, self.labels)
            finish(self.inputs)
            training += trained - began
            updates += time.perf_counter() - trained
        return training, updates


def child(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """One step of one rival, and the memory that it took."""
    import torch

    loss, where = loss_of(arguments["name"]), arguments["device"]
    step(loss, *batch(64, arguments["size"], min(arguments["classes"], 16), where))
    features, labels = batch(arguments["rows"], arguments["size"], arguments["classes"], where)
    if where == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        began = time.perf_counter()
        step(loss, features, labels)
        return {
            "seconds": time.perf_counter() - began,
            "extra_mb": (torch.cuda.max_memory_allocated() - before) / 2**20,
        }
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = memory_mb("VmRSS")
    began = time.perf_counter()
    step(loss, features, labels)
    return {"seconds": time.perf_counter() - began, "extra_mb": memory_mb("VmHWM") - before}


def render(name: str, rows: Sequence[Row]) -> str:
    header = [
        "case",
        *((MONITOR, STEP) if name == "monitor" else (OURS, PEER)),
        "target",
        "reached",
        "met",
        "other programs",
    ]
    return _tables.a_line_a_case(header, rows, partial(_line, name))


def _line(name: str, rows: Sequence[Row]) -> list[str]:
    one, target = rows[0], TARGETS[name]
    failed = [row.note for row in rows if row.failed]
    if failed:
        return [one.case, "failed", failed[0], "-", "-", "**no**", "-"]
    if name == "memory":
        ours, theirs = (_tables.median(row.extra_mb for row in rows if row.solver == who) for who in (OURS, PEER))
        reached = ours / theirs
        met = _tables.yes(reached <= target)
        return [one.case, f"{ours:.1f} MiB", f"{theirs:.1f} MiB", f"<= {target:g} x", f"{reached:.3f} x", met, "-"]
    left, right = (MONITOR, STEP) if name == "monitor" else (OURS, PEER)
    reached, pairs, quiet = (
        _tables.ratios(rows, left, right) if name == "monitor" else _tables.ratios(rows, right, left)
    )
    mine, other = (
        f"{1e3 * _tables.median(row.seconds for row in rows if row.solver == who):.3g} ms" for who in (left, right)
    )
    mine = f"{mine} (n = {pairs} pairs{'' if quiet else ', beside other work'})"
    busy = _tables.busy(rows)
    if name == "monitor":
        return [
            one.case,
            mine,
            other,
            f"<= {100 * target:g} %",
            f"{100 * reached:.2f} %",
            _tables.yes(reached <= target),
            busy,
        ]
    away = max((row.difference for row in rows), default=math.nan)
    told = f"{one.case}; value and gradient equal to {away:.0e}"
    return [
        told,
        mine,
        other,
        f">= {target:g} x",
        f"{reached:.2f} x",
        _tables.yes(reached >= target and away <= AGREEMENT),
        busy,
    ]


TABLES = (
    Table(
        "training-loss",
        "SupCon in torch, forward and backward",
        "Blocks of rows beat a matrix, with the same value and gradient.",
        of_loss,
        partial(render, "loss"),
    ),
    Table(
        "training-memory",
        "The same step, memory beyond what was there before",
        "A matrix of all pairs need not exist.",
        of_memory,
        partial(render, "memory"),
    ),
    Table(
        "training-monitor",
        "Update of the monitor, beside a training step of an MLP",
        "Watching costs nothing that one would notice.",
        of_monitor,
        partial(render, "monitor"),
    ),
)
