"""Recovery metrics against closed forms, scikit-learn and brute force over matchings."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import optgeom as og
from optgeom.embeddings.metrics.recovery import latent_recovery, linear_r2, permutation_mcc
from optgeom.errors import InvalidInputError


def sphere(n=2000, d=3, seed=0):
    rows = np.random.default_rng(seed).normal(size=(n, d))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def balanced(d):
    """The 2^d corners of a cube, centred, uncorrelated, all of the same length: moments are exact."""
    return np.array(list(itertools.product([-1.0, 1.0], repeat=d))) / math.sqrt(d)


def test_a_rotation_is_recovered_linearly_and_in_angle_but_not_by_coordinates():
    z = sphere()
    found = latent_recovery(z, z @ Rotation.from_euler("xyz", [0.5, 0.7, -0.4]).as_matrix().T)
    assert found.linear_r2 == pytest.approx(1.0, abs=1e-12)
    assert found.max_angle_error_deg < 1e-6
    assert 0.5 < found.mcc < 0.95
    assert found.samples == 2000


def test_order_signs_and_scales_do_not_change_the_matching():
    z = sphere(d=4)
    h = z[:, [2, 0, 3, 1]] * np.array([-1.0, 3.0, 0.1, -2.0]) + 5.0
    assert permutation_mcc(z, h) == pytest.approx(1.0, abs=1e-12)
    assert linear_r2(z, h) == pytest.approx(1.0, abs=1e-12)


def test_a_reflection_is_orthogonal():
    z = sphere()
    assert latent_recovery(z, -z).max_angle_error_deg < 1e-6


@pytest.mark.parametrize("d", [2, 3, 5])
def test_a_lost_coordinate_costs_its_share(d):
    z = balanced(d)
    h = z.copy()
    h[:, 0] = 0.0
    assert linear_r2(z, h) == pytest.approx(1 - 1 / d, abs=1e-12)
    assert permutation_mcc(z, h) == pytest.approx(1 - 1 / d, abs=1e-12)


def test_noise_of_known_size():
    # Variance a^2/(a^2 + s^2) of every coordinate is explained; statistical error of R2 about 1/sqrt(n).
    rng = np.random.default_rng(1)
    z, n = sphere(200_000), 200_000
    h = z + 0.3 * rng.normal(size=z.shape)
    assert linear_r2(z, h) == pytest.approx((1 / 3) / (1 / 3 + 0.09), abs=5 / math.sqrt(n))
    assert permutation_mcc(z, h) == pytest.approx(math.sqrt((1 / 3) / (1 / 3 + 0.09)), abs=5 / math.sqrt(n))


def test_angles_of_a_known_tilt():
    # Half of the samples tilted by +a, half by -a about the same axis: the best rotation leaves a to all of them.
    turn = np.linspace(0, 2 * np.pi, 12, endpoint=False)
    z = np.column_stack([np.cos(turn), np.sin(turn)])
    angle = np.radians(np.where(np.arange(12) % 2 == 0, 8.0, -8.0))
    h = np.column_stack([np.cos(turn + angle), np.sin(turn + angle)])
    found = latent_recovery(z, h)
    assert found.mean_angle_error_deg == pytest.approx(8.0, abs=1e-9)
    assert found.max_angle_error_deg == pytest.approx(8.0, abs=1e-9)


def test_features_in_other_dimensions():
    z = sphere()
    wide = np.hstack([np.zeros((len(z), 2)), z[:, ::-1]])
    found = latent_recovery(z, wide)
    assert (found.linear_r2, found.mcc) == (pytest.approx(1.0), pytest.approx(1.0))
    assert found.max_angle_error_deg < 1e-6
    cube = balanced(3)
    narrow = latent_recovery(cube, cube[:, :1])
    assert narrow.linear_r2 == pytest.approx(1 / 3)
    assert narrow.mcc == pytest.approx(1 / 3)


@pytest.mark.parametrize("seed", range(4))
def test_against_scikit_learn_and_all_matchings(seed):
    linear_model = pytest.importorskip("sklearn.linear_model")
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(seed)
    z = sphere(300, 4, seed) + rng.normal(size=4)
    h = np.tanh(z @ rng.normal(size=(4, 5))) + 0.1 * rng.normal(size=(300, 5)) + 3.0
    predicted = linear_model.LinearRegression().fit(h, z).predict(h)
    assert linear_r2(z, h) == pytest.approx(metrics.r2_score(z, predicted, multioutput="variance_weighted"), abs=1e-10)
    correlation = np.abs(np.corrcoef(z.T, h.T)[:4, 4:])
    best = max(correlation[range(4), list(order)].mean() for order in itertools.permutations(range(5), 4))
    assert permutation_mcc(z, h) == pytest.approx(best, abs=1e-12)


def test_degenerate_features_explain_nothing():
    z = sphere()
    constant = np.tile([1.0, 0.0, 0.0], (len(z), 1))
    assert linear_r2(z, constant) == pytest.approx(0.0, abs=1e-12)
    assert permutation_mcc(z, constant) == 0.0
    doubled = np.hstack([z[:, :1], z[:, :1], 2 * z[:, :1] + 1])
    alone = linear_r2(z, z[:, :1])
    assert linear_r2(z, doubled) == pytest.approx(alone, abs=1e-12)


@pytest.mark.parametrize(
    ("z", "h", "words"),
    [
        (np.ones((3, 2)), np.ones((4, 2)), "same samples"),
        (np.ones(3), np.ones((3, 2)), "one row per sample"),
        (np.eye(3), np.full((3, 2), np.nan), "`features` must be finite"),
        (np.ones((3, 2)), np.eye(3), "`latents` must vary"),
        (np.eye(3), np.array([[1.0], [0.0], [1.0]]), "length 0; got one in row 1"),
    ],
)
def test_inputs_that_are_refused(z, h, words):
    with pytest.raises(InvalidInputError, match=words):
        latent_recovery(z, h)


def test_public_name():
    assert og.metrics.latent_recovery is latent_recovery
    assert og.metrics.latent_recovery(np.eye(3), np.eye(3)).as_dict()["linear_r2"] == pytest.approx(1.0)
