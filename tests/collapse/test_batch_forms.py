"""Losses without class counts: literal implementations, brute force, another solver, published settings."""

from __future__ import annotations

import itertools
import math
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.optimize
from helpers.reference import counts_of, off_diagonal

import optgeom as og
from optgeom.errors import InvalidInputError
from optgeom.programs.class_mean import ClassMeanProgram


def unit(rows: np.ndarray) -> np.ndarray:
    return np.asarray(rows / np.linalg.norm(rows, axis=-1, keepdims=True))


def simplex(number: int) -> np.ndarray:
    return unit(np.eye(number) - 1 / number)


def cross_entropy(logits: np.ndarray) -> float:
    """Mean of -log softmax of the diagonal, as classifiers have it."""
    return float(np.mean([math.log(np.exp(row - row[i]).sum()) for i, row in enumerate(logits)]))


def literal(form: str, first: np.ndarray, second: np.ndarray, temperature: float) -> float:
    """The loss of one batch, as its public implementations write it."""
    logits = first @ second.T / temperature
    if form == "mnrl":
        return cross_entropy(logits)
    if form == "clip":
        return (cross_entropy(logits) + cross_entropy(logits.T)) / 2
    rows, number = np.concatenate([first, second]), len(first)
    scaled, total = rows @ rows.T / temperature, 0.0
    for i in range(2 * number):
        partner = (i + number) % (2 * number)
        total += math.log(sum(np.exp(scaled[i, j]) for j in range(2 * number) if j != i)) - scaled[i, partner]
    return total / (2 * number)


FORMS = ("simclr", "clip", "mnrl")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("pairs", "temperature"), [(2, 0.5), (4, 0.1), (9, 1.0)])
def test_values_are_those_of_the_public_implementations(form: str, pairs: int, temperature: float) -> None:
    values = og.pair_loss_values(pairs, form=form, temperature=temperature)
    points, one = simplex(pairs), np.tile([1.0, 0.0], (pairs, 1))
    assert values.optimal_value == pytest.approx(literal(form, points, points, temperature), rel=1e-10)
    assert values.collapsed_value == pytest.approx(literal(form, one, one, temperature), rel=1e-12)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("pairs", [2, 3, 4])
def test_no_features_go_below_the_floor(form: str, pairs: int) -> None:
    """By minimising from random starts, the two towers free of each other."""
    floor = og.pair_loss_values(pairs, form=form, temperature=0.7).optimal_value
    assert floor is not None
    lowest = math.inf
    for seed in range(4):
        start = np.random.default_rng(seed).normal(size=2 * pairs * 4)

        def value(flat: np.ndarray) -> float:
            rows = unit(flat.reshape(2, pairs, 4))
            return literal(form, rows[0], rows[1], 0.7)

        lowest = min(lowest, float(scipy.optimize.minimize(value, start, method="BFGS").fun))
    assert lowest >= floor - 1e-12
    assert lowest == pytest.approx(floor, rel=1e-5)


@pytest.mark.parametrize("form", ["clip", "mnrl"])
def test_the_floor_of_two_towers_by_cvxpy(form: str) -> None:
    number, temperature = 5, 0.6
    gram = cp.Variable((2 * number, 2 * number), PSD=True)
    across = gram[:number, number:] / temperature
    rows = [cp.log_sum_exp(across[i]) - across[i, i] for i in range(number)]
    if form == "clip":
        rows = [0.5 * row for row in rows]
        rows += [0.5 * (cp.log_sum_exp(across[:, i]) - across[i, i]) for i in range(number)]
    problem = cp.Problem(cp.Minimize(cp.sum(cp.hstack(rows)) / number), [cp.diag(gram) == 1])
    problem.solve(solver="CLARABEL")
    values = og.pair_loss_values(number, form=form, temperature=temperature)
    assert values.optimal_value == pytest.approx(float(problem.value), abs=1e-6)


def test_printed_values_of_the_theory() -> None:
    clip = og.pair_loss_values(128, form="clip", temperature=0.07)
    assert clip.collapsed_value == pytest.approx(4.852030, abs=5e-7)
    assert clip.optimal_value == pytest.approx(7.09e-5, rel=1e-3)
    assert og.pair_loss_values(4, form="mnrl").collapsed_value == pytest.approx(1.3863, abs=5e-5)
    assert og.queue_loss_values(65536).collapsed_value == pytest.approx(11.09, abs=5e-3)
    sampler = og.sampler_loss_values((32, 4), num_classes=200, temperature=0.1)
    assert sampler.optimal_value == pytest.approx(1.1003952607505736, rel=1e-12)
    assert sampler.collapsed_value == pytest.approx(math.log(127))


@pytest.mark.parametrize(
    "values",
    [
        og.pair_loss_values(128, form="clip", temperature=0.07, observed=4.852),
        og.pair_loss_values(4, form="mnrl", temperature=0.05, observed=1.3863),
        og.pair_loss_values(128, form="simclr", observed=5.541),
        og.queue_loss_values(65536, temperature=0.2, observed=11.09),
        og.sampler_loss_values((32, 4), num_classes=200, observed=4.844),
    ],
)
def test_training_that_has_not_begun(values: og.LossValues) -> None:
    assert values.verdict is not None
    assert values.verdict.startswith("collapsed: this is ln")


def test_other_verdicts() -> None:
    below = og.pair_loss_values(8, form="clip", temperature=0.5, observed=0.2).verdict
    assert below is not None and "impossible for these settings" in below and "nan" not in below
    at = og.sampler_loss_values((4, 2), num_classes=10, views=2, observed=1.0989).verdict
    assert at is not None and at.startswith("at the optimum")
    base = og.sampler_loss_values((4, 2), num_classes=10, views=2, observed=1.0989 / 0.7, base_temperature=0.07)
    assert base.scale == pytest.approx(0.1 / 0.07)


def test_simclr_is_supcon_of_single_images() -> None:
    pairs = og.pair_loss_values(50, form="simclr", temperature=0.3)
    classes = og.ClassDistribution.from_groups([1], [50])
    supcon = og.loss_values(classes, og.SupConFullBatch(0.3, views=2))
    assert pairs.optimal_value == pytest.approx(supcon.optimal_value, rel=1e-12)
    assert pairs.collapsed_value == pytest.approx(supcon.collapsed_value, rel=1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_fewer_dimensions_are_a_bracket(form: str) -> None:
    values = og.pair_loss_values(5, form=form, temperature=0.5, dim=2)
    assert values.bracket is not None and values.batch_sd is None
    low, high = values.bracket
    # Five directions around a circle are a candidate.
    angle = 2 * math.pi * np.arange(5) / 5
    circle = np.column_stack([np.cos(angle), np.sin(angle)])
    assert high <= literal(form, circle, circle, 0.5) + 1e-9
    assert low <= high
    assert low >= og.pair_loss_values(5, form=form, temperature=0.5).optimal_value - 1e-12
    assert og.pair_loss_values(5, form=form, temperature=0.5, dim=4).bracket is None


def test_a_queue_of_few_images_by_enumeration() -> None:
    """n = 3 images at the simplex, K = 4 keys: all draws."""
    values = og.queue_loss_values(4, images=3, temperature=0.4)
    x = np.exp((off_diagonal(-0.5, 3)[0] - 1) / 0.4)
    expected = sum(chance * math.log(1 + counts @ x) for counts, chance in counts_of(4, np.full(3, 1 / 3)))
    assert values.optimal_value == pytest.approx(expected, rel=1e-12)


def test_a_queue_of_ever_more_images() -> None:
    limit = og.queue_loss_values(100, temperature=0.3).optimal_value
    several = [og.queue_loss_values(100, images=n, temperature=0.3).optimal_value for n in (10**3, 10**5, 10**7)]
    assert limit is not None and all(value is not None and value > limit for value in several)
    assert several[2] == pytest.approx(limit, rel=1e-5)


@pytest.mark.parametrize(("classes", "images", "views"), [(2, 3, 1), (3, 2, 2), (4, 1, 2)])
def test_batches_of_classes_by_a_literal_supcon(classes: int, images: int, views: int) -> None:
    torch = pytest.importorskip("torch")
    from optgeom.training.losses import SupConLoss

    values = og.sampler_loss_values((classes, images), num_classes=6, views=views, temperature=0.3)
    for chosen in itertools.combinations(range(6), classes):
        labels = np.repeat(chosen, images)
        rows = torch.tensor(simplex(6)[labels])[:, None].expand(-1, views, -1)
        loss = SupConLoss(0.3)(rows if views > 1 else rows[:, 0], torch.tensor(labels))
        assert values.optimal_value == pytest.approx(float(loss), rel=1e-10)


def test_ntxent_with_labels_in_one_batch() -> None:
    """pytorch-metric-learning's NTXentLoss: each positive pair beside all negatives; the mean over pairs."""
    rng = np.random.default_rng(0)
    counts, temperature = [5, 3, 2], 0.4
    means = unit(rng.normal(size=(3, 4)))
    labels = np.repeat(np.arange(3), counts)
    cosines = (means @ means.T)[np.ix_(labels, labels)] / temperature
    terms = []
    for i, p in itertools.permutations(range(10), 2):
        if labels[i] == labels[p]:
            negatives = np.exp(cosines[i][labels != labels[i]]).sum()
            terms.append(-math.log(np.exp(cosines[i, p]) / (np.exp(cosines[i, p]) + negatives)))
    classes = og.ClassDistribution.from_counts(counts)
    weights = {str(i): count - 1.0 for i, count in enumerate(counts)}
    loss = og.SupConFullBatch(temperature, own_class_in_denominator=False, anchor_weights=weights)
    program = ClassMeanProgram.build(classes, loss, grouped=False)
    assert program.risk(means @ means.T) == pytest.approx(float(np.mean(terms)), rel=1e-12)


def test_ntxent_with_labels_summed_over_the_pairs_of_random_batches() -> None:
    """E sum over pairs / (N (N - 1) sum lam^2) is InfoNCE with N - 2 negatives, own class left out, anchors lam^2."""
    lam, size, temperature = np.array([0.5, 0.3, 0.2]), 6, 0.5
    means = unit(np.random.default_rng(1).normal(size=(3, 3)))
    gram = means @ means.T
    x = np.exp((gram - 1) / temperature) * (1 - np.eye(3))
    total = sum(
        chance * sum(n[i] * (n[i] - 1) * math.log(1 + n @ x[i]) for i in range(3)) for n, chance in counts_of(size, lam)
    )
    classes = og.ClassDistribution.from_proportions(lam)
    weights = {str(i): share for i, share in enumerate(lam)}
    loss = og.InfoNCE(temperature, size - 2, 1.0, own_class_in_denominator=False, anchor_weights=weights)
    expected = total / (size * (size - 1) * np.sum(lam**2))
    assert ClassMeanProgram.build(classes, loss, grouped=False).risk(gram) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: og.pair_loss_values(1, form="clip"), "`pairs` must be a whole number >= 2; got 1"),
        (lambda: og.pair_loss_values(4, form="siglip"), "`form` must be one of simclr, clip, mnrl; got 'siglip'"),
        (lambda: og.pair_loss_values(4, form="clip", temperature=0.0), "`temperature` must be > 0; got 0.0"),
        (lambda: og.pair_loss_values(4, form="clip", equal_within=0.7), "`equal_within` must be below 0.5; got 0.7"),
        (lambda: og.queue_loss_values(0), "`queue` must be a whole number >= 1; got 0"),
        (lambda: og.queue_loss_values(8, images=1), "`images` must be a whole number >= 2; got 1"),
        (lambda: og.sampler_loss_values((1, 4), num_classes=9), r"`per_class\[0\]` must be a whole number >= 2; got 1"),
        (lambda: og.sampler_loss_values((4, 4), num_classes=3), "`num_classes` must be a whole number >= 4; got 3"),
        (
            lambda: og.sampler_loss_values((4, 1), num_classes=9),
            "two rows or more in a batch; got one image with one view",
        ),
    ],
)
def test_values_outside_their_domain(call: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        call()
