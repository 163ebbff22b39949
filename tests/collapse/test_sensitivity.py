"""Implicit derivatives against finite differences of certified solves, and against closed forms."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

import optgeom as og
from optgeom.collapse.sensitivity import sensitivity

COUNTS = np.array([50.0, 20, 20, 10, 5, 5, 5, 2.5])
LOSSES = {
    "supcon limit": og.SupCon(0.5),
    "infonce scl": og.InfoNCE(0.3, 4, 1.0, "sum", "scl"),
    "one view": og.SupCon(0.4, 16, 1),
    "no alpha": og.InfoNCE(1.0, 8, 0.0, "mean", "ucl"),
}


def four_points(function, step: float) -> np.ndarray:  # type: ignore[no-untyped-def]
    return (8 * (function(step) - function(-step)) - function(2 * step) + function(-2 * step)) / (12 * step)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_temperature(loss: og.Loss) -> None:
    classes = og.ClassDistribution.from_counts(COUNTS)
    found = sensitivity(classes, loss)

    def at(step: float) -> og.Geometry:
        return og.solve(classes, dataclasses.replace(loss, temperature=loss.temperature + step))  # type: ignore[type-var]

    step = 1e-3 * loss.temperature
    np.testing.assert_allclose(found.gram, four_points(lambda h: at(h).gram, step), atol=1e-8)
    assert found.risk == pytest.approx(float(four_points(lambda h: at(h).risk, step)), abs=1e-8)
    assert np.all(np.diag(found.gram) == 0)


@pytest.mark.parametrize("which", [0, 1, 4, 7], ids=lambda c: f"class {c}")
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_proportions_also_of_one_class_among_equals(loss: og.Loss, which: int) -> None:
    found = sensitivity(og.ClassDistribution.from_counts(COUNTS), loss, to=which)

    def at(step: float) -> og.Geometry:
        moved = COUNTS.copy()
        moved[which] *= math.exp(step)
        return og.solve(og.ClassDistribution.from_counts(moved), loss)

    np.testing.assert_allclose(found.gram, four_points(lambda h: at(h).gram, 1e-3), atol=1e-8)
    assert found.risk == pytest.approx(float(four_points(lambda h: at(h).risk, 1e-3)), abs=1e-8)


def test_scaling_all_classes_changes_nothing() -> None:
    classes = og.ClassDistribution.from_counts([9, 5, 3, 2])
    total = sum(sensitivity(classes, og.SupCon(0.3), to=which).gram for which in range(4))
    np.testing.assert_allclose(total, 0, atol=1e-10)


def test_balanced_classes_do_not_move_with_temperature() -> None:
    found = sensitivity(og.ClassDistribution.from_counts([4] * 6), og.SupCon(0.3))
    np.testing.assert_allclose(found.gram, 0, atol=1e-12)
    # Closed form of the simplex: F = log( (1 + 5 exp(-(6/5)/tau)) / 6 ).
    x = 5 * math.exp(-1.2 / 0.3)
    assert found.risk == pytest.approx(x / (1 + x) * 1.2 / 0.3**2, rel=1e-10)


def test_angles_in_degrees() -> None:
    classes = og.ClassDistribution.from_counts([5, 3, 2])
    found = sensitivity(classes, og.SupCon(0.5))
    moved = four_points(lambda h: og.solve(classes, og.SupCon(0.5 + h)).angles(), 1e-3)
    np.testing.assert_allclose(found.angles(), moved, atol=1e-6)


def test_what_has_no_derivative_is_refused() -> None:
    collapsed = og.ClassDistribution.from_proportions([0.98, 0.01, 0.01])
    with pytest.raises(og.IncompatibleError, match="collapsed to rank 1 of 2"):
        sensitivity(collapsed, og.SupCon(1.0))
    flat = og.ClassDistribution.from_counts([5, 4, 3, 2])
    with pytest.raises(og.IncompatibleError, match="not unique"):
        sensitivity(flat, og.InfoNCE(0.5, 1, 0.0))
    with pytest.raises(og.IncompatibleError, match="full batch"):
        sensitivity(flat, og.SupConFullBatch(0.5), to=0)
    with pytest.raises(og.InvalidInputError, match="`to` must be a class index from 0 to 3; got 4"):
        sensitivity(flat, og.SupCon(0.5), to=4)
    with pytest.raises(og.InvalidInputError, match="at most 2000"):
        sensitivity(og.ClassDistribution.from_groups([2, 1], [3000, 1]), og.SupCon(0.5))
