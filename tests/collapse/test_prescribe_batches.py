"""Prescriptions in finite batches, how far forces can go, and what people get: records, files, code."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import numpy as np
import pytest
from helpers.wanted import balanced_gram

import optgeom as og
from optgeom.errors import InvalidInputError
from optgeom.inputs.classes import ClassDistribution

FOUR = ClassDistribution.from_counts([5000, 1500, 400, 100])


def column(plan: og.Prescription, key: str) -> np.ndarray:
    return np.array([record[key] for record in plan.records()])


# --- finite batches


@pytest.mark.parametrize(
    "loss", [og.SupCon(0.1, batch_size=64), og.InfoNCE(0.1, negatives=16), og.SupCon(0.5, batch_size=16, views=1)]
)
def test_both_in_finite_batches_come_closer_than_balances(loss: og.Loss) -> None:
    plan = og.prescribe(FOUR, loss)
    balanced = loss.with_options({"anchor_weights": "balanced", "negative_weights": "class-average"})
    simplex = math.degrees(math.acos(-1 / 3))

    def distance(geometry: og.Geometry) -> float:
        return float(np.max(np.abs(geometry.angles()[np.triu_indices(4, 1)] - simplex)))

    found = og.solve(FOUR, plan.loss)
    assert distance(found) < 0.25 * distance(og.solve(FOUR, balanced))
    assert plan.distance_deg == pytest.approx(distance(found), abs=1e-4)
    assert plan.certificate.certified == (plan.distance_deg == 0.0)


@pytest.mark.parametrize("by", ["margins", "temperatures"])
def test_one_value_per_class_in_finite_batches(by: str) -> None:
    plan = og.prescribe(FOUR, og.SupCon(0.3, batch_size=64), by=by)
    assert not plan.certificate.certified
    angles = og.solve(FOUR, plan.loss).angles()[np.triu_indices(4, 1)]
    assert plan.distance_deg == pytest.approx(np.max(np.abs(angles - math.degrees(math.acos(-1 / 3)))), abs=1e-6)
    assert 0 < plan.distance_deg < 1.0
    assert any("degrees from the target, before" in note for note in plan.notes)


def test_weights_of_negatives_keep_the_own_class_and_the_other_parameters() -> None:
    loss = og.SupCon(
        0.3, batch_size=16, anchor_weights="balanced", negative_weights={"0": 3.0, "1": 2.0, "2": 1.0, "3": 0.5}
    )
    plan = og.prescribe(FOUR, loss, by="negative-weights", target=balanced_gram(4, 3, 1))
    described = plan.loss.to_dict()
    assert np.diag(described["negative_weights"]).tolist() == [3.0, 2.0, 1.0, 0.5]
    assert described["anchor_weights"] == "balanced"
    assert plan.certificate.certified


def test_anchors_follow_where_nothing_but_negatives_is_in_the_denominator() -> None:
    loss = og.SupCon(0.5, own_class_in_denominator=False)
    target = balanced_gram(5, 4, 8)
    classes = ClassDistribution.from_counts([400, 300, 200, 50, 9])
    plan = og.prescribe(classes, loss, target=target, by="negative-weights")
    assert og.solve(classes, plan.loss).gram == pytest.approx(target, abs=1e-7)
    assert any("the weights of anchors are prescribed with theirs" in note for note in plan.notes)


# --- how far weights can go


@pytest.mark.parametrize("views", [1, 2])
def test_largest_multiple_of_forces_by_brute_force(views: int) -> None:
    """P(a class of S is drawn) bounds the pull of S: all 2^C sets, and weights that come close to the bound."""
    rng = np.random.default_rng(views)
    classes = ClassDistribution.from_counts([50, 30, 15, 5])
    loss = og.SupCon(0.5, batch_size=6, views=views)
    rows = loss.rows(classes.groups)
    pulls = rng.uniform(0.1, 1.0, (4, 4))
    lam, k = classes.proportions, 5
    expected = np.empty(4)
    for i in range(4):
        others = [j for j in range(4) if j != i]
        limits = []
        for size in range(1, 4):
            for chosen in itertools.combinations(others, size):
                share = lam[list(chosen)].sum()
                drawn = 1 - (1 - share) ** k
                if views == 1:  # and a positive among the k others
                    drawn -= (1 - lam[i]) ** k - (1 - lam[i] - share) ** k
                limits.append(drawn / pulls[i, list(chosen)].sum())
        expected[i] = min(limits)
    assert rows.largest_multiple(pulls) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("strength", [0.01, 0.5, 0.99])
def test_strength_is_the_share_of_the_largest_force(strength: float) -> None:
    lam = FOUR.proportions
    plan = og.prescribe(FOUR, og.SupCon(0.2), by="negative-weights", strength=strength)
    table = np.array(plan.loss.to_dict()["negative_weights"]) * lam
    x = math.exp(-4 / 3 / 0.2)
    pull = table[3, 0] * x / (lam[3] + table[3, :3].sum() * x)
    assert lam[3] * pull == pytest.approx(strength * lam[3] / 3, rel=1e-10)
    assert plan.certificate.certified


# --- what people get


def test_records_file_and_code(tmp_path: Any) -> None:
    plan = og.prescribe(FOUR, og.SupCon(0.1, batch_size=64), by="margins")
    plan.save(tmp_path / "plan.json")
    content = json.loads((tmp_path / "plan.json").read_text())
    assert (
        og.Loss.from_dict(content["loss"]) == plan.loss
        or og.Loss.from_dict(content["loss"]).words() == plan.loss.words()
    )
    assert og.solve(FOUR, og.Loss.from_dict(content["loss"])).risk == pytest.approx(plan.geometry.risk, rel=1e-12)
    assert content["classes"] == plan.records()
    names: dict[str, Any] = {}
    exec(plan.code(), names)
    assert names["loss"].to_dict() == plan.loss.to_dict()
    assert names["criterion"].temperature == pytest.approx(0.1)
    plan.save(tmp_path / "plan.csv")
    header, *lines = (tmp_path / "plan.csv").read_text().splitlines()
    assert header == "name,anchor_weight,negative_weight,margin,temperature"
    assert len(lines) == 4
    with pytest.raises(InvalidInputError, match=r"a prescription is saved as \.json or \.csv; got 'plan\.txt'"):
        plan.save("plan.txt")


def test_a_table_in_a_file(tmp_path: Any) -> None:
    plan = og.prescribe(FOUR, og.SupCon(0.1), by="negative-weights")
    plan.save(tmp_path / "plan.csv")
    header = (tmp_path / "plan.csv").read_text().splitlines()[0]
    assert header.endswith("negative_weight of 0,negative_weight of 1,negative_weight of 2,negative_weight of 3")
    assert plan.needs_file
    assert column(plan, "negative_weight").tolist() == [None] * 4
    assert plan.as_dict()["weights"] == plan.loss.to_dict()["negative_weights"]
    plan.save(tmp_path / "plan.json")
    names: dict[str, Any] = {}
    exec(plan.code(str(tmp_path / "plan.json")), names)
    assert names["loss"].to_dict() == plan.loss.to_dict()


def test_before_and_after() -> None:
    plan = og.prescribe(FOUR, og.SupCon(0.1), by="margins")
    described = plan.as_dict()
    assert described["before"]["min_angle_deg"] == pytest.approx(og.solve(FOUR, og.SupCon(0.1)).min_angle_deg)
    assert described["min_angle_deg"] == pytest.approx(math.degrees(math.acos(-1 / 3)), abs=1e-9)
    assert described["before"]["max_angle_deg"] == pytest.approx(114.05, abs=0.01)
    assert "certified" in repr(plan)
