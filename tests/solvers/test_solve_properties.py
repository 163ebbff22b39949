"""Properties of solve on random classes.

Against the conic solver, invariances, bounds, limits, extremes, a million classes.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from helpers.reference import LIMIT, collapsed, off_diagonal, random_gram
from hypothesis import given, settings
from hypothesis import strategies as st

import optgeom as og
from optgeom.certificates.repair import repair
from optgeom.losses.base import Loss
from optgeom.programs.class_mean import ClassMeanProgram
from optgeom.solvers.conic import solve_conic

SEEDS = st.integers(0, 2**32 - 1)
TEMPERATURES = st.floats(math.log(0.2), math.log(2.0)).map(math.exp)
LAWS = st.sampled_from(["ucl", "scl"])


def random_classes(size: int, seed: int) -> og.ClassDistribution:
    """Proportions from nearly equal to a ratio of some hundreds."""
    rng = np.random.default_rng(seed)
    weights = np.exp(rng.uniform(0, rng.uniform(0.1, 6.0), size))
    return og.ClassDistribution.from_proportions(weights / weights.sum())


def random_counts(size: int, seed: int, repeats: int = 2) -> np.ndarray:
    """Whole counts, some of them equal, in any order."""
    rng = np.random.default_rng(seed)
    drawn = np.exp(rng.uniform(0, rng.uniform(0.5, 8.0), size)).astype(int)
    drawn[rng.integers(0, size, repeats)] = drawn[0]
    return drawn


def counted(values: np.ndarray | list[int]) -> og.ClassDistribution:
    return og.ClassDistribution.from_counts(values)


def infonce(tau: float, k: float, sampling: str) -> og.InfoNCE:
    return og.InfoNCE(tau, **LIMIT, sampling=sampling) if k == math.inf else og.InfoNCE(tau, k, 1.0, "sum", sampling)


def literal_risk(gram: np.ndarray, lam: np.ndarray, tau: float, k: float, sampling: str) -> float:
    """sum_i lam_i E psi, every sequence of negative classes in turn."""
    law = np.tile(lam, (lam.size, 1)) * (1 - np.eye(lam.size) if sampling == "scl" else 1)
    law /= law.sum(axis=1, keepdims=True)
    x = np.exp((gram - 1) / tau)
    if k == math.inf:
        return float(lam @ np.log((law * x).sum(axis=1)))
    drawn = np.array(list(itertools.product(range(lam.size), repeat=int(k))))
    return float(sum(lam[i] * law[i][drawn].prod(axis=1) @ np.log1p(x[i][drawn].sum(axis=1)) for i in range(lam.size)))


# --- the same optimum by another route
# ---------------------------------------------------------------------------------------------


def agrees_with_conic(size: int, tau: float, k: float, sampling: str, seed: int) -> None:
    classes = random_classes(size, seed)
    loss = infonce(tau, k, sampling)
    geometry = og.solve(classes, loss)
    ours = literal_risk(geometry.gram, classes.proportions, tau, k, sampling)
    assert geometry.risk == pytest.approx(ours, abs=1e-12)
    answer = solve_conic(ClassMeanProgram.build(classes, loss, grouped=False), tolerance=1e-10)
    feasible = repair(answer.cosines, np.ones(size, dtype=np.int64)).cosines
    theirs = literal_risk(feasible, classes.proportions, tau, k, sampling)
    assert theirs - 1e-7 <= ours <= theirs + 1e-9
    assert geometry.certificate.lower_bound <= theirs
    assert geometry.certificate.certified and geometry.certificate.unique


@settings(max_examples=40)
@given(size=st.integers(2, 8), tau=TEMPERATURES, k=st.sampled_from([1, math.inf]), sampling=LAWS, seed=SEEDS)
def test_never_above_the_conic_reference(size: int, tau: float, k: float, sampling: str, seed: int) -> None:
    agrees_with_conic(size, tau, k, sampling, seed)


@settings(max_examples=15)
@given(size=st.integers(2, 5), tau=TEMPERATURES, sampling=LAWS, seed=SEEDS)
def test_never_above_the_conic_reference_with_three_negatives(size: int, tau: float, sampling: str, seed: int) -> None:
    agrees_with_conic(size, tau, 3, sampling, seed)


@pytest.mark.parametrize(("k", "sampling"), [(1, "ucl"), (1, "scl"), (math.inf, "ucl"), (math.inf, "scl")])
@pytest.mark.parametrize("tau", [0.2, 2.0])
def test_never_above_the_conic_reference_with_twelve_classes(tau: float, k: float, sampling: str) -> None:
    agrees_with_conic(12, tau, k, sampling, seed=12)


# --- order and grouping
# ----------------------------------------------------------------------------------------------------------------------

LOSSES: dict[str, Loss] = {
    "limit": og.InfoNCE(0.3, **LIMIT),
    "scl": og.InfoNCE(0.8, **LIMIT, sampling="scl"),
    "one": og.InfoNCE(0.6, 1, 1.0, "sum", "scl"),
    "few": og.InfoNCE(0.5, 7),
    "one-view": og.SupCon(0.9, 12, 1),
    "full": og.SupConFullBatch(0.4),
}


@settings(max_examples=60)
@given(size=st.integers(2, 9), name=st.sampled_from(sorted(LOSSES)), seed=SEEDS)
def test_order_and_grouping_change_nothing(size: int, name: str, seed: int) -> None:
    values = random_counts(size, seed)
    values[0] = max(2, values[0])  # the full batch needs a positive
    geometry = og.solve(counted(values), LOSSES[name])
    order = np.random.default_rng(seed).permutation(size)
    permuted = og.solve(counted(values[order]), LOSSES[name])
    apart = og.solve(counted(values), LOSSES[name], grouped=False)
    # A geometry of less than full rank comes from a descent method: its cosines are known to about the square root of
    # the gap.
    entries = 1e-10 if {geometry.solver.name, apart.solver.name} != {"low-rank"} else 1e-8
    for other, gram in ((permuted, geometry.gram[np.ix_(order, order)]), (apart, geometry.gram)):
        assert other.risk == pytest.approx(geometry.risk, rel=1e-12, abs=1e-13)
        np.testing.assert_allclose(other.gram, gram, atol=entries)
        assert (other.rank, other.regime) == (geometry.rank, geometry.regime)
    assert sorted(tuple(sorted(order[list(group)])) for group in permuted.coincident_classes) == list(
        geometry.coincident_classes
    )
    equal = values[:, None] == values[None, :]
    for i, j in np.argwhere(equal & ~np.eye(size, dtype=bool)):
        others = [c for c in range(size) if c not in (i, j)]
        np.testing.assert_allclose(apart.gram[i, others], apart.gram[j, others], atol=entries)  # 2605.11291, theorem 3


@pytest.mark.parametrize(
    ("values", "loss", "rank"),
    [
        ([950, 20, 20, 10], og.InfoNCE(1.0, **LIMIT), 1),
        ([500, 40, 40, 40, 3, 3, 3], og.InfoNCE(0.8, **LIMIT, sampling="scl"), None),
        ([5, 4, 3, 3, 1, 1, 1], og.SupConFullBatch(0.5), 4),
        ([9, 9, 9, 2, 2, 1, 1, 1, 1], og.SupConFullBatch(0.2), 5),
    ],
)
def test_grouping_changes_nothing_where_classes_coincide(values: list[int], loss: Loss, rank: int | None) -> None:
    geometry, apart = (og.solve(counted(values), loss, grouped=grouped) for grouped in (True, False))
    np.testing.assert_allclose(apart.gram, geometry.gram, atol=1e-10 if rank else 1e-8)
    assert apart.risk == pytest.approx(geometry.risk, abs=1e-12)
    assert apart.rank == geometry.rank < len(values) - 1
    assert rank in (None, geometry.rank)
    assert apart.coincident_classes == geometry.coincident_classes


# --- bounds
# ----------------------------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(size=st.integers(2, 7), tau=TEMPERATURES, k=st.sampled_from([1, 2, math.inf]), sampling=LAWS, seed=SEEDS)
def test_bounded_by_every_feasible_matrix(size: int, tau: float, k: float, sampling: str, seed: int) -> None:
    classes = random_classes(size, seed)
    geometry = og.solve(classes, infonce(tau, k, sampling))
    rivals = [off_diagonal(-1 / (size - 1), size), np.ones((size, size))]
    sides = 2 * np.eye(size) - 1
    rivals += [np.outer(side, side) for side in sides]  # total collapse, each class in turn alone
    rivals += [random_gram(size, dimension, seed) for dimension in range(1, size + 1)]
    rivals += [0.5 * (geometry.gram + rival) for rival in rivals]
    for rival in rivals:
        risk = literal_risk(rival, classes.proportions, tau, k, sampling)
        assert geometry.certificate.lower_bound <= risk + 1e-14
        assert geometry.risk <= risk + 1e-12


@pytest.mark.parametrize("sampling", ["ucl", "scl"])
def test_the_risk_grows_with_negatives_and_with_alpha(sampling: str) -> None:
    """The loss does so at every matrix, hence its minimum does."""
    classes = counted([50, 20, 9, 4])
    risks = [og.solve(classes, og.InfoNCE(0.5, k, 1.0, "sum", sampling)).risk for k in (1, 2, 3, 10, 100, 10**4)]
    assert np.all(np.diff(risks) > 0)
    risks = [
        og.solve(classes, og.InfoNCE(0.5, 10, alpha, "mean", sampling)).risk for alpha in (0.0, 1e-3, 0.1, 1.0, 10.0)
    ]
    assert np.all(np.diff(risks) > 0)
    # Jensen: the mean over k negatives is below its limit, and tends to it.
    limit = og.solve(classes, og.InfoNCE(0.5, math.inf, 1.0, "mean", sampling)).risk
    risks = [og.solve(classes, og.InfoNCE(0.5, k, 1.0, "mean", sampling)).risk for k in (10, 10**3, 10**5, 10**7)]
    assert np.all(np.diff([*risks, limit]) > 0)
    assert limit - risks[-1] < 1e-6


# --- closed forms
# ----------------------------------------------------------------------------------------------------------------------

ANY: list[Loss] = [
    og.InfoNCE(0.1, **LIMIT),
    og.InfoNCE(0.1, **LIMIT, sampling="scl"),
    og.InfoNCE(0.5, 1),
    og.InfoNCE(0.5, 1, 0.0),
    og.InfoNCE(0.5, 1, 0.0, "sum", "scl"),
    og.InfoNCE(0.07, 65536),
    og.SupCon(0.1, 256, 1),
    og.SupCon(0.1, 256, 1, "skip"),
    og.SupCon(0.1, 256, 2),
    og.SupCon(2.0),
    og.SupConFullBatch(0.3),
]


@pytest.mark.parametrize("loss", ANY, ids=repr)
def test_balanced_classes_form_the_regular_simplex(loss: Loss) -> None:
    for size in (2, 3, 7, 100):
        geometry = og.solve(counted([4] * size), loss)
        np.testing.assert_allclose(geometry.gram, off_diagonal(-1 / (size - 1), size), atol=1e-14)
        assert (geometry.rank, geometry.regime) == (size - 1, "spread")
        assert geometry.certificate.certified


@pytest.mark.parametrize("loss", ANY, ids=repr)
@pytest.mark.parametrize("values", [[2, 1], [10**6, 1], [1, 999]])
def test_two_classes_are_opposite(loss: Loss, values: list[int]) -> None:
    geometry = og.solve(counted(values), loss)
    assert geometry.gram[0, 1] == pytest.approx(-1.0, abs=1e-14)
    assert (geometry.rank, geometry.regime) == (1, "spread")
    assert geometry.certificate.certified and geometry.certificate.unique


@pytest.mark.parametrize("tau", [0.5, 1.0, 3.0, 100.0])
@pytest.mark.parametrize("minority", [[1, 1], [5, 3, 1], [4] * 6])
def test_total_collapse_begins_at_the_exact_odds(tau: float, minority: list[int]) -> None:
    """The limit loss collapses from odds x* = ((2 - s) + sqrt((2 - s)^2 + 8 q s)) / (2 s) on.

    Here q = exp(-2/tau) and s = q + q^2, however the minority is split.
    """
    q = math.exp(-2 / tau)
    s = q + q * q
    odds = ((2 - s) + math.sqrt((2 - s) ** 2 + 8 * q * s)) / (2 * s)
    total = sum(minority)
    for factor, expected in ((1.001, True), (0.999, False)):
        weights = np.array([factor * odds * total, *minority])
        classes = og.ClassDistribution.from_proportions(weights / weights.sum())
        geometry = og.solve(classes, og.InfoNCE(tau, **LIMIT))
        assert (geometry.rank == 1) is expected
        if expected:
            np.testing.assert_allclose(geometry.gram, collapsed(weights.size), atol=1e-12)
            assert geometry.regime == "minority-collapse"


@pytest.mark.parametrize("tau", [10.0, 100.0, 1000.0])
@pytest.mark.parametrize("values", [[4, 3, 2, 1], [30, 25, 20, 15, 15, 2]])
def test_high_temperature_balances_the_weighted_means(tau: float, values: list[int]) -> None:
    """By Hoeffding's lemma lam' A lam <= 1/(2 tau) when no class has the majority.

    It gives (lam' A lam - 1)/tau <= F <= (lam' A lam - 1)/tau + 1/(2 tau^2).
    """
    lam = np.array(values) / sum(values)
    geometry = og.solve(counted(values), og.InfoNCE(tau, **LIMIT))
    assert -1e-14 <= lam @ geometry.gram @ lam <= 1 / (2 * tau)


@pytest.mark.parametrize("tau", [0.2, 0.05, 0.01])
@pytest.mark.parametrize("values", [[4, 3, 2, 1], [900, 90, 9, 9, 1]])
def test_low_temperature_leaves_the_simplex_only(tau: float, values: list[int]) -> None:
    """The largest cosine, a, is then near -1/(C-1).

    For lam_min exp((a-1)/tau)/2 <= F - sum lam log lam <= (C-1) exp(-C/((C-1) tau)).
    """
    size, lam = len(values), np.array(values) / sum(values)
    geometry = og.solve(counted(values), og.InfoNCE(tau, **LIMIT))
    slack = tau * math.log(2 * (size - 1) / lam.min())
    off = geometry.gram[np.triu_indices(size, 1)]
    assert off.max() <= -1 / (size - 1) + slack
    assert off.min() >= -1 / (size - 1) - (off.size - 1) * slack  # their mean is at least -1/(C-1)


# --- extremes
# ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tau", [0.01, 0.05, 1.0, 100.0])
@pytest.mark.parametrize("values", [[50, 30, 20, 10, 5], [10**7, 5 * 10**6, 3 * 10**6, 2]])
@pytest.mark.parametrize("kind", ["limit", "k5", "k65536", "k10^7", "one-view", "two-views", "full"])
def test_extreme_temperatures_proportions_and_negatives(kind: str, values: list[int], tau: float) -> None:
    losses: dict[str, Loss] = {
        "limit": og.InfoNCE(tau, **LIMIT),
        "k5": og.InfoNCE(tau, 5),
        "k65536": og.InfoNCE(tau, 65536),
        "k10^7": og.InfoNCE(tau, 10**7),
        "one-view": og.SupCon(tau, 256, 1),
        "two-views": og.SupCon(tau, 256, 2),
        "full": og.SupConFullBatch(tau),
    }
    geometry = og.solve(counted(values), losses[kind])
    assert geometry.certificate.certified and geometry.certificate.unique
    assert math.isfinite(geometry.risk)
    assert np.linalg.eigvalsh(geometry.gram)[0] >= -1e-12
    assert np.all(np.diag(geometry.gram) == 1.0)


def many_negatives(size: int) -> og.Geometry:
    weights = np.arange(1, size + 1) ** -0.7
    geometry = og.solve(og.ClassDistribution.from_proportions(weights / weights.sum()), og.InfoNCE(0.1, 65536))
    assert geometry.certificate.certified
    assert (geometry.rank, geometry.regime) == (size - 1, "spread")
    values, vectors = np.linalg.eigh(geometry.gram)
    assert abs(values[0]) < 1e-12 and values[1] > 0.1
    assert np.all(vectors[:, 0] * np.sign(vectors[0, 0]) > 0)
    return geometry


def test_many_negatives() -> None:
    many_negatives(120)


def test_many_negatives_of_a_thousand_classes() -> None:
    many_negatives(1000)


# --- a million classes
# ----------------------------------------------------------------------------------------------------------------------


def test_a_million_classes_stay_in_group_form() -> None:
    sizes = np.full(300, 3333)
    sizes[0] += 10**6 - sizes.sum()
    classes = og.ClassDistribution.from_groups(np.arange(1, 301) ** 2, sizes)
    geometry = og.solve(classes, og.InfoNCE(0.1, **LIMIT))
    assert geometry.certificate.certified
    assert geometry.num_classes == 10**6 and geometry.group_cosines.shape == (300, 300)
    assert (geometry.rank, geometry.regime) == (10**6 - 1, "spread")
    # The rarest class comes first in class order, and its group is the last one.
    assert geometry.cosine(0, 1) == geometry.cosine(5, 77) == geometry.group_cosines[299, 299]
    assert geometry.cosine(0, 10**6 - 1) == geometry.cosine(10**6 - 1, 0) == geometry.group_cosines[299, 0]
    assert geometry.cosine(7, 7) == 1.0
    with pytest.raises(
        og.InvalidInputError, match=r"`gram` of 1000000 classes would need 7451 GiB; use the group form"
    ):
        _ = geometry.gram
    with pytest.raises(og.InvalidInputError, match=r"`gram` of 1000000 classes"):
        geometry.angles()
    with pytest.raises(
        og.InvalidInputError, match=r"prototypes of 1000000 classes in 999999 dimensions do not fit in memory"
    ):
        geometry.prototypes()
    with pytest.raises(og.InvalidInputError, match=r"`second` must be a class index from 0 to 999999; got 1000000"):
        geometry.cosine(0, 10**6)
    assert geometry.min_angle_deg == pytest.approx(math.degrees(math.acos(geometry.group_cosines.max())), abs=1e-9)
    assert geometry.eigenvalues().size == 600
    # The risk of the group form, summed over classes.
    m, lam = sizes[::-1], np.arange(300, 0, -1) ** 2 / float(sizes @ np.arange(1, 301) ** 2)
    x = np.exp((geometry.group_cosines - 1) / 0.1)
    inner = x @ (m * lam) - np.diag(x) * lam + lam
    assert geometry.risk == pytest.approx(float(m * lam @ np.log(inner)), rel=1e-12)


def test_a_million_equal_classes() -> None:
    geometry = og.solve(og.ClassDistribution.from_groups([3], [10**6]), og.InfoNCE(0.1, 256))
    assert geometry.cosine(0, 999999) == pytest.approx(-1 / (10**6 - 1), rel=1e-9)
    assert (geometry.rank, geometry.regime) == (10**6 - 1, "spread")
    assert geometry.certificate.certified
