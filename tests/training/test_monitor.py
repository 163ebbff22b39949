"""The numbers of the monitor against the directions of embeddings computed in numpy, and what it refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers.simulated import means_of, moments_of, unit

import optgeom as og
from optgeom.embeddings.moments.directions import class_directions
from optgeom.errors import InvalidInputError

torch = pytest.importorskip("torch")
pytest.importorskip("torchmetrics")

from helpers.monitored import CLASSES, CLOSE, COUNTS, GEOMETRY, assert_same, data, fed, tensors  # noqa: E402

from optgeom.training.monitor import GeometryMonitor  # noqa: E402

BALANCED = og.solve(og.ClassDistribution.from_counts([5, 5, 5]), og.SupCon(0.5))


def by_class(rows, labels):
    return [rows[labels == c] for c in range(len(COUNTS))]


def off_diagonal(matrix):
    return matrix[~np.eye(len(matrix), dtype=bool)]


def test_equal_weights_are_the_directions_of_a_validation():
    rows, labels = data()
    monitor = fed(GeometryMonitor(GEOMETRY, window=None), *tensors(3.0 * rows, labels))
    expected = class_directions(moments_of(by_class(rows, labels)))
    assert monitor.class_gram() == pytest.approx(expected.gram, abs=1e-12)
    numbers, optimal = monitor.compute(), np.array(GEOMETRY.gram)
    angles, best = (np.degrees(np.arccos(np.clip(off_diagonal(gram), -1, 1))) for gram in (expected.gram, optimal))
    missed, target = off_diagonal(expected.gram - optimal), off_diagonal(optimal)
    simplex = off_diagonal(expected.gram) + 1 / 3
    assert numbers == pytest.approx(
        {
            "max_angle_error_deg": np.abs(angles - best).max(),
            "gram_distance": np.linalg.norm(missed) / np.linalg.norm(target),
            "class_r2": 1 - missed @ missed / np.sum((target - target.mean()) ** 2),
            "simplex_max_angle_error_deg": np.abs(angles - np.degrees(np.arccos(-1 / 3))).max(),
            "simplex_gram_distance": np.linalg.norm(simplex) / np.linalg.norm(target),
            "min_rho": expected.rho.min(),
            "median_rho": np.median(expected.rho),
            "max_rho": expected.rho.max(),
            "classes_seen": 4.0,
            "classes_measured": 4.0,
            "images": 83.0,
            "smallest_class_images": 6.0,
            "proportions_distance": 0.0,
            "unusable_images": 0.0,
        },
        **CLOSE,
    )
    assert all(type(value) is float for value in numbers.values())


def test_views_of_an_image_are_averaged_first():
    rng = np.random.default_rng(1)
    rows, labels = data()
    views = unit(rows[:, None] + 0.3 * rng.normal(size=(len(rows), 3, rows.shape[1])))
    monitor = fed(
        GeometryMonitor(GEOMETRY, window=None), *tensors(views * rng.uniform(0.1, 9, size=(len(rows), 3, 1)), labels)
    )
    expected = class_directions(moments_of(by_class(views.mean(axis=1), labels)))
    assert monitor.class_gram() == pytest.approx(expected.gram, abs=1e-12)
    assert monitor.compute()["min_rho"] == pytest.approx(expected.rho.min(), **CLOSE)


def test_window_is_the_weighted_mean_over_pairs_of_images():
    window, (rows, labels) = 3.0, data()
    monitor = fed(GeometryMonitor(GEOMETRY, window=window), *tensors(rows, labels))
    age = (len(labels) - 1) // 10 - np.arange(len(labels)) // 10
    weights = (1 - 1 / window) ** age
    vectors, measured = [], []
    for c in range(4):
        z, w = rows[labels == c], weights[labels == c]
        pairs = np.outer(w, w) * (1 - np.eye(len(w)))
        rho = math.sqrt((pairs * (z @ z.T)).sum() / pairs.sum())
        vectors.append(w @ z / w.sum() / rho)
        measured.append(w.sum() ** 2 / (w**2).sum())
    expected = np.array(vectors) @ np.array(vectors).T
    assert off_diagonal(monitor.class_gram()) == pytest.approx(off_diagonal(expected), abs=1e-12)
    numbers = monitor.compute()
    assert numbers["smallest_class_images"] == pytest.approx(min(measured), **CLOSE)
    assert numbers["images"] == pytest.approx(weights.sum(), **CLOSE)


def test_window_of_one_is_the_last_update():
    rows, labels = tensors(*data())
    monitor = fed(GeometryMonitor(GEOMETRY, window=1), rows, labels)
    monitor.update(rows, labels)
    assert_same(monitor.compute(), fed(GeometryMonitor(GEOMETRY, window=None), rows, labels, 100).compute())


def test_window_follows_features_that_move():
    rng = np.random.default_rng(2)
    optimal = means_of(np.array(GEOMETRY.gram), 6, rng)
    labels = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3])
    monitor, average = GeometryMonitor(GEOMETRY, window=5), GeometryMonitor(GEOMETRY, window=None)
    for step in range(200):
        # From one point towards the optimum, reached at step 100.
        rows = torch.tensor(unit(np.ones(6) * max(1 - step / 100, 0) + optimal))[labels]
        monitor.update(rows, labels)
        average.update(rows, labels)
    assert monitor.compute()["max_angle_error_deg"] < 0.01
    assert average.compute()["max_angle_error_deg"] > 5


def test_many_updates_stay_exact():
    row, labels = torch.eye(4, dtype=torch.float64), torch.arange(4)
    monitor, average = GeometryMonitor(GEOMETRY, window=10), GeometryMonitor(GEOMETRY, window=None)
    for _ in range(5000):
        monitor.update(row, labels)
        average.update(row, labels)
    numbers = monitor.compute()
    assert numbers["images"] == pytest.approx(4 * 10, rel=1e-13)
    assert numbers["smallest_class_images"] == pytest.approx((1 + 0.9) / (1 - 0.9), rel=1e-12)
    assert numbers["min_rho"] == pytest.approx(1, rel=1e-12)
    assert average.compute()["images"] == 20000


def test_optimum_and_balanced_simplex():
    labels = torch.arange(4).repeat_interleave(3)
    numbers = fed(GeometryMonitor(GEOMETRY), torch.tensor(GEOMETRY.prototypes())[labels], labels, 12).compute()
    assert (
        numbers["max_angle_error_deg"] < 1e-4
        and numbers["gram_distance"] < 1e-9
        and numbers["class_r2"] == pytest.approx(1)
    )
    assert numbers["simplex_max_angle_error_deg"] > 1
    assert numbers["proportions_distance"] == pytest.approx(np.abs(np.array(COUNTS) / 83 - 0.25).sum() / 2)
    labels = labels[:9]
    numbers = fed(GeometryMonitor(BALANCED), torch.tensor(BALANCED.prototypes())[labels], labels, 9).compute()
    assert math.isnan(numbers["class_r2"])
    assert numbers["simplex_gram_distance"] == pytest.approx(numbers["gram_distance"], abs=1e-9)


def test_a_loss_with_weights_and_margins():
    """Features at its optimum: nothing is off; at the optimum without weights: what lies between the two."""
    names = CLASSES.names
    weights = {
        "anchor_weights": "balanced",
        "negative_weights": {name: 1.0 + place for place, name in enumerate(names)},
        "margin": {name: 0.1 * place for place, name in enumerate(names)},
    }
    loss = og.SupCon(0.5, **weights)
    geometry, labels = og.solve(CLASSES, loss), torch.arange(4).repeat_interleave(3)
    numbers = fed(GeometryMonitor(CLASSES, loss), torch.tensor(geometry.prototypes())[labels], labels, 12).compute()
    assert numbers["max_angle_error_deg"] < 1e-4
    numbers = fed(GeometryMonitor(CLASSES, loss), torch.tensor(GEOMETRY.prototypes())[labels], labels, 12).compute()
    between = np.abs(geometry.angles() - GEOMETRY.angles()).max()
    assert numbers["max_angle_error_deg"] == pytest.approx(between, abs=1e-4) and between > 1


def test_classes_that_cannot_be_measured():
    rows = torch.tensor([[1.0, 0], [1, 0], [0, 1], [1, 1], [-1, -1]], dtype=torch.float64)
    monitor = GeometryMonitor(GEOMETRY)
    monitor.update(
        rows, torch.tensor([0, 0, 1, 2, 2])
    )  # one image of class 1, opposite ones of class 2, none of class 3
    numbers = monitor.compute()
    assert numbers["classes_seen"] == 3 and numbers["classes_measured"] == 1
    assert math.isnan(numbers["max_angle_error_deg"]) and math.isnan(numbers["gram_distance"])
    assert numbers["min_rho"] == 0 and numbers["max_rho"] == 1
    monitor.update(rows[2:4], torch.tensor([1, 3]))
    assert monitor.compute()["classes_measured"] == 2


def test_classes_long_unseen_are_forgotten():
    monitor = GeometryMonitor(GEOMETRY, window=2)
    monitor.update(torch.eye(4)[:2].repeat(2, 1), torch.tensor([0, 1, 0, 1]))
    for _ in range(20):
        monitor.update(torch.eye(4)[[0, 0]], torch.tensor([0, 0]))
    numbers = monitor.compute()
    assert numbers["classes_seen"] == 1 and numbers["classes_measured"] == 1
    for _ in range(3000):  # weights underflow
        monitor.update(torch.eye(4)[[0, 0]], torch.tensor([0, 0]))
    assert_same(
        monitor.compute(),
        numbers | {"images": 4.0, "smallest_class_images": 6.0, "proportions_distance": 1 - COUNTS[0] / 83},
    )


def test_min_images_leaves_rare_classes_out():
    monitor = fed(GeometryMonitor(GEOMETRY, window=None, min_images=10), *tensors(*data()))
    numbers = monitor.compute()
    assert numbers["classes_measured"] == 3 and numbers["smallest_class_images"] == 12
    assert np.isnan(monitor.class_gram()[3]).all()


def test_class_names_and_ignored_labels():
    rows, labels = data()
    expected = fed(GeometryMonitor(GEOMETRY, window=None), *tensors(rows, labels)).compute()
    names = ["dog", None, "ant", "cat", "bee"]
    renamed = np.array([names.index(name) for name in GEOMETRY.names])[labels]
    monitor = GeometryMonitor(GEOMETRY, window=None, class_names=names)
    fed(monitor, *tensors(np.concatenate([rows, -rows[:9]]), np.concatenate([renamed, [1] * 5, [-1] * 4])))
    assert_same(monitor.compute(), expected)
    for ignored in (7, 4, -1, -100):
        monitor = GeometryMonitor(GEOMETRY, window=None, ignore_index=ignored)
        # Padding may be zero: ignored, not unusable.
        monitor.update(
            *tensors(np.concatenate([rows, -rows[:9], np.zeros((2, 6))]), np.concatenate([labels, [ignored] * 11]))
        )
        assert_same(monitor.compute(), expected)
    monitor = GeometryMonitor(GEOMETRY, window=None, ignore_index=3)
    monitor.update(*tensors(rows, labels))
    assert monitor.compute()["classes_seen"] == 3


@pytest.mark.parametrize(
    ("options", "labels", "match"),
    [
        ({}, [0, 4], r"`labels` must be 0 to 3 or -1; got others in 1 images \(`class_names` says"),
        ({}, [-2, 0], r"`labels` must be 0 to 3 or -1; got others in 1 images"),
        ({"ignore_index": -100}, [-99, -101], r"`labels` must be 0 to 3 or -100; got others in 2 images"),
        ({"ignore_index": 9}, [4, 10], r"`labels` must be 0 to 3 or 9; got others in 2 images"),
        ({"ignore_index": None}, [-1, -1], r"`labels` must be 0 to 3; got others in 2 images"),
        ({"class_names": ["ant", "bee"]}, [1, 2], r"`labels` must be 0 to 1 or -1; got others in 1 images"),
    ],
)
def test_labels_outside_are_reported_on_compute(options, labels, match):
    monitor = GeometryMonitor(GEOMETRY, **options)
    monitor.update(torch.eye(2), torch.tensor(labels))
    with pytest.raises(InvalidInputError, match=match):
        monitor.compute()
    monitor.reset()
    monitor.update(torch.eye(2), torch.tensor([0, 1]))
    assert monitor.compute()["classes_seen"] == 2


def test_unusable_features_are_left_out_and_counted():
    rows, labels = data()
    expected = fed(GeometryMonitor(GEOMETRY, window=None), *tensors(rows, labels)).compute()
    bad = np.zeros((3, 6))
    bad[0, 2], bad[1, 0] = np.nan, np.inf
    monitor = GeometryMonitor(GEOMETRY, window=None)
    monitor.update(*tensors(np.concatenate([rows, bad]), np.concatenate([labels, [0, 1, 2]])))
    assert_same(monitor.compute(), expected | {"unusable_images": 3.0})
    monitor = GeometryMonitor(GEOMETRY)
    views = torch.ones(2, 2, 3)
    views[0, 1] = 0
    monitor.update(views, torch.tensor([0, 0]))
    assert monitor.compute()["images"] == 1


def test_from_classes_and_loss():
    monitor = GeometryMonitor(CLASSES, og.SupCon(0.5))
    assert np.array_equal(monitor.geometry.gram, GEOMETRY.gram)


@pytest.mark.parametrize(
    ("arguments", "options", "match"),
    [
        ((CLASSES,), {}, r"`loss` must be given with a ClassDistribution; got none"),
        ((GEOMETRY, og.SupCon(0.5)), {}, r"`loss` must be left out with a Geometry; got both"),
        (([3, 2],), {}, r"`geometry` must be a Geometry, or a ClassDistribution with a `loss`; got list"),
        ((GEOMETRY,), {"window": 0.5}, r"`window` must be >= 1; got 0.5 \(updates;"),
        ((GEOMETRY,), {"min_images": 1}, r"`min_images` must be >= 1.5; got 1 "),
        (
            (GEOMETRY,),
            {"ignore_index": 10**9},
            r"`ignore_index` must be a label of at most 1000000 in size, or None; got 1000000000",
        ),
        ((GEOMETRY,), {"dim": 0}, r"`dim` must be a whole number >= 1; got 0"),
        (
            (GEOMETRY,),
            {"class_names": ["ant", "eel", "fox"]},
            r"`class_names` must be classes .* 'ant'; got 'eel' \(2 such names\)",
        ),
        ((GEOMETRY,), {"class_names": []}, r"`class_names` must be classes of the geometry, such as 'ant'; got none"),
    ],
)
def test_refused_parameters(arguments, options, match):
    with pytest.raises(InvalidInputError, match=match):
        GeometryMonitor(*arguments, **options)


@pytest.mark.parametrize(
    ("features", "labels", "match"),
    [
        (torch.zeros(3), torch.tensor([0, 1, 2]), r"`features` must have shape"),
        (torch.zeros(3, 4), torch.tensor([0, 1]), r"`labels` must have shape \(3,\)"),
        (torch.zeros(2, 4), torch.tensor([0.0, 1.0]), r"`labels` must be integers; got torch.float32"),
        (torch.zeros(2, 5), torch.tensor([0, 1]), r"`features` must have rows of length 4, as before; got 5"),
    ],
)
def test_refused_batches(features, labels, match):
    monitor = GeometryMonitor(GEOMETRY, dim=4)
    with pytest.raises(InvalidInputError, match=match):
        monitor.update(features, labels)
