"""Solvers for weights whose optimum has nearly full rank, each by itself.

Primal-dual Newton, augmented Lagrangian, barrier.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from helpers.reference import expanded

from optgeom.certificates import Certified, certify
from optgeom.certificates.repair import repair
from optgeom.programs.weighted import WeightedProgram
from optgeom.realization.api import realize
from optgeom.realization.optimum import optimal_cosines, program_of, start_cosines
from optgeom.realization.weights import Weights
from optgeom.solvers import primal_dual
from optgeom.solvers.augmented_lagrangian import AugmentedLagrangian
from optgeom.solvers.barrier import Barrier
from optgeom.solvers.base import Solver
from optgeom.solvers.primal_dual import PrimalDual

Matrix = np.ndarray[Any, np.dtype[np.float64]]


def problem(n: int, dim: int, tau: float) -> tuple[WeightedProgram, Matrix]:
    weights = Weights.y_aware(np.random.default_rng(0).normal(size=(n, dim)))
    program = program_of(weights, tau)
    return program, repair(start_cosines(weights, tau), weights.sizes).cosines


def judge_of(program: WeightedProgram) -> Any:
    def judge(gram: Matrix) -> Certified:
        return certify(program, repair(gram, program.sizes).cosines, tolerance=1e-9)

    return judge


def run(solver: Solver, program: WeightedProgram, start: Matrix, judge: Any) -> tuple[Any, int]:
    attempt = solver.solve(program, start, judge)
    return (None, 0) if attempt is None else (attempt.certified, attempt.iterations)


# Computed with CVXPY and Clarabel at the default tolerances (agreement to 1e-10, printed in the derivation of this
# program).
PRINTED = [(1, 0.5, 3.5437936865), (3, 0.2, 3.0764791644)]


@pytest.mark.parametrize(("dim", "tau", "loss"), PRINTED)
def test_primal_dual_agrees_with_a_conic_solver(dim: int, tau: float, loss: float) -> None:
    program, start = problem(40, dim, tau)
    found, steps = run(PrimalDual(good_gap=1e-10), program, start, judge_of(program))
    assert found is not None and found.certificate.certified and steps < 40
    assert found.risk == pytest.approx(loss, abs=1e-9)


@pytest.mark.parametrize(("dim", "tau", "loss"), PRINTED)
def test_augmented_lagrangian_agrees_with_a_conic_solver(dim: int, tau: float, loss: float) -> None:
    program, start = problem(40, dim, tau)
    found, _ = run(AugmentedLagrangian(good_gap=1e-10), program, start, judge_of(program))
    assert found.certificate.certified
    assert found.risk == pytest.approx(loss, abs=1e-9)


@pytest.mark.parametrize("tau", [0.05, 0.1])
def test_the_methods_meet_where_the_rank_is_high(tau: float) -> None:
    program, start = problem(60, 3, tau)
    fast, _ = run(PrimalDual(good_gap=1e-10), program, start, judge_of(program))
    safe, _ = run(AugmentedLagrangian(good_gap=1e-10), program, start, judge_of(program))
    assert fast is not None and fast.certificate.certified and fast.certificate.rank > 0.9 * 60
    assert abs(fast.risk - safe.risk) <= safe.certificate.gap + 1e-10
    assert safe.risk >= fast.certificate.lower_bound - 1e-13


def test_asymmetric_weights() -> None:
    rng = np.random.default_rng(4)
    matrix = np.exp(0.3 * rng.normal(size=(24, 24)))
    np.fill_diagonal(matrix, 0.0)
    weights = Weights.from_matrix(matrix)
    program = program_of(weights, 0.3)
    start = repair(start_cosines(weights, 0.3), weights.sizes).cosines
    found, _ = run(PrimalDual(good_gap=1e-11), program, start, judge_of(program))
    assert found is not None
    assert abs(found.risk - optimal_cosines(weights, 0.3).loss) <= found.certificate.gap + 1e-9


def test_inverse_of_the_hessian() -> None:
    program, gram = problem(9, 2, 0.4)
    inverse = primal_dual._Inverse(program, gram, primal_dual._Frame(program, 1.0))
    rng = np.random.default_rng(1)
    direction = rng.normal(size=(9, 9))
    direction += direction.T
    np.fill_diagonal(direction, 0.0)
    # The Hessian by differences of the gradient of n L; a constant off the diagonal is what neither sees.
    step = 1e-5
    image = 9 * (program.gradient(gram + step * direction) - program.gradient(gram - step * direction)) / (2 * step)
    np.fill_diagonal(image, 0.0)
    back = inverse(image)
    off = ~np.eye(9, dtype=bool)
    rest = (back - direction)[off]
    assert np.ptp(rest) == pytest.approx(0.0, abs=1e-4)


def test_where_pairs_have_no_curvature_nothing_is_returned() -> None:
    # Neighbours at e^-20000: their probabilities underflow.
    weights = Weights.y_aware(np.random.default_rng(0).normal(size=(12, 3)), bandwidth=0.01)
    program = program_of(weights, 1e-4)
    start = repair(start_cosines(weights, 1e-4), weights.sizes).cosines
    found, _ = run(PrimalDual(good_gap=1e-10), program, start, judge_of(program))
    assert found is None or not found.certificate.certified


def test_samples_without_a_positive_are_left_to_the_other_method() -> None:
    labels = [0, 0, 1, 2, 3]
    assert not primal_dual.applies(program_of(Weights.supcon(labels), 0.5))
    assert primal_dual.applies(problem(9, 2, 0.4)[0])


@pytest.mark.parametrize(
    ("n", "dim", "tau", "solver"), [(90, 2, 0.3, "low-rank staircase"), (100, 3, 0.05, "primal-dual Newton")]
)
def test_the_method_that_does_not_fit_is_left_after_few_steps(
    n: int, dim: int, tau: float, solver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first optimum looks full in its first columns, but has rank 18 of 90.

    The second is nearly realizable, where the primal-dual method needs 19 steps.
    """
    taken = []
    step = primal_dual._newton_step
    monkeypatch.setattr(primal_dual, "_newton_step", lambda *given: taken.append(1) or step(*given))
    weights = Weights.y_aware(np.random.default_rng(0).normal(size=(n, dim)))
    found = optimal_cosines(weights, tau)
    assert found.certificate.certified
    assert found.solver == solver
    assert len(taken) <= 24


# --- groups


def repeated(sizes: list[int], dim: int, seed: int = 0) -> Matrix:
    return np.repeat(np.random.default_rng(seed).normal(size=(len(sizes), dim)), sizes, axis=0)


def grouped_and_apart(labels: Matrix, tau: float) -> tuple[Weights, WeightedProgram, WeightedProgram]:
    """The same program in group form and with one group per sample, its rows written down from the labels."""
    weights = Weights.y_aware(labels)
    n = len(labels)
    w = np.exp(-((labels[:, None] - labels[None]) ** 2).sum(axis=-1) / 2)
    np.fill_diagonal(w, 0.0)
    rows = w / w.sum(axis=1, keepdims=True)
    apart = WeightedProgram(np.ones(n, dtype=np.int64), 1.0 - np.eye(n), rows, np.ones(n, dtype=bool), tau)
    return weights, program_of(weights, tau), apart


# Sizes with and without single samples; at the lower temperatures nearly realizable, at the higher ones groups that
# coincide.
@pytest.mark.parametrize(
    ("sizes", "dim", "tau"),
    [([3, 1, 5, 2, 7, 4, 1, 6, 2, 9, 3, 8], 2, 0.1), ([2, 5, 3, 1, 4] * 6, 3, 0.05), ([4, 2, 1] * 5, 2, 0.4)],
)
def test_groups_have_the_optimum_of_their_samples(sizes: list[int], dim: int, tau: float) -> None:
    weights, program, apart = grouped_and_apart(repeated(sizes, dim), tau)
    assert program.sizes.tolist() == sizes
    start = repair(start_cosines(weights, tau), weights.sizes).cosines
    together, _ = run(PrimalDual(good_gap=1e-11), program, start, judge_of(program))
    single, _ = run(AugmentedLagrangian(good_gap=1e-11), apart, expanded(weights, start), judge_of(apart))
    assert together is not None and together.certificate.gap < 1e-10
    assert together.risk == pytest.approx(apart.risk(expanded(weights, together.cosines)), abs=1e-12)
    assert together.risk == pytest.approx(single.risk, abs=1e-10 + single.certificate.gap)
    assert single.risk >= together.certificate.lower_bound - 1e-13


def test_groups_agree_with_a_conic_solver() -> None:
    cp = pytest.importorskip("cvxpy")
    tau = 0.1
    weights, program, apart = grouped_and_apart(repeated([3, 1, 4, 2, 2, 5, 1, 4], 2), tau)
    start = repair(start_cosines(weights, tau), weights.sizes).cosines
    found, _ = run(PrimalDual(good_gap=1e-11), program, start, judge_of(program))
    n = apart.num_samples
    gram = cp.Variable((n, n), PSD=True)
    norms = cp.log_sum_exp(gram / tau + np.where(np.eye(n) > 0, -1e3, 0.0), axis=1)
    problem = cp.Problem(
        cp.Minimize((cp.sum(norms) - cp.sum(cp.multiply(apart.rows, gram)) / tau) / n), [cp.diag(gram) == 1]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "solution may be inaccurate": it is made feasible below
        problem.solve(solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    conic = apart.risk(repair(np.asarray(gram.value), apart.sizes).cosines)
    assert found is not None and found.certificate.certified
    assert found.certificate.lower_bound <= conic + 1e-13
    assert found.risk == pytest.approx(conic, abs=1e-7)


def test_a_step_in_group_form_is_the_step_of_the_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(primal_dual, "ACCURACY", 1e-8)
    monkeypatch.setattr(primal_dual, "PRODUCTS", 5000)
    sizes, tau = [3, 1, 5, 2, 7, 4, 1, 6], 0.3
    weights, program, apart = grouped_and_apart(repeated(sizes, 3), tau)
    gram = repair(start_cosines(weights, tau), weights.sizes).cosines
    root_mean = float(np.sqrt(np.mean(sizes)))
    together, single = primal_dual._Frame(program, 1.0), primal_dual._Frame(apart, root_mean)
    single.most = apart.num_samples
    assert together.penalty == pytest.approx(single.penalty)
    dual, dual_apart = primal_dual._dual_start(program, gram), primal_dual._dual_start(apart, expanded(weights, gram))
    assert np.sum(dual.rest > 0) >= 1  # a group wants to coincide
    step = primal_dual._newton_step(program, together, gram, dual)
    step_apart = primal_dual._newton_step(apart, single, expanded(weights, gram), dual_apart)
    assert expanded(weights, step.gram) == pytest.approx(step_apart.gram, abs=1e-6)
    assert step.violation * root_mean == pytest.approx(step_apart.violation, rel=1e-9)


def test_a_thousand_samples_of_sixty_labels_near_realizable() -> None:
    rng = np.random.default_rng(0)
    labels = rng.normal(size=(60, 3))
    weights = Weights.y_aware(np.repeat(labels, rng.integers(5, 31, size=60), axis=0))
    assert weights.n == 1110
    found = optimal_cosines(weights, 0.05)
    assert found.certificate.certified and found.solver == "primal-dual Newton"
    assert found.rank > 0.9 * weights.n
    # The certificate, recomputed from the weights and the matrix alone.
    again = certify(program_of(weights, 0.05), found.cosines, tolerance=1e-9)
    assert again.certificate.certified and again.risk == pytest.approx(found.loss, abs=1e-13)


# --- barrier method


@pytest.mark.parametrize(("dim", "tau", "loss"), PRINTED)
def test_barrier_method_agrees_with_a_conic_solver(dim: int, tau: float, loss: float) -> None:
    program, start = problem(40, dim, tau)
    found, steps = run(Barrier(good_gap=1e-11), program, start, judge_of(program))
    assert found is not None and found.certificate.certified and steps < 300
    assert found.risk == pytest.approx(loss, abs=1e-9)
    # Full rank inside, but not in the answer.
    assert (
        found.certificate.rank
        == optimal_cosines(Weights.y_aware(np.random.default_rng(0).normal(size=(40, dim))), tau).rank
        < 40
    )


@pytest.mark.parametrize("tau", [0.1, 0.4])
def test_barrier_method_on_groups(tau: float) -> None:
    weights, program, apart = grouped_and_apart(repeated([3, 1, 5, 2, 7, 4, 1, 6], 2), tau)
    start = repair(start_cosines(weights, tau), weights.sizes).cosines
    together, _ = run(Barrier(good_gap=1e-11), program, start, judge_of(program))
    single, _ = run(Barrier(good_gap=1e-11), apart, np.eye(apart.num_samples), judge_of(apart))
    assert together is not None and single is not None
    assert together.certificate.gap < 1e-10 and single.certificate.gap < 1e-10
    assert together.risk == pytest.approx(single.risk, abs=1e-10)


def test_barrier_method_leaves_many_groups_alone() -> None:
    program, start = problem(65, 2, 0.2)
    assert run(Barrier(good_gap=1e-10), program, start, judge_of(program)) == (None, 0)


@pytest.mark.parametrize(
    ("n", "bandwidth", "tau"), [(12, 0.1, 0.01), (12, 0.01, 1e-4), (30, 0.1, 0.01), (30, 0.01, 1e-4)]
)
def test_neighbours_at_the_edge_of_numbers(n: int, bandwidth: float, tau: float) -> None:
    """Weights of e^-300 and less; the bound is missed only by pairs whose weights no sum sees."""
    labels = np.random.default_rng(0).normal(size=(n, 3))
    logs = -((labels[:, None] - labels[None]) ** 2).sum(axis=-1) / (2 * bandwidth**2)
    np.fill_diagonal(logs, -np.inf)
    logs -= np.logaddexp.reduce(logs, axis=1)[:, None]
    rows, others = np.exp(logs), ~np.eye(n, dtype=bool)
    bound = -float(np.sum(rows[others] * logs[others])) / n
    realization = realize(Weights.y_aware(labels, bandwidth), temperature=tau)
    assert realization.certified and realization.regime == "inconsistent"
    assert realization.entropic_bound == pytest.approx(bound, abs=1e-12)
    z = realization.embedding()
    similarity = z @ z.T / tau
    np.fill_diagonal(similarity, -np.inf)
    log_p = similarity - np.logaddexp.reduce(similarity, axis=1)[:, None]
    loss = -float(np.sum(rows[others] * log_p[others])) / n
    assert bound - 1e-12 <= loss <= bound + 2e-9
