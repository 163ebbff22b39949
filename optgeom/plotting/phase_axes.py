"""Which parameter of a scan goes on which axis of its phase diagram, and what the axes and panels are called."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from optgeom import _checks
from optgeom._numerics import Array
from optgeom.collapse.scan_table import COLUMNS
from optgeom.losses import registry
from optgeom.plotting import figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = dict[str, Any]

CLASS_AXES = ("majority", "majority_odds", "imbalance")
# Parameters that can vary besides the imbalance, in the order in which they are given an axis of their own.
PARAMETERS = (
    *("temperature", "negatives", "batch_size", "num_classes", "sampling", "profile", "loss"),
    *("views", "alpha", "negatives_reduction", "tolerance"),
)
LOGARITHMIC = ("temperature", "majority_odds", "imbalance")
LABELS = {
    "majority": "share of the majority class",
    "majority_odds": "odds of the majority class against all others",
    "imbalance": "imbalance: most over least frequent class",
    "temperature": "temperature",
    "negatives": "negatives per anchor",
    "batch_size": "images per batch",
    "num_classes": "number of classes",
    "sampling": "where the negatives come from",
}
PROFILES = {
    "majority": "one majority class and equal others",
    "exp": "class sizes that fall exponentially",
    "step": "two sizes of classes",
    "zipf": "class sizes by Zipf's law",
}
SHORT_LINE = 24
FEW = 5


@dataclass(frozen=True)
class Axis:
    """One axis: a column, its distinct values in order, and where they are drawn."""

    column: str
    values: tuple[Any, ...]

    @property
    def categorical(self) -> bool:
        """Values side by side, whatever the distance between them."""
        return self.column not in LOGARITHMIC and self.column != "majority"

    @property
    def label(self) -> str:
        return LABELS.get(self.column, self.column.replace("_", " "))

    def index(self, row: Row) -> int:
        """Place of a row's value."""
        return self._places[row[self.column]]

    @cached_property
    def _places(self) -> dict[Any, int]:
        return {value: place for place, value in enumerate(self.values)}

    @cached_property
    def centres(self) -> Array:
        return (
            np.arange(len(self.values), dtype=np.float64)
            if self.categorical
            else np.array(self.values, dtype=np.float64)
        )

    @cached_property
    def edges(self) -> Array:
        """Ends of the cells: half-way between neighbours, on the scale of the axis; a share stays a share."""
        logarithmic = self.column in LOGARITHMIC
        centres = np.log(self.centres) if logarithmic else self.centres
        if centres.size == 1:
            half = 0.2 if logarithmic else 0.5 if self.categorical else 0.02
            edges = np.array([centres[0] - half, centres[0] + half])
        else:
            middle = (centres[1:] + centres[:-1]) / 2
            edges = np.concatenate([[2 * centres[0] - middle[0]], middle, [2 * centres[-1] - middle[-1]]])
        if logarithmic:
            return np.asarray(np.exp(edges))
        return np.clip(edges, 0.0, 1.0) if self.column == "majority" else edges

    def apply(self, axes: Axes, which: str) -> None:
        """Scale, limits and ticks of the "x" or "y" axis."""
        from matplotlib.ticker import FixedFormatter, FixedLocator

        low, high = float(self.edges[0]), float(self.edges[-1])
        if self.column in LOGARITHMIC:
            figures.logarithmic(axes, which, low, high)
            if 1 < len(self.values) <= FEW:  # the values themselves; round numbers may all fall between them
                axis = axes.xaxis if which == "x" else axes.yaxis
                axis.set_major_locator(FixedLocator(list(self.values)))
                axis.set_major_formatter(FixedFormatter([figures.tick_text(value) for value in self.values]))
            return
        (axes.set_xlim if which == "x" else axes.set_ylim)(low, high)
        if self.categorical:
            (axes.set_xticks if which == "x" else axes.set_yticks)(
                self.centres, [tick_words(value) for value in self.values]
            )

    def threshold(self, row: Row) -> float:
        """Threshold of minority collapse in the units of this axis; NaN where there is none."""
        log_odds = row["threshold_log_odds"]
        if log_odds is None:
            return math.nan
        if self.column == "majority":
            return 1 / (1 + math.exp(-log_odds))
        if self.column == "majority_odds":
            return math.exp(log_odds)
        return math.nan if row["threshold_imbalance"] is None else float(row["threshold_imbalance"])

    def inside(self, values: Array) -> npt.NDArray[np.bool_]:
        """Which values are distinguishable from the ends of the axis."""
        ends = np.log(self.edges) if self.column in LOGARITHMIC else self.edges
        margin = 0.004 * (ends[-1] - ends[0])
        with np.errstate(invalid="ignore"):
            places = np.log(values) if self.column in LOGARITHMIC else values
            return np.asarray((places > ends[0] + margin) & (places < ends[-1] - margin))


def parameters_of(rows: list[Row]) -> tuple[str, ...]:
    """Parameters that can vary besides the imbalance: those with a column, then others of the losses."""
    return (*PARAMETERS, *(name for name in rows[0] if name not in COLUMNS))


def class_axis(rows: list[Row], column: str | None) -> Axis:
    """The axis of imbalance: as asked for, or the one on which the values of a path are most evenly spaced."""
    if column is None:
        if any(row["profile"] != "majority" for row in rows):
            column = "imbalance"
        else:
            column = min(("majority", "majority_odds"), key=lambda name: _unevenness(rows, name))
    _checks.choice("y", column, CLASS_AXES)
    return Axis(column, tuple(sorted({row[column] for row in rows})))


def _unevenness(rows: list[Row], column: str) -> float:
    values = np.unique([row[column] for row in rows])
    steps = np.diff(np.log(values) if column in LOGARITHMIC else values)
    if steps.size > 1:
        return float(steps.std() / steps.mean())
    # Too few to tell: shares are easier to read than odds.
    return 0.0 if column == "majority" and values[-1] < 0.999 else 0.5


def second_axis(rows: list[Row], column: str | None) -> Axis:
    """The axis across: as asked for, or the first parameter that varies."""
    names = parameters_of(rows)
    varying = [name for name in names if len({row[name] for row in rows}) > 1]
    if column is None:
        column = varying[0] if varying else "temperature"
    _checks.choice("x", column, names)
    return Axis(column, tuple(sorted({row[column] for row in rows}, key=_in_order)))


def _in_order(value: Any) -> tuple[bool, Any]:
    """Sort key: ascending, None first, UCL before SCL."""
    return (value is not None, 0 if value is None else {"ucl": "0", "scl": "1"}.get(value, value))


def distinguishing(rows: list[Row], across: str = "") -> list[str]:
    """Parameters that tell the rows apart, without the one on the axis across and those that follow from others."""
    named: list[str] = []
    for name in parameters_of(rows):
        # The reduction goes with the number of negatives; where that is across, it would split each panel in two.
        if name == across or (name == "negatives_reduction" and across == "negatives"):
            continue
        if len({_values(row, [*named, name]) for row in rows}) > len({_values(row, named) for row in rows}):
            named.append(name)
    return named


def panels_of(rows: list[Row], across: str) -> list[tuple[str, list[Row]]]:
    """Rows by the parameters that are on no axis, with the title of their panel."""
    named = distinguishing(rows, across)
    # The parameter with the most values changes fastest, so that it runs along the lines of panels.
    named.sort(key=lambda name: len({row[name] for row in rows}))
    grouped: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        grouped.setdefault(_values(row, named), []).append(row)
    ordered = sorted(grouped, key=lambda values: tuple(_in_order(value) for value in values))
    spoken = [name for name in parameters_of(rows) if name in named]
    of_panels = [dict(zip(named, values, strict=True)) for values in ordered]
    titles = [_panel_title({name: panel[name] for name in spoken}) for panel in of_panels]
    return [(title, grouped[values]) for title, values in zip(titles, ordered, strict=True)]


def _values(row: Row, names: list[str]) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


def _panel_title(values: dict[str, Any]) -> str:
    words = _words(values, tuple(values))
    text = ", ".join(words)
    return text if len(text) <= SHORT_LINE or len(words) < 2 else f"{words[0]},\n{', '.join(words[1:])}"


def _words(values: dict[str, Any], names: tuple[str, ...]) -> list[str]:
    """Parameters in words.

    Where the negatives come from belongs to their number, or says itself that it is about them.
    """
    words = []
    for name in names:
        word = say(name, values[name])
        words.append(f"negatives {word}" if name == "sampling" and "negatives" not in names else word)
    return [word for word in words if word]


def say(name: str, value: Any) -> str:
    """A parameter with its value, for a title; nothing where it does not apply."""
    if value is None or value == "":
        return ""
    if name == "loss":
        entry = registry.find(value)
        return str(value) if entry is None else entry.label
    if name == "profile":
        return PROFILES.get(value, "classes as given")
    if name == "num_classes":
        return f"{value} classes"
    option = registry.parameter(name)
    shown = value if isinstance(value, str) else f"{value:g}"
    return f"{name.replace('_', ' ')} {shown}" if option is None else option.say(value)


def tick_words(value: Any) -> str:
    """A value on a categorical axis."""
    if isinstance(value, str):
        return value.upper() if value in ("ucl", "scl") else value
    return "none" if value is None else "∞" if value == math.inf else f"{value:g}"


def setting_words(rows: list[Row], across: str) -> list[str]:
    """What all cells have in common, in words."""
    columns = ("profile", "num_classes", "loss", "temperature", "negatives", "sampling", "batch_size", "views")
    order = (*columns, *(name for name in rows[0] if name not in COLUMNS))
    same = [name for name in order if name != across and len({row[name] for row in rows}) == 1]
    if rows[0]["negatives"] is None:  # then the column says nothing
        same = [name for name in same if name != "sampling"]
    if len({row["alpha"] for row in rows}) == 1 and rows[0]["alpha"] not in (None, 1.0):
        same.append("alpha")
    return _words(rows[0], tuple(same))
