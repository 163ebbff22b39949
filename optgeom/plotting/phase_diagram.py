"""The phase diagram of a scan: where classes keep their own directions, where they collapse, and the exact frontier."""

from __future__ import annotations

import math
import os
import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from optgeom import _checks
from optgeom._numerics import Array
from optgeom.collapse.scan import Scan
from optgeom.collapse.scan_grid import expand
from optgeom.errors import InvalidInputError
from optgeom.plotting import figures
from optgeom.plotting.figures import BLACK
from optgeom.plotting.phase_axes import Axis, class_axis, panels_of, second_axis, setting_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = dict[str, Any]

# Light to dark in the order of the loss of dimensions, so that a grey print says the same; blue and orange for the
# colour-blind.
COLOURS = {"spread": "#cfe2f0", "partial-collapse": "#f2a541", "minority-collapse": "#7a2e12", "uncertified": "#f4f4f4"}
WORDS = {
    "spread": "spread: every class has its own direction",
    "partial-collapse": "partial collapse: fewer directions than classes",
    "minority-collapse": "minority collapse: all minority classes in one direction",
    "uncertified": "not certified, or failed",
}
FRONTIER = "exact frontier of minority collapse"
MOST_PANELS = 40
COLUMNS = 3  # panels side by side: more have no room for their labels at 800 pixels
POINTS = 9.5
WIDTH = 8.4  # inches
INCHES_PER_CHARACTER = 0.0076


def plot_phase_diagram(
    scan: Scan | str | os.PathLike[str],
    *,
    x: str | None = None,
    y: str | None = None,
    colour: str = "regime",
    size: tuple[float, float] | None = None,
) -> Figure:
    """Phase diagram of a scan, one panel for each combination of the parameters that are not on an axis.

    Parameters
    ----------
    scan : Scan or path
        A scan, or its file.
    x : str, optional
        Column across; "temperature" or else the first parameter that varies.
    y : {"majority", "majority_odds", "imbalance"}, optional
        Column upwards; the one whose values are most evenly spaced. Odds and imbalance have a logarithmic axis.
    colour : {"regime", "rank"}
    size : (float, float), optional
        Width and height in inches.

    Returns
    -------
    matplotlib.figure.Figure
        Unknown to pyplot; `save_figure` or its own `savefig` writes it. A scan in which nothing but the imbalance
        varies is drawn as the smallest angle against it.

    Raises
    ------
    InvalidInputError
        An empty scan, an axis that is none, or more than 40 panels.
    MissingDependencyError
        matplotlib is not installed.
    """
    figures.require_matplotlib()
    import matplotlib

    _checks.choice("colour", colour, ("regime", "rank"))
    rows = (scan if isinstance(scan, Scan) else Scan.load(scan)).rows
    rows = expand(rows) if rows else []
    if not rows:
        raise InvalidInputError("`scan` must hold at least one cell to be drawn; got none (scan a grid first)")
    upwards, across = class_axis(rows, y), second_axis(rows, x)
    panels = panels_of(rows, across.column)
    if len(panels) > MOST_PANELS:
        raise InvalidInputError(
            f"a phase diagram has at most {MOST_PANELS} panels; got {len(panels)} (scan fewer values, or choose `x`)"
        )
    columns = _columns(len(panels))
    lines = -(-len(panels) // columns)
    width, height = size or (WIDTH, 1.5 + (3.6 if columns == 1 else 2.9 if columns == 2 else 2.3) * lines)
    with matplotlib.rc_context(figures.scaled_style(POINTS * min(1.3, max(0.7, width / WIDTH)))):
        figure = figures.new_figure((width, height))
        axes = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True)
        drawn = list(axes.flat)[: len(panels)]
        for place, (title, members) in zip(drawn, panels, strict=True):
            if len(across.values) == 1:
                _draw_angles(place, members, upwards)
            else:
                _draw_map(place, members, across, upwards, colour, _highest_rank(rows))
            place.set_title(title)
        for place in list(axes.flat)[len(panels) :]:
            place.set_visible(False)
        _label(figure, axes, len(panels), across, upwards)
        _legend(figure, rows, drawn, "regime" if len(across.values) == 1 else colour)
        _title(figure, rows, across.column, width)
    return figure


def _columns(panels: int) -> int:
    """Panels side by side: no line with a single panel where that can be helped."""
    return 2 if panels == 4 else min(panels, COLUMNS)


def state(row: Row) -> str:
    """What a cell is drawn as."""
    return row["regime"] if row["certified"] else "uncertified"


def _highest_rank(rows: list[Row]) -> int:
    return max(2, *(int(row["num_classes"]) - 1 for row in rows))


def _draw_map(axes: Axes, rows: list[Row], across: Axis, upwards: Axis, colour: str, highest: int) -> None:
    from matplotlib.collections import PatchCollection
    from matplotlib.colors import to_rgb
    from matplotlib.patches import Rectangle

    across.apply(axes, "x")
    upwards.apply(axes, "y")
    x, y = across.edges, upwards.edges
    image = np.ones((len(upwards.values), len(across.values), 3))  # cells that are not in the scan stay white
    ranks = np.full(image.shape[:2], np.nan)
    hatched = []
    for row in rows:
        i, j = upwards.index(row), across.index(row)
        image[i, j] = to_rgb(COLOURS[state(row)])
        ranks[i, j] = row["rank"] if row["certified"] else np.nan
        if not row["certified"]:
            hatched.append(Rectangle((x[j], y[i]), x[j + 1] - x[j], y[i + 1] - y[i]))
    if colour == "rank":
        axes.pcolormesh(x, y, np.ma.masked_invalid(ranks), cmap="viridis", vmin=1, vmax=highest, rasterized=True)
    else:
        axes.pcolormesh(x, y, image, rasterized=True)
    # A cell without a geometry must catch the eye, however small it is.
    axes.add_collection(
        PatchCollection(
            hatched, facecolor=COLOURS["uncertified"], edgecolor=BLACK, hatch="////", linewidth=0.2, zorder=2
        ),
        autolim=False,
    )
    _draw_frontier(axes, rows, across, upwards)


def _frontier(rows: list[Row], across: Axis, upwards: Axis) -> tuple[Array, Array]:
    """Positions across, and the threshold there in the units of the axis upwards, NaN where there is none."""
    known = {across.index(row): upwards.threshold(row) for row in rows}
    places = np.array(sorted(known), dtype=np.intp)
    return across.centres[places], np.array([known[place] for place in places.tolist()])


def _draw_frontier(axes: Axes, rows: list[Row], across: Axis, upwards: Axis) -> None:
    x, y = _frontier(rows, across, upwards)
    if across.categorical:  # between two numbers of negatives there is nothing to go through
        x, y = (
            np.repeat(x, 3) + np.tile([-0.5, 0.5, 0.5], x.size),
            np.repeat(y, 3) * np.tile([1.0, 1.0, np.nan], y.size),
        )
    if upwards.inside(y).any():
        _line(axes, x, y)
    else:
        _note(axes, _beyond(rows, upwards), 0.94)


def _line(axes: Axes, x: Array, y: Array) -> None:
    from matplotlib.patheffects import Normal, Stroke

    width = 1.6
    halo = [Stroke(linewidth=width + 2.0, foreground="white"), Normal()]
    axes.plot(
        x, y, color=BLACK, linewidth=width, path_effects=halo, label=FRONTIER, scalex=False, scaley=False, zorder=3
    )


def _beyond(rows: list[Row], upwards: Axis) -> str:
    """Where the frontier is when it is not in the picture: in odds, since shares crowd at 1."""
    odds = [math.exp(row["threshold_log_odds"]) for row in rows if math.isfinite(upwards.threshold(row))]
    if not odds:
        return ""
    if upwards.threshold(rows[0]) < upwards.centres[0]:
        return f"minority collapse from\nodds of {_round(max(odds))} on"
    return f"minority collapse only\nabove odds of {_round(min(odds))}"


def _round(value: float) -> str:
    """Two or three digits; a tick's single digit would be too coarse for a threshold."""
    if value < 1e5:
        return f"{float(f'{value:.3g}'):g}"
    digits, power = f"{value:.1e}".split("e")
    return f"${digits}\\cdot10^{{{int(power)}}}$"


def _note(axes: Axes, text: str, height: float) -> None:
    if text:
        box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "boxstyle": "round,pad=0.3"}
        side, points = "top" if height > 0.5 else "bottom", 0.85 * figures.text_points()
        axes.text(
            0.5, height, text, transform=axes.transAxes, ha="center", va=side, fontsize=points, bbox=box, zorder=4
        )


def _draw_angles(axes: Axes, rows: list[Row], upwards: Axis) -> None:
    """Smallest angle against the imbalance: what there is to see when nothing else varies."""
    upwards.apply(axes, "x")
    edges = upwards.edges
    for row in rows:
        i, kind = upwards.index(row), state(row)
        hatch: dict[str, Any] = {"hatch": "////", "edgecolor": BLACK} if kind == "uncertified" else {}
        axes.axvspan(edges[i], edges[i + 1], facecolor=COLOURS[kind], linewidth=0, **hatch)
    shown = sorted((upwards.index(row), row["min_angle_deg"]) for row in rows if row["certified"])
    places = upwards.centres[[place for place, _ in shown]]
    angles = [angle for _, angle in shown]
    axes.plot(
        places,
        angles,
        color=BLACK,
        marker="o",
        markersize=2 if len(rows) > 10 else 4,
        linewidth=1.2,
        scalex=False,
        clip_on=False,
    )
    axes.set_ylim(0, max(axes.get_ylim()[1], 1.1 * max(angles, default=0.0), 10.0))
    threshold = upwards.threshold(rows[0])
    if upwards.inside(np.array([threshold])).any():
        _line(axes, np.full(2, threshold), np.array([0.0, axes.get_ylim()[1]]))
    else:
        _note(axes, _beyond(rows, upwards), 0.06)


def _label(figure: Figure, axes: Any, panels: int, across: Axis, upwards: Axis) -> None:
    """Labels on the outer panels only; above an empty place the last panel of a column is an outer one."""
    single = len(across.values) == 1
    figure.supylabel(
        "smallest angle between two classes (degrees)" if single else upwards.label, fontsize=figures.text_points()
    )
    lines, columns = axes.shape
    for column in range(min(columns, panels)):
        lowest = axes[lines - 1 if (lines - 1) * columns + column < panels else lines - 2, column]
        lowest.tick_params(labelbottom=True)
        lowest.set_xlabel(upwards.label if single else across.label)


def _legend(figure: Figure, rows: list[Row], drawn: list[Axes], colour: str) -> None:
    from matplotlib.patches import Patch

    present = {state(row) for row in rows}
    handles: list[Any] = []
    for kind in COLOURS:
        if kind in present and (colour == "regime" or kind == "uncertified"):
            hatch: dict[str, Any] = (
                {"hatch": "////", "edgecolor": BLACK} if kind == "uncertified" else {"edgecolor": "#8a8a8a"}
            )
            handles.append(Patch(facecolor=COLOURS[kind], label=WORDS[kind], linewidth=0.6, **hatch))
    handles += [line for axes in drawn for line in axes.lines if line.get_label() == FRONTIER][:1]
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=2 if len(handles) > 1 else 1, frameon=False)
    if colour == "rank":
        bar = figure.colorbar(drawn[0].collections[0], ax=drawn, label="rank: dimensions that the class means span")
        bar.set_ticks([int(tick) for tick in np.unique(np.linspace(1, _highest_rank(rows), 6).round())])


def _title(figure: Figure, rows: list[Row], across: str, width: float) -> None:
    first = "Where the minority classes collapse"
    points = figures.text_points()
    columns = max(20, int(0.97 * width / (INCHES_PER_CHARACTER * points)))
    lines = [line for text in (first, _capital(setting_words(rows, across))) for line in textwrap.wrap(text, columns)]
    figure.suptitle("\n".join(lines), x=0.01, ha="left", fontsize=1.05 * points)


def _capital(words: Iterable[str]) -> str:
    text = ", ".join(words)
    return text[:1].upper() + text[1:]
