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


def weighted_loss(weights: np.ndarray, tau: float, gram: np.ndarray) -> tuple[float, np.ndarray]:
    """Weighted InfoNCE over all samples, and its derivative in each entry of the Gram matrix, row by row."""
    n = weights.shape[0]
    value, slope = 0.0, np.zeros((n, n))
    for i in range(n):
        others = np.flatnonzero(np.arange(n) != i)
        total = weights[i, others].sum()
        if total == 0:
            continue
        wanted = weights[i, others] / total
        logits = gram[i, others] / tau
        top = logits.max()
        norm = top + math.log(np.exp(logits - top).sum())
        value += norm - float(wanted @ logits)
        slope[i, others] = (np.exp(logits - norm) - wanted) / tau
    return value / n, slope / n


def cosines_by_descents(
    objective: Any, optimum: np.ndarray, pair: tuple[int, int], slack: float, starts: int, seed: int
) -> tuple[float, float]:
    """Least and greatest cosine of the pair that descents from random rows find in the near-optimal set.

    Each descent lowers the risk of unit rows plus a random multiple of the cosine; where it ends outside the set, the
    way from there to the optimum, along which the risk is convex, enters it.
    """
    rng = np.random.default_rng(seed)
    size = optimum.shape[0]
    best = {1.0: float(optimum[pair]), -1.0: float(optimum[pair])}
    limit = objective(optimum)[0] + slack

    def tilted(flat: np.ndarray, tilt: float) -> tuple[float, np.ndarray]:
        raw = flat.reshape(size, size)
        norm = np.linalg.norm(raw, axis=1, keepdims=True)
        unit = raw / norm
        gram = unit @ unit.T
        risk, slope = objective(gram)
        slope[pair] -= tilt
        ambient = (slope + slope.T) @ unit
        ambient -= (ambient * unit).sum(axis=1, keepdims=True) * unit
        return (risk - tilt * float(gram[pair])) / slack, (ambient / norm).ravel() / slack

    for start in range(starts):
        sign = 1.0 if start % 2 else -1.0
        tilt = sign * math.exp(rng.uniform(math.log(slack), math.log(10 * math.sqrt(slack))))
        found = minimize(tilted, rng.standard_normal(size * size), args=(tilt,), jac=True, method="L-BFGS-B")
        rows = found.x.reshape(size, size)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        there = rows @ rows.T
        inside, outside = 0.0, 1.0
        if objective(there)[0] <= limit:
            inside = 1.0
        for _ in range(60 if inside < 1.0 else 0):
            middle = (inside + outside) / 2
            if objective(optimum + middle * (there - optimum))[0] <= limit:
                inside = middle
            else:
                outside = middle
        cosine = float(optimum[pair] + inside * (there[pair] - optimum[pair]))
        best[1.0], best[-1.0] = max(best[1.0], cosine), min(best[-1.0], cosine)
    return best[-1.0], best[1.0]


def extreme_by_conic_solver(weights: np.ndarray, tau: float, pair: tuple[int, int], limit: float, sign: float) -> float:
    """Greatest (sign 1) or least cosine of a pair of samples in the near-optimal set, by CVXPY and Clarabel."""
    import cvxpy as cp

    n = weights.shape[0]
    gram = cp.Variable((n, n), symmetric=True)
    terms = []
    for i in range(n):
        others = np.flatnonzero(np.arange(n) != i)
        total = weights[i, others].sum()
        if total > 0:
            row = gram[i, others] / tau
            terms.append(cp.log_sum_exp(row) - (weights[i, others] / total) @ row)
    constraints = [gram >> 0, cp.diag(gram) == 1, cp.sum(cp.hstack(terms)) / n <= limit]
    cp.Problem(cp.Maximize(sign * gram[pair]), constraints).solve(solver=cp.CLARABEL)
    return float(gram.value[pair])
