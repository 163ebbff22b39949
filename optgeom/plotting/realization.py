"""Picture of a realization: weights, target geometry, realised geometry, and what is left between them."""

from __future__ import annotations

import textwrap
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


def plot_realization(found: Realization, size: tuple[float, float] | None = None) -> Figure:
    """Weights, target similarities, realised similarities (one colour scale for both), and realised against target.

    Parameters
    ----------
    found : Realization
    size : (float, float), optional
        Width and height in inches.

    Raises
    ------
    MissingDependencyError
        matplotlib is not installed.
    """
    figures.require_matplotlib()
    chosen = _chosen(found)
    weights, target, realised = _matrices(found, chosen)
    figure = figures.new_figure(size or (13.0, 4.6))
    axes = figure.subplots(1, 4)
    lead = f"{found.regime}: {found.verdict.reason}"
    figure.suptitle("\n".join(textwrap.wrap(lead, 130)), fontsize=10, x=0.01, ha="left")
    _map(figure, axes[0], weights, "Weights, each row divided by its largest", 0.0, 1.0, "Blues")
    name = "cosine" if found.similarity == "cosine" else "minus squared distance"
    held = [matrix[np.isfinite(matrix)] for matrix in (target, realised)]
    low = min(float(np.quantile(part, 0.01)) for part in held if part.size)
    high = max(float(part.max()) for part in held if part.size)
    if high - low < 1e-12:
        low, high = low - 0.5, high + 0.5
    _map(figure, axes[1], target, f"Target {name}, up to a constant", low, high, "viridis")
    _map(figure, axes[2], realised, f"Realised {name}", low, high, "viridis")
    _residuals(axes[3], target, realised, name, found)
    return figure


def _chosen(found: Realization) -> Any:
    if found.n <= MOST_SAMPLES:
        return np.arange(found.n)
    return np.unique(np.linspace(0, found.n - 1, MOST_SAMPLES).round().astype(int))


def _matrices(found: Realization, chosen: Any) -> tuple[Array, Array, Array]:
    held, tau = found.weights, found.temperature
    index = held.index[chosen]
    logs = held.log_rows[np.ix_(index, index)].copy()
    np.fill_diagonal(logs, np.nan)
    top = np.nanmax(np.where(np.isfinite(logs), logs, np.nan), axis=1, initial=-np.inf)
    weights = np.exp(logs - np.where(np.isfinite(top), top, 0.0)[:, None])
    log_w = held.log_weights[np.ix_(index, index)].copy()
    np.fill_diagonal(log_w, np.nan)
    target = np.where(np.isneginf(log_w), np.nan, tau * log_w)
    points = None
    if not (found.verdict.regime == "degenerate" and not found.verdict.attained and found.similarity == "euclidean"):
        points = found.embedding()[chosen]
    if points is None:
        return weights, target, np.full_like(target, np.nan)
    realised = points @ points.T
    if found.similarity == "euclidean":
        square = np.diag(realised)
        realised = 2 * realised - square[:, None] - square[None, :]
    realised = realised.copy()
    np.fill_diagonal(realised, np.nan)
    both = np.isfinite(target) & np.isfinite(realised)
    if both.any():
        target = target + float(np.mean(realised[both] - target[both]))
    return weights, target, realised


def _map(figure: Figure, axes: Axes, matrix: Array, title: str, low: float, high: float, colours: str) -> None:
    image = axes.imshow(np.ma.masked_invalid(matrix), vmin=low, vmax=high, cmap=colours, interpolation="nearest")
    axes.set_facecolor("0.85")
    axes.set_title(title, fontsize=9, loc="left")
    axes.tick_params(labelsize=8)
    axes.set_xlabel("sample", fontsize=8)
    bar = figure.colorbar(image, ax=axes, fraction=0.046, pad=0.03, orientation="horizontal", location="bottom")
    bar.ax.tick_params(labelsize=8)


def _residuals(axes: Axes, target: Array, realised: Array, name: str, found: Realization) -> None:
    both = np.isfinite(target) & np.isfinite(realised)
    x, y = target[both], realised[both]
    if x.size > MOST_PAIRS:
        kept = np.linspace(0, x.size - 1, MOST_PAIRS).astype(int)
        x, y = x[kept], y[kept]
    axes.set_title("Realised against target", fontsize=9, loc="left")
    axes.tick_params(labelsize=8)
    if x.size == 0:
        axes.text(0.5, 0.5, "no embedding attains this limit", transform=axes.transAxes, ha="center", va="center", fontsize=9)
        axes.set_axis_off()
        return
    low, high = float(min(x.min(), y.min())), float(max(x.max(), y.max()))
    axes.plot([low, high], [low, high], color=GREY, linewidth=1, linestyle="--", label="equal")
    axes.plot(x, y, ".", color=BLUE, markersize=2, alpha=0.5, rasterized=True)
    axes.set_xlabel(f"target {name}", fontsize=8)
    axes.set_ylabel(f"realised {name}", fontsize=8)
    text = f"loss {found.gap_to_bound:.3g} above the bound"
    axes.text(0.03, 0.97, text, transform=axes.transAxes, ha="left", va="top", fontsize=8)
