"""Losses of explicit rows: cases of practice, written-out loops, and the risk of certified geometries."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from helpers.clouds import cloud, collapsed, supcon_by_hand, unit
from helpers.row_losses import supcon_loss
from scipy.special import logsumexp

import optgeom as og
from optgeom.embeddings.metrics.empirical_risk import empirical_risk
from optgeom.errors import InvalidInputError
from optgeom.losses import GeneralizedContrastive
from optgeom.programs.class_mean import ClassMeanProgram
from optgeom.prototypes import simplex_vertices

THREE = og.ClassDistribution.from_proportions([0.6, 0.3, 0.1])
SHARES = np.array([0.6, 0.3, 0.1])


# --- one batch: cases from practice

POINT = [0.6, 0.8]


def test_identical_rows():
    """Cases 1 and 2."""
    assert supcon_loss([POINT] * 8, [0, 0, 1, 1, 2, 2, 2, 2]).value == pytest.approx(1.945910, abs=5e-7)
    assert supcon_loss([POINT] * 16, [1] * 16).value == pytest.approx(2.708050, abs=5e-7)
    assert supcon_loss([POINT] * 16, [0] * 8 + [1] * 8).value == pytest.approx(2.708050, abs=5e-7)


def test_stuck_at_six_point_nine_two():
    """Case 3: the factor T / T_base is the caller's."""
    assert supcon_loss([POINT] * 128, np.repeat(np.arange(64), 2), 0.1).value * 0.1 / 0.07 == pytest.approx(
        6.920267, abs=5e-7
    )


def test_simclr():
    """Case 4: 128 pairs, collapsed and at the simplex."""
    images = np.repeat(np.arange(128), 2)
    assert supcon_loss([POINT] * 256, images, 0.1).value == pytest.approx(5.541264, abs=5e-7)
    assert supcon_loss(simplex_vertices(128)[images], images, 0.1).value == pytest.approx(0.010602, abs=5e-7)


def test_floor_of_balanced_classes():
    """Case 5."""
    codes = np.repeat(np.arange(6), 20)
    assert supcon_loss(simplex_vertices(6)[codes], codes, 0.1).value == pytest.approx(2.944471, abs=5e-7)


def test_anchors_without_a_positive():
    """Case 6."""
    skip, zero = (supcon_loss([POINT] * 4, [0, 1, 1, 3], 0.1, way) for way in ("skip", "zero"))
    assert skip.value == pytest.approx(1.098612, abs=5e-7) and zero.value == pytest.approx(0.549306, abs=5e-7)
    assert skip.terms == pytest.approx([np.nan, math.log(3), math.log(3), np.nan], nan_ok=True)
    assert (skip.anchors, skip.skipped) == (4, 2)


def test_no_positive_anywhere():
    """Case 7: undefined, not 0."""
    assert np.isnan(supcon_loss([POINT] * 4, [0, 1, 2, 3]).terms).all()
    with pytest.raises(InvalidInputError, match=r"got only singletons \(SupCon is undefined, not 0"):
        empirical_risk([POINT] * 4, [0, 1, 2, 3], og.SupConFullBatch(0.1))


@pytest.mark.parametrize("tau", [0.01, 0.001])
def test_small_temperatures_in_float32(tau):
    """Case 8."""
    rows, codes = cloud((6, 5, 4))
    found = supcon_loss(rows.astype(np.float32), codes, tau)
    exact = unit(rows.astype(np.float32).astype(float))
    assert found.value == pytest.approx(np.mean(supcon_by_hand(exact, codes, tau)), rel=1e-9) and np.isfinite(
        found.value
    )


def test_supcon_is_the_loop(monkeypatch):
    monkeypatch.setattr("optgeom.embeddings.metrics.pair_risk.ENTRIES", 50)
    rows, codes = cloud((7, 4, 1, 1))
    expected = supcon_by_hand(rows, codes, 0.3)
    found = supcon_loss(rows, codes, 0.3)
    assert found.terms == pytest.approx(expected, rel=1e-12, nan_ok=True)
    assert found.value == pytest.approx(np.nansum(expected) / 13)
    assert supcon_loss(rows, codes, 0.3, "skip").value == pytest.approx(np.nanmean(expected))


# --- collapsed rows at the optimum have the population risk


@pytest.mark.parametrize(
    "loss",
    [
        og.SupCon(0.5, batch_size=2, views=2),
        og.SupCon(0.5, batch_size=4, views=3),
        og.SupCon(0.2, batch_size=3, views=1),
        og.SupCon(0.5, batch_size=5, views=1, singletons="skip"),
        og.InfoNCE(0.5, negatives=1, alpha=0.0),
        og.InfoNCE(0.5, negatives=1, sampling="scl"),
        og.InfoNCE(0.2, negatives=6, alpha=1.0, negatives_reduction="mean"),
        og.InfoNCE(1.0, negatives=4, alpha=0.0, sampling="scl"),
        og.InfoNCE(0.5, negatives=3, negative_law=np.array([[0.2, 0.5, 0.3], [0.7, 0.1, 0.2], [0.5, 0.5, 0.0]])),
    ],
    ids=str,
)
def test_rows_at_the_optimum_have_its_risk(loss):
    geometry = og.solve(THREE, loss, tolerance=1e-7)
    # proportions decide, not the numbers of rows
    rows, codes = collapsed(geometry, [20, 20, 15])
    found = empirical_risk(rows, codes, loss, SHARES, seed=5, batches=1500)
    assert 0 < found.standard_error < 0.03
    assert abs(found.value - geometry.risk) < 4 * found.standard_error
    # and the simplex is not mistaken for the optimum where they differ by more than the noise
    assert found.convention == "the loss itself, nothing left out" and found.rows == 55


@pytest.mark.parametrize(
    "loss",
    [
        og.SupCon(0.5),
        og.SupCon(0.1, views=1),
        og.InfoNCE(0.5, math.inf, 1.0, "mean"),
        og.InfoNCE(0.5, math.inf, 0.0, "mean", "scl"),
        og.InfoNCE(0.1, math.inf, 2.0, "mean", "ucl"),
    ],
    ids=str,
)
def test_the_limits_are_exact(loss):
    geometry = og.solve(THREE, loss)
    rows, codes = collapsed(geometry, [7, 3, 1])
    found = empirical_risk(rows, codes, loss, SHARES)
    assert found.value == pytest.approx(geometry.risk, rel=1e-9, abs=1e-12) and found.standard_error == 0
    assert found.stand_ins == 1  # the single row of the third class is its own positive
    assert ("log(views" in found.convention) == isinstance(loss, og.SupCon)
    default = empirical_risk(rows, codes, loss)
    other = og.ClassDistribution.from_counts([7, 3, 1])
    assert default.value == pytest.approx(
        ClassMeanProgram.build(other, loss, grouped=False).risk(geometry.gram), rel=1e-9
    )


@pytest.mark.parametrize("singletons", ["zero", "skip"])
def test_full_batch(singletons):
    counts = [3, 2, 1, 1]
    loss = og.SupConFullBatch(0.5, singletons=singletons)
    geometry = og.solve(og.ClassDistribution.from_counts(counts), loss)
    rows, codes = collapsed(geometry, counts)
    found = empirical_risk(rows, codes, loss)
    assert found.value == pytest.approx(geometry.risk, rel=1e-10)
    if singletons == "zero":
        assert found.value == pytest.approx(0.393997886069, abs=1e-11)
    assert (found.skipped, found.standard_error) == (2, 0)
    # any rows: SupCon of all of them, whatever their spread
    rows, codes = cloud((9, 5, 3, 1))
    assert empirical_risk(rows, codes, loss).value == pytest.approx(
        supcon_loss(rows, codes, 0.5, singletons).value, rel=1e-12
    )
    # counts of the whole batch, of which the rows are a part
    many = og.solve(og.ClassDistribution.from_counts([30, 20, 10, 1]), loss)
    rows, codes = collapsed(many, counts)
    assert empirical_risk(rows, codes, loss, counts=[30, 20, 10, 1]).value == pytest.approx(many.risk, rel=1e-10)


def test_full_batch_with_views():
    loss = og.SupConFullBatch(0.5, views=2)
    geometry = og.solve(og.ClassDistribution.from_counts([3, 2, 1]), loss)
    rows, codes = collapsed(geometry, [3, 2, 1])
    found = empirical_risk(rows, codes, loss)
    assert found.value == pytest.approx(geometry.risk, rel=1e-10) and found.views_missing and found.stand_ins == 1
    rows, codes = cloud((6, 4, 2))
    views = empirical_risk(rows, codes, loss, groups=np.arange(12) // 2)
    assert views.value == pytest.approx(np.mean(supcon_by_hand(rows, codes, 0.5)), rel=1e-12)
    assert not views.views_missing and views.stand_ins == 0


# --- spread rows: written-out laws


def test_batches_of_spread_rows_have_the_enumerated_mean():
    rows, codes = cloud((3, 3, 3))
    tau, total = 0.4, 0.0
    # N = 3, one view: classes i.i.d., distinct rows within a class
    for classes in itertools.product(range(3), repeat=3):
        chance = np.prod(SHARES[list(classes)])
        choices = [itertools.combinations(np.flatnonzero(codes == c), classes.count(c)) for c in range(3)]
        batches = [np.concatenate(picked).astype(int) for picked in itertools.product(*choices)]
        total += chance * np.mean([np.nansum(supcon_by_hand(rows[b], codes[b], tau)) / 3 for b in batches])
    found = empirical_risk(rows, codes, og.SupCon(tau, batch_size=3, views=1), SHARES, batches=4000)
    assert found.standard_error < 0.02 and abs(found.value - total) < 4 * found.standard_error
    # E sum / E count for `skip`
    valid = sum(
        np.prod(SHARES[list(classes)]) * sum(classes.count(c) > 1 for c in classes)
        for classes in itertools.product(range(3), repeat=3)
    )
    skip = empirical_risk(rows, codes, og.SupCon(tau, batch_size=3, views=1, singletons="skip"), SHARES, batches=4000)
    assert abs(skip.value - 3 * total / valid) < 4 * skip.standard_error
    assert skip.skipped == pytest.approx(12000 * (1 - valid / 3), rel=0.05) and skip.anchors == 12000


def test_views_are_taken_where_they_are():
    """Views at one point and images apart: the loss of batches of one class tells views from other images."""
    rng = np.random.default_rng(0)
    images = unit(rng.normal(size=(40, 16)))
    rows, groups = np.repeat(images, 2, axis=0), np.repeat(np.arange(40), 2)
    codes = np.repeat(np.arange(40) % 2, 2)
    loss = og.SupCon(0.5, batch_size=2, views=2)
    found = empirical_risk(rows, codes, loss, groups=groups, batches=4000)
    total = []
    for i in range(40):
        for j in range(40):
            if i != j:  # of two classes of 20 images, distinct within a class
                batch = np.array([2 * i, 2 * i + 1, 2 * j, 2 * j + 1])
                weight = 0.25 / 400 if codes[2 * i] != codes[2 * j] else 0.25 / 380
                total.append(weight * np.mean(supcon_by_hand(rows[batch], codes[batch], 0.5)))
    assert abs(found.value - sum(total)) < 4 * found.standard_error and found.standard_error < 0.02
    assert not found.views_missing and found.stand_ins == 0
    without = empirical_risk(images, codes[::2], loss, batches=4000)
    assert without.views_missing and without.value > found.value + 0.1  # other images are less alike than views


@pytest.mark.parametrize(("sampling", "alpha"), [("ucl", 1.0), ("scl", 1.0), ("ucl", 0.0)])
def test_infonce_of_spread_rows_is_the_enumerated_mean(sampling, alpha):
    rows, codes = cloud((3, 2, 2))
    tau, total = 0.4, 0.0
    for i in range(7):
        law = SHARES.copy()
        if sampling == "scl":
            law[codes[i]] = 0
            law /= law.sum()
        positives = [j for j in range(7) if j != i and codes[j] == codes[i]]
        chance = [
            0.0 if j == i else law[codes[j]] / sum(codes[m] == codes[j] and m != i for m in range(7)) for j in range(7)
        ]
        similar = rows @ rows[i] / tau
        for p in positives:
            for a, b in itertools.product(range(7), repeat=2):
                value = math.log(alpha + 0.5 * (math.exp(similar[a] - similar[p]) + math.exp(similar[b] - similar[p])))
                total += SHARES[codes[i]] / np.sum(codes == codes[i]) / len(positives) * chance[a] * chance[b] * value
    loss = og.InfoNCE(tau, 2, alpha, "mean", sampling)
    found = empirical_risk(rows, codes, loss, SHARES, batches=2000, seed=2)
    assert abs(found.value - total) < 4 * found.standard_error and found.standard_error < 0.02


def test_limits_of_spread_rows_are_the_loop():
    rows, codes = cloud((4, 3, 2))
    tau, supcon, infonce = 0.4, 0.0, 0.0
    for i in range(9):
        positives = [j for j in range(9) if j != i and codes[j] == codes[i]]
        inside = sum(
            SHARES[c] * np.mean([math.exp(rows[i] @ rows[j] / tau) for j in range(9) if j != i and codes[j] == c])
            for c in range(3)
        )
        weight = SHARES[codes[i]] / np.sum(codes == codes[i])
        supcon += weight * (math.log(inside) - np.mean([rows[i] @ rows[p] / tau for p in positives]))
        infonce += weight * np.mean([math.log(1 + inside * math.exp(-rows[i] @ rows[p] / tau)) for p in positives])
    assert empirical_risk(rows, codes, og.SupCon(tau), SHARES).value == pytest.approx(supcon, rel=1e-12)
    assert empirical_risk(rows, codes, og.InfoNCE(tau, math.inf, 1.0, "mean"), SHARES).value == pytest.approx(
        infonce, rel=1e-12
    )


def test_positives_are_other_images_where_there_are_some():
    rows, codes = cloud((4, 2))
    groups = np.array([0, 0, 1, 1, 2, 2])
    loss = og.InfoNCE(0.5, math.inf, 0.0, "mean", "scl")
    found = empirical_risk(rows, codes, loss, groups=groups)
    total = 0.0
    for i in range(6):
        positives = {0: [2, 3], 1: [2, 3], 2: [0, 1], 3: [0, 1], 4: [5], 5: [4]}[i]
        away = np.flatnonzero(codes != codes[i])
        weight = (2 / 3 / 4) if i < 4 else 1 / 3 / 2  # images: two of class 0, one of class 1
        total += weight * (
            logsumexp(rows[away] @ rows[i] / 0.5) - math.log(away.size) - np.mean(rows[positives] @ rows[i] / 0.5)
        )
    assert found.value == pytest.approx(total, rel=1e-12)


# --- within term


@pytest.mark.parametrize(
    "loss",
    [og.SupCon(0.5, batch_size=8), og.SupCon(0.5), og.InfoNCE(0.5, 8), og.SupConFullBatch(0.5)],
    ids=lambda loss: str(loss)[:20],
)
def test_within_term_is_the_difference_of_the_two_risks(loss):
    rows, codes = cloud((30, 20, 10), sigma=0.15)
    classes = og.ClassDistribution.from_counts([30, 20, 10])
    sums = np.array([rows[codes == c].sum(axis=0) for c in range(3)])
    means = sums / np.bincount(codes)[:, None]
    gram = means @ means.T
    np.fill_diagonal(gram, (np.sum(sums**2, axis=1) - [30, 20, 10]) / (np.array([30, 20, 10]) * [29, 19, 9.0]))
    # F(M): t_ij = (M_ij - M_ii) / tau
    program = ClassMeanProgram.build(classes, loss, grouped=False)
    order = np.argsort(program.groups.index)
    exponents = ((gram - np.diag(gram)[:, None]) / loss.temperature)[np.ix_(order, order)]
    population = float(np.sum(program.rows.anchor_weight * program.rows.value(exponents)))
    found = empirical_risk(rows, codes, loss, gram=gram, batches=400)
    risk = empirical_risk(rows, codes, loss, batches=400)
    error = math.hypot(found.standard_error, risk.standard_error)
    assert abs(found.value - (risk.value - population)) < max(4 * error, 1e-9)
    assert found.value > 0
    if risk.standard_error > 0:
        assert found.standard_error < risk.standard_error / 2
    # rows at class means have no spread within classes
    points = simplex_vertices(3)
    exact = empirical_risk(points[codes], codes, loss, gram=points @ points.T)
    assert exact.value == pytest.approx(0, abs=1e-12)


# --- errors

ROWS, CODES = cloud((4, 3))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: empirical_risk(ROWS, CODES, og.SupCon(), [0.5, 0.3, 0.2]),
            "must give every class a row; class 2 has none, 1 in all",
        ),
        (lambda: empirical_risk(ROWS, CODES, og.SupCon(), [1.0, 0.0]), "`proportions` must be 2 positive numbers"),
        (
            lambda: empirical_risk(ROWS, CODES, og.SupConFullBatch(), counts=[4, -3]),
            "`counts` must be 2 positive numbers",
        ),
        (lambda: empirical_risk(ROWS, CODES, og.SupCon(), batches=1), "`batches` must be a whole number >= 2"),
        (lambda: empirical_risk(ROWS[:2], [0, 1], og.SupConFullBatch()), "got only singletons"),
        (
            lambda: empirical_risk(ROWS[:3], [0, 0, 0], og.InfoNCE(sampling="scl")),
            "`sampling` 'scl' needs negatives of other classes",
        ),
        (
            lambda: empirical_risk(ROWS, CODES, og.SupCon(), gram=np.ones(2)),
            r"`gram` must be finite, \(C, C\); got shape \(2,\)",
        ),
        (
            lambda: empirical_risk(ROWS, CODES, og.SupCon(), gram=np.full((2, 2), np.nan)),
            "`gram` must be finite.*NaN or infinity",
        ),
    ],
)
def test_errors(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()


def test_no_positive_in_any_batch():
    codes = np.arange(300)
    rows = unit(np.random.default_rng(0).normal(size=(300, 3)))
    with pytest.raises(
        InvalidInputError, match=r"`batch_size` must give some anchor a positive; got none in 2 batches of 3 rows"
    ):
        empirical_risk(rows, codes, og.SupCon(0.1, batch_size=3, views=1), batches=2)


class LogSum:
    """log(alpha + sum exp t), the psi of InfoNCE written as a user would."""

    def __init__(self, alpha):
        self.alpha, self.is_additive = alpha, False

    def value(self, t):
        return np.logaddexp(np.log(self.alpha), logsumexp(t, axis=-1))

    def derivative(self, t):
        return np.exp(t) / (self.alpha + np.exp(t).sum(axis=-1, keepdims=True))


class Softplus:
    is_additive = True

    def value(self, t):
        return np.logaddexp(0, t).sum(axis=-1)

    def derivative(self, t):
        return 1 / (1 + np.exp(-t))


@pytest.mark.parametrize("sampling", ["ucl", "scl"])
def test_users_own_psi_has_the_draws_of_infonce(sampling):
    """The same numbers from the same seed: only the formula of the loss is another."""
    rows, codes = cloud((8, 5, 3))
    own = GeneralizedContrastive(LogSum(0.5), 0.4, 3, sampling=sampling)
    written = og.InfoNCE(0.4, 3, 0.5, sampling=sampling)
    for gram in (None, 0.8 * np.eye(3) - 0.2):
        found, expected = (
            empirical_risk(rows, codes, loss, SHARES, gram=gram, batches=6, seed=3) for loss in (own, written)
        )
        assert found.value == pytest.approx(expected.value, rel=1e-12)
        assert found.standard_error == pytest.approx(expected.standard_error, rel=1e-9)


def test_users_own_additive_psi_is_the_double_sum():
    """One negative by softplus: the mean over all pairs of rows, written out."""
    rows, codes = cloud((6, 4, 3))
    loss = GeneralizedContrastive(Softplus(), 0.5, 1)
    found = empirical_risk(rows, codes, loss, SHARES, batches=3000, seed=1)
    cosines = rows @ rows.T
    expected = 0.0
    for i, c in enumerate(codes):
        own = [p for p in np.flatnonzero(codes == c) if p != i]
        pulled = []
        for p in own:
            total = 0.0
            for d, share in enumerate(SHARES):
                others = own if d == c else np.flatnonzero(codes == d)
                total += share * np.mean([np.logaddexp(0, (cosines[i, j] - cosines[i, p]) / 0.5) for j in others])
            pulled.append(total)
        expected += SHARES[c] / np.sum(codes == c) * np.mean(pulled)
    assert abs(found.value - expected) < 5 * found.standard_error
    assert found.standard_error < 0.01
