"""Reference cases computed independently of the package (data/golden.json), and small builders shared by the tests."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from optgeom.inputs.classes import ClassDistribution
from optgeom.losses.base import Loss
from optgeom.losses.infonce import InfoNCE
from optgeom.losses.supcon import SupCon
from optgeom.programs.class_mean import ClassMeanProgram
from optgeom.realization.weights import Weights

# InfoNCE with infinitely many negatives and no positive in the denominator: the limit of SupCon.
LIMIT: dict[str, Any] = {"negatives": math.inf, "alpha": 0.0, "negatives_reduction": "mean"}

GOLDEN: dict[str, list[dict[str, Any]]] = json.loads((Path(__file__).parents[1] / "data" / "golden.json").read_text())
GOLDEN_2: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data" / "golden-2.json").read_text())


def geometry_cases() -> list[dict[str, Any]]:
    """Every case with a known optimal geometry: InfoNCE and SupCon."""
    return GOLDEN["geometry"] + GOLDEN["supcon"]


def case(name: str) -> dict[str, Any]:
    """The geometry case of this name."""
    return next(found for found in geometry_cases() if found["name"] == name)


def distribution(values: list[float]) -> ClassDistribution:
    """Whole numbers are counts; anything else is weights, divided by their sum."""
    weights = np.array(values)
    if np.all(weights == np.round(weights)):
        return ClassDistribution.from_counts([int(value) for value in values])
    return ClassDistribution.from_proportions(weights / weights.sum())


def build(found: dict[str, Any]) -> tuple[ClassDistribution, Loss]:
    """Classes and loss of a geometry case."""
    if found["loss"] == "supcon":
        return distribution(found["counts"]), SupCon(found["temperature"], found["batch_size"], found["views"])
    negatives = math.inf if found["negatives"] == "inf" else found["negatives"]
    loss = InfoNCE(found["temperature"], negatives, found["alpha"], found["negatives_reduction"], found["sampling"])
    return distribution(found["counts"]), loss


def gram_entries(found: dict[str, Any]) -> dict[tuple[int, int], float]:
    """Known cosines by pair of classes, in class order."""
    return {(int(key.split(",")[0]), int(key.split(",")[1])): value for key, value in found["gram"].items()}


def random_gram(classes: int, dimension: int, seed: int) -> np.ndarray:
    """Gram matrix of random unit vectors."""
    vectors = np.random.default_rng(seed).normal(size=(classes, dimension))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    gram = vectors @ vectors.T
    np.fill_diagonal(gram, 1.0)
    return gram


def program_of(counts: list[int], loss: Loss, grouped: bool = True) -> ClassMeanProgram:
    """Class-mean program of whole counts."""
    return ClassMeanProgram.build(ClassDistribution.from_counts(counts), loss, grouped)


def off_diagonal(value: float, classes: int) -> np.ndarray:
    """Unit diagonal, one value elsewhere: -1/(C - 1) is the regular simplex."""
    return np.where(np.eye(classes) > 0, 1.0, value)


def collapsed(classes: int) -> np.ndarray:
    """The first class opposite to all others, which coincide."""
    v = np.ones(classes)
    v[1:] = -1.0
    return np.outer(v, v)


def simplex(classes: int) -> np.ndarray:
    """Gram matrix of the regular simplex."""
    return off_diagonal(-1 / (classes - 1), classes)


def circle(count: int = 16) -> np.ndarray:
    """Evenly spaced points of the unit circle."""
    angle = 2 * np.pi * np.arange(count) / count
    return np.column_stack([np.cos(angle), np.sin(angle)])


def expanded(weights: Weights, cosines: np.ndarray) -> np.ndarray:
    """(n, n) cosines of samples whose groups coincide, from group form."""
    full = cosines[np.ix_(weights.index, weights.index)].copy()
    np.fill_diagonal(full, 1.0)
    return full


def counts_of(size: int, lam: np.ndarray) -> list[tuple[np.ndarray, float]]:
    """All class counts of `size` images with their probabilities."""
    drawn = []
    for counts in itertools.product(range(size + 1), repeat=len(lam)):
        if sum(counts) == size:
            ways = math.factorial(size) / math.prod(math.factorial(number) for number in counts)
            drawn.append((np.array(counts, dtype=float), ways * float(np.prod(lam ** np.array(counts)))))
    return drawn
