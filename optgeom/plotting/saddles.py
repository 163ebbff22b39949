"""Picture of saddles: how fast training leaves the best geometry of each rank, for several temperatures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from optgeom import _checks
from optgeom.collapse.relaxation import KERNELS
from optgeom.collapse.saddles import Saddles
from optgeom.errors import InvalidInputError
from optgeom.plotting import figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LABEL_SHARE = 0.055  # of the logarithmic axis: labels closer than this overlap
MARGIN = 1.6  # of a logarithmic axis beyond the data


def plot_saddles(
    saddles: Sequence[Saddles], *, kernel: Literal["network", "free"] = "network", axes: Axes | None = None
) -> Axes:
    """Escape rate against rank, one line per temperature: the last point of a line is where training stalls longest.

    Parameters
    ----------
    saddles : sequence of Saddles
        Of one class distribution, usually at several temperatures.
    kernel : {"network", "free"}
        Rates of class means that share the weights of a network, or of free features.
    axes : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes
        A saddle that is not left (rate 0) has no point on the logarithmic axis.

    Raises
    ------
    InvalidInputError
        Another kernel, or no saddle that training leaves.
    MissingDependencyError
        matplotlib is not installed.
    """
    _checks.choice("kernel", kernel, KERNELS)
    curves = [(one.geometry.loss.temperature, *_curve(one, kernel)) for one in saddles]
    curves = [curve for curve in sorted(curves, key=lambda curve: curve[0]) if curve[2]]
    if not curves:
        raise InvalidInputError(
            "`saddles` must hold a saddle that training leaves; got none (optima of two dimensions or more have some)"
        )
    axes = axes or figures.new_axes()
    import matplotlib
    from matplotlib.ticker import MaxNLocator

    colours = matplotlib.colormaps["viridis"](np.linspace(0.0, 0.85, len(curves)))
    for (_, ranks, rates), colour in zip(curves, colours, strict=True):
        axes.plot(ranks, rates, "o-", color=colour, markersize=0.8 * figures.marker_size())
    every = [rate for _, _, rates in curves for rate in rates]
    low, high = min(every) / MARGIN, max(every) * MARGIN
    figures.logarithmic(axes, "y", low, high)
    last = max(max(ranks) for _, ranks, _ in curves)
    axes.set_xlim(min(min(ranks) for _, ranks, _ in curves) - 0.3, last + 0.3)
    apart, below = (high / low) ** LABEL_SHARE, 0.0
    for which in np.argsort([rates[-1] for _, _, rates in curves], kind="stable"):
        temperature, ranks, rates = curves[which]
        below = max(rates[-1], apart * below)
        axes.annotate(
            f"T = {temperature:g}",
            (ranks[-1], below),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            color=colours[which],
            annotation_clip=False,
        )
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    unit = "kappa x learning rate" if kernel == "network" else "learning rate / samples"
    axes.set(xlabel="dimensions that the class means span", ylabel=f"rate per {unit}")
    axes.set_title("How fast the next dimension opens")
    return axes


def _curve(result: Saddles, kernel: str) -> tuple[list[int], list[float]]:
    """Ranks and rates of the saddles that training leaves."""
    rates = [saddle.growth if kernel == "network" else saddle.growth_free for saddle in result.saddles]
    kept = [(saddle.rank, rate) for saddle, rate in zip(result.saddles, rates, strict=True) if rate > 0]
    return [rank for rank, _ in kept], [rate for _, rate in kept]
