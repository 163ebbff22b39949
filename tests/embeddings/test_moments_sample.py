"""Sampled rows: the same under any split, and uniform."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.moments_sources import Rows, Sharded, example, images_of
from hypothesis import given, settings
from hypothesis import strategies as st

import optgeom as og
from optgeom.embeddings.moments.collect import collect
from optgeom.embeddings.moments.row_sample import sample_rows, scramble

NAMES = ("0", "1", "2", "3")


@settings(max_examples=30)
@given(
    cuts=st.lists(st.integers(0, 60), max_size=5),
    size=st.integers(1, 70),
    kind=st.sampled_from(["rows", "views", "groups"]),
)
def test_any_split_gives_the_same_rows(cuts, size, kind):
    rows, labels = example(n=60, views=2 if kind == "views" else None)
    groups = np.random.default_rng(1).permutation(60) // 2 if kind == "groups" else None
    labels = labels if groups is None else groups % 4
    whole = sample_rows(Rows(rows, labels, groups, cuts=[]), NAMES, size, 5)
    split = sample_rows(Rows(rows, labels, groups, cuts=sorted(cuts)), NAMES, size, 5)
    np.testing.assert_array_equal(whole.rows, split.rows)
    np.testing.assert_array_equal(whole.codes, split.codes)
    assert len(whole.rows) == len(whole.codes) == whole.num_images * whole.views
    assert whole.num_images == min(size, 30 if kind == "groups" else 60)
    passed = collect(
        Rows(rows, labels, groups, cuts=sorted(cuts), re_readable=False), sample=size, seeds=(4, 5)
    ).samples[1]
    np.testing.assert_array_equal(whole.rows, passed.rows)
    np.testing.assert_array_equal(whole.codes, passed.codes)


def test_rows_are_unit_rows_of_the_source_in_its_order():
    rows, labels = example(n=50, dtype=np.float32)
    unit = np.asarray(images_of(rows)[0], dtype=float)
    sample = sample_rows(Rows(rows, labels), NAMES, 20, 0)
    at = [int(np.argmin(np.abs(unit - row).sum(axis=1))) for row in sample.rows]
    assert at == sorted(set(at)) and len(at) == 20
    np.testing.assert_allclose(sample.rows, unit[at], atol=1e-14)
    np.testing.assert_array_equal(sample.codes, labels[at])
    everything = sample_rows(Rows(rows, labels), NAMES, 1000, 0)
    np.testing.assert_allclose(everything.rows, unit, atol=1e-14)


def test_every_row_is_drawn_as_often():
    """2000 seeds, 5 of 20 rows: each row 500 times, with a standard deviation of 19."""
    rows = np.eye(20)
    drawn = sum(
        sample_rows(Rows(rows, np.zeros(20, dtype=int)), ("0",), 5, seed).rows.sum(axis=0) for seed in range(2000)
    )
    assert drawn.sum() == 10_000 and np.abs(drawn - 500).max() < 4.5 * np.sqrt(2000 * 0.25 * 0.75)
    drawn = [sample_rows(Rows(rows, np.zeros(20, dtype=int)), ("0",), 2, seed).rows.sum(axis=0) for seed in range(4000)]
    pairs = sum(np.outer(one, one) for one in drawn)
    beside = pairs[~np.eye(20, dtype=bool)]  # each pair 4000 / 190 = 21 times
    assert beside.min() > 2 and beside.max() < 50


def test_rows_of_other_classes_are_left_out_before_drawing():
    rows, labels = example(n=60)
    sample = sample_rows(Rows(rows, labels), ("3", "1"), 1000, 0)
    assert len(sample.rows) == np.isin(labels, [1, 3]).sum()
    assert np.bincount(sample.codes).tolist() == [(labels == 3).sum(), (labels == 1).sum()]
    with pytest.raises(og.InvalidInputError, match="must have a row with a label of the classes asked for"):
        sample_rows(Rows(rows, labels), ("9",), 10, 0)


def test_views_stay_together():
    rows, labels = example(n=30, views=3)
    stacked = sample_rows(Rows(rows, labels), NAMES, 10, 2)
    assert stacked.rows.shape == (30, 5) and stacked.views == 3
    assert stacked.images.tolist() == np.repeat(np.arange(10), 3).tolist()
    np.testing.assert_allclose(np.linalg.norm(stacked.rows, axis=-1), 1)
    order = np.random.default_rng(0).permutation(90)
    ids = np.repeat([f"i{k}" for k in range(30)], 3)
    grouped = sample_rows(Rows(rows.reshape(90, 5)[order], np.repeat(labels, 3)[order], ids[order]), NAMES, 10, 2)
    assert grouped.rows.shape == (30, 5) and grouped.num_images == 10 and grouped.cut == 0
    unit = np.asarray(images_of(rows.reshape(90, 5))[0], dtype=float)
    for views, code in zip(grouped.rows.reshape(10, 3, 5), grouped.codes[::3], strict=True):
        at = [int(np.argmin(np.abs(unit - view).sum(axis=1))) for view in views]
        assert len({row // 3 for row in at}) == 1 and len(set(at)) == 3 and labels[at[0] // 3] == code


def test_unequal_numbers_of_views_are_cut_to_the_smallest_and_told():
    ids = np.array([0, 0, 0, 1, 1, 2, 3, 3])
    rows, _ = example(n=8)
    sample = sample_rows(Rows(rows, np.zeros(8, dtype=int), ids), ("0",), 9, 0)
    assert sample.rows.shape == (6, 5) and sample.views == 2 and sample.cut == 2, (
        "one view of the first image, and the image of one view"
    )
    assert any(
        note.startswith("2 views of sampled images left out")
        for note in collect(Rows(rows, ids * 0, ids), sample=9).notes
    )
    single = sample_rows(Rows(rows, ids * 0, np.arange(8)), ("0",), 4, 0)
    assert single.rows.shape == (4, 5) and single.images is None


def test_shards_are_sampled_as_in_a_pass_over_them():
    rows, labels = example(n=60)
    source = Sharded(*(Rows(rows[s : s + 20], labels[s : s + 20], name=f"s{s}") for s in (0, 20, 40)))
    one, two = sample_rows(source, NAMES, 15, 7), collect(source, sample=15, seeds=(7,)).samples[0]
    np.testing.assert_array_equal(one.rows, two.rows)
    np.testing.assert_array_equal(one.codes, two.codes)
    assert len(np.unique(one.rows, axis=0)) == 15


def test_a_sampled_row_without_a_direction_is_refused():
    with pytest.raises(og.InvalidInputError, match="zero vector in row 1, and 1 of 2 rows"):
        sample_rows(Rows(np.array([[1.0, 0], [0, 0]]), np.array([0, 1])), NAMES, 5, 0)


@pytest.mark.parametrize(("size", "seed", "name"), [(0, 0, "size"), (5, -1, "seed"), (2.5, 0, "size")])
def test_options_that_are_refused(size, seed, name):
    with pytest.raises(og.InvalidInputError, match=f"`{name}` must be a whole number"):
        sample_rows(Rows(np.eye(2), np.arange(2)), NAMES, size, seed)


def test_the_scrambling_is_the_published_one():
    """The first outputs of splitmix64 from state 0 (its increments are added by hand here)."""
    step = 0x9E3779B97F4A7C15
    states = np.array([0, step], dtype=np.uint64)
    assert scramble(states, np.uint64(0)).tolist() == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4]


def test_classes_are_renumbered_and_left_out_and_samples_joined():
    rows, labels = example(n=20, views=2)
    sample = sample_rows(Rows(rows, labels), NAMES, 20, 0)
    swapped = sample.with_classes(np.array([1, -1, 0, -1]), 2)
    kept = np.isin(sample.codes, [0, 2])
    np.testing.assert_array_equal(swapped.rows, sample.rows[kept])
    np.testing.assert_array_equal(swapped.codes, (sample.codes[kept] == 0).astype(int))
    both = swapped.joined(sample)
    assert both.num_classes == 4 and both.num_images == swapped.num_images + 20 and both.views == 2
    np.testing.assert_array_equal(both.counts, np.bincount(np.concatenate([swapped.codes, sample.codes])))
