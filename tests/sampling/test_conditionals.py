"""Laws of positives, and their diversity.

Densities are compared with scipy, normalisers with independent integrals, samples with exact moments.
"""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from scipy import integrate, special, stats

from optgeom.errors import InvalidInputError
from optgeom.sampling import latents
from optgeom.sampling.caps import Cap
from optgeom.sampling.conditionals import Mixture, Slice, VonMisesFisher
from optgeom.sampling.diversity import diversity
from optgeom.sampling.pairs import Pairs

KAPPA = 1 / 0.3


def log_area(d: int) -> float:
    """log of the surface area of S^(d-1), 2 pi^(d/2) / Gamma(d/2)."""
    return math.log(2.0) + 0.5 * d * math.log(math.pi) - math.lgamma(d / 2)


def cosines(z, z_plus):
    return (z * z_plus).sum(axis=1)


def within(sample, mean, sigmas=4):
    assert abs(sample.mean() - mean) <= sigmas * sample.std() / math.sqrt(sample.size)


@pytest.mark.parametrize(("d", "kappa"), [(2, 3.0), (3, KAPPA), (5, 20.0), (8, 1e4), (4, 1e-3)])
def test_von_mises_fisher_agrees_with_scipy(d, kappa):
    law = VonMisesFisher(d, kappa)
    z, z_plus = law.sample_pairs(np.random.default_rng(0), 20_000)
    ours = law.log_density(z[:1], z_plus[:4]) - log_area(d)
    np.testing.assert_allclose(ours, stats.vonmises_fisher(z[0], kappa).logpdf(z_plus[:4]), rtol=1e-10, atol=1e-9)
    theirs = stats.vonmises_fisher(z[0], kappa).rvs(20_000, random_state=np.random.default_rng(1)) @ z[0]
    assert stats.ks_2samp(cosines(z, z_plus), theirs).pvalue > 1e-3
    np.testing.assert_allclose(np.linalg.norm(z_plus, axis=1), 1.0, atol=1e-12)


def test_mean_cosine_in_closed_form():
    for kappa in (1e-5, 0.3, 3.0, 700.0):
        assert latents.mean_cosine(kappa, 3) == pytest.approx(1 / math.tanh(kappa) - 1 / kappa, rel=1e-5)
        assert latents.mean_cosine(kappa, 2) == pytest.approx(special.i1e(kappa) / special.i0e(kappa), rel=1e-9)
        assert latents.log_mean_exp(kappa, 1) == pytest.approx(
            kappa + math.log1p(math.exp(-2 * kappa)) - math.log(2), abs=1e-12
        )
    assert latents.log_mean_exp(2.0, 3) == pytest.approx(math.log(math.sinh(2.0) / 2.0), rel=1e-13)
    assert latents.log_mean_exp(0.0, 7) == 0.0


@pytest.mark.parametrize("convention", ["theory", "reported"])
def test_slice_conventions(convention):
    law = Slice(3, KAPPA, (2,), convention)
    z, z_plus = law.sample_pairs(np.random.default_rng(2), 100_000)
    assert np.array_equal(z[:, 2], z_plus[:, 2])
    np.testing.assert_allclose(np.linalg.norm(z_plus, axis=1), 1.0, atol=1e-12)

    def ratio(k):
        return special.i1e(k) / special.i0e(k)

    def mean_at(h):
        return h * h + (1 - h * h) * ratio(KAPPA * (1 - h * h) if convention == "theory" else KAPPA)

    within(cosines(z, z_plus), integrate.quad(mean_at, 0, 1)[0])
    # The density integrates to 1 over the uniform law of the slice.
    within(np.exp(law.log_density(z, law.sample_support(np.random.default_rng(3), z))), 1.0)
    assert law.log_density(z[:1], -z[:1]) == -np.inf
    assert not law.full_support and law.fixed == (2,)


def test_slice_with_one_free_coordinate_keeps_or_flips_its_sign():
    law = Slice(3, 2.0, (0, 1), "reported")
    z, z_plus = law.sample_pairs(np.random.default_rng(4), 40_000)
    stays = (z[:, 2] * z_plus[:, 2] > 0).astype(float)
    assert np.array_equal(np.abs(z), np.abs(z_plus))
    within(stays, math.exp(2) / (2 * math.cosh(2)))


@pytest.mark.parametrize(
    ("d", "angle", "kappa"), [(3, 60.0, 0.0), (4, 60.0, 5.0), (2, 170.0, 8.0), (3, 180.0, 2.0), (6, 5.0, 1.0)]
)
def test_cap(d, angle, kappa):
    law = Cap(d, angle, kappa)
    z, z_plus = law.sample_pairs(np.random.default_rng(5), 30_000)
    assert law.contains(z, z_plus).all()
    area = integrate.quad(lambda a: math.sin(a) ** (d - 2), 0, math.pi)[0]
    top = math.radians(angle)

    def moment(power):
        return integrate.quad(
            lambda a: math.sin(a) ** (d - 2) * math.exp(kappa * math.cos(a)) * math.cos(a) ** power, 0, top
        )[0]

    assert law.log_total == pytest.approx(math.log(moment(0) / area), abs=1e-9)
    within(cosines(z, z_plus), moment(1) / moment(0))
    within(np.exp(law.log_density(z, law.sample_support(np.random.default_rng(6), z))) * law.share, 1.0, 5)
    assert law.full_support == (angle == 180)


@pytest.mark.parametrize(("d", "angle"), [(100, 0.001), (5000, 60.0), (10_000, 30.0)])
def test_caps_whose_share_underflows(d, angle):
    with mpmath.workdps(50):
        sine = mpmath.sin(mpmath.radians(mpmath.mpf(angle)))
        wanted = mpmath.log(mpmath.betainc((d - 1) / mpmath.mpf(2), 0.5, 0, sine**2, regularized=True) / 2)
        # E |z+ - z|^2 = 2 - 2 E cos, and the integral of sin^(d-2) cos is elementary.
        area = mpmath.sqrt(mpmath.pi) * mpmath.gamma(mpmath.mpf(d - 1) / 2) / mpmath.gamma(mpmath.mpf(d) / 2)
        cosine = sine ** (d - 1) / (d - 1) / (area * mpmath.exp(wanted))
    law = Cap(d, angle)
    assert law.log_total == pytest.approx(float(wanted), rel=1e-9)
    assert law.mean_square_change().sum() == pytest.approx(float(2 - 2 * cosine), rel=1e-6)
    rng = np.random.default_rng(7)
    assert law.contains(*law.sample_pairs(rng, 10)).all()


def test_mixture():
    narrow, wide = VonMisesFisher(3, 50.0), VonMisesFisher(3, 1.0)
    law = Mixture((narrow, wide), (0.25, 0.75))
    z, z_plus = law.sample_pairs(np.random.default_rng(7), 50_000)
    within(cosines(z, z_plus), 0.25 * (1 / math.tanh(50) - 1 / 50) + 0.75 * (1 / math.tanh(1) - 1))
    expected = np.log(0.25 * np.exp(narrow.log_density(z, z_plus)) + 0.75 * np.exp(wide.log_density(z, z_plus)))
    np.testing.assert_allclose(law.log_density(z, z_plus), expected, atol=1e-12)
    slices = Mixture((Slice(3, 1.0, (2,)), Slice(3, 1.0, (1, 2))), (0.5, 0.5))
    assert slices.fixed == (2,) and not slices.full_support
    with pytest.raises(InvalidInputError, match="fix the same coordinates"):
        slices.log_density(z, z_plus)
    with pytest.raises(InvalidInputError, match="largest support"):
        Mixture((Slice(3, 1.0, (2,)), Slice(3, 1.0, (1,))), (0.5, 0.5)).sample_support(np.random.default_rng(0), z)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: VonMisesFisher(1, 1.0), "`dimension` must be a whole number >= 2"),
        (lambda: VonMisesFisher(3, -1.0), "`kappa` must be >= 0"),
        (lambda: Slice(3, 1.0, ()), "`axes` must be 1 to 2 different coordinates"),
        (lambda: Slice(3, 1.0, (0, 1, 2)), "one must stay free"),
        (lambda: Slice(3, 1.0, (2,), "paper"), "`convention` must be one of theory, reported"),
        (lambda: Cap(3, 200.0), r"`angle_deg` must be in \(0, 180\]"),
        (lambda: Mixture((VonMisesFisher(3, 1.0),), (0.5,)), "`weights` must sum to 1"),
        (lambda: Mixture((), ()), "`weights` must give a probability"),
        (lambda: Mixture((VonMisesFisher(3, 1.0), VonMisesFisher(2, 1.0)), (0.5, 0.5)), "in one dimension"),
        (lambda: Pairs.of(np.ones((30, 3)), np.ones((30, 3))), "`z` must be unit vectors; got length 1.73205 in row 0"),
        (lambda: Pairs.of(np.eye(3), np.eye(3)), "at least 20 pairs"),
        (lambda: Pairs.of(np.eye(30), np.eye(30)[:25]), "must have the shape of z"),
        (lambda: Pairs.of(np.zeros(3), np.zeros(3)), "one per row"),
        (lambda: Pairs.read("missing.npz"), "cannot read missing.npz"),
    ],
)
def test_refusals(make, message):
    with pytest.raises(InvalidInputError, match=message):
        make()


# --- diversity


@pytest.mark.parametrize(
    ("law", "holds", "fixed", "effective"),
    [
        (VonMisesFisher(3, KAPPA), True, 0, 3.0),
        (Slice(3, KAPPA, (2,)), False, 1, 2.0),
        (Slice(5, KAPPA, (0, 3), "reported"), False, 2, 3.0),
        (Cap(4, 60.0), False, 0, 4.0),
        (Mixture((Slice(3, KAPPA, (2,)), VonMisesFisher(3, KAPPA)), (0.9, 0.1)), True, 0, None),
    ],
)
def test_diversity_of_a_law(law, holds, fixed, effective):
    found = diversity(law)
    assert found.holds is holds and found.fixed_dimensions == fixed == found.fixed_directions.shape[1]
    if effective is not None:
        assert found.effective_dimension == pytest.approx(effective, abs=1e-9)
    z, z_plus = law.sample_pairs(np.random.default_rng(8), 60_000)
    seen = np.sort(((z_plus - z) ** 2).mean(axis=0))
    np.testing.assert_allclose(found.variation**2, seen, rtol=0.05, atol=1e-12)
    assert np.abs((z_plus - z) @ found.fixed_directions).max(initial=0.0) <= 1e-12


def turned(points, seed):
    q, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((points.shape[1],) * 2))
    return points @ q


@pytest.mark.parametrize("convention", ["theory", "reported"])
@pytest.mark.parametrize("d", [3, 6])
def test_a_fixed_direction_is_found_in_pairs(convention, d):
    found = []
    for seed in range(100):
        z, z_plus = Slice(d, KAPPA, (d - 1,), convention).sample_pairs(np.random.default_rng(seed), 500)
        found.append(diversity(Pairs.of(turned(z, seed), turned(z_plus, seed))).fixed_dimensions)
    assert sum(number == 1 for number in found) >= 95


@pytest.mark.parametrize("spread", ["gaussian", "uniform"])
def test_a_direction_that_varies_a_little_is_not_called_fixed(spread):
    called = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        z, z_plus = Slice(3, KAPPA, (2,)).sample_pairs(rng, 500)
        z_plus[:, 2] += 0.05 * rng.standard_normal(500) if spread == "gaussian" else rng.uniform(-0.05, 0.05, 500)
        z_plus /= np.linalg.norm(z_plus, axis=1)[:, None]
        called += diversity(Pairs.of(z, z_plus)).fixed_dimensions > 0
    assert called <= 5


def test_pairs_never_prove_full_support():
    found = diversity(Pairs.of(*VonMisesFisher(3, KAPPA).sample_pairs(np.random.default_rng(9), 500)))
    assert found.holds is None and found.fixed_dimensions == 0 and 90 < found.widest_angle_deg <= 180
    assert "no direction is seen to be fixed" in found.reason
    few = diversity(Pairs.of(*VonMisesFisher(20, 1e4).sample_pairs(np.random.default_rng(9), 25)))
    assert few.undecided_directions > 0 and "more pairs are needed" in few.reason
