"""Loss rows against the literal formulas of the papers, their derivatives, and the errors of the constructors."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.reference import random_gram

from optgeom.errors import InvalidInputError
from optgeom.inputs.classes import ClassDistribution
from optgeom.losses.base import Loss
from optgeom.losses.infonce import InfoNCE
from optgeom.losses.supcon import SupCon, SupConFullBatch
from optgeom.programs.class_mean import ClassMeanProgram, lift

COUNTS = [6, 3, 2, 1]
LAM = np.array(COUNTS) / 12
EXPLICIT = np.array([[0.1, 0.4, 0.5, 0.0], [0.3, 0.0, 0.3, 0.4], [0.25, 0.25, 0.25, 0.25], [0.0, 0.9, 0.0, 0.1]])


def program_of(loss: Loss, counts: list[int] = COUNTS, grouped: bool = False) -> ClassMeanProgram:
    return ClassMeanProgram.build(ClassDistribution.from_counts(counts), loss, grouped)


def negative_law(sampling: str) -> np.ndarray:
    if sampling == "explicit":
        return EXPLICIT
    law = np.tile(LAM, (4, 1))
    if sampling == "scl":
        np.fill_diagonal(law, 0.0)
        law /= law.sum(axis=1, keepdims=True)
    return law


def literal_infonce(gram: np.ndarray, tau: float, k: int, alpha: float, q: float, law: np.ndarray) -> float:
    """sum_i lam_i E psi, every sequence of k negative classes in turn."""
    x = np.exp((gram - 1) / tau)
    terms = []
    for i in range(4):
        for classes in itertools.product(range(4), repeat=k):
            drawn = list(classes)
            probability = LAM[i] * np.prod(law[i, drawn])
            if probability > 0:
                terms.append(probability * math.log(alpha + q * x[i, drawn].sum()))
    return math.fsum(terms)


def infonce(tau: float, k: float, alpha: float, reduction: str, sampling: str) -> InfoNCE:
    if sampling == "explicit":
        return InfoNCE(tau, k, alpha, reduction, negative_law=EXPLICIT)
    return InfoNCE(tau, k, alpha, reduction, sampling)


@pytest.mark.parametrize("tau", [1.0, 0.1])
@pytest.mark.parametrize("sampling", ["ucl", "scl", "explicit"])
@pytest.mark.parametrize(
    ("k", "alpha", "reduction"),
    [(1, 0.0, "sum"), (1, 1.0, "mean"), (3, 1.0, "sum"), (4, 0.0, "mean"), (5, 0.7, "mean")],
)
def test_infonce_is_the_literal_expectation(k: int, alpha: float, reduction: str, sampling: str, tau: float) -> None:
    gram = random_gram(4, 3, seed=k)
    literal = literal_infonce(gram, tau, k, alpha, 1.0 if reduction == "sum" else 1 / k, negative_law(sampling))
    assert program_of(infonce(tau, k, alpha, reduction, sampling)).risk(gram) == pytest.approx(literal, abs=1e-12)


@pytest.mark.parametrize("sampling", ["ucl", "scl", "explicit"])
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_infonce_with_infinitely_many_negatives(alpha: float, sampling: str) -> None:
    gram = random_gram(4, 3, seed=1)
    literal = LAM @ np.log(alpha + (negative_law(sampling) * np.exp((gram - 1) / 0.3)).sum(axis=1))
    assert program_of(infonce(0.3, math.inf, alpha, "mean", sampling)).risk(gram) == pytest.approx(literal, abs=1e-13)


def batch_losses(gram: np.ndarray, tau: float, labels: tuple[int, ...]) -> list[float]:
    """Per-anchor SupCon losses of one batch of rows with these labels, collapsed to the class means.

    Anchors with a positive only.
    """
    x = np.exp((gram - 1) / tau)
    losses = []
    for a, label in enumerate(labels):
        others = [b for b in range(len(labels)) if b != a]
        positives = [b for b in others if labels[b] == label]
        if positives:
            denominator = sum(x[label, labels[b]] for b in others)
            losses.append(np.mean([-math.log(x[label, labels[b]] / denominator) for b in positives]))
    return losses


def batches(size: int, views: int, lam: np.ndarray) -> list[tuple[float, tuple[int, ...]]]:
    """Probability and row labels of every batch of images."""
    return [
        (float(np.prod(lam[list(images)])), tuple(itertools.chain.from_iterable([image] * views for image in images)))
        for images in itertools.product(range(lam.size), repeat=size)
    ]


@pytest.mark.parametrize(("size", "views"), [(2, 2), (4, 2), (3, 3)])
def test_supcon_with_views_is_the_mean_over_batches_and_infonce(size: int, views: int) -> None:
    gram = random_gram(4, 3, seed=size)
    literal = math.fsum(p * float(np.mean(batch_losses(gram, 0.4, labels))) for p, labels in batches(size, views, LAM))
    risk = program_of(SupCon(0.4, size, views)).risk(gram)
    assert risk == pytest.approx(literal, abs=1e-12)
    # log((V-1) + V sum exp t): InfoNCE with alpha = (V-1)/(V (N-1)) and the mean, up to the constant log(V (N-1)).
    same = InfoNCE(0.4, size - 1, (views - 1) / (views * (size - 1)), "mean", "ucl")
    assert program_of(same).risk(gram) + math.log(views * (size - 1)) == pytest.approx(literal, abs=1e-12)


@pytest.mark.parametrize("size", [3, 5])
def test_supcon_with_one_view_zero_and_skip(size: int) -> None:
    gram = random_gram(4, 3, seed=size)
    found = [(p, batch_losses(gram, 0.4, labels)) for p, labels in batches(size, 1, LAM)]
    total = math.fsum(p * sum(losses) for p, losses in found)
    valid = math.fsum(p * len(losses) for p, losses in found)
    assert program_of(SupCon(0.4, size, 1, "zero")).risk(gram) == pytest.approx(total / size, abs=1e-12)
    assert program_of(SupCon(0.4, size, 1, "skip")).risk(gram) == pytest.approx(total / valid, abs=1e-12)


def test_skip_is_a_ratio_of_sums_not_a_mean_of_batch_means() -> None:
    lam, simplex = np.array([0.6, 0.3, 0.1]), np.where(np.eye(3) > 0, 1.0, -0.5)
    found = [(p, losses) for p, labels in batches(3, 1, lam) if (losses := batch_losses(simplex, 0.5, labels))]
    mean_of_means = math.fsum(p * np.mean(losses) for p, losses in found) / math.fsum(p for p, _ in found)
    assert mean_of_means == pytest.approx(0.2249, abs=5e-5)
    program = ClassMeanProgram.build(ClassDistribution.from_proportions(lam), SupCon(0.5, 3, 1, "skip"))
    assert lift(program, np.eye(3)).shape == (3, 3)
    assert program.risk(simplex) == pytest.approx(0.2812, abs=5e-5)


@pytest.mark.parametrize("views", [2, 5])
def test_infinite_batch_is_the_limit_minus_its_logarithm(views: int) -> None:
    gram = random_gram(4, 3, seed=0)
    limit = program_of(SupCon(0.4, math.inf, views)).risk(gram)
    assert limit == pytest.approx(float(LAM @ np.log(np.exp((gram - 1) / 0.4) @ LAM)), abs=1e-13)
    errors = [
        program_of(SupCon(0.4, size, views)).risk(gram) - math.log(views * (size - 1)) - limit
        for size in (1001, 10_001)
    ]
    assert abs(errors[1]) < 1e-3
    assert errors[0] / errors[1] == pytest.approx(10, rel=0.02)


@pytest.mark.parametrize("views", [1, 2])
@pytest.mark.parametrize("singletons", ["zero", "skip"])
def test_full_batch_is_the_loss_of_all_rows(views: int, singletons: str) -> None:
    gram = random_gram(4, 3, seed=7)
    labels = tuple(itertools.chain.from_iterable([label] * count * views for label, count in enumerate(COUNTS)))
    losses = batch_losses(gram, 0.4, labels)
    rows = len(losses) if singletons == "skip" else len(labels)
    assert program_of(SupConFullBatch(0.4, views, singletons)).risk(gram) == pytest.approx(
        sum(losses) / rows, abs=1e-13
    )


LOSSES = [
    InfoNCE(0.3, math.inf, 0.0, "mean", "scl"),
    InfoNCE(0.3, math.inf, 1.0, "mean", "ucl"),
    InfoNCE(0.3, 1, 0.0, "sum", "scl"),
    InfoNCE(0.3, 1, 1.0, "sum", "ucl"),
    InfoNCE(0.3, 40, 0.0, "mean", "ucl"),
    InfoNCE(0.1, 7, 1.0, "sum", "scl"),
    SupCon(0.3, 6, 2),
    SupCon(0.3, 6, 1),
    SupCon(0.3, 3, 1, "skip"),
    SupConFullBatch(0.3, 1, "skip"),
]


def central(function: Callable[[float], Any], step: float) -> Any:
    """Derivative at 0 by central differences, error O(step^4)."""
    return (8 * (function(step) - function(-step)) - (function(2 * step) - function(-2 * step))) / (12 * step)


def label_of(loss: Loss) -> str:
    return "-".join(map(str, list(loss.to_dict().values())[:6]))


@pytest.mark.parametrize("loss", LOSSES, ids=label_of)
@pytest.mark.parametrize("counts", [COUNTS, [5, 5, 2, 1, 1]])
def test_derivatives_match_finite_differences(loss: Loss, counts: list[int]) -> None:
    program = program_of(loss, counts, grouped=True)
    groups = program.sizes.size
    random = np.random.default_rng(0)
    t = program.exponents(random_gram(groups, groups, seed=2) - np.diag(random.uniform(0, 1, groups)))
    direction = random.normal(size=(groups, groups))
    pull = np.exp(program.rows.log_pull(t))
    slope = central(lambda h: program.rows.value(t + h * direction), 1e-3)
    np.testing.assert_allclose((program.rows.count * pull * direction).sum(axis=1), slope, atol=1e-9)
    curvature = central(lambda h: np.exp(program.rows.log_pull(t + h * direction)), 1e-3)
    there = program.rows.count > 0
    np.testing.assert_allclose(program.rows.curvature(t)(direction)[there], curvature[there], atol=1e-9)


@pytest.mark.parametrize("loss", [loss for loss in LOSSES if "majorizer" in program_of(loss).rows.gives], ids=label_of)
def test_the_majorizer_touches_and_lies_above(loss: Loss) -> None:
    rows = program_of(loss).rows
    here, there = ((random_gram(4, 3, seed=seed) - 1) / 0.3 for seed in (3, 4))
    majorizer = rows.majorizer(here)
    assert majorizer is not None

    def bound(t: np.ndarray) -> np.ndarray:
        terms = rows.count * np.exp(majorizer.log_weight + np.where(rows.count > 0, t, 0.0))
        return majorizer.mass * np.log(np.exp(majorizer.log_offset) + terms.sum(axis=1))

    active = rows.anchor_weight > 0
    excess = (bound(there) - bound(here)) - (rows.value(there) - rows.value(here))
    assert np.all(excess[active] >= -1e-13)
    if majorizer.exact:
        np.testing.assert_allclose(excess, 0.0, atol=1e-13)
    direction = np.random.default_rng(1).normal(size=(4, 4))
    slope = central(lambda h: bound(here + h * direction), 1e-3)
    np.testing.assert_allclose(slope, (rows.count * np.exp(rows.log_pull(here)) * direction).sum(axis=1), atol=1e-9)


@pytest.mark.parametrize("loss", LOSSES, ids=label_of)
def test_groups_change_nothing(loss: Loss) -> None:
    counts = [5, 2, 5, 2, 2, 7]
    grouped, apart = program_of(loss, counts, grouped=True), program_of(loss, counts, grouped=False)
    assert (grouped.sizes.size, apart.sizes.size) == (3, 6)
    random = np.random.default_rng(5)
    cosines = random.uniform(-0.9, 0.9, (3, 3))
    cosines = (cosines + cosines.T) / 2
    full = lift(grouped, cosines)
    assert grouped.risk(cosines) == pytest.approx(apart.risk(full), abs=1e-13)
    gradient, full_gradient = grouped.log_gradient(cosines), apart.log_gradient(full)
    change = random.normal(size=(3, 3))
    change = change + change.T
    index = grouped.groups.index
    full_change = np.where(np.eye(6) > 0, 0.0, change[np.ix_(index, index)])
    moved, full_moved = grouped.gradient_derivative(cosines)(change), apart.gradient_derivative(full)(full_change)
    for i, j in itertools.permutations(range(6), 2):
        assert full_gradient[i, j] == pytest.approx(gradient[index[i], index[j]], abs=1e-12)
        assert full_moved[i, j] == pytest.approx(moved[index[i], index[j]], abs=1e-12)


@pytest.mark.parametrize("loss", LOSSES, ids=label_of)
def test_gradient_is_half_the_derivative_of_the_risk(loss: Loss) -> None:
    program = program_of(loss)
    gram = random_gram(4, 3, seed=6)
    direction = np.random.default_rng(2).normal(size=(4, 4))
    direction = direction + direction.T
    np.fill_diagonal(direction, 0.0)
    slope = central(lambda h: program.risk(gram + h * direction), 1e-3 * loss.temperature)
    assert np.sum(np.exp(program.log_gradient(gram)) * direction) == pytest.approx(slope, abs=1e-8)


@pytest.mark.parametrize("tau", [0.01, 0.001])
@pytest.mark.parametrize(
    "make",
    [
        SupConFullBatch,
        SupCon,
        lambda tau: SupCon(tau, 64),
        lambda tau: SupCon(tau, 64, 1),
        lambda tau: InfoNCE(tau, math.inf, 0.0, "mean", "scl"),
        lambda tau: InfoNCE(tau, 64, 1.0, "sum", "scl"),
    ],
)
def test_small_temperatures_stay_finite(tau: float, make: Callable[[float], Loss]) -> None:
    """The force between classes underflows there; its logarithm does not."""
    program = program_of(make(tau))
    pairs = ~np.eye(4, dtype=bool)
    for gram in (random_gram(4, 3, seed=8), np.ones((4, 4)), np.where(pairs, -1.0, 1.0)):
        assert math.isfinite(program.risk(gram))
        assert np.all(np.isfinite(program.log_gradient(gram)[pairs]))


@pytest.mark.parametrize("sampling", ["ucl", "scl"])
@pytest.mark.parametrize("k", [1, 5])
def test_smallest_temperature_without_a_constant(k: int, sampling: str) -> None:
    """At tau = .006 the negatives are so unequal that the log of their sum is the largest exponent.

    F is the expectation of that, plus the log of ties.
    """
    program = program_of(InfoNCE(0.006, k, 0.0, "sum", sampling))
    gram = np.array([[1.0, -0.9, 0.1, -1.0], [-0.9, 1.0, -0.4, 0.6], [0.1, -0.4, 1.0, -0.6], [-1.0, 0.6, -0.6, 1.0]])
    assert program.risk(gram) == pytest.approx(
        literal_infonce(gram, 0.006, k, 0.0, 1.0, negative_law(sampling)), rel=1e-12
    )
    moved = program.gradient_derivative(gram)(np.ones((4, 4)))
    assert np.all(np.isfinite(moved[~np.eye(4, dtype=bool)]))


@pytest.mark.parametrize("kind", ["infonce", "one-view"])
def test_cosines_far_outside_the_elliptope_come_back_finite(kind: str) -> None:
    """Newton's trial points may be anywhere; the marching of the quadrature must end."""
    program = program_of(InfoNCE(0.01, 8, 0.0) if kind == "infonce" else SupCon(0.01, 8, 1))
    wild = np.where(np.eye(4) > 0, 1.0, -30.0)
    wild[0, 1] = wild[1, 0] = 30.0
    assert math.isfinite(program.risk(wild))


def test_nan_gives_nan() -> None:
    assert math.isnan(program_of(InfoNCE(0.1, 8)).risk(np.full((4, 4), math.nan)))


def test_case_6_anchors_without_a_positive() -> None:
    """Labels 0, 1, 1, 3 on identical rows: log 3 for two anchors of four."""
    same = np.ones((2, 2))  # the two singletons are one group
    for singletons, value in (("skip", 1.098612), ("zero", 0.549306)):
        assert program_of(SupConFullBatch(0.1, 1, singletons), [1, 2, 1]).risk(same) == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: InfoNCE(0.0), r"`temperature` must be > 0; got 0.0 \(usual values are 0.05 to 1\)"),
        (lambda: InfoNCE(math.nan), "`temperature` must be > 0; got nan"),
        (lambda: InfoNCE("warm"), "`temperature` must be a number > 0; got 'warm'"),  # type: ignore[arg-type]
        (lambda: InfoNCE(0.1, 0), "`negatives` must be a whole number >= 1 or inf; got 0"),
        (lambda: InfoNCE(0.1, 2.5), "`negatives` must be a whole number >= 1 or inf; got 2.5"),
        (lambda: InfoNCE(0.1, 4, -1.0), "`alpha` must be >= 0; got -1.0"),
        (lambda: InfoNCE(0.1, 4, 1.0, "average"), "`negatives_reduction` must be one of sum, mean; got 'average'"),
        (lambda: InfoNCE(0.1, 4, 1.0, "sum", "all"), "`sampling` must be one of ucl, scl; got 'all'"),
        (
            lambda: InfoNCE(0.1, math.inf, 1.0, "sum"),
            "`negatives_reduction` must be 'mean' for infinitely many negatives; got 'sum'",
        ),
        (
            lambda: InfoNCE(0.001, 4, 0.0),
            "`temperature` must be >= 0.0059 for alpha = 0 and finitely many negatives; got 0.001",
        ),
        (lambda: SupCon(-1.0), "`temperature` must be > 0; got -1.0"),
        (lambda: SupCon(0.1, 1), "`batch_size` must be a whole number >= 2 or inf; got 1"),
        (lambda: SupCon(0.1, 2, 1), r"`batch_size` must be a whole number >= 3 or inf; got 2 \(one view"),
        (lambda: SupCon(0.1, 8, 0), "`views` must be a whole number >= 1; got 0"),
        (lambda: SupCon(0.1, 8, 1, "drop"), "`singletons` must be one of zero, skip; got 'drop'"),
        (lambda: SupConFullBatch(math.inf), "`temperature` must be > 0; got inf"),
        (lambda: SupConFullBatch(0.1, 1.5), "`views` must be a whole number >= 1; got 1.5"),  # type: ignore[arg-type]
        (lambda: SupConFullBatch(0.1, 1, "ignore"), "`singletons` must be one of zero, skip; got 'ignore'"),
        (lambda: program_of(SupConFullBatch(0.1), [1, 1, 1]), "got only singletons"),
        (
            lambda: program_of(InfoNCE(0.1, negative_law=np.eye(3))),
            r"`negative_law` must have shape \(C, C\) = \(4, 4\)",
        ),
        (
            lambda: program_of(InfoNCE(0.1, negative_law=EXPLICIT - 0.1)),
            "finite probabilities >= 0; got -0.1 in row 0, column 3",
        ),
        (
            lambda: program_of(InfoNCE(0.1, negative_law=EXPLICIT * math.nan)),
            "finite probabilities >= 0; got nan in row 0, column 0",
        ),
        (lambda: program_of(InfoNCE(0.1, negative_law=2 * EXPLICIT)), "row 0 sums to 2"),
    ],
)
def test_errors_say_what_is_wrong(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        make()


def test_full_batch_needs_counts() -> None:
    with pytest.raises(InvalidInputError, match="`classes` must hold whole counts"):
        ClassMeanProgram.build(ClassDistribution.from_proportions([0.5, 0.5]), SupConFullBatch(0.1))


@pytest.mark.parametrize("loss", [*LOSSES, SupCon(), InfoNCE(0.1, negative_law=EXPLICIT)], ids=label_of)
def test_description_survives_json(loss: Loss) -> None:
    described = loss.to_dict()
    assert json.loads(json.dumps(described, allow_nan=False)) == described
    assert described["name"] in {"infonce", "supcon", "supcon-full"}
    assert described["temperature"] == loss.temperature


@pytest.mark.parametrize("temperature", [1.0, 0.1, 0.002])
@pytest.mark.parametrize("counts", [[50, 20, 10, 1, 1], [7] * 6, [1000, 3]], ids=str)
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_forces_are_their_logarithms_undone(temperature: float, counts: list[int], alpha: float) -> None:
    """A log-sum has a faster way to its pulls: one exponential per entry.

    It must not overflow where a diagonal entry stands for no class.
    """
    classes = ClassDistribution.from_counts(counts)
    rng = np.random.default_rng(0)
    for loss in (InfoNCE(temperature, np.inf, alpha, "mean", "scl"), SupConFullBatch(temperature)):
        for grouped in (True, False):
            program = ClassMeanProgram.build(classes, loss, grouped)
            rows = rng.standard_normal((program.sizes.size, 3))
            rows /= np.linalg.norm(rows, axis=1)[:, None]
            with np.errstate(all="raise", under="ignore"):
                found = program.gradient(rows @ rows.T)
            np.testing.assert_allclose(found, np.exp(program.log_gradient(rows @ rows.T)), rtol=1e-10, atol=1e-300)
