"""Picture of a realization: weights, target geometry, realised geometry, and residuals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from optgeom._numerics import Array
from optgeom.plotting import figures
from optgeom.plotting.figures import BLUE, GREY

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from optgeom.realization.api import Realization

MOST_SAMPLES = 400  # rows of a heat map; beyond, samples are thinned evenly
MOST_PAIRS = 20000  # points of the residual panel
EXACT = 1e-13  # a loss this near to the bound is at the bound
STEPS = [1, 2, 5, 10]  # multiples on which ticks are readable
FLAT = 1e-9  # ranges narrower than this are rounding


def plot_realization(realization: Realization, *, size: tuple[float, float] | None = None) -> Figure:
    """Weights, target similarities, realised similarities (one colour scale for both), and realised against target.

    Samples of one group (equal labels) and labels in one dimension are put in order; other samples keep theirs.

    Parameters
    ----------
    realization : Realization
    size : (float, float), optional
        Width and height in inches.

    Raises
    ------
    MissingDependencyError
        matplotlib is not installed.
    """
    figures.require_matplotlib()
    order, words = _order(realization)
    chosen = _thinned(order)
    if chosen.size < realization.n:
        words += f", {chosen.size} of {realization.n} shown"
    weights, target, realised = _matrices(realization, chosen)
    width, height = size or (13.0, 4.8)
    figure = figures.new_figure((width, height))
    columns = 4 if width > 1.6 * height else 2
    points = min(9.0, max(5.0, 3.2 * width / columns))
    axes = figure.subplots(4 // columns, columns).ravel()
    lead = f"{realization.regime}: {realization.verdict.reason}"
    figure.suptitle(figures.wrapped(lead, 0.97 * width, points + 1), fontsize=points + 1, x=0.01, ha="left")
    room = (0.76 * width / columns, points)
    name = "cosine" if realization.similarity == "cosine" else "-|zi - zj|²"
    low, high = _range(target, realised)
    hidden = "" if np.isfinite(target).sum() == np.isfinite(weights).sum() else " (grey: weight 0, no finite target)"
    _map(figure, axes[0], weights, "Weights, each row divided by its largest", (0.0, 1.0, "Blues"), words, room)
    _map(figure, axes[1], target, f"Target {name}, up to a constant{hidden}", (low, high, "viridis"), words, room)
    _map(figure, axes[2], realised, f"Realised {name}", (low, high, "viridis"), words, room)
    if not np.isfinite(realised).any():
        axes[2].text(
            0.5,
            0.5,
            "only a limit:\nno embedding",
            transform=axes[2].transAxes,
            ha="center",
            va="center",
            fontsize=points,
        )
    _residuals(axes[3], target, realised, name, realization, room)
    return figure


def _order(realization: Realization) -> tuple[Any, str]:
    weighting = realization.weights
    labels = weighting.labels
    if labels is not None and labels.dtype.kind == "f" and labels.shape[1] == 1:
        return np.argsort(labels[weighting.index, 0], kind="stable"), "sample, by label"
    if weighting.sizes.size < weighting.n and not np.all(np.diff(weighting.index) >= 0):
        return np.argsort(weighting.index, kind="stable"), "sample, by group"
    return np.arange(weighting.n), "sample"


def _thinned(order: Any) -> Any:
    if order.size <= MOST_SAMPLES:
        return order
    return order[np.unique(np.linspace(0, order.size - 1, MOST_SAMPLES).round().astype(int))]


def _matrices(realization: Realization, chosen: Any) -> tuple[Array, Array, Array]:
    """Weights, target and realised similarities of the samples chosen.

    NaN on the diagonal and where the logarithm is not finite.
    """
    weighting, tau = realization.weights, realization.temperature
    index = weighting.index[chosen]
    logs = weighting.log_rows[np.ix_(index, index)].copy()
    np.fill_diagonal(logs, -np.inf)
    top = logs.max(axis=1)
    weights = np.exp(logs - np.where(np.isfinite(top), top, 0.0)[:, None])
    np.fill_diagonal(weights, np.nan)
    log_w = weighting.log_weights[np.ix_(index, index)].copy()
    np.fill_diagonal(log_w, np.nan)
    target = np.where(np.isneginf(log_w), np.nan, tau * log_w)
    if (
        realization.verdict.regime == "degenerate"
        and not realization.verdict.attained
        and realization.similarity == "euclidean"
    ):
        return weights, target, np.full_like(target, np.nan)
    points = realization.embedding()[chosen]
    realised = np.array(points @ points.T)
    if realization.similarity == "euclidean":
        square = np.diag(realised).copy()
        realised = 2 * realised - square[:, None] - square[None, :]
    np.fill_diagonal(realised, np.nan)
    both = np.isfinite(target) & np.isfinite(realised)
    if both.any():
        target = target + float(np.mean(realised[both] - target[both]))
    return weights, target, realised


def _range(*matrices: Array) -> tuple[float, float]:
    """Range of colours of both matrices; the lowest percent is cut off, so that few far targets do not fill it."""
    finite = [matrix[np.isfinite(matrix)] for matrix in matrices]
    finite = [part for part in finite if part.size]
    low = min((float(np.quantile(part, 0.01)) for part in finite), default=0.0)
    high = max((float(part.max()) for part in finite), default=0.0)
    return (low, high) if high - low > FLAT else (low - 0.5, high + 0.5)


def _map(
    figure: Figure,
    axes: Axes,
    matrix: Array,
    title: str,
    colours: tuple[float, float, str],
    words: str,
    room: tuple[float, float],
) -> None:
    from matplotlib.ticker import MaxNLocator

    low, high, palette = colours
    width, points = room
    image = axes.imshow(np.ma.masked_invalid(matrix), vmin=low, vmax=high, cmap=palette, interpolation="nearest")
    axes.set_facecolor("0.85")
    axes.set_title(figures.wrapped(title, width, points), fontsize=points, loc="left")
    axes.tick_params(labelsize=points - 1)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(5, integer=True, steps=STEPS))
    axes.set_xlabel(words, fontsize=points - 1)
    bar = figure.colorbar(image, ax=axes, fraction=0.046, pad=0.03, orientation="horizontal", location="bottom")
    bar.ax.tick_params(labelsize=points - 1)
    bar.ax.xaxis.set_major_locator(MaxNLocator(4, steps=STEPS))


def _residuals(
    axes: Axes, target: Array, realised: Array, name: str, realization: Realization, room: tuple[float, float]
) -> None:
    from matplotlib.ticker import MaxNLocator

    width, points = room
    both = np.isfinite(target) & np.isfinite(realised)
    x, y = target[both], realised[both]
    if x.size > MOST_PAIRS:
        kept = np.linspace(0, x.size - 1, MOST_PAIRS).astype(int)
        x, y = x[kept], y[kept]
    at = (
        "at the entropic bound"
        if realization.gap_to_bound <= EXACT
        else f"loss {realization.gap_to_bound:.3g} above the bound"
    )
    at = at if x.size else "a limit only"
    axes.set_title(figures.wrapped(f"Realised against target: {at}", width, points), fontsize=points, loc="left")
    axes.tick_params(labelsize=points - 1)
    axes.set_box_aspect(1)
    if x.size == 0:
        words = "only a limit attains the bound:\nno embedding to compare"
        axes.text(0.5, 0.5, words, transform=axes.transAxes, ha="center", va="center", fontsize=points)
        axes.set_xticks([])
        axes.set_yticks([])
        return
    low, high = float(min(x.min(), y.min())), float(max(x.max(), y.max()))
    margin = 0.05 * (high - low) if high - low > FLAT else 0.5
    axes.set_xlim(low - margin, high + margin)
    axes.set_ylim(low - margin, high + margin)
    axes.plot(
        [low - margin, high + margin],
        [low - margin, high + margin],
        color=GREY,
        linewidth=1,
        linestyle="--",
        label="equal",
    )
    axes.plot(x, y, ".", color=BLUE, markersize=3 if x.size < 5000 else 1.5, alpha=0.5, rasterized=True)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(5, steps=STEPS))
    axes.set_xlabel(f"target {name}", fontsize=points - 1)
    axes.set_ylabel(f"realised {name}", fontsize=points - 1)
