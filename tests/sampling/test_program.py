"""The sampling program and its certificate.

Derivatives by differences, CVXPY at small n, bounds that hold for every matrix.
"""

from __future__ import annotations

import math

import cvxpy as cp
import numpy as np
import pytest
from helpers.reference import random_gram

from optgeom.certificates import certify
from optgeom.certificates.entropy_dual import lower_bound_with_anchors as lower_bound
from optgeom.programs.sampling import SamplingProgram
from optgeom.programs.weighted import WeightedProgram
from optgeom.sampling.caps import Cap
from optgeom.sampling.conditionals import Mixture, Slice, VonMisesFisher
from optgeom.sampling.optimum import global_optimum
from optgeom.sampling.points import point_set
from optgeom.sampling.rings import solve_rings
from optgeom.solvers.low_rank import LowRank

TAU = 0.3


def by_cvxpy(program):
    """The program as it stands, with Clarabel: (loss, Gram matrix)."""
    n, tau = program.num_samples, program.temperature
    a = cp.Variable((n, n), PSD=True)
    terms = []
    for i in range(n):
        seen = np.flatnonzero(program.masses[i] > 0)
        terms.append(cp.log_sum_exp(a[i, seen] / tau + np.log(program.masses[i, seen])) - program.rows[i] @ a[i] / tau)
    problem = cp.Problem(cp.Minimize(cp.sum(cp.hstack(terms)) / n), [cp.diag(a) == 1])
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-8, tol_gap_rel=1e-8, tol_feas=1e-8)
    return float(problem.value), a.value


def random_program(n, seed, rho=0.0):
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.ones(n), size=n)
    label = rng.integers(0, 2, n)
    same = label[:, None] == label[None, :]
    rows = np.where(same, rows, 0.0) if rho == 1 else rows
    return SamplingProgram(rows / rows.sum(axis=1)[:, None], 1 - rho + 2 * rho * same, TAU)


def test_the_anchor_with_no_mass_is_the_weighted_program():
    n = 9
    rows = np.random.default_rng(0).dirichlet(np.ones(n), size=n)
    np.fill_diagonal(rows, 0.0)
    rows /= rows.sum(axis=1)[:, None]
    ones = np.ones(n, dtype=np.int64)
    weighted = WeightedProgram(ones, 1 - np.eye(n), rows, ones > 0, TAU)
    ours = SamplingProgram(rows, 1 - np.eye(n), TAU)
    gram = random_gram(n, 4, 1)
    assert ours.risk(gram) == pytest.approx(weighted.risk(gram), abs=1e-13)
    np.testing.assert_allclose(ours.gradient(gram), weighted.gradient(gram), atol=1e-14)


@pytest.mark.parametrize("rho", [0.0, 0.3, 1.0])
def test_derivatives_are_differences(rho):
    program, gram = random_program(8, 2, rho), random_gram(8, 5, 3)
    direction = random_gram(8, 5, 4) - np.eye(8)
    h = 1e-5
    up, down = gram + h * direction, gram - h * direction
    slope = (program.risk(up) - program.risk(down)) / (2 * h)
    assert float(np.sum(program.gradient(gram) * direction)) == pytest.approx(slope, abs=1e-8)
    change = (program.gradient(up) - program.gradient(down)) / (2 * h)
    np.testing.assert_allclose(program.gradient_derivative(gram)(direction), change, atol=1e-8)


@pytest.mark.parametrize("rho", [0.0, 0.3, 1.0])
def test_bound_holds_for_every_matrix_and_is_tight_at_the_optimum(rho):
    program = random_program(8, 5, rho)
    optimum, _ = by_cvxpy(program)
    for seed in range(20):
        start = random_gram(8, 1 + seed % 8, seed)
        assert lower_bound(program, start) <= optimum + 1e-8
        # Even where it is no Gram matrix at all.
        assert lower_bound(program, start + 0.3 * (1 - np.eye(8))) <= optimum + 1e-8
    # Clarabel's cosines are only good to 1e-4 here; at those of another solver the bound is the optimum.
    found = (
        LowRank(extra=8).solve(program, np.eye(8), lambda cosines: certify(program, cosines, tolerance=1e-9)).certified
    )
    assert found.certificate.certified
    assert lower_bound(program, found.cosines) == pytest.approx(found.risk, abs=1e-9)
    assert found.risk == pytest.approx(optimum, abs=1e-7)
    assert program.bound <= optimum + 1e-8


CASES = [
    (Slice(3, 1 / TAU, (2,)), 6, 5, 0.0),
    (Slice(3, 1 / TAU, (2,)), 5, 4, 0.5),
    (Slice(3, 1 / TAU, (2,), "reported"), 4, 6, 0.0),
    (Slice(3, 1 / TAU, (2,), "reported"), 4, 4, 1.0),
    (Slice(3, 1 / TAU, (1, 2)), 10, 2, 0.0),
    (Slice(4, 2.0, (3,)), 3, 6, 0.0),
    (Slice(4, 2.0, (2, 3)), 5, 4, 0.2),
    (Cap(3, 70.0, 1.0), 4, 5, 0.0),
    (Cap(3, 100.0, 1.0), 4, 5, 0.4),
    (Cap(3, 120.0, 0.5), 4, 5, 1.0),
    (VonMisesFisher(3, 5.0), 4, 5, 0.0),
    (Slice(6, 2.0, (5,)), 4, 6, 0.3),
    (Mixture((Slice(3, 8.0, (2,)), Slice(3, 1.0, (2,))), (0.4, 0.6)), 5, 5, 0.2),
    (Mixture((Slice(3, 1 / TAU, (2,)), VonMisesFisher(3, 1 / TAU)), (0.8, 0.2)), 4, 5, 0.0),
]


@pytest.mark.parametrize(("law", "slices", "each", "rho"), CASES)
def test_optimum_agrees_with_cvxpy(law, slices, each, rho):
    held = point_set(law, slices, each, self_included=True)
    found = global_optimum(held, TAU, rho)
    value, gram = by_cvxpy(held.program(TAU, rho))
    assert found.certified
    assert found.loss == pytest.approx(value, abs=2e-7)
    assert found.lower_bound <= value + 1e-7
    if rho < 1:
        np.testing.assert_allclose(
            found.cosines, gram, atol=2e-3
        )  # the optimum is flat: Clarabel's cosines are the less accurate ones


def test_rings_and_the_general_solver_agree():
    """The symmetric solver against the staircase, which knows nothing of rings."""
    held = point_set(Slice(3, 1 / TAU, (2,)), 8, 6)
    program = held.program(TAU)
    gram, _ = solve_rings(held, TAU, 0.0)
    general = LowRank(extra=16, growth=6).solve(
        program,
        held.points @ held.points.T,
        lambda cosines: certify(program, cosines, tolerance=1e-9),
    )
    assert general.certified.certificate.certified
    assert program.risk(gram) == pytest.approx(general.certified.risk, abs=1e-8)
    np.testing.assert_allclose(gram, general.certified.cosines, atol=1e-4)


@pytest.mark.parametrize("spoil", ["perturbed", "identity", "latents", "indefinite"])
def test_certificate_can_fail(spoil):
    held = point_set(Slice(3, 1 / TAU, (2,)), 6, 5)
    program = held.program(TAU)
    gram, _ = solve_rings(held, TAU, 0.0)
    assert certify(program, gram, tolerance=1e-9).certificate.certified
    noise = np.random.default_rng(0).standard_normal(gram.shape) * (1 - np.eye(30))
    wrong = {
        "perturbed": gram + 1e-3 * (noise + noise.T),
        "identity": np.eye(30),
        "latents": held.points @ held.points.T,
        "indefinite": gram - 0.3 * (1 - np.eye(30)),
    }[spoil]
    assert not certify(program, wrong, tolerance=1e-9).certificate.certified


def test_entropic_bound_by_hand():
    rows = np.array([[0.75, 0.25], [0.25, 0.75]])
    program = SamplingProgram(rows, np.array([[1.0, 2.0], [2.0, 1.0]]), 1.0)
    assert program.bound == pytest.approx(-(0.75 * math.log(0.75) + 0.25 * math.log(0.125)), abs=1e-14)
