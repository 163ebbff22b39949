"""Losses of explicit rows with weights per class: at class means they are the risk; validation uses the same loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import optgeom as og
from optgeom.embeddings.metrics.empirical_risk import empirical_risk
from optgeom.embeddings.statistics.excess_risk import risk_of_products
from optgeom.losses import Loss
from optgeom.programs.class_mean import ClassMeanProgram

COUNTS = [40, 20, 12, 8]
CLASSES = og.ClassDistribution.from_counts(COUNTS)
CODES = np.repeat(np.arange(4), COUNTS)
NAMES = ["0", "1", "2", "3"]
TABLE = np.random.default_rng(2).uniform(0.3, 3.0, (4, 4))
CASES: dict[str, dict[str, Any]] = {
    "both": {"anchor_weights": "balanced", "negative_weights": "class-average"},
    "table": {"negative_weights": TABLE, "anchor_weights": dict(zip(NAMES, (1, 2, 3, 4), strict=True))},
    "without own": {"own_class_in_denominator": False, "negative_weights": TABLE},
    "temperatures": {"class_temperatures": dict(zip(NAMES, (0.4, 0.5, 0.6, 0.7), strict=True))},
    "batch-average": {"negative_weights": "batch-average"},
    "margins": {"margin": dict(zip(NAMES, (0.3, 0.0, -0.2, 0.8), strict=True)), "negative_weights": TABLE},
}


def rows_at_means(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    means = np.random.default_rng(seed).normal(size=(4, 6))
    means /= np.linalg.norm(means, axis=1)[:, None]
    return means[CODES], means @ means.T


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    "loss",
    [og.SupCon(0.5), og.SupConFullBatch(0.5), og.InfoNCE(0.5, float("inf"), 1.0, "mean")],
    ids=lambda loss: loss.name,
)
def test_sums_over_pairs_at_class_means_are_the_risk(loss: Any, case: str) -> None:
    if case == "batch-average" and loss.name == "infonce":
        pytest.skip("refused")
    weighted: Loss = loss.with_options(CASES[case])
    rows, gram = rows_at_means()
    found = empirical_risk(
        rows, CODES, weighted, CLASSES.proportions, values=weighted.class_values(CLASSES), counts=np.array(COUNTS)
    )
    assert found.value == pytest.approx(ClassMeanProgram.build(CLASSES, weighted).risk(gram), rel=1e-12)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    "loss", [og.SupCon(0.5, 8), og.SupCon(0.5, 8, 1, "skip"), og.InfoNCE(0.5, 5)], ids=["views", "skip", "infonce"]
)
def test_draws_at_class_means_have_the_risk_as_their_mean(loss: Any, case: str) -> None:
    if case == "batch-average" and loss.name == "infonce":
        pytest.skip("refused")
    weighted: Loss = loss.with_options(CASES[case])
    rows, gram = rows_at_means()
    found = empirical_risk(
        rows, CODES, weighted, CLASSES.proportions, values=weighted.class_values(CLASSES), batches=1000
    )
    off = found.value - ClassMeanProgram.build(CLASSES, weighted).risk(gram)
    assert abs(off) < 4 * found.standard_error < 0.1


def test_products_of_class_means_have_the_weights() -> None:
    _, gram = rows_at_means()
    loss = og.SupCon(0.5, 8, **CASES["temperatures"])
    assert risk_of_products(gram, CLASSES, loss) == pytest.approx(
        ClassMeanProgram.build(CLASSES, loss).risk(gram), rel=1e-13
    )


@pytest.mark.parametrize("case", CASES)
def test_rows_at_the_weighted_optimum_are_consistent_with_it(case: str) -> None:
    counts = [400, 200, 120, 80]
    classes = og.ClassDistribution.from_counts(counts)
    weighted = og.SupCon(0.5, **CASES[case])
    geometry = og.solve(classes, weighted)
    codes = np.repeat(np.arange(4), counts)
    rng = np.random.default_rng(1)
    means = np.zeros((4, 8))
    means[:, : geometry.prototypes().shape[1]] = geometry.prototypes()
    rows = means[codes] + 0.1 * rng.normal(size=(codes.size, 8))
    rows /= np.linalg.norm(rows, axis=1)[:, None]
    found = og.validate(rows, codes, geometry)
    assert found.judgement.verdict == "consistent"
    assert found.excess_risk.reason is None
    assert found.excess_risk.direction == pytest.approx(0.0, abs=1e-3)
    if case == "both":
        plain = og.solve(classes, og.SupCon(0.5))
        assert og.validate(rows, codes, plain).judgement.verdict == "differs"
