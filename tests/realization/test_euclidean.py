"""Euclidean targets.

Additive constants of known figures, brute-force Euclidean tests, labels recovered up to rigid motions.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from optgeom.errors import InvalidInputError
from optgeom.prototypes import align
from optgeom.realization import cailliez, entropy, euclidean
from optgeom.realization.weights import Weights

STAR = np.array([[0, 1, 1, 1], [1, 0, 2, 2], [1, 2, 0, 2], [1, 2, 2, 0.0]])
TRIANGLE = np.array([[0, 1, 1], [1, 0, 3], [1, 3, 0.0]])


def between(points: np.ndarray) -> np.ndarray:
    return ((points[:, None] - points[None]) ** 2).sum(axis=-1)


def gram_eigenvalues(squared: np.ndarray) -> np.ndarray:
    """Of -1/2 J D J, written out; one of them is 0 for the ones vector."""
    centring = np.eye(len(squared)) - 1 / len(squared)
    return np.linalg.eigvalsh(-0.5 * centring @ squared @ centring)


def test_star_tree() -> None:  # case 32
    found = euclidean.spectrum(STAR**2)
    assert np.sort(found.values) == pytest.approx([-0.25, 2, 2], abs=1e-14)
    assert found.lingoes == pytest.approx(0.25, abs=1e-15)
    assert euclidean.lingoes(STAR**2) == found.lingoes
    assert cailliez.additive_constant(STAR) == pytest.approx(0.36602540378443860, abs=1e-14)


def test_star_tree_as_two_groups() -> None:
    grouped = np.array([[0.0, 1.0], [1.0, 2.0]])
    found = euclidean.spectrum(grouped**2, [1, 3])
    assert sorted(zip(found.values.round(14).tolist(), found.times.tolist(), strict=True)) == [(-0.25, 1), (2.0, 2)]
    assert cailliez.additive_constant(grouped, [1, 3]) == pytest.approx((math.sqrt(3) - 1) / 2, abs=1e-14)


def test_triangle() -> None:
    assert euclidean.lingoes(TRIANGLE**2) == pytest.approx(5 / 6, abs=1e-14)
    assert cailliez.additive_constant(TRIANGLE) == pytest.approx(1.0, abs=1e-14)


@pytest.mark.parametrize("seed", range(5))
def test_constants_are_the_borders(seed: int) -> None:
    distances = np.random.default_rng(seed).uniform(1, 4, size=(9, 9))
    distances = distances + distances.T
    hollow = 1 - np.eye(9)
    h, c = euclidean.lingoes(distances**2 * hollow), cailliez.additive_constant(distances * hollow)
    assert h > 0 and c > 0
    for matrix in (lambda t: (distances**2 + 2 * h * t) * hollow, lambda t: (distances + c * t) ** 2 * hollow):
        assert abs(gram_eigenvalues(matrix(1.0))[0]) < 1e-11
        assert gram_eigenvalues(matrix(1 - 1e-5))[0] < -1e-8
        assert gram_eigenvalues(matrix(1.5))[0] > -1e-11


def test_euclidean_distances_need_no_constant() -> None:
    points = np.random.default_rng(0).normal(size=(12, 3))
    assert euclidean.lingoes(between(points)) == pytest.approx(0.0, abs=1e-13)
    assert cailliez.additive_constant(np.sqrt(between(points))) == pytest.approx(0.0, abs=1e-7)
    assert cailliez.additive_constant(np.full((1, 1), 2.0), [5]) == 0.0


@pytest.mark.parametrize("shape", [(2000, 3), (50, 1), (30, 7)])
def test_labels_are_recovered_up_to_a_rigid_motion(shape: tuple[int, int]) -> None:
    labels = 3 + np.random.default_rng(1).normal(size=shape)
    weights = Weights.y_aware(labels, 0.8)
    tau = 2 * 0.8**2
    found = euclidean.target_spectrum(weights, tau)
    assert found.min_dimension == shape[1]
    embedding = euclidean.embedding(weights, tau, found.largest_shift)
    centred = labels - labels.mean(axis=0)
    assert embedding.shape == shape
    assert align(embedding, centred) == pytest.approx(centred, abs=1e-8)


def test_repeated_labels_are_recovered_as_groups() -> None:
    rng = np.random.default_rng(2)
    labels = rng.normal(size=(6, 2))[rng.integers(0, 6, 100)]
    weights = Weights.y_aware(labels)
    assert weights.sizes.size == 6
    embedding = euclidean.embedding(weights, 2.0, euclidean.target_spectrum(weights, 2.0).largest_shift)
    centred = labels - labels.mean(axis=0)
    assert align(embedding, centred) == pytest.approx(centred, abs=1e-8)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("repeats", [False, True])
def test_positive_weights_always_attain_the_bound(seed: int, repeats: bool) -> None:
    rng = np.random.default_rng(seed)
    log_weights = rng.normal(size=(10, 10))
    matrix = np.exp(log_weights + log_weights.T)
    if repeats:
        index = rng.integers(0, 10, 16)
        matrix = matrix[np.ix_(index, index)]
    weights, tau = Weights.from_matrix(matrix), 0.7
    n = weights.n
    found = euclidean.target_spectrum(weights, tau)
    target = -tau * np.log(matrix) * (1 - np.eye(n))
    assert found.largest_shift == pytest.approx(2 * np.sort(np.append(gram_eigenvalues(target), np.inf))[0], abs=1e-10)
    assert found.min_dimension <= n - 2
    for shift, rank in ((found.largest_shift, found.min_dimension), (found.largest_shift - 0.5, n - 1)):
        assert found.rank(shift) == rank
        embedding = euclidean.embedding(weights, tau, shift)
        assert embedding.shape == (n, rank)
        assert embedding.mean(axis=0) == pytest.approx(0.0, abs=1e-12)
        assert between(embedding) == pytest.approx(target - shift * (1 - np.eye(n)), abs=1e-10)
        similarity = -euclidean.squared_distances(weights, tau, shift) / tau
        assert entropy.gap_to_bound(weights, similarity) < 1e-24


def test_soft_supcon_is_a_simplex_of_collapsed_classes() -> None:
    weights = Weights.soft_supcon([0, 0, 1, 1, 1, 2], 0.1)
    found = euclidean.target_spectrum(weights, 0.5)
    assert found.largest_shift == pytest.approx(0.0, abs=1e-13)
    assert found.min_dimension == 2
    embedding = euclidean.embedding(weights, 0.5, found.largest_shift)
    assert embedding[2] == pytest.approx(embedding[4], abs=1e-12)
    assert between(embedding[[0, 2, 5]]) == pytest.approx(0.5 * math.log(10) * (1 - np.eye(3)), abs=1e-12)


def test_equal_weights_put_all_samples_at_one_point() -> None:
    for weights in (
        Weights.soft_supcon([1, 1, 1, 1], 0.5),
        Weights.from_matrix(np.full((4, 4), 0.3)),
        Weights.soft_supcon([1, 2, 3], 0.5),
    ):
        found = euclidean.target_spectrum(weights, 0.5)
        assert found.min_dimension == 0
        assert euclidean.embedding(weights, 0.5, found.largest_shift) == pytest.approx(
            np.zeros((weights.n, 1)), abs=1e-6
        )


def test_limit_of_hard_schemes() -> None:
    assert euclidean.limit_dimension(Weights.supcon([0, 0, 1, 1, 1, 2]), 0.5) == (1, True)
    points = np.random.default_rng(3).normal(size=(10, 3))
    blocks = np.exp(-between(points)) * np.kron(np.eye(2), np.ones((5, 5)))
    assert euclidean.limit_dimension(Weights.from_matrix(blocks), 1.0) == (3, True)  # each block is realised in R^3
    path = np.diag(np.ones(4), 1)
    assert euclidean.limit_dimension(Weights.from_matrix(path + path.T), 1.0) == (4, False)


def test_the_limit_is_approached_where_zeros_are_no_blocks() -> None:
    path = np.diag(np.array([1.0, 2.0, 0.5]), 1)
    weights = Weights.from_matrix(path + path.T)
    logs = np.where(path + path.T > 0, np.log(np.maximum(path + path.T, 1e-9)), 0.0)
    gaps = []
    for t in (50.0, 100.0, 200.0):
        squared = (t * np.where(path + path.T > 0, 1.0, 1.2) - logs) * (1 - np.eye(4))
        assert gram_eigenvalues(squared)[0] > -1e-9  # Euclidean
        order = [int(np.flatnonzero(weights.index == g)[0]) for g in range(4)]
        gaps.append(entropy.gap_to_bound(weights, -squared[np.ix_(order, order)]))
    assert gaps[0] < 1e-3
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 1e-15


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cailliez.additive_constant(-STAR), "`distances` must not be negative; got -2"),
        (lambda: cailliez.additive_constant(np.zeros((1001, 1001))), "at most 1000 points"),
        (lambda: euclidean.lingoes(np.ones((2, 3))), "finite square matrix"),
        (lambda: euclidean.lingoes(np.full((3, 3), np.nan)), "finite square matrix"),
        (lambda: euclidean.lingoes(np.arange(9.0).reshape(3, 3)), "must be symmetric"),
        (lambda: euclidean.target_spectrum(Weights.supcon([0, 0, 1]), 0.5), "no finite target"),
    ],
)
def test_bad_input(call: object, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        call()  # type: ignore[operator]


def test_a_dimension_below_the_rank_is_refused() -> None:
    weights = Weights.soft_supcon([0, 0, 1, 1, 1, 2], 0.1)
    with pytest.raises(InvalidInputError, match="`dim` must be at least 2, the dimension of this geometry; got 1"):
        euclidean.embedding(weights, 0.5, 0.0, 1)
    assert euclidean.embedding(weights, 0.5, 0.0, 4).shape == (6, 4)
