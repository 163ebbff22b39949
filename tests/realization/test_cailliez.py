"""Cailliez' constant through realize: exact constants, distances raised by it, and a loss that is its own."""

from __future__ import annotations

import math

import numpy as np
import pytest

from optgeom.errors import InvalidInputError
from optgeom.realization.api import realize
from optgeom.realization.weights import Weights

STAR = np.array([[0, 1, 1, 1], [1, 0, 2, 2], [1, 2, 0, 2], [1, 2, 2, 0.0]])
TRIANGLE = np.array([[0, 1, 1], [1, 0, 3], [1, 3, 0.0]])
CLOUD = np.random.default_rng(0).normal(size=(12, 3))


def distances(points: np.ndarray) -> np.ndarray:
    return np.linalg.norm(points[:, None] - points[None], axis=-1)


def loss(weights: np.ndarray, between: np.ndarray, tau: float) -> float:
    total = 0.0
    for i in range(len(weights)):
        others = [j for j in range(len(weights)) if j != i]
        w = weights[i, others] / weights[i, others].sum()
        s = -(between[i, others] ** 2) / tau
        total -= float(w @ (s - math.log(np.exp(s).sum())))
    return total / len(weights)


@pytest.mark.parametrize("tau", [0.5, 2.0])
@pytest.mark.parametrize(
    ("metric", "constant", "dimension"),
    [(STAR, (math.sqrt(3) - 1) / 2, 2), (TRIANGLE, 1.0, 1)],
    ids=["star", "triangle"],
)
def test_case_32(metric: np.ndarray, constant: float, dimension: int, tau: float) -> None:
    weights = np.exp(-(metric**2) / tau)
    found = realize(weights, "euclidean", temperature=tau, constant="cailliez")
    other = found.cailliez
    assert other is not None
    assert other.constant == pytest.approx(constant, abs=1e-13)
    assert other.dimension == dimension
    raised = (metric + constant) * (1 - np.eye(len(metric)))
    assert distances(other.embedding()) == pytest.approx(raised, abs=1e-7)
    assert other.loss == pytest.approx(loss(weights, raised, tau), abs=1e-12)
    assert (
        other.gap_to_bound == pytest.approx(other.loss - found.entropic_bound, abs=1e-13) and other.gap_to_bound > 1e-7
    )
    # The verdict and the optimum are those of the bound, with Lingoes' constant.
    assert found.verdict.attained and found.optimal_loss == pytest.approx(found.entropic_bound, abs=1e-14)
    lingoes = -found.verdict.shift_interval[1] / 2  # type: ignore[index]
    assert lingoes == pytest.approx(1 / 4 if len(metric) == 4 else 5 / 6, abs=1e-13)
    assert distances(found.embedding()) ** 2 == pytest.approx(
        (metric**2 + 2 * lingoes) * (1 - np.eye(len(metric))), abs=1e-7
    )


@pytest.mark.parametrize("weights", [Weights.y_aware(CLOUD), Weights.x_clr(CLOUD, 0.3)], ids=["y-aware", "x-clr"])
def test_euclidean_labels_need_no_constant(weights: Weights) -> None:
    other = realize(weights, "euclidean", temperature=0.7, constant="cailliez").cailliez
    assert other is not None
    assert (other.constant, other.dimension) == (0.0, 3)
    assert other.gap_to_bound < 1e-20


def test_groups_are_samples_apart() -> None:
    index = np.array([0, 1, 0, 2, 1, 0])
    weights = np.exp(-((TRIANGLE + 0.3)[np.ix_(index, index)] ** 2))
    grouped, apart = (
        Weights.from_matrix(weights),
        np.where(np.eye(6) > 0, 1.0, weights * (1 + 1e-13 * np.triu(np.ones((6, 6)), 1))),
    )
    assert grouped.sizes.size == 3
    one, other = (
        realize(w, "euclidean", temperature=0.5, constant="cailliez").cailliez
        for w in (grouped, np.triu(apart, 1) + np.triu(apart, 1).T)
    )
    assert one is not None and other is not None
    assert (one.constant, one.loss, one.dimension) == (
        pytest.approx(other.constant, abs=1e-6),
        pytest.approx(other.loss, abs=1e-7),
        4,
    )
    assert one.embedding(7).shape == (6, 7)


def test_a_factor_of_the_weights_is_only_taken_out_above_one() -> None:
    weights = np.exp(-(STAR**2))
    one, large = (
        realize(factor * weights, "euclidean", temperature=1.0, constant="cailliez").cailliez for factor in (1.0, 50.0)
    )
    assert one is not None and large is not None
    nearest = np.sqrt(STAR**2 - 1 + np.eye(4))  # the largest weight is at distance 0
    assert distances(large.embedding()) == pytest.approx((nearest + large.constant) * (1 - np.eye(4)), abs=1e-7)
    assert one.as_dict() == {
        "constant": one.constant,
        "dimension": 2,
        "loss": one.loss,
        "gap_to_bound": one.gap_to_bound,
    }


def test_without_it_nothing_is_compared() -> None:
    found = realize(Weights.y_aware(CLOUD), "euclidean", temperature=0.7)
    assert found.cailliez is None and found.as_dict()["cailliez"] is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda w: realize(w, "euclidean", constant="gower", temperature=0.5),
            "`constant` must be one of lingoes, cailliez; got 'gower'",
        ),
        (
            lambda w: realize(w, "cosine", constant="cailliez", temperature=0.5),
            "`constant` must be lingoes with cosine similarity; got 'cailliez'",
        ),
        (
            lambda w: realize(Weights.supcon([0, 0, 1]), "euclidean", constant="cailliez", temperature=0.5),
            "`weights` must be positive",
        ),
        (
            lambda w: realize(w, "euclidean", constant="cailliez", temperature=0.5).cailliez.embedding(1),
            "`dim` must be at least 3",
        ),
        (
            lambda w: realize(w, "euclidean", constant="cailliez", temperature=0.5).cailliez.embedding(0),
            "`dim` must be a whole number >= 1",
        ),
    ],
)
def test_wrong_use(call: object, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        call(Weights.y_aware(CLOUD))  # type: ignore[operator]
