"""Rows that come in groups, classes that are confused, and the rounding of the input."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.families import families
from helpers.simulated import long_tail, moments_of, optimum, unit

from optgeom.embeddings.moments.rounding import rounding_angle, significant_bits
from optgeom.embeddings.statistics.confusion import Confusion, close_neighbours
from optgeom.embeddings.statistics.dependent_rows import (
    NEIGHBOURS,
    NearestInClass,
    linked_units,
    query_rows,
    row_groups,
)

COUNTS = long_tail(600, 20, 6)
EXACT = ("isotropic", "one axis", "two modes", "radial")


def together(parts):
    return np.concatenate(parts), np.repeat(np.arange(len(parts)), [len(part) for part in parts])


def looked_at(parts, rounding=0.0):
    rows, codes = together(parts)
    queries = query_rows(codes, len(parts))
    nearest = NearestInClass(rows[queries], codes[queries])
    nearest.update(rows, codes)
    scales = np.array([np.sqrt(2 * np.trace(np.cov(part.T))) for part in parts])
    counts = np.array([len(part) for part in parts])
    return row_groups(nearest.distances(), codes[queries], counts, scales, rounding)


def frames(family, counts, rng, size=10, spread=0.05):
    """Each image `size` times, a little moved."""
    found = []
    for c, count in enumerate(counts):
        rows = np.repeat(family.draw(c, count, rng), size, axis=0)
        rows = unit(rows + spread * rng.normal(size=rows.shape) / np.sqrt(rows.shape[1]))
        found.append(rows[rng.permutation(len(rows))])
    return found


def test_distances_are_those_of_all_pairs_however_rows_come():
    rng = np.random.default_rng(0)
    rows, codes = together([unit(rng.normal(size=(n, 5))) for n in (200, 90, 7)])
    order = rng.permutation(len(rows))
    rows, codes = rows[order], codes[order]
    queries = query_rows(codes, 3)
    assert np.bincount(codes[queries]).tolist() == [64, 64, 7]
    whole, left, right = (NearestInClass(rows[queries], codes[queries]) for _ in range(3))
    whole.update(rows, codes)
    left.update(rows[:50], codes[:50])
    right.update(rows[50:], codes[50:])
    left.merge(right)
    assert left.distances() == pytest.approx(whole.distances(), abs=1e-7)
    for place, query in enumerate(queries):
        same = np.flatnonzero(codes == codes[query])
        wanted = np.sort(np.linalg.norm(rows[same[same != query]] - rows[query], axis=1))[:NEIGHBOURS]
        assert whole.distances()[place, : wanted.size] == pytest.approx(wanted, abs=1e-7)
        assert np.all(np.isinf(whole.distances()[place, wanted.size :]))


@pytest.mark.parametrize("runs", [3, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["float64", "float16"])
def test_independent_rows_raise_no_alarm(kind, runs):
    """At most 2 of 100 in any family; the ReLU rows have exact zeros, the circle has one dimension."""
    every = families(optimum(COUNTS), 32, None if runs > 3 else (*EXACT, "ReLU"))
    draws = {name: family.sample for name, family in every.items()}

    def circle(counts, rng):
        turns = [rng.normal(size=n) * 0.3 for n in counts]
        return [np.stack([np.cos(turn), np.sin(turn)], axis=1) for turn in turns]

    def tight(counts, rng):
        return [unit(np.eye(32)[0] + 1e-4 * rng.normal(size=(n, 32))) for n in counts]

    for name, draw in (draws | {"circle": circle, "tight": tight}).items():
        alarms = 0
        for run in range(runs):
            rows = draw(COUNTS, np.random.default_rng([41, run]))
            if kind == "float16":
                rows = [unit(part.astype(np.float16).astype(np.float64)) for part in rows]
            alarms += looked_at(rows).dependent
        assert alarms <= 0.02 * runs, name


@pytest.mark.parametrize("runs", [3, pytest.param(100, marks=pytest.mark.slow)])
def test_ten_frames_per_image_are_noticed(runs):
    every = families(optimum(COUNTS), 32, None if runs > 3 else EXACT)
    for name, family in every.items():
        found = [looked_at(frames(family, COUNTS, np.random.default_rng([42, run]))) for run in range(runs)]
        assert sum(one.dependent for one in found) >= 0.95 * runs, name
        assert np.median([one.size for one in found]) == 10
        assert found[0].sentence(7).startswith("rows in groups of about 10 (") and "--group-ids" in found[0].sentence(7)


def test_independent_rows_have_no_sentence():
    rows = families(optimum(COUNTS), 32, ("isotropic",))["isotropic"].sample(COUNTS, np.random.default_rng(0))
    assert looked_at(rows).sentence(1) == ""


def test_linked_rows_are_the_images_that_they_came_from():
    family = families(optimum(COUNTS), 32, ("isotropic",))["isotropic"]
    rng = np.random.default_rng(3)
    images = family.sample(COUNTS, rng)
    parts = [unit(np.repeat(part, 10, axis=0) + 0.005 * rng.normal(size=(10 * len(part), 32))) for part in images]
    found = looked_at(parts)
    rows, codes = together(parts)
    units = linked_units(rows, codes, found.radius)
    true = np.repeat(np.arange(sum(COUNTS)), 10)
    assert np.array_equal(np.unique(true, return_inverse=True)[1], np.unique(units, return_inverse=True)[1])
    assert found.size == 10


def test_linking_is_transitive_and_stays_within_a_class():
    rows = np.array([[0.0], [0.1], [0.2], [0.5], [0.2]])
    assert linked_units(rows, np.array([0, 0, 0, 0, 1]), 0.11).tolist() == [0, 0, 0, 1, 2]


# --- confusion


def test_confusion_leaves_the_image_itself_out():
    rng = np.random.default_rng(5)
    parts = [unit(rng.normal(size=(n, 4)) + shift) for n, shift in ((30, 0.3), (12, 0.0), (5, -0.5), (1, 1.0))]
    moments = moments_of(parts)
    rows, codes = together(parts)
    whole, half, rest = Confusion(moments), Confusion(moments), Confusion(moments)
    whole.update(rows, codes)
    half.update(rows[::2], codes[::2])
    rest.update(rows[1::2], codes[1::2])
    half.merge(rest)
    assert half.shares() == pytest.approx(whole.shares(), nan_ok=True)
    means = [part.mean(axis=0) for part in parts]
    for c in range(3):
        for d in range(4):
            near = [
                np.linalg.norm(row - means[d]) < np.linalg.norm(row - np.delete(parts[c], i, axis=0).mean(axis=0))
                for i, row in enumerate(parts[c])
            ]
            assert whole.shares()[c, d] == pytest.approx(0.0 if c == d else np.mean(near))
    assert np.all(np.isnan(whole.shares()[3]))


def test_classes_of_one_point_are_confused_in_half_of_their_images():
    parts = [np.tile([0.6, 0.8], (n, 1)) for n in (20, 7)] + [np.tile([1.0, 0.0], (5, 1))]
    found = Confusion(moments_of(parts))
    found.update(*together(parts))
    assert found.shares() == pytest.approx(np.array([[0, 0.5, 0], [0.5, 0, 0], [0, 0, 0]]))


def test_copies_in_the_other_class_are_close():
    rng = np.random.default_rng(6)
    first, second = unit(rng.normal(size=(40, 8))), unit(rng.normal(size=(20, 8)))
    assert close_neighbours(first, second) == 0
    second[:10] = first[:10]
    assert close_neighbours(first, second, budget=100) == pytest.approx(20 / 60)


# --- rounding


@pytest.mark.parametrize(
    ("bits", "stored"),
    [
        (8, lambda x: (x.astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)),
        (11, lambda x: x.astype(np.float16)),
        (11, lambda x: x.astype(np.float16).astype(np.float32)),
        (24, lambda x: x.astype(np.float32).astype(np.float64)),
        (53, lambda x: x),
        (53, lambda x: np.rint(100 * x)),
        (53, lambda x: np.rint(100 * x).astype(np.int8)),
    ],
)
def test_bits_are_read_off_the_values(bits, stored):
    values = np.random.default_rng(0).normal(size=(100, 8))
    assert significant_bits(stored(values)) == bits


def test_no_row_is_turned_by_more_than_the_angle():
    rows = unit(np.random.default_rng(1).normal(size=(500, 16)))
    stored = unit(rows.astype(np.float16).astype(np.float64))
    turned = np.linalg.norm(rows - stored, axis=1)
    assert turned.max() <= rounding_angle(11) and turned.max() > 0.3 * rounding_angle(11)
