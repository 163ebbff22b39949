"""Uniqueness where the bound is out of reach.

The dual matrix settles it (written out here), or a second optimum is shown.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

import optgeom as og
from optgeom.realization.api import Realization, realize
from optgeom.realization.weights import Weights

TRIPLES = np.random.default_rng(3).uniform(0.5, 1, size=(7, 7))


def parts(realization: Realization) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gram matrix, dual matrix and anchors of all samples, from the embedding and the weights."""
    z, tau, index = realization.embedding(), realization.temperature, realization.weights.index
    gram = z @ z.T
    pairs = ~np.eye(realization.n, dtype=bool)
    w = np.where(pairs, np.exp(realization.weights.log_weights[np.ix_(index, index)]), 0.0)
    anchors = w.sum(axis=1) > 0
    w[anchors] /= w[anchors].sum(axis=1, keepdims=True)
    p = np.where(pairs, np.exp(gram / tau), 0.0)
    p = p / p.sum(axis=1, keepdims=True) * anchors[:, None]
    gradient = (p + p.T - w - w.T) / (2 * tau)
    return gram, gradient - np.diag((gradient * gram).sum(axis=1)), anchors


def directions(anchors: np.ndarray) -> np.ndarray:
    """All D along which no logsumexp of an anchor is strictly convex.

    One constant, and pairs of samples that are no anchors.
    """
    n = anchors.size
    alone = np.flatnonzero(~anchors)
    supports = [np.ones((n, n)) - np.eye(n)]
    for a, u in enumerate(alone):
        for v in alone[a + 1 :]:
            supports.append(np.zeros((n, n)))
            supports[-1][u, v] = supports[-1][v, u] = 1.0
    return np.array(supports)


def settled_by_the_dual(realization: Realization) -> bool:
    _, dual, anchors = parts(realization)
    images = np.array([dual @ d for d in directions(anchors)]).reshape(directions(anchors).shape[0], -1)
    return bool(scipy.linalg.svdvals(images)[-1] > 1e-5 * np.abs(dual).max())


@pytest.mark.parametrize("tau", [1.0, 0.2])
@pytest.mark.parametrize(
    "counts", [[3, 1, 1, 1], [7, 4, 2, 2, 1, 1], [40, 1, 1, 1, 1], [2, 1], [2, 2, 1], [5, 3]], ids=str
)
def test_supcon_with_single_samples_is_unique_as_for_classes(counts: list[int], tau: float) -> None:
    realization = realize(Weights.supcon(np.repeat(np.arange(len(counts)), counts)), temperature=tau)
    assert realization.unique and settled_by_the_dual(realization)
    assert og.solve(og.ClassDistribution.from_counts(counts), og.SupConFullBatch(tau)).certificate.unique


def test_single_samples_as_one_group_of_a_matrix() -> None:
    weights = Weights.from_matrix(scipy.linalg.block_diag(np.ones((3, 3)), np.ones((2, 2)), np.zeros((4, 4))))
    assert weights.sizes.tolist() == [3, 2, 4]
    realization = realize(weights, temperature=0.5)
    assert realization.unique and settled_by_the_dual(realization)


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_symmetric_weights_are_unique_up_to_the_border(share: float) -> None:
    labels = [0, 0, 0, 1, 1, 2]
    for factor in (1.001, 2.0):
        realization = realize(Weights.soft_supcon(labels, 0.1), temperature=1.5 / np.log(10) * factor)
        assert realization.regime == "inconsistent" and realization.unique and settled_by_the_dual(realization)
    path = np.diag(np.ones(5), 1) + share * np.diag(np.ones(3), 3)
    assert realize(path + path.T, temperature=0.4).unique


def test_asymmetric_weights_have_a_whole_interval_of_optima_at_low_temperature() -> None:
    realization = realize(TRIPLES, temperature=0.1)
    assert realization.certified and realization.regime == "inconsistent" and not realization.unique
    gram, _, _ = parts(realization)
    others = 0
    for shift in (-0.02, 0.02):
        other = gram + shift * (1 - np.eye(7))
        if np.linalg.eigvalsh(other)[0] < 0:
            continue
        others += 1
        z = np.linalg.cholesky(other + 1e-15 * np.eye(7))
        s = np.where(np.eye(7) > 0, -np.inf, z @ z.T / 0.1)
        log_p = s - np.log(np.exp(s).sum(axis=1, keepdims=True))
        w = np.where(np.eye(7) > 0, 0.0, TRIPLES)
        w /= w.sum(axis=1, keepdims=True)
        assert -np.sum(w * np.where(w > 0, log_p, 0.0)) / 7 == pytest.approx(realization.optimal_loss, abs=1e-12)
    assert others > 0


def test_asymmetric_weights_are_unique_where_the_sphere_stops_them() -> None:
    rng = np.random.default_rng(5)
    matrix = np.exp(rng.normal(size=(8, 8)))
    realization = realize(matrix, temperature=2.0)
    assert realization.regime == "inconsistent" and realization.unique and settled_by_the_dual(realization)


def test_asymmetric_weights_with_a_sample_without_positives() -> None:
    matrix = np.pad(TRIPLES, ((0, 2), (0, 2)))
    realization = realize(matrix, temperature=0.1)
    assert realization.unique and settled_by_the_dual(realization)
