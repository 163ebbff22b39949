"""The monitor in two processes equals one that sees both their batches."""

from __future__ import annotations

import json
import os
import sys

import numpy as np
import pytest

import optgeom as og

torch = pytest.importorskip("torch")
pytest.importorskip("torchmetrics")
if not torch.distributed.is_available():
    pytest.skip("this PyTorch has no torch.distributed", allow_module_level=True)

from optgeom.training.monitor import GeometryMonitor  # noqa: E402

STEPS = 12
OPTIONS = {"window": {"window": 5}, "equal": {"window": None}, "wide": {"window": None, "dim": 8}}


def geometry():
    return og.solve(og.ClassDistribution.from_counts([40, 25, 12, 6]), og.SupCon(0.5))


def batches(rank):
    """Features and labels that differ between the processes.

    With ignored labels, rows that are not finite, and a class that only one of them has.
    """
    generator = torch.Generator().manual_seed(rank)
    for _ in range(STEPS):
        rows = torch.randn(16, 2, 8, generator=generator) + 2
        labels = torch.randint(-1, 3 + rank, (16,), generator=generator)
        rows[3, 0, 0] = torch.nan
        yield rows, labels


def process(rank, folder):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    answers = {}
    for name, options in OPTIONS.items():
        monitor = GeometryMonitor(geometry(), **options)
        for step, (rows, labels) in enumerate(batches(rank)):
            monitor.update(rows, labels)
            if step == STEPS // 2:
                # A log in between changes nothing.
                answers[f"{name}, half"] = monitor.compute()
        own = monitor.table.clone()
        answers[name] = monitor.compute()
        torch.testing.assert_close(
            monitor.table, own, rtol=0, atol=0, equal_nan=True
        )  # as before the processes added up
        with monitor.sync_context():
            answers[f"{name}, gram"] = monitor.class_gram().tolist()
    # A process without a batch does not know the length of the rows.
    for name, options in {"one, lazy": {}, "one, dim": {"dim": 8}}.items():
        monitor = GeometryMonitor(geometry(), **options)
        if rank == 0:
            monitor.update(*next(batches(0)))
        else:
            monitor._update_count = 1  # or it warns
        answers[name] = monitor.compute()
    torch.distributed.destroy_process_group()
    with open(f"{folder}/{rank}.json", "w", encoding="utf-8") as stream:
        json.dump(answers, stream)


def together(options, steps):
    """One monitor on the union of the batches of each step."""
    monitor = GeometryMonitor(geometry(), **options)
    for step, pair in enumerate(zip(batches(0), batches(1), strict=True)):
        if step < steps:
            monitor.update(*(torch.cat(part) for part in zip(*pair, strict=True)))
    return monitor


def test_two_processes_are_one(tmp_path, monkeypatch):
    if sys.platform == "linux" and "GLOO_SOCKET_IFNAME" not in os.environ:
        # Not by the name of the machine, which some cannot look up.
        monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    torch.multiprocessing.spawn(process, args=(str(tmp_path),), nprocs=2)
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text(encoding="utf-8")) for rank in (0, 1))
    assert json.dumps(first) == json.dumps(second), "every process logs the same"
    for name, options in OPTIONS.items():
        assert first[f"{name}, half"] == pytest.approx(
            together(options, STEPS // 2 + 1).compute(), rel=1e-10, abs=1e-10
        )
        assert first[name] == pytest.approx(together(options, STEPS).compute(), rel=1e-10, abs=1e-10)
        assert np.array(first[f"{name}, gram"]) == pytest.approx(together(options, STEPS).class_gram(), abs=1e-12)
    assert first["window"]["classes_measured"] == 4
    alone = GeometryMonitor(geometry())
    alone.update(*next(batches(0)))
    for name in ("one, lazy", "one, dim"):
        assert first[name] == pytest.approx(alone.compute(), rel=1e-10, abs=1e-10, nan_ok=True)
