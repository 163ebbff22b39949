"""Designs: the value works, its neighbour on the preferred side does not, and impossibility is said."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from helpers.paths import power_path
from optgeom_cli.main import app
from typer.testing import CliRunner

import optgeom as og
from optgeom.collapse.design import design
from optgeom.collapse.rank_path import first_rank_loss

ZIPF = og.ClassDistribution.from_profile("zipf:20:2")
SCL = og.InfoNCE(1.0, math.inf, 0.0, "mean", "scl")


def test_sampler_reaches_an_angle() -> None:
    answer = design(ZIPF, SCL, "sampler", min_angle=80)
    assert answer.value is not None and answer.geometry is not None
    assert answer.geometry.certificate.certified
    assert og.solve(ZIPF.resample(answer.value), SCL).min_angle_deg == pytest.approx(80, abs=1e-3)
    assert og.solve(ZIPF.resample(answer.value + 1e-3), SCL).min_angle_deg < 80


def test_sampler_leaves_collapse_where_the_rank_path_says() -> None:
    answer = design(ZIPF, SCL, "sampler")
    boundary = first_rank_loss(power_path(ZIPF, SCL), 0.0, 1.5)
    assert answer.value == pytest.approx(boundary.value, abs=1e-5)


def test_batch_size_is_the_smallest_that_works() -> None:
    classes = og.ClassDistribution.from_proportions([0.9, 0.05, 0.05])
    answer = design(classes, og.SupCon(1.0, 4, 2), "batch_size")
    assert answer.value is not None and answer.value == int(answer.value)
    ranks = [og.solve(classes, og.SupCon(1.0, batch, 2)).rank for batch in range(2, int(answer.value) + 1)]
    assert ranks[-1] == 2 and set(ranks[:-1]) == {1}


def test_no_value_can() -> None:
    classes = og.ClassDistribution.from_proportions([0.95, 0.025, 0.025])
    answer = design(classes, og.InfoNCE(1.0, 8), "negatives")
    assert answer.value is None and answer.geometry is not None
    assert answer.reason.startswith("no negatives from 1 to")
    beyond = design(classes, SCL, "temperature", min_angle=121)
    assert beyond.value is None and beyond.geometry is None
    assert "at most 120 degrees" in beyond.reason


def test_preferred_end_that_works_is_kept() -> None:
    answer = design(og.ClassDistribution.from_counts([5, 4, 3]), og.SupCon(0.1), "sampler", min_angle=100)
    assert answer.value == 1.0 and answer.reason == "the sampler may stay as it is"


def test_at_the_border_of_collapse_an_angle_is_suggested() -> None:
    classes = og.ClassDistribution.from_counts([9000, 500, 300])
    answer = design(classes, og.SupCon(), "temperature")
    assert answer.reason == "the highest temperature that works"
    assert answer.value is not None and og.solve(classes, og.SupCon(answer.value * 1.001)).rank == 1
    angle = og.solve(classes, og.SupCon(answer.value)).min_angle_deg
    assert 0 < angle < 5
    assert answer.note is not None and f"only {angle:.2g} degrees apart" in answer.note and "--min-angle" in answer.note
    wide = design(classes, og.SupCon(), "temperature", min_angle=30)
    assert wide.geometry is not None and wide.geometry.min_angle_deg >= 30 - 1e-6
    assert "degrees apart" not in (wide.note or "")
    small = design(classes, og.SupCon(), "temperature", min_angle=1)
    assert "degrees apart" not in (small.note or ""), "it was asked for"


@pytest.mark.parametrize("angle", [30.0, 80.0, None])
def test_epsilon_is_the_closed_form(angle: float | None) -> None:
    answer = design(ZIPF, og.SupCon(0.5), "epsilon", min_angle=angle)
    assert answer.value is not None and answer.cosine is not None
    wanted = -1 / 19 if angle is None else math.cos(math.radians(angle))
    assert answer.cosine == pytest.approx(wanted, abs=1e-14)
    # Target cosine of Soft SupCon between classes: 1 + tau log eps; realizable iff tau log(1/eps) <= C/(C-1).
    assert 1 + 0.5 * math.log(answer.value) == pytest.approx(wanted, abs=1e-14)
    assert 0.5 * math.log(1 / answer.value) <= 20 / 19 + 1e-14


def test_epsilon_too_small_for_floating_point() -> None:
    """At temperature 0.001 the 120 degrees of three classes take epsilon = exp(-1500) = 10^-651.

    Epsilon 0, to which that rounds, is another scheme.
    """
    answer = design(og.ClassDistribution.from_counts([5, 3, 1]), og.SupCon(0.001), "epsilon")
    assert answer.value is None and "10^-651, too small for floating point" in answer.reason


def test_singletons_coincide_at_every_temperature() -> None:
    """Two classes of one row each share one direction in the full batch: no temperature keeps every class apart."""
    answer = design(og.ClassDistribution.from_counts([50, 3, 1, 1]), og.SupConFullBatch(0.1), "temperature")
    assert answer.value is None and answer.geometry is not None and answer.geometry.rank == 2
    apart = design(og.ClassDistribution.from_counts([50, 3, 1]), og.SupConFullBatch(0.1), "temperature")
    assert apart.geometry is not None and apart.geometry.regime == "spread"


def test_errors() -> None:
    with pytest.raises(og.InvalidInputError, match="`parameter` must be one of sampler, temperature"):
        design(ZIPF, SCL, "colour")
    with pytest.raises(og.InvalidInputError, match="`min_angle` must be at most 180 degrees; got 200"):
        design(ZIPF, SCL, "sampler", min_angle=200)
    with pytest.raises(og.InvalidInputError, match="`min_angle` must be > 0"):
        design(ZIPF, SCL, "sampler", min_angle=0)
    with pytest.raises(
        og.IncompatibleError,
        match="'batch_size' is not one of InfoNCE; it has temperature, negatives, sampler and epsilon",
    ):
        design(ZIPF, SCL, "batch_size")


def test_command_line() -> None:
    base = [
        "design",
        "--profile",
        "zipf:20:2",
        "--loss",
        "infonce",
        "--negatives",
        "inf",
        "--alpha",
        "0",
        "--sampling",
        "scl",
    ]
    done = CliRunner().invoke(
        app, [*base, "--temperature", "1", "--parameter", "sampler", "--min-angle", "80", "--json"]
    )
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["parameter"] == "sampler"
    assert found["value"] == pytest.approx(0.5190814, abs=1e-5)
    assert found["geometry"]["certificate"]["certified"] is True
    np.testing.assert_allclose(np.diag(found["geometry"]["gram"]), 1)
    table = CliRunner().invoke(app, [*base, "--temperature", "1", "--parameter", "sampler", "--min-angle", "95"])
    assert table.exit_code == 0 and "none" in table.stdout and "93.017" in table.stdout
    twice = CliRunner().invoke(app, [*base, "--parameter", "sampler", "--sampler", "sqrt"])
    assert twice.exit_code == 2 and twice.stderr.startswith(
        "--parameter sampler looks for the sampler; got --sampler sqrt too"
    )
    wrong = CliRunner().invoke(app, [*base, "--parameter", "batch-size"])
    assert wrong.exit_code == 2 and "is not one of InfoNCE" in wrong.stderr


def test_a_geometry_that_the_loss_hardly_asks_for_is_said_to_be() -> None:
    classes, loss = og.ClassDistribution.from_profile("cifar10-lt:100"), og.SupCon(0.5, 256)
    cold = og.design(classes, loss, "temperature", min_angle=90)
    values = og.loss_values(classes, og.SupCon(cold.value, 256))
    share = (values.simplex_value - values.optimal_value) / (values.collapsed_value - values.optimal_value)
    assert 0 < share < 1e-8
    assert cold.note is not None and f"differ by {100 * share:.1g} %" in cold.note
    warm = og.design(classes, og.SupCon(1.0, 256), "sampler", min_angle=70)
    assert warm.value is not None and warm.note is None
