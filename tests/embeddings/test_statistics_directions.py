"""Directions of class means: exact sums, freedom from attenuation, and classes about which nothing can be said."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.simulated import moments_of, unit

from optgeom.embeddings.moments.directions import class_directions
from optgeom.embeddings.moments.first_pass import ClassMoments
from optgeom.errors import InvalidInputError


def random_rows(counts, dim, seed=0):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(len(counts), dim))
    return [unit(centre + rng.normal(size=(count, dim))) for centre, count in zip(centres, counts, strict=True)]


def with_orthogonal_noise(angle_deg, rho, n):
    """Two classes at this angle whose rows have noise in different directions, so that their products are exact."""
    mean = np.zeros((2, 2 + 2 * n))
    mean[0, 0] = 1
    mean[1, :2] = np.cos(np.radians(angle_deg)), np.sin(np.radians(angle_deg))
    rows = []
    for c in range(2):
        part = np.tile(rho * mean[c], (n, 1))
        part[:, 2 + c * n : 2 + (c + 1) * n] = np.sqrt(1 - rho**2) * np.eye(n)
        rows.append(part)
    return rows


def test_u_statistic_is_the_mean_over_pairs_of_different_rows():
    rows = random_rows([5, 2, 17], 7)
    found = class_directions(moments_of(rows))
    for c, part in enumerate(rows):
        pairs = [part[i] @ part[j] for i in range(len(part)) for j in range(len(part)) if i != j]
        assert found.rho_squared[c] == pytest.approx(np.mean(pairs), rel=1e-12, abs=1e-14)


def test_products_between_classes_are_means_over_pairs_of_rows():
    rows = random_rows([5, 2, 17], 7)
    found = class_directions(moments_of(rows))
    product = np.mean(rows[0] @ rows[2].T)
    assert found.mean_gram[0, 2] == pytest.approx(product, rel=1e-12)
    assert found.gram[0, 2] == pytest.approx(product / (found.rho[0] * found.rho[2]), rel=1e-12)
    assert np.array_equal(np.diag(found.mean_gram), found.rho_squared)
    assert np.array_equal(np.diag(found.gram), np.ones(3))
    assert np.array_equal(found.gram, found.gram.T)


@pytest.mark.parametrize(("angle", "plain"), [(120.0, 114.4), (0.0, 34.1)])
def test_attenuation_at_five_images_is_undone(angle, plain):
    rows = with_orthogonal_noise(angle, 0.7, 5)
    means = [part.mean(axis=0) for part in rows]
    cosine = means[0] @ means[1] / (np.linalg.norm(means[0]) * np.linalg.norm(means[1]))
    assert np.degrees(np.arccos(cosine)) == pytest.approx(plain, abs=0.1)
    found = class_directions(moments_of(rows))
    assert found.rho == pytest.approx([0.7, 0.7], rel=1e-12)
    assert found.gram[0, 1] == pytest.approx(np.cos(np.radians(angle)), abs=1e-12)


def test_not_clipped():
    rng = np.random.default_rng(1)
    means = np.zeros(40)
    means[0] = 1
    above = 0
    for _ in range(50):
        rows = [unit(means + 0.5 * rng.normal(size=(10, 40)) / np.sqrt(40)) for _ in range(2)]
        above += class_directions(moments_of(rows)).gram[0, 1] > 1
    assert 15 <= above <= 35, "coincident classes read a cosine above 1 half of the time"


def test_views_of_an_image_are_one_unit():
    rng = np.random.default_rng(2)
    images = unit(np.eye(6)[0] + 0.7 * rng.normal(size=(30, 6)))
    views = unit(images[:, None] + 0.1 * rng.normal(size=(30, 4, 6)))
    averaged = views.mean(axis=1)
    found = class_directions(moments_of([averaged]))
    across = np.mean(
        [views[i, a] @ views[j, b] for i in range(30) for j in range(30) if i != j for a in range(4) for b in range(4)]
    )
    assert found.rho_squared[0] == pytest.approx(across, rel=1e-12)


def test_singleton_and_directionless_classes_are_not_known():
    e = np.eye(4)
    rows = [np.tile(e[0], (3, 1)), e[1:2], np.stack([e[2], -e[2]]), np.stack([e[2], e[3]])]
    found = class_directions(moments_of(rows, ("whole", "single", "opposite", "orthogonal")))
    assert found.known.tolist() == [True, False, False, False]
    assert found.singletons == ("single",)
    assert found.without_direction == ("opposite", "orthogonal")
    assert np.isnan(found.rho_squared[1])
    assert found.rho_squared[2] == pytest.approx(-1.0)
    assert found.rho[0] == 1.0
    assert np.all(np.isnan(found.rho[1:]))
    assert np.all(np.isnan(found.gram[1:]))
    assert np.isnan(found.gram[0, 1:]).all()
    assert found.median_rho == 0.0


def test_only_singletons_have_no_median():
    assert class_directions(moments_of([np.eye(3)[:1], np.eye(3)[1:2]])).median_rho is None


def test_rotation_and_mirror_change_nothing():
    rows = random_rows([5, 4, 17], 7)
    turn = np.linalg.qr(np.random.default_rng(3).normal(size=(7, 7)))[0]
    turn[:, 0] *= -1
    first, second = class_directions(moments_of(rows)), class_directions(moments_of([part @ turn for part in rows]))
    assert second.gram == pytest.approx(first.gram, abs=1e-12)


def test_read_only():
    found = class_directions(moments_of(random_rows([5, 4], 3)))
    for array in (found.counts, found.rho, found.rho_squared, found.vectors, found.gram, found.mean_gram, found.known):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_inputs_stay_writable():
    moments = moments_of(random_rows([5, 4], 3))
    class_directions(moments)
    assert moments.sums.flags.writeable
    assert moments.counts.flags.writeable


def test_empty_class_is_refused():
    moments = ClassMoments(("a", "b"), np.array([2, 0]), np.zeros((2, 3)), np.zeros(2))
    with pytest.raises(
        InvalidInputError, match=r"`counts` must be >= 1; got 0 for class b \(leave empty classes out\)"
    ):
        class_directions(moments)
