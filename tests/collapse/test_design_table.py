"""What design says of the present value, of the nearest one that works, and of the trade-off (fault 14)."""

from __future__ import annotations

import math

import pytest
from helpers.command_line import answer, refused, words

import optgeom as og
from optgeom.collapse.design import design_table

CLASSES = og.ClassDistribution.from_profile("cifar10-lt:100")


def test_the_present_value_comes_first():
    """The search prefers high temperatures; that the one in use meets the goal must not be lost."""
    found = og.design(CLASSES, og.SupCon(temperature=0.07), "temperature", min_angle=85.0)
    assert found.present.works and found.nearest == found.present
    assert found.present.min_angle_deg == og.solve(CLASSES, og.SupCon(temperature=0.07)).min_angle_deg
    assert found.value > 0.07


def test_the_nearest_value_is_on_the_border_of_what_works():
    found = og.design(CLASSES, og.SupCon(temperature=0.2), "temperature", min_angle=85.0)
    assert not found.present.works
    assert found.nearest.works and found.nearest.value < 0.2
    assert found.nearest.min_angle_deg == pytest.approx(85.0, abs=1e-3)
    between = og.solve(CLASSES, og.SupCon(temperature=found.nearest.value * 1.001)).min_angle_deg
    assert between < 85.0


def test_none_is_said_of_what_was_tried_only():
    found = og.design(CLASSES, og.SupCon(temperature=0.5), "batch_size", min_angle=90.0)
    assert (found.value, found.nearest) == (None, None)
    assert "reaches it, of the 21 values that were tried" in found.reason
    assert not found.present.works


def test_table_holds_the_optimum_of_every_setting():
    cells = design_table(
        CLASSES, og.SupCon(), temperatures=(0.1, 0.5), batch_sizes=(64.0, math.inf), samplers=(1.0, 0.0)
    )
    assert len(cells) == 8
    for cell in cells:
        size = cell.batch_size if cell.batch_size == math.inf else int(cell.batch_size)
        geometry = og.solve(CLASSES.resample(cell.sampler), og.SupCon(temperature=cell.temperature, batch_size=size))
        assert cell.min_angle_deg == pytest.approx(geometry.min_angle_deg, abs=1e-9)
        assert 0 < cell.slack_needed < 1
    by_setting = {(cell.temperature, cell.batch_size, cell.sampler): cell for cell in cells}
    assert by_setting[0.5, math.inf, 1.0].slack_needed > by_setting[0.1, math.inf, 1.0].slack_needed
    assert by_setting[0.5, math.inf, 0.0].min_angle_deg == pytest.approx(96.379, abs=1e-3)


def test_negatives_stand_for_the_batch_and_a_full_batch_has_neither():
    cells = design_table(CLASSES, og.InfoNCE(negatives=8), temperatures=(0.5,), batch_sizes=(16.0,), samplers=(1.0,))
    geometry = og.solve(CLASSES, og.InfoNCE(temperature=0.5, negatives=16))
    assert cells[0].min_angle_deg == pytest.approx(geometry.min_angle_deg, abs=1e-9)
    full = design_table(CLASSES, og.SupConFullBatch(), temperatures=(0.5,), samplers=(1.0,))
    assert [cell.batch_size for cell in full] == [None]


def test_command_line():
    found = answer(
        "design", "--profile", "cifar10-lt:100", "--parameter", "temperature", "--min-angle", "85", "--table"
    )
    assert found["present"]["value"] == 0.1
    assert set(found["table"][0]) == {"temperature", "batch_size", "sampler", "min_angle_deg", "slack_needed"}
    assert len(found["table"]) == 72
    text = words("design", "--counts", "50,30,10", "--table")
    assert "Smallest angle (degrees), and slack that fixes it to 2 degrees" in text
    assert "give --parameter" in refused("design", 2, "--counts", "50,30,10")
