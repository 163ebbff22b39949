"""Level and power of og.validate, from rows and labels to the verdict: what the statistics promise survives.

Settings, noise and turn as in `test_statistics_power`, which has the same for the statistics alone.
"""

from __future__ import annotations

import numpy as np
import pytest
from helpers.simulated import long_tail, means_of, sample, shape_root, turned

import optgeom as og
from optgeom.embeddings.measures import Embedding
from optgeom.embeddings.metrics.metric import Metric
from optgeom.embeddings.statistics.excess_risk import ExcessRisk

SETTINGS = {
    "10": (long_tail(5000, 50, 10), 32, 0.5),
    "collapsed": ([2000, 60, 50, 50], 32, 1.0),
    "100": (long_tail(500, 50, 100), 128, 0.5),
}
TINY = (long_tail(5000, 5, 10), 32, 0.5)

shapes = pytest.mark.parametrize("ratio", [None, 30.0], ids=["isotropic", "anisotropic"])
amounts = pytest.mark.parametrize(
    ("setting", "runs"),
    [("10", 20), ("collapsed", 20), *(pytest.param(name, 100, marks=pytest.mark.slow) for name in SETTINGS)],
)


@pytest.fixture(autouse=True)
def without_slow_metrics(monkeypatch):
    """Metrics of pairs of rows and the loss take seconds per run and have no say in the verdict."""
    monkeypatch.setattr(Embedding, "rows", None)
    monkeypatch.setattr(Embedding, "risk", (ExcessRisk(reason="left out"), Metric(None, reason="left out")))


def results(setting, ratio, runs, degrees=0.0):
    """Validations of independent samples in shuffled order, and the names of the pair that was turned."""
    counts, dim, temperature = setting
    classes = og.ClassDistribution.from_counts(counts, [f"class {k}" for k in range(len(counts))])
    geometry = og.solve(classes, og.SupCon(temperature))
    fixed = np.random.default_rng(7)
    means = means_of(np.array(geometry.gram), dim, fixed)
    root = np.eye(dim) / np.sqrt(dim) if ratio is None else shape_root(dim, ratio, fixed)
    pair = None
    if degrees:
        means, ends = turned(means, degrees)
        pair = {classes.names[end] for end in ends}
    labels = np.repeat(classes.names, counts)
    found = []
    for run in range(runs):
        rng = np.random.default_rng([15, run])
        rows = np.concatenate(sample(means, list(counts), 0.5, root, rng)) * rng.uniform(0.5, 20, size=(labels.size, 1))
        order = rng.permutation(labels.size)
        found.append(og.validate(rows[order].astype(np.float32), labels[order], geometry, slack=0.0))
    return found, pair


def share(flags):
    return np.mean([bool(flag) for flag in flags])


@amounts
@shapes
def test_a_true_optimum_is_consistent(setting, runs, ratio):
    found, _ = results(SETTINGS[setting], ratio, runs)
    assert share(one.verdict == "consistent" for one in found) >= 0.95
    assert all(one.max_angle_error_ci_deg[0] <= 2 for one in found if one.verdict == "consistent")


@amounts
@shapes
def test_a_class_turned_by_10_degrees_is_named(setting, runs, ratio):
    found, pair = results(SETTINGS[setting], ratio, runs, 10.0)
    smallest = f"class {len(SETTINGS[setting][0]) - 1}"

    def right(one):
        named = [{one.names[held.first], one.names[held.second]} for held in one.judgement.pairs]
        most = dict(one.judgement.classes)
        return one.verdict == "differs" and pair in named and most[smallest] == max(most.values())

    assert share(map(right, found)) >= 0.95


@pytest.mark.parametrize("runs", [20, pytest.param(100, marks=pytest.mark.slow)])
@shapes
def test_five_images_are_too_few(runs, ratio):
    found, _ = results(TINY, ratio, runs)
    assert share(one.verdict == "inconclusive" and one.judgement.too_small[0] == "class 9" for one in found) >= 0.95
    assert all("class 9 (5 images)" in one.sentence for one in found if one.verdict == "inconclusive")
