"""The best embedding in a dimension below what the optimum needs, by search: an upper bound, never certified."""

from __future__ import annotations

import numpy as np

from optgeom._numerics import Array, logsumexp_rows
from optgeom.certificates.few_dimensions import all_are_tried, best_signs
from optgeom.errors import InvalidInputError
from optgeom.programs.weighted import WeightedProgram
from optgeom.realization import euclidean
from optgeom.realization.weights import Weights
from optgeom.solvers import limited

RANDOM_STARTS = 4
LARGEST = 3000  # samples: every one is placed by itself


def _apart(weights: Weights) -> tuple[Array, Array]:
    """(n, n) w~ and the number of samples of each pair, 1 off the diagonal."""
    if weights.n > LARGEST:
        raise InvalidInputError(
            f"`dim` below what the optimum needs is searched for up to {LARGEST} samples; got {weights.n} "
            "(leave `dim` out, or take fewer)"
        )
    rows = np.exp(weights.log_rows)[np.ix_(weights.index, weights.index)]
    np.fill_diagonal(rows, 0.0)
    return rows, 1.0 - np.eye(weights.n)


def loss_of(weights: Weights, temperature: float, similarity: str, points: Array) -> float:
    """Loss of (n, dim) points, every one placed by itself."""
    rows, count = _apart(weights)
    products = points @ points.T
    if similarity == "euclidean":
        square = np.diag(products)
        products = np.minimum(2 * products - square[:, None] - square[None, :], 0.0)
    return _program(weights, temperature, rows, count).risk(products)


def least_on_sphere(weights: Weights, temperature: float, dim: int) -> float:
    """The least loss of unit rows in `dim` dimensions, where it is proved: few samples on a line. Else -inf."""
    if not all_are_tried(weights.n, dim):
        return -np.inf
    rows, count = _apart(weights)
    return best_signs(_program(weights, temperature, rows, count))[1]


def _program(weights: Weights, temperature: float, rows: Array, count: Array) -> WeightedProgram:
    """The program with one group per sample."""
    ones = np.ones(weights.n, dtype=np.int64)
    return WeightedProgram(ones, count, rows, weights.with_positive[weights.index], temperature)


def best_on_sphere(weights: Weights, temperature: float, dim: int, relaxed: Array) -> tuple[Array, int]:
    """(n, dim) unit rows, and trust-region steps, from several seeded starts.

    `relaxed` (G, G) is the optimum without a limit, whose leading eigenvectors are the first start.
    """
    rows, count = _apart(weights)
    program = _program(weights, temperature, rows, count)
    full = relaxed[np.ix_(weights.index, weights.index)]
    np.fill_diagonal(full, 1.0)
    gram, _, steps = limited.best_found(program, full, dim)
    values, axes = np.linalg.eigh(gram)
    points = axes[:, -dim:] * np.sqrt(np.maximum(values[-dim:], 0.0))
    return points / np.linalg.norm(points, axis=1)[:, None], steps


def best_in_space(weights: Weights, temperature: float, dim: int, *, near: Weights | None = None) -> tuple[Array, int]:
    """(n, dim) points for the Euclidean similarity, and iterations, from classical scaling and seeded random starts.

    `near` are the symmetric weights to scale; the weights themselves by default.
    """
    from scipy.optimize import minimize

    rows, count = _apart(weights)
    n = weights.n
    anchored = weights.with_positive[weights.index]
    hidden = np.where(count > 0, 0.0, -np.inf)

    def loss(flat: Array) -> tuple[float, Array]:
        z = flat.reshape(n, dim)
        square = (z**2).sum(axis=1)
        distance = np.maximum(square[:, None] + square[None, :] - 2 * z @ z.T, 0.0) / temperature
        norm = logsumexp_rows(hidden - distance)
        value = float(np.sum(np.where(anchored, norm + (rows * distance).sum(axis=1), 0.0)) / n)
        excess = np.where(anchored[:, None], rows - np.exp(hidden - distance - norm[:, None]), 0.0)
        pull = (excess + excess.T) / (n * temperature)
        return value, (2 * (pull.sum(axis=1)[:, None] * z - pull @ z)).ravel()

    rng = np.random.default_rng(0)
    starts = [rng.standard_normal((n, dim)) * np.sqrt(temperature) for _ in range(RANDOM_STARTS)]
    target = weights if near is None else near
    if target.symmetric and not target.hard:
        spectrum = euclidean.target_spectrum(target, temperature)
        scaled = euclidean.embedding(target, temperature, spectrum.largest_shift)
        starts.insert(0, np.pad(scaled, ((0, 0), (0, max(0, dim - scaled.shape[1]))))[:, :dim])
    best: tuple[Array, float] | None = None
    steps = 0
    for start in starts:
        local = minimize(
            loss, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 2000, "maxfun": 4000, "gtol": 1e-10}
        )
        steps += int(local.nit)
        if best is None or local.fun < best[1]:
            best = (local.x.reshape(n, dim), float(local.fun))
    assert best is not None
    return best[0] - best[0].mean(axis=0), steps
