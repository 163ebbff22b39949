"""A user's psi: agreement with the losses of the package, with CVXPY, and what is said when it does not suit."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from helpers.reference import off_diagonal

import optgeom as og

COUNTS = [50, 20, 20, 7]


class Exponential:
    """Additive: sum of exp."""

    is_additive = True

    def value(self, t: np.ndarray) -> np.ndarray:
        return np.exp(t).sum(axis=-1)

    def derivative(self, t: np.ndarray) -> np.ndarray:
        return np.exp(t)


class ExponentialWithSecond(Exponential):
    def second_derivative(self, t: np.ndarray) -> np.ndarray:
        return np.exp(t)


class Linear:
    is_additive = True

    def value(self, t: np.ndarray) -> np.ndarray:
        return t.sum(axis=-1)

    def derivative(self, t: np.ndarray) -> np.ndarray:
        return np.ones_like(t)


class LogSumExp:
    """log(alpha + sum exp): neither additive nor separable."""

    is_additive = False

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = alpha

    def value(self, t: np.ndarray) -> np.ndarray:
        return np.log(self.alpha + np.exp(t).sum(axis=-1))

    def derivative(self, t: np.ndarray) -> np.ndarray:
        terms = np.exp(t)
        return terms / (self.alpha + terms.sum(axis=-1, keepdims=True))


class Hinge:
    """Slope 1 below the knot, 3 above: convex and increasing, never strictly convex."""

    is_additive = True

    def __init__(self, knot: float) -> None:
        self.knot = knot

    def value(self, t: np.ndarray) -> np.ndarray:
        return (t + 2 * np.maximum(t - self.knot, 0.0)).sum(axis=-1)

    def derivative(self, t: np.ndarray) -> np.ndarray:
        return np.where(t > self.knot, 3.0, 1.0)


def classes(*values: int) -> og.ClassDistribution:
    return og.ClassDistribution.from_counts(values or COUNTS)


def law(sampling: str) -> np.ndarray:
    lam = np.array(COUNTS) / sum(COUNTS)
    drawn = np.tile(lam, (4, 1)) * (1 - np.eye(4) if sampling == "scl" else 1)
    return drawn / drawn.sum(axis=1, keepdims=True)


def minimise_with_cvxpy(tau: float, sampling: str) -> float:
    """sum_i lam_i sum_j p_ij exp((A_ij - 1)/tau) over the elliptope."""
    import cvxpy

    gram = cvxpy.Variable((4, 4), PSD=True)
    weight = law(sampling) * (np.array(COUNTS) / sum(COUNTS))[:, None]
    problem = cvxpy.Problem(
        cvxpy.Minimize(cvxpy.sum(cvxpy.multiply(weight, cvxpy.exp((gram - 1) / tau)))), [cvxpy.diag(gram) == 1]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own deprecations
        problem.solve(solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    return float(problem.value)


@pytest.mark.parametrize("sampling", ["ucl", "scl"])
@pytest.mark.parametrize("tau", [1.0, 0.3])
def test_additive_psi_is_the_optimum_of_cvxpy(sampling: str, tau: float) -> None:
    geometry = og.solve(classes(), og.GeneralizedContrastive(Exponential(), tau, 1, sampling))
    assert geometry.certificate.certified and geometry.certificate.unique
    assert geometry.risk == pytest.approx(minimise_with_cvxpy(tau, sampling), abs=2e-8)
    gram = geometry.gram
    by_hand = np.sum(np.array(COUNTS)[:, None] / sum(COUNTS) * law(sampling) * np.exp((gram - 1) / tau))
    assert geometry.risk == pytest.approx(by_hand, abs=1e-14)
    assert gram[1, 2] == gram[2, 1] and gram[0, 1] == gram[0, 2]
    assert geometry.loss.to_dict()["psi"] == "Exponential"


@pytest.mark.parametrize("sampling", ["ucl", "scl"])
def test_additive_psi_of_more_negatives_is_the_same_program(sampling: str) -> None:
    one = og.solve(classes(), og.GeneralizedContrastive(Exponential(), 0.5, 1, sampling))
    many = og.solve(classes(), og.GeneralizedContrastive(Exponential(), 0.5, 10**6, sampling))
    assert many.risk == pytest.approx(1e6 * one.risk, rel=1e-12)
    np.testing.assert_allclose(many.gram, one.gram, atol=1e-10)


def test_second_derivative_is_optional() -> None:
    without = og.solve(classes(), og.GeneralizedContrastive(Exponential(), 0.5, 1, "scl"))
    given = og.solve(classes(), og.GeneralizedContrastive(ExponentialWithSecond(), 0.5, 1, "scl"))
    np.testing.assert_allclose(given.gram, without.gram, atol=1e-10)
    assert given.certificate.backward_error < 1e-12
    assert given.solver.name == without.solver.name == "newton"


@pytest.mark.parametrize("sampling", ["ucl", "scl"])
@pytest.mark.parametrize("tau", [1.0, 0.1])
@pytest.mark.parametrize("counts", [COUNTS, [5, 1], [4, 4, 4], [90, 6, 4], [97, 1, 1, 1]])
def test_one_negative_with_softplus_is_infonce(counts: list[int], tau: float, sampling: str) -> None:
    own = og.solve(classes(*counts), og.GeneralizedContrastive(LogSumExp(), tau, 1, sampling))
    known = og.solve(classes(*counts), og.InfoNCE(tau, 1, 1.0, "sum", sampling))
    assert own.risk == pytest.approx(known.risk, rel=1e-9, abs=1e-15)
    np.testing.assert_allclose(own.gram, known.gram, atol=1e-9 if known.solver.name != "low-rank" else 1e-6)
    assert (own.rank, own.regime, own.certificate.unique) == (known.rank, known.regime, known.certificate.unique)


@pytest.mark.parametrize("sampling", ["ucl", "scl"])
@pytest.mark.parametrize(("tau", "alpha"), [(1.0, 1.0), (0.3, 1.0), (0.5, 0.25)])
def test_three_negatives_of_log_sum_exp_are_infonce(tau: float, alpha: float, sampling: str) -> None:
    own = og.solve(classes(), og.GeneralizedContrastive(LogSumExp(alpha), tau, 3, sampling))
    known = og.solve(classes(), og.InfoNCE(tau, 3, alpha, "sum", sampling))
    assert own.risk == pytest.approx(known.risk, abs=1e-9)
    np.testing.assert_allclose(own.gram, known.gram, atol=1e-6)
    assert own.certificate.certified


def test_enumeration_handles_groups() -> None:
    """Two negatives of one group may be of one class or of two, and may be the anchor's own class."""
    loss = og.GeneralizedContrastive(LogSumExp(), 0.5, 3, "ucl")
    grouped, apart = (og.solve(classes(6, 2, 2, 2, 6), loss, grouped=grouped) for grouped in (True, False))
    assert grouped.group_sizes.tolist() == [2, 3] and apart.group_sizes.tolist() == [1] * 5
    assert grouped.risk == pytest.approx(apart.risk, abs=1e-12)
    np.testing.assert_allclose(grouped.gram, apart.gram, atol=1e-6)


def test_linear_psi_is_infonce_without_the_positive() -> None:
    psi = og.GeneralizedContrastive(Linear(), 0.5, 1, "scl", strictly_convex=False)
    own, known = og.solve(classes(), psi), og.solve(classes(), og.InfoNCE(0.5, 1, 0.0, "sum", "scl"))
    assert own.risk == pytest.approx(known.risk, abs=1e-9)


@pytest.mark.parametrize("psi", [Exponential(), LogSumExp()])
@pytest.mark.parametrize("sampling", ["ucl", "scl"])
def test_balanced_classes_form_the_simplex(psi: Any, sampling: str) -> None:
    geometry = og.solve(classes(3, 3, 3, 3, 3), og.GeneralizedContrastive(psi, 0.4, 2, sampling))
    np.testing.assert_allclose(geometry.gram, off_diagonal(-0.25, 5), atol=1e-14)
    two = og.solve(classes(9, 1), og.GeneralizedContrastive(psi, 0.4, 2, sampling))
    assert two.gram[0, 1] == pytest.approx(-1.0, abs=1e-14)


@pytest.mark.parametrize("knot", [-10.0, -2.9, -2.0, -0.5, 1.0])
@pytest.mark.parametrize("counts", [[50, 20, 20, 7], [6, 5, 4], [90, 5, 5]])
@pytest.mark.parametrize("sampling", ["ucl", "scl"])
def test_a_psi_with_straight_pieces_is_certified(counts: list[int], knot: float, sampling: str) -> None:
    """Also where the optimum sits on the knot, at which the gradient jumps."""
    loss = og.GeneralizedContrastive(Hinge(knot), 0.5, 1, sampling, strictly_convex=False)
    geometry = og.solve(classes(*counts), loss)
    assert geometry.certificate.certified
    lam = np.array(counts) / sum(counts)
    drawn = np.tile(lam, (lam.size, 1)) * (1 - np.eye(lam.size) if sampling == "scl" else 1)
    drawn /= drawn.sum(axis=1, keepdims=True)

    def risk(gram: np.ndarray) -> float:
        return float(np.sum(lam[:, None] * drawn * Hinge(knot).value(((gram - 1) / 0.5)[..., None])))

    assert geometry.risk == pytest.approx(risk(geometry.gram), abs=1e-12)
    for side in np.eye(lam.size) * 2 - 1:
        assert geometry.certificate.lower_bound <= risk(np.outer(side, side)) + 1e-12
    assert geometry.certificate.lower_bound <= risk(off_diagonal(-1 / (lam.size - 1), lam.size)) + 1e-12


def test_missing_parts_are_named() -> None:
    class Nothing:
        def value(self, t: np.ndarray) -> np.ndarray:
            return t.sum(axis=-1)

    nothing: Any = Nothing()
    with pytest.raises(og.IncompatibleError, match="is_additive; Nothing lacks derivative, is_additive"):
        og.GeneralizedContrastive(nothing)


def test_too_large_an_enumeration_is_refused() -> None:
    needed = math.comb(10 + 30, 10)
    loss = og.GeneralizedContrastive(LogSumExp(), 0.5, 10)
    with pytest.raises(
        og.IncompatibleError, match=f"10 negatives in 30 groups have {needed} count vectors, above the 200000"
    ):
        og.solve(classes(*range(1, 31)), loss)


def test_solvers_say_what_they_need() -> None:
    three = og.GeneralizedContrastive(LogSumExp(), 0.5, 3)
    with pytest.raises(og.IncompatibleError, match="'newton' needs a log-sum loss or a separable one"):
        og.solve(classes(), three, solver="newton")
    with pytest.raises(og.IncompatibleError, match="the conic solver needs log-sum rows; got EnumeratedRows"):
        og.solve(classes(), three, solver="conic")
    by_hand = [
        og.solve(classes(), og.GeneralizedContrastive(Exponential(), 0.5), solver=name)
        for name in ("newton", "low-rank")
    ]
    np.testing.assert_allclose(by_hand[0].gram, by_hand[1].gram, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0.0}, "`temperature` must be > 0; got 0.0"),
        ({"negatives": math.inf}, "`negatives` must be a whole number >= 1; got inf"),
        ({"negatives": 0}, "`negatives` must be a whole number >= 1; got 0"),
        ({"sampling": "both"}, "`sampling` must be one of ucl, scl; got 'both'"),
    ],
)
def test_parameters_outside_their_domain(options: dict[str, Any], message: str) -> None:
    with pytest.raises(og.InvalidInputError, match=message):
        og.GeneralizedContrastive(Exponential(), **options)
