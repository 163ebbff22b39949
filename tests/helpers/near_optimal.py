"""Near-optimal ranges by other means: the risk written out, and descents from random starts."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
from scipy.optimize import minimize

import optgeom as og


def law(text: str) -> tuple[og.ClassDistribution, og.Loss]:
    """Classes and loss of a case in golden-2.json, from its words."""
    found = re.search(r"([\d.]+(?:,[\d.]+)+) tau ([\d.]+)", text)
    assert found is not None
    classes = og.ClassDistribution.from_counts([int(count) for count in found.group(1).split(",")])
    tau = float(found.group(2))
    if text.startswith("supcon"):
        return classes, og.SupCon(temperature=tau)
    words = re.search(r"k (\w+) (sum|mean) alpha (\d) (UCL|SCL)", text)
    assert words is not None
    number, reduction, alpha, sampling = words.groups()
    negatives = math.inf if number == "inf" else int(number)
    return classes, og.InfoNCE(
        temperature=tau,
        negatives=negatives,
        alpha=float(alpha),
        negatives_reduction=reduction,
        sampling=sampling.lower(),
    )


def limit_risk(
    proportions: np.ndarray, tau: float, alpha: float, others_only: bool, gram: np.ndarray
) -> tuple[float, np.ndarray]:
    """InfoNCE with infinitely many negatives, averaged, and its derivative in each entry of the Gram matrix."""
    p = np.tile(proportions, (proportions.size, 1))
    if others_only:
        np.fill_diagonal(p, 0.0)
        p /= p.sum(axis=1, keepdims=True)
    terms = p * np.exp((gram - 1) / tau)
    sums = alpha + terms.sum(axis=1)
    slope = proportions[:, None] * terms / sums[:, None] / tau
    np.fill_diagonal(slope, 0.0)
    return float(proportions @ np.log(sums)), slope


def extreme_by_descent(
    objective: Any, classes: int, pair: tuple[int, int], limit: float, sign: float, seed: int
) -> float | None:
    """Cosine of the pair after a constrained descent over unit rows from one random start.

    None where it ends outside the near-optimal set.
    """
    dim = classes
    rng = np.random.default_rng(seed)

    def rows(flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        raw = flat.reshape(classes, dim)
        norm = np.linalg.norm(raw, axis=1, keepdims=True)
        return raw / norm, norm

    def pulled(slope: np.ndarray, unit: np.ndarray, norm: np.ndarray) -> np.ndarray:
        ambient = (slope + slope.T) @ unit
        ambient -= (ambient * unit).sum(axis=1, keepdims=True) * unit
        return np.asarray((ambient / norm).ravel())

    def cosine(flat: np.ndarray) -> tuple[float, np.ndarray]:
        unit, norm = rows(flat)
        slope = np.zeros((classes, classes))
        slope[pair] = 1.0
        return -sign * float(unit[pair[0]] @ unit[pair[1]]), -sign * pulled(slope, unit, norm)

    def room(flat: np.ndarray) -> float:
        unit, _ = rows(flat)
        return (limit - objective(unit @ unit.T)[0]) / max(abs(limit), 1e-3)

    def room_slope(flat: np.ndarray) -> np.ndarray:
        unit, norm = rows(flat)
        return -pulled(objective(unit @ unit.T)[1], unit, norm) / max(abs(limit), 1e-3)

    start = rng.standard_normal(classes * dim)
    found = minimize(
        cosine,
        start,
        jac=True,
        method="SLSQP",
        constraints=[{"type": "ineq", "fun": room, "jac": room_slope}],
        options={"maxiter": 300, "ftol": 1e-12},
    )
    unit, _ = rows(found.x)
    gram = unit @ unit.T
    return float(gram[pair]) if objective(gram)[0] <= limit else None
