"""Growth curves: time and memory on logarithmic axes, every line labelled where it ends."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import _store
import _tables
from _harness import OURS, Row

# Rivals drawn beside our curves: label -> table and case whose rows hold them, and the solver.
BESIDE: dict[str, dict[str, tuple[str, str, str]]] = {
    "classes": {
        "Clarabel": ("speed-clarabel", "zipf, temperature 0.1", "CVXPY + Clarabel"),
        "SCS": ("speed-scs", "zipf, temperature 0.1", "CVXPY + SCS"),
        "pymanopt": ("speed-pymanopt", "zipf, temperature 0.1", "pymanopt, default"),
    },
    "samples": {
        "Clarabel": ("realize-clarabel", "dim 3, temperature 0.5", "CVXPY + Clarabel"),
        "pymanopt": ("realize-pymanopt", "dim 3, temperature 0.5", "pymanopt, default"),
    },
}
COLOURS = ("#0b5394", "#b45f06")
GREY = "#777777"
FONT = 13


def growth(rows: Sequence[Row], path: Path, axis: str, beside: Mapping[str, tuple[str, str, str]]) -> None:
    """Two panels; `beside` names rivals whose times are read from the results in the same folder."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.2), layout="constrained")
    time, memory = figure.subplots(1, 2)
    found = _tables.cases(rows)
    names = list(dict.fromkeys(case for case, _ in found))
    ends: dict[Any, list[tuple[float, float, str, str]]] = {time: [], memory: []}
    for case, colour in zip(names, COLOURS, strict=False):
        line = [(size, held[OURS]) for (name, size), held in found.items() if name == case and not held[OURS].failed]
        if line:
            sizes = [float(size) for size, _ in line]
            for panel, values in ((time, [held.seconds for _, held in line]), (memory, [held.extra_mb for _, held in line])):
                panel.plot(sizes, values, "o-", color=colour, markersize=5, linewidth=2)
                ends[panel].append((sizes[-1], values[-1], case, colour))
    for label, (table, case, solver) in beside.items():
        told = _tables.cases(_store.read_table(path.parent.parent / "results" / f"{table}.csv"))
        points = sorted((size, held[solver].seconds) for (name, size), held in told.items() if name == case and solver in held)
        if points:
            time.plot(*zip(*points, strict=True), "s--", color=GREY, markersize=4, linewidth=1.3)
            ends[time].append((*points[-1], label, GREY))
    for panel, title in ((time, "time (s)"), (memory, "memory of arrays (MiB)")):
        _dress(panel, title, axis, ends[panel])
    figure.savefig(path, dpi=200, metadata={"Software": None})


def _dress(panel: Any, title: str, axis: str, ends: Sequence[tuple[float, float, str, str]]) -> None:
    panel.set(xscale="log", yscale="log")
    panel.set_title(title, loc="left", fontsize=FONT + 1)
    panel.set_xlabel(axis, fontsize=FONT)
    panel.tick_params(labelsize=FONT - 1)
    panel.minorticks_off()
    panel.grid(alpha=0.25)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)
    # Room at the right for the labels of lines that end there.
    left, right = panel.get_xlim()
    panel.set_xlim(left, right * (right / left) ** 0.5)
    low, high = panel.get_ylim()
    for x, y, label, colour in _apart(ends, (high / low) ** (1 / 13)):
        place = {"xytext": (8, 0), "textcoords": "offset points", "va": "center", "linespacing": 1.0}
        panel.annotate(label.replace(", ", ",\n").replace("many ", "many\n"), (x, y), color=colour, fontsize=FONT - 1, **place)


def _apart(ends: Sequence[tuple[float, float, str, str]], step: float) -> list[tuple[float, float, str, str]]:
    """Labels of lines that end at the same place stand one above the other, a factor of at least `step` apart, two for two lines."""
    placed: list[tuple[float, float, str, str]] = []
    for x, y, label, colour in sorted(ends, key=lambda end: end[1]):
        need = math.log(step) * (2 if any(part in label for part in (", ", "many ")) else 1.2)
        for at, other, _, _ in placed:
            if abs(math.log10(x / at)) < 1 and math.log(y / other) < need:
                y = other * math.exp(need)
        placed.append((x, y, label, colour))
    return placed
