"""Weights.

Schemes against their formulas on all pairs, matrices as they come, groups, and the entropic bound by brute force.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse
from helpers.reference import GOLDEN

from optgeom.errors import InvalidInputError
from optgeom.realization import entropy
from optgeom.realization.weights import Weights

RNG = np.random.default_rng(0)
POINTS = RNG.normal(size=(5, 2))
INDEX = np.array([0, 1, 0, 2, 2, 3, 0, 4, 1])
CLASSES = np.array(["b", "a", "b", "c", "c", "b", "a", "d"])


def dense(weights: Weights) -> np.ndarray:
    """(n, n) w with a zero diagonal."""
    full = np.exp(weights.log_weights)[np.ix_(weights.index, weights.index)]
    np.fill_diagonal(full, 0.0)
    return full


def brute_bound(matrix: np.ndarray) -> float:
    """H of an (n, n) matrix."""
    total = 0.0
    for i, row in enumerate(matrix):
        others = np.delete(row, i)
        if others.sum() > 0:
            share = others[others > 0] / others.sum()
            total -= float((share * np.log(share)).sum())
    return total / len(matrix)


def brute_loss(matrix: np.ndarray, similarity: np.ndarray) -> float:
    """L of an (n, n) weight matrix and an (n, n) similarity."""
    total = 0.0
    for i in range(len(matrix)):
        w, s = np.delete(matrix[i], i), np.delete(similarity[i], i)
        if w.sum() > 0:
            total -= float((w / w.sum() * (s - math.log(np.exp(s).sum()))).sum())
    return total / len(matrix)


def kernel(points: np.ndarray, width: float = 2.0) -> np.ndarray:
    return np.exp(-((points[:, None] - points[None]) ** 2).sum(axis=-1) / width)


# --- schemes


def test_schemes_are_their_formulas() -> None:
    y = POINTS[INDEX]
    hollow = 1 - np.eye(len(y))
    same = CLASSES[:, None] == CLASSES[None]
    cosines = (y @ y.T) / np.outer(np.linalg.norm(y, axis=1), np.linalg.norm(y, axis=1))
    for weights, expected in (
        (Weights.y_aware(y, 0.7), kernel(y, 2 * 0.49)),
        (Weights.y_aware(y, 0.7, paper=True), kernel(y, 0.49)),
        (Weights.x_clr(y, 0.3), np.exp(cosines / 0.3)),
        (Weights.y_aware(y[:, 0]), kernel(y[:, :1])),
    ):
        assert weights.sizes.size == 5
        assert dense(weights) == pytest.approx(expected * hollow, rel=1e-13)
    hollow = 1 - np.eye(len(CLASSES))
    assert np.array_equal(dense(Weights.supcon(CLASSES)), same * hollow)
    assert dense(Weights.soft_supcon(CLASSES, 0.2)) == pytest.approx(np.where(same, 1.0, 0.2) * hollow)


def test_by_name_is_the_constructor() -> None:
    assert np.array_equal(
        Weights.by_name("soft-supcon", CLASSES, epsilon=0.2).log_weights, Weights.soft_supcon(CLASSES, 0.2).log_weights
    )
    assert Weights.by_name("y-aware", POINTS, bandwidth=None).scheme == {
        "name": "y-aware",
        "bandwidth": 1.0,
        "paper": False,
    }
    assert Weights.by_name("x_clr", POINTS, temperature=0.3).scheme == {"name": "x-clr", "temperature": 0.3}
    assert Weights.by_name("supcon", [0, 0, 1]).hard


def test_groups_are_exact_labels_and_arrays_read_only() -> None:
    weights = Weights.soft_supcon(CLASSES, 0.2)
    assert list(weights.labels) == ["a", "b", "c", "d"]
    assert weights.sizes.tolist() == [2, 3, 2, 1]
    assert np.isneginf(weights.log_weights[3, 3])  # one sample: no pair
    close = Weights.y_aware([0.0, -0.0, 1e-300, 0.0])
    assert close.sizes.tolist() == [3, 1]
    for array in (weights.index, weights.sizes, weights.log_weights, weights.log_rows, weights.count):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_rows_sum_to_one_where_the_weights_underflow() -> None:
    weights = Weights.y_aware(np.array([0.0, 1.0, 50.0, 1000.0]))
    assert not weights.hard
    assert (weights.count * np.exp(weights.log_rows)).sum(axis=1) == pytest.approx(np.ones(4), abs=1e-12)
    assert weights.log_rows[0, 3] == pytest.approx(-500000 + 0.5)


def test_half_a_hundred_thousand_samples_stay_on_groups() -> None:
    weights = Weights.soft_supcon(RNG.integers(0, 100, 50000), 0.1)
    assert weights.log_weights.shape == (100, 100)
    m = weights.sizes.astype(float)
    norm = (m - 1) + 0.1 * (50000 - m)
    expected = float((m * (np.log(norm) - 0.1 * (50000 - m) / norm * math.log(0.1))).sum()) / 50000
    assert entropy.entropic_bound(weights) == pytest.approx(expected, rel=1e-13)


# --- matrices


def test_a_matrix_is_grouped_exactly_whatever_its_diagonal() -> None:
    matrix = kernel(POINTS)[np.ix_(INDEX, INDEX)]
    for diagonal in (0.0, 1.0, -3.0, np.nan):
        given = matrix.copy()
        np.fill_diagonal(given, diagonal)
        weights = Weights.from_matrix(given)
        assert np.array_equal(weights.index, [0, 1, 0, 2, 2, 3, 0, 4, 1])
        assert np.array_equal(dense(weights) > 0, matrix - np.eye(len(matrix)) * np.diag(matrix) > 0)
        assert dense(weights) == pytest.approx(matrix * (1 - np.eye(len(matrix))), rel=1e-14)
        assert weights.notes == ()


def test_no_groups_where_only_the_multiset_of_a_row_repeats() -> None:
    ring = np.array([[0, 1, 2, 1], [1, 0, 1, 2], [2, 1, 0, 1], [1, 2, 1, 0.0]])
    weights = Weights.from_matrix(ring)
    assert weights.sizes.tolist() == [2, 2]  # opposite corners are twins, neighbours are not
    asymmetric = np.array([[0, 1, 2], [1, 0, 2], [3, 4, 0.0]])
    assert Weights.from_matrix(asymmetric).sizes.tolist() == [1, 1, 1]  # equal rows, different columns


def test_asymmetry_by_rounding_is_averaged_away() -> None:  # case 33
    matrix = kernel(RNG.normal(size=(12, 3)))
    weights = Weights.from_matrix(matrix + 1e-16 * RNG.normal(size=matrix.shape))
    assert weights.symmetric
    assert any("asymmetric by rounding" in note for note in weights.notes)
    assert np.array_equal(weights.log_weights, weights.log_weights.T)
    assert dense(weights) == pytest.approx(matrix * (1 - np.eye(12)), rel=1e-9, abs=1e-15)


def test_row_factors_are_removed_and_other_asymmetry_is_kept() -> None:
    matrix = kernel(RNG.normal(size=(9, 3)))
    scaled = Weights.from_matrix(matrix * RNG.uniform(0.1, 10, size=(9, 1)))
    assert scaled.symmetric
    assert any("symmetrisable" in note for note in scaled.notes)
    assert scaled.log_rows == pytest.approx(Weights.from_matrix(matrix).log_rows, abs=1e-12)
    pairs = ~np.eye(9, dtype=bool)
    off = scaled.log_weights[pairs] - Weights.from_matrix(matrix).log_weights[pairs]
    assert np.ptp(off) < 1e-12  # one factor for all
    kept = Weights.from_matrix(matrix * RNG.uniform(0.5, 2, size=(9, 9)))
    assert not kept.symmetric
    assert any("not symmetrisable" in note for note in kept.notes)


def test_row_factors_of_a_hard_matrix() -> None:
    path = np.diag(np.array([1.0, 2.0, 3.0]), 1)
    path = path + path.T
    assert Weights.from_matrix(path * np.array([[1.0], [5.0], [0.2], [3.0]])).symmetric  # a tree: always symmetrisable
    one_way = path.copy()
    one_way[1, 2] = 0.0
    assert not Weights.from_matrix(one_way).symmetric


def test_sparse_matrices_are_the_scheme() -> None:
    labels = RNG.integers(0, 40, 4500)
    labels[:3] = [40, 41, 42]  # classes of one sample
    order = np.argsort(labels, kind="stable")
    blocks = [np.ones((size, size)) for size in np.bincount(labels)]
    matrix = scipy.sparse.block_diag(blocks, format="csr")
    back = np.argsort(order)
    matrix = matrix[back][:, back]
    large, scheme = Weights.from_matrix(matrix), Weights.supcon(labels)
    # Samples without a positive have the same (empty) row, so they are one group here and three classes there.
    assert sorted(large.sizes.tolist()) == sorted([*np.bincount(labels)[:40].tolist(), 3])
    assert entropy.entropic_bound(large) == pytest.approx(entropy.entropic_bound(scheme), rel=1e-14)
    assert any("3 samples have no positive" in note for note in large.notes)
    small = Weights.from_matrix(scipy.sparse.csr_array(np.array([[9, 1, 0], [1, 9, 2], [0, 2, 9.0]])))
    assert small.hard
    assert np.array_equal(dense(small), [[0, 1, 0], [1, 0, 2], [0, 2, 0]])


def test_single_precision_is_remembered() -> None:
    matrix = kernel(RNG.normal(size=(6, 2)))
    assert Weights.from_matrix(matrix.astype(np.float32)).precision == np.finfo(np.float32).eps
    assert Weights.from_matrix(matrix).precision == np.finfo(np.float64).eps


# --- the bound


@pytest.mark.parametrize("found", GOLDEN["realize"], ids=lambda found: found["name"])
def test_bound_of_the_reference_cases(found: dict) -> None:
    width = float(found["weights"].split("/")[1].rstrip(")"))
    weights = Weights.y_aware(found["labels"], math.sqrt(width), paper=True)
    assert entropy.entropic_bound(weights) == pytest.approx(found["entropic_bound"], abs=1e-12)
    assert entropy.entropic_bound(weights) <= found["optimal_loss"] + 1e-8


@pytest.mark.parametrize("name", ["supcon", "soft", "y-aware", "asymmetric"])
def test_bound_loss_and_gap_match_brute_force(name: str) -> None:
    weights = {
        "supcon": lambda: Weights.supcon(CLASSES),
        "soft": lambda: Weights.soft_supcon(CLASSES, 0.2),
        "y-aware": lambda: Weights.y_aware(POINTS[INDEX], 0.3),
        "asymmetric": lambda: Weights.from_matrix(np.random.default_rng(1).uniform(size=(7, 7))),
    }[name]()
    groups = weights.sizes.size
    similarity = np.random.default_rng(2).normal(size=(groups, groups))
    similarity = similarity + similarity.T
    matrix, full = dense(weights), similarity[np.ix_(weights.index, weights.index)]
    assert entropy.entropic_bound(weights) == pytest.approx(brute_bound(matrix), rel=1e-13)
    assert entropy.loss(weights, similarity) == pytest.approx(brute_loss(matrix, full), rel=1e-13)
    gap = entropy.gap_to_bound(weights, similarity)
    assert gap == pytest.approx(brute_loss(matrix, full) - brute_bound(matrix), rel=1e-11)
    assert gap > 0
    if not weights.hard:
        shifts = np.random.default_rng(3).normal(size=(groups, 1))
        assert entropy.gap_to_bound(weights, np.where(weights.count > 0, weights.log_weights, 0.0) + shifts) < 1e-28


def test_tiny_gaps_have_correct_digits() -> None:
    # Two samples apart from a perturbation t of one similarity: KL = p (1-p) t^2 / 2 + O(t^3) for its row.
    weights = Weights.from_matrix(np.array([[0, 1, 3], [1, 0, 2], [3, 2, 0.0]]))
    similarity = np.where(weights.count > 0, weights.log_weights, 0.0)
    similarity[0, 1] += 1e-7
    assert entropy.row_gaps(weights, similarity) == pytest.approx([0.25 * 0.75 * 1e-14 / 2, 0, 0], rel=1e-6, abs=1e-30)


# --- bad input


def with_entry(value: float) -> np.ndarray:
    matrix = np.ones((4, 4))
    matrix[0, 1] = matrix[1, 0] = value
    return matrix


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (with_entry(-0.1), r"`weights` must be not negative; got w_0,1 = -0.1"),  # case 34
        (with_entry(np.nan), r"`weights` must be finite; got w_0,1 = nan"),
        (with_entry(np.inf), r"`weights` must be finite; got w_0,1 = inf"),
        (np.ones((2, 2)), r"at least 3 samples; got 2"),
        (np.ones((3, 4)), r"square \(n, n\) matrix; got shape \(3, 4\)"),
        (np.ones(4), r"square \(n, n\) matrix; got shape \(4,\)"),
        (np.eye(4), r"must have a positive weight"),
        (np.ones((3, 3), dtype=complex), r"must be real numbers"),
        ([["a", "b"], ["c", "d"]], r"must be real numbers"),
        ([[1, 2], [3]], r"must be a square matrix of numbers"),
    ],
)
def test_bad_matrices(matrix: object, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        Weights.from_matrix(matrix)


def test_bad_large_sparse_matrices() -> None:
    matrix = scipy.sparse.eye_array(5000, format="csr") + scipy.sparse.eye_array(5000, k=1, format="csr")
    with pytest.raises(InvalidInputError, match="symmetric when sparse with more than 4000"):
        Weights.from_matrix(matrix)
    with pytest.raises(InvalidInputError, match="not negative; got w_0,1 = -1"):
        Weights.from_matrix(-matrix)


def test_a_zero_in_a_soft_scheme_is_said() -> None:  # case 34
    weights = Weights.from_matrix(with_entry(0.0))
    assert weights.hard
    assert "hard scheme, the entropic bound is not attained (w_0,1 = 0)" in weights.notes


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Weights.y_aware([0.0, np.nan, 1.0]), r"`labels` must be finite; got nan in row 1"),
        (
            lambda: Weights.y_aware([[0.0, 1.0], [0.0, 1.0], [np.inf, 0.0]]),
            r"`labels` must be finite; got inf in row 2",
        ),
        (lambda: Weights.y_aware(["a", "b", "c"]), r"`labels` must be numbers of shape"),
        (lambda: Weights.y_aware([[1.0], [2.0, 3.0]]), r"`labels` must be numbers of shape"),
        (lambda: Weights.y_aware(np.zeros((3, 2, 2))), r"`labels` must be numbers of shape"),
        (
            lambda: Weights.y_aware([0.0, 1e200, 1.0]),
            r"distances up to 1e\+200 times `bandwidth` \(standardise the labels",
        ),
        (lambda: Weights.y_aware([0.0, 1.0]), r"at least 3 samples; got 2"),
        (lambda: Weights.y_aware([0.0, 1.0, 2.0], bandwidth=0.0), r"`bandwidth` must be > 0"),
        (lambda: Weights.x_clr([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]], 0.1), r"zero vectors.*row 1"),
        (lambda: Weights.x_clr(POINTS, -1.0), r"`temperature` must be > 0"),
        (lambda: Weights.y_aware(np.arange(20001.0)), r"at most 20000 distinct values; got 20001"),
        (lambda: Weights.soft_supcon(CLASSES, 0.0), r"`epsilon` must be > 0.*supcon"),
        (lambda: Weights.soft_supcon(CLASSES, 1.5), r"`epsilon` must be in \(0, 1\]"),
        (lambda: Weights.supcon([0.5, 1.0, 2.0]), r"`labels` must be whole numbers"),
        (lambda: Weights.supcon([0.0, np.nan, 1.0]), r"`labels` must not be missing; got nan in row 1"),
        (lambda: Weights.supcon([0, 1, 2]), r"must have a positive weight"),
        (lambda: Weights.by_name("simclr", CLASSES), r"`scheme` must be one of supcon, soft-supcon, y-aware, x-clr"),
        (lambda: Weights.by_name("soft-supcon", CLASSES), r"`epsilon` must be given"),
        (lambda: Weights.by_name("x-clr", POINTS), r"`temperature` must be given"),
        (
            lambda: Weights.by_name("supcon", CLASSES, epsilon=0.1),
            r"`epsilon` must not be given for the scheme supcon; it takes none",
        ),
    ],
)
def test_bad_labels(make: object, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        make()  # type: ignore[operator]


def test_bad_similarities() -> None:
    weights = Weights.soft_supcon(CLASSES, 0.2)
    with pytest.raises(InvalidInputError, match=r"group form, \(4, 4\); got shape \(8, 8\)"):
        entropy.loss(weights, np.zeros((8, 8)))
    with pytest.raises(InvalidInputError, match="`similarity` must be finite"):
        entropy.gap_to_bound(weights, np.full((4, 4), -np.inf))
