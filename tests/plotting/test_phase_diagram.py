"""Phase diagrams: what is drawn is what is in the rows, and the frontier is the known threshold."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers import reference

import optgeom as og
from optgeom.collapse.scan import Scan, scan
from optgeom.plotting import save_figure

pytest.importorskip("matplotlib")

from matplotlib.collections import PatchCollection, QuadMesh
from matplotlib.colors import to_rgb

from optgeom.plotting.phase_diagram import COLOURS, FRONTIER, plot_phase_diagram

SHARES = np.linspace(0.3, 0.95, 5)
SIX = {
    "classes": 3,
    "loss": og.InfoNCE(),
    "axes": {
        "majority": SHARES,
        "temperature": [0.5, 1, 2],
        "negatives": [1, 8, math.inf],
        "sampling": ["ucl", "scl"],
    },
}


def panels(figure):
    """Axes that show something, without colour bars."""
    return [
        axes for axes in figure.axes if axes.get_visible() and (axes.get_title(loc="left") or len(figure.axes) == 1)
    ]


def drawn(axes, kind):
    return [part for part in axes.collections if isinstance(part, kind)]


def colours(axes):
    """(y, x, 3) colours of the cells."""
    (mesh,) = drawn(axes, QuadMesh)
    return np.asarray(mesh.get_array())


def frontier(axes):
    """Points of the line, or None."""
    lines = [line for line in axes.lines if line.get_label() == FRONTIER]
    return np.column_stack(lines[0].get_data()) if lines else None


def texts(figure):
    found = [text.get_text() for axes in figure.axes for text in axes.texts]
    return " ".join(" ".join(found).split())


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()] if figure.legends else []


def test_six_panels_with_the_known_frontier():
    found = scan(**SIX)
    figure = plot_phase_diagram(found, y="majority")
    titles = [axes.get_title(loc="left").replace("\n", " ") for axes in panels(figure)]
    assert (
        titles[0] == "1 negative, from all classes (UCL)"
        and titles[5] == "infinitely many negatives, from other classes (SCL)"
    )
    for case in reference.GOLDEN["thresholds"]:
        if case["minorities"] == 2 and case["negatives"] in (1, 8):
            for line, sampling in enumerate(("ucl", "scl")):
                axes = panels(figure)[3 * line + (0 if case["negatives"] == 1 else 1)]
                points = frontier(axes)
                assert points[points[:, 0] == 1.0, 1] == pytest.approx(case[sampling], abs=1e-12)
    for axes, sampling, negatives in zip(panels(figure), ["ucl"] * 3 + ["scl"] * 3, [1, 8, math.inf] * 2, strict=True):
        rows = [row for row in found.rows if row["sampling"] == sampling and row["negatives"] == negatives]
        expected = [[to_rgb(COLOURS[row["regime"]]) for row in rows if row["majority"] == share] for share in SHARES]
        assert np.array_equal(colours(axes), expected)
    assert legend(figure) == [
        "spread: every class has its own direction",
        "minority collapse: all minority classes in one direction",
        "exact frontier of minority collapse",
    ]
    assert "3 classes" in figure.get_suptitle() and "InfoNCE" in figure.get_suptitle()


def test_axis_upwards_follows_the_spacing():
    shares = plot_phase_diagram(scan(3, axes={"majority": np.linspace(0.3, 0.9, 6), "temperature": [1, 2]}))
    odds = plot_phase_diagram(scan(3, axes={"majority_odds": np.geomspace(1, 1e6, 6), "temperature": [1, 2]}))
    ratio = plot_phase_diagram(scan(3, axes={"imbalance": [1, 10, 100], "temperature": [1, 2]}, shape="zipf"))
    assert [figure.axes[0].get_yscale() for figure in (shares, odds, ratio)] == ["linear", "log", "log"]
    assert [figure.get_supylabel().split()[0] for figure in (shares, odds, ratio)] == ["share", "odds", "imbalance:"]
    assert shares.axes[0].get_xscale() == "log"
    with pytest.raises(og.InvalidInputError, match="`y` must be one of"):
        plot_phase_diagram(scan(axes={"majority": 0.9}), y="risk")
    with pytest.raises(og.InvalidInputError, match="`x` must be one of"):
        plot_phase_diagram(scan(axes={"majority": 0.9}), x="risk")


def test_frontier_of_odds_and_imbalance():
    found = scan(
        3,
        loss=og.InfoNCE(),
        axes={"majority_odds": [1, 10, 100], "temperature": [0.5, 1], "negatives": math.inf, "alpha": 0},
    )
    odds = frontier(plot_phase_diagram(found, y="majority_odds").axes[0])
    assert odds[1] == pytest.approx([1.0, 12.1613696667], rel=1e-10)
    ratio = frontier(plot_phase_diagram(found, y="imbalance").axes[0])
    assert ratio[:, 1] == pytest.approx(2 * odds[:, 1])


def test_a_frontier_outside_the_picture_is_told():
    spread = plot_phase_diagram(
        scan(
            3,
            loss=og.InfoNCE(),
            axes={"majority": [0.3, 0.6, 0.9], "temperature": [0.07, 0.1], "negatives": math.inf, "alpha": 0},
        )
    )
    assert frontier(spread.axes[0]) is None and r"only above odds of $9.7\cdot10^{8}$" in texts(spread)
    collapsed = plot_phase_diagram(
        scan(
            3,
            loss=og.InfoNCE(),
            axes={"majority_odds": [1e3, 1e4], "temperature": [1, 2], "negatives": math.inf, "alpha": 0},
        )
    )
    assert frontier(collapsed.axes[0]) is None and "collapse from odds of 12.2 on" in texts(collapsed)


def test_failed_cells_are_hatched():
    found = scan(
        3,
        loss=og.InfoNCE(),
        axes={"majority": [0.3, 0.6, 0.9], "temperature": [0.002, 0.5, 1], "negatives": 1, "alpha": 0},
    )
    figure = plot_phase_diagram(found)
    (hatched,) = drawn(figure.axes[0], PatchCollection)
    assert len(hatched.get_paths()) == 3 and hatched.get_hatch() == "////"
    assert "not certified, or failed" in legend(figure)


def test_rank_as_colour():
    ratios = (10, 1585, 1e4)
    found = scan(
        20,
        loss=og.InfoNCE(),
        axes={"imbalance": ratios, "temperature": [0.1, 0.3], "negatives": math.inf, "sampling": "scl", "alpha": 0},
        shape="zipf",
    )
    figure = plot_phase_diagram(found, colour="rank")
    (mesh,) = drawn(figure.axes[0], QuadMesh)
    expected = [[row["rank"] for row in found.rows if row["imbalance"] == ratio] for ratio in ratios]
    assert np.array_equal(mesh.get_array(), expected)
    assert {1, 19} < set(np.ravel(expected)), "there is partial collapse in between"
    assert "rank" in figure.axes[-1].get_ylabel()


def test_parameters_that_are_not_numbers_lie_side_by_side():
    found = scan(
        loss=og.InfoNCE(),
        axes={"majority": [0.5, 0.8, 0.9], "num_classes": [3, 10], "temperature": 1, "negatives": [1, 8, math.inf]},
    )
    figure = plot_phase_diagram(found, y="majority")
    assert [axes.get_title(loc="left") for axes in panels(figure)] == ["3 classes", "10 classes"]
    axes = panels(figure)[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "8", "∞"]
    line = frontier(axes)
    assert line[:2, 0].tolist() == [-0.5, 0.5] and line[0, 1] == line[1, 1] == pytest.approx(0.8074897294850626)


def test_one_varying_axis_is_a_curve():
    found = scan(3, loss=og.InfoNCE(), axes={"majority": np.linspace(0.3, 0.95, 14), "temperature": 1, "negatives": 1})
    axes = plot_phase_diagram(found).axes[0]
    curve = next(line for line in axes.lines if line.get_label() != FRONTIER)
    assert curve.get_ydata() == pytest.approx(found.column("min_angle_deg"))
    assert frontier(axes)[:, 0] == pytest.approx([0.8074897294850626] * 2)
    single = plot_phase_diagram(scan(3, axes={"majority": 0.9, "temperature": 1}))
    assert "only above odds of 12" in texts(single)


def test_union_of_grids_leaves_gaps_white(tmp_path):
    scan(3, axes={"majority": [0.3, 0.6], "temperature": [0.5, 1]}, out=tmp_path / "scan.csv")
    scan(3, axes={"majority": [0.9], "temperature": [1]}, out=tmp_path / "scan.csv")
    cells = colours(plot_phase_diagram(tmp_path / "scan.csv").axes[0])
    assert cells[2, 0].tolist() == [1, 1, 1] and cells[2, 1].tolist() == pytest.approx(to_rgb(COLOURS["spread"]))


def test_refuses_what_cannot_be_drawn():
    with pytest.raises(og.InvalidInputError, match="`scan` must hold at least one cell"):
        plot_phase_diagram(Scan([]))
    many = scan(axes={"majority": [0.5, 0.9], "num_classes": list(range(3, 44)), "temperature": [1, 2]})
    with pytest.raises(og.InvalidInputError, match="at most 40 panels; got 41"):
        plot_phase_diagram(many)


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_saved_twice_is_the_same_file(suffix, tmp_path):
    found = scan(3, loss=og.InfoNCE(), axes={"majority": [0.3, 0.9], "temperature": [1, 2], "negatives": [1, 8]})
    for name in ("a", "b"):
        save_figure(plot_phase_diagram(found), (tmp_path / name).with_suffix(suffix))
    first, second = ((tmp_path / name).with_suffix(suffix).read_bytes() for name in ("a", "b"))
    assert first == second and len(first) > 3000
