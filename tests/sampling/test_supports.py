"""Points in cyclic order, supports of caps and mixtures, what a support determines, normalisers in many dimensions."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from optgeom.sampling import latents
from optgeom.sampling.asymptotic import asymptotic_loss
from optgeom.sampling.caps import Cap
from optgeom.sampling.conditionals import Mixture, Slice, VonMisesFisher
from optgeom.sampling.maps import fibonacci
from optgeom.sampling.optimum import global_optimum, is_determined
from optgeom.sampling.points import cyclic_points, point_set

TAU = 0.3


@pytest.mark.parametrize(
    ("m", "d"), [(10, 2), (6, 3), (10, 3), (4, 3), (9, 4), (10, 7), (10, 99), (40, 10), (2, 5), (3, 2)]
)
def test_points_in_cyclic_order(m, d):
    x = cyclic_points(m, d)
    gram = x @ x.T
    np.testing.assert_allclose(np.diag(gram), 1, atol=1e-12)
    np.testing.assert_allclose(np.roll(gram, (1, 1), (0, 1)), gram, atol=1e-12)  # circulant
    np.testing.assert_allclose(x.mean(axis=0), 0, atol=1e-12)
    width = min(d, m - 1)
    second = np.linalg.eigvalsh(x.T @ x / m)
    np.testing.assert_allclose(second, [0] * (d - width) + [1 / width] * width, atol=1e-12)
    assert (gram - 2 * np.eye(m)).max() < 0.999  # all different


def test_known_arrangements():
    simplex = cyclic_points(4, 3)
    np.testing.assert_allclose((simplex @ simplex.T)[~np.eye(4, dtype=bool)], -1 / 3, atol=1e-12)
    octahedron = cyclic_points(6, 3)
    assert sorted(np.round(octahedron @ octahedron.T, 9)[0]) == [-1, 0, 0, 0, 0, 1]
    assert cyclic_points(100, 3) is None and cyclic_points(9, 3) is None


def test_higher_slices_are_as_good_as_any():
    """The symmetric solver agrees with the general one, which does not know of the cyclic order.

    It also takes far more points than the general one could.
    """
    points = point_set(Slice(6, 2.0, (5,)), 6, 6)
    assert points.circulant
    fast = global_optimum(points, TAU)
    slow = global_optimum(type(points)(**{**vars(points), "circulant": False}), TAU)
    assert fast.solver.name != slow.solver.name and fast.loss == pytest.approx(slow.loss, abs=1e-8)
    assert global_optimum(point_set(Slice(10, 2.0, (8, 9)), 70, 16), TAU).certified


# --- caps


def test_corrected_negatives_of_a_cap_come_from_the_cap():
    """On points as on the continuum, where quadrature says what the loss is: the two differ by discretisation only."""
    law = Cap(3, 60.0, 1 / TAU)
    for rho in (0.0, 0.5, 1.0):
        points = point_set(law, points=fibonacci(2000))
        program = points.program(TAU, rho)
        z = points.points
        assert program.risk(z @ z.T) - math.log(2000) == pytest.approx(
            asymptotic_loss(law, TAU, rho=rho).value, abs=0.02
        )


@pytest.mark.parametrize("d", [2, 3, 5])
def test_correction_makes_the_latents_optimal_under_a_truncated_law(d):
    points = point_set(Cap(d, 60.0, 1 / TAU), 20, 10)
    plain, corrected = global_optimum(points, TAU), global_optimum(points, TAU, rho=1.0)
    assert plain.orthogonal_maps == "beaten" and plain.gap > 0.01
    assert corrected.orthogonal_maps == "optimal" and corrected.loss == pytest.approx(
        corrected.entropic_bound, abs=1e-12
    )
    # kappa = 0: positives and negatives are the same, and one point is as good as anything
    uniform = point_set(Cap(d, 60.0, 0.0), 10, 10)
    flat = global_optimum(uniform, TAU, rho=1.0)
    collapsed = uniform.program(TAU, 1.0).risk(np.ones((100, 100)))
    assert flat.loss == pytest.approx(collapsed, abs=1e-8) and flat.rank == 1


def test_caps_too_small_to_touch_leave_the_rest_open():
    points = point_set(Cap(3, 5.0, 1 / TAU), 10, 10)
    optimum = global_optimum(points, TAU, rho=1.0)
    assert points.num_components > 1 and optimum.orthogonal_maps == "optimal but not unique"


def test_what_determines_all_cosines():
    rng = np.random.default_rng(0)
    z = latents.uniform(rng, 30, 3)
    gram = z @ z.T
    everything = np.ones((30, 30), dtype=bool)
    assert is_determined(gram, everything)
    # A band: each point sees the three before it, which span the space.
    lag = np.abs(np.subtract.outer(np.arange(30), np.arange(30)))
    assert is_determined(gram, lag <= 3)
    # Two before it leave a reflection open (and higher dimensions): another matrix with the same cosines exists.
    chain = lag <= 2
    assert not is_determined(gram, chain)
    other = z.copy()
    normal = np.cross(z[14], z[15])
    normal /= np.linalg.norm(normal)
    other[16:] -= 2 * np.outer(other[16:] @ normal, normal)
    np.testing.assert_allclose((other @ other.T)[chain], gram[chain], atol=1e-12)
    assert np.abs(other @ other.T - gram).max() > 0.1
    assert not is_determined(gram, np.eye(30, dtype=bool))


# --- mixtures on slices


def test_mixture_of_slices_is_the_mixture_of_their_rows():
    parts = Slice(3, 8.0, (2,)), Slice(3, 1.0, (2,))
    points = point_set(Mixture(parts, (0.3, 0.7)), 6, 6)
    one, other = (point_set(part, 6, 6) for part in parts)
    np.testing.assert_allclose(points.rows, 0.3 * one.rows + 0.7 * other.rows, atol=1e-15)
    assert points.num_components == 6 and points.circulant
    same = global_optimum(point_set(Mixture((parts[0], parts[0]), (0.3, 0.7)), 6, 6), TAU)
    assert same.loss == pytest.approx(global_optimum(one, TAU).loss, abs=1e-9)


def test_few_pairs_that_change_everything_do_not_make_the_latents_optimal():
    """Diversity holds, but the law is far from that of the loss."""
    losses = []
    for share in (0.02, 0.5, 0.98):
        law = Mixture((Slice(3, 1 / TAU, (2,)), VonMisesFisher(3, 1 / TAU)), (1 - share, share))
        points = point_set(law, 8, 6)
        assert law.full_support and points.num_components == 1 and not points.circulant
        np.testing.assert_allclose(points.rows.sum(axis=1), 1, atol=1e-12)
        losses.append(global_optimum(points, TAU).gap)
    assert losses[0] > losses[1] > losses[2] > 0


# --- Bessel functions


@pytest.mark.parametrize(
    ("d", "kappa"), [(150, 1e-3), (512, 1.0), (512, 20.0), (1000, 20.0), (1000, 200.0), (5000, 800.0), (20000, 4000.0)]
)
def test_normaliser_where_bessel_functions_underflow(d, kappa):
    with mpmath.workdps(40):
        order = mpmath.mpf(d) / 2
        below, above = (mpmath.hyp0f1(order + k, mpmath.mpf(kappa) ** 2 / 4) for k in (0, 1))
        assert latents.log_mean_exp(kappa, d) == pytest.approx(float(mpmath.log(below)), rel=1e-11, abs=1e-11)
        assert latents.mean_cosine(kappa, d) == pytest.approx(float(above / below * kappa / d), rel=1e-12)


def test_length_of_the_free_part_in_many_dimensions():
    for d, free in ((1001, 1000), (5000, 2500)):
        square, weights = latents.free_square_rule(d, free)
        assert weights @ square == pytest.approx(free / d, rel=1e-6)  # Beta(free/2, (d - free)/2)
        variance = 2 * free * (d - free) / (d**2 * (d + 2))
        assert weights @ (square - free / d) ** 2 == pytest.approx(variance, rel=2e-3)
