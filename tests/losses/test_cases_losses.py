"""Cases 1 to 8 of practice: values of losses, as the command line or a batch of rows gives them.

One test a case, named by its number.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers.command_line import answer, refused, words
from helpers.row_losses import supcon_loss

import optgeom as og
from optgeom.embeddings.metrics.empirical_risk import empirical_risk

POINT = [0.6, 0.8]
PRINTED = 5e-7  # half a unit of the last digit of the table


def test_case_01_loss_stuck_where_all_dot_products_are_one() -> None:
    found = answer("loss", "--rows", 8, "--observed", 1.945910)
    assert found["collapsed_value"] == pytest.approx(1.945910, abs=PRINTED)
    assert "collapsed: this is ln(8 - 1) = 1.945910" in words("loss", "--rows", 8, "--observed", 1.945910)
    assert supcon_loss([POINT] * 8, [0, 0, 1, 1, 2, 2, 2, 2]).value == pytest.approx(1.945910, abs=PRINTED)


def test_case_02_a_collapsed_loss_does_not_depend_on_the_labels() -> None:
    for labels in ([1] * 16, [0] * 8 + [1] * 8):
        assert supcon_loss([POINT] * 16, labels).value == pytest.approx(2.708050, abs=PRINTED)
    halves = answer("loss", "--loss", "supcon-full", "--counts", "8,8", "--observed", 2.708050)
    alone = answer("loss", "--rows", 16, "--observed", 2.708050)
    for found in (halves, alone):
        assert found["collapsed_value"] == pytest.approx(2.708050, abs=PRINTED)
        assert found["verdict"].startswith("collapsed: this is ln(16 - 1) = 2.708050")


def test_case_03_stuck_at_six_point_nine_two() -> None:
    batch = ["--rows", 128, "--temperature", 0.1, "--observed", 6.920]
    found = answer("loss", *batch, "--base-temperature", 0.07)
    assert found["collapsed_value"] == pytest.approx(6.920267, abs=PRINTED)
    assert found["verdict"].startswith("collapsed: this is 1.42857 times ln(128 - 1) = 6.920267")
    # Who does not know of the option is told of it.
    assert "SupContrast does: this is 1.42857 times ln(128 - 1) = 6.920267 (give the base temperature)" in words(
        "loss", *batch
    )


def test_case_04_is_five_point_five_converged() -> None:
    found = answer("loss", "--simclr", 128, "--temperature", 0.1, "--observed", 5.5)
    assert found["collapsed_value"] == pytest.approx(5.541264, abs=PRINTED)
    assert found["optimal_value"] == pytest.approx(0.010602, abs=PRINTED)
    assert found["verdict"].startswith("collapsed: this is ln(256 - 1) = 5.541264")


def test_case_05_the_floor_is_not_zero() -> None:
    found = answer("loss", "--loss", "supcon-full", "--counts", ",".join(["20"] * 6), "--temperature", 0.1)
    assert found["optimal_value"] == pytest.approx(2.944471, abs=PRINTED)
    assert found["optimal_value"] == pytest.approx(math.log(19), abs=1e-4)


@pytest.mark.parametrize(
    ("rule", "mean", "fate"),
    [("skip", 1.098612, "they are skipped, left out of the mean"), ("zero", 0.549306, "they count as 0")],
)
def test_case_06_anchors_without_a_positive(rule: str, mean: float, fate: str, tmp_path) -> None:
    (tmp_path / "y.txt").write_text("0\n1\n1\n3\n")
    batch = ["--labels", tmp_path / "y.txt", "--loss", "supcon-full", "--singletons", rule]
    assert answer("loss", *batch)["collapsed_value"] == pytest.approx(mean, abs=PRINTED)
    assert f"2 of 4 anchors without a positive: {fate}" in words("loss", *batch)
    found = supcon_loss([POINT] * 4, [0, 1, 1, 3], 0.1, rule)
    assert found.value == pytest.approx(mean, abs=PRINTED) and found.skipped == 2
    assert found.terms == pytest.approx([math.nan, math.log(3), math.log(3), math.nan], nan_ok=True)


def test_case_07_no_positive_anywhere_is_undefined(tmp_path) -> None:
    (tmp_path / "y.txt").write_text("0\n1\n2\n3\n")
    message = refused("loss", 3, "--labels", tmp_path / "y.txt", "--loss", "supcon-full")
    assert "no anchor has a positive: SupCon is undefined" in message
    with pytest.raises(og.InvalidInputError, match=r"got only singletons \(SupCon is undefined, not 0"):
        empirical_risk([POINT] * 4, [0, 1, 2, 3], og.SupConFullBatch(0.1))


@pytest.mark.parametrize("tau", [0.01, 0.001])
def test_case_08_small_temperatures_stay_finite(tau: float) -> None:
    rows = np.random.default_rng(0).normal(size=(12, 4))
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    labels = np.repeat([0, 1, 2], 4)
    unit = rows.astype(float) / np.linalg.norm(rows.astype(float), axis=1, keepdims=True)
    cosines = unit @ unit.T
    by_hand = 0.0
    for i in range(12):
        others = [j for j in range(12) if j != i]
        top = max(cosines[i, others]) / tau
        level = top + math.log(math.fsum(math.exp(cosines[i, j] / tau - top) for j in others))
        by_hand += math.fsum(level - cosines[i, j] / tau for j in others if labels[j] == labels[i]) / 3 / 12
    assert supcon_loss(rows, labels, tau).value == pytest.approx(by_hand, rel=1e-9)
    found = answer("loss", "--counts", "900,50,50", "--rows", 128, "--temperature", tau)
    assert all(math.isfinite(found[name]) for name in ("collapsed_value", "optimal_value", "simplex_value"))
    torch = pytest.importorskip("torch")
    from optgeom.training.losses import SupConLoss

    value = SupConLoss(tau)(torch.from_numpy(rows), torch.from_numpy(labels))
    # A float32 cosine is wrong by some 1e-7, its quotient by the temperature accordingly.
    assert value.item() == pytest.approx(by_hand, abs=1e-6 / tau)
