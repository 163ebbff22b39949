"""Negatives averaged over the classes of a batch: enumeration, reference values, any batch size, derivatives."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.reference import counts_of, random_gram

import optgeom as og
from optgeom.losses.presence import PresenceRows
from optgeom.programs.class_mean import ClassMeanProgram

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "golden-2.json").read_text())["presence"]
LAM = np.array([0.5, 0.3, 0.15, 0.05])


def program_of(size: int, views: int = 2, lam: np.ndarray = LAM, **given: Any) -> ClassMeanProgram:
    loss = og.SupCon(0.5, size, views, negative_weights="batch-average", **given)
    return ClassMeanProgram.build(og.ClassDistribution.from_proportions(lam), loss, grouped=False)


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: f"{case['N']} images")
def test_reference_values(case: dict[str, Any]) -> None:
    program = program_of(case["N"], lam=np.array(case["lam"]))
    gram = np.eye(4)
    gram[case["anchor"]] = case["cos_row"]
    value = program.rows.value(program.exponents(gram))[case["anchor"]]
    assert value == pytest.approx(case["value"], abs=2e-15)


@pytest.mark.parametrize("margins", [(), (0.4, -0.2, 0.0, 0.9)])
@pytest.mark.parametrize("views", [1, 2])
@pytest.mark.parametrize("size", [3, 4, 6])
def test_the_mean_over_all_batches(size: int, views: int, margins: tuple[float, ...]) -> None:
    gram = random_gram(4, 3, seed=size)
    given = {"margin": dict(zip("0123", margins, strict=True))} if margins else {}
    x = np.exp((gram - 1 + np.array(margins or np.zeros(4))[:, None]) / 0.5)
    np.fill_diagonal(x, 0.0)
    value, slopes = 0.0, np.zeros((4, 4))
    for i, (n, chance) in itertools.product(range(4), counts_of(size - 1, LAM)):
        if views == 2 or n[i] > 0:
            total = 1 + (n > 0) @ x[i]
            value += LAM[i] * chance * math.log(total)
            slopes[i] += LAM[i] * chance * (n > 0) * x[i] / total / 0.5
    program = program_of(size, views, **given)
    assert program.risk(gram) == pytest.approx(value, abs=1e-14)
    assert program.gradient(gram) == pytest.approx((slopes + slopes.T) / 2, rel=1e-12)


def of_three(size: int, lam: np.ndarray, x: np.ndarray) -> tuple[float, float]:
    """E log(1 + S) and E[1{n_2 >= 1} / (1 + S)] of anchors of class 0, by inclusion and exclusion."""
    k = size - 1
    none, only_2, only_1 = lam[0] ** k, (lam[0] + lam[2]) ** k - lam[0] ** k, (lam[0] + lam[1]) ** k - lam[0] ** k
    both = 1 - none - only_1 - only_2
    value = only_1 * math.log1p(x[1]) + only_2 * math.log1p(x[2]) + both * math.log1p(x[1] + x[2])
    return value, only_2 / (1 + x[2]) + both / (1 + x[1] + x[2])


@pytest.mark.parametrize("temperature", [1.0, 0.1])
@pytest.mark.parametrize("size", [3, 64, 4096, 100_000])
def test_batches_of_any_size(size: int, temperature: float) -> None:
    lam = np.array([0.6, 0.399, 0.001])
    rows = program_of(size, lam=lam).rows
    assert isinstance(rows, PresenceRows)
    t = (np.array([[1, -0.5, -0.3], [-0.5, 1, -0.2], [-0.3, -0.2, 1]]) - 1) / temperature
    value, weight = of_three(size, lam, np.exp(t[0]))
    assert rows.value(t)[0] == pytest.approx(value, rel=1e-12)
    assert np.exp(rows.log_pull(t)[0, 2] - t[0, 2]) == pytest.approx(weight, rel=1e-12)


def test_groups_of_equal_classes() -> None:
    classes = og.ClassDistribution.from_groups([40, 10, 1], [1, 3, 12])
    loss = og.SupCon(0.5, 16, negative_weights="batch-average")
    grouped, apart = (ClassMeanProgram.build(classes, loss, grouped) for grouped in (True, False))
    cosines = np.array([[1.0, -0.3, -0.2], [-0.3, 0.1, -0.1], [-0.2, -0.1, 0.4]])
    full = cosines[np.ix_(classes.groups.index, classes.groups.index)]
    np.fill_diagonal(full, 1.0)
    assert grouped.risk(cosines) == pytest.approx(apart.risk(full), abs=1e-14)


@pytest.mark.parametrize("views", [1, 2])
def test_curvature_is_the_derivative_of_the_pull(views: int) -> None:
    rows = program_of(7, views).rows
    t = (random_gram(4, 3, seed=5) - 1) / 0.5
    direction = np.random.default_rng(1).normal(size=(4, 4))
    step = 1e-5
    differences = (rows.pull(t + step * direction) - rows.pull(t - step * direction)) / (2 * step)
    off = ~np.eye(4, dtype=bool)
    assert rows.curvature(t)(direction)[off] == pytest.approx(differences[off], abs=1e-9)


@pytest.mark.parametrize("size", [8, 512, math.inf])
@pytest.mark.parametrize("anchors", [None, "balanced"])
def test_optima_are_certified(size: float, anchors: str | None) -> None:
    classes = og.ClassDistribution.from_counts([500, 120, 40, 5])
    loss = og.SupCon(0.3, size, negative_weights="batch-average", anchor_weights=anchors)
    assert og.solve(classes, loss).certificate.certified


def test_the_limit_leaves_nothing_out() -> None:
    classes = og.ClassDistribution.from_counts([500, 120, 40, 5])
    limit = og.SupCon(0.3, negative_weights="batch-average", anchor_weights="balanced")
    geometry = og.solve(classes, limit)
    # Balanced anchors and averages of classes that are all present: the simplex.
    assert geometry.gram == pytest.approx(np.where(np.eye(4) > 0, 1.0, -1 / 3), abs=1e-12)
    assert geometry.risk == pytest.approx(math.log1p(3 * math.exp(-4 / 3 / 0.3)), rel=1e-13)
    assert limit.omitted is None
    large = og.solve(classes, og.SupCon(0.3, 20_000, negative_weights="batch-average", anchor_weights="balanced"))
    assert large.risk == pytest.approx(geometry.risk, rel=1e-12)
