"""The monitor as a torchmetrics metric: types, devices, copies, checkpoints, compiled and inference mode."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest

import optgeom as og
from optgeom.errors import InvalidInputError

torch = pytest.importorskip("torch")
torchmetrics = pytest.importorskip("torchmetrics")

from helpers.monitored import GEOMETRY, assert_same, data, fed, tensors  # noqa: E402

from optgeom.training.monitor import GeometryMonitor  # noqa: E402


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float16, 2e-3), (torch.bfloat16, 2e-2), (torch.float32, 1e-6)])
def test_half_precision(dtype, tolerance):
    rows, labels = tensors(*data())
    monitor = fed(GeometryMonitor(GEOMETRY, window=None), rows.to(dtype), labels)
    assert monitor.table.dtype == torch.float64
    exact = fed(GeometryMonitor(GEOMETRY, window=None), rows, labels)
    assert np.abs(monitor.class_gram() - exact.class_gram()).max() < tolerance
    # The sums are exact whatever the type: as of the rounded rows in float64.
    rounded = fed(GeometryMonitor(GEOMETRY, window=None), rows.to(dtype).double(), labels)
    assert_same(monitor.compute(), rounded.compute())


def test_types_of_a_module_leave_the_sums_alone():
    rows, labels = tensors(*data())
    module = torch.nn.ModuleDict(
        {"monitor": GeometryMonitor(GEOMETRY, class_names=GEOMETRY.names), "layer": torch.nn.Linear(2, 2)}
    )
    fed(module["monitor"], rows, labels)
    expected = module["monitor"].compute()
    module.half().bfloat16()
    assert module["layer"].weight.dtype == torch.bfloat16
    assert module["monitor"].table.dtype == torch.float64
    assert_same(module["monitor"].compute(), expected)
    single = fed(GeometryMonitor(GEOMETRY).set_dtype(torch.float32), rows, labels)
    assert single.table.dtype == torch.float32
    assert single.compute()["gram_distance"] == pytest.approx(expected["gram_distance"], abs=1e-4)


def test_reset_and_the_same_numbers_again():
    rows, labels = tensors(*data())
    monitor = fed(GeometryMonitor(GEOMETRY), rows, labels)
    expected = monitor.compute()
    monitor.reset()
    with pytest.warns(UserWarning, match="before the ``update`` method"):
        empty = monitor.compute()
    assert empty["images"] == 0 and empty["classes_seen"] == 0 and math.isnan(empty["max_angle_error_deg"])
    assert np.isnan(monitor.class_gram()).all() and math.isnan(empty["simplex_gram_distance"])
    assert_same(fed(monitor, rows, labels).compute(), expected)


def test_call_gives_the_batch_and_ages_the_window_once():
    rows, labels = tensors(*data())
    called, updated = GeometryMonitor(GEOMETRY, window=3), GeometryMonitor(GEOMETRY, window=3)
    for start in (0, 40):
        batch = called(rows[start : start + 40], labels[start : start + 40])
        updated.update(rows[start : start + 40], labels[start : start + 40])
    assert_same(called.compute(), updated.compute())
    alone = GeometryMonitor(GEOMETRY)
    alone.update(rows[40:80], labels[40:80])
    assert_same(batch, alone.compute())


def test_merging_is_seeing_the_union():
    rows, labels = tensors(*data())
    whole = fed(GeometryMonitor(GEOMETRY, window=None), rows, labels)
    parts = [
        fed(GeometryMonitor(GEOMETRY, window=None), rows[part], labels[part])
        for part in (slice(0, 30), slice(30, None))
    ]
    fresh = GeometryMonitor(GEOMETRY, window=None)
    for part in (parts[1], parts[0].metric_state):
        fresh.merge_state(part)
    assert_same(fresh.compute(), whole.compute())
    parts[0].compute()
    parts[0].merge_state(GeometryMonitor(GEOMETRY))
    parts[0].merge_state(parts[1])
    assert_same(parts[0].compute(), whole.compute())
    with pytest.raises(InvalidInputError, match=r"`incoming_state` must be of 4 classes; got 3"):
        fresh.merge_state(GeometryMonitor(og.ClassDistribution.from_counts([5, 5, 5]), og.SupCon(0.5)))
    with pytest.raises(InvalidInputError, match=r"`incoming_state` must be a GeometryMonitor .*; got MeanMetric"):
        fresh.merge_state(torchmetrics.MeanMetric())


def test_pickle_and_copies():
    rows, labels = tensors(*data())
    monitor = fed(GeometryMonitor(GEOMETRY, class_names=GEOMETRY.names, prefix="train/"), rows[:40], labels[:40])
    for other in (pickle.loads(pickle.dumps(monitor)), copy.deepcopy(monitor), monitor.clone()):
        fed(other, rows[40:], labels[40:])
        straight = fed(GeometryMonitor(GEOMETRY, prefix="train/"), rows, labels)
        assert_same(other.compute(), straight.compute())
    assert monitor.compute()["train/images"] < straight.compute()["train/images"]


def test_state_dict_holds_the_window_on_request():
    rows, labels = tensors(*data())
    monitor = fed(GeometryMonitor(GEOMETRY), rows[:40], labels[:40])
    assert not monitor.state_dict()
    monitor.persistent(True)
    state = monitor.state_dict()
    before = state["table"].clone()
    resumed = GeometryMonitor(GEOMETRY)
    resumed.persistent(True)
    resumed.load_state_dict(state)
    fed(resumed, rows[40:], labels[40:])
    assert torch.equal(state["table"], before)
    assert resumed.compute() == fed(monitor, rows[40:], labels[40:]).compute()
    assert not GeometryMonitor(GEOMETRY, class_names=GEOMETRY.names).state_dict()


def test_keeps_no_graph_and_leaves_the_random_numbers_alone():
    rows, labels = tensors(*data())
    rows.requires_grad_()
    torch.manual_seed(0)
    before = torch.get_rng_state()
    monitor = GeometryMonitor(GEOMETRY)
    fed(monitor, rows * 2, labels)
    monitor(rows * 2, labels)
    assert torch.equal(torch.get_rng_state(), before)
    assert not monitor.table.requires_grad
    with torch.no_grad():
        fed(monitor, rows, labels)
    assert rows.grad is None and torch.is_grad_enabled()


def test_inference_mode_and_back():
    rows, labels = tensors(*data())
    expected = fed(
        GeometryMonitor(GEOMETRY), torch.cat([rows, rows, rows]), torch.cat([labels, labels, labels]), 83
    ).compute()
    monitor = GeometryMonitor(GEOMETRY)
    for inference in (True, False, True):
        with torch.inference_mode(inference):
            monitor.update(rows, labels)
    assert_same(monitor.compute(), expected)
    with torch.inference_mode():
        monitor.reset()
    monitor.update(rows, labels)
    assert monitor.compute()["images"] == 83


def test_in_a_compiled_step():
    rows, labels = tensors(*data(), torch.float32)
    monitor, net = GeometryMonitor(GEOMETRY), torch.nn.Linear(6, 5)

    def step(rows, labels):
        features = net(rows)
        monitor.update(features, labels)
        return features.sum()

    compiled = torch.compile(step, backend="eager")
    for _ in range(3):
        compiled(rows, labels).backward()
    plain = GeometryMonitor(GEOMETRY)
    for _ in range(3):
        plain.update(net(rows), labels)
    assert_same(monitor.compute(), plain.compute())


@pytest.mark.parametrize("names", [None, GEOMETRY.names])
@pytest.mark.parametrize("shape", [(8, 3), (8, 2, 3)])
def test_update_reads_no_value(names, shape):
    # Tensors on this device have no values: whatever would wait for one fails.
    monitor = GeometryMonitor(GEOMETRY, class_names=names)
    for _ in range(2):
        monitor.update(torch.empty(*shape, device="meta"), torch.empty(8, dtype=torch.long, device="meta"))
    assert monitor.table.device.type == "meta" and monitor.table.shape == (7, 6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_update_does_not_wait_for_the_device():
    rows, labels = tensors(*data(), torch.float32)
    monitor, host = GeometryMonitor(GEOMETRY, class_names=GEOMETRY.names), fed(GeometryMonitor(GEOMETRY), rows, labels)
    rows, labels = rows.cuda(), labels.cuda()
    monitor.update(rows, labels)  # moves the monitor
    monitor.reset()
    mode = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        fed(monitor, rows, labels)
    finally:
        torch.cuda.set_sync_debug_mode(mode)
    assert monitor.table.is_cuda
    assert_same(monitor.compute(), host.compute())
    assert_same(monitor.cpu().compute(), host.compute())
