"""Solved geometries of every kind, for the tests of what they hold and of their files."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

import optgeom as og
from helpers.reference import LIMIT

LIMIT_LOSS = og.InfoNCE(0.5, **LIMIT)


def solved(*counts: int, loss: og.Loss = LIMIT_LOSS, **options: Any) -> og.Geometry:
    return og.solve(og.ClassDistribution.from_counts(counts), loss, **options)


def mixed() -> og.Geometry:
    """Groups of several sizes, in no order."""
    return solved(3, 9, 3, 1, 9, 3, 2, 20)


def squeezed() -> og.Geometry:
    """Partial collapse with near-coincident pairs."""
    weights = np.array([(i + 1.0) ** -2 for i in range(20)])
    return og.solve(
        og.ClassDistribution.from_proportions(weights / weights.sum()), og.InfoNCE(1.0, **LIMIT, sampling="scl")
    )


def batch() -> og.Geometry:
    """Coincident singletons beside spread classes."""
    return solved(1, 5, 4, 1, 4, 1, 2, loss=og.SupConFullBatch(0.5))


GEOMETRIES: dict[str, Callable[[], og.Geometry]] = {
    "mixed": mixed,
    "squeezed": squeezed,
    "batch": batch,
    "collapsed": lambda: solved(2, 95, 2, 1, loss=og.SupCon(1.0)),
    "grouped collapse": lambda: solved(500, 40, 40, 40, 3, 3, 3, loss=og.InfoNCE(0.8, **LIMIT, sampling="scl")),
    "two": lambda: solved(9, 1),
    "balanced": lambda: solved(*[4] * 11),
    "apart": lambda: solved(3, 9, 3, 1, grouped=False),
    "limited": lambda: solved(5, 4, 4, 2, 1, 1, dim=2),
}


def assert_same(found: og.Geometry, expected: og.Geometry) -> None:
    """Equal to the bit, arrays read-only."""
    for part in dataclasses.fields(og.Geometry):
        left, right = getattr(found, part.name), getattr(expected, part.name)
        if isinstance(right, np.ndarray):
            assert left.dtype == right.dtype and left.tobytes() == right.tobytes() and left.shape == right.shape, (
                part.name
            )
            assert not left.flags.writeable, part.name
        elif part.name == "loss":
            assert left.to_dict() == right.to_dict() and type(left) is type(right)
        elif part.name == "relaxed" and right is not None:
            assert_same(left, right)
        elif part.name != "classes":
            assert left == right and type(left) is type(right), part.name
    assert found.names == expected.names
    for name in ("proportions", "counts", "kept", "dropped", "notes", "sampler_power"):
        assert np.array_equal(getattr(found.classes, name), getattr(expected.classes, name)), name
    assert found.gram.tobytes() == expected.gram.tobytes()
    assert (found.regime, found.coincident_classes) == (expected.regime, expected.coincident_classes)
