"""Level and power of the verdict: how often a true optimum is accepted and a turned class is named.

z = normalise(mu + sigma eps), eps of trace 1, isotropic or with eigenvalues geometric over a factor 30; T = .5, SupCon
in the limit of large batches, tolerance 2 degrees. The smallest class is turned 10 degrees towards its nearest class,
in the plane of both. At a collapsed optimum (T = 1) it coincides with its nearest classes: there it is turned towards
the nearest one that it does not coincide with (the majority, opposite to it, so in any plane), which shows in its pairs
with the majority and with every coincident class alike.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from helpers.simulated import judged, long_tail, means_of, optimum, sample, shape_root, turned

FEW = 6


@dataclass(frozen=True)
class Setting:
    counts: tuple[int, ...]
    dim: int
    sigma: float = 0.5
    temperature: float = 0.5


TEN = Setting(tuple(long_tail(5000, 50, 10)), 32)
HUNDRED = Setting(tuple(long_tail(500, 50, 100)), 128)
COLLAPSED = Setting((2000, 60, 50, 50), 32, temperature=1.0)
MANY_COLLAPSED = Setting((20000, *[50] * 29), 32, temperature=1.0)
LOOSE = Setting(tuple(long_tail(500, 50, 10)), 32, 1.0)
TINY = Setting(tuple(long_tail(5000, 5, 10)), 32)

settings = pytest.mark.parametrize("setting", [TEN, HUNDRED, COLLAPSED], ids=["10", "100", "collapsed"])
shapes = pytest.mark.parametrize("ratio", [None, 30.0], ids=["isotropic", "anisotropic"])
amounts = pytest.mark.parametrize("runs", [FEW, pytest.param(100, marks=pytest.mark.slow)])
sources = pytest.mark.parametrize(
    "source", [(True, True), (False, True), (False, False)], ids=["full", "projected", "pooled"]
)


def verdicts(setting, ratio, runs, degrees=0.0, source=(True, True)):
    """Verdicts of independent samples, and the pair that was turned."""
    optimal = optimum(list(setting.counts), setting.temperature)
    fixed = np.random.default_rng(7)
    means = means_of(optimal, setting.dim, fixed)
    root = np.eye(setting.dim) / np.sqrt(setting.dim) if ratio is None else shape_root(setting.dim, ratio, fixed)
    pair = None
    if degrees:
        means, pair = turned(means, degrees)
    found = []
    for run in range(runs):
        rng = np.random.default_rng([11, run])
        rows = sample(means, list(setting.counts), setting.sigma, root, rng)
        found.append(judged(rows, optimal, 2.0, *source)[0])
    return found, pair


def share(flags):
    return np.mean([bool(flag) for flag in flags])


@amounts
@shapes
@settings
def test_true_optimum_is_consistent(setting, ratio, runs):
    found, _ = verdicts(setting, ratio, runs)
    assert share(one.verdict == "consistent" for one in found) >= 0.95
    assert not any(one.spread for one in found)


@amounts
@shapes
@settings
def test_turned_class_is_found(setting, ratio, runs):
    found, pair = verdicts(setting, ratio, runs, 10.0)
    smallest = f"c{pair[1]}"

    def right(one):
        named = [(held.first, held.second) for held in one.pairs]
        return one.verdict == "differs" and pair in named and one.classes[0][1] == dict(one.classes)[smallest]

    assert share(map(right, found)) >= 0.95


@pytest.mark.slow
@shapes
@settings
@sources
def test_level_and_power_do_not_need_full_covariances(setting, ratio, source):
    found, _ = verdicts(setting, ratio, 100, source=source)
    assert share(one.verdict == "consistent" for one in found) >= 0.95
    found, pair = verdicts(setting, ratio, 100, 10.0, source)
    assert (
        share(one.verdict == "differs" and pair in [(held.first, held.second) for held in one.pairs] for one in found)
        >= 0.95
    )


@amounts
@shapes
def test_many_coincident_classes_are_consistent(ratio, runs):
    """406 pairs at a cosine of 1, whose estimates have the long tail of a chi-square."""
    found, _ = verdicts(MANY_COLLAPSED, ratio, runs)
    assert share(one.verdict == "consistent" for one in found) >= 0.95
    assert all(len(one.as_predicted) > 300 for one in found)


@amounts
@shapes
def test_class_of_five_images_is_named_as_too_small(ratio, runs):
    found, _ = verdicts(TINY, ratio, runs)
    assert share(one.verdict == "inconclusive" and one.too_small[0] == "c9" for one in found) >= 0.95


@amounts
@shapes
def test_loose_classes_are_not_rejected_and_often_found(ratio, runs):
    found, _ = verdicts(LOOSE, ratio, runs)
    assert share(one.verdict == "consistent" for one in found) >= 0.95
    found, pair = verdicts(LOOSE, ratio, runs, 10.0)
    assert (
        share(one.verdict == "differs" and pair in [(held.first, held.second) for held in one.pairs] for one in found)
        >= 0.5
    )


@pytest.mark.parametrize("runs", [20, pytest.param(100, marks=pytest.mark.slow)])
def test_tolerance_of_zero_holds_its_level_for_isotropic_noise(runs):
    """The means of isotropic noise are exactly in place: only then is "sampling noise only" a true hypothesis."""
    optimal = optimum(list(TEN.counts))
    means = means_of(optimal, 32, np.random.default_rng(7))
    wrong = 0
    for run in range(runs):
        rng = np.random.default_rng([12, run])
        wrong += (
            judged(sample(means, list(TEN.counts), 0.5, np.eye(32) / np.sqrt(32), rng), optimal, 0.0)[0].verdict
            == "differs"
        )
    assert wrong <= 0.1 * runs


@pytest.mark.parametrize("smallest", [30, 6])
@sources
def test_all_intervals_cover_the_true_cosines_together(smallest, source):
    """Isotropic noise leaves the directions of the means where they are, so the truth is known."""
    counts = long_tail(40 * smallest, smallest, 8)
    optimal = optimum(counts)
    means = means_of(optimal, 16, np.random.default_rng(7))
    covered = []
    for run in range(60):
        rng = np.random.default_rng([13, run])
        intervals = judged(sample(means, counts, 0.6, np.eye(16) / 4, rng), optimal, 2.0, *source)[2]
        inside = (intervals.lower <= optimal) & (optimal <= intervals.upper)
        covered.append(inside[intervals.tested].all())
    assert share(covered) >= 0.9


@pytest.mark.slow
@sources
def test_noise_in_the_span_of_the_means_is_covered(source):
    """As in trained networks, four fifths of the noise lie in the dimensions of the means and move every angle."""
    counts, dim, classes = long_tail(2000, 30, 10), 32, 10
    optimal = optimum(counts)
    fixed = np.random.default_rng(5)
    means = means_of(optimal, dim, fixed)
    span = np.linalg.svd(means)[2][: classes - 1]
    inside = span.T @ span
    covariance = 0.8 * inside / (classes - 1) + 0.2 * (np.eye(dim) - inside) / (dim - classes + 1)
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(values)
    centres = np.stack([part.mean(axis=0) for part in sample(means, [300_000] * classes, 0.5, root, fixed)])
    centres /= np.linalg.norm(centres, axis=1)[:, None]
    truth = centres @ centres.T
    covered = []
    for run in range(200):
        intervals = judged(sample(means, counts, 0.5, root, np.random.default_rng([14, run])), optimal, 2.0, *source)[2]
        held = (intervals.lower <= truth) & (truth <= intervals.upper)
        covered.append(held[intervals.tested].all())
    assert share(covered) >= 0.93
