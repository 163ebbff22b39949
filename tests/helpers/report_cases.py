"""Embeddings for the report, one for each kind of page: what a colleague may have on the screen."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

import optgeom as og
from helpers.simulated import long_tail, means_of, sample, turned, unit

LOSS = og.SupCon(temperature=0.5)
WEIRD = (
    "<script>alert(1)</script>",
    "naïve 🐈 猫",
    "x" * 300,
    "שלום",
    "tab\there\x07",
    "#222222 & $x^2$",
    "a\"b'c",
    'style="fill:red"',
)


def _drawn(means: np.ndarray, counts: list[int], sigma: float = 0.3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    dim = means.shape[1]
    rows = sample(means, counts, sigma, np.eye(dim) / np.sqrt(dim), np.random.default_rng(seed))
    return np.concatenate(rows), np.repeat(np.arange(len(counts)), counts)


def _optimal(counts: list[int], dim: int, loss: og.SupCon = LOSS) -> tuple[og.Geometry, np.ndarray]:
    geometry = og.solve(og.ClassDistribution.from_counts(counts), loss)
    return geometry, means_of(np.array(geometry.gram), dim, np.random.default_rng(1))


def consistent() -> og.Validation:
    """Ten classes, long-tailed, at the optimum."""
    counts = long_tail(600, 100, 10)
    geometry, means = _optimal(counts, 32)
    return og.validate(*_drawn(means, counts), geometry)


def differs() -> og.Validation:
    """The rarest class turned by ten degrees."""
    counts = long_tail(600, 100, 10)
    geometry, means = _optimal(counts, 32)
    return og.validate(*_drawn(turned(means, 10)[0], counts), geometry)


def collapsed() -> og.Validation:
    """Two rare classes at one point, at a temperature at which they would push each other apart at once."""
    counts = long_tail(600, 100, 10)
    geometry, means = _optimal(counts, 32, og.SupCon(temperature=0.1))
    means[8] = means[9]
    return og.validate(*_drawn(means, counts), geometry)


def at_a_saddle() -> og.Validation:
    """The best geometry of one dimension less, where training stalls."""
    counts = long_tail(600, 100, 10)
    geometry = og.solve(og.ClassDistribution.from_counts(counts), LOSS)
    stalled = og.solve(geometry.classes, LOSS, dim=8)
    means = means_of(np.array(stalled.gram), 32, np.random.default_rng(1))
    return og.validate(*_drawn(means, counts), geometry)


def long_tailed(classes: int = 100, largest: int = 500, smallest: int = 20) -> og.Validation:
    """Many classes, half of the tail out of place."""
    counts = long_tail(largest, smallest, classes)
    dim = classes + 28
    geometry, means = _optimal(counts, dim)
    moved = np.random.default_rng(2).normal(size=means.shape) / np.sqrt(dim)
    means[classes // 2 :] = unit(means + 0.15 * moved)[classes // 2 :]
    return og.validate(*_drawn(means, counts), geometry)


def nothing_available() -> og.Validation:
    """One image a class, and names to stumble over."""
    rows = np.random.default_rng(3).normal(size=(len(WEIRD), 5))
    classes = og.ClassDistribution.from_counts(dict(zip(WEIRD, (9, 8, 7, 6, 5, 4, 3, 2), strict=True)))
    return og.validate(rows, np.array(WEIRD, dtype=object), classes=classes, loss=LOSS)


def weird_names() -> og.Validation:
    """The same names with enough images."""
    counts = [40, 36, 32, 28, 24, 20, 16, 12]
    _, means = _optimal(counts, 8)
    rows, labels = _drawn(means, counts)
    classes = og.ClassDistribution.from_counts(dict(zip(WEIRD, counts, strict=True)))
    return og.validate(rows, np.array(WEIRD, dtype=object)[labels], classes=classes, loss=LOSS)


def dimension_limited() -> og.Validation:
    """Twelve classes in four dimensions."""
    counts = long_tail(600, 60, 12)
    geometry = og.solve(og.ClassDistribution.from_counts(counts), LOSS, dim=4)
    means = geometry.prototypes(4)
    return og.validate(*_drawn(means, counts), geometry)


def balanced() -> og.Validation:
    """Equal classes: the optimal angles are one number."""
    counts = [300] * 6
    geometry, means = _optimal(counts, 16)
    return og.validate(*_drawn(means, counts), geometry)


CASES: dict[str, Callable[[], og.Validation]] = {
    "consistent": consistent,
    "differs": differs,
    "collapsed": collapsed,
    "at-a-saddle": at_a_saddle,
    "long-tailed": long_tailed,
    "nothing-available": nothing_available,
    "weird-names": weird_names,
    "dimension-limited": dimension_limited,
    "balanced": balanced,
}


@functools.cache
def case(name: str) -> og.Validation:
    """A validation; made once, since several tests look at it."""
    return CASES[name]()
