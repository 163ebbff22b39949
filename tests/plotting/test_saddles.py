"""Escape rates in the picture are those of the saddles."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import optgeom as og

pytest.importorskip("matplotlib")

from optgeom.plotting import plot_saddles, save_figure

CLASSES = og.ClassDistribution.from_counts([60, 30, 12, 6])
FOUND = [og.saddles(CLASSES, og.SupCon(temperature)) for temperature in (0.5, 0.2)]


@pytest.mark.parametrize(("kernel", "unit"), [("network", "kappa"), ("free", "samples")])
def test_lines_are_the_growth_rates(tmp_path, kernel, unit):
    axes = plot_saddles(FOUND, kernel=kernel)
    assert axes.get_yscale() == "log"
    assert {text.get_text() for text in axes.texts} == {"T = 0.5", "T = 0.2"}
    for line, found in zip(axes.lines, reversed(FOUND), strict=True):  # by increasing temperature
        rates = [
            -4 * (one.least_eigenvalue if kernel == "network" else one.least_eigenvalue_free) for one in found.saddles
        ]
        np.testing.assert_allclose(line.get_xydata(), np.column_stack([[1, 2], rates]))
    assert unit in axes.get_ylabel()
    save_figure(axes.figure, tmp_path / "saddles.png")


def test_labels_of_close_rates_stand_apart():
    twice = [FOUND[0], replace(FOUND[0], geometry=og.solve(CLASSES, og.SupCon(0.51)))]
    axes = plot_saddles(twice)
    low, high = np.log(axes.get_ylim())
    first, second = (np.log(text.xy[1]) for text in axes.texts)
    assert second - first >= 0.05 * (high - low)


def test_saddles_that_are_not_left_have_no_point():
    stuck = replace(FOUND[0], saddles=tuple(replace(one, least_eigenvalue=0.0) for one in FOUND[0].saddles[:1]))
    assert len(plot_saddles([stuck, FOUND[1]]).lines) == 1
    with pytest.raises(og.InvalidInputError, match="`saddles` must hold a saddle that training leaves; got none"):
        plot_saddles([stuck])
    with pytest.raises(og.InvalidInputError, match="`saddles` must hold a saddle"):
        plot_saddles([])
    with pytest.raises(og.InvalidInputError, match="`kernel` must be one of network, free; got 'ntk'"):
        plot_saddles(FOUND, kernel="ntk")
