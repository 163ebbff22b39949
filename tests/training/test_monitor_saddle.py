"""What the monitor says where class means sit at a saddle, against the figures of the theory."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from helpers.simulated import means_of, sample

import optgeom as og

torch = pytest.importorskip("torch")
pytest.importorskip("torchmetrics")

from optgeom.training.monitor import GeometryMonitor  # noqa: E402

TAIL = (200, 120, 72, 43, 26, 15, 9, 6, 3, 2)  # of theory-2, section 24
NAMES = tuple("abcdefghij")
CLASSES = og.ClassDistribution.from_counts(TAIL, names=list(NAMES))


@functools.cache
def tail(dim=None):
    return og.solve(CLASSES, og.SupCon(0.5), dim=dim)


def watched(gram, seed=0, sigma=0.1, window=None, images=20, **options):
    """A monitor that saw images around these class means."""
    rng = np.random.default_rng(seed)
    counts = [images * count for count in TAIL]
    rows = np.concatenate(sample(means_of(np.array(gram), 32, rng), counts, sigma, np.eye(32) / np.sqrt(32), rng))
    order = rng.permutation(len(rows))
    labels = np.repeat(np.arange(len(TAIL)), counts)
    monitor = GeometryMonitor(tail(), window=window, **options)
    for start in range(0, len(rows), 500):
        batch = order[start : start + 500]
        monitor.update(torch.tensor(rows[batch]), torch.tensor(labels[batch]))
    return monitor


@pytest.mark.parametrize("window", [None, 100.0])
def test_best_geometry_of_lower_rank_is_a_saddle(window):
    found = watched(tail(8).gram, window=window).saddle()
    assert (found["at_saddle"], found["reason"], found["rank"], found["predicted_rank"]) == (True, "", 8, 9)
    assert found["least_eigenvalue"] == pytest.approx(-1.8e-4, rel=0.1)  # section 24
    assert found["growth"] == pytest.approx(-4 * found["least_eigenvalue"])
    assert set(found["classes"]) == {"i", "j"}
    assert found["sentence"].startswith("at a saddle: the class means span 8 of 9 dimensions; classes ")
    assert "a balanced sampler first, a temperature of 0.2 to 0.3, longer training" in found["sentence"]


def test_equals_the_test_of_a_validation():
    """The same rows judged with the covariances that a monitor does not keep."""
    rng = np.random.default_rng(1)
    counts = [20 * count for count in TAIL]
    rows = np.concatenate(sample(means_of(np.array(tail(7).gram), 32, rng), counts, 0.1, np.eye(32) / np.sqrt(32), rng))
    labels = np.repeat(np.arange(len(TAIL)), counts)
    monitor = GeometryMonitor(tail(), window=None)
    monitor.update(torch.tensor(rows), torch.tensor(labels))
    watching, validated = monitor.saddle(), og.validate(rows, np.array(NAMES)[labels], tail()).as_dict()["saddle"]
    assert watching["at_saddle"] and validated["at_saddle"]
    assert watching["classes"] == validated["classes"]
    for name in ("rank", "predicted_rank", "least_eigenvalue", "escape"):
        assert watching[name] == pytest.approx(validated[name], rel=1e-6)
    # Noise is drawn along other axes.
    assert watching["force"] == pytest.approx(validated["force"], abs=0.02)
    assert watching["escape_sd"] == pytest.approx(validated["escape_sd"], rel=0.5)


@pytest.mark.parametrize("sigma", [0.1, 0.75])
def test_the_optimum_and_random_means_are_no_saddles(sigma):
    assert watched(tail().gram, sigma=sigma).saddle()["at_saddle"] is False
    rng = np.random.default_rng(2)
    means = rng.normal(size=(10, 32))
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    found = watched(means @ means.T, sigma=sigma).saddle()
    assert found["at_saddle"] is False and found["reason"] and found["sentence"] == ""


def test_reasons():
    assert watched(tail().gram).saddle()["reason"] == "the class means span all dimensions"
    found = watched(tail(8).gram, min_images=50.0).saddle()
    assert found["reason"] == "1 of 10 classes are not measured"
    assert found["predicted_rank"] == 9 and found["least_eigenvalue"] is None
    assert watched(tail(8).gram, images=2).saddle()["reason"].startswith("too few images in the classes")
    limited = GeometryMonitor(tail(8), window=None)
    limited.update(torch.eye(10), torch.arange(10))
    assert limited.saddle()["reason"] == "the optimum of this geometry is not certified"


def test_training_that_leaves_a_saddle():
    """Free features started beside it are reported at it, and no more once the dimension has opened."""
    start = torch.tensor(tail(8).prototypes())
    side = 1e-3 * torch.tensor(np.random.default_rng(0).normal(size=(10, 1)))
    means = torch.nn.Parameter(torch.cat([start, side], dim=1))
    p = torch.tensor(np.array(TAIL) / sum(TAIL))
    labels = torch.arange(10).repeat_interleave(6)
    monitor, said = GeometryMonitor(tail(), window=1), []
    for step in range(2501):
        unit = torch.nn.functional.normalize(means)
        # SupCon of batches without end and tight classes: two images of one class have cosine 1.
        loss = (p * torch.logsumexp(unit @ unit.T / 0.5 + p.log(), dim=1)).sum()
        if step in (0, 500, 2500):
            monitor.update(unit[labels], labels)
            said.append(monitor.saddle()["at_saddle"])
        (gradient,) = torch.autograd.grad(loss, means)
        means.data = unit.detach() - 0.1 * gradient / p[:, None]
    assert said == [True, True, False]
    assert monitor.class_gram() == pytest.approx(np.array(tail().gram), abs=1e-6)
