"""Cosine targets.

The interval of the constant against dense eigenvalues, Soft SupCon's threshold, labels recovered on the sphere.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers.reference import GOLDEN, circle
from scipy.optimize import minimize_scalar

from optgeom.errors import InvalidInputError
from optgeom.prototypes import align
from optgeom.realization import spherical
from optgeom.realization.weights import Weights


def dense_target(weights: Weights, temperature: float, shift: float) -> np.ndarray:
    """G(c) written out from the definition."""
    logs = weights.log_weights[np.ix_(weights.index, weights.index)].copy()
    np.fill_diagonal(logs, 0.0)
    n = weights.n
    return np.eye(n) + temperature * logs + shift * (np.ones((n, n)) - np.eye(n))


def lowest(weights: Weights, temperature: float, shift: float) -> float:
    return float(np.linalg.eigvalsh(dense_target(weights, temperature, shift))[0])


def random_weights(seed: int, repeats: bool) -> Weights:
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(9, 2))
    return Weights.y_aware(points[rng.integers(0, 9, 20)] if repeats else points, 1.3)


@pytest.mark.parametrize("repeats", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_interval_margin_and_ranks_match_dense_eigenvalues(seed: int, repeats: bool) -> None:
    weights = random_weights(seed, repeats)
    top = spherical.largest_temperature(weights)
    for tau in (0.3 * top, 0.9 * top, 1.5 * top):
        found = spherical.feasible_shifts(weights, tau)
        best = minimize_scalar(
            lambda c, tau=tau: -lowest(weights, tau, c), bounds=(-20, 20), method="bounded", options={"xatol": 1e-12}
        )
        assert found.margin >= -best.fun - 1e-12  # the reference search may stop short of a kink
        assert found.margin == pytest.approx(lowest(weights, tau, found.best_shift), abs=1e-12)
        assert found.margin == pytest.approx(-best.fun, abs=1e-6)
        if tau > top:
            assert found.kind == "empty"
            assert found.min_dimension is None
            assert found.shifts_up_to(100) == ()
            continue
        assert found.kind == "interval"
        low, high = found.interval
        for end, rank, outside in ((low, found.ranks[0], low - 1e-6), (high, found.ranks[1], high + 1e-6)):
            eigenvalues = np.linalg.eigvalsh(dense_target(weights, tau, end))
            assert abs(eigenvalues[0]) < 1e-12
            assert rank == (eigenvalues > 1e-7).sum() < weights.n
            assert lowest(weights, tau, outside) < -1e-8
        assert lowest(weights, tau, (low + high) / 2) > 0


@pytest.mark.parametrize("seed", range(3))
def test_largest_temperature_is_the_border(seed: int) -> None:
    weights = random_weights(seed, repeats=False)
    top = spherical.largest_temperature(weights)
    assert spherical.feasible_shifts(weights, top * (1 - 1e-7)).kind == "interval"
    assert spherical.feasible_shifts(weights, top * (1 + 1e-7)).kind == "empty"


@pytest.mark.parametrize(
    "found", [case for case in GOLDEN["realize"] if case["similarity"] == "cosine"], ids=lambda found: found["name"]
)
def test_reference_cases_are_realizable_as_said(found: dict) -> None:
    width = float(found["weights"].split("/")[1].rstrip(")"))
    weights = Weights.y_aware(found["labels"], math.sqrt(width), paper=True)
    assert (spherical.feasible_shifts(weights, found["temperature"]).interval is not None) == found["realizable"]


def test_circle_labels_are_recovered_at_the_matched_temperature() -> None:
    weights = Weights.y_aware(circle(), 1.0, paper=True)
    found = spherical.feasible_shifts(weights, 0.5)
    assert found.kind == "point"
    assert found.ranks == (2, 2)
    assert found.min_dimension == 2
    assert found.interval[0] == pytest.approx(1.0, abs=1e-12)  # exp(-|y-y'|^2): cos - 1, plus 1
    embedding = spherical.embedding(weights, 0.5, found.interval[0])
    assert embedding.shape == (16, 2)
    assert align(embedding, circle()) == pytest.approx(circle(), abs=1e-8)
    assert spherical.largest_temperature(weights) == pytest.approx(0.5, abs=1e-12)


@pytest.mark.parametrize("spread", [0.05, 1.0])  # near one pole the ones vector is almost in the span of the labels
@pytest.mark.parametrize("count", [40, 600])
def test_x_clr_at_matched_temperatures_gives_the_labels(count: int, spread: float) -> None:
    rng = np.random.default_rng(5)
    labels = np.array([0.0, 0.0, 1.0]) + spread * rng.normal(size=(count, 3)) * rng.uniform(0.5, 2)
    labels = labels[rng.integers(0, count, count + 10)]  # repeated ones among them
    weights = Weights.x_clr(labels, 0.3)
    found = spherical.feasible_shifts(weights, 0.3)
    assert found.min_dimension == 3
    shift = found.shifts_up_to(3)[0]
    assert shift == pytest.approx(0.0, abs=1e-9)
    unit = labels / np.linalg.norm(labels, axis=1, keepdims=True)
    assert align(spherical.embedding(weights, 0.3, shift, 3), unit) == pytest.approx(unit, abs=1e-8)


SIZES = [[5, 5, 5, 5], [50, 7, 1, 2], [2, 1, 1], [3, 3], [1000, 1]]


@pytest.mark.parametrize("epsilon", [0.5, 0.1, 1e-4])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_soft_supcon_on_both_sides_of_the_threshold(sizes: list[int], epsilon: float) -> None:
    classes = len(sizes)
    weights = Weights.soft_supcon(np.repeat(np.arange(classes), sizes), epsilon)
    border = classes / (classes - 1) / math.log(1 / epsilon)
    assert spherical.largest_temperature(weights) == pytest.approx(border, rel=1e-9)
    below, above = (spherical.feasible_shifts(weights, border * factor) for factor in (1 - 1e-6, 1 + 1e-6))
    assert below.kind == "interval"
    assert below.interval[1] == pytest.approx(1.0, abs=1e-14)  # classes collapse
    assert above.kind == "empty"
    at = spherical.feasible_shifts(weights, border)
    assert at.kind == "point"
    assert at.min_dimension == classes - 1
    embedding = spherical.embedding(weights, border, at.interval[0])
    assert embedding.shape == (sum(sizes), classes - 1)
    simplex = (np.eye(classes) * classes - 1) / (classes - 1)
    cosines = np.repeat(np.repeat(simplex, sizes, axis=0), sizes, axis=1)
    assert embedding @ embedding.T == pytest.approx(cosines, abs=1e-8)


def test_soft_supcon_below_the_threshold_keeps_its_cosines() -> None:
    weights = Weights.soft_supcon([0, 0, 1, 1, 1, 2], 0.1)
    found = spherical.feasible_shifts(weights, 0.3)
    assert found.ranks == (5, 3)
    assert found.shifts_up_to(3) == found.shifts_up_to(4) == (found.interval[1],)
    embedding = spherical.embedding(weights, 0.3, found.interval[1])
    assert embedding[0] @ embedding[1] == pytest.approx(1.0)
    assert embedding[0] @ embedding[2] == pytest.approx(1 + 0.3 * math.log(0.1), abs=1e-12)


def test_one_group_and_equal_weights() -> None:
    weights = Weights.soft_supcon([7, 7, 7, 7], 0.3)
    found = spherical.feasible_shifts(weights, 0.5)
    assert found.interval == pytest.approx((-1 / 3, 1.0))  # from the regular simplex to one point
    assert found.ranks == (3, 1)
    assert spherical.largest_temperature(weights) == math.inf
    assert spherical.embedding(weights, 0.5, 1.0).shape == (4, 1)
    corner = spherical.embedding(weights, 0.5, 0.2)
    assert corner @ corner.T == pytest.approx(np.eye(4) * 0.8 + 0.2)


@pytest.mark.parametrize("repeats", [False, True])
def test_embedding_has_the_target_cosines(repeats: bool) -> None:
    weights = random_weights(1, repeats)
    tau = 0.5 * spherical.largest_temperature(weights)
    found = spherical.feasible_shifts(weights, tau)
    for shift in (*found.interval, found.best_shift):
        embedding = spherical.embedding(weights, tau, shift, weights.n + 2)
        assert embedding.shape == (weights.n, weights.n + 2)
        assert embedding @ embedding.T == pytest.approx(dense_target(weights, tau, shift), abs=1e-11)
    with pytest.raises(InvalidInputError, match=f"`dim` must be at least {found.ranks[1]}"):
        spherical.embedding(weights, tau, found.interval[1], found.ranks[1] - 1)


def test_single_precision_weights_keep_the_verdict() -> None:
    points = circle(30)
    matrix = np.exp(-((points[:, None] - points[None]) ** 2).sum(axis=-1)).astype(np.float32)
    found = spherical.feasible_shifts(Weights.from_matrix(matrix), 0.5)
    assert found.kind == "point"
    assert found.min_dimension == 2


def test_no_target_without_positive_symmetric_weights() -> None:
    with pytest.raises(InvalidInputError, match="hard scheme: no finite target"):
        spherical.feasible_shifts(Weights.supcon([0, 0, 1]), 0.5)
    with pytest.raises(InvalidInputError, match="`weights` must be symmetrisable"):
        spherical.largest_temperature(Weights.from_matrix([[0, 1, 2], [3, 0, 4], [5, 7, 0]]))
