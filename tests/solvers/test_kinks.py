"""Losses with kinks: hinges, leaky hinges, hardest negatives. Certified, against models of CVXPY; what is refused."""

from __future__ import annotations

import itertools
import math
import warnings
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from helpers.reference import off_diagonal, random_gram

import optgeom as og
from optgeom.certificates import cuts as certificates
from optgeom.errors import IncompatibleError, InvalidInputError
from optgeom.losses.custom import jumps
from optgeom.programs.class_mean import ClassMeanProgram


class Hinge:
    """Triplet loss without its soft form: max(0, t + margin) + leak t for each negative."""

    is_additive = True

    def __init__(self, margin: float, leak: float = 0.0) -> None:
        self.margin, self.leak = margin, leak

    def value(self, t: np.ndarray) -> np.ndarray:
        return (np.maximum(t + self.margin, 0) + self.leak * t).sum(axis=-1)

    def derivative(self, t: np.ndarray) -> np.ndarray:
        return np.where(t + self.margin > 0, 1.0, 0.0) + self.leak


class Hardest:
    """The hardest of the negatives, alone or in a hinge."""

    is_additive = False

    def __init__(self, margin: float | None = None) -> None:
        self.margin = margin

    def value(self, t: np.ndarray) -> np.ndarray:
        hardest = t.max(axis=-1)
        return hardest if self.margin is None else np.maximum(0, hardest + self.margin)

    def derivative(self, t: np.ndarray) -> np.ndarray:
        slope = np.zeros_like(t)
        np.put_along_axis(slope, t.argmax(axis=-1)[..., None], 1.0, axis=-1)
        if self.margin is not None:
            slope = slope * (t.max(axis=-1) + self.margin > 0)[..., None]
        return slope


def drawn(seed: int, most: int = 7) -> tuple[og.ClassDistribution, np.ndarray, float, float, int]:
    """Classes, their shares, temperature, margin, negatives."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(5, 1000, int(rng.integers(3, most)))
    tau = float(rng.uniform(0.2, 1.5))
    margin = float(rng.uniform(0.2, 1.5)) / tau
    return og.ClassDistribution.from_counts(counts), counts / counts.sum(), tau, margin, int(rng.integers(1, 5))


def minimum(objective: Any, gram: Any) -> float:
    problem = cp.Problem(cp.Minimize(objective), [cp.diag(gram) == 1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem.solve(solver="CLARABEL", tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    return float(problem.value)


@pytest.mark.parametrize("leak", [0.0, 0.1])
@pytest.mark.parametrize("seed", range(24))
def test_hinges(seed: int, leak: float) -> None:
    classes, lam, tau, margin, k = drawn(seed)
    geometry = og.solve(classes, og.GeneralizedContrastive(Hinge(margin, leak), tau, k, strictly_convex=False))
    assert geometry.certificate.certified
    gram = cp.Variable((lam.size, lam.size), PSD=True)
    t = (gram - 1) / tau
    weight = np.outer(lam, lam) * (1 - np.eye(lam.size))
    own = float(k * (lam**2).sum() * max(0.0, margin))
    terms = cp.sum(cp.multiply(k * weight, cp.pos(t + margin) + leak * t))
    expected = minimum(terms, gram) + own
    assert geometry.risk == pytest.approx(expected, abs=1e-7)
    assert geometry.risk <= expected + 1e-8 * (1 + abs(expected))
    assert geometry.certificate.lower_bound <= expected + 1e-8 * (1 + abs(expected))


@pytest.mark.parametrize("hinge", [False, True])
@pytest.mark.parametrize("seed", range(11))
def test_hardest_negatives(seed: int, hinge: bool) -> None:
    classes, lam, tau, margin, k = drawn(seed, most=6)
    k = max(k, 2)
    psi = Hardest(margin if hinge else None)
    geometry = og.solve(classes, og.GeneralizedContrastive(psi, tau, k, strictly_convex=False))
    assert geometry.certificate.certified
    gram = cp.Variable((lam.size, lam.size), PSD=True)
    objective: Any = 0.0
    for i in range(lam.size):
        for chosen in itertools.combinations_with_replacement(range(lam.size), k):
            counts = np.bincount(chosen, minlength=lam.size)
            ways = math.factorial(k) / math.prod(math.factorial(int(n)) for n in counts)
            hardest = cp.max(cp.hstack([0.0 if j == i else (gram[i, j] - 1) / tau for j in set(chosen)]))
            value = cp.pos(hardest + margin) if hinge else hardest
            objective += lam[i] * ways * float(np.prod(lam**counts)) * value
    expected = minimum(objective, gram)
    assert geometry.risk == pytest.approx(expected, abs=1e-7)
    assert geometry.risk <= expected + 1e-8 * (1 + abs(expected))


def test_equal_classes_are_one_group() -> None:
    classes = og.ClassDistribution.from_groups([50, 10], [2, 4])
    loss = og.GeneralizedContrastive(Hinge(2.5), 0.5, 3, strictly_convex=False)
    grouped, apart = og.solve(classes, loss), og.solve(classes, loss, grouped=False)
    assert grouped.certificate.certified and apart.certificate.certified
    assert grouped.risk == pytest.approx(apart.risk, abs=2e-8)


def program_of(seed: int = 1) -> ClassMeanProgram:
    classes, _, tau, margin, k = drawn(seed)
    loss = og.GeneralizedContrastive(Hinge(margin), tau, k, strictly_convex=False)
    return ClassMeanProgram.build(classes, loss, grouped=False)


@pytest.mark.parametrize("seed", range(6))
def test_no_mixture_proves_too_much(seed: int) -> None:
    """Whatever is suggested, the bound stays below the risk of every feasible matrix: suggestions are not believed."""
    program = program_of(seed)
    size = program.sizes.size
    rng = np.random.default_rng(seed)
    lowest = min(program.risk(random_gram(size, 1 + which % size, which)) for which in range(200))
    lowest = min(lowest, program.risk(off_diagonal(-1 / (size - 1), size)), program.risk(np.ones((size, size))))
    for which in range(40):
        near = program.rows.cuts(program.exponents(random_gram(size, 2, which)))
        mixed = rng.random(near.term.size)
        total = np.zeros(near.row.size)
        np.add.at(total, near.term, mixed)
        bound = certificates.lower_bound(program, near, mixed / total[near.term], rng.normal(size=size) * 0.1)
        assert bound <= lowest + 1e-12


def test_a_matrix_beside_the_optimum_is_not_certified() -> None:
    classes, _, tau, margin, k = drawn(12)
    loss = og.GeneralizedContrastive(Hinge(margin, 0.1), tau, k, strictly_convex=False)
    geometry = og.solve(classes, loss)
    worse = og.certify_gram(0.99 * geometry.gram + 0.01, classes, loss)
    assert not worse.certified and worse.lower_bound <= geometry.risk + 1e-8
    assert "the duality gap is" in worse.reason
    assert og.certify_gram(geometry.gram, classes, loss).certified


def test_a_derivative_that_is_not_that_of_psi() -> None:
    """Tangents that are none prove more than is true: seen, and not certified."""

    class Wrong(Hinge):
        def derivative(self, t: np.ndarray) -> np.ndarray:
            return 3.0 * super().derivative(t)

    classes = og.ClassDistribution.from_counts([50, 30, 15, 5])
    with pytest.raises(og.NotCertifiedError, match="is not certified"):
        og.solve(classes, og.GeneralizedContrastive(Wrong(2.5, 0.1), 0.5, 3, strictly_convex=False))


def test_jumps_of_a_slope() -> None:
    places = np.array([-7.3, -2.0, -1e-3])
    found = jumps(lambda t: 0.1 * t + (t[:, None] > places).sum(axis=1), -10.0, 0.0)
    assert found == pytest.approx(places, abs=1e-12)
    assert jumps(lambda t: 1 / (1 + np.exp(-40 * (t + 3))), -10.0, 0.0).size == 0


class Weighted:
    """Negatives weighted by how hard they are: log(1 + k sum e^((1 + beta) t) / sum e^(beta t))."""

    is_additive = False
    beta = 2.0

    def value(self, t: np.ndarray) -> np.ndarray:
        hard = np.exp(self.beta * t)
        return np.log1p(t.shape[-1] * (hard * np.exp(t)).sum(axis=-1) / hard.sum(axis=-1))

    def derivative(self, t: np.ndarray) -> np.ndarray:
        hard = np.exp(self.beta * t)
        mean = (hard * np.exp(t)).sum(axis=-1, keepdims=True) / hard.sum(axis=-1, keepdims=True)
        share = hard / hard.sum(axis=-1, keepdims=True)
        slope = share * ((1 + self.beta) * np.exp(t) - self.beta * mean)
        return t.shape[-1] * slope / (1 + t.shape[-1] * mean)


class Focal:
    """(1 - p)^gamma (-log p), p = 1/(1 + e^t)."""

    is_additive = True
    gamma = 2.0

    def value(self, t: np.ndarray) -> np.ndarray:
        return (np.exp(-self.gamma * np.logaddexp(0, -t)) * np.logaddexp(0, t)).sum(axis=-1)

    def derivative(self, t: np.ndarray) -> np.ndarray:
        miss = 1 / (1 + np.exp(-t))
        return miss**self.gamma * (self.gamma * (1 - miss) * np.logaddexp(0, t) + miss)


class Falling(Hinge):
    def value(self, t: np.ndarray) -> np.ndarray:
        return (t**2).sum(axis=-1)

    def derivative(self, t: np.ndarray) -> np.ndarray:
        return 2 * t


def second_derivative(psi: Any, t: float) -> float:
    step = 1e-4
    values = [float(psi.value(np.array([t + shift]))) for shift in (-step, 0.0, step)]
    return (values[0] - 2 * values[1] + values[2]) / step**2


def test_hard_negatives_by_importance_are_not_convex() -> None:
    with pytest.raises(
        IncompatibleError, match=r"`psi` must be convex; got Weighted, whose second derivative is -\S+ at"
    ):
        og.solve(og.ClassDistribution.from_counts([5, 3, 2]), og.GeneralizedContrastive(Weighted(), 0.5, 2))


def test_focal_losses() -> None:
    """Convex on the range of a contrastive loss with one negative, not with the shift of many."""
    classes = og.ClassDistribution.from_counts([5, 3, 2])
    assert og.solve(classes, og.GeneralizedContrastive(Focal(), 0.5)).certificate.certified

    class Shifted(Focal):
        def value(self, t: np.ndarray) -> np.ndarray:
            return super().value(t + 5.0)

        def derivative(self, t: np.ndarray) -> np.ndarray:
            return super().derivative(t + 5.0)

    with pytest.raises(
        IncompatibleError, match=r"`psi` must be convex; got Shifted, whose second derivative is"
    ) as caught:
        og.solve(classes, og.GeneralizedContrastive(Shifted(), 0.5))
    words = str(caught.value)
    printed, place = float(words.split("derivative is ")[1].split()[0]), float(words.split("t = (")[1].split(")")[0])
    assert printed == pytest.approx(second_derivative(Shifted(), place), rel=0.05) and printed < 0


def test_a_psi_that_falls() -> None:
    with pytest.raises(
        IncompatibleError, match=r"`psi` must not fall; got Falling, whose slope is -8 at t = \(-4\), in t"
    ):
        og.solve(og.ClassDistribution.from_counts([5, 3]), og.GeneralizedContrastive(Falling(1.0), 0.5))


def test_debiased() -> None:
    classes = og.ClassDistribution.from_counts({"cat": 60, "dog": 30, "owl": 10})
    lam, tau_plus, tau = np.array([0.6, 0.3, 0.1]), 0.08, 0.5
    loss = og.InfoNCE.debiased(classes, tau_plus=tau_plus, temperature=tau, weight=4.0)
    geometry = og.solve(classes, loss)
    x = np.exp((geometry.gram - 1) / tau)
    mean = (x @ lam - tau_plus) / (1 - tau_plus)
    assert geometry.risk == pytest.approx(float(lam @ np.log(1 + 4.0 * mean)), rel=1e-12)
    with pytest.raises(
        InvalidInputError, match=r"`tau_plus` must be at most the share of every class; got 0\.2, and owl has 0\.1"
    ):
        og.InfoNCE.debiased(classes, tau_plus=0.2)


def test_what_a_loss_with_kinks_does_not_have() -> None:
    classes = og.ClassDistribution.from_counts([50, 30, 15, 5])
    loss = og.GeneralizedContrastive(Hinge(2.5, 0.1), 0.5, 3, strictly_convex=False)
    geometry = og.solve(classes, loss)
    for call in (
        lambda: og.ranges(geometry),
        lambda: og.slack_needed(geometry),
        lambda: og.relaxation(geometry),
        lambda: og.saddles(classes, loss),
        lambda: og.sensitivity(classes, loss, to="temperature"),
    ):
        with pytest.raises(IncompatibleError, match=r"must be smooth for .*; got generalized, whose slope jumps"):
            call()


def test_what_a_loss_with_kinks_has(tmp_path: Any) -> None:
    classes = og.ClassDistribution.from_counts([50, 30, 15, 5])
    loss = og.GeneralizedContrastive(Hinge(2.5, 0.1), 0.5, 3, strictly_convex=False)
    geometry = og.solve(classes, loss)
    geometry.save(tmp_path / "g.npz")
    assert og.Geometry.load(tmp_path / "g.npz", loss=loss).certificate.certified
    values = og.loss_values(classes, loss)
    assert values.optimal_value == pytest.approx(geometry.risk, abs=1e-12)
    table = og.scan(3, loss, axes={"majority": [0.5, 0.9]})
    assert table.uncertified == 0
