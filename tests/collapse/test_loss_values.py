"""Landmarks of the loss against closed forms, the loss of explicit rows, and the cases that people meet in practice."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from helpers import reference
from scipy.special import logsumexp

import optgeom as og
from optgeom.collapse.loss_values import loss_values

SIMCLR = og.ClassDistribution.from_groups([1], [128])
MILD = og.ClassDistribution.from_counts([90, 30, 10])


def supcon_rows(features, labels, temperature, singletons="zero"):
    """SupCon of explicit rows, as the paper writes it: the loss, and the value per anchor (NaN without a positive)."""
    scaled = features @ features.T / temperature
    terms = np.full(len(labels), np.nan)
    for anchor in range(len(labels)):
        others = np.arange(len(labels)) != anchor
        positives = others & (labels == labels[anchor])
        if positives.any():
            terms[anchor] = logsumexp(scaled[anchor, others]) - scaled[anchor, positives].mean()
    return (np.nansum(terms) / len(labels) if singletons == "zero" else np.nanmean(terms)), terms


# ----------------------------------------------------------------------------------------------------------------------
# cases from practice


def test_identical_rows():
    values = loss_values(rows=8, observed=1.9459101)
    assert values.collapsed_value == pytest.approx(1.945910, abs=5e-7)
    assert values.verdict.startswith("collapsed: this is ln(8 - 1) = 1.945910 (within 0.019)")
    assert (values.optimal_value, values.simplex_value, values.geometry) == (None, None, None)


@pytest.mark.parametrize("labels", [[1] * 16, [0] * 8 + [1] * 8], ids=["one label", "two labels"])
def test_collapsed_loss_does_not_depend_on_labels(labels):
    assert loss_values(labels=labels).collapsed_value == pytest.approx(2.708050, abs=5e-7)
    assert loss_values(rows=16).collapsed_value == pytest.approx(2.708050, abs=5e-7)


def test_stuck_at_six_point_nine_two():
    loss = og.SupCon(0.1)
    values = loss_values(loss=loss, rows=128, base_temperature=0.07, observed=6.92)
    assert values.collapsed_value == pytest.approx(6.920267, abs=5e-7)
    assert values.scale == pytest.approx(10 / 7)
    assert values.verdict.startswith("collapsed: this is 1.42857 times ln(128 - 1) = 6.920267")
    without = loss_values(loss=loss, rows=128, observed=6.92)
    assert "collapsed, if your code multiplies by temperature / base temperature = 0.1 / 0.07" in without.verdict
    assert "6.920267 (give the base temperature)" in without.verdict


def test_simclr():
    values = loss_values(SIMCLR, og.SupConFullBatch(0.1, views=2), observed=5.5)
    assert values.collapsed_value == pytest.approx(5.541264, abs=5e-7)
    assert values.optimal_value == pytest.approx(0.010602, abs=5e-7)
    assert values.optimal_value == pytest.approx(math.log1p(254 * math.exp(-128 / (127 * 0.1))), rel=1e-12)
    assert values.verdict.startswith("collapsed: this is ln(256 - 1)")
    assert values.rows == 256 and values.geometry.certificate.certified
    assert any("127 dimensions or more" in note for note in values.notes)


def test_floor_of_balanced_supcon_is_not_zero():
    values = loss_values(og.ClassDistribution.from_counts([20] * 6), og.SupConFullBatch(0.1))
    assert values.optimal_value == pytest.approx(2.944471, abs=5e-7)
    assert values.optimal_value == pytest.approx(math.log(19 + 100 * math.exp(-6 / (5 * 0.1))), rel=1e-12)
    assert values.simplex_value == values.optimal_value


@pytest.mark.parametrize(("singletons", "mean"), [("skip", 1.098612), ("zero", 0.549306)])
def test_anchors_without_a_positive(singletons, mean):
    values = loss_values(labels=[0, 1, 1, 3], loss=og.SupConFullBatch(singletons=singletons))
    assert values.collapsed_value == pytest.approx(mean, abs=5e-7)
    assert values.per_anchor_collapsed == (None, pytest.approx(math.log(3)), pytest.approx(math.log(3)), None)
    assert (values.rows, values.anchors_without_positive) == (4, 2)
    fate = "count as 0" if singletons == "zero" else "are skipped"
    assert any(note.startswith(f"2 of 4 anchors without a positive: they {fate}") for note in values.notes)
    explicit, terms = supcon_rows(np.ones((4, 1)), np.array([0, 1, 1, 3]), 0.1, singletons)
    assert values.collapsed_value == pytest.approx(explicit, rel=1e-12)
    np.testing.assert_array_equal(np.isnan(terms), [value is None for value in values.per_anchor_collapsed])


def test_no_anchor_with_a_positive_is_an_error():
    with pytest.raises(
        og.InvalidInputError, match=r"got 4 different ones: no anchor has a positive, SupCon is undefined, not 0"
    ):
        loss_values(labels=[0, 1, 2, 3])
    with pytest.raises(og.InvalidInputError, match="no anchor has a positive: SupCon is undefined"):
        loss_values(SIMCLR, og.SupConFullBatch(0.1, views=1))
    assert loss_values(labels=[0, 1, 2, 3], loss=og.SupConFullBatch(views=2)).collapsed_value == pytest.approx(
        math.log(7)
    )


@pytest.mark.parametrize("temperature", [0.01, 0.001])
def test_small_temperatures_are_finite(temperature):
    for classes, loss in (
        (SIMCLR, og.SupConFullBatch(temperature, views=2)),
        (og.ClassDistribution.from_counts([20] * 6), og.SupConFullBatch(temperature)),
        (og.ClassDistribution.from_counts([20] * 6), og.SupCon(temperature, 64)),
    ):
        values = loss_values(classes, loss)
        assert all(
            math.isfinite(value) for value in (values.collapsed_value, values.optimal_value, values.simplex_value)
        )
        assert values.collapsed_value > values.optimal_value >= 0


def test_value_is_proved_where_the_geometry_is_not():
    """The loss is so flat that no cosine can be certified, but every spread geometry has this value.

    The batch has n_i rows of the anchor's class.
    """
    with np.errstate(all="ignore"):
        values = loss_values(MILD, og.SupConFullBatch(0.001))
    expected = sum(n / 130 * math.log(n - 1) for n in (90, 30, 10))
    assert values.optimal_value == pytest.approx(expected, rel=1e-12)
    if not values.geometry.certificate.certified:
        assert any("but not the geometry that attains it" in note for note in values.notes)


# ----------------------------------------------------------------------------------------------------- values against
# independent numbers


@pytest.mark.parametrize(
    "case", [case for case in reference.GOLDEN["supcon"] if case["views"] == 2], ids=lambda case: case["name"]
)
def test_optimal_value_of_batches_is_the_golden_risk(case):
    classes, loss = reference.build(case)
    values = loss_values(classes, loss, base_temperature=0.07)
    scale = case["temperature"] / 0.07
    assert values.optimal_value == pytest.approx(scale * case["risk"], rel=1e-9)
    if case["batch_size"] != "inf":
        assert values.collapsed_value == pytest.approx(scale * math.log(2 * case["batch_size"] - 1), rel=1e-12)


@pytest.mark.parametrize(
    ("loss", "value", "formula"),
    [
        (og.InfoNCE(0.1, 256), math.log(257), "ln(1 + 256)"),
        (og.InfoNCE(0.1, 8, 0.5, "mean", "scl"), math.log(1.5), "ln(0.5 + 1)"),
        (og.InfoNCE(0.1, math.inf, 1.0, "mean"), math.log(2), "ln(1 + 1)"),
        (og.SupCon(0.5, 16, 3), math.log(47), "ln(48 - 1)"),
        (og.SupCon(0.5, 16, 1, "skip"), math.log(15), "ln(16 - 1)"),
    ],
    ids=str,
)
def test_collapsed_values(loss, value, formula):
    values = loss_values(MILD, loss)
    assert values.collapsed_value == pytest.approx(value, rel=1e-12)
    assert values.collapsed_formula == formula
    assert values.optimal_value < values.simplex_value < values.collapsed_value


def test_collapsed_value_of_one_view_counts_anchors_without_a_positive_as_zero():
    values = loss_values(MILD, og.SupCon(0.5, 16, 1))
    share = sum(p * (1 - (1 - p) ** 15) for p in (9 / 13, 3 / 13, 1 / 13))
    assert values.collapsed_value == pytest.approx(math.log(15) * share, rel=1e-12)
    assert values.collapsed_formula.endswith("times the share of anchors that have a positive")
    assert any(note.startswith(f"on average {100 * (1 - share):.2g} % of the anchors") for note in values.notes)


def test_simplex_value_is_the_loss_of_explicit_rows():
    counts, tau = [5, 3, 1, 1], 0.4
    labels = np.repeat(np.arange(4), counts)
    simplex = np.linalg.cholesky(np.eye(4) * 4 / 3 - 1 / 3 + 1e-15 * np.eye(4))
    explicit, _ = supcon_rows(simplex[labels], labels, tau, "skip")
    values = loss_values(og.ClassDistribution.from_counts(counts), og.SupConFullBatch(tau, singletons="skip"))
    assert values.simplex_value == pytest.approx(explicit, rel=1e-7)
    assert values.optimal_value < values.simplex_value
    optimal, _ = supcon_rows(values.geometry.prototypes()[labels], labels, tau, "skip")
    assert values.optimal_value == pytest.approx(optimal, rel=1e-9)


def test_batch_of_labels_agrees_with_explicit_rows():
    labels = np.array([2, 0, 2, 1, 0, 2])
    values = loss_values(labels=labels, loss=og.SupConFullBatch(0.3, 2), base_temperature=0.1)
    _, where = np.unique(labels, return_inverse=True)
    rows = values.geometry.prototypes()[np.repeat(where, 2)]
    explicit, _ = supcon_rows(rows, np.repeat(labels, 2), 0.3)
    assert values.optimal_value == pytest.approx(3 * explicit, rel=1e-9)
    assert values.per_anchor_collapsed == (pytest.approx(3 * math.log(11)),) * 6


def test_one_class_is_at_its_floor_when_collapsed():
    values = loss_values(labels=["a"] * 5, loss=og.SupConFullBatch(0.2), observed=math.log(4))
    assert values.optimal_value == values.collapsed_value == pytest.approx(math.log(4))
    assert values.verdict.startswith("collapsed and optimal have the same value here")
    rng = np.random.default_rng(0)
    features = rng.normal(size=(5, 3))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    assert supcon_rows(features, np.zeros(5), 0.2)[0] > values.optimal_value


def test_limit_of_large_batches_leaves_a_logarithm_out():
    values = loss_values(MILD, og.SupCon(0.5))
    assert values.constant is None and values.collapsed_value == 0.0
    assert any("batches of N images add ln(2 (N - 1))" in note for note in values.notes)
    size = 10**6
    exact = loss_values(MILD, og.SupCon(0.5), rows=2 * size)
    assert exact.loss.batch_size == size and exact.constant == 0.0
    assert exact.optimal_value == pytest.approx(values.optimal_value + math.log(2 * (size - 1)), abs=1e-5)


def test_batches_of_cifar100_lt():
    values = loss_values(og.ClassDistribution.from_profile("cifar100-lt:100"), og.SupCon(0.1, 256))
    assert any("19.0 classes have one image in a batch and 36.8 none" in note for note in values.notes)


def test_rows_are_known_from_the_loss():
    assert loss_values(loss=og.SupCon(0.1, 64)).collapsed_value == pytest.approx(math.log(127))
    assert loss_values(MILD, og.SupCon(0.1, 64), rows=128).rows == 128
    assert loss_values(MILD, og.SupConFullBatch(0.1), rows=130).rows == 130


def test_as_dict_is_ready_for_json():
    found = json.loads(json.dumps(loss_values(MILD, og.SupCon(0.1, 64), observed=4.0).as_dict()))
    assert {
        "collapsed_value",
        "optimal_value",
        "simplex_value",
        "verdict",
        "certificate",
        "rank",
        "regime",
        "notes",
    } <= set(found)
    assert found["certificate"]["certified"] is True and found["rank"] == 2
    assert loss_values(rows=8).as_dict()["certificate"] is None


# ----------------------------------------------------------------------------------------------------------------------
# verdicts

WARM = og.SupCon(1.0, 64)  # at temperature 1 the simplex lies well above the optimum
TAIL = og.ClassDistribution.from_counts([900, 50, 50])


def landmarks():
    values = loss_values(TAIL, WARM)
    return values.collapsed_value, values.optimal_value, values.simplex_value


def said(observed, **more):
    return loss_values(TAIL, WARM, observed=observed, **more).verdict


def test_verdicts_in_order():
    collapsed, optimal, simplex = landmarks()
    way = collapsed - optimal
    assert simplex - optimal > 0.02 * way
    assert said(collapsed - 0.009 * way).startswith(f"collapsed: this is ln(128 - 1) = {collapsed:.6f}")
    assert said(optimal + 0.009 * way) == f"at the optimum {optimal:.6f} (within {0.01 * way:.2g})"
    assert said(optimal - 0.009 * way).startswith("at the optimum")
    # Less than one standard deviation of one batch (fault 13); the mean of many leaves no doubt.
    assert said(optimal - 0.2 * way).startswith("at the optimum, as far as noise tells")
    below = said(optimal - 0.2 * way, batches=10_000)
    assert below.startswith(
        f"below the optimum {optimal:.6f} by {0.2 * way:.4g}: impossible for these settings (check temperature"
    )
    assert "base temperature, batch size" in below and "anchor itself is excluded" in below
    assert said(simplex).startswith(f"near the value of the balanced simplex, {simplex:.6f}")
    assert f"{100 * (collapsed - simplex) / way:.1f} % of the way" in said(simplex)
    assert (
        said(optimal + 0.25 * way)
        == f"above the floor {optimal:.6f} by {0.25 * way:.4g} (75.0 % of the way from collapsed to optimal)"
    )
    assert said(collapsed + 0.5 * way).startswith(
        f"above the collapsed value {collapsed:.6f} by {0.5 * way:.4g}: positives are farther apart"
    )
    assert said(0.0).startswith(
        "exactly 0: no anchor had a positive (every label once in the batch?), or all were masked; "
        "the loss itself is never"
    )


def test_tolerance_is_the_users():
    collapsed, optimal, _ = landmarks()
    near = collapsed - 0.05 * (collapsed - optimal)
    assert said(near).startswith("above the floor")
    assert said(near, equal_within=0.1).startswith("collapsed")


def test_when_the_simplex_cannot_be_told_from_the_optimum():
    values = loss_values(MILD, og.SupCon(0.1, 64))
    verdict = loss_values(MILD, og.SupCon(0.1, 64), observed=values.optimal_value).verdict
    assert verdict.endswith("the balanced simplex has nearly this value too: the loss cannot tell them apart")
    assert any("the loss hardly tells them apart" in note for note in values.notes)


def test_verdicts_of_rows_alone():
    assert loss_values(rows=8, observed=1.5).verdict.startswith(
        "not collapsed: 0.4459 below the collapsed value ln(8 - 1) = 1.945910"
    )
    assert loss_values(rows=8, observed=0.0).verdict.endswith("the loss itself cannot be 0")
    assert loss_values(rows=8, observed=-3.0).verdict.startswith(
        "below 0: impossible, as the positive is one of the terms"
    )
    assert loss_values(rows=8, observed=2.5).verdict.startswith("above the collapsed value 1.945910 by 0.5541")


def test_zero_is_an_honest_value_where_the_floor_is_zero():
    values = loss_values(SIMCLR, og.SupConFullBatch(0.02, views=2), observed=0.0)
    assert values.verdict.startswith("at the optimum")


# ----------------------------------------------------------------------------------------------------------------------
# errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, r"`classes` must be given, or `rows` of a SupCon batch; got neither"),
        ({"rows": 2}, r"`rows` must be a whole number >= 3; got 2 .*with two rows the loss is 0"),
        ({"rows": 8, "loss": og.InfoNCE(0.1)}, "`rows` goes with SupCon, whose batches have rows"),
        ({"rows": 8, "base_temperature": 0.07}, "`base_temperature` needs a loss; got none"),
        (
            {"rows": 8, "base_temperature": 0.0, "loss": og.SupCon()},
            "`base_temperature` must be > 0; got 0.0 .*SupContrast uses 0.07",
        ),
        ({"rows": 8, "observed": math.nan}, "`observed` must be .*a finite number; got nan"),
        ({"rows": 8, "equal_within": 0.0}, "`equal_within` must be > 0; got 0.0"),
        ({"rows": 8, "equal_within": 0.5}, "`equal_within` must be below 0.5; got 0.5"),
        ({"classes": MILD}, "`loss` must be given with classes; got None"),
        (
            {"classes": MILD, "loss": og.SupCon(0.1), "observed": 1.0},
            "`observed` needs the size of the batches; got the limit of SupCon",
        ),
        (
            {"classes": MILD, "loss": og.SupCon(0.1, 64), "rows": 64},
            "`rows` must be batch_size times views, 128; got 64",
        ),
        ({"classes": MILD, "loss": og.SupCon(0.1), "rows": 65}, "`rows` must be a multiple of the 2 views; got 65"),
        (
            {"classes": MILD, "loss": og.SupConFullBatch(0.1), "rows": 64},
            "`rows` must be the sum of all counts times the views, 130",
        ),
        (
            {"classes": MILD, "loss": og.InfoNCE(0.1), "rows": 64},
            "`rows` goes with SupCon, whose batches have rows; got 64 with another loss",
        ),
    ],
    ids=lambda part: None if isinstance(part, str) else "-".join(part) or "nothing",
)
def test_arguments_that_make_no_question(arguments, message):
    with pytest.raises(og.InvalidInputError, match=message):
        loss_values(**arguments)


def test_batches_that_are_none():
    with pytest.raises(og.InvalidInputError, match=r"`labels` must make three rows or more .*; got 2"):
        loss_values(labels=[1, 1])
    with pytest.raises(og.InvalidInputError, match="`labels` must be one integer or string per row"):
        loss_values(labels=[[1, 0, 1], [0, 1, 1]])


def test_values_in_few_dimensions_lie_in_the_bracket_of_the_solution() -> None:
    classes, loss = og.ClassDistribution.from_counts([9, 9, 9, 9, 9, 9]), og.SupCon(0.3, batch_size=32)
    values = og.loss_values(classes, loss, dim=3, base_temperature=0.1)
    bracket = og.solve(classes, loss, dim=3).bracket
    assert bracket is not None
    assert values.bracket == pytest.approx((3 * bracket[0], 3 * bracket[1]))
    assert values.optimal_value == values.bracket[1]
    assert values.unlimited_value == pytest.approx(3 * og.solve(classes, loss).risk)
    assert "the optimum needs 5 dimensions; in 3 the lowest value is at least" in " ".join(values.notes)
    enough = og.loss_values(classes, loss, dim=5)
    assert enough.bracket is None and enough.unlimited_value is None


def test_a_dimension_needs_classes() -> None:
    with pytest.raises(og.errors.InvalidInputError, match="`dim` needs `classes`; got 3 without"):
        og.loss_values(rows=128, dim=3)
