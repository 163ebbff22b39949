"""Matching of classes: by name and number, extra and missing classes, ignored labels, by shape."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.simulated import long_tail, means_of, optimum, sample, shape_root

import optgeom as og
from optgeom.embeddings.matching import match_names, match_shapes

COUNTS = long_tail(400, 40, 6)
LOSS = og.SupCon(0.5)
RNG = np.random.default_rng(3)
MEANS = means_of(optimum(COUNTS), 12, RNG)
ROWS = sample(MEANS, COUNTS, 0.3, shape_root(12, 1, RNG), RNG)
X, Y = np.concatenate(ROWS), np.repeat(np.arange(6), COUNTS)
GEOMETRY = og.solve(og.ClassDistribution.from_counts(COUNTS), LOSS)
WORDS = np.array(["ant", "bee", "cat", "dog", "emu", "fox"])


def named(names):
    return og.solve(og.ClassDistribution.from_counts(COUNTS, names), LOSS)


# --- by name


@pytest.mark.parametrize(
    "labels", [Y, Y.astype(str), Y.astype(float), Y.astype(np.uint8)], ids=["int", "text", "float", "uint8"]
)
def test_numbers_and_their_text_are_the_same_classes(labels):
    found = og.validate(X, labels, GEOMETRY)
    assert found.verdict == "consistent"
    assert found.names == tuple("012345")


@pytest.mark.parametrize("names", [[f"{k:03d}" for k in range(6)], [f"{k}.0" for k in range(6)]])
def test_numbers_are_matched_by_value_where_their_texts_differ(names):
    assert og.validate(X, Y, named(names)).names == tuple(names)


def test_a_number_that_two_names_share_is_matched_with_neither():
    found = match_names(["1", "2", "3"], ["01", "001", "2", "3"], ignore_extra=True)
    assert found.extra == (0,)
    assert found.missing == (0, 1)


def test_order_is_that_of_the_geometry():
    names = ["fox", "ant", "emu", "bee", "dog", "cat"]
    found = og.validate(X, np.array(names)[Y], named(names))
    assert found.verdict == "consistent"
    assert found.names == tuple(names)
    np.testing.assert_array_equal(found.directions.counts, COUNTS)
    np.testing.assert_allclose(found.optimal, GEOMETRY.gram, atol=1e-12)


def test_classes_of_the_embeddings_only_are_refused_by_name():
    with pytest.raises(
        og.InvalidInputError, match=r"got 6 others: ant, bee, cat, dog, emu and 1 more .*--ignore-extra"
    ):
        og.validate(X, WORDS[Y], GEOMETRY)
    labels = WORDS[Y].astype("U9")
    labels[labels == "fox"] = "gnu"
    with pytest.raises(og.InvalidInputError, match=r"got 1 other: gnu "):
        og.validate(X, labels, named(WORDS.tolist()))


def test_numbers_and_names_that_cannot_meet():
    named = og.solve(og.ClassDistribution.from_counts({"cat": 60, "dog": 30, "fox": 20}), og.SupCon(0.5))
    with pytest.raises(
        og.InvalidInputError, match=r"the labels are numbers: give the training counts as a list in the order of these"
    ):
        og.validate(X, Y % 3, named)
    with pytest.raises(
        og.InvalidInputError, match=r"the labels are names: give the training counts by name, as \{name: count\}"
    ):
        og.validate(X, np.array(["cat", "dog", "fox"])[Y % 3], GEOMETRY)


def test_extra_classes_are_left_out_and_counted_on_request():
    kept = Y < 4
    smaller = og.solve(og.ClassDistribution.from_counts(COUNTS[:4], WORDS[:4].tolist()), LOSS)
    found = og.validate(X, WORDS[Y], smaller, ignore_extra=True)
    alone = og.validate(X[kept], WORDS[Y[kept]], smaller)
    assert found.extra == {"emu": COUNTS[4], "fox": COUNTS[5]}
    assert "emu, fox" in found.sentence
    assert found.ignored == {}
    # Exactly as if they had never been there, the pooled covariance included.
    np.testing.assert_array_equal(found.intervals.standard_errors, alone.intervals.standard_errors)
    assert found.metrics == alone.metrics
    assert not any("emu" in note for note in found.notes)


def test_extra_classes_of_a_source_that_is_read_once():
    smaller = og.solve(og.ClassDistribution.from_counts(COUNTS[:4], WORDS[:4].tolist()), LOSS)
    found = og.validate(iter([(X, WORDS[Y])]), geometry=smaller, ignore_extra=True)
    assert found.extra == {"emu": COUNTS[4], "fox": COUNTS[5]}
    assert found.names == tuple(WORDS[:4])
    np.testing.assert_array_equal(found.directions.counts, COUNTS[:4])
    assert any("only once" in note for note in found.notes)


def test_missing_classes_are_listed_and_the_optimum_stays():
    kept = (Y != 1) & (Y != 4)
    found = og.validate(X[kept], Y[kept], GEOMETRY)
    assert found.missing == ("1", "4")
    assert "Left out, without embeddings: 1 and 4." in found.sentence
    held = [0, 2, 3, 5]
    np.testing.assert_array_equal(found.optimal, GEOMETRY.gram[np.ix_(held, held)])
    assert found.verdict == "consistent"
    assert found.excess_risk.direction is None
    assert "2 of the 6 classes" in found.excess_risk.reason
    assert found.metrics["empirical_loss"].value is None


def test_ignored_labels_are_counted_each():
    more = np.concatenate([Y, [-1, 255, 255]])
    found = og.validate(np.concatenate([X, X[:3]]), more, GEOMETRY, ignore_labels=[-1, 255])
    assert found.ignored == {"-1": 1, "255": 2}
    assert found.num_rows == len(X) + 3
    assert found.num_images == len(X)
    assert found.max_angle_error_deg == og.validate(X, Y, GEOMETRY).max_angle_error_deg


def test_fewer_than_two_common_classes():
    with pytest.raises(og.InvalidInputError, match=r"`labels` must have two classes of the geometry at least; got 1"):
        og.validate(X[Y == 0], Y[Y == 0], GEOMETRY)


# --- by shape


@pytest.mark.parametrize("seed", range(5))
def test_case_27_permuted_classes_are_found_again(seed):
    order = np.random.default_rng(seed).permutation(6)
    found = og.validate(X, WORDS[order][Y], GEOMETRY, match="hungarian")
    assert found.matched == {WORDS[order[c]]: str(c) for c in range(6)}
    assert found.verdict == "consistent"
    assert found.sentence.startswith("after matching the classes by their shape: consistent")
    straight = og.validate(X, Y, GEOMETRY)
    assert found.max_angle_error_deg == pytest.approx(straight.max_angle_error_deg, abs=1e-9)
    np.testing.assert_array_equal(found.directions.counts, COUNTS)


def test_by_name_a_permutation_differs():
    assert og.validate(X, Y[::-1].copy() * 0 + (5 - Y), GEOMETRY).verdict in ("differs", "collapsed")


@pytest.mark.parametrize("size", [4, 9, 40])
def test_shapes_without_noise_in_any_order_mirrored(size):
    rng = np.random.default_rng(size)
    geometry = og.solve(og.ClassDistribution.from_counts(long_tail(3000, 30, size)), LOSS)
    vertices = geometry.prototypes(size) @ np.diag([-1.0] + [1.0] * (size - 1))
    order = rng.permutation(size)
    names = [f"n{k}" for k in range(size)]
    found = match_shapes(names, np.ones(size, dtype=np.int64), vertices[order], geometry)
    np.testing.assert_array_equal(found.optimal, np.arange(size))
    np.testing.assert_array_equal(order[found.learned], np.arange(size))


def test_shapes_of_fewer_classes_than_the_geometry():
    held = np.array([5, 0, 2, 3])
    geometry = og.solve(og.ClassDistribution.from_counts([5000, 1500, 400, 120, 30, 10]), og.SupCon(1.0))
    vertices = geometry.prototypes()[held]
    found = match_shapes(list("abcd"), np.array([10, 5000, 400, 120]), vertices, geometry)
    assert found.renamed == {"a": "5", "b": "0", "c": "2", "d": "3"}
    assert found.missing == (1, 4)


def test_the_global_generator_of_numpy_is_left_alone():
    state = np.random.get_state()  # noqa: NPY002
    try:
        np.random.seed(0)  # noqa: NPY002
        before = np.random.get_state()[1].copy()  # noqa: NPY002
        og.validate(X, Y, GEOMETRY, match="hungarian")
        np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002
    finally:
        np.random.set_state(state)  # noqa: NPY002


def test_shapes_that_cannot_be_matched():
    with pytest.raises(
        og.InvalidInputError, match=r"`match` 'hungarian' needs a partner for every class; got 6 classes for the 5"
    ):
        og.validate(X, Y, og.solve(og.ClassDistribution.from_counts(COUNTS[:5]), LOSS), match="hungarian")
    with pytest.raises(og.InvalidInputError, match="`match` 'hungarian' needs three classes at least; got 2"):
        og.validate(X[Y < 2], Y[Y < 2], GEOMETRY, match="hungarian")
    with pytest.raises(
        og.InvalidInputError, match="`match` 'hungarian' needs a geometry or classes to match with; got neither"
    ):
        og.validate(X, Y, match="hungarian")
    with pytest.raises(og.InvalidInputError, match="that of a is zero"):
        match_shapes(list("abc"), np.ones(3, dtype=np.int64), np.array([[0.0, 0.0], [1, 0], [0, 1]]), GEOMETRY)
