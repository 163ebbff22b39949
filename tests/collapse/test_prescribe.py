"""Prescriptions: the target is the optimum of the prescribed loss, by certificate, by solving, and by brute force."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from helpers.reference import GOLDEN_2, off_diagonal, random_gram
from helpers.wanted import balanced_gram, limit_risk

import optgeom as og
from optgeom.errors import IncompatibleError, InvalidInputError
from optgeom.inputs.classes import ClassDistribution

FOUR = ClassDistribution.from_counts([5000, 1500, 400, 100])
SIMPLEX = off_diagonal(-1 / 3, 4)
GOLDEN = GOLDEN_2["prescriptions"]
KNOBS = ("both", "negative-weights", "margins", "temperatures")


class Exponential:
    """psi(t) = sum of exp(t_j)."""

    is_additive = True

    def value(self, t: np.ndarray) -> np.ndarray:
        return np.exp(t).sum(axis=-1)

    def derivative(self, t: np.ndarray) -> np.ndarray:
        return np.exp(t)


def column(plan: og.Prescription, key: str) -> np.ndarray:
    return np.array([record[key] for record in plan.records()])


# --- the numbers of the theory


def test_margins_of_the_theory() -> None:
    golden = GOLDEN["margin per class, simplex"]
    plan = og.prescribe(FOUR, og.SupCon(0.1), by="margins")
    assert column(plan, "margin") == pytest.approx(np.array(golden["margins_absolute"]), abs=1e-9)
    assert plan.certificate.certified
    # w = c / (lam - c (C - 1) x), c half of min lam / ((C - 1) x).
    lam, x = FOUR.proportions, math.exp(-4 / 3 / 0.1)
    c = lam.min() / (3 * x) / 2
    assert column(plan, "margin") == pytest.approx(0.1 * np.log(c / (lam - c * 3 * x)), abs=1e-12)


def test_margins_are_absolute() -> None:
    plan = og.prescribe(FOUR, og.SupCon(0.1), by="margins")
    records = plan.records()
    shifted = {record["name"]: record["margin"] - records[0]["margin"] for record in records}
    geometry = og.solve(FOUR, plan.loss.with_options({"margin": shifted}))
    angles = geometry.angles()[np.triu_indices(4, 1)]
    assert (round(angles.min(), 1), round(angles.max(), 1)) == (108.3, 110.6)


def test_temperatures_of_the_theory() -> None:
    golden = GOLDEN["temperature per class, simplex"]
    plan = og.prescribe(FOUR, og.SupCon(0.1), by="temperatures", strength=0.05)
    assert column(plan, "temperature") == pytest.approx(np.array(golden["temperatures"]), rel=1e-9)
    assert plan.certificate.certified


def test_negative_weights_of_the_theory() -> None:
    golden = GOLDEN["negative weights, simplex"]
    plan = og.prescribe(FOUR, og.SupCon(0.1), by="negative-weights")
    found = np.array(plan.loss.to_dict()["negative_weights"])
    wanted = np.array(golden["b"])
    off = ~np.eye(4, dtype=bool)
    assert found[off] == pytest.approx(wanted[off], rel=1e-12)
    assert np.diag(found) == pytest.approx(1.0)


def test_another_optimum_as_the_target() -> None:
    golden = GOLDEN["negative weights, target = SupCon-limit optimum of tau .5 imposed at tau .1"]
    target = og.solve(FOUR, og.SupCon(0.5))
    assert target.gram == pytest.approx(np.array(golden["target"]), abs=1e-9)
    loss = og.InfoNCE(0.1, negatives=math.inf, alpha=1.0, negatives_reduction="mean", own_class_in_denominator=False)
    plan = og.prescribe(FOUR, loss, target=target, by="negative-weights")
    # The weights of the theory are those of w_ij = lam_j b_ij.
    found = np.array(plan.loss.to_dict()["negative_weights"]) * FOUR.proportions
    off = ~np.eye(4, dtype=bool)
    assert found[off] == pytest.approx(np.array(golden["w"])[off], rel=1e-6)
    assert og.solve(FOUR, plan.loss).gram == pytest.approx(target.gram, abs=1e-7)


def test_both_balances_are_inverse_proportions() -> None:
    plan = og.prescribe(FOUR, og.SupCon(0.1))
    assert column(plan, "anchor_weight") == pytest.approx(1 / (4 * FOUR.proportions))
    assert column(plan, "negative_weight") == pytest.approx(1 / (4 * FOUR.proportions))


@pytest.mark.parametrize(
    ("by", "strength", "printed"),
    [
        ("both", 0.5, 3.8e-8),
        ("margins", 0.5, 3.3e-5),
        ("negative-weights", 0.5, 3.3e-5),
        ("temperatures", 0.05, 7.9e-7),
    ],
)
def test_slack_needed_of_the_theory(by: str, strength: float, printed: float) -> None:
    plan = og.prescribe(FOUR, og.SupCon(0.1), by=by, strength=strength)
    first = next(pair for pair in plan.slack_needed.pairs if (pair.first, pair.second) == (0, 1))
    assert first.whole == pytest.approx(printed, rel=0.02)
    before = next(pair for pair in plan.before.slack_needed.pairs if (pair.first, pair.second) == (0, 1))
    assert before.whole == pytest.approx(5.7e-8, rel=0.02)


# --- targets of every kind


@pytest.mark.parametrize("seed", range(100))
def test_random_targets_are_the_optimum(seed: int) -> None:
    rng = np.random.default_rng(seed)
    classes = int(rng.integers(3, 13))
    rank = classes - 1 if seed % 3 else int(rng.integers(2, classes))
    target = balanced_gram(classes, rank, seed)
    counts = ClassDistribution.from_counts(rng.integers(5, 3000, classes))
    losses: list[og.Loss] = [
        og.SupCon(0.3),
        og.SupCon(0.5, batch_size=32),
        og.InfoNCE(0.5, negatives=12),
        og.SupCon(0.2, batch_size=24, views=1),
    ]
    plan = og.prescribe(counts, losses[seed % 4], target=target, by="negative-weights")
    assert plan.certificate.certified
    assert og.certify_gram(target, counts, plan.loss).certified
    assert og.solve(counts, plan.loss).gram == pytest.approx(target, abs=1e-7)


@pytest.mark.parametrize("by", KNOBS)
@pytest.mark.parametrize("seed", range(25))
def test_random_classes_reach_the_simplex(by: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    number = int(rng.integers(3, 13))
    classes = ClassDistribution.from_counts(rng.integers(5, 3000, number))
    loss = og.SupCon(float(rng.uniform(0.1, 1.0)))
    plan = og.prescribe(classes, loss, by=by, strength=float(rng.uniform(0.05, 0.9)))
    assert plan.certificate.certified
    assert plan.distance_deg == 0.0
    simplex = off_diagonal(-1 / (number - 1), number)
    assert og.certify_gram(simplex, classes, plan.loss).certified
    assert og.solve(classes, plan.loss).gram == pytest.approx(simplex, abs=1e-7)


@pytest.mark.parametrize("by", ["margins", "temperatures", "both"])
def test_three_classes_reach_other_targets_with_one_value_per_class(by: str) -> None:
    target = og.solve(ClassDistribution.from_counts([40, 35, 25]), og.SupCon(1.0)).gram
    classes = ClassDistribution.from_counts([700, 200, 100])
    plan = og.prescribe(classes, og.SupCon(0.6), target=target, by=by, strength=0.3)
    assert plan.certificate.certified and plan.distance_deg == 0.0
    assert og.solve(classes, plan.loss).gram == pytest.approx(target, abs=1e-7)


@pytest.mark.parametrize("by", KNOBS)
def test_nothing_near_the_target_is_better(by: str) -> None:
    """By brute force, in the formula as it is written: no feasible matrix has a lower risk."""
    plan = og.prescribe(FOUR, og.SupCon(0.4), by=by, strength=0.4)
    values = plan.loss.class_values(FOUR)
    assert values is not None
    lam = FOUR.proportions
    weights = values.negative * lam[None, :]
    arguments = (lam * values.anchor, np.diag(weights).copy(), weights, values.temperature)
    least = limit_risk(SIMPLEX, *arguments)
    for seed, share in itertools.product(range(60), (1e-3, 0.1, 1.0)):
        other = (1 - share) * SIMPLEX + share * random_gram(4, 3 + seed % 2, seed)
        assert limit_risk(other, *arguments) > least
    plain = (lam, lam, np.tile(lam, (4, 1)), np.full(4, 0.4))
    optimum = og.solve(FOUR, og.SupCon(0.4)).gram
    assert limit_risk(optimum, *plain) < limit_risk(SIMPLEX, *plain)


def test_a_tree_of_classes() -> None:
    classes = ClassDistribution.from_counts({"cat": 500, "dog": 90, "car": 300, "bus": 20, "tram": 7})
    tree = {"animal": ["cat", "dog"], "vehicle": {"road": ["car", "bus"], "rail": ["tram"]}}
    gram = og.tree_gram(tree, classes)
    assert gram[0, 1] > gram[0, 2] and gram[2, 3] > gram[2, 4] > gram[2, 0]
    # One class alone in a branch is as far from everything of the whole tree as the branch.
    assert gram[0, 2] == pytest.approx(gram[0, 4]) == pytest.approx(gram[1, 3])
    kernel = np.array(
        [
            [1, 1 / 3, 0, 0, 0],
            [1 / 3, 1, 0, 0, 0],
            [0, 0, 1, 2 / 3, 1 / 3],
            [0, 0, 2 / 3, 1, 1 / 3],
            [0, 0, 1 / 3, 1 / 3, 1],
        ]
    )
    common = 1 / np.linalg.inv(kernel).sum()
    assert gram == pytest.approx((kernel - common) / (1 - common), abs=1e-12)
    plan = og.prescribe(classes, og.SupCon(0.2), target=tree, by="negative-weights")
    assert og.solve(classes, plan.loss).gram == pytest.approx(gram, abs=1e-7)


def test_similarities_of_a_tree() -> None:
    classes = ClassDistribution.from_counts({"a": 4, "b": 3, "c": 2})
    closer = og.tree_gram({"x": ["a", "b"], "y": ["c"]}, classes, similarities=[0.9])
    assert closer[0, 1] > og.tree_gram({"x": ["a", "b"], "y": ["c"]}, classes)[0, 1]
    assert og.tree_gram({"all": ["a", "b", "c"]}, classes, similarities=[0.0]) == pytest.approx(off_diagonal(-0.5, 3))
    with pytest.raises(InvalidInputError, match="`similarities` must be 1 numbers from 0 to below 1"):
        og.tree_gram({"x": ["a", "b"], "y": ["c"]}, classes, similarities=[0.2, 0.4])


def test_a_rounded_target_loses_its_hidden_dimension() -> None:
    target = balanced_gram(6, 5, 3).round(5)
    classes = ClassDistribution.from_counts([60, 50, 40, 30, 20, 10])
    plan = og.prescribe(classes, og.SupCon(0.5), target=target, by="negative-weights")
    assert plan.certificate.certified
    assert any("the target was moved by" in note for note in plan.notes)
    assert plan.geometry.gram == pytest.approx(target, abs=1e-4)


def test_a_geometry_of_the_same_classes_in_another_order() -> None:
    first = ClassDistribution.from_counts({"a": 500, "b": 90, "c": 30, "d": 9})
    second = ClassDistribution.from_counts({"d": 9, "b": 90, "c": 30, "a": 500})
    target = og.solve(first, og.SupCon(0.5))
    plan = og.prescribe(second, og.SupCon(0.2), target=target, by="negative-weights")
    assert plan.geometry.gram[0, 3] == pytest.approx(target.gram[3, 0], abs=1e-9)
    other = ClassDistribution.from_counts({"d": 9, "b": 90, "c": 30, "e": 500})
    with pytest.raises(InvalidInputError, match=r"`target` must be a geometry of the 4 classes; got none for e"):
        og.prescribe(other, og.SupCon(0.2), target=target)


# --- what no loss has


def hemisphere() -> np.ndarray:
    """Four directions with one side empty: the first three around, the last away from all of them."""
    points = np.array([[1, 0, 0.3], [-0.5, 0.8, 0.3], [-0.5, -0.8, 0.3], [0, 0, 1.0]])
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    return points @ points.T


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (hemisphere(), "no positive combination of these class means vanishes, .* which 0, 1, 2, 3 point to"),
        (np.eye(4), r"`target` must have rank C - 1 or less: .*; got full rank 4 with least eigenvalue 1 \(subtract"),
        (np.eye(3), r"`target` must have shape \(C, C\) = \(4, 4\) in class order; got \(3, 3\)"),
        (2 * SIMPLEX, "`target` must be symmetric with ones on its diagonal: .* off by 1 "),
        (off_diagonal(-0.9, 4), "`target` must be positive semidefinite: .* got an eigenvalue of -1.7"),
        (np.full((4, 4), np.nan), "`target` must be finite; got nan in row 0, column 0"),
        ("square", "`target` must be 'simplex', .* or a tree of classes; got 'square'"),
        (object(), "`target` must be 'simplex', .* or a tree of classes; got object"),
        ({"x": ["0", "1"]}, "`tree` must hold every class; got none for 2, 3"),
        ({"x": ["0", "1", "1"], "y": ["2", "3"]}, "`tree` must hold every class once; got '1' twice"),
        ({"x": ["0", "1", "9"], "y": ["2", "3"]}, r"`tree` must name classes; got '9' \(the classes are 0, 1, 2, 3\)"),
        ({"x": [["0"]]}, "`tree` must have names in its lists; got list within 'x'"),
        ({"x": 3}, "`tree` must be a mapping of branches to mappings or lists of class names; got int at 'x'"),
    ],
)
def test_targets_that_no_loss_has(target: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        og.prescribe(FOUR, og.SupCon(0.2), target=target, by="negative-weights")


def test_a_direction_to_which_all_point_or_are_orthogonal() -> None:
    # 0 and 1 are opposite, 2 and 3 not: only they point to one side.
    points = np.array([[1, 0, 0], [-1, 0, 0], [0, 1, 0], [0, math.sqrt(0.5), math.sqrt(0.5)]])
    with pytest.raises(InvalidInputError, match="from which none points away and which 2, 3 point to"):
        og.prescribe(FOUR, og.SupCon(0.2), target=points @ points.T, by="negative-weights")


@pytest.mark.parametrize("by", ["margins", "temperatures", "both", "anchor-weights"])
def test_one_value_per_class_does_not_reach_every_target(by: str) -> None:
    target = balanced_gram(7, 6, 2)
    classes = ClassDistribution.from_counts([900, 500, 300, 90, 50, 30, 9])
    with pytest.raises(
        InvalidInputError, match=rf"`by` must reach the target, a Gram matrix; got '{by}'.*negative-weig"
    ):
        og.prescribe(classes, og.SupCon(0.3), target=target, by=by)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"by": "focal"}, InvalidInputError, "`by` must be"),
        ({"strength": 1.0}, InvalidInputError, "`strength` must be below 1, the largest force; got 1.0"),
        ({"strength": 0.0}, InvalidInputError, "`strength` must be > 0"),
    ],
)
def test_values_outside_their_domain(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        og.prescribe(FOUR, og.SupCon(0.1), **options)


@pytest.mark.parametrize(
    ("loss", "by", "message"),
    [
        (
            og.InfoNCE(0.2, negatives=1, alpha=0.0),
            "negative-weights",
            "`loss` must have a denominator in which weights",
        ),
        (og.InfoNCE(0.2, negative_law=np.full((4, 4), 0.25)), "both", "`loss` must treat classes by their proportions"),
        (
            og.GeneralizedContrastive(Exponential(), 0.5),
            "both",
            "`loss` must take weights, margins and temperatures per class",
        ),
    ],
)
def test_losses_without_a_prescription(loss: og.Loss, by: str, message: str) -> None:
    with pytest.raises(IncompatibleError, match=message):
        og.prescribe(FOUR, loss, by=by)


@pytest.mark.parametrize("sampling", ["ucl", "scl"])
def test_few_negatives_without_the_positive(sampling: str) -> None:
    loss = og.InfoNCE(0.2, negatives=5, alpha=0.0, sampling=sampling)
    with pytest.raises(InvalidInputError, match=r"one class may be all of them \(keep the positive"):
        og.prescribe(FOUR, loss, by="negative-weights")
    with pytest.raises(InvalidInputError, match=r"whose forces only fall with the temperature \(keep the positive"):
        og.prescribe(FOUR, loss, by="temperatures")


@pytest.mark.parametrize("by", ["margins", "anchor-weights"])
def test_temperatures_at_which_forces_underflow(by: str) -> None:
    with pytest.raises(InvalidInputError, match=r"`temperature` must be higher for this target; got 0\.0015"):
        og.prescribe(FOUR, og.SupCon(0.0015), by=by)
    assert og.prescribe(FOUR, og.SupCon(0.01), by="margins").certificate.certified


def test_classes_without_anchors() -> None:
    classes = ClassDistribution.from_counts([50, 10, 1])
    with pytest.raises(InvalidInputError, match="`classes` must all have anchors with a positive; got none for 2"):
        og.prescribe(classes, og.SupConFullBatch(0.2), by="negative-weights")


# --- anchors alone: the law, and its exceptions


@pytest.mark.parametrize("seed", range(8))
def test_the_law_of_anchor_weights(seed: int) -> None:
    rng = np.random.default_rng(seed)
    classes = ClassDistribution.from_counts(rng.integers(5, 3000, 4 + seed % 5))
    with pytest.raises(
        InvalidInputError, match="weights of anchors alone never give the regular simplex to four or more"
    ):
        og.prescribe(classes, og.SupCon(0.5), by="anchor-weights")


@pytest.mark.parametrize("seed", range(20))
def test_random_class_weights_never_have_the_simplex(seed: int) -> None:
    """The law of section 14 as a property, C = 4..8: only where p_i w_j + p_j w_i is constant."""
    rng = np.random.default_rng(seed)
    number = 4 + seed % 5
    names = [str(i) for i in range(number)]
    counts = rng.integers(5, 3000, number)
    lam, classes, tau = counts / counts.sum(), ClassDistribution.from_counts(counts), float(rng.uniform(0.2, 1.0))
    simplex = off_diagonal(-1 / (number - 1), number)
    x = math.exp(-number / ((number - 1) * tau))

    def constant(a: np.ndarray, b: np.ndarray) -> bool:
        w, r = lam * b, lam * a / (lam @ a)
        p = r / (w + (w.sum() - w) * x)
        pairs = (np.outer(p, w) + np.outer(w, p))[~np.eye(number, dtype=bool)]
        return bool(np.ptp(pairs) <= 1e-9 * pairs.mean())

    def certified(a: np.ndarray, b: np.ndarray) -> bool:
        weights = {
            "anchor_weights": dict(zip(names, a, strict=True)),
            "negative_weights": dict(zip(names, b, strict=True)),
        }
        return og.certify_gram(simplex, classes, og.SupCon(tau, **weights)).certified

    random = rng.lognormal(0, 1, number)
    for a, b in (
        (random, rng.lognormal(0, 1, number)),
        (random, 1 / lam),
        (1 / lam, random),
        (random, np.ones(number)),
    ):
        assert not constant(a, b)
        assert not certified(a, b)
    assert constant(1 / lam, 1 / lam) and certified(1 / lam, 1 / lam)


def test_three_classes_have_anchors_for_the_simplex() -> None:
    lam = np.array([0.4, 0.35, 0.25])
    plan = og.prescribe(ClassDistribution.from_proportions(lam), og.SupCon(0.5), by="anchor-weights")
    assert plan.certificate.certified
    # p_i ~ (w_j + w_k - w_i)/(w_j w_k), r_i = p_i D_i, D_i = lam_i + sum_{j != i} lam_j x.
    x = math.exp(-1.5 / 0.5)
    p = np.array([(lam.sum() - 2 * lam[i]) / (lam.prod() / lam[i]) for i in range(3)])
    r = p * (lam + (1 - lam) * x)
    assert column(plan, "anchor_weight") * lam == pytest.approx(r / r.sum(), rel=1e-10)
    with pytest.raises(InvalidInputError, match="got 'anchor-weights'"):  # no triangle: .7 > .2 + .1
        og.prescribe(ClassDistribution.from_proportions([0.7, 0.2, 0.1]), og.SupCon(0.5), by="anchor-weights")


def test_the_exception_of_one_odd_class() -> None:
    x = math.exp(-8 / 3)
    lam = np.array([1, 1, 1, 1 - 4 * x])
    classes = ClassDistribution.from_proportions(lam / lam.sum())
    plan = og.prescribe(classes, og.SupCon(0.5), by="anchor-weights")
    assert plan.certificate.certified
    assert column(plan, "anchor_weight") * lam == pytest.approx((column(plan, "anchor_weight") * lam)[0])
