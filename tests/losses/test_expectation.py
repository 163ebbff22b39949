"""The exact expectation over the negatives against enumeration, 50-digit arithmetic and expansions in 1/k."""

from __future__ import annotations

import math
from dataclasses import dataclass

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optgeom.losses import law as laws
from optgeom.losses.expectation import Multinomial, SecondMoments, expect
from optgeom.losses.law import NegativeLaw

PROPORTIONS = np.array([0.55, 0.25, 0.15, 0.05])
EXPLICIT = np.array([[0.1, 0.4, 0.5, 0.0], [0.3, 0.0, 0.3, 0.4], [0.25, 0.25, 0.25, 0.25], [0.0, 0.9, 0.0, 0.1]])


def count_vectors(total: int, parts: int) -> list[tuple[int, ...]]:
    """All vectors of whole numbers >= 0 with this sum."""
    if parts == 1:
        return [(total,)]
    return [(first, *rest) for first in range(total + 1) for rest in count_vectors(total - first, parts - 1)]


@dataclass
class Brute:
    """One anchor's expectations by enumeration."""

    log_mean: float
    log_over_a: float
    omega: np.ndarray
    offset: float
    second: np.ndarray


def brute_force(p: np.ndarray, x: np.ndarray, anchor: int, k: int, a: float, positive_required: bool = False) -> Brute:
    """Sum over every count vector; x[anchor] is 1."""
    values, excess, omega, second = [], [], np.zeros_like(p), np.zeros((p.size, p.size))
    offset = []
    for counts in count_vectors(k, p.size):
        n = np.array(counts)
        if positive_required and n[anchor] == 0:
            continue
        if np.any((p == 0) & (n > 0)):
            continue
        probability = float(math.factorial(k)) * math.prod(
            float(q) ** c / math.factorial(c) for q, c in zip(p, counts, strict=True)
        )
        total = a + math.fsum(n * x)
        values.append(probability * math.log(total))
        excess.append(probability * math.log1p(math.fsum(n * x) / a) if a > 0 else math.nan)
        omega += probability * n / total
        offset.append(probability * (a + n[anchor]) / total)
        second += probability * np.outer(n, n) / total**2
    return Brute(math.fsum(values), math.fsum(excess), omega, math.fsum(offset), second)


def law_of(name: str) -> NegativeLaw:
    sizes = np.ones(4, dtype=np.int64)
    if name == "explicit":
        return laws.explicit(EXPLICIT, 4)
    return (laws.ucl if name == "ucl" else laws.scl)(sizes, PROPORTIONS)


def full_law(law: NegativeLaw, sizes: np.ndarray) -> np.ndarray:
    """(C, C) probabilities of a grouped law."""
    index = np.repeat(np.arange(sizes.size), sizes)
    full = law.other[np.ix_(index, index)].copy()
    np.fill_diagonal(full, law.own[index])
    return full


def random_exponents(tau: float, seed: int, groups: int = 4) -> np.ndarray:
    """t = (cosine - 1)/tau for random cosines, in group form; the diagonal matters for groups of several classes."""
    return (np.random.default_rng(seed).uniform(-1, 1, (groups, groups)) - 1) / tau


def full_rows(t: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """(C, C) x in class order, 1 on the diagonal."""
    index = np.repeat(np.arange(sizes.size), sizes)
    x = np.exp(t[np.ix_(index, index)])
    np.fill_diagonal(x, 1.0)
    return x


@pytest.mark.parametrize("tau", [2.0, 0.3, 0.02])
@pytest.mark.parametrize("a", [0.0, 0.5, 4.0])
@pytest.mark.parametrize("k", [1, 2, 5, 12])
@pytest.mark.parametrize("name", ["ucl", "scl", "explicit"])
def test_expectation_matches_enumeration(name: str, k: int, a: float, tau: float) -> None:
    law, t = law_of(name), random_exponents(tau, seed=k)
    found = expect(Multinomial(law, k, a), t)
    p, x = full_law(law, np.ones(4, dtype=int)), full_rows(t, np.ones(4, dtype=int))
    for i in range(4):
        brute = brute_force(p[i], x[i], i, k, a)
        assert found.log_mean[i] == pytest.approx(brute.log_mean, abs=1e-12)
        if a > 0:
            assert found.log_over_a is not None
            assert found.log_over_a[i] == pytest.approx(brute.log_over_a, abs=1e-12, rel=1e-12)
        else:
            assert found.log_over_a is None
        others = np.arange(4) != i
        np.testing.assert_allclose(found.weight[i, others], brute.omega[others], rtol=1e-12, atol=0)
        assert found.offset[i] == pytest.approx(brute.offset, rel=1e-12, abs=1e-300)


@pytest.mark.parametrize("tau", [2.0, 0.3, 0.02])
@pytest.mark.parametrize("k", [2, 3, 7, 12])
def test_one_view_event_matches_enumeration(k: int, tau: float) -> None:
    law, t = law_of("ucl"), random_exponents(tau, seed=10 + k)
    counts = Multinomial(law, k, 0.0, positive_required=True)
    found = expect(counts, t)
    p, x = full_law(law, np.ones(4, dtype=int)), full_rows(t, np.ones(4, dtype=int))
    for i in range(4):
        brute = brute_force(p[i], x[i], i, k, 0.0, positive_required=True)
        assert found.log_mean[i] == pytest.approx(brute.log_mean, abs=1e-12)
        others = np.arange(4) != i
        np.testing.assert_allclose(found.weight[i, others], brute.omega[others], rtol=1e-12, atol=0)
        assert found.offset[i] == pytest.approx(brute.offset, rel=1e-12)
        assert counts.mass()[i] == pytest.approx(1 - (1 - PROPORTIONS[i]) ** k, rel=1e-13)


@pytest.mark.parametrize(("rare", "k"), [(1e-9, 20), (1e-9, 255), (1e-5, 100), (1 - 1e-9, 50)])
def test_one_view_event_of_a_rare_anchor(rare: float, k: int) -> None:
    """The event itself has probability k * 1e-9; weights keep their relative accuracy."""
    lam, t = np.array([1 - rare, rare]), -20.0
    found = expect(
        Multinomial(laws.ucl(np.ones(2, dtype=np.int64), lam), k, 0.0, positive_required=True),
        np.array([[0.0, t], [t, 0.0]]),
    )
    with mpmath.workdps(40):
        p, q, x = mpmath.mpf(lam[1]), mpmath.mpf(lam[0]), mpmath.exp(t)
        chances = [mpmath.binomial(k, n) * p**n * q ** (k - n) for n in range(1, k + 1)]
        value = mpmath.fsum(chance * mpmath.log(n + (k - n) * x) for n, chance in enumerate(chances, 1))
        omega = mpmath.fsum(chance * (k - n) / (n + (k - n) * x) for n, chance in enumerate(chances, 1))
    assert found.log_mean[1] == pytest.approx(float(value), rel=1e-13, abs=1e-15)
    assert found.weight[1, 0] == pytest.approx(float(omega), rel=1e-12)


@pytest.mark.parametrize("positive_required", [False, True])
def test_grouped_law_matches_enumeration_over_all_classes(positive_required: bool) -> None:
    sizes = np.array([1, 3])
    law, t = laws.ucl(sizes, np.array([0.4, 0.2])), random_exponents(0.4, seed=3, groups=2)
    found = expect(Multinomial(law, 5, 0.0, positive_required), t)
    p, x = full_law(law, sizes), full_rows(t, sizes)
    for group, anchor, seen in (
        (0, 0, {1: 1}),
        (1, 1, {0: 0, 1: 2}),
    ):  # seen: one class of each group other than the anchor
        brute = brute_force(p[anchor], x[anchor], anchor, 5, 0.0, positive_required)
        assert found.log_mean[group] == pytest.approx(brute.log_mean, abs=1e-12)
        assert found.offset[group] == pytest.approx(brute.offset, rel=1e-12)
        for other, j in seen.items():
            assert found.weight[group, other] == pytest.approx(brute.omega[j], rel=1e-12)


@pytest.mark.parametrize("tau", [1.0, 0.05])
@pytest.mark.parametrize(
    ("name", "k", "a", "positive_required"),
    [
        ("ucl", 1, 0.0, False),
        ("ucl", 4, 0.0, False),
        ("scl", 6, 1.0, False),
        ("explicit", 3, 0.2, False),
        ("ucl", 2, 0.0, True),
        ("ucl", 5, 0.0, True),
    ],
)
def test_second_moments_match_enumeration(name: str, k: int, a: float, positive_required: bool, tau: float) -> None:
    law, t = law_of(name), random_exponents(tau, seed=20 + k)
    direction = np.random.default_rng(0).normal(size=(4, 4))
    found = SecondMoments(Multinomial(law, k, a, positive_required), t).product(direction)
    p, x = full_law(law, np.ones(4, dtype=int)), full_rows(t, np.ones(4, dtype=int))
    for i in range(4):
        brute = brute_force(p[i], x[i], i, k, a, positive_required)
        others = np.arange(4) != i
        moved = np.where(others, x[i] * direction[i], 0.0)
        # Relative to the sum of sizes: the directions have both signs.
        np.testing.assert_allclose(
            found[i, others] / (brute.second @ np.abs(moved) * x[i] + 1e-300)[others],
            (brute.second @ moved * x[i] / (brute.second @ np.abs(moved) * x[i] + 1e-300))[others],
            atol=2e-12,
        )


def enumerated_with_fifty_digits(p: list[float], t: list[float], k: int, a: float) -> tuple[mpmath.mpf, mpmath.mpf]:
    """E log((a or 1) + ...), relative to a where a > 0, and omega of the first class, for an anchor outside."""
    value, omega = mpmath.mpf(0), mpmath.mpf(0)
    for counts in count_vectors(k, len(p)):
        probability = mpmath.factorial(k)
        for q, c in zip(p, counts, strict=True):
            probability *= mpmath.mpf(q) ** c / mpmath.factorial(c)
        total = mpmath.fsum(c * mpmath.exp(mpmath.mpf(s)) for c, s in zip(counts, t, strict=True))
        value += probability * (mpmath.log1p(total / a) if a > 0 else mpmath.log(total))
        omega += probability * counts[0] / (a + total)
    return value, omega


@pytest.mark.parametrize(
    ("cosines", "tau", "k", "a"),
    [
        ((0.1, 0.05), 0.01, 6, 1.0),  # risk about 1e-39
        ((-0.9, -0.7), 0.01, 6, 1.0),  # risk about 1e-73
        ((-0.9, -0.7), 0.01, 6, 0.0),
        ((-0.99, 0.99), 0.02, 9, 0.0),  # both tails far apart
        ((-0.99, 0.99), 0.02, 9, 1e-3),
        ((-0.5, 0.3), 0.5, 12, 1e4),
    ],
)
def test_relative_accuracy_against_fifty_digits(cosines: tuple[float, float], tau: float, k: int, a: float) -> None:
    p, t = [0.25, 0.75], [(cosine - 1) / tau for cosine in cosines]
    # Anchor 0 of three classes sees classes 1 and 2 only.
    law = laws.explicit([[0.0, *p], [0.5, 0.0, 0.5], [0.5, 0.5, 0.0]], 3)
    found = expect(Multinomial(law, k, a), np.array([[0.0, *t], [t[0], 0.0, t[0]], [t[0], t[0], 0.0]]))
    with mpmath.workdps(50):
        value, omega = enumerated_with_fifty_digits(p, t, k, a)
        got = found.log_mean if found.log_over_a is None else found.log_over_a
        assert float(abs(mpmath.mpf(float(got[0])) / value - 1)) < 1e-12
        assert float(abs(mpmath.mpf(float(found.weight[0, 1])) / omega - 1)) < 1e-12


@pytest.mark.parametrize("a", [0.0, 1.0, 300.0])
@pytest.mark.parametrize("k", [65_536, 10_000_000])
def test_many_negatives_match_the_expansion_in_1_over_k(k: int, a: float) -> None:
    """Up to relative O(k^-3) the expectations are those of their expansions.

    E log Y = log m - v/(2 m^2) + c3/(3 m^3) - 3 v^2/(4 m^4) and E 1/Y = 1/m + v/m^3 - c3/m^4 + 3 v^2/m^5, where
    m, v, c3 are the mean, the variance and the third cumulant of Y, a sum of k i.i.d. terms.
    """
    t = random_exponents(0.5, seed=1)
    law = law_of("ucl")
    found = expect(Multinomial(law, k, a), t)
    p, x = full_law(law, np.ones(4, dtype=int)), full_rows(t, np.ones(4, dtype=int))

    def cumulants(i: int, draws: int, constant: float) -> tuple[float, float, float]:
        mean = p[i] @ x[i]
        deviation = x[i] - mean
        return constant + draws * mean, draws * (p[i] @ deviation**2), draws * (p[i] @ deviation**3)

    for i in range(4):
        m, v, c3 = cumulants(i, k, a)
        assert found.log_mean[i] == pytest.approx(
            math.log(m) - v / (2 * m**2) + c3 / (3 * m**3) - 3 * v**2 / (4 * m**4), abs=2e-13
        )
        for j in set(range(4)) - {i}:
            m, v, c3 = cumulants(i, k - 1, a + x[i, j])
            inverse = 1 / m + v / m**3 - c3 / m**4 + 3 * v**2 / m**5
            assert found.weight[i, j] == pytest.approx(k * p[i, j] * inverse, rel=1e-12)


proportions = st.lists(st.floats(1e-6, 1.0), min_size=2, max_size=6)
small_constants = st.one_of(st.just(0.0), st.floats(1e-12, 10.0))


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    weights=proportions,
    tau=st.floats(0.02, 50.0),
    k=st.integers(1, 10**6),
    a=st.one_of(st.just(0.0), st.floats(1e-3, 1e4)),
    kind=st.sampled_from(["ucl", "scl", "one-view"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_shares_add_up_to_the_mass(weights: list[float], tau: float, k: int, a: float, kind: str, seed: int) -> None:
    """offset + sum_h count omega x = E (a + n_own + sum n x)/Y = P(event)."""
    lam = np.array(weights) / np.sum(weights)
    law = (laws.scl if kind == "scl" else laws.ucl)(np.ones(lam.size, dtype=np.int64), lam)
    counts = Multinomial(law, k + 1, 0.0, True) if kind == "one-view" else Multinomial(law, k, a)
    t = random_exponents(tau, seed, lam.size)
    found = expect(counts, t)
    shares = found.offset + (law.count * found.weight * np.exp(t)).sum(axis=1)
    np.testing.assert_allclose(shares / counts.mass(), 1.0, rtol=0, atol=1e-13)


@settings(derandomize=True, deadline=None, max_examples=40)
@given(
    weights=proportions,
    tau=st.floats(0.05, 20.0),
    k=st.integers(1, 1000),
    a=small_constants,
    seed=st.integers(0, 2**32 - 1),
)
def test_jensen_and_the_single_draw_bracket_the_expectation(
    weights: list[float], tau: float, k: int, a: float, seed: int
) -> None:
    """E log(a + k mean of draws) lies between k = 1 with every draw alike and log of the mean."""
    lam = np.array(weights) / np.sum(weights)
    law = laws.ucl(np.ones(lam.size, dtype=np.int64), lam)
    t = random_exponents(tau, seed, lam.size)
    x = full_rows(t, np.ones(lam.size, dtype=int))
    found = expect(Multinomial(law, k, a), t).log_mean
    upper = np.log(a + k * x @ lam)
    lower = np.log(a + k * x) @ lam
    assert np.all(found <= upper + 1e-13 * (1 + np.abs(upper)))
    assert np.all(found >= lower - 1e-13 * (1 + np.abs(lower)))
