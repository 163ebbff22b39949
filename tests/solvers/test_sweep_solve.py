"""A sweep over classes, imbalance, temperature, negatives and losses.

Certified or a typed error, no warning, no hang, no wrong number.
"""

from __future__ import annotations

import math
from collections import Counter

import mpmath
import numpy as np
import pytest
from helpers import sweep
from helpers.watchdog import HangError, watched
from scipy.stats import binom

import optgeom as og

NORMAL = sweep.drawn(300, seed=7, largest=30)  # beyond, a cell may take a minute
LARGER = sweep.drawn(1500, seed=8, largest=300)


def test_every_pair_of_values_is_met() -> None:
    assert sweep.pairs(LARGER) == sum(len(a) * len(b) for k, a in enumerate(sweep.AXES) for b in sweep.AXES[:k])
    whole = [axis if k else axis[:-2] for k, axis in enumerate(sweep.AXES)]
    assert sweep.pairs(NORMAL) >= 0.95 * sum(len(a) * len(b) for k, a in enumerate(whole) for b in whole[:k])


@pytest.mark.parametrize("part", range(10))
def test_cells(part: int) -> None:
    answers = {cell: sweep.answer(cell) for cell in NORMAL[part::10]}
    assert not [
        (str(cell), name) for cell, name in answers.items() if cell.ratio <= sweep.LARGEST_RATIO and name != "certified"
    ]
    assert list(answers.values()).count("NotCertifiedError") <= 1


@pytest.mark.slow
@pytest.mark.parametrize("part", range(50))
def test_more_cells(part: int) -> None:
    answers = Counter(sweep.answer(cell) for cell in LARGER[part::50])
    assert answers["certified"] + answers["rare"] >= 27, answers


def test_the_watchdog_barks() -> None:
    with pytest.raises(HangError, match=r"^endless: no answer and no error within"), watched("endless", 0.05):
        while True:
            pass


# --- what the package did not compute
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("negatives", [1, math.inf])
@pytest.mark.parametrize("sampling", ["ucl", "scl"])
@pytest.mark.parametrize("profile", ["exp", "zipf", "majority"])
@pytest.mark.parametrize("tau", [0.1, 1.0, 100.0])
@pytest.mark.parametrize("ratio", [10.0, 1e6, 1e9])
def test_the_gap_by_hand(negatives: float, sampling: str, profile: str, tau: float, ratio: float) -> None:
    cell = sweep.Cell(
        30, profile, ratio, tau, negatives, f"{sampling} 1 {'sum' if negatives == 1 else 'mean'}", np.float64
    )
    classes, loss = cell.build_classes(), cell.build_loss()
    assert isinstance(loss, og.InfoNCE)
    geometry = og.solve(classes, loss, backward_tolerance=sweep.RARE)
    gram = geometry.gram
    assert np.linalg.eigvalsh(gram)[0] >= -1e-12 and np.all(np.diag(gram) == 1)
    risk, gap = sweep.gap_by_hand(gram, classes.proportions, loss)
    assert risk == pytest.approx(geometry.risk, abs=1e-12 * (1 + abs(risk)))
    assert gap <= 1e-8 * (1 + abs(risk))


@pytest.mark.parametrize("negatives", [2, 10, 1000, 100_000])
@pytest.mark.parametrize("ratio", [2.0, 1e4, 1e9])
@pytest.mark.parametrize("tau", [0.01, 0.5, 100.0])
def test_two_classes_with_many_negatives_by_the_binomial_sum(negatives: int, ratio: float, tau: float) -> None:
    """With A_12 = -1 and N of the k negatives from the other class, an anchor has log(1 + (k - N) + N exp(-2/tau))."""
    classes = og.ClassDistribution.from_counts([ratio, 1.0])
    geometry = og.solve(classes, og.InfoNCE(tau, negatives))
    number = np.arange(negatives + 1)
    value = np.log(1 + (negatives - number) + number * math.exp(-2 / tau))
    first, second = classes.proportions
    by_hand = first * (binom.pmf(number, negatives, second) @ value) + second * (
        binom.pmf(number, negatives, first) @ value
    )
    assert geometry.gram[0, 1] == -1
    assert geometry.risk == pytest.approx(by_hand, rel=1e-9)


@pytest.mark.parametrize("tau", [0.01, 0.1, 100.0])
@pytest.mark.parametrize("ratio", [10.0, 1e9])
def test_the_risk_in_fifty_digits(tau: float, ratio: float) -> None:
    classes = og.ClassDistribution.from_counts(ratio ** -np.linspace(0, 1, 5))
    geometry = og.solve(classes, og.SupCon(tau), backward_tolerance=sweep.RARE)
    with mpmath.workdps(50):
        lam = [mpmath.mpf(share) for share in classes.proportions.tolist()]
        gram = geometry.gram.tolist()
        rows = [
            mpmath.log(mpmath.fsum(lam[j] * mpmath.exp((mpmath.mpf(gram[i][j]) - 1) / tau) for j in range(5)))
            for i in range(5)
        ]
        exact = mpmath.fsum(share * row for share, row in zip(lam, rows, strict=True))
    assert geometry.risk == pytest.approx(float(exact), rel=1e-13)


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_narrow_proportions_are_those_numbers(kind: type) -> None:
    given = np.array([0.5, 0.25, 0.15, 0.1]).astype(kind)
    exact = given.astype(np.float64) / given.astype(np.float64).sum()
    narrow = og.solve(og.ClassDistribution.from_proportions(given), og.SupCon(0.2))
    wide = og.solve(og.ClassDistribution.from_proportions(exact), og.SupCon(0.2))
    assert narrow.proportions.dtype == np.float64
    np.testing.assert_allclose(narrow.gram, wide.gram, atol=1e-12)


@pytest.mark.parametrize(
    ("classes", "negatives", "sampling"), [(300, 10_000_000, "scl"), (300, 100_000, "ucl"), (300, math.inf, "scl")]
)
def test_rare_classes_at_high_temperature_do_not_hang(classes: int, negatives: float, sampling: str) -> None:
    """These took minutes in the low-rank method.

    Averaging lost the last digit of a cosine, which cost the rarest classes five digits of theirs.
    """
    loss = f"{sampling} 1 {'mean' if negatives == math.inf else 'sum'}"
    assert sweep.answer(sweep.Cell(classes, "exp", 1e9, 100.0, negatives, loss, np.float64)) == "certified"


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["ucl 0 sum", "supcon 2"])
def test_five_thousand_different_classes(loss: str) -> None:
    negatives = math.inf if loss.startswith("ucl") else 256
    cell = sweep.Cell(5000, "exp", 100.0, 0.1, negatives, loss, np.float64)
    with watched("5000 classes", 1800):
        geometry = og.solve(cell.build_classes(), cell.build_loss())
    assert geometry.certificate.certified and geometry.rank == 4999
    if negatives == math.inf:
        chosen = cell.build_loss()
        assert isinstance(chosen, og.InfoNCE)
        risk, gap = sweep.gap_by_hand(geometry.gram, geometry.proportions, chosen)
        assert risk == pytest.approx(geometry.risk, rel=1e-12) and gap <= 1e-8 * (1 + abs(risk))
