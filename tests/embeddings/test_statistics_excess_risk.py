"""Three terms of the excess risk against closed forms and plain sums over classes and rows."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from helpers.reference import LIMIT
from helpers.simulated import means_of, moments_of, sample

import optgeom as og
from optgeom.embeddings.moments.directions import class_directions
from optgeom.embeddings.statistics.excess_risk import ExcessRisk, excess_risk, risk_of_products
from optgeom.errors import InvalidInputError

COUNTS = [40, 12, 6]


def classes_of(counts=COUNTS):
    return og.ClassDistribution.from_counts(counts)


def exact(gram, counts=COUNTS):
    means = means_of(gram, len(counts), np.random.default_rng(0))
    return class_directions(moments_of([np.tile(row, (count, 1)) for row, count in zip(means, counts, strict=True)]))


def noisy_rows(counts=COUNTS, sigma=0.6, seed=3, dim=8):
    rng = np.random.default_rng(seed)
    gram = np.array(og.solve(classes_of(counts), og.SupConFullBatch(0.5)).gram)
    return sample(means_of(gram, dim, rng), counts, sigma, np.eye(dim) / np.sqrt(dim), rng)


def full_batch_loss(rows, tau):
    """SupCon L_out of all rows at once, self excluded, by its definition."""
    z = np.concatenate(rows)
    labels = np.repeat(np.arange(len(rows)), [part.shape[0] for part in rows])
    total = 0.0
    for i in range(len(z)):
        s = z @ z[i] / tau
        others = np.arange(len(z)) != i
        positive = others & (labels == labels[i])
        total += math.log(np.exp(s[others]).sum()) - s[positive].mean()
    return total / len(z)


@pytest.mark.parametrize(
    "loss", [og.InfoNCE(0.5, **LIMIT), og.SupCon(0.5, 64, 2), og.SupConFullBatch(0.5), og.InfoNCE(0.5, 1)]
)
def test_optimum_has_no_excess(loss):
    geometry = og.solve(classes_of(), loss)
    found = excess_risk(exact(geometry.gram), classes_of(), loss, geometry.risk, observed=(geometry.risk, 0.01))
    assert found.direction == pytest.approx(0, abs=1e-8)
    assert found.shrink == pytest.approx(0, abs=1e-8)
    assert found.within == pytest.approx(0, abs=1e-8)
    assert found.total == pytest.approx(0, abs=1e-8)
    assert found.reason is None


@pytest.mark.parametrize("loss", [og.InfoNCE(0.5, **LIMIT), og.SupCon(0.5, 64, 2), og.SupConFullBatch(0.5)])
def test_everything_at_one_point_is_one_unit_of_direction(loss):
    geometry = og.solve(classes_of(), loss)
    found = excess_risk(exact(np.ones((3, 3))), classes_of(), loss, geometry.risk)
    assert found.direction == pytest.approx(1, rel=1e-9)
    assert found.shrink == pytest.approx(0, abs=1e-9)
    assert found.within is None
    assert found.total is None
    assert found.reason == "the loss of the embedding was not computed"


def test_rows_of_any_length_for_the_limit():
    lam = np.array(COUNTS) / sum(COUNTS)
    products = np.array([[0.6, -0.2, 0.1], [-0.2, 0.5, 0.7], [0.1, 0.7, 0.9]])
    expected = sum(
        lam[i] * math.log(sum(lam[j] * math.exp((products[i, j] - products[i, i]) / 0.5) for j in range(3)))
        for i in range(3)
    )
    assert risk_of_products(products, classes_of(), og.InfoNCE(0.5, **LIMIT)) == pytest.approx(expected, rel=1e-12)


def test_rows_of_any_length_for_two_negatives():
    lam = np.array(COUNTS) / sum(COUNTS)
    products = np.array([[0.6, -0.2, 0.1], [-0.2, 0.5, 0.7], [0.1, 0.7, 0.9]])
    x = np.exp((products - np.diag(products)[:, None]) / 0.5)
    expected = sum(
        lam[i] * lam[a] * lam[b] * math.log(1 + x[i, a] + x[i, b])
        for i, a, b in itertools.product(range(3), range(3), range(3))
    )
    assert risk_of_products(products, classes_of(), og.InfoNCE(0.5, 2)) == pytest.approx(expected, rel=1e-10)


def test_equal_classes_need_not_have_equal_products():
    """Two singletons share a group in the program; here each keeps its own products."""
    counts, tau = [3, 2, 1, 1], 0.5
    products = np.array([[1, -0.5, 0.2, -0.1], [-0.5, 1, 0.3, -0.9], [0.2, 0.3, 1, 0.0], [-0.1, -0.9, 0.0, 1]])
    expected = 0.0
    for i in range(2):
        inside = sum(counts[j] * math.exp((products[i, j] - 1) / tau) for j in range(4) if j != i)
        expected += counts[i] / 7 * math.log(counts[i] - 1 + inside)
    assert risk_of_products(products, classes_of(counts), og.SupConFullBatch(tau)) == pytest.approx(expected, rel=1e-12)


def test_terms_add_up_to_the_loss_of_the_rows():
    rows = noisy_rows()
    loss = og.SupConFullBatch(0.5)
    geometry = og.solve(classes_of(), loss)
    observed = full_batch_loss(rows, 0.5)
    found = excess_risk(
        class_directions(moments_of(rows)), classes_of(), loss, geometry.risk, observed=(observed, 0.02)
    )
    collapsed = math.log(sum(COUNTS) - 1)
    assert found.unit == pytest.approx(collapsed - geometry.risk, rel=1e-9)
    assert found.total == pytest.approx((observed - geometry.risk) / (collapsed - geometry.risk), rel=1e-9)
    assert found.within_error == pytest.approx(0.02 / found.unit)
    assert found.shrink > 0.01, "means of scattered rows are short"
    assert abs(found.direction) < 0.02, "they point the right way"


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("sigma", [0.3, 1.0, 3.0])
def test_scatter_within_classes_never_helps(sigma, seed):
    """L >= F(M) for every sample, by Jensen's inequality, since M holds the means over pairs of different rows."""
    rows = noisy_rows(sigma=sigma, seed=seed)
    directions = class_directions(moments_of(rows))
    shrunk = risk_of_products(directions.mean_gram, classes_of(), og.SupConFullBatch(0.5))
    assert full_batch_loss(rows, 0.5) > shrunk


def test_direction_term_of_a_true_optimum_is_nearly_unbiased():
    loss = og.SupConFullBatch(0.5)
    geometry = og.solve(classes_of(), loss)
    found = [
        excess_risk(class_directions(moments_of(noisy_rows(seed=seed))), classes_of(), loss, geometry.risk).direction
        for seed in range(60)
    ]
    assert min(found) < 0 < max(found)
    assert abs(np.mean(found)) < 0.003


def test_missing_classes_and_directions_leave_it_open():
    loss = og.SupCon(0.5)
    geometry = og.solve(classes_of(), loss)
    partial = class_directions(moments_of([np.tile(np.eye(3)[0], (4, 1)), np.tile(np.eye(3)[1], (4, 1))]))
    found = excess_risk(partial, classes_of(), loss, geometry.risk)
    assert found == ExcessRisk(reason="1 of the 3 classes of the geometry have no embeddings")
    single = class_directions(
        moments_of([np.tile(np.eye(3)[0], (4, 1)), np.tile(np.eye(3)[1], (4, 1)), np.eye(3)[:1]], ("a", "b", "c"))
    )
    found = excess_risk(single, classes_of(), loss, geometry.risk)
    assert found.reason == "without a direction: c (one image, or images that share none)"
    assert found.as_dict()["direction"] is None


def test_more_classes_than_the_geometry_are_refused():
    with pytest.raises(
        InvalidInputError, match="`directions` must hold classes of the geometry only; got 3 classes for 2"
    ):
        excess_risk(exact(np.ones((3, 3))), classes_of([3, 2]), og.SupCon(0.5), 0.0)
