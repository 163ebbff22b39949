"""Embeddings and labels for the tests of readers, and all of a source at once."""

from __future__ import annotations

import numpy as np


def table(n=23, d=5, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).normal(size=(n, d)).astype(dtype)


def labels(n=23, classes=4):
    return np.arange(n) * 7 % classes


def read(source, rows=7):
    """All rows, labels and groups of a source, after a check of the batches themselves."""
    batches = list(source.batches(rows))
    start = 0
    for batch in batches:
        assert batch.start == start
        assert 1 <= len(batch.rows) <= rows
        start += len(batch.rows)
    if source.num_rows is not None:
        assert start == source.num_rows

    def joined(parts):
        return None if parts[0] is None else np.concatenate(parts)

    return tuple(joined([getattr(batch, name) for batch in batches]) for name in ("rows", "labels", "groups"))


def same(source, rows, y=None, groups=None, batch=7):
    """Whether a source gives exactly these rows, labels and groups."""
    found, found_labels, found_groups = read(source, batch)
    assert found.dtype == rows.dtype
    np.testing.assert_array_equal(found, rows)
    for got, wanted in ((found_labels, y), (found_groups, groups)):
        assert (got is None) == (wanted is None)
        if wanted is not None:
            assert got.tolist() == np.asarray(wanted).tolist()
