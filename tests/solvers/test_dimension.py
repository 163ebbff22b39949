"""Embedding dimensions below the rank: optimal codes that are known, and honest brackets."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import optgeom as og
from optgeom.geometry import Geometry
from optgeom.programs.class_mean import ClassMeanProgram
from optgeom.solvers import limited as few

GOLDEN_RATIO = (1 + math.sqrt(5)) / 2


def cross_polytope(dim: int) -> np.ndarray:
    return np.vstack([np.eye(dim), -np.eye(dim)])


def icosahedron() -> np.ndarray:
    corners = [
        np.roll([0.0, one, other * GOLDEN_RATIO], turn) for turn in range(3) for one in (1, -1) for other in (1, -1)
    ]
    return np.array(corners) / math.hypot(1, GOLDEN_RATIO)


# Universally optimal codes (Cohn, Kumar 2007, arXiv math/0607446): optimal for every completely monotone potential.
CODES = {
    "square": cross_polytope(2),
    "octahedron": cross_polytope(3),
    "icosahedron": icosahedron(),
    "cross-polytope": cross_polytope(4),
}
LOSSES = {
    "supcon .5": og.SupCon(0.5),
    "supcon .1": og.SupCon(0.1),
    "infonce scl": og.InfoNCE(1.0, 8, 1.0, "sum", "scl"),
}


def limited(classes: int, dim: int, loss: og.Loss) -> Geometry:
    return og.solve(og.ClassDistribution.from_counts([7] * classes), loss, dim=dim)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize("code", CODES.values(), ids=CODES)
def test_balanced_classes_reach_the_known_optimal_code(code: np.ndarray, loss: og.Loss) -> None:
    geometry = limited(*code.shape, loss)
    expected = code @ code.T
    # Up to a permutation of the classes: rows are equal as multisets, and so are whole matrices after matching greedily
    # row by row.
    np.testing.assert_allclose(np.sort(geometry.gram, axis=1), np.sort(expected, axis=1), atol=1e-6)
    order = matched(geometry.gram, expected)
    np.testing.assert_allclose(geometry.gram[np.ix_(order, order)], expected, atol=1e-6)


def matched(gram: np.ndarray, expected: np.ndarray) -> list[int]:
    """Classes in the order that turns gram into expected, by backtracking."""
    order: list[int] = []

    def fits(candidate: int) -> bool:
        position = len(order)
        return candidate not in order and all(
            abs(gram[candidate, order[k]] - expected[position, k]) < 1e-5 for k in range(position)
        )

    def extend() -> bool:
        if len(order) == len(expected):
            return True
        for candidate in range(len(expected)):
            if fits(candidate):
                order.append(candidate)
                if extend():
                    return True
                order.pop()
        return False

    assert extend(), "no permutation of the classes gives the code"
    return order


@pytest.mark.parametrize(("classes", "dim"), [(5, 2), (10, 3), (20, 3)])
def test_the_bracket_is_honest(classes: int, dim: int) -> None:
    loss = og.SupCon(0.5)
    free = og.solve(og.ClassDistribution.from_counts([7] * classes), loss)
    geometry = limited(classes, dim, loss)
    assert geometry.bracket is not None
    lower, upper = geometry.bracket
    assert free.certificate.lower_bound <= lower <= upper
    assert free.risk <= upper + 1e-12
    assert geometry.risk == upper
    assert not geometry.certificate.certified
    assert geometry.regime == "dimension-limited"
    assert geometry.required_rank == classes - 1
    assert geometry.prototypes(dim).shape == (classes, dim)
    vectors = np.random.default_rng(0).standard_normal((200, classes, dim))
    vectors /= np.linalg.norm(vectors, axis=2, keepdims=True)
    risks = [mean_log_sum(v @ v.T) for v in vectors]
    assert upper <= min(risks)


def mean_log_sum(gram: np.ndarray) -> float:
    return float(np.mean(np.log(np.mean(np.exp((gram - 1) / 0.5), axis=1))))


def test_regular_pentagon_on_the_circle() -> None:
    geometry = limited(5, 2, og.SupCon(0.5))
    turn = 2 * math.pi / 5
    expected = sorted(math.cos(turn * abs(i - j)) for i, j in itertools.combinations(range(5), 2))
    np.testing.assert_allclose(np.sort(geometry.gram[np.triu_indices(5, 1)]), expected, atol=1e-6)


def test_case_26_simplex_in_few_dimensions() -> None:
    geometry = limited(10, 9, og.SupCon(0.1))
    assert geometry.bracket is None and geometry.certificate.certified
    assert geometry.prototypes(9).shape == (10, 9)


def test_case_25_more_classes_than_dimensions_plus_one() -> None:
    geometry = limited(40, 16, og.SupCon(0.1))
    assert geometry.required_rank == 39
    assert geometry.bracket is not None and geometry.bracket[0] < geometry.bracket[1]


@pytest.mark.parametrize(
    "loss", [og.SupCon(0.1, 64), og.SupCon(0.5, 16, views=1), og.InfoNCE(0.2, 32, 1.0, "sum", "scl")], ids=str
)
def test_majorized_rounds_end_where_the_exact_risk_falls_no_further(loss: og.Loss) -> None:
    """Which local optimum is reached depends on the last digits of the processor; that it is one does not.

    Minimised once more with the exact risk in every step, which takes ten times as long, the answer stays as good.
    """
    classes = og.ClassDistribution.from_counts([3000 // (k + 1) for k in range(60)])
    program = ClassMeanProgram.build(classes, loss, grouped=False)
    free = og.solve(classes, loss)
    start = few.spectral_start(np.array(free.gram), 40, np.random.default_rng(0))
    start /= np.linalg.norm(start, axis=1)[:, None]
    cosines, risk, _ = few.best_class_means(program, np.array(free.gram), 40)
    assert risk == pytest.approx(program.risk(cosines), rel=1e-12)
    assert free.risk < risk < program.risk(start @ start.T)
    assert np.linalg.matrix_rank(cosines, tol=1e-7, hermitian=True) <= 40
    values, axes = np.linalg.eigh(cosines)
    exact = few.quasi_newton(program, axes[:, -40:] * np.sqrt(values[-40:]))[1]
    assert risk <= exact + 1e-5 * abs(exact)


def test_each_round_lies_above_the_exact_risk_and_touches_it() -> None:
    """Up to a constant."""
    program = ClassMeanProgram.build(
        og.ClassDistribution.from_counts([50, 20, 10, 5, 5, 2]), og.SupCon(0.3, 16), grouped=False
    )
    rows = np.random.default_rng(0).standard_normal((50, 6, 4))
    rows /= np.linalg.norm(rows, axis=2, keepdims=True)
    here = rows[0] @ rows[0].T
    upper = few.surrogate(program, here)
    np.testing.assert_allclose(upper.gradient(here), program.gradient(here), rtol=1e-9)
    for other in rows[1:]:
        gram = other @ other.T
        assert upper.risk(gram) - upper.risk(here) > program.risk(gram) - program.risk(here)
