"""What `collect` refuses, what it notes, and that workers and clusters change nothing."""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest
from helpers.moments_sources import Rows, Sharded, example

import optgeom as og
from optgeom.embeddings.moments.collect import collect
from optgeom.embeddings.moments.second_pass import SecondPass
from optgeom.embeddings.moments.source import Batch
from optgeom.inputs import parallel


def same(one, two):
    for name in ("names", "counts", "sums", "squares"):
        np.testing.assert_array_equal(getattr(one.moments, name), getattr(two.moments, name))
    for name in ("pooled", "traces", "full", "projected"):
        np.testing.assert_array_equal(getattr(one.within, name), getattr(two.within, name))
    assert (one.notes, one.num_rows, one.norms, one.ignored) == (two.notes, two.num_rows, two.norms, two.ignored)


# --------------------------------------------------------------------------------------------------------------- rows
# without a direction


@pytest.mark.parametrize("batch_rows", [None, 1, 7])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_the_first_row_and_column_that_is_not_finite_is_named(value, batch_rows):
    """Case 19."""
    rows, labels = example(dtype=np.float32, dim=9)
    rows[3, 7] = value
    rows[50] = np.nan
    with pytest.raises(
        og.InvalidInputError, match=rf"must be finite; got {value} in row 3, column 7 of x.npy, and 2 of 120 rows"
    ):
        collect(Rows(rows, labels, name="x.npy"), batch_rows=batch_rows)


def test_a_tenth_of_the_rows_is_nan():
    rows, labels = example(n=200)
    broken = np.sort(np.random.default_rng(0).permutation(200)[:20])
    rows[broken, 2] = np.nan
    with pytest.raises(og.InvalidInputError, match=f"got nan in row {broken[0]}, column 2, and 20 of 200 rows"):
        collect(Rows(rows, labels))


@pytest.mark.parametrize("kind", ["rows", "views", "groups"])
def test_a_zero_vector_is_named(kind):
    """Case 18."""
    rows, labels = example(n=20, views=2 if kind == "views" else None)
    if kind == "views":
        rows[0, 1] = 0
    else:
        rows[[0, 5]] = 0
    groups = np.arange(20) if kind == "groups" else None
    where = "row 0, view 1, and 1" if kind == "views" else "row 0, and 2"
    with pytest.raises(
        og.InvalidInputError, match=rf"direction in every row; got a zero vector in {where} of 20 rows are zero"
    ):
        collect(Rows(rows, labels, groups))


def test_the_first_row_is_that_of_the_first_shard_whatever_is_merged_first():
    rows, labels = example(n=30)
    rows[[12, 25]] = np.nan
    shards = [
        Rows(rows[start : start + 10], labels[start : start + 10], name=f"shard-{start}.npy") for start in (0, 10, 20)
    ]
    with pytest.raises(og.InvalidInputError, match=r"got nan in row 2, column 0 of shard-10.npy, and 2 of 30 rows"):
        collect(Sharded(*shards))


def test_rows_with_an_ignored_label_may_be_anything():
    rows, labels = example(n=30)
    labels[4] = 255
    rows[4] = np.nan
    collected = collect(Rows(rows, labels), ignore=(255,))
    assert collected.ignored == {"255": 1} and "1 rows with label 255 left out" in collected.notes
    assert collected.num_rows == 30 and collected.moments.counts.sum() == 29 and "255" not in collected.moments.names


def test_an_image_whose_views_cancel_is_no_zero_row():
    collected = collect(Rows(np.array([[[1.0, 0], [-1, 0]], [[0, 1], [0, 1]]]), np.array([0, 0])))
    np.testing.assert_allclose(collected.moments.squares, [1.0])


# ----------------------------------------------------------------------------------------------------------------------
# other refusals


def test_a_nan_label_names_its_row_and_its_shard():
    """Case 16."""
    rows, _ = example(n=8)
    whole = Rows(rows[:4], np.array([0, np.nan, 1, 1]), name="x")
    with pytest.raises(og.InvalidInputError, match=r"`labels` must not be missing; got nan in row 1 of x \(drop"):
        collect(whole, batch_rows=1)
    shards = Sharded(
        Rows(rows[4:], np.array([0, 1, 2, 3]), name="a"), Rows(rows[:4], np.array([0, 1, np.nan, 1]), name="b")
    )
    with pytest.raises(og.InvalidInputError, match=r"got nan in row 2 of b \(drop"):
        collect(shards)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (Rows(np.eye(3), None), "`labels` must have one entry per row; got none"),
        (Rows(np.empty((0, 3)), np.empty(0)), "must have at least one row; got none"),
        (Sharded(), "must have at least one row; got none"),
        (Rows(np.ones(3), np.arange(3)), r"must be \(n, d\), or \(n, views, d\); got a batch of shape \(3,\)"),
        (Rows(np.ones((3, 0)), np.arange(3)), r"got a batch of shape \(3, 0\)"),
        (Rows(np.array([["a"]]), np.arange(1)), "must be real numbers; got values of type <U1"),
        (Rows(np.eye(3), np.arange(2), cuts=[]), "`labels` must have one entry per row; got 2 for 3 rows"),
        (
            Rows(np.eye(3), np.arange(3), np.arange(2), cuts=[]),
            "`group_ids` must have one entry per row; got 2 for 3 rows",
        ),
        (Rows(np.eye(3), np.arange(3), np.eye(3)), r"`group_ids` must be one id per row; got shape \(3, 3\)"),
        (
            Sharded(Rows(np.eye(3), np.arange(3)), Rows(np.eye(2), np.arange(2), name="b")),
            r"rows of one shape; got \(3,\) and \(2,\)",
        ),
        (
            Sharded(Rows(np.eye(3), np.arange(3)), Rows(np.eye(3), np.arange(3), np.arange(3))),
            "`group_ids` must be given for all rows or for none",
        ),
    ],
)
def test_sources_that_are_refused(source, message):
    with pytest.raises(og.InvalidInputError, match=message):
        collect(source)


@pytest.mark.parametrize("options", [{"workers": 0}, {"batch_rows": 0}, {"sample": -1}])
def test_options_that_are_refused(options):
    with pytest.raises(og.InvalidInputError, match=f"`{next(iter(options))}` must be a whole number"):
        collect(Rows(np.eye(3), np.arange(3)), **options)


# ----------------------------------------------------------------------------------------------------------------------
# notes


def test_norms_are_recorded_and_told():
    """Case 20."""
    rng = np.random.default_rng(0)
    unit = rng.normal(size=(40, 5))
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    norms = np.linspace(1, 20, 40)
    labels = np.arange(40) % 2
    collected = collect(Rows(unit * norms[:, None], labels))
    np.testing.assert_allclose(
        [collected.norms.smallest, collected.norms.largest, collected.norms.mean], [1, 20, norms.mean()]
    )
    assert "rows were not of length 1 (norms 1 to 20, mean 10.5): normalised" in collected.notes
    np.testing.assert_allclose(collected.moments.sums, collect(Rows(unit, labels)).moments.sums, atol=1e-13)
    for dtype in (np.float64, np.float32, np.float16):
        assert not any("normalised" in note for note in collect(Rows(unit.astype(dtype), labels)).notes), dtype


def test_a_class_that_does_not_occur_is_none():
    """Case 23: one-hot rows of four columns, of which three are used; what is left is a perfect simplex."""
    simplex = np.array([[1, 0], [-0.5, np.sqrt(0.75)], [-0.5, -np.sqrt(0.75)]])
    labels = np.array([0, 1, 3] * 4)
    collected = collect(Rows(np.tile(simplex, (4, 1)), np.eye(4)[labels]))
    assert (
        collected.moments.names == ("0", "1", "3")
        and "one-hot columns without samples are not classes: 2" in collected.notes
    )
    means = collected.moments.sums / collected.moments.counts[:, None]
    np.testing.assert_allclose(means @ means.T, 1.5 * np.eye(3) - 0.5, atol=1e-12)


def test_one_class_is_no_business_of_the_moments():
    """Case 17 is refused by those who need two classes."""
    assert collect(Rows(np.eye(3), np.zeros(3, dtype=int))).moments.names == ("0",)


# ----------------------------------------------------------------------------------------------------------------------
# workers


@pytest.fixture(scope="module")
def sharded():
    rows, labels = example(n=300, classes=6, dtype=np.float32)
    labels[::50] = 255
    kinds = (lambda part: part, lambda part: part.astype(str), lambda part: part.astype(float))
    return Sharded(
        *(
            Rows(rows[s : s + 60], kinds[s % 3](labels[s : s + 60]), name=f"s{s}", cuts=[11, 12, 40])
            for s in range(0, 300, 60)
        ),
        name="all",
    )


@pytest.fixture(scope="module")
def serial(sharded):
    return collect(sharded, ignore=("255",), sample=20)


def test_two_processes_give_the_same_to_the_last_bit(sharded, serial):
    pytest.importorskip("joblib")
    collected = collect(sharded, ignore=("255",), workers=2, sample=20)
    same(collected, serial)
    for one, two in zip(collected.samples, serial.samples, strict=True):
        np.testing.assert_array_equal(one.rows, two.rows)
    broken = Sharded(*sharded.parts, Rows(np.full((4, 5), np.nan), np.arange(4), name="broken.npy"))
    with pytest.raises(og.InvalidInputError, match=r"nan in row 0, column 0 of broken.npy, and 4 of 298 rows"):
        collect(broken, ignore=(255,), workers=2)
    unlabelled = Sharded(*sharded.parts, Rows(np.ones((2, 5)), np.array([1, np.nan]), name="late.npy"))
    with pytest.raises(og.InvalidInputError, match=r"nan in row 1 of late.npy"):
        collect(unlabelled, workers=2)


def test_a_cluster_gives_the_same_to_the_last_bit(sharded, serial, tmp_path):
    distributed = pytest.importorskip("distributed")
    arguments = {
        "n_workers": 2,
        "threads_per_worker": 1,
        "processes": False,
        "dashboard_address": None,
        "local_directory": str(tmp_path),
    }
    with distributed.LocalCluster(**arguments) as cluster:
        same(
            collect(sharded, ignore=("255",), dask=cluster.scheduler_address), serial
        )  # while there is no default client
    with distributed.LocalCluster(**arguments) as cluster, distributed.Client(cluster) as client:
        same(collect(sharded, ignore=("255",), dask=client), serial)
        assert client.status == "running", "a client that was lent is not closed"
        same(collect(sharded, ignore=("255",), dask=cluster.scheduler_address), serial)
        unlabelled = Sharded(*sharded.parts, Rows(np.ones((2, 5)), np.array([1, np.nan]), name="late.npy"))
        with pytest.raises(og.InvalidInputError, match=r"nan in row 1 of late.npy"):
            collect(unlabelled, dask=client)
        with pytest.raises(og.SolverError, match="the cluster lost its workers"):
            list(parallel.run(_fails, [1], 1, client, shared=(0,), in_order=True))


def _fails(common, unit):
    raise RuntimeError("not a fault of the data")


def _dies(common, unit):
    os._exit(unit)


def test_more_shards_than_units_are_merged_in_order():
    rows, labels = example(n=260)
    shards = Sharded(*(Rows(rows[s : s + 2], labels[s : s + 2], name=f"s{s}") for s in range(0, 260, 2)))
    whole = collect(Rows(rows, labels))
    collected = collect(shards)
    for name in ("sums", "squares"):
        np.testing.assert_allclose(
            getattr(collected.moments, name), getattr(whole.moments, name), rtol=1e-10, atol=1e-10
        )
    np.testing.assert_allclose(collected.within.projected, whole.within.projected, rtol=1e-10)
    rows[201] = 0
    with pytest.raises(og.InvalidInputError, match=r"zero vector in row 1 of s200, and 1 of 260"):
        collect(shards)


def test_lost_workers_and_missing_packages_are_told(monkeypatch):
    pytest.importorskip("joblib")
    pytest.importorskip("distributed")
    with pytest.raises(og.SolverError, match="a worker process died"):
        list(parallel.run(_dies, [3, 3, 3], 2, None, shared=(0,), in_order=True))
    monkeypatch.setattr(parallel, "CONNECT_SECONDS", 0.2)
    with pytest.raises(og.InvalidInputError, match="`dask` must be the address of a scheduler"):
        collect(Rows(np.eye(2), np.arange(2)), dask="tcp://127.0.0.1:1")
    monkeypatch.setitem(sys.modules, "joblib", None)
    monkeypatch.setitem(sys.modules, "distributed", None)
    two = Sharded(Rows(np.eye(2), np.arange(2)), Rows(np.eye(2), np.arange(2)))
    with pytest.raises(og.MissingDependencyError, match=r"joblib: pip install 'optgeom\[distributed\]'"):
        collect(two, workers=2)
    with pytest.raises(og.MissingDependencyError, match=r"dask: pip install 'optgeom\[distributed\]'"):
        collect(two, dask="tcp://127.0.0.1:8786")


def test_rows_are_released_batch_by_batch():
    """A source that hands out its rows once, and would fail if a batch were kept until the end."""
    alive = []

    class Lent(Rows):
        def batches(self, size):
            for batch in super().batches(size):
                lent = batch.rows.copy()
                yield Batch(lent, batch.labels, None, batch.start)
                batch = None
                alive.append(sys.getrefcount(lent))

    rows, labels = example(n=100)
    second = SecondPass(collect(Rows(rows, labels)).moments)
    for batch in Lent(rows, labels).batches(10):
        second.update(batch)
        del batch
    assert max(alive) <= 3
