"""Simulated embeddings around given class means, their moments by plain sums, and the whole judgement of one sample."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

import optgeom as og
from optgeom.embeddings.moments.directions import Directions, class_directions
from optgeom.embeddings.moments.first_pass import ClassMoments
from optgeom.embeddings.moments.second_pass import WithinClass
from optgeom.embeddings.statistics.bootstrap import null_intervals
from optgeom.embeddings.statistics.class_noise import class_noise
from optgeom.embeddings.statistics.deviation import Deviations, deviations
from optgeom.embeddings.statistics.judgement import Judgement, judge
from optgeom.embeddings.statistics.pair_intervals import PairIntervals, beyond, pair_intervals


def unit(rows: np.ndarray) -> np.ndarray:
    """Rows divided by their norms."""
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def long_tail(largest: int, smallest: int, classes: int) -> list[int]:
    """Counts falling geometrically."""
    return [round(value) for value in np.geomspace(largest, smallest, classes)]


def shape_root(dim: int, ratio: float, rng: np.random.Generator) -> np.ndarray:
    """(d, d) root of a covariance of trace 1 with eigenvalues geometric over `ratio`, in random directions."""
    eigenvalues = np.geomspace(ratio, 1.0, dim)
    axes = np.linalg.qr(rng.normal(size=(dim, dim)))[0]
    return axes * np.sqrt(eigenvalues / eigenvalues.sum())


def means_of(gram: np.ndarray, dim: int, rng: np.random.Generator) -> np.ndarray:
    """(C, dim) unit rows with this Gram matrix, in a random position."""
    values, vectors = np.linalg.eigh(gram)
    rows = np.zeros((gram.shape[0], dim))
    kept = np.flatnonzero(values > 1e-9)
    rows[:, : kept.size] = vectors[:, kept] * np.sqrt(values[kept])
    return unit(rows) @ np.linalg.qr(rng.normal(size=(dim, dim)))[0]


def sample(
    means: np.ndarray, counts: list[int], sigma: float, root: np.ndarray, rng: np.random.Generator
) -> list[np.ndarray]:
    """Rows of every class: normalise(mean + sigma root' eps), eps standard normal."""
    dim = means.shape[1]
    return [
        unit(mean + sigma * rng.normal(size=(count, dim)) @ root.T) for mean, count in zip(means, counts, strict=True)
    ]


def moments_of(rows: list[np.ndarray], names: tuple[str, ...] | None = None) -> ClassMoments:
    """Sums of every class."""
    counts = np.array([part.shape[0] for part in rows])
    sums = np.stack([part.sum(axis=0) for part in rows])
    squares = np.array([(part**2).sum() for part in rows])
    return ClassMoments(names or tuple(f"c{c}" for c in range(len(rows))), counts, sums, squares)


def within_of(rows: list[np.ndarray], directions: Directions, full: bool = True, projected: bool = True) -> WithinClass:
    """Covariances of every class, by definition."""
    dim = rows[0].shape[1]
    covariances = np.full((len(rows), dim, dim), np.nan)
    exact = np.full((len(rows), len(rows)), np.nan)
    scatter, freedom = np.zeros((dim, dim)), 0
    for c, part in enumerate(rows):
        if part.shape[0] < 2:
            continue
        centred = part - part.mean(axis=0)
        covariances[c] = centred.T @ centred / (part.shape[0] - 1)
        scatter += centred.T @ centred
        freedom += part.shape[0] - 1
        u = directions.vectors[c]
        apart = directions.vectors - np.outer(directions.vectors @ u, u)
        exact[c] = np.einsum("ed,df,ef->e", apart, covariances[c], apart, optimize=True)
    traces = np.trace(covariances, axis1=1, axis2=2)
    return WithinClass(scatter / freedom, traces, covariances if full else None, exact if projected else None)


def judged(
    rows: list[np.ndarray], optimal: np.ndarray, tolerance: float = 2.0, full: bool = True, projected: bool = True
) -> tuple[Judgement, Deviations, PairIntervals, Directions]:
    """Everything about one sample."""
    directions = class_directions(moments_of(rows))
    codes = np.repeat(np.arange(len(rows)), [len(part) for part in rows])
    within = within_of(rows, directions, full, projected)
    noise = class_noise(directions, within, rows=np.concatenate(rows), codes=codes)
    intervals = pair_intervals(directions, noise, optimal)
    null = null_intervals(directions, noise, intervals, optimal)
    deviation = deviations(intervals, optimal)
    judgement = judge(
        directions, intervals, deviation, beyond=beyond(null, optimal, tolerance), tolerance_deg=tolerance
    )
    return judgement, deviation, intervals, directions


def turned(means: np.ndarray, degrees: float) -> tuple[np.ndarray, tuple[int, int]]:
    """Turn the last class towards the nearest class that does not coincide with it, in the plane of both."""
    last = means.shape[0] - 1
    cosines = means[:last] @ means[last]
    cosines[cosines > 1 - 1e-6] = -np.inf
    nearest = int(cosines.argmax())
    across = means[nearest] - cosines[nearest] * means[last]
    if np.linalg.norm(across) < 1e-6:
        # Opposite classes span no plane: any direction leads towards the other one.
        across = np.linalg.svd(means)[2][-1]
    angle = math.radians(degrees)
    moved = means.copy()
    moved[last] = math.cos(angle) * means[last] + math.sin(angle) * unit(across)
    return moved, (nearest, last)


def optimum(counts: list[int], temperature: float = 0.5) -> np.ndarray:
    """Optimal Gram matrix of SupCon in the limit of large batches."""
    return np.array(og.solve(og.ClassDistribution.from_counts(counts), og.SupCon(temperature)).gram)


def repeated(runs: int, draw: Callable[[np.random.Generator], Judgement], seed: int = 0) -> list[Judgement]:
    """Verdicts of independent samples."""
    return [draw(np.random.default_rng([seed, run])) for run in range(runs)]
