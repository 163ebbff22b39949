"""Near-optimal ranges: golden values, random descents, closed forms, symmetries, bounds that can fail."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers.near_optimal import cosines_by_descents, extreme_by_descent, law, limit_risk
from helpers.reference import GOLDEN_2
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import optgeom as og
from optgeom.certificates import dual
from optgeom.collapse import near_optimal
from optgeom.collapse.least_risk import DUALS, Frame, Path, Point
from optgeom.collapse.near_optimal import extreme_cosine
from optgeom.programs.class_mean import ClassMeanProgram
from optgeom.programs.tilted import TiedProgram, TiltedProgram

LONG_TAIL = og.ClassDistribution.from_counts([5000, 1500, 400, 100])


def angle(cosine: float) -> float:
    return math.degrees(math.acos(max(-1.0, min(1.0, cosine))))


def frame_of(classes: og.ClassDistribution, loss: og.Loss, pair: tuple[int, int]) -> Frame:
    geometry = og.solve(classes, loss)
    program = ClassMeanProgram.build(classes, loss, grouped=False)
    return Frame(program, np.array(geometry.gram), *pair, geometry.certificate.gap, geometry.regime == "spread")


@pytest.mark.parametrize(
    "case", GOLDEN_2["ranges"], ids=lambda case: f"{case['law']} {case['pair']} {case['slack_share']}"
)
def test_golden_ranges_inside_and_outside(case):
    geometry = og.solve(*law(case["law"]))
    found = og.ranges(geometry, slack=case["slack_share"], own=False, pairs=[tuple(case["pair"])]).pairs[0]
    assert found.angle_deg == pytest.approx(case["angle"], abs=1e-6)
    for name in ("closest_deg", "closest_attained_deg"):
        assert getattr(found, name) == pytest.approx(case["closest"], abs=1e-3)
    for name in ("farthest_deg", "farthest_attained_deg"):
        assert getattr(found, name) == pytest.approx(case["farthest"], abs=1e-3)
    assert found.certified and found.exact


@pytest.mark.parametrize("slack", [1e-8, 1e-4, 1e-2, 0.3])
def test_two_classes_by_root_finding(slack):
    """One cosine only: the risk is a function of it."""
    classes, loss = og.ClassDistribution.from_counts([300, 100]), og.SupCon(temperature=0.3)
    p = np.array([0.75, 0.25])

    def risk(cosine: float) -> float:
        return limit_risk(p, 0.3, 0.0, False, np.array([[1.0, cosine], [cosine, 1.0]]))[0]

    limit = risk(-1.0) + slack * (risk(1.0) - risk(-1.0))
    low, high = -1.0, 1.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if risk(middle) <= limit else (low, middle)
    found = og.ranges(og.solve(classes, loss), slack=slack, own=False).pairs[0]
    assert found.closest_deg == pytest.approx(angle(low), abs=1e-3)
    assert found.farthest_deg == found.farthest_attained_deg == 180.0


def test_coincident_pairs_open_linearly_in_the_slack():
    """Minority collapse: 1 - cos = share / .06839 (theory, section 12), not a root of it."""
    geometry = og.solve(og.ClassDistribution.from_counts([1000, 10, 10]), og.SupCon(temperature=1.0))
    for slack in (1e-6, 1e-5):
        found = og.ranges(geometry, slack=slack, own=False, pairs=[(1, 2)]).pairs[0]
        assert found.closest_deg == 0.0
        assert 1 - math.cos(math.radians(found.farthest_deg)) == pytest.approx(slack / 0.06839, rel=2e-3)


@hypothesis_settings(max_examples=12)
@given(
    classes=st.integers(3, 6),
    tau=st.sampled_from([0.1, 0.3, 1.0, 2.0]),
    share=st.sampled_from([1e-6, 1e-4, 1e-2, 1e-1]),
    form=st.sampled_from(["supcon", "scl", "ucl"]),
    seed=st.integers(0, 10**6),
)
def test_no_descent_leaves_the_range(classes, tau, share, form, seed):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(classes, 2.0)) * 0.9 + 0.1 / classes
    alpha = 1.0 if form == "ucl" else 0.0
    loss: og.Loss = og.SupCon(temperature=tau)
    if form != "supcon":
        loss = og.InfoNCE(temperature=tau, negatives=math.inf, alpha=alpha, negatives_reduction="mean", sampling=form)

    def objective(gram: np.ndarray) -> tuple[float, np.ndarray]:
        return limit_risk(p, tau, alpha, form == "scl", gram)

    geometry = og.solve(og.ClassDistribution.from_proportions(p / p.sum()), loss)
    pair = tuple(sorted(int(i) for i in rng.choice(classes, 2, replace=False)))
    found = og.ranges(geometry, slack=share, own=False, pairs=[pair]).pairs[0]
    optimum, collapsed = objective(np.array(geometry.gram))[0], objective(np.ones((classes, classes)))[0]
    limit = optimum + share * (collapsed - optimum)
    assert found.closest_deg <= found.closest_attained_deg <= found.angle_deg + 1e-6
    assert found.angle_deg - 1e-6 <= found.farthest_attained_deg <= found.farthest_deg
    best = {1.0: 180.0, -1.0: 0.0}
    for sign in (1.0, -1.0):
        for start in range(4):
            cosine = extreme_by_descent(objective, classes, pair, limit, sign, seed + start)
            if cosine is None:
                continue
            best[sign] = min(best[sign], angle(cosine)) if sign > 0 else max(best[sign], angle(cosine))
            assert found.closest_deg - 1e-4 <= angle(cosine) <= found.farthest_deg + 1e-4
    # The descents are a bound from inside; the range is attained, not only bounded.
    assert found.certified


@pytest.mark.slow
@hypothesis_settings(max_examples=12, deadline=None)
@given(
    classes=st.integers(3, 8),
    tau=st.floats(0.07, 2.0),
    power=st.floats(-8.0, -1.0),
    form=st.sampled_from(["supcon", "scl", "ucl"]),
    seed=st.integers(0, 10**6),
)
def test_fifty_descents_stay_within_the_outer_ends(classes, tau, power, form, seed):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(classes, 2.0)) * 0.9 + 0.1 / classes
    alpha = 1.0 if form == "ucl" else 0.0
    loss: og.Loss = og.SupCon(temperature=tau)
    if form != "supcon":
        loss = og.InfoNCE(temperature=tau, negatives=math.inf, alpha=alpha, negatives_reduction="mean", sampling=form)

    def objective(gram: np.ndarray) -> tuple[float, np.ndarray]:
        return limit_risk(p, tau, alpha, form == "scl", gram)

    geometry = og.solve(og.ClassDistribution.from_proportions(p / p.sum()), loss)
    near = og.ranges(geometry, slack=10.0**power, own=False, pairs=[(0, 1)])
    found = near.pairs[0]
    slack = 10.0**power * near.loss_range
    least, greatest = cosines_by_descents(objective, np.array(geometry.gram), (0, 1), slack, 50, seed)
    assert math.cos(math.radians(found.closest_deg)) >= greatest - 1e-7
    assert math.cos(math.radians(found.farthest_deg)) <= least + 1e-7


def test_ranges_grow_with_the_slack_and_hold_the_optimum():
    geometry = og.solve(LONG_TAIL, og.SupCon(temperature=0.2))
    widths = []
    for slack in (1e-7, 1e-5, 1e-3, 1e-1):
        pairs = og.ranges(geometry, slack=slack).pairs
        assert all(pair.closest_deg < pair.angle_deg < pair.farthest_deg for pair in pairs)
        widths.append([pair.farthest_deg - pair.closest_deg for pair in pairs])
    assert np.all(np.diff(widths, axis=0) > 0)


def test_order_of_the_classes_changes_nothing():
    counts, order = [5000, 1500, 400, 100], [2, 0, 3, 1]
    loss = og.SupCon(temperature=0.2)
    plain = og.ranges(og.solve(og.ClassDistribution.from_counts(counts), loss), slack=1e-4)
    moved = og.ranges(og.solve(og.ClassDistribution.from_counts([counts[k] for k in order]), loss), slack=1e-4)
    by_pair = {(pair.first, pair.second): pair for pair in plain.pairs}
    for pair in moved.pairs:
        same = by_pair[tuple(sorted((order[pair.first], order[pair.second])))]
        assert pair.closest_deg == pytest.approx(same.closest_deg, abs=1e-6)
        assert pair.farthest_deg == pytest.approx(same.farthest_deg, abs=1e-6)


def test_equal_classes_have_equal_ranges_and_groups_change_nothing():
    counts = [600, 100, 100, 100, 20]
    loss = og.SupCon(temperature=0.3)
    classes = og.ClassDistribution.from_counts(counts)
    grouped = og.ranges(og.solve(classes, loss)).pairs
    apart = og.ranges(og.solve(classes, loss, grouped=False)).pairs
    for one, other in zip(grouped, apart, strict=True):
        assert (one.first, one.second) == (other.first, other.second)
        assert one.closest_deg == pytest.approx(other.closest_deg, abs=1e-8)
        assert one.farthest_deg == pytest.approx(other.farthest_deg, abs=1e-8)
    order = [3, 0, 4, 1, 2]
    turned = og.ranges(og.solve(og.ClassDistribution.from_counts([counts[i] for i in order]), loss))
    by_pair = {tuple(sorted((order[pair.first], order[pair.second]))): pair for pair in turned.pairs}
    for pair in grouped:
        assert by_pair[pair.first, pair.second].closest_deg == pytest.approx(pair.closest_deg, abs=1e-6)
        assert by_pair[pair.first, pair.second].farthest_deg == pytest.approx(pair.farthest_deg, abs=1e-6)


def test_own_slack_is_the_slack_per_image_of_the_pair():
    geometry = og.solve(LONG_TAIL, og.SupCon(temperature=0.5))
    own = og.ranges(geometry, slack=1e-3, pairs=[(2, 3)]).pairs[0]
    share = (400 + 100) / 7000
    whole = og.ranges(geometry, slack=1e-3 * share, own=False, pairs=[(2, 3)]).pairs[0]
    assert own.closest_deg == pytest.approx(whole.closest_deg, abs=1e-9)
    assert own.farthest_deg == pytest.approx(whole.farthest_deg, abs=1e-9)


@pytest.mark.parametrize(("angle_deg", "share"), [(90, 2.4e-6), (60, 6.0e-4), (45, 4.4e-3), (30, 1.7e-2), (10, 4.1e-2)])
def test_least_excess_of_an_angle(angle_deg, share):
    """Theory, section 12: T = .1, classes 2 and 3."""
    frame = frame_of(LONG_TAIL, og.SupCon(temperature=0.1), (2, 3))
    excess = near_optimal.least_excess(frame, math.cos(math.radians(angle_deg)))
    loss_range = og.ranges(og.solve(LONG_TAIL, og.SupCon(temperature=0.1)), pairs=[(2, 3)]).loss_range
    assert excess.attained / loss_range == pytest.approx(share, rel=0.03)
    assert excess.lower == pytest.approx(excess.attained, rel=1e-6)


def test_slack_needed_at_low_temperature():
    """Theory, sections 12 and 15: 4.5e-8 to 5.7e-8 (pair 0-1) of the way for 2 degrees at T = .1.

    The 6.7e-8 of section 12 is the larger one of the two sides of pair 0-1.
    """
    needed = og.slack_needed(og.solve(LONG_TAIL, og.SupCon(temperature=0.1)), tolerance_deg=2.0)
    shares = [pair.whole for pair in needed.pairs]
    assert min(shares) == pytest.approx(4.5e-8, rel=0.02)
    assert max(shares) == needed.pairs[0].whole == pytest.approx(5.7e-8, rel=0.01)
    assert needed.smallest.whole == min(shares)
    assert all(pair.whole_lower <= pair.whole <= 1.0001 * pair.whole_lower for pair in needed.pairs)
    # A range at this slack reaches exactly two degrees on one side.
    pair = needed.pairs[0]
    found = og.ranges(needed.geometry, slack=pair.whole, own=False, pairs=[(pair.first, pair.second)]).pairs[0]
    reach = max(found.angle_deg - found.closest_deg, found.farthest_deg - found.angle_deg)
    assert reach == pytest.approx(2.0, abs=1e-4)


def test_second_order_widths_are_the_limit_of_exact_ones():
    from optgeom.solvers.pinned import susceptibilities

    loss = og.SupCon(temperature=0.3)
    geometry = og.solve(LONG_TAIL, loss)
    chi = susceptibilities(ClassMeanProgram.build(LONG_TAIL, loss, grouped=False), np.array(geometry.gram))
    found = og.ranges(geometry, slack=1e-9, own=False)
    for pair in found.pairs:
        half = math.sqrt(2 * 1e-9 * found.loss_range * chi[pair.first, pair.second])
        cosines = [math.cos(math.radians(end)) for end in (pair.closest_deg, pair.farthest_deg)]
        assert (cosines[0] - cosines[1]) / 2 == pytest.approx(half, rel=1e-3)


# --------------------------------------------------------------------------------------------------------------------
# A bound must be able to fail.
# --------------------------------------------------------------------------------------------------------------------
def certified_range(monkeypatch, mutate):
    frame = frame_of(LONG_TAIL, og.SupCon(temperature=0.5), (0, 3))
    mutate(monkeypatch)
    slack = 1e-4 * 0.6882161229275875
    closest = extreme_cosine(frame, 1.0, slack)
    return closest.attained, closest.outer


def wrong_sign(monkeypatch):
    monkeypatch.setattr(
        TiltedProgram, "gradient", lambda self, a: self._shifted(self.base.gradient(a), self.strength / 2)
    )


def without_slack(monkeypatch):
    monkeypatch.setattr(Path, "outer_cosine", lambda self, point, slack: near_optimal_outer(self, point, 0.0))


def near_optimal_outer(path, point, slack):
    strength = math.exp(point.log_strength)
    gap = path._gap(point, strength)
    return path.sign * min(1.0, path.sign * point.cosine + (slack - point.excess + gap) / strength)


def without_gap(monkeypatch):
    """L_c replaced by F_c at a geometry that is not its optimum."""
    monkeypatch.setitem(DUALS, "linear", lambda program, cosines, risk: dual.DualCheck(0.0, None))


@pytest.mark.parametrize("mutate", [wrong_sign, without_slack])
def test_mutated_bounds_do_not_agree_with_what_is_attained(monkeypatch, mutate):
    attained, outer = certified_range(monkeypatch, mutate)
    true_end = math.cos(math.radians(110.58875527014422))
    assert abs(angle(attained) - angle(outer)) > 1e-3 or abs(angle(outer) - angle(true_end)) > 1e-3


def test_the_gap_of_the_tilted_program_is_what_keeps_the_bound_outside(monkeypatch):
    """At a point that is not the tilted optimum the bound holds with its gap and fails without it."""
    frame = frame_of(LONG_TAIL, og.SupCon(temperature=0.5), (0, 3))
    path, slack = Path(frame, 1.0), 1e-4 * 0.6882161229275875
    true_end = math.cos(math.radians(110.58875527014422))
    wrong = Point(math.log(0.0025), frame.cosines, 0.0, frame.cosine)
    assert path.outer_cosine(wrong, slack) >= true_end
    without_gap(monkeypatch)
    assert path.outer_cosine(wrong, slack) < true_end


# --------------------------------------------------------------------------------------------------------------------
# Tilted and tied programs.
# --------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_tied_program_is_the_base_at_tied_rows(sign):
    rng = np.random.default_rng(3)
    classes = og.ClassDistribution.from_counts([60, 20, 20, 5, 5, 5])
    program = ClassMeanProgram.build(classes, og.SupCon(temperature=0.4))
    base, _ = program.with_apart((1, 2))
    first, second = (int(base.groups.index[member]) for member in (1, 2))
    tied = TiedProgram(base, first, second, sign)
    rows = rng.standard_normal((tied.sizes.size, 4))
    rows /= 1.2 * np.linalg.norm(rows, axis=1, keepdims=True)
    cosines = rows @ rows.T
    np.fill_diagonal(cosines, np.where(tied.sizes > 1, np.diag(cosines), 1.0))
    full = tied.lift(cosines)
    assert full[first, second] == pytest.approx(sign)
    assert tied.risk(cosines) == pytest.approx(base.risk_above_floor(full), rel=1e-14)
    gradient, step = tied.gradient(cosines), 1e-6
    for g in range(cosines.shape[0]):
        for h in range(g, cosines.shape[0]):
            if tied.count[g, h] == 0:
                continue
            moved = np.zeros_like(cosines)
            moved[g, h] = moved[h, g] = step
            pairs = tied.sizes[g] * tied.count[g, h] * (1 if g == h else 2)
            slope = (tied.risk(cosines + moved) - tied.risk(cosines - moved)) / (2 * step)
            assert slope == pytest.approx(pairs * gradient[g, h], rel=1e-6, abs=1e-12)
            change = (tied.gradient(cosines + moved) - tied.gradient(cosines - moved)) / (2 * step)
            np.testing.assert_allclose(tied.gradient_derivative(cosines)(moved / step), change, rtol=1e-5, atol=1e-9)


# --------------------------------------------------------------------------------------------------------------------
# What people give it.
# --------------------------------------------------------------------------------------------------------------------
def test_names_and_records():
    classes = og.ClassDistribution.from_counts({"dog": 50, "cat": 40, "owl": 3})
    near = og.ranges(og.solve(classes, og.SupCon(temperature=0.2)), pairs=[("owl", "dog")])
    assert [(record["first"], record["second"]) for record in near.records()] == [("dog", "owl")]
    assert set(near.as_dict()["pairs"][0]) >= {
        "angle_deg",
        "closest_deg",
        "farthest_attained_deg",
        "certified",
        "exact",
    }


@pytest.mark.parametrize("own", [True, False])
def test_screened_widths_are_those_of_exact_ranges_at_tiny_slack(own):
    geometry = og.solve(LONG_TAIL, og.SupCon(temperature=0.5))
    near = og.ranges(geometry, slack=1e-8, own=own, pairs=[(0, 1)], screen=True)
    exact = og.ranges(geometry, slack=1e-8, own=own)
    assert [(pair.first, pair.second) for pair in near.pairs] == [(pair.first, pair.second) for pair in exact.pairs]
    assert [pair.exact for pair in near.pairs] == [True] + 5 * [False]
    for estimate, truth in zip(near.pairs[1:], exact.pairs[1:], strict=True):
        assert not estimate.certified and truth.certified
        for end in ("closest_deg", "farthest_deg"):
            width = getattr(truth, end) - truth.angle_deg
            assert getattr(estimate, end) - estimate.angle_deg == pytest.approx(width, rel=0.01)
    assert {(pair.first, pair.second) for pair in near.determined} == {(0, 1)}, "estimates determine nothing"


def test_all_pairs_of_a_hundred_classes_are_screened():
    geometry = og.solve(og.ClassDistribution.from_profile("cifar100-lt:100"), og.SupCon(temperature=0.5))
    chosen = [(0, 1), (98, 99)]
    near = og.ranges(geometry, slack=1e-7, pairs=chosen, screen=True)
    assert [(pair.first, pair.second) for pair in near.pairs] == [(i, j) for i in range(100) for j in range(i + 1, 100)]
    assert [(pair.first, pair.second) for pair in near.pairs if pair.exact] == chosen
    probe = og.ranges(geometry, slack=1e-7, pairs=[(0, 99), (40, 41)]).pairs
    estimates = {(pair.first, pair.second): pair for pair in near.pairs}
    for truth in probe:
        estimate = estimates[truth.first, truth.second]
        assert estimate.farthest_deg - estimate.closest_deg == pytest.approx(
            truth.farthest_deg - truth.closest_deg, rel=0.01
        )


def test_nothing_is_screened_where_several_dimensions_are_lost():
    geometry = og.solve(og.ClassDistribution.from_counts([1000, 10, 10]), og.SupCon(temperature=1.0))
    assert [pair.exact for pair in og.ranges(geometry, pairs=[(0, 1)], screen=True).pairs] == [True]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"slack": 0.0}, "`slack` must be > 0"),
        ({"pairs": [(0, 0)]}, "`pairs` must hold pairs of different classes"),
        ({"pairs": [("a", "b")]}, "`pairs` must name classes of the geometry; got 'a'"),
        ({"pairs": []}, "`pairs` must hold at least one pair"),
        ({"pairs": [(0, 9)]}, "`pairs` must be"),
        ({"workers": 0}, "`workers` must be"),
    ],
)
def test_wrong_arguments(arguments, message):
    geometry = og.solve(LONG_TAIL, og.SupCon(temperature=0.2))
    with pytest.raises(og.InvalidInputError, match=message):
        og.ranges(geometry, **arguments)


def test_a_bracket_has_no_ranges():
    geometry = og.solve(LONG_TAIL, og.SupCon(temperature=0.2), dim=2)
    with pytest.raises(og.IncompatibleError, match="`geometry` must be an optimum without a limit of dimension"):
        og.ranges(geometry)


def test_workers_change_nothing():
    geometry = og.solve(LONG_TAIL, og.SupCon(temperature=0.2))
    done: list[int] = []
    one = og.ranges(geometry, progress=lambda part, whole: done.append(part))
    assert done == list(range(1, 7))
    assert og.ranges(geometry, workers=2).pairs == one.pairs


# --------------------------------------------------------------------------------------------------------------------
# The noise of a batch mean.
# --------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("views", "singletons"), [(1, "zero"), (1, "skip"), (2, "zero"), (3, "zero")])
def test_batch_values_are_the_loss_of_explicit_rows(views, singletons):
    """Every row written out: SupCon of the anchors over all other rows of the batch."""
    geometry = og.solve(LONG_TAIL, og.SupCon(temperature=0.4))
    images = np.array([[3, 1, 2, 1], [4, 0, 0, 0], [1, 1, 1, 1], [0, 2, 1, 4]])
    loss = og.SupCon(temperature=0.4, batch_size=7, views=views, singletons=singletons)
    values = loss.batch_values(np.array(geometry.gram), images.astype(float))
    for counts, value in zip(images, values, strict=True):
        labels = np.repeat(np.arange(4), counts * views)
        logits = geometry.gram[np.ix_(labels, labels)] / 0.4
        terms = []
        for anchor, label in enumerate(labels):
            others = np.delete(np.arange(labels.size), anchor)
            positives = others[labels[others] == label]
            if positives.size:
                denominator = np.log(np.exp(logits[anchor, others]).sum())
                terms.append(np.mean(denominator - logits[anchor, positives]))
            elif singletons == "zero":
                terms.append(0.0)
        assert value == pytest.approx(np.mean(terms) if terms else 0.0, abs=1e-12)


def test_mean_of_batch_values_is_the_risk_and_their_noise_is_reported():
    loss = og.SupCon(temperature=0.5, batch_size=32)
    geometry = og.solve(LONG_TAIL, loss)
    images = np.random.default_rng(5).multinomial(32, geometry.proportions, size=40_000).astype(float)
    values = loss.batch_values(np.array(geometry.gram), images)
    assert values.mean() == pytest.approx(geometry.risk, abs=4 * values.std() / 200)
    needed = og.slack_needed(geometry, pairs=[(0, 1)])
    assert needed.batch_share * needed.loss_range == pytest.approx(values.std(), rel=0.05)
    assert og.slack_needed(og.solve(LONG_TAIL, og.SupCon(temperature=0.5)), pairs=[(0, 1)]).batch_share is None


# --------------------------------------------------------------------------------------------------------------------
# Where the geometry collapses on the way, and other corners.
# --------------------------------------------------------------------------------------------------------------------
def test_geometries_that_lose_dimensions_on_the_way_are_those_of_the_low_rank_method():
    """Newton's method with several columns against a method that knows nothing of it, at three cosines."""
    classes = og.ClassDistribution.from_counts([500, 200, 80, 30, 12, 5])
    frame = frame_of(classes, og.SupCon(temperature=0.3), (3, 5))
    columns = []
    for cosine in (-0.8, -0.95, -0.99):
        path = Path(frame, -1.0)
        point = path.with_cosine(cosine)
        assert point is not None
        columns.append(path._factor.shape[1])
        other = Path(frame, -1.0).tilted_by(point.log_strength)
        assert other.cosine == pytest.approx(cosine, abs=1e-6)
        assert other.excess == pytest.approx(point.excess, rel=1e-6)
    assert max(columns) > 1


@pytest.mark.parametrize("loss", [og.SupConFullBatch(temperature=0.1), og.InfoNCE(temperature=0.05, negatives=2)])
def test_two_classes_of_any_loss_are_a_function_of_one_cosine(loss):
    geometry = og.solve(og.ClassDistribution.from_counts([30, 3]), loss)
    program = ClassMeanProgram.build(geometry.classes, loss)
    near = og.ranges(geometry, slack=1e-6, own=False)
    closest = math.cos(math.radians(near.pairs[0].closest_deg))
    above = [program.risk_above_floor(np.array([[1.0, a], [a, 1.0]])) for a in (-1.0, closest, 1.0)]
    assert (above[1] - above[0]) / (above[2] - above[0]) == pytest.approx(1e-6, rel=1e-4)
    assert near.pairs[0].certified


def test_singletons_of_a_full_batch_part_at_a_cost():
    """They have no anchors and no force between them, so only the others hold them together."""
    geometry = og.solve(og.ClassDistribution.from_counts([1, 1, 1, 5]), og.SupConFullBatch(temperature=0.5))
    found = og.ranges(geometry, slack=1e-3, own=False, pairs=[(0, 1)]).pairs[0]
    assert found.closest_deg == 0.0 and 0 < found.farthest_deg < 90 and found.certified
    needed = og.slack_needed(geometry, pairs=[(0, 1)]).pairs[0]
    assert needed.whole_lower <= needed.whole <= needed.whole_lower * 1.0001
