"""Features around an optimum, and monitors fed with them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import optgeom as og
from helpers.simulated import means_of, sample, shape_root

COUNTS = [40, 25, 12, 6]
CLASSES = og.ClassDistribution.from_counts(COUNTS, names=["ant", "bee", "cat", "dog"])
GEOMETRY = og.solve(CLASSES, og.SupCon(0.5))
# Numbers that are sums of sums: equal up to the order of summation.
CLOSE = {"rel": 1e-10, "abs": 1e-10}


def data(seed=0, sigma=0.4, dim=6):
    """Rows and labels around the optimum, shuffled."""
    rng = np.random.default_rng(seed)
    rows = sample(means_of(np.array(GEOMETRY.gram), dim, rng), COUNTS, sigma, shape_root(dim, 1.0, rng), rng)
    labels = np.repeat(np.arange(len(COUNTS)), COUNTS)
    order = rng.permutation(labels.size)
    return np.concatenate(rows)[order], labels[order]


def tensors(rows, labels, dtype=torch.float64):
    return torch.tensor(rows, dtype=dtype), torch.tensor(labels)


def fed(monitor, rows, labels, size=10):
    """The monitor after all batches."""
    for start in range(0, len(labels), size):
        monitor.update(rows[start : start + size], labels[start : start + size])
    return monitor


def assert_same(one, other):
    """Numbers of two monitors."""
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert value == pytest.approx(other[name], nan_ok=True, **CLOSE), name
