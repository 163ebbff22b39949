"""What all pictures share: making and saving figures without pyplot, and axes that stay readable at any range."""

from __future__ import annotations

import math
import os
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from optgeom.errors import InvalidInputError, MissingDependencyError
from optgeom.inputs import files

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DOTS_PER_INCH = 150
# Colour-blind safe (Okabe and Ito 2008), and different in grey.
BLUE, ORANGE, GREEN, BLACK, GREY = "#0072B2", "#D55E00", "#009E73", "#222222", "#8a8a8a"


def require_matplotlib() -> None:
    """Raise `MissingDependencyError` naming the extra if matplotlib is not installed."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError("drawing needs matplotlib: pip install 'optgeom[plot]'") from error


def new_figure(size: tuple[float, float]) -> Figure:
    """An empty figure of (width, height) inches; pyplot does not keep a reference to it."""
    require_matplotlib()
    from matplotlib.figure import Figure

    return Figure(figsize=size, layout="constrained")


def scaled_style(points: float) -> dict[str, Any]:
    """Settings of a figure whose text has `points`.

    Lines, ticks and paddings scale with the text, or small figures are all padding.
    """
    scale = points / 10.0  # matplotlib's own settings go with 10 points
    ticks = {
        f"{axis}tick.major.{part}": size * scale
        for axis in "xy"
        for part, size in (("size", 3.5), ("pad", 3.5), ("width", 0.8))
    }
    return {
        "font.size": points,
        "axes.titlesize": points * 1.05,
        "axes.titlelocation": "left",
        "axes.titlepad": 6 * scale,
        "axes.labelpad": 4 * scale,
        "axes.linewidth": 0.8 * scale,
        "lines.linewidth": 1.5 * scale,
        "lines.markersize": 6 * scale,
        **ticks,
    }


def text_points() -> float:
    """Size of the text in points, as set now."""
    import matplotlib

    return float(matplotlib.rcParams["font.size"])


def marker_size() -> float:
    """Size of a marker in points, as set now."""
    import matplotlib

    return float(matplotlib.rcParams["lines.markersize"])


def new_axes() -> Axes:
    """Axes in a new figure."""
    return new_figure((6.0, 4.5)).add_subplot()


def wrapped(text: str, inches: float, points: float) -> str:
    """Text in lines that fit; a character is about half the font size wide."""
    return "\n".join(textwrap.wrap(text, max(12, int(inches * 72 / (0.54 * points)))))


def legend_below(axes: Axes) -> None:
    """Put the legend under the axes, where it hides no point."""
    from matplotlib.transforms import offset_copy

    # In points, not in parts of the axes: below tick labels and axis label whatever the height of the axes.
    below = offset_copy(axes.transAxes, cast("Figure", axes.figure), y=-3.6 * text_points(), units="points")
    axes.legend(
        loc="upper left",
        bbox_to_anchor=(0.0, 0.0),
        bbox_transform=below,
        ncol=len(axes.get_legend_handles_labels()[1]),
        frameon=False,
        borderaxespad=0,
        fontsize="small",
        handletextpad=0.2,
        columnspacing=1.0,
    )


def save_figure(figure: Figure, path: str | os.PathLike[str], dpi: float = DOTS_PER_INCH) -> None:
    """Write a figure to `.png`, `.svg` or `.pdf`, in one step.

    The file has no date in it, so the same figure gives the same file.

    Raises
    ------
    InvalidInputError
        Another suffix, or a place that cannot be written.
    """
    import matplotlib

    # A date in the file would make every run differ; each format has its own key for it.
    dateless = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    suffix = Path(path).suffix.lower()
    if suffix not in dateless:
        raise InvalidInputError(f"a picture is saved as {', '.join(dateless)}; got {str(path)!r}")
    with files.atomic_path(path) as temporary, matplotlib.rc_context({"svg.hashsalt": "optgeom"}):
        figure.savefig(temporary, dpi=dpi, format=suffix[1:], metadata=dateless[suffix])


def nice_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """At most `most` round numbers in [low, high] for a logarithmic axis: powers of ten, or 2 and 5 times them too."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for digits in ((1, 2, 5), (1, 3), (1,)):
        ticks = [digit * 10.0**power for power in range(first, last + 1) for digit in digits]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) <= most:
            break
    stride = max(1, math.ceil(len(ticks) / most))
    return ticks[::stride]


def tick_text(value: float) -> str:
    """A number on an axis: plain while short, a power of ten otherwise."""
    if 1e-3 <= value < 1e5:
        return f"{value:g}"
    power = math.floor(math.log10(value) + 1e-9)
    digit = round(value / 10.0**power)
    return f"$10^{{{power}}}$" if digit == 1 else f"${digit}\\cdot 10^{{{power}}}$"


def logarithmic(axes: Axes, which: str, low: float, high: float) -> None:
    """Make the "x" or "y" axis logarithmic over [low, high] with a few round labels, also over less than a decade."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    if which == "x":
        axes.set_xscale("log")
        axes.set_xlim(low, high)
    else:
        axes.set_yscale("log")
        axes.set_ylim(low, high)
    axis = axes.xaxis if which == "x" else axes.yaxis
    ticks = nice_ticks(low, high) or [math.sqrt(low * high)]
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(FixedFormatter([tick_text(tick) for tick in ticks]))
    axis.set_minor_locator(NullLocator())
