"""Sources for the tests of class moments, and the same moments from plain loops."""

from __future__ import annotations

import itertools

import numpy as np

from optgeom.embeddings.moments.source import Batch


class Rows:
    """Arrays as a source; `cuts` are the batches, whatever is asked for."""

    def __init__(self, rows, labels, groups=None, name="", cuts=None, re_readable=True, known=True):
        self.rows, self.labels, self.groups = np.asarray(rows), labels, groups
        self.name, self.re_readable = name, re_readable
        self.num_rows = len(self.rows) if known else None
        self.cuts = cuts
        self.readings = 0

    def batches(self, rows):
        self.readings += 1
        assert self.re_readable or self.readings == 1, "read twice"
        edges = [0, *(self.cuts if self.cuts is not None else range(rows, len(self.rows), rows)), len(self.rows)]
        for start, stop in itertools.pairwise(edges):
            if stop > start:
                part = slice(start, stop)
                groups = None if self.groups is None else self.groups[part]
                yield Batch(self.rows[part], None if self.labels is None else self.labels[part], groups, start)


class Sharded:
    """Sources one after another."""

    def __init__(self, *parts, name="all"):
        self.parts, self.name = list(parts), name
        self.re_readable = all(part.re_readable for part in parts)
        self.num_rows = None

    def shards(self):
        return self.parts

    def batches(self, rows):
        raise AssertionError("a source with shards is read by shards")


def images_of(rows, groups=None):
    """Unit rows, or means of unit views, one by one, in extended precision; for groups the first row of each."""
    rows = np.asarray(rows, dtype=np.longdouble)
    if rows.ndim == 3:
        return np.array([[v / np.sqrt((v * v).sum()) for v in image] for image in rows]).mean(axis=1), np.arange(
            len(rows)
        )
    unit = np.array([row / np.sqrt((row * row).sum()) for row in rows])
    if groups is None:
        return unit, np.arange(len(rows))
    seen = list(dict.fromkeys(groups))
    return np.array([np.mean([unit[i] for i in range(len(rows)) if groups[i] == g], axis=0) for g in seen]), np.array(
        [list(groups).index(g) for g in seen]
    )


def plain(rows, labels, names, groups=None):
    """Counts, sums, squares, S_c, pooled, projected from loops in extended precision."""
    z, first = images_of(rows, groups)
    text = np.array([str(label) for label in labels])[first]
    dim, size = z.shape[1], len(names)
    found = {
        "counts": np.zeros(size, dtype=int),
        "sums": np.zeros((size, dim)),
        "squares": np.zeros(size),
        "full": np.full((size, dim, dim), np.nan),
    }
    scatter, degrees = np.zeros((dim, dim)), 0
    u = np.full((size, dim), np.nan)
    for c, name in enumerate(names):
        own = z[text == name]
        n = len(own)
        found["counts"][c] = n
        found["sums"][c] = own.sum(axis=0)
        found["squares"][c] = sum((row * row).sum() for row in own)
        if n < 2:
            continue
        mean = own.mean(axis=0)
        inside = sum(np.outer(row - mean, row - mean) for row in own)
        found["full"][c] = inside / (n - 1)
        scatter, degrees = scatter + inside, degrees + n - 1
        products = [own[i] @ own[j] for i in range(n) for j in range(n) if i != j]
        rho_squared = np.mean(products)
        if rho_squared > 1e-14:
            u[c] = mean / np.sqrt(rho_squared)
    found["pooled"] = np.asarray(scatter / degrees if degrees else np.full((dim, dim), np.nan), dtype=np.float64)
    found["traces"] = np.trace(found["full"], axis1=1, axis2=2)
    found["projected"] = np.empty((size, size))
    for c in range(size):
        p = np.eye(dim) - np.outer(u[c], u[c])
        for e in range(size):
            found["projected"][c, e] = u[e] @ p @ found["full"][c] @ p @ u[e]
    return found


def example(seed=0, n=120, dim=5, classes=4, sigma=0.6, dtype=np.float64, views=None):
    """Labels of unequal classes and noisy rows of many lengths about their means."""
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(classes, dim))
    share = 1.0 / np.arange(1, classes + 1)
    labels = rng.choice(classes, size=n, p=share / share.sum())
    shape = (n, dim) if views is None else (n, views, dim)
    noise = sigma * rng.normal(size=shape)
    rows = (means[labels] if views is None else means[labels][:, None]) + noise
    return (rows * rng.uniform(1, 20, size=(*shape[:-1], 1))).astype(dtype), labels
