"""Deviations and their summaries on embeddings whose angles are known."""

from __future__ import annotations

import json

import numpy as np
import pytest
from helpers.reference import simplex
from helpers.simulated import judged, long_tail, means_of, optimum, sample, unit

from optgeom.embeddings.statistics.deviation import Deviations, deviations
from optgeom.embeddings.statistics.pair_intervals import PairIntervals


def exact_rows(gram, copies=10, dim=None):
    dim = dim or gram.shape[0]
    return [np.tile(row, (copies, 1)) for row in means_of(gram, dim, np.random.default_rng(0))]


def noisy(counts=(300, 100, 60, 40), sigma=0.5, dim=16, seed=1):
    optimal = optimum(list(counts))
    rng = np.random.default_rng(seed)
    rows = sample(means_of(optimal, dim, rng), list(counts), sigma, np.eye(dim) / np.sqrt(dim), rng)
    return judged(rows, optimal), optimal


def test_exact_simplex():
    _, found, _, _ = judged(exact_rows(simplex(4)), simplex(4))
    assert found.max_angle_error_deg == pytest.approx(0, abs=1e-5)
    assert found.max_angle_error_ci_deg == pytest.approx((0, 0), abs=1e-5)
    assert found.angles[0, 1] == pytest.approx(np.degrees(np.arccos(-1 / 3)), abs=1e-9)
    assert found.relative_frobenius == pytest.approx(0, abs=1e-12)
    assert found.class_r2 is None, "all optimal cosines are equal: there is nothing to explain"
    assert not found.class_r2_weak


def test_simplex_in_one_dimension_less_than_classes():
    _, found, _, _ = judged(exact_rows(simplex(10), dim=9), simplex(10))
    assert found.max_angle_error_deg == pytest.approx(0, abs=1e-5)


def test_simplex_seen_against_an_imbalanced_optimum():
    optimal = optimum([20, 5, 2])
    _, found, _, _ = judged(exact_rows(simplex(3)), optimal)
    angles = np.degrees(np.arccos(optimal[np.triu_indices(3, 1)]))
    assert found.max_angle_error_deg == pytest.approx(np.abs(angles - 120).max(), rel=1e-9)
    off = optimal[np.triu_indices(3, 1)]
    assert found.relative_frobenius == pytest.approx(np.sqrt(((-0.5 - off) ** 2).sum() / (off**2).sum()), rel=1e-9)
    assert found.class_r2 == pytest.approx(1 - ((-0.5 - off) ** 2).sum() / ((off - off.mean()) ** 2).sum(), rel=1e-9)


def test_ends_of_the_deviation_by_hand():
    """Interval of the cosine [cos 70, cos 50], estimate cos 60, against optima below, inside, and above."""
    size, inside = 4, np.triu_indices(4, 1)
    best = np.array([40.0, 55.0, 70.0, 85.0, 60.0, 50.0])
    optimal = np.eye(size)
    optimal[inside] = np.cos(np.radians(best))
    optimal = np.maximum(optimal, optimal.T)

    def constant(angle):
        return np.full((size, size), np.cos(np.radians(angle)))

    tested = ~np.eye(size, dtype=bool)
    ones = np.ones((size, size))
    intervals = PairIntervals(
        cosines=constant(60),
        standard_errors=0.1 * ones,
        degrees_of_freedom=ones,
        lower=constant(70),
        upper=constant(50),
        wide_lower=constant(70),
        wide_upper=constant(50),
        shares=ones / 200,
        tested=tested,
        decidable=tested,
        num_pairs=6,
        num_decidable=6,
        alpha=0.05,
        unseen=0.05,
        source="full",
    )
    found = deviations(intervals, optimal)
    assert found.low[inside] == pytest.approx([10, 0, 0, 15, 0, 0], abs=1e-9)
    assert found.high[inside] == pytest.approx([30, 15, 20, 35, 10, 20])
    assert found.deviation[inside] == pytest.approx([20, 5, 10, 25, 0, 10], abs=1e-9)
    assert found.max_angle_error_deg == pytest.approx(25)
    assert found.max_angle_error_ci_deg == pytest.approx((15, 35))
    off = np.cos(np.radians(best))
    explained = (((0.5 - off) ** 2).sum() - 6 * 0.01) / ((off - off.mean()) ** 2).sum()
    assert found.class_r2 == pytest.approx(1 - explained)
    worst = found.worst_pairs(2)
    assert [(pair.first, pair.second) for pair in worst] == [(1, 2), (0, 1)]
    assert found.pair(2, 1) == worst[0]


def test_cosines_beyond_one_are_clipped_to_angles():
    size = 2
    tested = ~np.eye(size, dtype=bool)
    ones = np.ones((size, size))
    intervals = PairIntervals(
        cosines=1.01 * ones,
        standard_errors=ones,
        degrees_of_freedom=ones,
        lower=0.9 * ones,
        upper=1.2 * ones,
        wide_lower=0.9 * ones,
        wide_upper=1.2 * ones,
        shares=ones,
        tested=tested,
        decidable=tested,
        num_pairs=1,
        num_decidable=1,
        alpha=0.05,
        unseen=0.05,
        source="full",
    )
    found = deviations(intervals, ones)
    assert found.angles[0, 1] == 0
    assert found.angles_low[0, 1] == 0
    assert found.angles_high[0, 1] == pytest.approx(np.degrees(np.arccos(0.9)))


def test_class_r2_is_free_of_the_bias_of_noise():
    """At the optimum the plain r2 is below 1 by the noise; debiased it is 1 on average."""
    plain, debiased = [], []
    for seed in range(60):
        (_, found, _, _), optimal = noisy(counts=(300, 60, 20, 15), sigma=0.7, seed=seed)
        off = ~np.eye(4, dtype=bool)
        measured = np.cos(np.radians(found.angles[off]))
        plain.append(1 - ((measured - optimal[off]) ** 2).sum() / ((optimal[off] - optimal[off].mean()) ** 2).sum())
        debiased.append(found.class_r2)
    error = np.std(debiased) / np.sqrt(60)
    assert abs(np.mean(debiased) - 1) < 4 * error
    assert np.mean(plain) < 1 - 6 * error


def test_class_r2_warns_where_the_optimum_is_nearly_the_simplex():
    (_, found, _, _), _ = noisy()
    assert not found.class_r2_weak
    counts = [100, 90, 80]
    _, close, _, _ = judged(exact_rows(optimum(counts)), optimum(counts))
    assert close.class_r2 == pytest.approx(1)
    assert close.class_r2_weak


def test_singleton_class_is_left_out_and_named():
    """counts [5000, 1]: a geometry, but no statistics of the singleton."""
    rows = [np.tile(np.eye(3)[0], (5, 1)), -np.eye(3)[:1]]
    _, found, _, directions = judged(rows, np.array([[1.0, -1.0], [-1.0, 1.0]]))
    assert found.max_angle_error_deg is None
    assert found.max_angle_error_ci_deg is None
    assert found.class_r2 is None
    assert np.isnan(directions.rho[1])
    assert found.worst_partner(1) is None
    assert found.pair(0, 1).angle_deg is None
    assert found.pair(0, 1).optimal_deg == 180
    json.dumps(found.pair(0, 1).as_dict(("c0", "c1")), allow_nan=False)


def test_turned_class_stands_out_in_the_table():
    optimal = simplex(4)
    means = means_of(optimal, 5, np.random.default_rng(0))
    means[3] = unit(means[3] + 0.3 * means[1])
    _, found, _, directions = judged([np.tile(row, (3, 1)) for row in means], optimal)
    assert found.worst_partner(3) == 1
    assert found.worst_partner(1) == 3
    assert directions.rho[0] == pytest.approx(1)


def test_json():
    (_, found, _, directions), _ = noisy()
    plain = [json.loads(json.dumps(pair.as_dict(directions.names), allow_nan=False)) for pair in found.worst_pairs(2)]
    assert len(plain) == 2
    assert set(plain[0]) == {
        "first",
        "second",
        "angle_deg",
        "ci_deg",
        "optimal_deg",
        "deviation",
        "deviation_ci",
    }
    assert plain[0]["first"] in directions.names


def test_read_only():
    (_, found, intervals, _), _ = noisy(seed=2)
    assert isinstance(found, Deviations)
    held = (
        found.angles,
        found.deviation,
        found.low,
        found.high,
        found.optimal,
        intervals.cosines,
        intervals.lower,
        intervals.shares,
    )
    for array in held:
        with pytest.raises(ValueError, match="read-only"):
            array[0, 1] = 0


def test_many_classes_from_the_pooled_shape():
    counts = long_tail(60, 6, 300)
    rng = np.random.default_rng(4)
    means = unit(rng.normal(size=(300, 32)))
    optimal = means @ means.T
    rows = sample(means, counts, 0.3, np.eye(32) / np.sqrt(32), rng)
    verdict, found, intervals, _ = judged(rows, optimal, full=False, projected=False)
    assert intervals.num_pairs == 300 * 299 // 2
    assert verdict.verdict in ("consistent", "inconclusive")
    assert found.max_angle_error_ci_deg is not None
    assert found.max_angle_error_ci_deg[0] < 2
