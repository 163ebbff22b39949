"""The weighted program against dense formulas, and its Bradley-Terry dual bound.

Rigorous, tight at the optimum, able to fail.
"""

from __future__ import annotations

import dataclasses
import warnings

import numpy as np
import pytest
from helpers.reference import expanded, random_gram
from hypothesis import given, settings
from hypothesis import strategies as st

from optgeom.certificates import certify
from optgeom.certificates.entropy_dual import lower_bound
from optgeom.errors import InvalidInputError
from optgeom.programs.weighted import WeightedProgram
from optgeom.realization.optimum import optimal_cosines, program_of
from optgeom.realization.spherical import feasible_shifts, target_cosines
from optgeom.realization.weights import Weights

Matrix = np.ndarray


# --- samples one by one, with plain numpy


def hollow(n: int) -> Matrix:
    return ~np.eye(n, dtype=bool)


def dense_rows(w: Matrix) -> Matrix:
    """w~; a row of zeros where there is no positive."""
    off = np.where(hollow(len(w)), w, 0.0)
    sums = off.sum(axis=1, keepdims=True)
    return off / np.where(sums > 0, sums, 1.0)


def dense_softmax(gram: Matrix, tau: float) -> Matrix:
    e = np.where(hollow(len(gram)), np.exp((gram - 1) / tau), 0.0)
    return e / e.sum(axis=1, keepdims=True)


def dense_loss(w: Matrix, gram: Matrix, tau: float) -> float:
    rows = dense_rows(w)
    held = rows > 0
    return float(-np.sum(rows[held] * np.log(dense_softmax(gram, tau)[held])) / len(w))


def dense_gradient(w: Matrix, gram: Matrix, tau: float) -> Matrix:
    """Half the derivative in A_ij = A_ji: (P + P' - w~ - w~')/(2 tau n), rows without a positive left out."""
    rows = dense_rows(w)
    excess = np.where(rows.sum(axis=1, keepdims=True) > 0, dense_softmax(gram, tau) - rows, 0.0)
    return (excess + excess.T) / (2 * tau * len(w))


def matrices() -> dict[str, Matrix]:
    rng = np.random.default_rng(0)
    y = rng.normal(size=(7, 2))
    labels = np.array([0, 0, 1, 2, 1, 0, 3])
    symmetric = np.exp(-((y[:, None] - y[None]) ** 2).sum(axis=-1) / 2)
    return {
        "y-aware": symmetric,
        "soft": np.where(labels[:, None] == labels[None], 1.0, 0.2),
        "hard": (labels[:, None] == labels[None]).astype(float),
        "asymmetric": rng.uniform(0.1, 2.0, size=(7, 7)),
        "far from symmetric": np.exp(rng.normal(size=(7, 7)) * 3),
    }


MATRICES = matrices()


def group_gram(weights: Weights, seed: int) -> Matrix:
    """Group-form Gram matrix in which the samples of a group differ: random group means within the ball."""
    rng = np.random.default_rng(seed)
    v = rng.normal(size=(weights.sizes.size, 4))
    radius = np.where(weights.sizes > 1, rng.uniform(0.3, 1.0, weights.sizes.size), 1.0)
    v *= (radius / np.linalg.norm(v, axis=1))[:, None]
    q, m = v @ v.T, weights.sizes
    np.fill_diagonal(q, np.where(m > 1, (m * np.diag(q) - 1) / np.maximum(m - 1, 1), 1.0))
    return q


@pytest.mark.parametrize("tau", [1.0, 0.15])
@pytest.mark.parametrize("name", MATRICES)
def test_loss_and_gradient_are_those_of_the_samples(name: str, tau: float) -> None:
    weights = Weights.from_matrix(MATRICES[name])
    program = program_of(weights, tau)
    for seed in range(3):
        cosines = group_gram(weights, seed)
        gram = expanded(weights, cosines)
        assert np.linalg.eigvalsh(gram)[0] > -1e-14
        assert program.risk(cosines) == pytest.approx(dense_loss(MATRICES[name], gram, tau), abs=1e-13)
        found = expanded(weights, program.gradient(cosines))
        assert found[hollow(7)] == pytest.approx(dense_gradient(MATRICES[name], gram, tau)[hollow(7)], abs=1e-13)


@pytest.mark.parametrize("name", MATRICES)
def test_gradient_and_hessian_by_finite_differences(name: str) -> None:
    tau, step = 0.5, 1e-5
    weights = Weights.from_matrix(MATRICES[name])
    program = program_of(weights, tau)
    cosines = group_gram(weights, 5)
    noise = np.random.default_rng(6).normal(size=cosines.shape)
    direction = np.where(weights.count > 0, noise + noise.T, 0.0)
    # <gradient, direction> over ordered pairs of samples.
    expected = (program.risk(cosines + step * direction) - program.risk(cosines - step * direction)) / (2 * step)
    pairs = weights.sizes[:, None] * weights.count
    assert float(np.sum(pairs * program.gradient(cosines) * direction)) == pytest.approx(expected, rel=1e-7)
    change = (program.gradient(cosines + step * direction) - program.gradient(cosines - step * direction)) / (2 * step)
    held = weights.count > 0
    assert program.gradient_derivative(cosines)(direction)[held] == pytest.approx(change[held], rel=1e-6, abs=1e-9)


def test_curvature_of_a_pair_is_the_diagonal_but_for_the_row() -> None:
    w, tau = MATRICES["asymmetric"], 0.4
    program = program_of(Weights.from_matrix(w), tau)
    gram = random_gram(7, 3, 1)
    p = dense_softmax(gram, tau)
    assert program.pair_curvature(gram, program.gradient(gram))[hollow(7)] == pytest.approx(
        ((p + p.T) / (2 * tau**2 * 7))[hollow(7)]
    )
    derivative = program.gradient_derivative(gram)
    for i, j in ((0, 1), (2, 6)):
        unit = np.zeros((7, 7))
        unit[i, j] = unit[j, i] = 1.0
        exact = (p[i, j] * (1 - p[i, j]) + p[j, i] * (1 - p[j, i])) / (2 * tau**2 * 7)
        assert derivative(unit)[i, j] == pytest.approx(exact)


def test_singletons_have_no_term_but_count() -> None:
    program = program_of(Weights.from_matrix(MATRICES["hard"]), 0.5)
    assert program.anchored.tolist() == [
        True,
        True,
        False,
    ]  # the two singletons are one group: nothing tells them apart
    assert program.sizes.tolist() == [3, 2, 2]
    p = program.probabilities(np.zeros((3, 3)))
    assert not p[2].any()
    assert p[:2] == pytest.approx(1 / 6)


@pytest.mark.parametrize("tau", [0.01, 100.0])
def test_extreme_temperatures_stay_finite(tau: float) -> None:
    program = program_of(Weights.from_matrix(MATRICES["y-aware"]), tau)
    gram = random_gram(7, 3, 2)
    assert np.isfinite(program.risk(gram)) and np.isfinite(program.gradient(gram)[hollow(7)]).all()
    assert np.isfinite(lower_bound(program, gram)) and lower_bound(program, gram) <= program.risk(gram)


# --- the bound never lies above the loss of any Gram matrix


def drawn(kind: str, n: int, seed: int) -> Weights:
    rng = np.random.default_rng(seed)
    if kind == "y-aware":
        return Weights.y_aware(rng.normal(size=(n, rng.integers(1, 4))))
    if kind == "asymmetric":
        return Weights.from_matrix(np.exp(rng.normal(size=(n, n)) * rng.uniform(0, 2)))
    labels = np.concatenate([[0, 0], rng.integers(0, 4, n - 2)])
    return Weights.supcon(labels) if kind == "hard" else Weights.soft_supcon(labels, float(rng.uniform(0.001, 1)))


def optimal(weights: Weights, tau: float) -> Matrix:
    """Optimal group-form cosines: the target itself where it is a Gram matrix, else the solver's."""
    if weights.symmetric and not weights.hard:
        found = feasible_shifts(weights, tau)
        if found.interval is not None:
            return target_cosines(weights, tau, found.best_shift)
    return optimal_cosines(weights, tau).cosines


KINDS = ("y-aware", "asymmetric", "hard", "soft")


@settings(derandomize=True, deadline=None, max_examples=80)
@given(
    kind=st.sampled_from(KINDS),
    n=st.integers(3, 14),
    tau=st.floats(0.05, 5.0),
    share=st.floats(0.0, 1.0),
    seed=st.integers(0, 2**32 - 1),
)
def test_bound_at_any_matrix_is_below_the_loss_of_every_other(
    kind: str, n: int, tau: float, share: float, seed: int
) -> None:
    weights = drawn(kind, n, seed)
    program = program_of(weights, tau)
    best = optimal(weights, tau)
    at = share * group_gram(weights, seed) + (1 - share) * best
    bound = lower_bound(program, at)
    assert bound <= program.risk(best) + 1e-13 * (1 + abs(program.risk(best)))
    for other in range(3):
        assert bound <= program.risk(group_gram(weights, seed + other + 1)) + 1e-13


@settings(derandomize=True, deadline=None, max_examples=40)
@given(n=st.integers(3, 9), tau=st.floats(0.1, 2.0), size=st.floats(0.0, 3.0), seed=st.integers(0, 2**32 - 1))
def test_bound_holds_at_matrices_that_are_no_gram_matrices(n: int, tau: float, size: float, seed: int) -> None:
    weights = drawn("y-aware", n, seed)
    noise = np.random.default_rng(seed).normal(size=(n, n)) * size
    at = noise + noise.T + np.eye(n)
    program = program_of(weights, tau)
    assert lower_bound(program, at) <= program.risk(optimal(weights, tau)) + 1e-12


def conic_optimum(w: Matrix, tau: float) -> float:
    """Loss of the answer of CVXPY + Clarabel, made feasible."""
    cp = pytest.importorskip("cvxpy")
    n, rows = len(w), dense_rows(w)
    gram = cp.Variable((n, n), PSD=True)
    hidden = np.where(np.eye(n) > 0, -1e3, 0.0)
    anchored = (rows.sum(axis=1) > 0).astype(float)
    norms = cp.log_sum_exp(gram / tau + hidden, axis=1)
    problem = cp.Problem(
        cp.Minimize((anchored @ norms - cp.sum(cp.multiply(rows, gram)) / tau) / n), [cp.diag(gram) == 1]
    )
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # "solution may be inaccurate": made feasible below, it is an upper bound whatever it is
        problem.solve(solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    values, vectors = np.linalg.eigh(np.asarray(gram.value))
    clipped = (vectors * np.maximum(values, 0.0)) @ vectors.T
    root = np.sqrt(np.diag(clipped))
    return dense_loss(w, clipped / np.outer(root, root), tau)


@pytest.mark.parametrize(
    ("kind", "n", "tau"),
    [("y-aware", 12, 0.5), ("y-aware", 20, 0.2), ("asymmetric", 14, 0.5), ("hard", 12, 0.5), ("soft", 16, 1.0)],
)
def test_a_conic_solver_agrees(kind: str, n: int, tau: float) -> None:
    weights = drawn(kind, n, 7)
    w = np.exp(weights.log_weights[np.ix_(weights.index, weights.index)])
    conic = conic_optimum(w, tau)
    found = optimal_cosines(weights, tau)
    assert found.certificate.lower_bound <= conic + 1e-13
    assert found.loss <= conic + 1e-13
    assert found.loss == pytest.approx(conic, abs=2e-7)


# --- tight at the optimum, in groups as apart


@pytest.mark.parametrize("tau", [1.0, 0.3])
@pytest.mark.parametrize("kind", KINDS)
def test_tight_at_the_optimum(kind: str, tau: float) -> None:
    found = optimal_cosines(drawn(kind, 15, 3), tau if kind != "soft" else 5 * tau)
    assert found.certificate.certified
    assert 0 <= found.certificate.gap <= 1e-9
    assert found.certificate.as_dict()["lower_bound"] == found.loss - found.certificate.gap


def apart(weights: Weights, tau: float) -> WeightedProgram:
    """The same program with every sample a group of its own."""
    rows = np.where(hollow(weights.n), np.exp(weights.log_rows)[np.ix_(weights.index, weights.index)], 0.0)
    ones = np.ones(weights.n, dtype=np.int64)
    return WeightedProgram(ones, hollow(weights.n).astype(float), rows, weights.with_positive[weights.index], tau)


@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_grouped_and_apart_give_the_same_bound(kind: str) -> None:
    weights, tau = drawn(kind, 13, 11), 0.6
    grouped, single = program_of(weights, tau), apart(weights, tau)
    best = optimal(weights, tau)
    for share in (0.0, 0.01, 0.3, 1.0):
        at = share * group_gram(weights, 2) + (1 - share) * best
        left, right = certify(grouped, at, tolerance=1e-9), certify(single, expanded(weights, at), tolerance=1e-9)
        assert left.risk == pytest.approx(right.risk, abs=1e-13)
        assert left.certificate.rank == right.certificate.rank
        assert left.certificate.gap == pytest.approx(right.certificate.gap, rel=1e-6, abs=1e-12)


# --- it can fail


@pytest.fixture(scope="module")
def optimum() -> tuple[WeightedProgram, Matrix]:
    weights = drawn("y-aware", 12, 4)
    program = program_of(weights, 0.5)
    found = optimal_cosines(weights, 0.5)
    assert certify(program, found.cosines, tolerance=1e-9).certificate.certified
    return program, found.cosines


def test_a_wrong_weight_fails(optimum: tuple[WeightedProgram, Matrix]) -> None:
    program, cosines = optimum
    rows = program.rows.copy()
    rows[0, 1], rows[0, 2] = rows[0, 1] + 1e-3, rows[0, 2] - 1e-3
    assert not certify(dataclasses.replace(program, rows=rows), cosines, tolerance=1e-9).certificate.certified


def test_two_rows_exchanged_fail(optimum: tuple[WeightedProgram, Matrix]) -> None:
    program, cosines = optimum
    order = np.arange(len(cosines))
    order[[0, 1]] = 1, 0
    assert not certify(program, cosines[np.ix_(order, order)], tolerance=1e-9).certificate.certified


@pytest.mark.parametrize("factor", [0.999, 1.001])
def test_another_temperature_fails(optimum: tuple[WeightedProgram, Matrix], factor: float) -> None:
    program, cosines = optimum
    assert not certify(
        dataclasses.replace(program, temperature=0.5 * factor), cosines, tolerance=1e-9
    ).certificate.certified


@pytest.mark.parametrize("share", [1e-3, 0.1, 1.0])
def test_a_mixture_with_the_identity_fails(optimum: tuple[WeightedProgram, Matrix], share: float) -> None:
    program, cosines = optimum
    assert not certify(
        program, share * np.eye(len(cosines)) + (1 - share) * cosines, tolerance=1e-9
    ).certificate.certified


def test_a_perturbed_matrix_fails(optimum: tuple[WeightedProgram, Matrix]) -> None:
    program, cosines = optimum
    moved = 0.999 * cosines + 0.001 * random_gram(len(cosines), 3, 8)
    found = certify(program, moved, tolerance=1e-9).certificate
    assert not found.certified and found.primal_shift < 1e-14
    assert found.gap >= program.risk(moved) - program.risk(cosines)


def test_a_matrix_that_is_not_feasible_fails(optimum: tuple[WeightedProgram, Matrix]) -> None:
    program, cosines = optimum
    found = certify(program, cosines - 1e-6 * np.ones_like(cosines), tolerance=1.0).certificate
    assert not found.certified and found.primal_shift > 1e-7
    assert found.gap < 1e-3  # the shift alone refuses it


@pytest.mark.parametrize("tolerance", [0, -1e-9, float("nan")])
def test_a_tolerance_that_is_not_positive_is_an_error(
    optimum: tuple[WeightedProgram, Matrix], tolerance: float
) -> None:
    with pytest.raises(InvalidInputError, match=r"`tolerance` must be > 0; got .* \(the default is 1e-8\)"):
        certify(*optimum, tolerance=tolerance)
