"""Laws fitted to pairs.

The estimate against scipy and scans of the likelihood, the interval against simulated coverage.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special, stats

from optgeom.errors import InvalidInputError
from optgeom.sampling.conditionals import Slice, VonMisesFisher
from optgeom.sampling.diversity import diversity
from optgeom.sampling.fit import fit
from optgeom.sampling.pairs import Pairs


def drawn(law, n, seed=0):
    rng = np.random.default_rng(seed)
    z, z_plus = law.sample_pairs(rng, n)
    turn, _ = np.linalg.qr(rng.standard_normal((law.dimension,) * 2))
    return Pairs.of(z @ turn, z_plus @ turn)


def fitted(pairs, convention="theory"):
    return fit(pairs, diversity(pairs), convention=convention)


def test_estimate_is_that_of_scipy():
    """Pairs turned so that every anchor is one pole are a sample of one von Mises-Fisher law of known direction."""
    found = fitted(drawn(VonMisesFisher(3, 4.0), 300))
    pairs = drawn(VonMisesFisher(3, 4.0), 300)
    cosines = (pairs.z * pairs.z_plus).sum(axis=1)

    def negative(kappa):
        # log density of the cosine on S^2 in closed form
        return -float(np.sum(kappa * cosines + np.log(kappa / (2 * np.sinh(kappa)))))

    grid = np.linspace(2, 7, 50_001)
    values = np.array([negative(kappa) for kappa in grid])
    assert found.kappa == pytest.approx(grid[values.argmin()], abs=2e-4)
    inside = grid[2 * (values - values.min()) <= stats.chi2.ppf(0.95, 1)]
    np.testing.assert_allclose(found.interval, [inside[0], inside[-1]], atol=3e-4)


@pytest.mark.parametrize("convention", ["theory", "reported"])
def test_slices_against_a_scan_of_the_likelihood(convention):
    pairs = drawn(Slice(3, 5.0, (2,), convention), 300)
    found = fitted(pairs, convention)
    axis = diversity(pairs).fixed_directions[:, 0]
    v, v_plus = (rows - np.outer(rows @ axis, axis) for rows in (pairs.z, pairs.z_plus))
    square = (v**2).sum(axis=1)
    cosine = (v * v_plus).sum(axis=1) / square
    grid = np.linspace(2, 12, 4001)
    own = grid[:, None] * (square if convention == "theory" else np.ones_like(square))
    values = (own * (cosine - 1) - np.log(special.i0e(own))).sum(axis=1)
    assert found.kappa == pytest.approx(grid[values.argmax()], abs=2e-3)
    inside = grid[2 * (values.max() - values) <= stats.chi2.ppf(0.95, 1)]
    np.testing.assert_allclose(found.interval, [inside[0], inside[-1]], atol=4e-3)


@pytest.mark.parametrize(
    "law",
    [
        VonMisesFisher(3, 1 / 0.3),
        VonMisesFisher(10, 5.0),
        Slice(3, 1 / 0.3, (2,)),
        Slice(3, 1 / 0.3, (2,), "reported"),
        Slice(5, 8.0, (3, 4)),
    ],
)
def test_interval_covers_as_often_as_it_says(law):
    """200 sets of 100 pairs: 95 % with a standard error of 1.5 %, so that 90.5 to 99.5 % is three of them."""
    covered = 0
    for seed in range(200):
        low, high = fitted(drawn(law, 100, seed), getattr(law, "convention", "theory")).interval
        covered += low <= law.kappa <= high
    assert 181 <= covered <= 199


def test_more_pairs_narrow_the_interval_as_their_root():
    widths = [np.ptp(fitted(drawn(VonMisesFisher(3, 4.0), n)).interval) for n in (400, 40_000)]
    assert widths[0] / widths[1] == pytest.approx(10, rel=0.15)


def test_many_different_weights_are_averaged_without_loss():
    pairs = drawn(Slice(3, 5.0, (2,)), 30_000)
    found = fitted(pairs)
    axis = diversity(pairs).fixed_directions[:, 0]
    v, v_plus = (rows - np.outer(rows @ axis, axis) for rows in (pairs.z, pairs.z_plus))
    square = (v**2).sum(axis=1)
    own = found.kappa * square
    assert np.mean(square * special.i1e(own) / special.i0e(own)) == pytest.approx(
        np.mean((v * v_plus).sum(axis=1)), abs=1e-9
    )


def test_ends_of_the_range():
    rng = np.random.default_rng(1)
    z = rng.standard_normal((2, 500, 3))
    z /= np.linalg.norm(z, axis=-1, keepdims=True)
    low, high = fitted(Pairs.of(*z)).interval
    assert low == 0 and 0 < high < 0.5
    near = z[0] + 1e-5 * rng.standard_normal((500, 3))
    near /= np.linalg.norm(near, axis=1)[:, None]
    held = Pairs.of(z[0], near)
    tight = fit(held, diversity(held, resolution=1e-7))
    assert tight.kappa == 1e6 and tight.interval[1] == math.inf
    with pytest.raises(InvalidInputError, match="`pairs` must be nearer than chance"):
        fitted(Pairs.of(z[0], -z[0]))
