"""The remedies of a verdict are effective.

The temperature, epsilon or dimension that it names is given as an option, and a value beside it.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from optgeom.realization.verdict import Verdict, judge
from optgeom.realization.weights import Weights

RNG = np.random.default_rng(7)
ANGLE = 2 * np.pi * np.arange(16) / 16
CIRCLE = np.column_stack([np.cos(ANGLE), np.sin(ANGLE)])
SPHERE = RNG.normal(size=(25, 3))
SPHERE /= np.linalg.norm(SPHERE, axis=1, keepdims=True)
CLOUD = RNG.normal(size=(20, 3))
RANDOM = RNG.uniform(0.2, 1, size=(12, 12))
REPEATED = np.repeat([0, 1, 2, 3], [9, 4, 2, 1])


def named(verdict: Verdict, what: str) -> float:
    found = re.search(what + r" ([0-9.e+-]*[0-9])", verdict.remedy)
    assert found is not None, verdict.remedy
    return float(found.group(1))


WEIGHTS = {
    "circle": Weights.y_aware(1.7 * CIRCLE + 3, 0.9),
    "circle, paper": Weights.y_aware(CIRCLE, 1.1, paper=True),
    "sphere": Weights.y_aware(2.3 * SPHERE - 1, 1.3),
    "normal": Weights.y_aware(CLOUD),
    "normal, wide": Weights.y_aware(CLOUD, 3.0),
    "x-clr": Weights.x_clr(CLOUD, 0.37),
    "soft, balanced": Weights.soft_supcon(np.arange(21) % 7, 0.03),
    "soft, imbalanced": Weights.soft_supcon(REPEATED, 0.007),
    "soft, nearly even": Weights.soft_supcon(REPEATED, 0.9),
    "random": Weights.from_matrix(RANDOM + RANDOM.T),
    "repeated random": Weights.from_matrix((RANDOM + RANDOM.T)[np.ix_(REPEATED, REPEATED)]),
}


@pytest.mark.parametrize("hotter", [1.001, 3.0])
@pytest.mark.parametrize("name", WEIGHTS)
def test_the_temperature_to_go_down_to(name: str, hotter: float) -> None:
    weights = WEIGHTS[name]
    top = named(judge(weights, "cosine", 1e4, search=True), "lower the temperature to")
    assert judge(weights, "cosine", top).attained
    assert not judge(weights, "cosine", top * (1 + 1e-4)).attained
    again = judge(weights, "cosine", top * hotter, search=True)
    assert again.regime == "inconsistent"
    assert named(again, "lower the temperature to") == top


@pytest.mark.parametrize("name", ["circle", "circle, paper", "sphere", "x-clr"])
def test_the_temperature_to_go_up_to(name: str) -> None:
    weights = WEIGHTS[name]
    dim = weights.labels.shape[1]  # type: ignore[union-attr]
    cold = judge(weights, "cosine", 0.05, dim=dim)
    assert cold.regime == "inconsistent"
    matched = named(cold, "raise the temperature to")
    assert judge(weights, "cosine", matched, dim=dim).regime == "realizable"
    for factor in (1 - 1e-4, 1 + 1e-4):
        assert judge(weights, "cosine", matched * factor, dim=dim).regime == "inconsistent"


@pytest.mark.parametrize("tau", [0.5, 2.0])
@pytest.mark.parametrize("labels", [np.arange(21) % 7, REPEATED], ids=["balanced", "imbalanced"])
def test_the_epsilon_to_go_up_to(labels: np.ndarray, tau: float) -> None:
    epsilon = named(judge(Weights.soft_supcon(labels, 0.001), "cosine", tau), "raise epsilon to")
    assert judge(Weights.soft_supcon(labels, epsilon), "cosine", tau).attained
    assert not judge(Weights.soft_supcon(labels, epsilon * (1 - 1e-4)), "cosine", tau).attained


@pytest.mark.parametrize(
    ("name", "similarity", "tau"),
    [
        ("circle", "cosine", 0.02),
        ("normal", "cosine", 0.01),
        ("soft, imbalanced", "cosine", 0.1),
        ("random", "cosine", 0.05),
        ("circle", "euclidean", 0.5),
        ("normal", "euclidean", 0.5),
        ("random", "euclidean", 0.5),
        ("repeated random", "euclidean", 0.5),
    ],
)
def test_the_dimension_to_embed_in(name: str, similarity: str, tau: float) -> None:
    weights = WEIGHTS[name]
    least = int(named(judge(weights, similarity, tau, dim=1), "embed in dimension"))
    assert judge(weights, similarity, tau, dim=least).attained
    assert judge(weights, similarity, tau, dim=least - 1).regime == "inconsistent"
