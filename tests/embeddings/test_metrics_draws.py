"""Which rows the empirical losses are computed on: samples, batches, seeds."""

from __future__ import annotations

import numpy as np
from helpers.clouds import cloud

import optgeom as og
from optgeom.embeddings.metrics.empirical_risk import Batches, empirical_risk
from optgeom.embeddings.metrics.pair_risk import stratified
from optgeom.embeddings.moments.unit_rows import UnitRows


def test_large_samples_keep_rare_classes_whole():
    codes = np.repeat(np.arange(4), [1000, 300, 20, 3])
    index = stratified(codes, 4, 223, np.random.default_rng(0))
    assert np.bincount(codes[index]).tolist() == [100, 100, 20, 3] and np.unique(index).size == 223
    assert np.bincount(codes[stratified(codes, 4, 2, np.random.default_rng(0))]).tolist() == [2, 2, 2, 2]
    rows, codes = cloud((400, 150, 8))
    loss = og.SupCon(0.3)
    exact = empirical_risk(rows, codes, loss)
    found = empirical_risk(rows, codes, loss, size=300, seed=1)
    assert found.rows <= 300 < exact.rows and 0 < found.standard_error < 0.05
    assert abs(found.value - exact.value) < 4 * found.standard_error
    finite = empirical_risk(rows, codes, og.InfoNCE(0.3, 5), size=600, batches=40)  # more anchors than a round takes
    sampled = empirical_risk(rows, codes, og.InfoNCE(0.3, 5), size=300, batches=40)
    assert abs(finite.value - sampled.value) < 0.1 and finite.anchors == 40 * 256 and sampled.rows <= 300


def test_batches_use_rows_once_while_they_last():
    rows, codes = cloud((5, 2))
    drawn = Batches.of(UnitRows.of(rows, codes), np.array([0.5, 0.5]), 1)
    rng = np.random.default_rng(0)
    for _ in range(20):
        index, repeats = drawn.draw(rng, 8)
        per_class = np.bincount(codes[index], minlength=2)
        assert index.size == 8 and repeats == sum(max(0, n - m) for n, m in zip(per_class, [5, 2], strict=True))
        assert np.unique(index).size == sum(min(n, m) for n, m in zip(per_class, [5, 2], strict=True))


def test_seeds_decide():
    rows, codes = cloud((10, 5))
    loss = og.SupCon(0.3, batch_size=4)
    first, again, other = (empirical_risk(rows, codes, loss, seed=seed) for seed in (0, 0, 1))
    assert first == again and first.value != other.value
