"""Where the optimum first loses rank, against certified solves on both sides."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers.paths import imbalance_path, power_path, temperature_path

import optgeom as og
from optgeom.collapse.rank_path import Problems, first_rank_loss
from optgeom.collapse.thresholds import collapse_threshold

ZIPF = og.ClassDistribution.from_profile("zipf:20:2")


def scl(temperature: float) -> og.InfoNCE:
    return og.InfoNCE(temperature, math.inf, 0.0, "mean", "scl")


PATHS = {
    "power": (power_path(ZIPF, scl(1.0)), 0.0, 1.5),
    "imbalance": (imbalance_path(5, scl(0.5)), 1.0, 1000.0),
    "temperature": (temperature_path(ZIPF, scl), 0.05, 3.0),
    "finite k": (
        power_path(og.ClassDistribution.from_profile("zipf:6:4"), og.InfoNCE(1.0, 4, 1.0, "sum", "scl")),
        0.0,
        1.5,
    ),
}


@pytest.mark.parametrize(("path", "start", "stop"), PATHS.values(), ids=PATHS)
def test_rank_is_full_before_and_lower_after(path: Problems, start: float, stop: float) -> None:
    found = first_rank_loss(path, start, stop)
    assert found.value is not None
    before, after = (og.solve(*path(start + (found.value - start) * factor)) for factor in (1 - 1e-4, 1 + 1e-4))
    assert before.certificate.certified and after.certificate.certified
    assert before.rank == found.num_classes - 1
    assert after.rank < found.num_classes - 1


def test_equal_minorities_lose_rank_at_the_exact_threshold() -> None:
    loss = og.InfoNCE(1.0, 8, 1.0, "sum", "ucl")

    def path(log_odds: float) -> tuple[og.ClassDistribution, og.Loss]:
        rest = 1 / (1 + math.exp(log_odds))
        return og.ClassDistribution.from_proportions([1 - rest] + [rest / 4] * 4), loss

    # All minority directions close at once there, so the first loss of rank is total collapse.
    found = first_rank_loss(path, 0.0, 4.0)
    assert found.value == pytest.approx(collapse_threshold(loss, minorities=4).log_odds, abs=1e-7)


def test_a_path_that_never_loses_rank_says_so() -> None:
    found = first_rank_loss(power_path(og.ClassDistribution.from_counts([5, 4, 3]), og.SupCon(0.1)), 0.0, 1.0)
    assert found.value is None and found.num_classes == 3


def test_a_start_behind_the_boundary_is_refused() -> None:
    with pytest.raises(og.InvalidInputError, match="`start` must be where the rank is still C - 1"):
        first_rank_loss(power_path(ZIPF, scl(1.0)), 1.5, 0.0)


def test_a_loss_without_newton_solution_is_refused() -> None:
    linear = og.InfoNCE(0.5, 1, 0.0, "sum", "scl")
    with pytest.raises(og.IncompatibleError, match="log-sum loss or separable"):
        first_rank_loss(power_path(ZIPF, linear), 0.0, 1.0)


def test_imbalance_path_has_the_imbalance_it_names() -> None:
    classes, _ = imbalance_path(7, og.SupCon(0.1))(50.0)
    assert classes.imbalance_factor == pytest.approx(50.0)
    np.testing.assert_allclose(np.diff(np.log(classes.proportions)), -math.log(50) / 6)
