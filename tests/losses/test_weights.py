"""Weights and temperatures per class against enumeration, published values and another solver; their errors."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.reference import counts_of, random_gram

import optgeom as og
from optgeom.errors import InvalidInputError
from optgeom.losses.base import Loss
from optgeom.losses.rows import LogSumRows, MultinomialRows, RowWeights
from optgeom.programs.class_mean import ClassMeanProgram
from optgeom.solvers.conic import solve_conic
from optgeom.solvers.newton import solve_newton

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "golden-2.json").read_text())["weighted"]
NAMES = ["cat", "dog", "owl", "yak"]
CLASSES = og.ClassDistribution.from_counts([6, 3, 2, 1], NAMES)
LAM = np.array([6, 3, 2, 1]) / 12
ANCHOR = {"dog": 2.0, "cat": 0.5, "yak": 7.0, "owl": 1.0}
A = np.array([0.5, 2.0, 1.0, 7.0])
NEGATIVE = {"cat": 0.3, "dog": 1.0, "owl": 2.5, "yak": 4.0}
B = np.array([0.3, 1.0, 2.5, 4.0])
TABLE = np.random.default_rng(3).uniform(0.2, 5.0, (4, 4))
TEMPERATURES = {"cat": 0.3, "dog": 0.5, "owl": 0.9, "yak": 0.4}
TAU = np.array([0.3, 0.5, 0.9, 0.4])
MARGIN = {"cat": 0.6, "dog": -0.2, "owl": 0.0, "yak": 1.1}
M = np.array([0.6, -0.2, 0.0, 1.1])


def with_margins(b: np.ndarray, tau: np.ndarray) -> np.ndarray:
    """Weights of negatives of other classes times exp(m_i / tau_i)."""
    return np.where(np.eye(4) > 0, b, b * np.exp(M / tau)[:, None])


# Parameters, and what they mean: a, b (own class on the diagonal), tau.
CASES: dict[str, tuple[dict[str, Any], np.ndarray, np.ndarray, np.ndarray]] = {
    "anchors": ({"anchor_weights": ANCHOR}, A, np.ones((4, 4)), np.full(4, 0.5)),
    "balanced": ({"anchor_weights": "balanced"}, 1 / LAM, np.ones((4, 4)), np.full(4, 0.5)),
    "negatives": ({"negative_weights": NEGATIVE}, np.ones(4), np.tile(B, (4, 1)), np.full(4, 0.5)),
    "class-average": (
        {"negative_weights": "class-average"},
        np.ones(4),
        np.tile(1 / (4 * LAM), (4, 1)),
        np.full(4, 0.5),
    ),
    "table": ({"negative_weights": TABLE, "anchor_weights": ANCHOR}, A, TABLE, np.full(4, 0.5)),
    "without own": (
        {"own_class_in_denominator": False, "negative_weights": NEGATIVE},
        np.ones(4),
        np.tile(B, (4, 1)) * (1 - np.eye(4)),
        np.full(4, 0.5),
    ),
    "temperatures": (
        {"class_temperatures": TEMPERATURES, "negative_weights": NEGATIVE},
        np.ones(4),
        np.tile(B, (4, 1)),
        TAU,
    ),
    "margins": ({"margin": MARGIN}, np.ones(4), with_margins(np.ones((4, 4)), np.full(4, 0.5)), np.full(4, 0.5)),
    "margins and all": (
        {
            "margin": MARGIN,
            "class_temperatures": TEMPERATURES,
            "negative_weights": TABLE,
            "anchor_weights": ANCHOR,
        },
        A,
        with_margins(TABLE, TAU),
        TAU,
    ),
}


def program_of(loss: Loss, classes: og.ClassDistribution = CLASSES) -> ClassMeanProgram:
    return ClassMeanProgram.build(classes, loss, grouped=False)


def enumerated(
    gram: np.ndarray, case: str, k: int, constant: float, factor: float = 1.0, positive: bool = False
) -> tuple[float, np.ndarray]:
    """sum_i r_i E log( constant + factor sum_j n_j b_ij x_ij ) over all counts, and its derivative in each A_ij.

    With `positive` only counts with a row of the anchor's class count.
    """
    _, a, b, tau = CASES[case]
    r = LAM * a / np.sum(LAM * a)
    value, slopes = [], np.zeros((4, 4))
    for i in range(4):
        x = b[i] * np.exp((gram[i] - 1) / tau[i])
        for n, chance in counts_of(k, LAM):
            if positive and n[i] == 0:
                continue
            total = constant + factor * float(n @ x)
            value.append(r[i] * chance * math.log(total))
            slopes[i] += r[i] * chance * factor * n * x / total / tau[i]
    return math.fsum(value), slopes


def check(program: ClassMeanProgram, gram: np.ndarray, value: float, slopes: np.ndarray) -> None:
    assert program.risk(gram) == pytest.approx(value, abs=1e-12)
    expected = (slopes + slopes.T) / 2
    np.fill_diagonal(expected, 0.0)
    assert program.gradient(gram) == pytest.approx(expected, abs=1e-11)
    off = ~np.eye(4, dtype=bool)
    assert np.exp(program.log_gradient(gram)[off]) == pytest.approx(expected[off], rel=1e-9)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("size", "views"), [(4, 2), (6, 2), (5, 3), (4, 1), (6, 1)])
def test_supcon_with_weights_is_the_mean_over_all_batches(size: int, views: int, case: str) -> None:
    gram = random_gram(4, 3, seed=size)
    given = CASES[case][0]
    loss = og.SupCon(temperature=0.5, batch_size=size, views=views, **given)
    # Other views of the anchor's image count once; without the own class the positive alone is left of it.
    constant = views - 1.0 if given.get("own_class_in_denominator", True) else 1.0
    check(program_of(loss), gram, *enumerated(gram, case, size - 1, constant, views, positive=views == 1))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("k", "alpha"), [(1, 1.0), (3, 0.7), (4, 0.0), (1, 0.0)])
def test_infonce_with_weights_is_the_mean_over_all_negatives(k: int, alpha: float, case: str) -> None:
    if alpha == 0 and case == "without own":
        pytest.skip("the logarithm of 0 is refused")
    if (k, alpha) == (1, 0.0) and case.startswith("margins"):
        pytest.skip("margins of a single negative without the positive are refused")
    gram = random_gram(4, 3, seed=k)
    loss = og.InfoNCE(temperature=0.5, negatives=k, alpha=alpha, **CASES[case][0])
    check(program_of(loss), gram, *enumerated(gram, case, k, alpha))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_the_limit_with_weights(alpha: float, case: str) -> None:
    _, a, b, tau = CASES[case]
    gram = random_gram(4, 3, seed=2)
    r = LAM * a / np.sum(LAM * a)
    expected = r @ np.log(alpha + (LAM * b * np.exp((gram - 1) / tau[:, None])).sum(axis=1))
    limits: list[Loss] = [
        og.InfoNCE(0.5, math.inf, alpha, "mean", **CASES[case][0]),
        *([og.SupCon(0.5, **CASES[case][0])] if alpha == 0 else []),
    ]
    for loss in limits:
        assert program_of(loss).risk(gram) == pytest.approx(expected, abs=1e-13)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("views", [1, 2])
@pytest.mark.parametrize("singletons", ["zero", "skip"])
def test_the_full_batch_with_weights(singletons: str, views: int, case: str) -> None:
    given, a, b, tau = CASES[case]
    gram = random_gram(4, 3, seed=2)
    rows = views * np.array([6, 3, 2, 1])
    total, count = 0.0, 0.0
    for i in range(4):
        x = rows * b[i] * np.exp((gram[i] - 1) / tau[i])
        x[i] = (views - 1) + (rows[i] - views) * b[i, i] if given.get("own_class_in_denominator", True) else 1.0
        valid = rows[i] > 1
        total += rows[i] * a[i] * math.log(x.sum()) if valid else 0.0
        count += rows[i] * a[i] * (valid or singletons == "zero")
    loss = og.SupConFullBatch(0.5, views, singletons, **given)
    assert program_of(loss).risk(gram) == pytest.approx(total / count, abs=1e-13)


def test_sincere_of_the_theory() -> None:
    classes = og.ClassDistribution.from_proportions([0.6, 0.3, 0.1])
    gram = np.array([[1.0, -0.6, -0.3], [-0.6, 1.0, -0.2], [-0.3, -0.2, 1.0]])
    loss = og.SupCon(0.5, batch_size=4, views=2, own_class_in_denominator=False)
    assert program_of(loss, classes).risk(gram) == pytest.approx(0.154758078944, abs=2e-13)


def golden_program(case: dict[str, Any]) -> ClassMeanProgram:
    """The program of a reference case, built from its rows."""
    classes = og.ClassDistribution.from_counts([4, 3, 2, 1])
    loss = og.SupCon(class_temperatures=dict(zip("0123", case["tau"], strict=True)))
    program = program_of(loss, classes)
    r, w, o = np.array(case["r"]), np.array(case["w"]), np.array(case["o"])
    if case["finite"] is None:
        with np.errstate(divide="ignore"):
            rows: Any = LogSumRows(program.count, r, o, np.log(w))
    else:
        from optgeom.losses import law

        share = np.array([0.5, 0.3, 0.15, 0.05])
        weights = RowWeights(r, np.tile(1 / share, (4, 1)), 1 / share)
        rows = MultinomialRows.of(law.ucl(np.ones(4, dtype=np.int64), share), 7, weights, alpha=o)
    return ClassMeanProgram(program.groups, loss, rows, program.coincident)


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case["name"])
def test_reference_optima_of_weighted_rows(case: dict[str, Any]) -> None:
    program = golden_program(case)
    found = solve_newton(program)
    assert found.converged
    assert program.risk(found.cosines) == pytest.approx(case["risk"], rel=1e-12, abs=1e-13)
    at = tuple(np.array(case["pairs"]).T)
    assert found.cosines[at] == pytest.approx(np.array(case["cosines"]), abs=1e-11)


# Smallest and largest angle in the limit of large batches, by what is weighted: nothing, anchors, negatives, both.
ANGLES = {
    ("cifar10-lt:100", 0.1): ((84.9, 101.5), (87.2, 108.1), (84.9, 101.5), (96.4, 96.4)),
    ("cifar10-lt:100", 0.5): ((76.0, 114.2), (38.8, 126.6), (13.5, 121.3), (96.4, 96.4)),
    ("cifar100-lt:100", 0.2): ((85.7, 93.2), (68.9, 105.1), (68.8, 99.0), (90.6, 90.6)),
    ("cifar100-lt:100", 0.5): ((88.7, 93.6), (35.6, 115.3), (0.0, 113.7), (90.6, 90.6)),
}
BALANCES = ({}, {"anchor_weights": "balanced"}, {"negative_weights": "class-average"})
BOTH = {**BALANCES[1], **BALANCES[2]}


@pytest.mark.parametrize("which", range(4))
@pytest.mark.parametrize(("profile", "temperature"), ANGLES)
def test_angles_of_balanced_losses(profile: str, temperature: float, which: int) -> None:
    geometry = og.solve(og.ClassDistribution.from_profile(profile), og.SupCon(temperature, **(*BALANCES, BOTH)[which]))
    angles = geometry.angles()[np.triu_indices(geometry.num_classes, 1)]
    assert (angles.min(), angles.max()) == pytest.approx(ANGLES[profile, temperature][which], abs=0.06)
    assert geometry.certificate.certified
    merged = (profile, temperature, which) == ("cifar100-lt:100", 0.5, 2)
    assert geometry.rank == (88 if merged else geometry.num_classes - 1)


def random_loss(rng: np.random.Generator, number: int) -> tuple[og.ClassDistribution, Loss]:
    names = [str(i) for i in range(number)]
    given: dict[str, Any] = {"anchor_weights": dict(zip(names, rng.lognormal(0, 1, number), strict=True))}
    if rng.random() < 0.5:
        given["negative_weights"] = rng.lognormal(0, 1, (number, number))
    else:
        given["negative_weights"] = dict(zip(names, rng.lognormal(0, 1, number), strict=True))
    if rng.random() < 0.3:
        given["own_class_in_denominator"] = False
    if rng.random() < 0.5:
        given["class_temperatures"] = dict(zip(names, rng.uniform(0.4, 1.5, number), strict=True))
    if rng.random() < 0.5 and "own_class_in_denominator" not in given:
        given["margin"] = dict(zip(names, rng.normal(0, 0.5, number), strict=True))
    loss: Loss = og.SupCon(0.5, **given)
    if rng.random() < 0.4 and number <= 4:
        loss = og.InfoNCE(0.5, int(rng.integers(1, 4)), 1.0, **given)
    return og.ClassDistribution.from_counts(rng.integers(5, 200, number)), loss


@pytest.mark.parametrize("seed", range(12))
def test_random_weights_against_the_conic_solver(seed: int) -> None:
    rng = np.random.default_rng(seed)
    classes, loss = random_loss(rng, int(rng.integers(3, 9)))
    ours = og.solve(classes, loss)
    assert ours.certificate.certified
    program = program_of(loss, classes)
    reference = solve_conic(program, tolerance=1e-10)
    assert ours.risk <= reference.value + 1e-9
    assert ours.risk == pytest.approx(reference.value, abs=1e-7)


@pytest.mark.parametrize("seed", range(10))
def test_random_weights_against_a_model_of_cvxpy(seed: int) -> None:
    """The program as the theory writes it, in another language: sum r_i log-sum-exp of affine functions of A."""
    import cvxpy as cp

    rng = np.random.default_rng(100 + seed)
    number = int(rng.integers(3, 9))
    names = [str(i) for i in range(number)]
    counts = rng.integers(5, 200, number)
    lam = counts / counts.sum()
    a, b = rng.lognormal(0, 1, number), rng.lognormal(0, 1, (number, number))
    tau, m = rng.uniform(0.4, 1.2, number), rng.normal(0, 0.4, number)
    loss = og.SupCon(
        anchor_weights=dict(zip(names, a, strict=True)),
        negative_weights=b,
        class_temperatures=dict(zip(names, tau, strict=True)),
        margin=dict(zip(names, m, strict=True)),
    )
    r = lam * a / (lam @ a)
    gram = cp.Variable((number, number), PSD=True)
    rows = []
    for i in range(number):
        shift = np.log(lam * b[i]) + np.where(np.arange(number) == i, 0.0, (m[i] - 1) / tau[i])
        scale = np.where(np.arange(number) == i, 0.0, 1 / tau[i])
        rows.append(r[i] * cp.log_sum_exp(shift + cp.multiply(scale, gram[i])))
    problem = cp.Problem(cp.Minimize(cp.sum(cp.hstack(rows))), [cp.diag(gram) == 1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # asked for more digits than it has, it says so
        problem.solve(solver="CLARABEL", tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    ours = og.solve(og.ClassDistribution.from_counts(counts), loss)
    assert ours.certificate.certified
    assert ours.risk == pytest.approx(float(problem.value), abs=1e-7)
    assert ours.risk <= float(problem.value) + 1e-9 + 1e-9 * abs(float(problem.value))


def test_absolute_margins_of_the_theory() -> None:
    """Section 15: these margins have the simplex; shifted so that the head has none, they do not."""
    classes = og.ClassDistribution.from_counts([5000, 1500, 400, 100])
    margins = np.array([0.7639601194530633, 0.8867425214678749, 1.028881089560991, 1.2234721044665222])
    for shift, ends in ((0.0, (109.471, 109.471)), (margins[0], (108.3, 110.6))):
        margin = dict(zip("0123", margins - shift, strict=True))
        angles = og.solve(classes, og.SupCon(0.1, negative_weights="class-average", margin=margin)).angles()
        found = angles[np.triu_indices(4, 1)]
        assert (found.min(), found.max()) == pytest.approx(ends, abs=0.05)


@pytest.mark.parametrize(
    ("given", "groups"),
    [
        ({"anchor_weights": "balanced", "negative_weights": "class-average"}, 2),
        ({"anchor_weights": {"a": 1, "b": 2, "c": 2, "d": 3}}, 3),
        ({"negative_weights": {"a": 1, "b": 2, "c": 2, "d": 2}}, 2),
        ({"class_temperatures": {"a": 0.5, "b": 0.5, "c": 0.5, "d": 0.4}}, 3),
        ({"negative_weights": np.where(np.eye(4) > 0, 1.0, 2.0)}, 2),
        ({"negative_weights": [[1, 2, 2, 2], [3, 1, 4, 4], [3, 4, 1, 4], [3, 4, 4, 1]]}, 2),
        ({"negative_weights": [[1, 2, 2, 2], [3, 1, 4, 5], [3, 4, 1, 4], [3, 4, 4, 1]]}, 4),
    ],
)
@pytest.mark.parametrize("loss", [og.SupCon(0.7), og.SupCon(0.7, batch_size=6), og.InfoNCE(0.7, 3)])
def test_classes_that_agree_in_everything_are_one_group(loss: Any, given: dict[str, Any], groups: int) -> None:
    classes = og.ClassDistribution.from_counts([9, 3, 3, 3], ["a", "b", "c", "d"])
    weighted = loss.with_options(given)
    assert ClassMeanProgram.build(classes, weighted).sizes.size == groups
    grouped, apart = og.solve(classes, weighted), og.solve(classes, weighted, grouped=False)
    assert grouped.risk == pytest.approx(apart.risk, abs=1e-11)
    assert grouped.gram == pytest.approx(apart.gram, abs=1e-8)


def test_class_order_does_not_matter() -> None:
    loss = og.SupCon(0.5, anchor_weights=ANCHOR, class_temperatures=TEMPERATURES, negative_weights=NEGATIVE)
    order = [2, 0, 3, 1]
    turned = og.ClassDistribution.from_counts(np.array([6, 3, 2, 1])[order], [NAMES[i] for i in order])
    expected = og.solve(CLASSES, loss).gram[np.ix_(order, order)]
    assert og.solve(turned, loss).gram == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", [og.SupCon, og.InfoNCE, og.SupConFullBatch])
def test_weights_survive_files(kind: Any, case: str, tmp_path: Path) -> None:
    loss = kind(temperature=0.5, **CASES[case][0])
    described = json.loads(json.dumps(loss.to_dict()))
    again = Loss.from_dict(described)
    assert again.to_dict() == loss.to_dict()
    assert again.words() == loss.words() != kind(temperature=0.5).words()
    geometry = og.solve(CLASSES, loss)
    for name in ("geometry.json", "geometry.npz"):
        geometry.save(tmp_path / name)
        kept = og.Geometry.load(tmp_path / name)
        assert kept.certificate.certified
        assert kept.loss.to_dict() == loss.to_dict()


def test_losses_with_weights_are_values() -> None:
    first, second = (og.SupCon(0.5, anchor_weights=dict(ANCHOR), negative_weights=TABLE) for _ in range(2))
    assert first == second
    assert hash(first) == hash(second)
    assert first != og.SupCon(0.5, anchor_weights=ANCHOR)
    assert dict(first.anchor_weights) == ANCHOR
    assert "anchor_weights" not in og.SupCon().to_dict()


def test_weights_in_words() -> None:
    loss = og.SupCon(0.5, anchor_weights="balanced", negative_weights="class-average", own_class_in_denominator=False)
    assert loss.words() == (
        "SupCon, temperature 0.5, the limit of large batches, balanced anchors, class-averaged negatives, "
        "own class left out of the denominator"
    )
    temperatures = og.InfoNCE(class_temperatures=TEMPERATURES, negative_weights=NEGATIVE).words()
    assert temperatures.startswith("InfoNCE, 256 negatives")
    assert temperatures.endswith("weighted negatives, a temperature per class")
    assert og.SupCon(margin=MARGIN).words().endswith("the limit of large batches, a margin per class")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"anchor_weights": "equal"}, r"`anchor_weights` must be 'balanced' or one positive number per class by name"),
        ({"anchor_weights": {}}, r"`anchor_weights` must name every class; got no name"),
        ({"anchor_weights": {"cat": 0}}, r"`anchor_weights\[cat\]` must be > 0; got 0"),
        ({"anchor_weights": [1, 2]}, r"`anchor_weights` must be 'balanced' or one positive number"),
        ({"negative_weights": {"cat": math.nan}}, r"`negative_weights\[cat\]` must be > 0; got nan"),
        ({"negative_weights": [1, 2, 3]}, r"`negative_weights` must have shape \(C, C\) in class order; got \(3,\)"),
        ({"negative_weights": [[1, -2], [3, 4]]}, r"finite weights >= 0; got -2.0 in row 0, column 1"),
        ({"negative_weights": object()}, r"`negative_weights` must be a \(C, C\) table of numbers; got object"),
        ({"class_temperatures": 0.5}, r"`class_temperatures` must be one positive number per class by name; got 0.5"),
        ({"margin": 0.5}, r"`margin` must be one number per class by name; got 0.5"),
        ({"margin": {"cat": math.inf}}, r"`margin\[cat\]` must be a finite number; got inf .give every class a number"),
        ({"margin": {"cat": 40.0}}, r"`margin` must be at most 300 times the temperature, 30; got 40 for cat"),
        ({"own_class_in_denominator": "no"}, r"`own_class_in_denominator` must be True or False; got 'no'"),
    ],
)
def test_weights_outside_their_domain(given: dict[str, Any], message: str) -> None:
    for kind in (og.SupCon, og.InfoNCE, og.SupConFullBatch):
        with pytest.raises(InvalidInputError, match=message):
            kind(**given)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (og.SupCon(anchor_weights={"cat": 1, "cow": 2}), "`anchor_weights` must name classes; got 'cow'"),
        (og.SupCon(class_temperatures={"cat": 1, "yak": 2}), "value for every class; got none for dog, owl"),
        (og.SupCon(negative_weights=np.ones((3, 3))), r"shape \(C, C\) = \(4, 4\) in class order; got \(3, 3\)"),
        (og.SupCon(negative_weights=np.zeros((4, 4))), "leave something in every denominator"),
        (
            og.InfoNCE(negatives=2, alpha=0.0, negative_weights=1 - np.eye(4)[[1, 0, 2, 3]]),
            "leave something in every denominator",
        ),
    ],
)
def test_weights_that_do_not_fit_the_classes(loss: Loss, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        og.solve(CLASSES, loss)


@pytest.mark.parametrize(
    "loss",
    [
        og.SupCon(own_class_in_denominator=False, margin=MARGIN),
        og.InfoNCE(0.1, math.inf, 0.0, "mean", "scl", margin=MARGIN),
        og.InfoNCE(0.5, 4, 0.0, sampling="scl", margin=MARGIN),
        og.InfoNCE(0.5, 1, 0.0, margin=MARGIN),
    ],
)
def test_margins_that_change_nothing(loss: Loss) -> None:
    with pytest.raises(InvalidInputError, match=r"margins, which only add a constant there \(keep the positive"):
        og.solve(CLASSES, loss)


def test_weights_that_infonce_refuses() -> None:
    with pytest.raises(InvalidInputError, match="must be True for alpha = 0"):
        og.InfoNCE(negatives=3, alpha=0.0, own_class_in_denominator=False)
    with pytest.raises(InvalidInputError, match="'batch-average' for InfoNCE"):
        og.InfoNCE(negative_weights="batch-average")
    with pytest.raises(InvalidInputError, match=r"`temperature` must be >= 0.0059 .* got 0.005"):
        og.InfoNCE(negatives=3, alpha=0.0, class_temperatures={"a": 0.005, "b": 1.0})


def test_rows_of_named_weights_need_the_classes() -> None:
    with pytest.raises(InvalidInputError, match="by class needs the classes"):
        og.SupCon(anchor_weights=ANCHOR).rows(CLASSES.groups)
