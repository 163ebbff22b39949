"""Growth curves: time and memory on logarithmic axes, every line labelled where it ends."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import _store
import _tables
from _harness import OURS, Row

from optgeom.inputs import files

# Rivals drawn beside our curves: label -> table and case whose rows hold them, the solver, and on which side of its end
# the label has room.
BESIDE: dict[str, dict[str, tuple[str, str, str, str]]] = {
    "classes": {
        "Clarabel": ("speed-clarabel", "zipf, temperature 0.1", "CVXPY + Clarabel", "above"),
        "SCS": ("speed-scs", "zipf, temperature 0.1", "CVXPY + SCS", "above"),
        "pymanopt": ("speed-pymanopt", "zipf, temperature 0.1", "pymanopt, default", "above"),
    },
    "samples": {
        "Clarabel": ("realize-clarabel", "dim 3, temperature 0.5", "CVXPY + Clarabel", "above"),
        "pymanopt": ("realize-pymanopt", "dim 3, temperature 0.5", "pymanopt, default", "below"),
    },
}
COLOURS = ("#0b5394", "#b45f06")
GREY = "#777777"
FONT = 13


# Where a label stands, seen from its point: lines rise, so there is room above to the left and below to the right.
SIDES: dict[str, dict[str, Any]] = {
    "above": {"xytext": (2, 6), "ha": "right", "va": "bottom"},
    "below": {"xytext": (7, -4), "ha": "left", "va": "top"},
}


def growth(
    rows: Sequence[Row], path: Path, results: Path, axis: str, beside: Mapping[str, tuple[str, str, str, str]]
) -> None:
    """Two panels; `beside` names rivals whose times are read from the files of `results`."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.2), layout="constrained")
    time, memory = figure.subplots(1, 2)
    curves: dict[str, list[tuple[float, _tables.Summary]]] = {}
    for (case, size), found in _tables.cases(rows).items():
        if not found[OURS].failed:
            curves.setdefault(case, []).append((float(size), found[OURS]))
    for panel, of in ((time, _seconds), (memory, _arrays)):
        lines = {case: [(size, of(held)) for size, held in curve] for case, curve in curves.items()}
        _draw(panel, lines)
    for label, (table, case, solver, side) in beside.items():
        told = _tables.cases(_store.read_table(results / f"{table}.csv"))
        points = sorted(
            (size, held[solver].seconds) for (name, size), held in told.items() if name == case and solver in held
        )
        if points:
            time.plot(*zip(*points, strict=True), "s--", color=GREY, markersize=4, linewidth=1.3)
            _label(time, points[-1], label, GREY, side)
    for panel, title in ((time, "time (s)"), (memory, "memory of arrays (MiB)")):
        _dress(panel, title, axis)
    with files.atomic_path(path) as temporary:
        figure.savefig(temporary, format="png", dpi=200, metadata={"Software": None})


def _seconds(found: _tables.Summary) -> float:
    return found.seconds


def _arrays(found: _tables.Summary) -> float:
    return found.extra_mb


def _draw(panel: Any, lines: Mapping[str, Sequence[tuple[float, float]]]) -> None:
    """The upper line has its label above its end, the lower one below its middle."""
    upper = max(lines, key=lambda case: sum(math.log(y) for _, y in lines[case]) / len(lines[case]), default="")
    for (case, points), colour in zip(lines.items(), COLOURS, strict=False):
        panel.plot(*zip(*points, strict=True), "o-", color=colour, markersize=5, linewidth=2)
        if case == upper:
            _label(panel, (points[-1][0], max(y for _, y in points[-3:])), case, colour, "above")
        else:
            rest = points[len(points) // 2 :]
            _label(panel, (rest[0][0], min(y for _, y in rest)), case, colour, "below")


def _label(panel: Any, point: tuple[float, float], label: str, colour: str, side: str) -> None:
    from matplotlib.patheffects import withStroke

    text = label.replace("many ", "many\n") if side == "below" else label
    told = panel.annotate(
        text, point, textcoords="offset points", color=colour, fontsize=FONT - 1, linespacing=1.0, **SIDES[side]
    )
    told.set_path_effects([withStroke(linewidth=3, foreground="white")])


def _dress(panel: Any, title: str, axis: str) -> None:
    panel.set(xscale="log", yscale="log")
    panel.set_title(title, loc="left", fontsize=FONT + 1)
    panel.set_xlabel(axis, fontsize=FONT)
    panel.tick_params(labelsize=FONT - 1)
    panel.minorticks_off()
    left, right = panel.get_xlim()
    if right < 300 * left:  # a tick or two at powers of ten would say little
        ticks = [tick for power in range(8) for digit in (1, 3) if left <= (tick := digit * 10**power) <= right]
        panel.set_xticks(ticks, [str(tick) for tick in ticks])
    panel.grid(alpha=0.25)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)
    low, high = panel.get_ylim()
    # Two decades at least, so that what hardly changes looks so; and room for a label above the highest end.
    widen = max(1.0, 10.0 / math.sqrt(high / low))
    panel.set_ylim(low / widen, high * widen * (high / low) ** 0.08)
