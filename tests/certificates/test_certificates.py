"""Certificates.

Their figures against a dense implementation of the formulas, the bound that they promise, repair, uniqueness.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers.reference import LIMIT, build, case, collapsed, off_diagonal, program_of, random_gram
from hypothesis import given, settings
from hypothesis import strategies as st

from optgeom.certificates import certify
from optgeom.errors import InvalidInputError
from optgeom.inputs.classes import ClassDistribution
from optgeom.losses.base import Loss
from optgeom.losses.infonce import InfoNCE
from optgeom.losses.supcon import SupCon, SupConFullBatch
from optgeom.programs.class_mean import ClassMeanProgram, lift
from optgeom.solvers.newton import solve_newton

# --- the figures, computed a second time
# -------------------------------------------------------------------------------------------


def dense_gradient(
    gram: np.ndarray, anchor: np.ndarray, offset: np.ndarray, weight: np.ndarray, tau: float
) -> np.ndarray:
    """Half the derivative of sum_i anchor_i log(offset_i + sum_j weight_ij x_ij) in A_ij = A_ji."""
    x = np.exp((gram - 1) / tau) * weight
    pull = anchor[:, None] * x / (offset + x.sum(axis=1))[:, None] / tau
    return (pull + pull.T) / 2


def dense_gap(gram: np.ndarray, gradient: np.ndarray) -> float:
    nu = (gradient * gram).sum(axis=1)
    dual = gradient - np.diag(nu)
    gaps = [len(gram) * max(0.0, -np.linalg.eigvalsh(dual)[0])]
    if np.all(nu < 0):
        d = 1 / np.sqrt(-nu)
        gaps.append(max(0.0, -np.linalg.eigvalsh(dual * np.outer(d, d))[0]) * float(np.sum(-nu)))
    return min(gaps)


def dense_backward_error(gram: np.ndarray, gradient: np.ndarray) -> float:
    nu = (gradient * gram).sum(axis=1)
    if np.any(nu >= 0):
        return math.inf
    d = 1 / np.sqrt(-nu)
    values, vectors = np.linalg.eigh((gradient - np.diag(nu)) * np.outer(d, d))
    part = (vectors * np.maximum(values, 0.0)) @ vectors.T / np.outer(d, d)
    worst = 0.0
    for i in range(len(gram)):
        for j in range(len(gram)):
            if i != j and gradient[i, j] > 0:
                worst = max(worst, abs(gradient[i, j] - part[i, j]) / gradient[i, j])
            elif i != j:
                worst = max(worst, abs(part[i, j]) / math.sqrt(part[i, i] * part[j, j]))
    return worst


COUNTS = [70, 40, 25, 25, 12, 7, 3]
LAM = np.array(COUNTS) / sum(COUNTS)
ZERO_PAIR = np.full((7, 7), 1 / 7)
ZERO_PAIR[0, 1] = ZERO_PAIR[1, 0] = 0.0
ZERO_PAIR /= ZERO_PAIR.sum(axis=1, keepdims=True)


def dense_case(name: str, tau: float) -> tuple[Loss, np.ndarray, np.ndarray, np.ndarray]:
    """Loss with the anchor weights, offsets and negative weights of its log-sum rows."""
    hollow = 1 - np.eye(7)
    if name == "ucl":
        return InfoNCE(tau, **LIMIT), LAM, LAM, LAM * hollow
    if name == "scl":
        return (
            InfoNCE(tau, math.inf, 1.0, "mean", "scl"),
            LAM,
            np.ones(7),
            LAM * hollow / (LAM * hollow).sum(axis=1, keepdims=True),
        )
    if name == "explicit":
        return (
            InfoNCE(tau, math.inf, 1.0, "mean", negative_law=ZERO_PAIR),
            LAM,
            1 + np.diag(ZERO_PAIR),
            ZERO_PAIR * hollow,
        )
    return SupConFullBatch(tau), LAM, np.array(COUNTS) - 1.0, np.array(COUNTS) * hollow


@pytest.mark.parametrize("tau", [1.0, 0.2])
@pytest.mark.parametrize("name", ["ucl", "scl", "explicit", "full"])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.3, 1.0])  # of a random Gram matrix in the mixture with the simplex
def test_figures_match_a_dense_implementation(name: str, tau: float, share: float) -> None:
    loss, anchor, offset, weight = dense_case(name, tau)
    gram = share * random_gram(7, 6, seed=3) + (1 - share) * off_diagonal(-0.9 / 6, 7)
    gradient = dense_gradient(gram, anchor, offset, weight, tau)
    judged = certify(program_of(COUNTS, loss, grouped=False), gram)
    certificate = judged.certificate
    assert not certificate.certified
    assert certificate.gap == pytest.approx(dense_gap(gram, gradient), rel=1e-9)
    assert certificate.backward_error == pytest.approx(dense_backward_error(gram, gradient), rel=1e-9)
    assert judged.risk == pytest.approx(
        float(anchor @ np.log(offset + (weight * np.exp((gram - 1) / tau)).sum(axis=1))), abs=1e-13
    )
    assert certificate.lower_bound == judged.risk - certificate.gap
    assert certificate.primal_shift <= 1e-14


@pytest.mark.parametrize(
    "loss", [InfoNCE(0.5, **LIMIT), InfoNCE(0.5, 5, 1.0, "sum", "scl"), SupCon(0.3, 6, 1), SupConFullBatch(0.4)]
)
@pytest.mark.parametrize("share", [0.999, 0.9, 0.5])
def test_grouped_and_full_forms_give_the_same_figures(loss: Loss, share: float) -> None:
    counts = [3, 9, 3, 3, 1, 9, 2]
    grouped, apart = program_of(counts, loss), program_of(counts, loss, grouped=False)
    cosines = solve_newton(grouped).cosines
    single = (grouped.sizes == 1) & (np.eye(grouped.sizes.size) > 0)
    cosines = np.where(single, 1.0, share * cosines)  # feasible: a mixture with the identity
    full = lift(grouped, cosines)
    left, right = certify(grouped, cosines), certify(apart, full)
    assert left.risk == pytest.approx(right.risk, abs=1e-13)
    assert left.certificate.rank == right.certificate.rank
    for figure in ("gap", "backward_error"):
        assert getattr(left.certificate, figure) == pytest.approx(getattr(right.certificate, figure), rel=1e-8)


# --- the gap is a bound
# ---


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    classes=st.integers(2, 6),
    dimension=st.integers(1, 6),
    tau=st.floats(0.05, 10.0),
    share=st.floats(0.0, 1.0),
    kind=st.sampled_from(["ucl", "scl", "k3", "one-view", "full"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_lower_bound_never_exceeds_the_balanced_optimum(
    classes: int, dimension: int, tau: float, share: float, kind: str, seed: int
) -> None:
    """Balanced classes: the regular simplex is optimal (closed form)."""
    losses: dict[str, Loss] = {
        "ucl": InfoNCE(tau, **LIMIT),
        "scl": InfoNCE(tau, math.inf, 1.0, "mean", "scl"),
        "k3": InfoNCE(tau, 3, 1.0),
        "one-view": SupCon(tau, 4, 1),
        "full": SupConFullBatch(tau),
    }
    program = program_of([3] * classes, losses[kind], grouped=False)
    simplex = off_diagonal(-1 / (classes - 1), classes)
    optimum = certify(program, simplex)
    assert optimum.certificate.certified, optimum.certificate
    assert optimum.certificate.rank == classes - 1
    gram = share * random_gram(classes, dimension, seed) + (1 - share) * simplex
    judged = certify(program, gram)
    assert judged.certificate.lower_bound <= optimum.risk + 1e-13 * (1 + abs(optimum.risk))
    assert judged.risk >= optimum.risk - 1e-13 * (1 + abs(optimum.risk))


@pytest.mark.parametrize("cosine", [-0.99999, -0.5, 0.0, 0.9])
@pytest.mark.parametrize("tau", [1.0, 0.1])
def test_two_classes_are_opposite(cosine: float, tau: float) -> None:
    program = program_of([9, 1], InfoNCE(tau, **LIMIT))
    optimum = certify(program, off_diagonal(-1.0, 2))
    assert optimum.certificate.certified
    assert (optimum.certificate.rank, optimum.certificate.unique) == (1, True)
    judged = certify(program, off_diagonal(cosine, 2))
    assert not judged.certificate.certified
    assert judged.certificate.lower_bound <= optimum.risk


@pytest.mark.parametrize("name", ["three-classes-strong", "partial-collapse-5", "infonce-k4-scl"])
def test_lower_bound_never_exceeds_a_reference_optimum(name: str) -> None:
    known = case(name)
    program = ClassMeanProgram.build(*build(known), grouped=False)
    for seed in range(5):
        gram = random_gram(program.num_classes, 3, seed)
        assert certify(program, gram).certificate.lower_bound <= known["risk"] + 1e-13


# --- repair


@pytest.mark.parametrize("grouped", [True, False])
def test_case_29_a_small_negative_eigenvalue_is_clipped_and_reported(grouped: bool) -> None:
    program = program_of([4, 4, 4], InfoNCE(0.5, **LIMIT), grouped)
    cosine = -0.5 - 5e-7  # eigenvalue 1 + 2 cosine = -1e-6
    judged = certify(program, np.array([[cosine]]) if grouped else off_diagonal(cosine, 3))
    assert judged.eigenvalues[0] == pytest.approx(-1e-6, rel=1e-6)
    assert judged.certificate.primal_shift == pytest.approx(5e-7, rel=1e-3)
    gram = lift(program, judged.cosines)
    assert np.all(np.diag(gram) == 1.0)
    np.testing.assert_allclose(gram, off_diagonal(-0.5, 3), atol=1e-13)
    assert np.linalg.eigvalsh(gram)[0] >= -1e-15
    assert not judged.certificate.certified
    assert (
        judged.certificate.gap < 1e-12
    )  # the repaired matrix is optimal: the shift alone refuses what the solver returned


@pytest.mark.parametrize("seed", range(4))
def test_repair_makes_any_symmetric_matrix_feasible(seed: int) -> None:
    noise = np.random.default_rng(seed).normal(size=(5, 5))
    program = program_of([9, 7, 5, 3, 2], InfoNCE(0.5, **LIMIT))
    judged = certify(program, noise + noise.T)
    assert np.all(np.diag(judged.cosines) == 1.0)
    assert np.linalg.eigvalsh(judged.cosines)[0] >= -1e-14
    assert judged.certificate.primal_shift > 0.1
    assert not judged.certificate.certified


# --- uniqueness and rank
# ---


def test_a_triangle_is_rigid_but_a_pentagon_is_not() -> None:
    """k = 1, alpha = 0, UCL: every A with A lam = 0 is optimal when no class has the majority."""
    linear = InfoNCE(0.5, 1, 0.0)
    a, b, c = 4, 3, 2
    triangle = np.array(
        [
            [1.0, (c * c - a * a - b * b) / (2 * a * b), (b * b - a * a - c * c) / (2 * a * c)],
            [(c * c - a * a - b * b) / (2 * a * b), 1.0, (a * a - b * b - c * c) / (2 * b * c)],
            [(b * b - a * a - c * c) / (2 * a * c), (a * a - b * b - c * c) / (2 * b * c), 1.0],
        ]
    )
    judged = certify(program_of([a, b, c], linear), triangle)
    assert (judged.certificate.certified, judged.certificate.unique, judged.certificate.rank) == (True, True, 2)
    pentagon = certify(program_of([1] * 5, linear, grouped=False), off_diagonal(-0.25, 5))
    assert (pentagon.certificate.certified, pentagon.certificate.unique, pentagon.certificate.rank) == (True, False, 4)
    assert pentagon.risk == pytest.approx(-2.0, abs=1e-13)


@pytest.mark.parametrize("loss", [InfoNCE(0.5, 1, 0.0), InfoNCE(1.0, **LIMIT)])
def test_total_collapse_is_certified_and_unique(loss: Loss) -> None:
    program = program_of([97, 2, 1], loss)
    judged = certify(program, collapsed(3))
    assert (judged.certificate.certified, judged.certificate.unique, judged.certificate.rank) == (True, True, 1)


def test_a_pair_without_a_force_may_leave_the_optimum_open() -> None:
    """Class 0 repels 1 and 2, which ignore each other: both go to its antipode, whatever the weights."""
    law = np.array([[0.0, 0.5, 0.5], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    program = program_of([3, 2, 1], InfoNCE(0.5, math.inf, 1.0, "mean", negative_law=law))
    judged = certify(program, collapsed(3))
    assert (judged.certificate.certified, judged.certificate.unique) == (True, True)
    # Four classes in two pairs that ignore each other: the angle between the pairs is free.
    pairs = np.array([[0.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 1.0, 0.0]])
    apart = np.kron(np.eye(2), np.array([[1.0, -1.0], [-1.0, 1.0]]))
    judged = certify(program_of([4, 3, 2, 1], InfoNCE(0.5, math.inf, 1.0, "mean", negative_law=pairs)), apart)
    assert (judged.certificate.certified, judged.certificate.unique, judged.certificate.rank) == (True, False, 2)


def test_no_force_at_all_is_not_certified_and_a_bad_tolerance_is_an_error() -> None:
    program = program_of([3, 2, 1], InfoNCE(0.5, math.inf, 1.0, "mean", negative_law=np.eye(3)))
    judged = certify(program, np.eye(3))
    assert (judged.certificate.certified, judged.certificate.gap) == (False, math.inf)
    with pytest.raises(InvalidInputError, match=r"`tolerance` must be > 0; got 0 \(the default is 1e-8\)"):
        certify(program, np.eye(3), tolerance=0)


@pytest.mark.parametrize(("classes", "groups"), [(10**6, 500), (10**7, 500), (10**7, 650), (10**8, 1000)])
def test_millions_of_classes_are_certified_and_their_neighbours_are_not(classes: int, groups: int) -> None:
    """The largest eigenvalue is the number of classes: its rounding alone exceeds the limit of the backward error."""
    counts = np.arange(1, groups + 1)
    sizes = np.maximum(1, np.floor(counts**-1.5 / np.sum(counts**-1.5) * classes)).astype(np.int64)
    sizes[0] += classes - sizes.sum()
    program = ClassMeanProgram.build(ClassDistribution.from_groups(counts, sizes), SupCon(0.1))
    judged = certify(program, solve_newton(program).cosines)
    assert judged.certificate.certified, judged.certificate
    moved = judged.cosines.copy()
    moved[-1, -2] = moved[-2, -1] = moved[-1, -2] + 1e-6
    assert not certify(program, moved).certificate.certified
