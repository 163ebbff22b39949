"""The conic solver against closed forms and Newton, with tolerances that an interior-point method can keep."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import pytest
from helpers.reference import LIMIT, build, case, off_diagonal, program_of

from optgeom.certificates import certify
from optgeom.errors import IncompatibleError, InvalidInputError, MissingDependencyError
from optgeom.inputs.classes import ClassDistribution
from optgeom.losses.base import Loss
from optgeom.losses.infonce import InfoNCE
from optgeom.losses.supcon import SupCon, SupConFullBatch
from optgeom.programs.class_mean import ClassMeanProgram
from optgeom.solvers.conic import solve_conic
from optgeom.solvers.newton import solve_newton

BALANCED: list[Loss] = [
    InfoNCE(0.5, **LIMIT),
    InfoNCE(0.5, 4, 1.0, "sum", "ucl"),
    InfoNCE(1.0, 1, 0.0, "sum", "scl"),
    SupCon(0.5, 4, 1),
    SupConFullBatch(0.5),
]


@pytest.mark.parametrize("loss", BALANCED)
def test_balanced_classes_form_the_simplex(loss: Loss) -> None:
    for grouped in (True, False):
        program = program_of([3, 3, 3, 3], loss, grouped)
        answer = solve_conic(program, tolerance=1e-9)
        assert answer.status in {
            "optimal",
            "optimal_inaccurate",
        }  # whether 1e-9 is reached depends on the machine's rounding
        assert answer.iterations > 0
        expected = np.array([[-1 / 3]]) if program.sizes.size == 1 else off_diagonal(-1 / 3, 4)
        # A risk within 1e-9 fixes cosines to about its root only: 1.4e-5 was seen on one processor, 2e-6 on another.
        np.testing.assert_allclose(answer.cosines, expected, atol=1e-4)
        assert answer.value == pytest.approx(program.risk(expected), abs=1e-8)


@pytest.mark.parametrize(
    "loss", [InfoNCE(1.0, **LIMIT), InfoNCE(0.5, 6), SupCon(1.0, 5, 1), SupConFullBatch(1.0), InfoNCE(1.0, 1, 0.0)]
)
def test_two_classes_are_opposite(loss: Loss) -> None:
    answer = solve_conic(program_of([7, 3], loss), tolerance=1e-10)
    np.testing.assert_allclose(answer.cosines, off_diagonal(-1.0, 2), atol=1e-6)


CASES: list[tuple[list[int], Loss]] = [
    ([50, 25, 25], InfoNCE(1.0, **LIMIT)),
    ([90, 5, 5], InfoNCE(1.0, **LIMIT, sampling="ucl")),
    ([50, 30, 18, 11, 6, 6, 6], InfoNCE(0.3, **LIMIT, sampling="scl")),
    ([6, 3, 1], InfoNCE(1.0, 4, 1.0, "sum", "ucl")),
    ([6, 3, 1], InfoNCE(1.0, 4, 1.0, "sum", "scl")),
    ([6, 3, 2, 2], InfoNCE(0.5, 3, 0.0, "mean", "ucl")),
    ([5, 4, 3], SupCon(0.5, 8, 1)),
    ([5, 4, 3, 3], SupCon(0.5, 4, 2)),
    ([5, 4, 3, 3], SupConFullBatch(0.5)),
]


@pytest.mark.parametrize(("counts", "loss"), CASES)
def test_agrees_with_newton(counts: list[int], loss: Loss) -> None:
    """The objective is flat to second order, so cosines are known to the square root of what the risk is."""
    program = program_of(counts, loss)
    answer = solve_conic(program, tolerance=1e-11)
    best = certify(program, solve_newton(program).cosines)
    assert best.certificate.certified
    np.testing.assert_allclose(answer.cosines, best.cosines, atol=5e-6)
    assert answer.value == pytest.approx(best.risk, abs=1e-9)
    assert certify(program, answer.cosines).risk >= best.risk - 1e-12


def test_agrees_with_a_collapsed_reference() -> None:
    """Newton's equations do not hold there, the conic form does not care."""
    known = case("partial-collapse-5")
    program = ClassMeanProgram.build(*build(known))
    answer = solve_conic(program, tolerance=1e-11)
    assert answer.value == pytest.approx(known["risk"], abs=1e-8)
    assert answer.cosines[3, 4] == pytest.approx(known["gram"]["3,4"], abs=1e-4)


def test_singletons_of_a_full_batch_may_be_merged_or_not() -> None:
    program = program_of([3, 2, 1, 1], SupConFullBatch(0.5))
    apart, merged = (solve_conic(one, tolerance=1e-10) for one in (program, program.merged()))
    assert apart.value == pytest.approx(0.393997886069, abs=1e-8)
    assert merged.value == pytest.approx(0.393997886069, abs=1e-8)
    assert apart.cosines[2, 2] == pytest.approx(1.0, abs=1e-6)
    np.testing.assert_allclose(merged.cosines, np.where(np.eye(3) > 0, 1.0, apart.cosines), atol=1e-5)


def test_the_other_solver() -> None:
    pytest.importorskip("scs")
    answer = solve_conic(program_of([50, 25, 25], InfoNCE(1.0, **LIMIT)), solver="SCS", tolerance=1e-7)
    assert answer.cosines[0, 1] == pytest.approx(-0.6056955962860648, abs=1e-4)


@pytest.mark.parametrize(
    ("counts", "k", "limit", "message"),
    [
        (
            [4, 3, 2, 1],
            40,
            5000,
            "class counts of 40 negatives, at most 5000; got 49364 for 4 classes .use solver 'newton' or",
        ),
        ([4, 3, 2, 1], 10**7, 5000, "got about 1e21 for 4 classes"),
        ([4, 3, 2, 1], 2, 10, "at most 10; got 40 for 4 classes"),
    ],
)
def test_enumeration_has_a_limit(counts: list[int], k: int, limit: int, message: str) -> None:
    with pytest.raises(IncompatibleError, match=message):
        solve_conic(program_of(counts, InfoNCE(0.5, k)), enumeration_limit=limit)


def test_needs_log_sums() -> None:
    program = program_of([2, 1], InfoNCE(0.5, **LIMIT))
    strange: Any = object()
    with pytest.raises(IncompatibleError, match="needs log-sum rows; got object"):
        solve_conic(ClassMeanProgram(program.groups, program.loss, strange, program.coincident))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"solver": "GUROBI"}, "`solver` must be one of CLARABEL, SCS; got 'GUROBI'"),
        ({"tolerance": 0.0}, "`tolerance` must be > 0; got 0.0"),
        ({"enumeration_limit": 0}, "`enumeration_limit` must be a whole number >= 1; got 0"),
    ],
)
def test_bad_parameters(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        solve_conic(program_of([2, 1], InfoNCE(0.5, **LIMIT)), **options)


def test_missing_cvxpy_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cvxpy", None)
    with pytest.raises(MissingDependencyError, match="`cvxpy` is needed by the conic solver"):
        solve_conic(program_of([2, 1], InfoNCE(0.5, **LIMIT)))


def test_explicit_law_without_some_pairs() -> None:
    """Class 0 repels 1 and 2, which ignore each other: total collapse for k = 2 as for any k."""
    law = np.array([[0.0, 0.5, 0.5], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    classes = ClassDistribution.from_counts([3, 2, 1])
    for k, reduction in ((2, "sum"), (math.inf, "mean")):
        answer = solve_conic(
            ClassMeanProgram.build(classes, InfoNCE(0.5, k, 1.0, reduction, negative_law=law)), tolerance=1e-10
        )
        np.testing.assert_allclose(answer.cosines[0, 1:], -1.0, atol=1e-6)
        assert answer.cosines[1, 2] == pytest.approx(1.0, abs=1e-5)
