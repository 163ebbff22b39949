"""Thresholds, ranges, scans, sensitivities and loss values of losses with weights per class."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from helpers.reference import GOLDEN_2, counts_of

import optgeom as og
from optgeom.collapse.thresholds import collapse_margin
from optgeom.errors import IncompatibleError, InvalidInputError
from optgeom.inputs.classes import ClassDistribution

FOUR = ClassDistribution.from_counts([5000, 1500, 400, 100])
BOTH: dict[str, Any] = {"anchor_weights": "balanced", "negative_weights": "class-average"}
MIXED: dict[str, Any] = {
    "anchor_weights": {"0": 1.0, "1": 2.0, "2": 3.0, "3": 9.0},
    "negative_weights": {"0": 1.0, "1": 2.0, "2": 3.0, "3": 0.5},
    "class_temperatures": {"0": 0.4, "1": 0.5, "2": 0.6, "3": 0.45},
    "margin": {"0": 0.1, "1": 0.3, "2": -0.2, "3": 0.5},
}


@pytest.mark.parametrize(("temperature", "printed"), [(0.5, 126.808808), (1.0, 32.049726)])
def test_threshold_of_class_averaged_negatives(temperature: float, printed: float) -> None:
    found = og.collapse_threshold(og.SupCon(temperature, negative_weights="class-average"), minorities=9)
    m, q = 9, math.exp(-2 / temperature)
    expected = (2 * m - q) * (1 + m * q) / ((m + q) * q)
    assert m * found.odds == pytest.approx(expected, rel=1e-11)
    assert m * found.odds == pytest.approx(printed, rel=1e-8)
    assert found.published_sufficient is None


@pytest.mark.parametrize(
    "loss",
    [
        og.SupCon(1.0, anchor_weights="balanced"),
        og.SupCon(1.0, anchor_weights={"0": 1, "1": 2, "2": 0.5}),
        og.SupCon(1.0, 16, negative_weights={"0": 1, "1": 2, "2": 0.5}),
        og.SupCon(1.0, 16, negative_weights="batch-average"),
        og.SupCon(1.0, margin={"0": 0.2, "1": 0.5, "2": 0.5}),
        og.InfoNCE(1.0, 4, class_temperatures={"0": 1, "1": 0.8, "2": 1.2}, anchor_weights={"0": 1, "1": 2, "2": 0.5}),
    ],
)
def test_minorities_collapse_exactly_above_the_threshold(loss: Any) -> None:
    odds = og.collapse_threshold(loss, minorities=2).odds
    for factor, rank in ((0.99, 2), (1.01, 1)):
        above = odds * factor
        classes = ClassDistribution.from_proportions([above / (1 + above), *[0.5 / (1 + above)] * 2])
        margin = collapse_margin(classes, loss)
        assert margin is not None
        assert margin.collapsed == (rank == 1)
        assert margin.factor == pytest.approx(1 / factor, rel=1e-9)
        assert og.solve(classes, loss).rank == rank


def test_both_balances_have_no_threshold() -> None:
    with pytest.raises(IncompatibleError, match="`loss` has no threshold: SupCon, temperature 1"):
        og.collapse_threshold(og.SupCon(1.0, **BOTH), minorities=9)


def test_named_weights_of_very_many_minorities_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="`anchor_weights` by class needs the classes"):
        og.collapse_threshold(og.SupCon(1.0, anchor_weights={"0": 1.0, "1": 2.0}), minorities=10**6)


def losses_for_the_simplex() -> list[tuple[og.Loss, float]]:
    """Losses at T = .1 whose optimum is the simplex, with the slack that 2 degrees need (theory, section 15)."""
    prescribed = GOLDEN_2["prescriptions"]
    table = np.array(prescribed["negative weights, simplex"]["b"]) + np.eye(4)
    margins = np.array(prescribed["margin per class, simplex"]["w"])[:, None] / FOUR.proportions
    temperatures = prescribed["temperature per class, simplex"]["temperatures"]
    plain: dict[str, Any] = {"negatives": math.inf, "negatives_reduction": "mean", "own_class_in_denominator": False}
    return [
        (og.SupCon(0.1, **BOTH), 3.8e-8),
        (og.SupCon(0.1, negative_weights=table), 3.3e-5),
        (og.InfoNCE(0.1, negative_weights=margins, **plain), 3.3e-5),
        (
            og.InfoNCE(
                0.1,
                negative_weights=np.tile(1 / FOUR.proportions, (4, 1)),
                class_temperatures=dict(zip("0123", temperatures, strict=True)),
                **plain,
            ),
            7.9e-7,
        ),
    ]


@pytest.mark.parametrize(("loss", "slack"), losses_for_the_simplex())
def test_slack_that_prescribed_losses_need(loss: og.Loss, slack: float) -> None:
    geometry = og.solve(FOUR, loss)
    assert geometry.gram == pytest.approx(np.where(np.eye(4) > 0, 1.0, -1 / 3), abs=1e-9)
    needed = og.slack_needed(geometry, pairs=[(0, 1)]).pairs[0]
    assert needed.whole == pytest.approx(slack, rel=0.02)
    assert needed.whole_lower == pytest.approx(needed.whole, rel=1e-6)


@pytest.mark.parametrize("loss", [og.SupCon(0.5, **MIXED), og.SupCon(0.5, 32, **BOTH)])
def test_ranges_are_certified_and_near_to_second_order(loss: Any) -> None:
    geometry = og.solve(FOUR, loss)
    near = og.ranges(geometry, slack=1e-7)
    assert all(pair.certified for pair in near.pairs)
    # Small ranges are symmetric: half widths of four times the slack are twice as wide.
    wider = og.ranges(geometry, slack=4e-7)
    for small, large in zip(near.pairs, wider.pairs, strict=True):
        half = small.farthest_deg - small.closest_deg
        assert large.farthest_deg - large.closest_deg == pytest.approx(2 * half, rel=2e-3)


@pytest.mark.parametrize("kernel", ["free", "network"])
def test_relaxation_rates_are_those_of_differences(kernel: str) -> None:
    loss = og.SupCon(0.5, **MIXED)
    geometry = og.solve(FOUR, loss)
    means = geometry.prototypes()
    from optgeom.programs.class_mean import ClassMeanProgram

    program = ClassMeanProgram.build(FOUR, loss, grouped=False)

    def force(rows: np.ndarray) -> np.ndarray:
        unit = rows / np.linalg.norm(rows, axis=1)[:, None]
        gram = unit @ unit.T
        gradient = program.gradient(gram) * (1 - np.eye(4))
        slope = 2 * gradient @ unit
        slope -= (slope * unit).sum(axis=1)[:, None] * unit
        return slope / np.linalg.norm(rows, axis=1)[:, None]

    size, step = means.size, 1e-5
    hessian = np.empty((size, size))
    for entry in range(size):
        moved = np.zeros(size)
        moved[entry] = step
        moved = moved.reshape(means.shape)
        hessian[:, entry] = ((force(means + moved) - force(means - moved)) / (2 * step)).ravel()
    weight = FOUR.proportions if kernel == "free" else np.ones(4)
    rates = np.linalg.eigvals(hessian / np.repeat(weight, means.shape[1])[:, None]).real
    nonzero = np.sort(rates[rates > 1e-6])
    found = og.relaxation(geometry, kernel=kernel)
    assert (found.slowest, found.fastest) == pytest.approx((nonzero[0], nonzero[-1]), rel=1e-6)


@pytest.mark.parametrize("loss", [og.SupCon(0.5, **MIXED), og.SupCon(0.5, 64, **BOTH)])
def test_sensitivity_to_a_class_size_is_the_limit_of_differences(loss: Any) -> None:
    step = 1e-4

    def gram_at(log_factor: float) -> np.ndarray:
        lam = FOUR.proportions * np.exp(log_factor * (np.arange(4) == 0))
        return np.asarray(og.solve(ClassDistribution.from_proportions(lam / lam.sum()), loss).gram)

    differences = (gram_at(step) - gram_at(-step)) / (2 * step)
    assert og.sensitivity(FOUR, loss, to=0).gram == pytest.approx(differences, abs=1e-7)


def test_weights_are_axes_of_a_scan(tmp_path: Any) -> None:
    axes = {
        "majority": [0.5, 0.9],
        "anchor_weights": [None, "balanced"],
        "negative_weights": [None, "class-average", "batch-average"],
    }
    table = og.scan(3, og.SupCon(0.5, batch_size=16), axes=axes, out=tmp_path / "scan.csv")
    assert (len(table), table.uncertified) == (12, 0)
    again = og.scan(3, og.SupCon(0.5, batch_size=16), axes=axes, out=tmp_path / "scan.csv")
    assert again.new == 0
    named = og.scan(3, og.SupCon(0.5, anchor_weights={"0": 1.0, "1": 2.0, "2": 3.0}), axes={"majority": [0.5]})
    classes = ClassDistribution.from_groups([2, 1], [1, 2])
    expected = og.solve(classes, og.SupCon(0.5, anchor_weights={"0": 1.0, "1": 2.0, "2": 3.0}))
    assert named.rows[0]["risk"] == pytest.approx(expected.risk, rel=1e-12)


def test_design_keeps_the_weights() -> None:
    classes = ClassDistribution.from_counts([500, 50, 50])
    loss = og.SupCon(0.5, negative_weights="class-average")
    designed = og.design(classes, loss, "temperature", min_angle=100)
    assert designed.value is not None
    at, beyond = (
        og.solve(classes, dataclasses.replace(loss, temperature=designed.value * factor)) for factor in (1.0, 1.01)
    )
    assert at.min_angle_deg >= 100 - 1e-6 > beyond.min_angle_deg


@pytest.mark.parametrize("given", [MIXED, BOTH, {"negative_weights": "batch-average", "anchor_weights": "balanced"}])
def test_loss_values_with_weights(given: dict[str, Any]) -> None:
    classes = ClassDistribution.from_counts([6, 3, 2, 1])
    loss = og.SupCon(0.5, batch_size=5, **given)
    values = og.loss_values(classes, loss)
    assert values.collapsed_formula == "the mean logarithm of the weighted denominators"
    assert values.optimal_value is not None
    assert values.geometry is not None
    # Batch by batch, at the optimum and with all features at one point.
    batches = counts_of(5, classes.proportions)
    images = np.array([n for n, _ in batches])
    chances = np.array([chance for _, chance in batches])
    weights = loss.class_values(classes)
    assert weights is not None
    anchors = images @ weights.anchor
    for gram, expected in (
        (np.array(values.geometry.gram), values.optimal_value),
        (np.ones((4, 4)), values.collapsed_value),
    ):
        single = loss.batch_values(gram, images, weights)
        assert chances @ (anchors * single) / (chances @ anchors) == pytest.approx(expected, abs=1e-12)


def test_values_of_weights_need_classes() -> None:
    loss = og.SupCon(0.5, anchor_weights="balanced")
    with pytest.raises(IncompatibleError, match="`loss` has values per class; got rows of unknown classes"):
        og.loss_values(loss=loss, rows=64)
    values = og.loss_values(
        labels=[0, 0, 0, 1, 1, 2], loss=og.SupCon(0.5, views=1, negative_weights={"0": 1, "1": 2, "2": 3})
    )
    # Anchors of class 0 see two rows of their own, two of weight 2 and one of weight 3.
    assert values.per_anchor_collapsed == pytest.approx([math.log(9)] * 3 + [math.log(3 + 2 + 3)] * 2 + [None])


@pytest.mark.parametrize(
    ("question", "parameter"),
    [
        (lambda loss: og.loss_values(FOUR, loss, base_temperature=0.07), "base_temperature"),
        (
            lambda loss: og.relaxation(og.solve(FOUR, loss)).steps(learning_rate=0.1, base_temperature=0.07),
            "base_temperature",
        ),
        (lambda loss: og.sensitivity(FOUR, loss), "temperature"),
        (lambda loss: og.design(FOUR, loss, "temperature"), "temperature"),
    ],
)
def test_one_temperature_is_needed(question: Any, parameter: str) -> None:
    with pytest.raises(InvalidInputError, match=f"`{parameter}` needs one temperature for all classes"):
        question(og.SupCon(0.5, **MIXED))
