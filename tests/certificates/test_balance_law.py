"""When is the regular simplex optimal? The law of balanced anchors and class-averaged negatives, and its exceptions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import optgeom as og

NAMES = [str(i) for i in range(8)]


def simplex(number: int) -> np.ndarray:
    return np.where(np.eye(number) > 0, 1.0, -1 / (number - 1))


def is_optimal(shares: np.ndarray, loss: og.Loss) -> bool:
    classes = og.ClassDistribution.from_proportions(shares)
    return og.certify_gram(simplex(shares.size), classes, loss).certified


def by_name(values: np.ndarray) -> dict[str, float]:
    return dict(zip(NAMES, values.tolist(), strict=False))


@pytest.mark.parametrize("number", range(4, 9))
@pytest.mark.parametrize("seed", range(4))
def test_only_both_balances_have_the_simplex(seed: int, number: int) -> None:
    rng = np.random.default_rng([seed, number])
    shares = rng.dirichlet(np.full(number, 2.0))
    given: list[dict[str, Any]] = [
        {"anchor_weights": "balanced"},
        {"negative_weights": "class-average"},
        {"anchor_weights": by_name(rng.lognormal(0, 0.5, number))},
        {"anchor_weights": "balanced", "negative_weights": by_name(rng.lognormal(0, 0.5, number))},
        {"anchor_weights": by_name(rng.lognormal(0, 0.5, number)), "negative_weights": "class-average"},
    ]
    assert not any(is_optimal(shares, og.SupCon(0.5, **weights)) for weights in given)
    assert is_optimal(shares, og.SupCon(0.5, anchor_weights="balanced", negative_weights="class-average"))
    # Weights up to a factor: negatives 1/lam, anchors 1/lam.
    inverse = by_name(1 / shares)
    assert is_optimal(shares, og.SupCon(0.5, anchor_weights=inverse, negative_weights=inverse))


def test_one_odd_class_may_differ() -> None:
    x = math.exp(-8 / 3)
    shares = np.array([1, 1, 1, 1 - 4 * x]) / (4 - 4 * x)
    assert is_optimal(shares, og.SupCon(0.5, anchor_weights="balanced"))
    assert not is_optimal(shares, og.SupCon(0.6, anchor_weights="balanced"))


def test_three_classes_have_anchor_weights_for_the_simplex() -> None:
    temperature, w = 0.5, np.array([0.45, 0.35, 0.2])
    q = math.exp(-1.5 / temperature)
    p = np.array(
        [
            (w[1] + w[2] - w[0]) / (w[1] * w[2]),
            (w[0] + w[2] - w[1]) / (w[0] * w[2]),
            (w[0] + w[1] - w[2]) / (w[0] * w[1]),
        ]
    )
    # p_i = r_i / D_i with the denominators D_i at the simplex, and r_i proportional to lam_i a_i.
    anchors = p * (w + q * (1 - w)) / w
    assert is_optimal(w, og.SupCon(temperature, anchor_weights=by_name(anchors)))
    assert not is_optimal(w, og.SupCon(temperature))


def test_finite_batches_with_both_balances_are_near_the_simplex() -> None:
    classes = og.ClassDistribution.from_proportions([0.5, 0.3, 0.15, 0.05])
    angles = [
        og.solve(classes, og.SupCon(0.5, size, anchor_weights="balanced", negative_weights="class-average")).angles()
        for size in (8, 64, 512)
    ]
    off = [np.abs(degrees[np.triu_indices(4, 1)] - np.degrees(np.arccos(-1 / 3))).max() for degrees in angles]
    assert off[0] > 1
    assert off[0] > 3 * off[1] > 27 * off[2] > 0
