"""A certificate must be able to fail.

Everything that is not the optimum of the program at hand is refused, and every optimum accepted.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.reference import LIMIT, build, case, collapsed, geometry_cases, gram_entries, off_diagonal, program_of

from optgeom.certificates import Certified, certify
from optgeom.losses.base import Loss
from optgeom.losses.infonce import InfoNCE
from optgeom.losses.supcon import SupCon, SupConFullBatch
from optgeom.programs.class_mean import ClassMeanProgram
from optgeom.solvers.conic import solve_conic
from optgeom.solvers.newton import solve_newton

SOLVED: list[tuple[list[int], Loss]] = [
    ([50, 25, 26], InfoNCE(1.0, **LIMIT)),
    ([50, 30, 18, 11, 6], InfoNCE(0.1, **LIMIT)),
    ([5000, 1, 1, 2], InfoNCE(0.07, **LIMIT)),
    ([6, 3, 1], InfoNCE(1.0, 4, 1.0, "sum", "scl")),
    ([9, 7, 6, 4], SupCon(0.5, 8, 1)),
    ([9, 7, 6, 4], SupConFullBatch(0.3)),
]


def solved(counts: list[int], loss: Loss) -> tuple[ClassMeanProgram, np.ndarray]:
    program = program_of(counts, loss)
    judged = certify(program, solve_newton(program).cosines)
    assert judged.certificate.certified, judged.certificate
    return program, np.array(judged.cosines)


def refused(judged: Certified) -> None:
    assert not judged.certificate.certified, judged.certificate
    assert not judged.certificate.unique
    assert judged.certificate.reason


def renormalised(gram: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(gram)
    part = (vectors * np.maximum(values, 0.0)) @ vectors.T
    scale = np.sqrt(np.diag(part))
    return part / np.outer(scale, scale)


def noisy(gram: np.ndarray) -> np.ndarray:
    noise = np.random.default_rng(0).normal(size=gram.shape)
    return renormalised(gram + 1e-5 * (noise + noise.T))


def flipped_pair(gram: np.ndarray) -> np.ndarray:
    flipped = gram.copy()
    flipped[-1, -2] = flipped[-2, -1] = -gram[-1, -2]
    return flipped


def flipped_class(gram: np.ndarray) -> np.ndarray:
    signs = np.ones(len(gram))
    signs[-1] = -1
    return gram * np.outer(signs, signs)


def swapped(gram: np.ndarray) -> np.ndarray:
    order = np.arange(len(gram))
    order[[0, -1]] = order[[-1, 0]]
    return gram[np.ix_(order, order)]


def without_a_dimension(gram: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(gram)
    values[:2] = 0.0
    return renormalised((vectors * values) @ vectors.T)


MUTATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "noise of 1e-5": noisy,
    "one pair flipped": flipped_pair,
    "one class flipped": flipped_class,
    "all flipped": lambda gram: np.where(np.eye(len(gram)) > 0, 1.0, -gram),
    "two classes swapped": swapped,
    "one dimension less": without_a_dimension,
    "shrunk by 1e-6": lambda gram: np.where(np.eye(len(gram)) > 0, 1.0, (1 - 1e-6) * gram),
    "identity": lambda gram: np.eye(len(gram)),
    "all equal": np.ones_like,
    "simplex": lambda gram: off_diagonal(-1 / (len(gram) - 1), len(gram)),
    "collapse": lambda gram: collapsed(len(gram)),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
@pytest.mark.parametrize(("counts", "loss"), SOLVED)
def test_mutated_matrices_are_refused(counts: list[int], loss: Loss, mutation: str) -> None:
    program, gram = solved(counts, loss)
    refused(certify(program, MUTATIONS[mutation](gram)))


@pytest.mark.parametrize(
    "other",
    [
        program_of([50, 30, 18, 11, 6], InfoNCE(0.1001, **LIMIT)),
        program_of([50, 30, 18, 11, 6], InfoNCE(0.1, **LIMIT, sampling="scl")),
        program_of([50, 30, 18, 11, 6], InfoNCE(0.1, 10**6, 0.0, "mean")),
        program_of([50, 30, 18, 11, 6], InfoNCE(0.1, math.inf, 1e-3, "mean")),
        program_of([500_001, 300_000, 180_000, 110_000, 60_000], InfoNCE(0.1, **LIMIT)),
        program_of([50, 30, 18, 11, 6], InfoNCE(0.1, **LIMIT)).resampled(0.9999),
    ],
    ids=["temperature", "law", "negatives", "alpha", "counts", "sampler"],
)
def test_the_optimum_of_another_program_is_refused(other: ClassMeanProgram) -> None:
    _, gram = solved([50, 30, 18, 11, 6], InfoNCE(0.1, **LIMIT))
    refused(certify(other, gram))


@pytest.mark.parametrize("name", ["partial-collapse-5", "partial-collapse-zipf2-20"])
def test_the_raw_newton_answer_of_a_collapsed_case_is_refused(name: str) -> None:
    """It satisfies the dual equations to rounding, with a risk below the optimum.

    Only the repair shows that it is infeasible.
    """
    known = case(name)
    program = ClassMeanProgram.build(*build(known))
    raw = solve_newton(program)
    assert raw.converged
    assert program.risk(raw.cosines) < known["risk"] - 1e-9
    judged = certify(program, raw.cosines)
    refused(judged)
    assert judged.certificate.primal_shift > 1e-4
    assert judged.certificate.backward_error > 1e-4
    assert judged.certificate.lower_bound < known["risk"] < judged.risk
    assert "to become feasible" in judged.certificate.reason


@pytest.mark.parametrize("name", ["flat-objective-two-classes", "flat-objective-5000-1-1"])
def test_the_conic_answer_of_a_flat_case_is_refused(name: str) -> None:
    """The solver says "optimal" and the gap agrees.

    The cosines are wrong in the second digit, and the backward error says so.
    """
    known = case(name)
    program = ClassMeanProgram.build(*build(known))
    answer = solve_conic(program)
    assert answer.status == "optimal"
    assert abs(answer.cosines[0, 1] - gram_entries(known)[0, 1]) > 1e-2
    judged = certify(program, answer.cosines)
    refused(judged)
    assert judged.certificate.gap < 1e-8
    assert "backward error" in judged.certificate.reason


@pytest.mark.parametrize(
    "known", [k for k in geometry_cases() if not k["name"].startswith("partial")], ids=lambda k: k["name"]
)
def test_reference_cases_are_certified(known: dict[str, Any]) -> None:
    program = ClassMeanProgram.build(*build(known))
    judged = certify(program, solve_newton(program).cosines)
    assert judged.certificate.certified, judged.certificate
    assert judged.certificate.unique
    assert judged.certificate.gap <= 1e-10 * (1 + abs(judged.risk))
    assert judged.certificate.rank == known.get("rank", program.num_classes - 1)
    assert judged.risk == pytest.approx(known["risk"], rel=1e-9)
    json.dumps(judged.certificate.as_dict(), allow_nan=False)
    assert judged.certificate.reason == ""


def test_singletons_of_a_full_batch_coincide() -> None:
    """Solved as one pseudo-class, certified as the two classes they are."""
    program = program_of([3, 2, 1, 1], SupConFullBatch(0.5))
    cosines = solve_newton(program.merged()).cosines
    judged = certify(program, cosines)
    assert (judged.certificate.certified, judged.certificate.unique, judged.certificate.rank) == (True, True, 2)
    assert judged.risk == pytest.approx(0.393997886069, abs=1e-12)
    known = [[1.0, -0.711786, -0.340588], [-0.711786, 1.0, -0.417977], [-0.340588, -0.417977, 1.0]]
    np.testing.assert_allclose(judged.cosines, known, atol=1e-6)
    apart = cosines.copy()
    apart[2, 2] = 1 - 1e-6
    refused(certify(program, apart))
