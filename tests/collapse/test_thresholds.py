"""Exact collapse thresholds against closed forms, enumeration, a dense dual matrix, and the solver itself."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
import scipy.linalg
from helpers import reference
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import binom

import optgeom as og
from optgeom.collapse.thresholds import (
    CollapseThreshold,
    collapse_margin,
    collapse_ratio,
    collapse_threshold,
)
from optgeom.losses.infonce import PUBLISHED_SUFFICIENT
from optgeom.programs.class_mean import ClassMeanProgram

SPLIT = (0.5, 0.3, 0.15, 0.05)


def infonce(k, tau=1.0, law="ucl", alpha=1.0):
    return og.InfoNCE(tau, k, alpha, "mean" if k == math.inf else "sum", law)


# ----------------------------------------------------------------------------------------------------------------------
# independent formulas


def slope(t, opposite, k, alpha, tau):
    """E[dpsi/dt] of one negative at t.

    Each of the other k - 1 is opposite (t = -2/tau) with this chance and coincident otherwise.
    """
    far = math.exp(-2 / tau)
    if k == math.inf:
        return math.exp(t) / (alpha + (1 - opposite) + opposite * far)
    number = np.arange(k)
    total = alpha + math.exp(t) + number * far + (k - 1 - number) * 1.0
    return float(np.sum(binom.pmf(number, k - 1, opposite) * math.exp(t) / total))


def chances(odds, law, m):
    """Shares, then chances that a negative is opposite, for anchors of both kinds, then those of single classes."""
    major, minor = odds / (1 + odds), 1 / (1 + odds)
    one = minor / m
    if law == "ucl":
        return major, minor, one, (minor, one), (major, major, one)
    return major, minor, one, (1.0, 1 / m), (major / (major + minor - one), major / (1 - one), one / (1 - one))


def slack(odds, k, alpha, tau, law, m):
    """Log of the two sides of the inequality in closed form: total collapse is optimal iff it is <= 0."""
    major, minor, one, (opposite_major, _), (opposite_minor, _, _) = chances(odds, law, m)
    far = -2 / tau
    near = slope(0.0, opposite_minor, k, alpha, tau)
    by_majority = slope(far, opposite_major, k, alpha, tau)
    by_minority = slope(far, opposite_minor, k, alpha, tau)
    if law == "ucl":
        return math.log(minor * near) - math.log(major / 2 * (by_majority + by_minority))
    left = minor**2 / (1 - one) * near
    return math.log(left) - math.log(major / 2 * (by_majority + minor / (1 - one) * by_minority))


def smallest_eigenvalue(odds, k, alpha, tau, law, m):
    """Of the dense dual matrix Z at total collapse, scaled to unit diagonal, on the complement of its null vector."""
    major, _, one, (opposite_major, to_minor), (opposite_minor, to_major, to_other) = chances(odds, law, m)
    far = -2 / tau
    factor = 1 if k == math.inf else k
    force = np.zeros((m + 1, m + 1))
    pull = major * factor * to_minor * slope(far, opposite_major, k, alpha, tau)
    pull += one * factor * to_major * slope(far, opposite_minor, k, alpha, tau)
    force[0, 1:] = force[1:, 0] = pull
    force[1:, 1:] = 2 * one * factor * to_other * slope(0.0, opposite_minor, k, alpha, tau)
    np.fill_diagonal(force, 0.0)
    v = np.array([1.0] + [-1.0] * m)
    z = force - np.diag((force * np.outer(v, v)).sum(axis=1))
    complement = scipy.linalg.null_space(v[None, :])
    return scipy.linalg.eigvalsh(complement.T @ z @ complement / pull)[0]


def settings(number):
    """Random (m, k, alpha, tau); every fifth with infinitely many negatives."""
    rng = np.random.default_rng(7)
    for index in range(number):
        k = math.inf if index % 5 == 0 else int(np.exp(rng.uniform(0, np.log(300))))
        alpha = float(rng.choice([0.0, 1.0, rng.uniform(0.05, 3.0)]))
        yield int(rng.integers(2, 40)), k, alpha, float(np.exp(rng.uniform(np.log(0.07), np.log(5.0))))


@pytest.mark.parametrize("law", ["ucl", "scl"])
def test_inequality_and_dense_dual_give_the_same_odds(law):
    for m, k, alpha, tau in settings(200):
        found = collapse_threshold(infonce(k, tau, law, alpha), minorities=m).log_odds
        inequality = brentq(lambda x: slack(math.exp(x), k, alpha, tau, law, m), found - 1, found + 1, xtol=1e-13)  # noqa: B023
        eigenvalue = functools.partial(
            lambda setting, x: smallest_eigenvalue(math.exp(x), *setting), (k, alpha, tau, law, m)
        )
        dense = brentq(eigenvalue, found - 0.1, found + 0.1, xtol=1e-13)
        assert math.expm1(found - inequality) == pytest.approx(0, abs=1e-9), (m, k, alpha, tau)
        assert math.expm1(found - dense) == pytest.approx(0, abs=1e-9), (m, k, alpha, tau)


def limit_odds(tau):
    """Closed form for infinitely many negatives from everywhere, without the positive in the denominator."""
    q = math.exp(-2 / tau)
    s = q + q * q
    return ((2 - s) + math.sqrt((2 - s) ** 2 + 8 * q * s)) / (2 * s)


# ----------------------------------------------------------------------------------------------------------------------
# known values


@pytest.mark.parametrize("law", ["ucl", "scl"])
@pytest.mark.parametrize(
    "case", reference.GOLDEN["thresholds"], ids=lambda case: f"k{case['negatives']}-m{case['minorities']}"
)
def test_golden(case, law):
    loss = og.InfoNCE(case["temperature"], case["negatives"], case["alpha"], case["negatives_reduction"], law)
    assert collapse_threshold(loss, minorities=case["minorities"]).threshold == pytest.approx(case[law], abs=1e-9)


def test_one_negative_in_closed_form():
    threshold = collapse_threshold(infonce(1))
    assert threshold.odds == pytest.approx((1 + math.e**2) / 2, rel=1e-12)
    assert threshold.threshold == pytest.approx(0.807490, abs=5e-7)
    assert threshold.one_minus_threshold == pytest.approx(1 - threshold.threshold, abs=1e-15)
    assert math.exp(threshold.log_odds) == threshold.odds


@pytest.mark.parametrize(
    ("tau", "odds"), [(1.0, 12.1613696667), (0.5, 106.25), (0.1, 9.7033e8), (0.07, 5.1220e12), (0.01, None)]
)
def test_limit_of_many_negatives_in_closed_form(tau, odds):
    for loss in (og.SupCon(tau), infonce(math.inf, tau, "ucl", 0.0), og.SupCon(tau, views=1)):
        threshold = collapse_threshold(loss, minorities=9)
        assert threshold.odds == pytest.approx(limit_odds(tau), rel=1e-11)
        if odds is not None:
            assert threshold.odds == pytest.approx(odds, rel=1e-4)


def test_the_share_that_rounds_to_one_keeps_its_complement():
    threshold = collapse_threshold(og.SupCon(0.01))
    assert threshold.threshold == 1.0
    assert threshold.one_minus_threshold == pytest.approx(1 / limit_odds(0.01), rel=1e-11)


def test_unequal_minorities():
    assert collapse_threshold(infonce(8, law="scl"), split=SPLIT).threshold == pytest.approx(0.685872, abs=5e-7)
    assert collapse_threshold(infonce(8, law="scl"), minorities=4).threshold == pytest.approx(0.674241, abs=5e-7)
    for found in (collapse_threshold(infonce(8), split=SPLIT), collapse_threshold(infonce(8), minorities=4)):
        assert found.threshold == pytest.approx(0.890378, abs=5e-7)
    scaled = collapse_threshold(infonce(8, law="scl"), split=[50, 30, 15, 5])
    assert scaled.log_odds == pytest.approx(collapse_threshold(infonce(8, law="scl"), split=SPLIT).log_odds, abs=1e-12)
    assert scaled.minorities == 4
    equal = collapse_threshold(infonce(8, law="scl"), split=[2, 2, 2])
    assert equal.log_odds == pytest.approx(collapse_threshold(infonce(8, law="scl"), minorities=3).log_odds, abs=1e-12)


def test_supcon_with_two_views_is_infonce():
    threshold = collapse_threshold(og.SupCon(0.5, batch_size=9, views=2), minorities=5)
    assert threshold.log_odds == pytest.approx(
        collapse_threshold(og.InfoNCE(0.5, 8, 0.5, "sum", "ucl"), minorities=5).log_odds, abs=1e-12
    )


def test_supcon_with_one_view_by_enumeration():
    """Three rows and two minorities: all count vectors of the two other rows, written out.

    Coefficients are rational numbers times powers of exp(-2/tau).
    """
    tau, m = 0.5, 2
    far = math.exp(-2 / tau)

    def excess(log_odds):
        major = math.exp(log_odds) / (1 + math.exp(log_odds))
        share = [major, (1 - major) / m, (1 - major) / m]
        side = [1, -1, -1]
        pull = np.zeros((3, 3))
        for anchor in range(3):
            for first in range(3):
                for second in range(3):
                    drawn = [first, second]
                    if anchor not in drawn:
                        continue
                    x = [1.0 if side[c] == side[anchor] else far for c in drawn]
                    for c, value in zip(drawn, x, strict=True):
                        pull[anchor, c] += share[first] * share[second] * value / sum(x)
        force = np.array(share)[:, None] * pull
        force = force + force.T
        return math.log(m * force[1, 2] / force[0, 1])

    exact = brentq(excess, 0.0, 20.0, xtol=1e-13)
    assert collapse_threshold(og.SupCon(tau, 3, 1), minorities=m).log_odds == pytest.approx(exact, abs=1e-9)
    assert collapse_threshold(og.SupCon(tau, 3, 1, "skip"), minorities=m).log_odds == pytest.approx(exact, abs=1e-9)


class Softplus:
    """log(1 + exp t): InfoNCE of one negative, written as a user would."""

    is_additive = True

    def value(self, t):
        return np.logaddexp(0.0, t).sum(axis=-1)

    def derivative(self, t):
        return expit(t)


@pytest.mark.parametrize("law", ["ucl", "scl"])
def test_a_users_psi(law):
    own = og.GeneralizedContrastive(Softplus(), temperature=0.7, negatives=1, sampling=law)
    for many in ({"minorities": 4}, {"split": SPLIT}):
        assert collapse_threshold(own, **many).log_odds == pytest.approx(
            collapse_threshold(infonce(1, 0.7, law), **many).log_odds, abs=1e-11
        )


# ------------------------------------------------------------------------------------------------------- against the
# solver, to both sides

CASES = [
    (infonce(1, 1.0, "ucl"), [1, 1, 1]),
    (infonce(8, 0.5, "ucl"), [5, 3, 2]),
    (infonce(8, 1.0, "scl"), [1, 1, 1, 1]),
    (infonce(8, 1.0, "scl"), SPLIT),
    (infonce(math.inf, 0.4, "scl", 0.0), [4, 2, 1]),
    (og.SupCon(1.0), [1, 1]),
    (og.SupCon(0.5, 16, 2), [3, 2, 1]),
    (og.SupCon(1.0, 12, 1), [1, 1, 1]),
]


@pytest.mark.parametrize(("loss", "split"), CASES, ids=lambda part: str(part)[:60])
def test_the_solver_collapses_exactly_there(loss, split):
    threshold = collapse_threshold(loss, split=split)
    minor = np.array(split) / np.sum(split)
    # UCL: each minority anchor sees the same law whatever the split, so all directions open together; SCL: the heaviest
    # pair opens first.
    opened = len(split) if "uniform-negatives" in loss.gives or len(set(split)) == 1 else 2
    for factor, rank in ((1 - 1e-4, opened), (1 + 1e-4, 1)):
        odds = threshold.odds * factor
        geometry = og.solve(og.ClassDistribution.from_proportions(np.concatenate([[odds], minor]) / (1 + odds)), loss)
        assert geometry.certificate.certified
        assert geometry.rank == rank, factor


@pytest.mark.parametrize("law", ["ucl", "scl"])
@pytest.mark.parametrize("k", [1, 2, 8, 64, 1024])
def test_published_sufficient_thresholds_are_never_below(k, law):
    for m in (2, 3, 10, 1000):
        threshold = collapse_threshold(infonce(k, 1.0, law), minorities=m)
        assert threshold.published_sufficient == PUBLISHED_SUFFICIENT[law]
        assert threshold.threshold <= threshold.published_sufficient


@pytest.mark.parametrize(
    "loss", [infonce(8, 0.5), og.InfoNCE(1.0, 8, 0.0), og.InfoNCE(1.0, 8, 1.0, "mean"), og.SupCon(1.0)], ids=str
)
def test_published_thresholds_are_claimed_only_where_they_hold(loss):
    assert collapse_threshold(loss).published_sufficient is None


def test_as_dict_is_plain():
    found = collapse_threshold(infonce(8), minorities=9).as_dict()
    assert set(found) == {
        "threshold",
        "one_minus_threshold",
        "odds",
        "log_odds",
        "minorities",
        "published_sufficient",
        "loss",
    }
    assert found["minorities"] == 9 and found["loss"]["name"] == "infonce"


# ----------------------------------------------------------------------------------------------------------------------
# margins


def test_margin_agrees_with_the_regime():
    rng = np.random.default_rng(3)
    losses = [
        infonce(3, 1.0, "scl"),
        infonce(3, 1.0, "ucl"),
        og.SupCon(1.0),
        og.SupCon(0.8, 8, 1),
        infonce(math.inf, 0.5, "scl", 0.0),
    ]
    seen = set()
    for trial in range(40):
        loss = losses[trial % len(losses)]
        minor = rng.dirichlet(np.ones(int(rng.integers(2, 6))))
        odds = float(np.exp(rng.uniform(-0.5, 4.0)))
        classes = og.ClassDistribution.from_proportions(np.concatenate([minor, [odds]]) / (1 + odds))
        margin = collapse_margin(classes, loss)
        if margin is None:
            continue
        assert math.exp(margin.log_odds) == pytest.approx(max(odds, minor.max() / (1 + odds - minor.max())), rel=1e-9)
        collapsed = og.solve(classes, loss).regime == "minority-collapse"
        assert margin.collapsed == collapsed == (margin.factor <= 1)
        seen.add(collapsed)
    assert seen == {True, False}


def test_margin_is_the_threshold_of_the_same_split():
    loss = infonce(8, 1.0, "scl")
    margin = collapse_margin(og.ClassDistribution.from_counts([30, 100, 50, 15, 5]), loss)
    assert margin.log_odds == pytest.approx(0.0, abs=1e-12)
    expected = collapse_threshold(loss, split=[30, 50, 15, 5])
    assert margin.threshold_log_odds == pytest.approx(expected.log_odds, abs=1e-12)
    held = margin.as_dict()
    assert held["factor"] == pytest.approx(expected.odds, rel=1e-9)
    assert held["threshold_odds"] == pytest.approx(expected.odds, rel=1e-12)
    assert held["majority_odds"] == pytest.approx(1.0) and held["collapsed"] is False


@pytest.mark.parametrize(
    ("counts", "loss"),
    [
        ([5, 3], og.SupCon(1.0)),
        ([5, 5, 3], og.SupCon(1.0)),
        ([5, 3, 2], og.SupConFullBatch(1.0)),
        ([5, 3, 2], og.InfoNCE(1.0, 8, negative_law=np.full((3, 3), 1 / 3))),
    ],
    ids=["two classes", "tie", "full batch", "explicit law"],
)
def test_no_margin_where_the_question_has_no_answer(counts, loss):
    assert collapse_margin(og.ClassDistribution.from_counts(counts), loss) is None


def test_margin_of_many_classes_with_the_same_few_counts():
    classes = og.ClassDistribution.from_groups([10**6, 7, 5], [1, 4000, 6000])
    by_classes = collapse_margin(
        og.ClassDistribution.from_counts([10**6] + [7] * 4000 + [5] * 6000), og.InfoNCE(0.5, 8, sampling="scl")
    )
    assert collapse_margin(classes, og.InfoNCE(0.5, 8, sampling="scl")) == by_classes


# ----------------------------------------------------------------------------------------------------------------------
# errors


@pytest.mark.parametrize("minorities", [1, 0, 2.5, "three"])
def test_two_minorities_at_least(minorities):
    with pytest.raises(
        og.InvalidInputError, match=r"`minorities` must be a whole number >= 2; got .*two classes are always opposite"
    ):
        collapse_threshold(infonce(1), minorities=minorities)


@pytest.mark.parametrize("split", [[1.0], [1.0, 0.0], [1.0, -1.0], [1.0, math.nan], [[1.0, 2.0]]])
def test_a_split_is_positive_numbers(split):
    with pytest.raises(
        og.InvalidInputError, match="`split` must be two or more positive numbers, one for each minority class"
    ):
        collapse_threshold(infonce(1), split=split)


def test_odds_beyond_floats_are_refused():
    with pytest.raises(
        og.InvalidInputError, match=r"`temperature` must be larger for a threshold in floating point; got 0.002"
    ):
        collapse_threshold(og.SupCon(0.002))


def test_losses_of_more_than_proportions_are_refused():
    with pytest.raises(og.IncompatibleError, match="the full batch depends on counts"):
        collapse_threshold(og.SupConFullBatch(1.0))
    law = np.full((3, 3), 1 / 3)
    with pytest.raises(og.IncompatibleError, match="an explicit negative_law does not"):
        collapse_threshold(og.InfoNCE(1.0, 8, negative_law=law))


@pytest.mark.parametrize("counts", [[5, 5, 3], [5, 3]])
def test_the_ratio_needs_one_majority(counts):
    program = ClassMeanProgram.build(og.ClassDistribution.from_counts(counts), og.SupCon(1.0))
    with pytest.raises(
        og.InvalidInputError, match="total collapse needs one majority class and two minority classes or more"
    ):
        collapse_ratio(program)


def test_from_log_odds_is_exact_on_both_sides_of_one_half():
    for log_odds in (-3.0, 0.0, 3.0, 60.0):
        found = CollapseThreshold.from_log_odds(log_odds, 2, infonce(1))
        assert found.threshold == pytest.approx(expit(log_odds), rel=1e-15)
        assert found.one_minus_threshold == pytest.approx(expit(-log_odds), rel=1e-14)


@pytest.mark.parametrize(
    "call",
    [
        lambda: og.collapse_threshold(2),
        lambda: og.collapse_margin(og.ClassDistribution.from_counts([3, 2, 1]), "supcon"),
        lambda: og.loss_values(og.ClassDistribution.from_counts([3, 2, 1]), 0.1),
        lambda: og.sensitivity(og.ClassDistribution.from_counts([3, 2, 1]), None),
        lambda: og.design(og.ClassDistribution.from_counts([3, 2, 1]), 0.1, "temperature"),
        lambda: og.design([3, 2, 1], og.SupCon(), "temperature"),
    ],
)
def test_a_wrong_type_is_one_line(call) -> None:
    with pytest.raises(og.InvalidInputError, match=r"^`(loss|classes)` must be a .*; got \w+ \(.*\)$"):
        call()
