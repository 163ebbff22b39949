"""Families of embeddings whose classes have a structure of their own, with known true directions.

Each family draws unit rows around given directions. The truth is the Gram matrix of the directions of the population
means: exact where the noise is symmetric about the direction, otherwise from `TRUTH_ROWS` rows per class.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from helpers.simulated import means_of, unit

TRUTH_ROWS = 200_000
SIGMA = 0.5
NAMES = (
    "isotropic",
    "power law",  # eigenvalues 1/k, axes of its own for each class
    "one axis",
    "two modes",
    "radial",  # length of the noise from Student's t with 3 degrees
    "three clusters",  # of 60, 30 and 10 %
    "mislabelled",  # 5 % of the rows from other classes
    "towards one",  # 5 % of the rows from one other class
    "ReLU",  # non-negative features
    "lognormal",
)


@dataclass(frozen=True, eq=False)
class Family:
    """Rows of C classes in d dimensions.

    Attributes
    ----------
    name : str
    draw : function (class, number of rows, generator) -> (n, d) unit rows
    truth : (C, d)
        Unit directions of the population means.
    """

    name: str
    draw: Callable[[int, int, np.random.Generator], np.ndarray]
    truth: np.ndarray

    @property
    def gram(self) -> np.ndarray:
        """True cosines, unit diagonal."""
        gram = self.truth @ self.truth.T
        np.fill_diagonal(gram, 1.0)
        return gram

    def sample(self, counts, rng: np.random.Generator) -> list[np.ndarray]:
        """Rows of every class."""
        return [self.draw(c, n, rng) for c, n in enumerate(counts)]


def turned_family(family: Family, which: int, towards: int, degrees: float) -> Family:
    """The same rows, those of one class turned in the plane of its own and another direction."""
    u = family.truth[which]
    across = unit(family.truth[towards] - (family.truth[towards] @ u) * u)
    angle = np.radians(degrees)

    def turn(rows: np.ndarray) -> np.ndarray:
        a, b = rows @ u, rows @ across
        moved = np.outer((np.cos(angle) - 1) * a - np.sin(angle) * b, u)
        return rows + moved + np.outer(np.sin(angle) * a + (np.cos(angle) - 1) * b, across)

    def draw(c: int, n: int, rng: np.random.Generator) -> np.ndarray:
        rows = family.draw(c, n, rng)
        return turn(rows) if c == which else rows

    truth = family.truth.copy()
    truth[which] = turn(truth[which][None])[0]
    return Family(f"{family.name}, turned", draw, truth)


def measured(name: str, draw, classes: int) -> Family:
    """A family whose true directions are those of a large sample."""
    rng = np.random.default_rng(99)
    return Family(name, draw, unit(np.stack([draw(c, TRUTH_ROWS, rng).mean(axis=0) for c in range(classes)])))


def families(gram: np.ndarray, dim: int, names: tuple[str, ...] | None = None, seed: int = 0) -> dict[str, Family]:
    """Families of classes about the directions of a Gram matrix (C, C), all or some."""
    rng = np.random.default_rng([seed, 7])
    means = means_of(gram, dim, rng)
    classes = len(means)
    tangent = unit(rng.normal(size=(classes, dim)))
    tangent = unit(tangent - np.einsum("cd,cd->c", tangent, means)[:, None] * means)
    roots = []
    for _ in range(classes):
        values = np.arange(1, dim + 1) ** -1.0
        axes = np.linalg.qr(rng.normal(size=(dim, dim)))[0]
        roots.append(axes * np.sqrt(values / values.sum()))

    def reflected(c, rows, rng):
        """Half of the rows reflected in the direction of the class, so that their mean has it exactly."""
        back = 2 * np.outer(rows @ means[c], means[c]) - rows
        return np.where(rng.random(len(rows))[:, None] < 0.5, back, rows)

    def isotropic(c, n, rng):
        return unit(means[c] + SIGMA * rng.normal(size=(n, dim)) / np.sqrt(dim))

    def power_law(c, n, rng):
        return reflected(c, unit(means[c] + SIGMA * rng.normal(size=(n, dim)) @ roots[c].T), rng)

    def one_axis(c, n, rng):
        along = rng.normal(size=(n, 1)) * 0.5 * tangent[c]
        return unit(means[c] + along + 0.1 * rng.normal(size=(n, dim)) / np.sqrt(dim))

    def two_modes(c, n, rng):
        side = rng.choice([-1.0, 1.0], size=(n, 1)) * 0.5 * tangent[c]
        return unit(means[c] + side + 0.1 * rng.normal(size=(n, dim)) / np.sqrt(dim))

    places = unit(rng.normal(size=(classes, 3, dim)))

    def clusters(c, n, rng):
        which = rng.choice(3, size=n, p=[0.6, 0.3, 0.1])
        return unit(means[c] + 0.7 * places[c, which] + 0.1 * rng.normal(size=(n, dim)) / np.sqrt(dim))

    def mislabelled(c, n, rng):
        other = (c + rng.integers(1, classes, size=n)) % classes
        kind = np.where(rng.random(n) < 0.05, other, c)
        return unit(means[kind] + 0.3 * rng.normal(size=(n, dim)) / np.sqrt(dim))

    def towards_one(c, n, rng):
        kind = np.where(rng.random(n) < 0.05, (c + 1) % classes, c)
        return unit(means[kind] + 0.3 * rng.normal(size=(n, dim)) / np.sqrt(dim))

    lift = rng.normal(size=(classes, dim))

    def relu(c, n, rng):
        return unit(np.maximum(lift[c] + 0.8 * rng.normal(size=(n, dim)), 0.0) + 1e-9)

    def lognormal(c, n, rng):
        noise = np.exp(rng.normal(size=(n, dim))) - np.exp(0.5)
        return unit(means[c] + 0.25 * noise / np.sqrt(dim))

    def radial(c, n, rng):
        size = np.abs(rng.standard_t(3, size=(n, 1))) * 0.4
        return reflected(c, unit(means[c] + size * unit(rng.normal(size=(n, dim)))), rng)

    exact = {
        "isotropic": isotropic,
        "power law": power_law,
        "one axis": one_axis,
        "two modes": two_modes,
        "radial": radial,
    }
    others = {
        "three clusters": clusters,
        "mislabelled": mislabelled,
        "towards one": towards_one,
        "ReLU": relu,
        "lognormal": lognormal,
    }
    wanted = NAMES if names is None else names
    return {
        name: Family(name, exact[name], means) if name in exact else measured(name, others[name], classes)
        for name in wanted
    }
