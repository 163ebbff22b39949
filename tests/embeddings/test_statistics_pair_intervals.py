"""Noise of class directions, and the intervals of pairs of classes, against definitions and simulation."""

from __future__ import annotations

import re

import numpy as np
import pytest
from helpers.families import families
from helpers.simulated import long_tail, means_of, moments_of, optimum, sample, unit, within_of

from optgeom.embeddings.moments.directions import class_directions
from optgeom.embeddings.moments.second_pass import WithinClass
from optgeom.embeddings.statistics.bootstrap import cosine_draws, null_intervals, rotated, upper_quantile
from optgeom.embeddings.statistics.class_noise import class_noise
from optgeom.embeddings.statistics.pair_intervals import at_boundaries, beyond, curvature, pair_intervals
from optgeom.errors import InvalidInputError


def drawn(counts=(40, 25, 12), dim=6, sigma=0.6, seed=0):
    rng = np.random.default_rng(seed)
    gram = np.array([[1, -0.4, -0.3], [-0.4, 1, 0.2], [-0.3, 0.2, 1.0]])
    rows = sample(means_of(gram, dim, rng), list(counts), sigma, np.diag(np.geomspace(1, 0.1, dim)), rng)
    return rows, class_directions(moments_of(rows)), gram


def noise_of(rows):
    directions = class_directions(moments_of(rows))
    return directions, class_noise(directions, within_of(rows, directions))


def test_shares_are_the_influence_of_each_image():
    rows, directions, _ = drawn()
    noise = class_noise(directions, within_of(rows, directions))
    for c, part in enumerate(rows):
        n, total = len(part), part.sum(axis=0)
        own = np.einsum("id,id->i", part, total - part) / (n - 1)
        for d in range(3):
            if c == d:
                continue
            rho = directions.rho[c]
            psi = (part @ directions.vectors[d] - directions.gram[c, d] * own / rho) / rho
            assert abs(psi.sum()) < 1e-9
            assert noise.shares[c, d] == pytest.approx(np.sum(psi**2) / (n * (n - 1)), rel=1e-9)


def test_shares_are_near_those_of_leaving_one_image_out():
    rows, directions, _ = drawn((60, 50, 40))
    noise = class_noise(directions, within_of(rows, directions))
    left = []
    for i in range(60):
        fewer = [np.delete(rows[0], i, axis=0), *rows[1:]]
        left.append(class_directions(moments_of(fewer)).gram[0, 1])
    jackknife = 59 / 60 * np.sum((np.array(left) - np.mean(left)) ** 2)
    assert noise.shares[0, 1] == pytest.approx(jackknife, rel=0.05)


def test_roots_give_the_covariance_of_the_direction():
    rows, directions, _ = drawn()
    noise = class_noise(directions, within_of(rows, directions))
    for c, part in enumerate(rows):
        u = unit(directions.vectors[c])
        project = np.eye(6) - np.outer(u, u)
        wanted = project @ np.cov(part.T) @ project / (len(part) * directions.rho_squared[c])
        assert noise.roots[c].T @ noise.roots[c] == pytest.approx(wanted, abs=1e-10)
        assert noise.traces[c] == pytest.approx(np.trace(wanted))
        assert noise.tops[c] == pytest.approx(np.linalg.eigvalsh(wanted)[-1])


def test_rows_stand_in_for_covariances_that_are_too_large():
    rows, directions, gram = drawn()
    within = within_of(rows, directions)
    narrow = WithinClass(within.pooled, within.traces, None, within.projected)
    codes = np.repeat(np.arange(3), [len(part) for part in rows])
    full = class_noise(directions, within)
    sampled = class_noise(directions, narrow, rows=np.concatenate(rows), codes=codes)
    # On the sphere rows scatter along their mean to second order, which the trace of all rows counts as tangential.
    assert sampled.traces == pytest.approx(full.traces, rel=0.15)
    assert sampled.tops == pytest.approx(full.tops, rel=0.15)
    assert sampled.shares == pytest.approx(full.shares, rel=0.05, abs=1e-12)
    bare = class_noise(directions, narrow)
    assert bare.roots is None and bare.tops == pytest.approx(sampled.traces)
    fallen = null_intervals(directions, bare, pair_intervals(directions, bare, gram), gram)
    assert not fallen.drawn.any() and np.isnan(fallen.critical)
    pooled = class_noise(directions, WithinClass(within.pooled, within.traces))
    assert np.all(pooled.shares[~np.eye(3, dtype=bool)] > 0)


def test_classes_that_are_one_point_have_no_noise():
    rows = [np.tile(row, (10, 1)) for row in np.eye(3)]
    directions, noise = noise_of(rows)
    intervals = pair_intervals(directions, noise, np.eye(3), unseen=0.0)
    null = null_intervals(directions, noise, intervals, np.eye(3))
    off = ~np.eye(3, dtype=bool)
    assert np.abs(intervals.upper - intervals.lower)[off].max() < 1e-12
    assert not beyond(intervals, np.eye(3), 0.0).any() and not beyond(null, np.eye(3), 0.0).any()


def test_curvature_is_half_the_largest_eigenvalue():
    rng = np.random.default_rng(0)
    cosines, lengths = rng.uniform(-1.2, 1.2, (5, 5)), rng.random(5)
    found = curvature(cosines, lengths)
    for c in range(5):
        for d in range(5):
            a, cross = min(abs(cosines[c, d]), 1), np.sqrt(lengths[c] * lengths[d])
            matrix = [[a * lengths[c], cross], [cross, a * lengths[d]]]
            assert found[c, d] == pytest.approx(np.linalg.eigvalsh(matrix)[-1] / 2)


def test_half_width_of_one_pair_by_hand():
    from scipy.stats import t as student

    rows, directions, gram = drawn((30, 20, 20))
    noise = class_noise(directions, within_of(rows, directions))
    found = pair_intervals(directions, noise, gram, alpha=0.1, unseen=0.03, rounding=0.001)
    tail = 1 - 0.1 / 6
    shares = noise.shares[0, 1], noise.shares[1, 0]
    freedom = sum(shares) ** 2 / (shares[0] ** 2 / 29 + shares[1] ** 2 / 19)
    quantiles = student.ppf(tail, 29), student.ppf(tail, 19)
    lengths = [q**2 * top for q, top in zip(quantiles, noise.tops[:2], strict=True)]
    a = abs(directions.gram[0, 1])
    cross = np.sqrt(lengths[0] * lengths[1])
    bend = np.linalg.eigvalsh([[a * lengths[0], cross], [cross, a * lengths[1]]])[-1] / 2
    first = student.ppf(tail, freedom) * np.sqrt(sum(shares))
    moved = [min(q / n, 0.03) / rho for q, n, rho in zip(quantiles, (30, 20), noise.rho[:2], strict=True)]
    across = np.sqrt(1 - 0.16)
    allowance = across * np.hypot(*moved) + 0.4 * sum(moved) ** 2 / 2
    rounded = across * 0.002 + 0.4 * 0.002**2 / 2
    assert found.upper[0, 1] - directions.gram[0, 1] == pytest.approx(np.hypot(first, bend) + rounded)
    wide = np.sqrt(first**2 + bend**2 + allowance**2) + rounded
    assert directions.gram[0, 1] - found.wide_lower[0, 1] == pytest.approx(wide)
    assert found.num_pairs == 3 and found.degrees_of_freedom[0, 1] == pytest.approx(freedom)


def test_interval_beyond_the_boundary_keeps_its_width():
    lower, upper = at_boundaries(np.array([1.0004, -1.01, 0.2]), np.array([0.001, 0.02, 0.1]))
    assert lower == pytest.approx([0.999, -1.03, 0.1]) and upper == pytest.approx([1.0014, -0.98, 0.3])


def test_merged_minority_does_not_rule_out_every_error():
    """Fault 3: the interval of two coincident classes was (0, 0) degrees."""
    rng = np.random.default_rng(1)
    means = np.stack([-np.eye(16)[0], np.eye(16)[0], np.eye(16)[0]])
    rows = sample(means, [900, 60, 60], 0.3, np.eye(16) / 4, rng)
    directions, noise = noise_of(rows)
    found = pair_intervals(directions, noise, np.round(means @ means.T))
    angles = np.degrees(np.arccos(np.clip(found.lower[1, 2], -1, 1)))
    assert 0.5 < angles < 10 and found.upper[1, 2] >= 1


def test_few_images_decide_nothing():
    rows, directions, gram = drawn((40, 25, 7))
    noise = class_noise(directions, within_of(rows, directions))
    found = pair_intervals(directions, noise, gram)
    assert (found.num_pairs, found.num_decidable) == (3, 1) and found.tested[0, 2] and not found.decidable[0, 2]
    assert (found.lower[0, 2], found.upper[0, 2]) == (-1, 1)
    assert found.shares[2, 0] > found.shares[0, 2]
    null = null_intervals(directions, noise, found, gram)
    assert not beyond(null, -gram, 0.0)[2].any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"alpha": 1.0}, "`alpha` must be < 1; got 1.0 (0.05 is usual)"),
        ({"unseen": 1.0}, "`unseen` must be < 1; got 1.0 (a share of the images of a class, 0.05 is usual)"),
        ({"unseen": -0.1}, "`unseen` must be >= 0; got -0.1"),
    ],
)
def test_arguments_outside_of_their_range(arguments, message):
    rows, directions, gram = drawn()
    noise = class_noise(directions, within_of(rows, directions))
    with pytest.raises(InvalidInputError, match=re.escape(message)):
        pair_intervals(directions, noise, gram, **arguments)
    with pytest.raises(InvalidInputError, match=re.escape("`optimal` must have shape (C, C) = (3, 3)")):
        pair_intervals(directions, noise, np.eye(2))


def test_tolerance_and_allowance_are_not_added():
    class Some:
        lower = wide_lower = np.cos(np.radians([[0.0, 65.0], [65.0, 0.0]]))
        upper = np.cos(np.radians([[0.0, 63.0], [63.0, 0.0]]))
        wide_upper = np.cos(np.radians([[0.0, 61.0], [61.0, 0.0]]))

    best = np.cos(np.radians([[0.0, 60.0], [60.0, 0.0]]))
    assert beyond(Some, best, 2.9)[0, 1] and not beyond(Some, best, 3.1)[0, 1]
    Some.wide_upper = best
    assert not beyond(Some, best, 0.0).any()


# --- bootstrap


def test_rotation_keeps_the_cosines_and_is_the_nearest():
    rng = np.random.default_rng(3)
    counts = [300, 100, 40, 20]
    gram = optimum(counts)
    rows = sample(means_of(gram, 8, rng), counts, 0.5, np.eye(8) / 8**0.5, rng)
    _, noise = noise_of(rows)
    found = rotated(gram, noise)
    assert found @ found.T == pytest.approx(gram, abs=1e-9)
    weights = 1 / (noise.traces + np.median(noise.traces))

    def misfit(points):
        return np.sum(weights * np.sum((points - noise.vectors) ** 2, axis=1))

    for _ in range(50):
        skew = rng.normal(size=(8, 8)) * 0.1
        turn = np.linalg.qr(np.eye(8) + skew - skew.T)[0]
        assert misfit(found) <= misfit(found @ (turn * np.sign(np.diag(turn)))) + 1e-9


def test_drawn_cosines_have_the_spread_of_fresh_samples():
    """Noise measured on one sample, and the spread of the estimate over 400 others."""
    rng = np.random.default_rng(4)
    counts, gram = [400, 300, 200], np.array([[1, -0.5, 0.1], [-0.5, 1, -0.2], [0.1, -0.2, 1.0]])
    means = means_of(gram, 6, rng)
    root = np.diag([1, 0.5, 0.3, 0.2, 0.1, 0.1])
    _, noise = noise_of(sample(means, counts, 0.4, root, rng))
    pairs = np.triu_indices(3, 1)
    draws = np.concatenate(list(cosine_draws(noise.vectors, noise, pairs, 2000, 0)))
    fresh = [class_directions(moments_of(sample(means, counts, 0.4, root, rng))).gram[pairs] for _ in range(400)]
    assert draws.std(axis=0) == pytest.approx(np.std(fresh, axis=0), rel=0.15)


def test_quantile_is_exceeded_with_at_most_the_level():
    rng = np.random.default_rng(5)
    exceeded = [rng.random() > upper_quantile(rng.random(39), 0.05) for _ in range(4000)]
    assert 0.03 < np.mean(exceeded) <= 0.06
    assert upper_quantile(np.arange(10.0), 1e-9) == 9


def test_same_seed_same_verdict_and_nothing_is_written_over():
    rows, directions, gram = drawn()
    noise = class_noise(directions, within_of(rows, directions))
    intervals = pair_intervals(directions, noise, gram)
    before = intervals.lower.copy()
    first, second = (null_intervals(directions, noise, intervals, gram, seed=3) for _ in range(2))
    assert np.array_equal(first.lower, second.lower, equal_nan=True) and first.critical == second.critical
    assert np.array_equal(intervals.lower, before, equal_nan=True)
    assert first.drawn.sum() == 6 and not first.drawn.diagonal().any()
    with pytest.raises(ValueError, match="read-only"):
        first.lower[0, 1] = 0.0


def test_half_floats_at_the_optimum_do_not_differ():
    """Fault 4: rows at the optimum, stored as float16, at tolerance 0."""
    from optgeom.embeddings.moments.rounding import rounding_angle, significant_bits

    counts = long_tail(200, 20, 5)
    gram = optimum(counts)
    means = means_of(gram, 8, np.random.default_rng(0))
    stored = [np.tile(mean, (count, 1)).astype(np.float16) for mean, count in zip(means, counts, strict=True)]
    rows = [unit(part.astype(np.float64)) for part in stored]
    directions, noise = noise_of(rows)
    angle = rounding_angle(significant_bits(np.concatenate(stored)))
    without = pair_intervals(directions, noise, gram, unseen=0.0)
    rounded = pair_intervals(directions, noise, gram, unseen=0.0, rounding=angle)
    assert beyond(null_intervals(directions, noise, without, gram), gram, 0.0).any()
    assert not beyond(null_intervals(directions, noise, rounded, gram, rounding=angle), gram, 0.0).any()
    assert not beyond(rounded, gram, 0.0).any()


def test_families_have_the_truth_that_they_state():
    gram = optimum(long_tail(300, 20, 4))
    for name, family in families(gram, 8).items():
        rows = family.sample([40_000] * 4, np.random.default_rng(12))
        means = unit(np.stack([part.mean(axis=0) for part in rows]))
        assert means @ means.T == pytest.approx(family.gram, abs=0.015), name
