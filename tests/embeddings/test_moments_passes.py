"""Class moments and covariances against plain loops in extended precision, under any split and merge order."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
from helpers.moments_sources import Rows, Sharded, example, plain
from hypothesis import given, settings
from hypothesis import strategies as st

import optgeom as og
from optgeom.embeddings.moments import second_pass
from optgeom.embeddings.moments.collect import collect
from optgeom.embeddings.moments.first_pass import FirstPass
from optgeom.embeddings.moments.second_pass import SecondPass, from_single_pass
from optgeom.embeddings.moments.source import Batch


def close(values, wanted, tolerance=1e-10):
    np.testing.assert_allclose(
        np.asarray(values, dtype=float), np.asarray(wanted, dtype=float), rtol=tolerance, atol=tolerance
    )


def agrees(moments, within, wanted, tolerance=1e-10):
    np.testing.assert_array_equal(moments.counts, wanted["counts"])
    for name in ("sums", "squares"):
        close(getattr(moments, name), wanted[name], tolerance)
    close(within.pooled, wanted["pooled"], tolerance)
    close(within.traces, wanted["traces"], tolerance)
    if within.full is not None:
        close(within.full, wanted["full"], tolerance)
    if within.projected is not None:
        close(within.projected, wanted["projected"], tolerance)


@pytest.fixture(params=["full", "projections"])
def covariances(request, monkeypatch):
    """Projected variances from the full covariances, or from the rows alone; few rows of many classes: from both."""
    if request.param == "projections":
        monkeypatch.setattr(second_pass, "MOST_FULL_ENTRIES", 0)
    return request.param


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16 as float32"])
@pytest.mark.parametrize("views", [None, 3])
def test_plain_loops_give_the_same(dtype, views, covariances):
    rows, labels = example(dtype=dtype.split()[-1], views=views)
    if dtype.startswith("bfloat16"):
        rows = (rows.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    collected = collect(Rows(rows, labels), batch_rows=50)
    assert (collected.within.full is None) == (covariances == "projections")
    agrees(collected.moments, collected.within, plain(rows, labels, collected.moments.names))
    assert collected.moments.names == ("0", "1", "2", "3") and collected.num_views == rows.size // rows.shape[-1]
    assert collected.moments.sums.dtype == collected.within.pooled.dtype == np.float64


@settings(max_examples=40)
@given(
    cuts=st.lists(st.integers(0, 60), max_size=6),
    order=st.randoms(use_true_random=False),
    kind=st.sampled_from(["rows", "views", "groups"]),
    full=st.booleans(),
)
def test_any_split_and_any_order_of_merges_give_the_same(cuts, order, kind, full):
    rows, labels = example(seed=3, n=60, views=2 if kind == "views" else None)
    groups = None
    if kind == "groups":
        groups = np.random.default_rng(4).permutation(60) // 3
        labels = groups % 4
    edges = [0, *sorted(cuts), 60]
    parts = [(start, stop) for start, stop in itertools.pairwise(edges) if stop > start]

    def batch(part):
        one = slice(*part)
        return Batch(rows[one], labels[one], None if groups is None else groups[one], part[0])

    def merged(make):
        states = []
        for part in parts:
            states.append(make())
            states[-1].update(batch(part))
        while len(states) > 1:
            one = states.pop(order.randrange(len(states)))
            states[order.randrange(len(states))].merge(pickle.loads(pickle.dumps(one)))
        return states[0]

    first = merged(lambda: FirstPass(total_scatter=True))
    moments = first.finish()
    wanted = plain(rows, labels, moments.names, groups)
    limit = second_pass.MOST_FULL_ENTRIES
    try:
        second_pass.MOST_FULL_ENTRIES = limit if full else 0
        if groups is None:
            second = merged(lambda: SecondPass(moments))
        else:
            second = SecondPass(moments)
            second.update_images(first.images, first.names.finish()[1])
        agrees(moments, second.finish(), wanted)
    finally:
        second_pass.MOST_FULL_ENTRIES = limit
    agrees(moments, from_single_pass(moments), wanted)


def test_views_of_an_image_may_lie_in_any_batch_and_shard(covariances):
    rows, labels = example(seed=1, n=90)
    rng = np.random.default_rng(2)
    images = np.sort(rng.integers(0, 40, size=90))
    names = np.array([f"img{k}" for k in range(40)])[images]
    labels = images % 3
    order = rng.permutation(90)
    rows, labels, names = rows[order], labels[order], names[order]
    thirds = [
        Rows(rows[part], labels[part], names[part], name=f"s{part.start}", cuts=[7, 8])
        for part in (slice(0, 30), slice(30, 90))
    ]
    collected = collect(Sharded(*thirds))
    wanted = plain(rows, labels, collected.moments.names, names)
    agrees(collected.moments, collected.within, wanted)
    assert collected.moments.counts.sum() == len(set(names)) and collected.num_rows == collected.num_views == 90
    assert any(note.startswith(f"90 rows are views of {len(set(names))} images") for note in collected.notes)
    once = collect(Rows(rows, labels, names, re_readable=False))
    agrees(once.moments, once.within, wanted)
    assert once.two_passes, "all images are in memory, so that one reading is enough"


def test_groups_equal_stacked_views_equal_averaged_images():
    rows, labels = example(seed=5, n=40, views=3)
    stacked = collect(Rows(rows, labels))
    flat = collect(Rows(rows.reshape(120, -1), np.repeat(labels, 3), np.repeat(np.arange(40.0), 3)))
    both = collect(Rows(rows[:, :2], labels, np.arange(40))), collect(Rows(rows[:, :2], labels))
    for one, two in ((stacked, flat), both):
        close(one.moments.sums, two.moments.sums)
        close(one.moments.squares, two.moments.squares)
        close(one.within.full, two.within.full)


def test_ids_are_equal_by_their_text_whatever_their_type():
    rows, _ = example(n=8)
    ids = np.arange(8) // 2
    kinds = [ids, ids.astype(float), ids.astype(str), ids.astype("S"), ids.astype(object)]
    shards = [Rows(rows, ids % 2, kind, name=f"s{k}") for k, kind in enumerate(kinds)]
    collected = collect(Sharded(*shards))
    assert collected.moments.counts.tolist() == [2, 2] and "10 each" in collected.notes[-1]


@pytest.mark.parametrize("late", [False, True])
def test_a_group_with_two_labels_is_refused(late):
    rows, _ = example(n=4)
    parts = [Rows(rows[:2], np.array([1, 2]), np.array(["a", "b"]), name="one")]
    parts.append(Rows(rows[2:], np.array([1, 2]) if late else np.array([3, 2]), np.array(["b", "b"]), name="two"))
    with pytest.raises(
        og.InvalidInputError, match=r"one label each, since a group is one image; got image b with labels \d and \d"
    ):
        collect(Sharded(*parts))


@pytest.mark.parametrize("missing", [np.array([1.0, np.nan]), np.array(["a", ""]), np.array(["a", None], dtype=object)])
def test_a_missing_id_is_refused(missing):
    with pytest.raises(og.InvalidInputError, match=r"`group_ids` must not be missing; got none in row 1 of x"):
        collect(Rows(np.eye(2), np.array([0, 1]), missing, name="x"))


def test_a_tight_class_keeps_its_digits_far_from_the_origin(covariances):
    """Deviations of 1e-7 about means of length 1: without centring nothing would be left of them."""
    rng = np.random.default_rng(6)
    labels = np.repeat([0, 1], 50)
    rows = np.eye(4)[labels] + 1e-7 * rng.normal(size=(100, 4))
    collected = collect(Rows(rows, labels))
    wanted = plain(rows, labels, ("0", "1"))
    np.testing.assert_allclose(collected.within.traces, wanted["traces"], rtol=1e-8)
    np.testing.assert_allclose(
        collected.within.pooled, wanted["pooled"], rtol=0, atol=1e-8 * np.trace(wanted["pooled"])
    )
    np.testing.assert_allclose(
        collected.within.projected, wanted["projected"], rtol=0, atol=1e-7 * np.trace(wanted["pooled"])
    )


def test_a_singleton_has_no_spread_and_no_direction(covariances):
    """Case 15: not applicable is nan, never 0."""
    rows, labels = example(n=30, classes=2)
    labels = np.append(labels, 7)
    rows = np.vstack([rows, np.ones(5)])
    within = collect(Rows(rows, labels)).within
    assert np.isnan(within.traces).tolist() == [False, False, True]
    assert np.isnan(within.projected).tolist() == [[False, False, True], [False, False, True], [True, True, True]]
    assert not np.isnan(within.pooled).any()
    if within.full is not None:
        assert np.isnan(within.full[2]).all() and not np.isnan(within.full[:2]).any()
    agrees(collect(Rows(rows, labels)).moments, within, plain(rows, labels, ("0", "1", "7")))
    once = collect(Rows(rows, labels, re_readable=False)).within
    assert np.isnan(once.traces).tolist() == [False, False, True]


def test_a_class_without_a_direction_is_nan_but_has_a_trace(covariances):
    rows = np.array([[1.0, 0], [-1, 0], [0, 1], [0.1, 1]])
    within = collect(Rows(rows, np.array([0, 0, 1, 1]))).within
    assert np.isnan(within.projected).tolist() == [[True, True], [True, False]]
    close(within.traces, [2.0, plain(rows, [0, 0, 1, 1], ("0", "1"))["traces"][1]])


def test_only_singletons_have_no_covariance():
    for re_readable in (True, False):
        within = collect(Rows(np.eye(3), np.arange(3), re_readable=re_readable)).within
        assert np.isnan(within.pooled).all() and np.isnan(within.traces).all()


def test_one_reading_and_two_agree_where_they_should():
    rows, labels = example(n=200)
    two, one = collect(Rows(rows, labels)), collect(Rows(rows, labels, re_readable=False, known=False))
    close(one.moments.sums, two.moments.sums)
    close(one.within.pooled, two.within.pooled)
    close(one.within.traces, two.within.traces)
    assert one.within.full is None and one.within.projected is None and not one.two_passes
    assert any("read only once" in note for note in one.notes) and not any(
        "read only once" in note for note in two.notes
    )
    with pytest.raises(og.InvalidInputError, match="`moments` must have a total scatter; got None"):
        from_single_pass(two.moments)


def test_many_classes_in_few_rows_are_summed_apart():
    """More classes than rows in a batch, which come one after another: the other way through the sums."""
    rng = np.random.default_rng(8)
    labels = rng.permutation(np.repeat(np.arange(3000), 2))
    rows = rng.normal(size=(6000, 3)) + np.eye(3)[labels % 3] * 3
    collected = collect(Rows(rows, labels), batch_rows=256)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    wanted = np.zeros((3000, 3))
    np.add.at(wanted, labels, unit)
    close(collected.moments.sums, wanted)
    assert collected.moments.counts.tolist() == [2] * 3000


def test_fewer_rows_than_classes_times_dimensions():
    """Covariances are kept, and the projections come from the rows."""
    rows, labels = example(n=60, dim=20)
    assert len(rows) < 4 * 20
    collected = collect(Rows(rows, labels), batch_rows=7)
    assert collected.within.full is not None
    agrees(collected.moments, collected.within, plain(rows, labels, collected.moments.names))


def test_covariances_do_without_projections(monkeypatch):
    monkeypatch.setattr(second_pass, "MOST_PROJECTED_ENTRIES", 15)
    rows, labels = example()
    collected = collect(Rows(rows, labels))
    assert collected.within.projected is None and collected.within.full is not None
    assert not any("too many classes" in note for note in collected.notes)


def test_too_many_classes_for_projections_are_told(monkeypatch):
    monkeypatch.setattr(second_pass, "MOST_FULL_ENTRIES", 0)
    monkeypatch.setattr(second_pass, "MOST_PROJECTED_ENTRIES", 15)
    rows, labels = example()
    collected = collect(Rows(rows, labels))
    assert collected.within.projected is None and any("too many classes (4)" in note for note in collected.notes)
    close(collected.within.pooled, plain(rows, labels, collected.moments.names)["pooled"])


@pytest.mark.parametrize("scale", [1e-200, 1e200, 1e-130])
def test_lengths_beyond_the_squares_of_float64_are_no_zeros_and_no_infinities(scale):
    rows, labels = example(n=40)
    close(collect(Rows(rows * scale, labels)).moments.sums, collect(Rows(rows, labels)).moments.sums)


def test_a_source_that_changes_between_the_passes_is_refused():
    rows, labels = example(n=40)

    class Growing(Rows):
        def batches(self, size):
            yield from super().batches(size)
            if self.readings == 2:
                yield Batch(self.rows[:1], self.late, None, len(self.rows))

    source = Growing(rows, labels, name="log.npy")
    source.late = np.array([0])
    with pytest.raises(
        og.InvalidInputError, match=r"the same rows in both passes; got others.*: class 0 has \d+ images instead of"
    ):
        collect(source)
    source.readings, source.late = 0, np.array([99])
    with pytest.raises(
        og.InvalidInputError, match=r"must be the same rows in both passes; got others of log.npy: class 99 is new"
    ):
        collect(source)
