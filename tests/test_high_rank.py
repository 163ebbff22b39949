"""Solvers for weights whose optimum has nearly full rank, each by itself: primal-dual Newton and the augmented Lagrangian."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from optgeom.certificates.repair import repair
from optgeom.certificates.weighted import WeightedCertified, certify_weighted
from optgeom.programs.weighted import WeightedProgram
from optgeom.realization.optimum import optimal_cosines, program_of, start_cosines
from optgeom.realization.weights import Weights
from optgeom.solvers import primal_dual
from optgeom.solvers.augmented_lagrangian import solve_augmented_lagrangian
from optgeom.solvers.primal_dual import solve_primal_dual

Matrix = np.ndarray[Any, np.dtype[np.float64]]


def problem(n: int, dim: int, tau: float) -> tuple[WeightedProgram, Matrix]:
    weights = Weights.y_aware(np.random.default_rng(0).normal(size=(n, dim)))
    program = program_of(weights, tau)
    return program, repair(start_cosines(weights, tau), weights.sizes).cosines


def judge_of(program: WeightedProgram) -> Any:
    def judge(gram: Matrix) -> WeightedCertified:
        return certify_weighted(program, repair(gram, program.sizes).cosines)

    return judge


# Computed with CVXPY and Clarabel at the default tolerances (agreement to 1e-10, printed in the derivation of this program).
PRINTED = [(1, 0.5, 3.5437936865), (3, 0.2, 3.0764791644)]


@pytest.mark.parametrize(("dim", "tau", "loss"), PRINTED)
def test_primal_dual_agrees_with_a_conic_solver(dim: int, tau: float, loss: float) -> None:
    program, start = problem(40, dim, tau)
    found, steps = solve_primal_dual(program, start, judge_of(program), 1e-10)
    assert found is not None and found.certificate.certified and steps < 40
    assert found.risk == pytest.approx(loss, abs=1e-9)


@pytest.mark.parametrize(("dim", "tau", "loss"), PRINTED)
def test_augmented_lagrangian_agrees_with_a_conic_solver(dim: int, tau: float, loss: float) -> None:
    program, start = problem(40, dim, tau)
    found, _ = solve_augmented_lagrangian(program, start, judge_of(program), 1e-10)
    assert found.certificate.certified
    assert found.risk == pytest.approx(loss, abs=1e-9)


@pytest.mark.parametrize("tau", [0.05, 0.1])
def test_the_methods_meet_where_the_rank_is_high(tau: float) -> None:
    program, start = problem(60, 3, tau)
    fast, _ = solve_primal_dual(program, start, judge_of(program), 1e-10)
    safe, _ = solve_augmented_lagrangian(program, start, judge_of(program), 1e-10)
    assert fast is not None and fast.certificate.certified and fast.rank > 0.9 * 60
    assert abs(fast.risk - safe.risk) <= safe.certificate.gap + 1e-10
    assert safe.risk >= fast.certificate.lower_bound - 1e-13


def test_asymmetric_weights() -> None:
    rng = np.random.default_rng(4)
    matrix = np.exp(0.3 * rng.normal(size=(24, 24)))
    np.fill_diagonal(matrix, 0.0)
    weights = Weights.from_matrix(matrix)
    program = program_of(weights, 0.3)
    start = repair(start_cosines(weights, 0.3), weights.sizes).cosines
    found, _ = solve_primal_dual(program, start, judge_of(program), 1e-11)
    assert found is not None
    assert abs(found.risk - optimal_cosines(weights, 0.3).loss) <= found.certificate.gap + 1e-9


def test_inverse_of_the_hessian() -> None:
    program, gram = problem(9, 2, 0.4)
    inverse = primal_dual._Inverse(program, gram)
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
    found, _ = solve_primal_dual(program, start, judge_of(program), 1e-10)
    assert found is None or not found.certificate.certified


def test_samples_without_a_positive_are_left_to_the_other_method() -> None:
    labels = [0, 0, 1, 2, 3]
    assert not primal_dual.applies(program_of(Weights.supcon(labels), 0.5))
    assert primal_dual.applies(problem(9, 2, 0.4)[0])


@pytest.mark.parametrize(("n", "dim", "tau", "solver"), [(90, 2, 0.3, "low-rank staircase"), (100, 3, 0.05, "primal-dual Newton")])
def test_the_method_that_does_not_fit_is_left_after_few_steps(
    n: int, dim: int, tau: float, solver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Full in its first columns, but of rank 18 of 90; and nearly realizable, where the primal-dual method needs 19 steps."""
    taken = []
    step = primal_dual._newton_step
    monkeypatch.setattr(primal_dual, "_newton_step", lambda *given: taken.append(1) or step(*given))
    weights = Weights.y_aware(np.random.default_rng(0).normal(size=(n, dim)))
    found = optimal_cosines(weights, tau)
    assert found.certificate.certified
    assert found.solver == solver
    assert len(taken) <= 24
