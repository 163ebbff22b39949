"""Verdicts: the three regimes with what would change them, each checked by doing what the remedy says."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from helpers.reference import GOLDEN, circle

from optgeom.errors import InvalidInputError
from optgeom.realization.verdict import embed, judge, soft_supcon_temperature, sphere_of
from optgeom.realization.weights import Weights

RNG = np.random.default_rng(0)
CLASSES = np.repeat([0, 1, 2], [10, 3, 1])
CLOUD = RNG.normal(size=(15, 3))


def row_misfit(weights: Weights, embedding: np.ndarray, similarity: str, tau: float) -> float:
    """Largest difference of log p and log w~ over pairs of samples: 0 iff the entropic bound is attained."""
    if similarity == "cosine":
        assert np.linalg.norm(embedding, axis=1) == pytest.approx(np.ones(weights.n))
        s = embedding @ embedding.T / tau
    else:
        s = -((embedding[:, None] - embedding[None]) ** 2).sum(axis=-1) / tau
    pairs = ~np.eye(weights.n, dtype=bool)
    e = np.where(pairs, np.exp(s), 0.0)
    w = np.where(pairs, np.exp(weights.log_weights[np.ix_(weights.index, weights.index)]), 0.0)
    log_p, log_w = (np.log((table / table.sum(axis=1, keepdims=True))[pairs]) for table in (e, w))
    return float(np.abs(log_p - log_w).max())


@pytest.mark.parametrize("found", GOLDEN["realize"], ids=lambda found: found["name"])
def test_reference_cases(found: dict) -> None:
    width = float(found["weights"].split("/")[1].rstrip(")"))
    weights = Weights.y_aware(found["labels"], math.sqrt(width), paper=True)
    verdict = judge(weights, found["similarity"], found["temperature"])
    assert verdict.attained == found["realizable"]
    assert (verdict.regime == "inconsistent") == (not found["realizable"])
    if verdict.attained:
        assert row_misfit(weights, embed(weights, verdict), found["similarity"], found["temperature"]) < 1e-10


@pytest.mark.parametrize("dim", [None, 2, 16])
def test_circle_is_realizable_and_unique(dim: int | None) -> None:
    weights = Weights.y_aware(circle(), 1.0, paper=True)
    verdict = judge(weights, "cosine", 0.5, dim=dim)
    assert (verdict.regime, verdict.attained, verdict.unique, verdict.min_dimension) == ("realizable", True, True, 2)
    assert verdict.shift_interval == pytest.approx((1.0, 1.0))
    embedding = embed(weights, verdict)
    assert embedding.shape == (16, dim or 2)
    assert embedding @ embedding.T == pytest.approx(circle() @ circle().T, abs=1e-8)
    below = judge(weights, "cosine", 0.5, dim=1)
    assert below.regime == "inconsistent"
    assert "embed in dimension 2" in below.remedy


def test_circle_away_from_the_matched_temperature() -> None:
    weights = Weights.y_aware(circle(), 1.0, paper=True)
    hot = judge(weights, "cosine", 0.6)
    assert hot.regime == "inconsistent"
    assert "lower the temperature to 0.5" in hot.remedy
    assert hot.margin == pytest.approx(-0.2, abs=1e-12)  # 0.6/0.5 cos + const: 1 - 1.2 on the complement of the labels
    cold = judge(weights, "cosine", 0.3, dim=2)
    assert cold.regime == "inconsistent"
    assert "raise the temperature to 0.5" in cold.remedy
    assert judge(weights, "cosine", 0.3).min_dimension == 3
    # bandwidth and radius: sigma^2 / r^2
    scaled = Weights.y_aware(3 * circle() + 7, 1.5)
    assert judge(scaled, "cosine", 0.25, dim=2).regime == "realizable"
    assert "to 0.25," in judge(scaled, "cosine", 0.3).remedy


def test_y_aware_on_a_cloud_is_inconsistent_in_its_dimension() -> None:
    weights = Weights.y_aware(CLOUD)
    for tau in (0.5, 0.01):
        verdict = judge(weights, "cosine", tau, dim=3)
        assert verdict.regime == "inconsistent"
        assert not verdict.attained
        assert "the labels do not lie on a sphere" in verdict.reason
        with pytest.raises(InvalidInputError, match="`verdict` must be of an attained bound"):
            embed(weights, verdict)
    small = judge(weights, "cosine", 0.01)
    assert small.min_dimension == 14  # with n - 1 dimensions a small temperature attains it
    assert row_misfit(weights, embed(weights, small), "cosine", 0.01) < 1e-9


def test_the_temperature_searched_for_is_the_border() -> None:
    weights = Weights.y_aware(CLOUD)
    assert "search=True, --search" in judge(weights, "cosine", 0.5).remedy
    remedy = judge(weights, "cosine", 0.5, search=True).remedy
    top = float(re.search(r"temperature to ([0-9.e-]+)", remedy).group(1))
    assert judge(weights, "cosine", top * (1 - 1e-5)).attained
    assert not judge(weights, "cosine", top * (1 + 1e-5)).attained


@pytest.mark.parametrize("sizes", [[5, 5, 5], [10, 3, 1]], ids=str)
def test_soft_supcon_on_both_sides(sizes: list[int]) -> None:
    labels = np.repeat(np.arange(3), sizes)
    border = 1.5 / math.log(10)
    assert soft_supcon_temperature(3, 0.1) == pytest.approx(border)
    weights = Weights.soft_supcon(labels, 0.1)
    below, at, above = (judge(weights, "cosine", border * factor) for factor in (1 - 1e-6, 1, 1 + 1e-6))
    assert (below.regime, below.min_dimension) == ("realizable", 3)
    assert (at.regime, at.min_dimension) == ("realizable", 2)
    assert above.regime == "inconsistent"
    epsilon = float(re.search(r"epsilon to ([0-9.]+)", above.remedy).group(1))
    assert judge(Weights.soft_supcon(labels, epsilon + 1e-5), "cosine", border * (1 + 1e-6)).regime == "realizable"
    embedding = embed(weights, at)
    assert embedding[0] @ embedding[-1] == pytest.approx(-0.5, abs=1e-8)


def test_dimension_decides_between_unique_and_several() -> None:
    weights = Weights.soft_supcon(CLASSES, 0.1)
    for dim, regime, unique in (
        (2, "inconsistent", False),
        (3, "realizable", True),
        (13, "degenerate", False),
        (14, "degenerate", False),
    ):
        verdict = judge(weights, "cosine", 0.5, dim=dim)
        assert (verdict.regime, verdict.unique) == (regime, unique)
        assert verdict.min_dimension == 3
        if verdict.attained:
            assert row_misfit(weights, embed(weights, verdict), "cosine", 0.5) < 1e-12
    assert "several geometries" in verdict.reason
    assert "embed in dimension 3" in verdict.remedy


def test_two_geometries_of_the_same_dimension() -> None:
    weights = Weights.y_aware(CLOUD)
    verdict = judge(weights, "cosine", 0.01)
    assert verdict.regime == "realizable" and not verdict.unique
    assert verdict.attained and not verdict.unique
    assert verdict.ranks == (14, 14)
    assert "each end of" in verdict.reason


def test_hard_schemes_reach_the_bound_in_a_limit_only() -> None:
    weights = Weights.supcon(CLASSES)
    cosine, distance = judge(weights, "cosine", 0.5), judge(weights, "euclidean", 0.5)
    for verdict, limit in ((cosine, "limit of temperature 0"), (distance, "infinite distance")):
        assert verdict.regime == "degenerate"
        assert not verdict.attained
        assert "hard scheme, the entropic bound is not attained" in verdict.reason
        assert limit in verdict.reason
    assert distance.min_dimension == 1
    blocks = np.exp(-((CLOUD[:, None] - CLOUD[None]) ** 2).sum(axis=-1))
    blocks[:7, 7:] = blocks[7:, :7] = 0.0
    low = judge(Weights.from_matrix(blocks), "euclidean", 1.0, dim=2)
    assert low.regime == "inconsistent"
    assert "embed in dimension 3" in low.remedy


def test_euclidean_depends_on_the_dimension_only() -> None:
    weights = Weights.y_aware(CLOUD)
    for tau in (0.1, 2.0, 30.0):
        assert judge(weights, "euclidean", tau, dim=2).regime == "inconsistent"
        for dim in (None, 3, 13):
            verdict = judge(weights, "euclidean", tau, dim=dim)
            assert (verdict.regime, verdict.unique, verdict.min_dimension) == ("realizable", True, 3)
            assert embed(weights, verdict).shape == (15, dim or 3)
        many = judge(weights, "euclidean", tau, dim=14)
        assert (many.regime, many.attained, many.unique) == ("degenerate", True, False)
        assert row_misfit(weights, embed(weights, many), "euclidean", tau) < 1e-10


def test_asymmetric_weights_are_inconsistent() -> None:
    weights = Weights.from_matrix(RNG.uniform(1, 2, size=(6, 6)))
    for similarity in ("cosine", "euclidean"):
        verdict = judge(weights, similarity, 0.5)
        assert verdict.regime == "inconsistent"
        assert "symmetrise the weights" in verdict.remedy


def test_x_clr_in_a_cold_and_a_matched_room() -> None:
    weights = Weights.x_clr(CLOUD, 0.3)
    assert judge(weights, "cosine", 0.3, dim=3).regime == "realizable"
    hot = judge(weights, "cosine", 0.4)
    assert hot.regime == "inconsistent"
    assert "lower the temperature to 0.3" in hot.remedy
    cold = judge(weights, "cosine", 0.2, dim=3)
    assert cold.regime == "inconsistent"
    assert "raise the temperature to 0.3" in cold.remedy


def test_spheres_are_recognised() -> None:
    assert sphere_of(3 * circle() + 7) == pytest.approx(3.0)
    flat = np.column_stack([circle(), np.ones(16)])  # a circle in space: its own plane counts
    assert sphere_of(flat) == pytest.approx(1.0)
    assert sphere_of(np.array([[-2.0], [2.0]])) == pytest.approx(2.0)
    assert sphere_of(CLOUD) is None
    assert sphere_of(np.linspace(0, 1, 5)[:, None]) is None
    assert sphere_of(np.ones((3, 2))) is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda w: judge(w, "dot", 0.5), "`similarity` must be one of cosine, euclidean; got 'dot'"),
        (lambda w: judge(w, "cosine", 0.0), "`temperature` must be > 0"),
        (lambda w: judge(w, "cosine", 0.5, dim=0), "`dim` must be a whole number >= 1; got 0"),
        (lambda w: judge(w, "cosine", 0.5, dim=2.5), "`dim` must be a whole number >= 1; got 2.5"),
        (lambda w: judge(w, "cosine", math.nan), "`temperature` must be > 0"),
    ],
)
def test_bad_input(call: object, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        call(Weights.soft_supcon(CLASSES, 0.1))  # type: ignore[operator]
