"""The figure of a run, from short logs, from many classes, and where no distance was measured."""

from __future__ import annotations

import numpy as np
import pytest

import optgeom as og

pytest.importorskip("matplotlib")

from optgeom.plotting import save_figure
from optgeom.plotting.training import plot_training

CLASSES = og.ClassDistribution.from_counts([60, 30, 10], names=["a", "b$", "c"])
GEOMETRY = og.solve(CLASSES, og.SupCon(0.5, 32))


def record(step, angles=(120.0, 121.0, 119.0), **changed):
    given = {"step": step, "loss": 4.0 + 1 / step, "optimal_loss": GEOMETRY.risk, "max_angle_error_deg": 3.0 / step}
    return {**given, "relative_frobenius": 0.1 / step, "angles_deg": angles, **changed}


def test_curves_are_the_log(tmp_path):
    figure = plot_training([record(step) for step in (10, 20, 30)], GEOMETRY)
    loss, distance, angles = figure.axes
    np.testing.assert_allclose(loss.lines[0].get_xydata(), [[10, 4.1], [20, 4.05], [30, 4 + 1 / 30]])
    assert loss.lines[1].get_ydata()[0] == GEOMETRY.risk
    np.testing.assert_allclose(distance.lines[0].get_ydata(), [0.01, 0.005, 0.1 / 30])
    # Every pair, and its optimum.
    assert len(angles.lines) == 6
    optimal = sorted(line.get_ydata()[0] for line in angles.lines[1::2])
    np.testing.assert_allclose(optimal, np.sort(GEOMETRY.angles()[np.triu_indices(3, 1)]))
    save_figure(figure, tmp_path / "run.png")


def test_gaps_single_points_and_many_classes(tmp_path):
    save_figure(plot_training([record(10, angles=(120.0, None, None))], GEOMETRY), tmp_path / "one.png")
    nothing = record(10, (None, None, None), max_angle_error_deg=None, relative_frobenius=None, optimal_loss=None)
    save_figure(plot_training([nothing, {**nothing, "step": 20}], GEOMETRY), tmp_path / "nothing.png")
    figure = plot_training([record(step, None) for step in (10, 20)], GEOMETRY)
    assert figure.axes[2].get_title(loc="left") == "Largest angle error (degrees)"
    with pytest.raises(og.InvalidInputError, match="`records` must hold a line of the log; got none"):
        plot_training([], GEOMETRY)
