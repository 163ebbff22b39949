"""Geometries that some loss has, made without the package: class means of which a positive combination vanishes."""

from __future__ import annotations

import numpy as np


def balanced_gram(classes: int, rank: int, seed: int) -> np.ndarray:
    """Gram matrix of random unit vectors v_i in `rank` dimensions with sum_i z_i v_i = 0 for some z > 0."""
    rng = np.random.default_rng(seed)
    weights = rng.uniform(0.3, 2.0, classes)
    points = rng.normal(size=(classes, rank))
    points -= np.outer(weights, weights @ points) / (weights @ weights)
    # Unit lengths: the combination vanishes with the weights times the old lengths.
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    gram = points @ points.T
    np.fill_diagonal(gram, 1.0)
    return gram


def limit_risk(
    gram: np.ndarray, anchor: np.ndarray, offset: np.ndarray, weights: np.ndarray, temperature: np.ndarray
) -> float:
    """sum_i r_i log( o_i + sum_{j != i} w_ij exp((A_ij - 1)/T_i) ), as it is written."""
    total = 0.0
    for i in range(len(anchor)):
        others = sum(weights[i, j] * np.exp((gram[i, j] - 1) / temperature[i]) for j in range(len(anchor)) if j != i)
        total += anchor[i] * np.log(offset[i] + others)
    return float(total)
