"""The rivals, written as their users write them; nothing here goes through optgeom."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp, softmax

Array = npt.NDArray[np.float64]
LIMIT_SECONDS = 1800.0  # a rival that has not finished by then stops with whatever it has
LIMIT_OPTION = {"CLARABEL": "time_limit", "SCS": "time_limit_secs"}
NAMES = {"CLARABEL": "CVXPY + Clarabel", "SCS": "CVXPY + SCS"}
NEVER = -1e3  # exp(-1000) = 0 takes a sample's own entry out of its sum


@dataclass(frozen=True)
class Answer:
    """A Gram matrix with the solver's own opinion of it."""

    gram: Array
    status: str
    solver_seconds: float
    iterations: int

    @property
    def note(self) -> str:
        return f"status {self.status}, {self.iterations} iterations"


@dataclass(frozen=True)
class RowsProgram:
    """sum_i r_i log sum_j exp(o_ij + A_ij/tau) - <L, A>/tau  over A positive semidefinite with diag A = 1.

    Class means with infinitely many negatives and weighted InfoNCE both have this form. `weights` (n,) are r, `offsets`
    (n, n) are o, NEVER where j is no term of row i, `linear` (n, n) is L or None.
    """

    weights: Array
    offsets: Array
    temperature: float
    linear: Array | None = None

    def value(self, gram: Array) -> float:
        total = float(self.weights @ logsumexp(self.offsets + gram / self.temperature, axis=1))
        return total if self.linear is None else total - float(np.sum(self.linear * gram)) / self.temperature

    def shares(self, gram: Array) -> Array:
        """(n, n) softmax of each row."""
        return np.asarray(softmax(self.offsets + gram / self.temperature, axis=1))


def supcon_limit(proportions: Array, temperature: float) -> RowsProgram:
    """The limit of SupCon for large batches: sum_i p_i log sum_j p_j exp((A_ij - 1)/tau)."""
    offsets = np.broadcast_to(np.log(proportions) - 1 / temperature, (proportions.size,) * 2)
    return RowsProgram(proportions, offsets, temperature)


def scl_limit(proportions: Array, temperature: float) -> RowsProgram:
    """InfoNCE, alpha 0, infinitely many negatives of other classes.

    The risk is sum_i p_i log sum_{j != i} p_j/(1 - p_i) exp((A_ij - 1)/tau).
    """
    law = np.log(proportions)[None, :] - np.log1p(-proportions)[:, None] - 1 / temperature
    return RowsProgram(proportions, np.where(np.eye(proportions.size, dtype=bool), NEVER, law), temperature)


def y_aware(labels: Array, temperature: float) -> RowsProgram:
    """Weighted InfoNCE with weights exp(-|y_i - y_j|^2/2), cosine similarity."""
    n = len(labels)
    w = np.exp(-((labels[:, None] - labels[None]) ** 2).sum(axis=-1) / 2)
    return weighted_infonce(w, temperature, n)


def weighted_infonce(w: Array, temperature: float, n: int) -> RowsProgram:
    held = np.where(np.eye(n, dtype=bool), 0.0, w)
    offsets = np.where(np.eye(n, dtype=bool), NEVER, 0.0)
    return RowsProgram(np.full(n, 1 / n), offsets, temperature, held / held.sum(axis=1, keepdims=True) / n)


def conic(program: RowsProgram, solver: str) -> Answer:
    """The program in CVXPY, one vectorised log-sum-exp, with the default tolerances of the solver."""
    import cvxpy as cp

    gram = cp.Variable(program.offsets.shape, PSD=True)
    objective = program.weights @ cp.log_sum_exp(gram / program.temperature + program.offsets, axis=1)
    if program.linear is not None:
        objective = objective - cp.sum(cp.multiply(program.linear, gram)) / program.temperature
    problem = cp.Problem(cp.Minimize(objective), [cp.diag(gram) == 1])
    return _solved(problem, gram, solver)


def conic_by_rows(program: RowsProgram, solver: str) -> Answer:
    """The same program as `conic` with one log-sum-exp per row, without the entries that are not terms.

    It has fewer cones where the own entry is left out.
    """
    import cvxpy as cp

    n, tau = program.weights.size, program.temperature
    gram = cp.Variable((n, n), PSD=True)
    terms = [np.flatnonzero(row > NEVER) for row in program.offsets]
    sums = cp.hstack([cp.log_sum_exp(gram[i, js] / tau + program.offsets[i, js]) for i, js in enumerate(terms)])
    objective = program.weights @ sums
    if program.linear is not None:
        objective = objective - cp.sum(cp.multiply(program.linear, gram)) / tau
    return _solved(cp.Problem(cp.Minimize(objective), [cp.diag(gram) == 1]), gram, solver)


@dataclass(frozen=True)
class RangeEnd:
    """Where one cosine is extreme among geometries up to a risk, and the derivative of that least risk in it."""

    answer: Answer
    tilt: float


def conic_end(
    program: RowsProgram, pair: tuple[int, int], sign: float, limit: float, options: Mapping[str, float]
) -> RangeEnd:
    """Greatest (sign 1) or least (-1) cosine of a pair over all geometries whose risk is at most `limit`.

    One conic program for Clarabel, whose multiplier gives the tilt: no search for it as in the tilted program.
    """
    import cvxpy as cp

    gram = cp.Variable(program.offsets.shape, PSD=True)
    within = program.weights @ cp.log_sum_exp(gram / program.temperature + program.offsets, axis=1) <= limit
    problem = cp.Problem(cp.Maximize(sign * gram[pair]), [cp.diag(gram) == 1, within])
    answer = _solved(problem, gram, "CLARABEL", **options)
    return RangeEnd(answer, 1.0 / float(within.dual_value))


def _solved(problem: Any, gram: Any, solver: str, **options: float) -> Answer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "solution may be inaccurate": the certificate says how inaccurate
        problem.solve(solver=solver, **{LIMIT_OPTION[solver]: LIMIT_SECONDS}, **options)
    if gram.value is None or not np.all(np.isfinite(gram.value)):
        raise RuntimeError(f"no finite matrix, status {problem.status}")
    stats = problem.solver_stats
    return Answer(
        np.asarray(gram.value), str(problem.status), float(stats.solve_time or np.nan), int(stats.num_iters or 0)
    )


def oblique(program: RowsProgram, gradient_norm: float = 1e-6, limit: float = LIMIT_SECONDS) -> Answer:
    """pymanopt: Riemannian trust regions on A = V'V, unit columns, V square, one seeded random start.

    Gradient and Hessian product are exact and written in numpy, so that nothing is lost to automatic differentiation.
    With V square every second-order critical point is optimal. `gradient_norm` 1e-6 is pymanopt's default.
    """
    import pymanopt

    n, tau = program.weights.size, program.temperature
    manifold = pymanopt.manifolds.Oblique(n, n)
    rows = program.weights[:, None]
    linear = 0.0 if program.linear is None else program.linear
    cache: dict[str, Any] = {}

    def at(v: Array) -> tuple[Array, Array]:
        """Softmax of the rows and symmetric gradient with respect to A, computed once per point."""
        if cache.get("v") is not v:
            shares = program.shares(v.T @ v)
            force = (rows * shares - linear) / tau
            cache.update(v=v, value=(shares, force + force.T))
        return cache["value"]  # type: ignore[no-any-return]

    @pymanopt.function.numpy(manifold)  # type: ignore[untyped-decorator]
    def cost(v: Array) -> float:
        return program.value(v.T @ v)

    @pymanopt.function.numpy(manifold)  # type: ignore[untyped-decorator]
    def gradient(v: Array) -> Array:
        return v @ at(v)[1]

    @pymanopt.function.numpy(manifold)  # type: ignore[untyped-decorator]
    def hessian(v: Array, direction: Array) -> Array:
        shares, force = at(v)
        turned = direction.T @ v
        turned = turned + turned.T
        moved = rows * shares * (turned - np.sum(shares * turned, axis=1, keepdims=True)) / tau**2
        return np.asarray(direction @ force + v @ (moved + moved.T))

    start = np.random.default_rng(0).normal(size=(n, n))
    optimizer = pymanopt.optimizers.TrustRegions(max_time=limit, min_gradient_norm=gradient_norm, verbosity=0)
    problem = pymanopt.Problem(manifold, cost, euclidean_gradient=gradient, euclidean_hessian=hessian)
    found = optimizer.run(problem, initial_point=start / np.linalg.norm(start, axis=0))
    why = found.stopping_criterion.removeprefix("Terminated - ").split(" reached")[0]
    return Answer(found.point.T @ found.point, why, float(found.time), int(found.iterations))


def smacof(distances: Array, dim: int, init: str = "classical_mds") -> tuple[Array, float, int]:
    """scikit-learn's metric multidimensional scaling: (n, dim) points, their stress, iterations."""
    from sklearn.manifold import MDS

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scaling = MDS(dim, metric="precomputed", init=init, n_init=1, random_state=0, normalized_stress=False)
        points = np.asarray(scaling.fit_transform(distances))
    return points, float(scaling.stress_), int(scaling.n_iter_)


def on_sphere(points: Array) -> Array:
    """Unit rows about the centre that fits the points best: |p - c|^2 as constant as least squares can make it."""
    system = np.hstack([2 * points, np.ones((len(points), 1))])
    centre = np.linalg.lstsq(system, np.sum(points**2, axis=1), rcond=None)[0][:-1]
    moved = points - centre
    return np.asarray(moved / np.linalg.norm(moved, axis=1, keepdims=True))
