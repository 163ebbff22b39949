"""`og.recover`: every figure against the theory or the part that computes it, pairs, other laws, verdicts."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp

import optgeom as og
from optgeom.errors import InvalidInputError, NotCertifiedError
from optgeom.sampling.caps import Cap
from optgeom.sampling.conditionals import Mixture, Slice, VonMisesFisher

TAU = 0.3
SMALL = {"slices": 10, "per_slice": 6}


def pairs(law, n=500, seed=0):
    rng = np.random.default_rng(seed)
    z, z_plus = law.sample_pairs(rng, n)
    turn, _ = np.linalg.qr(rng.standard_normal((law.dimension,) * 2))
    return og.Pairs.of(z @ turn, z_plus @ turn)


# --- Python


@pytest.mark.parametrize(
    ("convention", "identity", "optimum", "apart", "corrected", "maps"),
    [
        ("theory", 4.6368, 3.0846, 0.543024, 0.0, "optimal but not unique"),
        ("reported", 4.4667, 3.0401, 0.373555, 0.13, "beaten"),
    ],
)
def test_one_fixed_coordinate(convention, identity, optimum, apart, corrected, maps):
    found = og.recover(latent_dim=3, fixed=1, convention=convention, temperature=0.3)
    assert found.diversity.holds is False and found.fixed_dimensions == 1
    assert found.effective_dimension == pytest.approx(2, abs=1e-9)
    assert found.loss_identity == pytest.approx(identity, abs=1e-4)
    assert found.loss_optimum_any_dimension == pytest.approx(optimum, abs=1e-4)
    assert found.loss_best_in_dimension == pytest.approx(4.0933, abs=1e-3)
    assert found.asymptotic_identity - found.asymptotic_infimum == pytest.approx(apart, abs=1e-6)
    assert found.corrected_gap == pytest.approx(corrected, abs=0.01)
    assert found.corrected.orthogonal_maps == maps and found.optimum.orthogonal_maps == "beaten"
    assert not found.recoverable
    assert "fixed_dimensions=1" in repr(found)


def test_full_support():
    found = og.recover(latent_dim=4, temperature=0.3, **SMALL)
    assert found.diversity.holds and found.recoverable and found.unique
    assert (
        found.loss_identity == found.loss_best_in_dimension == pytest.approx(found.loss_optimum_any_dimension, abs=1e-9)
    )
    assert found.corrected_gap == 0 and found.corrected.rho == 1.0
    loose = og.recover(latent_dim=3, kappa=0.8 / TAU, temperature=0.3, **SMALL)
    assert loose.diversity.holds and not loose.recoverable and not loose.unique
    # Beaten in four dimensions, in three by nothing that was found.
    assert loose.optimum.rank == 4 and 0 <= loose.in_dimension.gain < 1e-5
    assert loose.in_dimension.lower < loose.loss_identity - 0.01


@pytest.mark.parametrize(
    ("law", "dimension"), [({"kappa": 0.0}, 3), ({"kappa": 0.0}, 2), ({"kappa": 1e3}, 2), ({"kappa": 1e6}, 3)]
)
def test_extreme_concentrations(law, dimension):
    """From uniform positives (every point has the same law) to positives that are the nearest point."""
    found = og.recover(latent_dim=dimension, temperature=0.3, **law, **SMALL)
    assert found.optimum.certified
    assert found.loss_optimum_any_dimension - 1e-9 <= found.loss_best_in_dimension <= found.loss_identity + 1e-12
    z = found.optimum.point_set.points
    scaled = z @ z.T / TAU + np.where(np.eye(60) > 0, -np.inf, 0.0)
    logits = law["kappa"] * (z @ z.T) + np.where(np.eye(60) > 0, -np.inf, 0.0)
    rows = np.exp(logits - np.logaddexp.reduce(logits, axis=1)[:, None])
    expected = np.mean(np.logaddexp.reduce(scaled, axis=1) - (rows * (z @ z.T)).sum(axis=1) / TAU)
    assert found.loss_identity == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("convention", "d"), [("theory", 3), ("reported", 4)])
def test_pairs_of_a_slice(convention, d):
    found = og.recover(
        pairs=pairs(Slice(d, 5.0, (d - 1,), convention), 4000), convention=convention, temperature=0.2, **SMALL
    )
    assert found.fixed_dimensions == 1 and found.diversity.pairs == 4000
    assert found.conditional.kappa == pytest.approx(5.0, rel=0.06)
    assert found.kappa_interval[0] < 5.0 < found.kappa_interval[1]
    assert found.conditional.dimension == d and found.conditional.convention == convention
    assert not found.recoverable


def test_pairs_without_a_fixed_direction():
    found = og.recover(pairs=pairs(VonMisesFisher(3, 4.0), 4000), temperature=0.3, **SMALL)
    assert found.diversity.holds is None and found.fixed_dimensions == 0
    assert isinstance(found.conditional, VonMisesFisher) and found.conditional.kappa == pytest.approx(4.0, rel=0.06)


def test_extremes_of_pairs():
    independent = np.random.default_rng(3).standard_normal((2, 2000, 3))
    independent /= np.linalg.norm(independent, axis=-1, keepdims=True)
    assert og.recover(pairs=og.Pairs.of(*independent), temperature=0.3, **SMALL).conditional.kappa < 0.2
    still = pairs(VonMisesFisher(3, 1.0))
    with pytest.raises(InvalidInputError, match="`pairs` must vary in some direction"):
        og.recover(pairs=og.Pairs.of(still.z, still.z), temperature=0.3)


def test_other_laws():
    capped = og.recover(conditional=Cap(3, 60.0, 2.0), temperature=0.3, **SMALL)
    assert capped.diversity.holds is False and capped.fixed_dimensions == 0 and capped.asymptotic_infimum is None
    assert capped.optimum.certified and capped.as_dict()["convention"] is None
    mixed = og.recover(
        conditional=Mixture((VonMisesFisher(3, 20.0), VonMisesFisher(3, 1.0)), (0.5, 0.5)), temperature=0.3, **SMALL
    )
    assert mixed.diversity.holds and mixed.optimum.certified


def test_maps_into_more_dimensions_than_points():
    found = og.recover(latent_dim=3, fixed=1, dim=2000, temperature=0.3, **SMALL)
    enough = og.recover(latent_dim=3, fixed=1, dim=60, temperature=0.3, **SMALL)
    assert found.in_dimension.dimension == 2000 and found.loss_best_in_dimension == enough.loss_best_in_dimension
    assert found.loss_best_in_dimension == pytest.approx(found.loss_optimum_any_dimension, abs=1e-6)


def test_not_certified_carries_the_optimum():
    with pytest.raises(NotCertifiedError, match="is not certified") as caught:
        og.recover(latent_dim=3, fixed=1, tolerance=1e-15, temperature=0.3, **SMALL)
    found = caught.value.geometry
    assert found.optimum.loss > 0 and not found.certified and not found.as_dict()["certificate"]["certified"]
    assert found.verdict.startswith("not certified, so only an indication: the loss does not recover the latents")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fixed": 3}, "`fixed` must be below `latent_dim` 3; got 3"),
        ({"fixed": 1, "slices": 1}, "`slices` must be a whole number >= 2"),
        ({"fixed": -1}, "`fixed` must be a whole number >= 0"),
        ({"latent_dim": 1}, "`latent_dim` must be a whole number >= 2"),
        ({"kappa": -1.0}, "`kappa` must be >= 0"),
        ({"temperature": 0.0}, "`temperature` must be > 0"),
        ({"rho": 1.5}, r"`rho` must be in \[0, 1\]"),
        ({"convention": "paper"}, "`convention` must be one of theory, reported"),
        ({"resolution": 0.0, "pairs": pairs(VonMisesFisher(3, 1.0))}, "`resolution` must be > 0"),
        (
            {"conditional": VonMisesFisher(3, 1.0), "pairs": pairs(VonMisesFisher(3, 1.0))},
            "`conditional` must be left out with pairs",
        ),
    ],
)
def test_refusals(options, message):
    with pytest.raises(InvalidInputError, match=message):
        og.recover(**options)


@pytest.mark.parametrize(("dim", "temperature"), [(1, 0.5), (2, 0.1), (3, 0.1)])
def test_few_points_are_mapped_as_low_as_by_many_restarts(dim, temperature):
    """Two slices of four points, where a few descents miss the best map."""
    found = og.recover(fixed=1, temperature=temperature, slices=2, per_slice=4, dim=dim)
    points = found.optimum.point_set
    shares, masses = points.rows, points.program(temperature, 0.0).masses

    def loss(flat):
        rows = flat.reshape(points.n, dim)
        rows = rows / np.linalg.norm(rows, axis=1)[:, None]
        scaled = rows @ rows.T / temperature
        return float(np.mean(logsumexp(scaled, b=masses, axis=1) - (shares * scaled).sum(axis=1)))

    starts = np.random.default_rng(0).standard_normal((15, points.n * dim))
    reached = [loss(start) if dim == 1 else minimize(loss, start, method="L-BFGS-B").fun for start in starts]
    assert found.in_dimension.best <= min(*reached, loss(np.ones(points.n * dim))) + 1e-7
