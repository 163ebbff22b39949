"""Rates at which angles settle: golden values, gradient descent on free features, and the two ways to compute them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers.reference import GOLDEN_2

import optgeom as og
from optgeom.collapse import relaxation as module

# Ten classes of the theory's section 24: batches of fixed composition.
TEN = [200, 120, 72, 43, 26, 15, 9, 6, 3, 2]


@pytest.mark.parametrize("case", GOLDEN_2["relaxation"], ids=lambda case: f"C {len(case['counts'])} tau {case['tau']}")
def test_golden_free_rates(case):
    geometry = og.solve(og.ClassDistribution.from_counts(case["counts"]), og.SupCon(temperature=case["tau"]))
    found = og.relaxation(geometry, kernel="free")
    assert found.slowest == pytest.approx(case["slowest"], rel=1e-9)
    assert found.fastest == pytest.approx(case["fastest"], rel=1e-9)
    if case.get("all_rates"):
        np.testing.assert_allclose(found.rates, case["all_rates"], rtol=1e-8)
    if case.get("slow_mode_motion"):
        np.testing.assert_allclose(found.motion[0], case["slow_mode_motion"], atol=1e-6)


def test_golden_stiff_mode_of_further_dimensions():
    case = GOLDEN_2["relaxation_out_of_span"]
    geometry = og.solve(og.ClassDistribution.from_counts(case["counts"]), og.SupCon(temperature=case["tau"]))
    assert og.relaxation(geometry, kernel="free").stiff == pytest.approx(case["rate_z_mean"], rel=1e-9)


@pytest.mark.parametrize(
    ("tau", "free", "network"),
    [
        (0.5, (0.122, 2.9), (6.2e-4, 0.35)),
        (0.3, None, (2.8e-3, None)),
        (0.2, None, (8.2e-3, None)),
        (0.1, None, (3.3e-4, None)),
    ],
)
def test_rates_of_a_long_tail_in_batches(tau, free, network):
    """Theory, section 13: a network's long tail settles fastest at T = .2."""
    geometry = og.solve(og.ClassDistribution.from_counts(TEN), og.SupConFullBatch(temperature=tau))
    for kernel, expected in (("free", free), ("network", network)):
        found = og.relaxation(geometry, kernel=kernel)
        for value, wanted in zip((found.slowest, found.fastest), expected or (), strict=False):
            assert wanted is None or value == pytest.approx(wanted, rel=0.02)


def test_network_rates_of_three_classes():
    geometry = og.solve(og.ClassDistribution.from_counts([307, 154, 51]), og.SupConFullBatch(temperature=0.5))
    found = og.relaxation(geometry)
    assert found.kernel == "network"
    assert (found.slowest, found.fastest) == (pytest.approx(0.276, rel=5e-3), pytest.approx(0.286, rel=5e-3))
    free = og.relaxation(geometry, kernel="free")
    assert (free.slowest, free.fastest) == (pytest.approx(0.677, rel=0.01), pytest.approx(2.16, rel=0.01))


@pytest.mark.parametrize("kernel", ["free", "network"])
@pytest.mark.parametrize("profile", ["cifar10-lt:100", "step:12:10"])
def test_the_iterative_method_finds_the_same_rates(monkeypatch, kernel, profile):
    geometry = og.solve(og.ClassDistribution.from_profile(profile), og.SupCon(temperature=0.4))
    dense = og.relaxation(geometry, kernel=kernel)
    monkeypatch.setattr(module, "LARGEST_DENSE", 0)
    iterative = og.relaxation(geometry, kernel=kernel)
    # Equal classes have equal rates, of which Lanczos finds some copies only.
    off = np.abs(iterative.rates[:, None] / dense.rates[None, :] - 1).min(axis=1)
    assert off.max() <= 1e-7
    assert iterative.slowest == pytest.approx(dense.slowest, rel=1e-7)
    assert iterative.fastest == pytest.approx(dense.fastest, rel=1e-7)


@pytest.mark.parametrize("tau", [0.2, 0.5])
@pytest.mark.parametrize("counts", [[600, 300, 100], [500, 250, 150, 100], [900, 50, 50]])
def test_gradient_descent_settles_at_the_slowest_rate(counts, tau):
    """Explicit Euler on the class means of free features, on the risk written out."""
    p = np.array(counts) / sum(counts)
    geometry = og.solve(og.ClassDistribution.from_counts(counts), og.SupCon(temperature=tau))
    rates = og.relaxation(geometry, kernel="free")
    means = geometry.prototypes()
    rng = np.random.default_rng(0)
    means = means + 0.02 * rng.standard_normal(means.shape)
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    step = 0.02 / rates.fastest
    distances, times = [], []
    total = int(16 / (rates.slowest * step))
    for count in range(total):
        gram = means @ means.T
        terms = p[None, :] * np.exp((gram - 1) / tau)
        share = p[:, None] * terms / terms.sum(axis=1, keepdims=True) / tau
        np.fill_diagonal(share, 0.0)
        force = (share + share.T) @ means / p[:, None]
        force -= (force * means).sum(axis=1, keepdims=True) * means
        means = means - step * force
        means /= np.linalg.norm(means, axis=1, keepdims=True)
        if count > 3 * total // 4 and count % 10 == 0:
            distances.append(np.linalg.norm(means @ means.T - geometry.gram))
            times.append(count * step)
    measured = -np.polyfit(times, np.log(distances), 1)[0]
    assert measured == pytest.approx(rates.slowest, rel=0.05)


def test_steps_and_words():
    classes = og.ClassDistribution.from_counts({"cat": 5000, "dog": 1500, "owl": 400, "emu": 100})
    geometry = og.solve(classes, og.SupCon(temperature=0.1))
    free, network = og.relaxation(geometry, kernel="free"), og.relaxation(geometry)
    assert free.slow_classes(1) == ("dog",)  # golden: the slowest mode moves the second class most
    assert free.steps(learning_rate=0.5, samples=7000) == pytest.approx(7000 / (0.5 * free.slowest))
    assert network.steps(learning_rate=1e-3, kappa=2000) == pytest.approx(1 / (2000 * 1e-3 * network.slowest))
    scaled = network.steps(learning_rate=1e-3, base_temperature=0.07)
    assert scaled == pytest.approx(network.steps(learning_rate=1e-3) * 0.07 / 0.1)
    with pytest.raises(og.InvalidInputError, match="`samples` must be given for free features"):
        free.steps(learning_rate=0.5)
    with pytest.raises(og.InvalidInputError, match="`kernel` must be one of network, free"):
        og.relaxation(geometry, kernel="ntk")
    assert math.isfinite(free.as_dict()["slowest"])
