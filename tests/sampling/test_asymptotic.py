"""Asymptotic losses.

The figures of the theory from the general code, quadrature against Monte Carlo, maps that beat the identity.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from helpers.maps import RingsToFibonacci
from scipy import integrate, special

from optgeom.errors import InvalidInputError
from optgeom.sampling.asymptotic import asymptotic_loss, infimum, orthogonal_loss
from optgeom.sampling.caps import Cap
from optgeom.sampling.conditionals import Mixture, Slice, VonMisesFisher
from optgeom.sampling.maps import GreatCircles, fibonacci
from optgeom.sampling.quadrature import positive_rule, sphere_rule, support_rule

TAU = 0.3
FULL = VonMisesFisher(3, 1 / TAU)
THEORY, REPORTED = Slice(3, 1 / TAU, (2,)), Slice(3, 1 / TAU, (2,), "reported")
INFIMUM = 5.702509  # N = 2000
CIRCLE = VonMisesFisher(2, 2.0)


@pytest.mark.parametrize(
    ("law", "negatives", "published"), [(FULL, 4000, 7.387161), (REPORTED, 2000, 6.076064), (THEORY, 2000, 6.245533)]
)
def test_table_of_the_theory(law, negatives, published):
    found = asymptotic_loss(law, TAU, negatives=negatives)
    assert found.method == "quadrature" and found.standard_error == 0
    assert found.value == pytest.approx(published, abs=1e-6)
    assert orthogonal_loss(law, TAU, negatives) == pytest.approx(found.value, abs=1e-10)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_fixed_axis_does_not_matter(axis):
    assert asymptotic_loss(Slice(3, 1 / TAU, (axis,)), TAU, negatives=2000).value == pytest.approx(6.245533, abs=1e-6)


@pytest.mark.parametrize("law", [THEORY, REPORTED])
def test_rings_to_fibonacci_points_approach_the_infimum(law):
    errors = []
    for rings in (50, 100, 200, 400):
        mapping = RingsToFibonacci(rings)
        loss = asymptotic_loss(law, TAU, mapping, negatives=2000, rule=sphere_rule(3, 1, 1, mapping.edges)).value
        errors.append(loss - infimum(law, TAU, 2000))
    assert infimum(law, TAU, 2000) == pytest.approx(INFIMUM, abs=1e-6)
    assert min(errors) > 0 and errors[0] < 2e-3
    # At least as R^-2: a quarter with every doubling.
    assert all(after <= before / 4 for before, after in itertools.pairwise(errors))


@pytest.mark.parametrize("rho", [0.0, 0.4, 1.0])
@pytest.mark.parametrize(
    ("law", "mapping"),
    [
        (FULL, None),
        (THEORY, None),
        (REPORTED, GreatCircles((2,))),
        (CIRCLE, None),
        (Slice(2, 2.0, (1,)), None),
        (Slice(3, 2.0, (0, 2)), None),
        (Cap(3, 70.0, 2.0), lambda z: np.column_stack([z**2, np.sqrt(1 - (z**4).sum(axis=1))])),
        (Cap(2, 70.0, 2.0), None),
        (Mixture((Slice(3, 2.0, (2,)), VonMisesFisher(3, 2.0)), (0.6, 0.4)), None),
    ],
)
def test_quadrature_agrees_with_monte_carlo(law, mapping, rho):
    options = {} if mapping is None else {"mapping": mapping}
    exact = asymptotic_loss(law, TAU, rho=rho, **options)
    drawn = asymptotic_loss(law, TAU, rho=rho, method="monte-carlo", samples=6000, references=1500, seed=1, **options)
    assert drawn.method == "monte-carlo" and 0 < drawn.standard_error < 0.05
    assert abs(drawn.value - exact.value) <= 3 * drawn.standard_error
    assert drawn.value == pytest.approx(drawn.uniformity - drawn.alignment, abs=1e-12)


def test_error_bars_cover():
    """Of 40 seeds, those beyond two standard errors: about 2; the bars are neither too short nor too long."""
    exact = asymptotic_loss(THEORY, TAU, rho=0.5).value
    scores = []
    for seed in range(40):
        drawn = asymptotic_loss(THEORY, TAU, rho=0.5, method="monte-carlo", samples=1500, references=400, seed=seed)
        scores.append((drawn.value - exact) / drawn.standard_error)
    assert 0.7 < np.std(scores) < 1.4 and abs(np.mean(scores)) < 0.5


@pytest.mark.parametrize("convention", ["theory", "reported"])
def test_higher_dimensions(convention):
    law = Slice(5, 3.0, (3, 4), convention)
    drawn = asymptotic_loss(law, 0.5)
    assert drawn.method == "monte-carlo"
    assert abs(drawn.value - orthogonal_loss(law, 0.5)) <= 3 * drawn.standard_error
    assert infimum(law, 0.5) < orthogonal_loss(law, 0.5)


def test_corrected_loss_of_the_identity_by_an_integral():
    """rho = 1 in the theory convention: E_h [ h^2/tau + log I_0((1 - h^2)/tau) ] minus the alignment."""

    def at(h):
        k = (1 - h * h) / TAU
        return h * h / TAU + math.log(special.i0(k)) - (h * h + (1 - h * h) * special.i1(k) / special.i0(k)) / TAU

    assert asymptotic_loss(THEORY, TAU, rho=1.0).value == pytest.approx(integrate.quad(at, 0, 1)[0], abs=1e-9)


def test_great_circles_win_in_the_reported_convention():
    gap = (
        asymptotic_loss(REPORTED, TAU, rho=1.0).value
        - asymptotic_loss(REPORTED, TAU, GreatCircles((2,)), rho=1.0).value
    )
    assert gap == pytest.approx(0.13, abs=0.01)


def test_rules_integrate_polynomials_and_densities():
    rule = sphere_rule(3)
    np.testing.assert_allclose(rule.weights @ rule.nodes**2, 1 / 3, atol=1e-14)
    np.testing.assert_allclose(rule.weights @ rule.nodes[:, 0] ** 4, 1 / 5, atol=1e-14)
    z = fibonacci(7)
    for law in (FULL, THEORY, REPORTED, Cap(3, 60.0, 4.0)):
        for made in (positive_rule, support_rule):
            nodes, weights = made(law)(z)
            np.testing.assert_allclose(weights.sum(axis=1), 1.0, atol=1e-9)
            assert law.contains(np.repeat(z[:, None], nodes.shape[1], axis=1), nodes).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: asymptotic_loss(FULL, 0.0), "`temperature` must be > 0"),
        (lambda: asymptotic_loss(FULL, TAU, rho=1.5), r"`rho` must be in \[0, 1\]"),
        (lambda: asymptotic_loss(FULL, TAU, lambda z: 2 * z), "`mapping` must return unit rows"),
        (lambda: asymptotic_loss(FULL, TAU, lambda z: z[:1]), "`mapping` must return one row per latent"),
        (
            lambda: asymptotic_loss(VonMisesFisher(4, 1.0), TAU, method="quadrature"),
            "`method` must be monte-carlo in dimension 4",
        ),
        (lambda: sphere_rule(4), "`dimension` must be 2 or 3"),
        (lambda: sphere_rule(3, breaks=np.array([0.0, 1.0])), "`breaks` must rise from -1 to 1"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()
