"""A printed value is judged with the noise of the batches that it is the mean of (fault 13)."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.command_line import answer, words

import optgeom as og

CLASSES = og.ClassDistribution.from_profile("cifar10-lt:100")
LOSS = og.SupCon(temperature=0.5, batch_size=256)


def test_noise_is_that_of_simulated_batches():
    values = og.loss_values(CLASSES, LOSS, base_temperature=0.25)
    images = np.random.default_rng(9).multinomial(256, CLASSES.proportions, size=20_000).astype(float)
    single = LOSS.batch_values(np.array(values.geometry.gram), images)
    assert values.batch_sd == pytest.approx(2 * single.std(), rel=0.05)
    assert og.loss_values(CLASSES, og.SupCon(temperature=0.5)).batch_sd is None


def test_a_value_a_little_below_the_floor_is_noise_until_many_batches_say_otherwise():
    values = og.loss_values(CLASSES, LOSS)
    observed = values.optimal_value - 2 * values.batch_sd
    one = og.loss_values(CLASSES, LOSS, observed=observed)
    assert one.verdict.startswith("at the optimum, as far as noise tells")
    many = og.loss_values(CLASSES, LOSS, observed=observed, batches=100)
    assert "impossible for these settings" in many.verdict
    assert many.verdict.endswith("(one standard deviation), and this is 20.0 of them")
    far = og.loss_values(CLASSES, LOSS, observed=values.optimal_value - 4 * values.batch_sd)
    assert "impossible for these settings" in far.verdict


def test_command_line():
    arguments = ["--profile", "cifar10-lt:100", "--temperature", "0.5", "--batch-size", "256"]
    values = answer("loss", *arguments)
    observed = values["optimal_value"] - 2 * values["batch_sd"]
    text = words("loss", *arguments, "--observed", observed)
    assert "one batch varies by" in text
    assert "at the optimum, as far as noise tells" in text
    assert "a mean of 100 batches varies" in words("loss", *arguments, "--observed", observed, "--batches", "100")


def test_wrong_number_of_batches():
    with pytest.raises(og.InvalidInputError, match="`batches` must be"):
        og.loss_values(CLASSES, LOSS, observed=5.0, batches=0)
