"""Pictures of a validation: learned against optimal angles as maps, by pair and by class size; and the two spectra.

Colours are translucent and lines have the colours of `figures`, so that the same picture can stand on a light and on a
dark page.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from optgeom._numerics import Array
from optgeom.embeddings.result import Validation
from optgeom.plotting import figures
from optgeom.plotting.figures import BLACK, BLUE, GREY, ORANGE
from optgeom.plotting.geometry import NAMED_CLASSES, label
from optgeom.wording import simplex_angle_deg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NUMBERED_CLASSES = 10  # up to here each cell of a map shows its angle
MOST_CELLS = 240  # rows of a map: about what a page has pixels for; beyond, a cell is the mean over a block of pairs
# share of the learned angles that may lie beyond the colours: noise of a few tiny classes must not take all of them
EXTREMES = 0.02
BARS = 400  # pairs up to which every interval is drawn
POINTS = 6000  # pairs up to which every pair is a point; beyond, the picture shows how many there are
COLUMNS = 40  # over which the allowed angles of more pairs are averaged
WORST = 150  # intervals drawn where there are more pairs than `BARS`
NARROW_DEG = 0.5  # optimal angles that differ less than this are one column: spread sideways, or they hide each other
# Translucent where the angle is that of the simplex: the ground of the page, whatever its colour, is the middle of the
# scale.
CLOSER, APART = (0.86, 0.30, 0.13), (0.13, 0.47, 0.83)
NOTHING = (0.5, 0.5, 0.5, 0.3)


def frequency_order(validation: Validation) -> npt.NDArray[np.intp]:
    """Classes of the validation, the most frequent in training first."""
    share = dict(zip(validation.geometry.names, validation.geometry.proportions.tolist(), strict=True))
    return np.argsort([-share[name] for name in validation.names], kind="stable")


def plot_angle_map(validation: Validation, which: str, *, axes: Axes | None = None) -> Axes:
    """Heat map of pairs of classes, most frequent class first.

    The learned and the optimal angles have one scale: red is closer than in the balanced simplex, blue further apart.
    "off" is by how much an angle certainly misses its optimum, 0 where its interval holds it: red is closer than at the
    optimum, blue further apart.

    Parameters
    ----------
    validation : Validation
    which : {"learned", "optimal", "off"}
    axes : Axes, optional
    """
    axes = axes or figures.new_axes()
    order = frequency_order(validation)
    block = math.ceil(order.size / MOST_CELLS)
    learned, best = (_blocks(angles[np.ix_(order, order)], block) for angles in _angles(validation))
    if which == "off":
        angles = validation.deviations
        missed = np.where(angles.angles < angles.optimal, -angles.low, angles.low)
        shown = _blocks(missed[np.ix_(order, order)], block, worst=True)
        middle, reach, title = 0.0, max(validation.tolerance_deg, 0.1, _largest(np.abs(shown))), "Surely off by"
        ends = -reach, reach
    else:
        shown, middle = learned if which == "learned" else best, simplex_angle_deg(max(validation.num_classes, 2))
        away = np.abs(learned - middle)
        most = float(np.quantile(away[np.isfinite(away)], 1 - EXTREMES)) if np.isfinite(away).any() else 0.0
        reach = max(0.1, min(1.0, validation.tolerance_deg), most, _largest(np.abs(best - middle)))
        ends, title = (max(0.0, middle - reach), min(180.0, middle + reach)), f"{which.capitalize()} angles"
    _heat_map(axes, shown, middle, reach, ends)
    axes.set_title(title)
    _name_classes(validation, order, axes, block)
    if block == 1 and len(order) <= NUMBERED_CLASSES:
        for (row, column), value in np.ndenumerate(shown):
            if np.isfinite(value) and (which != "off" or value != 0):
                text = f"{value:.1f}" if which == "off" else f"{value:.0f}"
                axes.text(column, row, text, ha="center", va="center", fontsize="small", color=BLACK)
    return axes


def _heat_map(axes: Axes, shown: Array, middle: float, reach: float, ends: tuple[float, float]) -> None:
    """The map with a scale from one end to the other, and a line at the middle of the colours."""
    from matplotlib.colors import ListedColormap

    steps = [(*(CLOSER if value < 0 else APART), 0.9 * abs(value)) for value in np.linspace(-1, 1, 257)]
    colours = ListedColormap(steps).with_extremes(bad=NOTHING)
    drawn: dict[str, Any] = {"cmap": colours, "vmin": middle - reach, "vmax": middle + reach, "interpolation": "none"}
    axes.imshow(np.ma.masked_invalid(shown), aspect="equal", **drawn)
    axes.set_facecolor("none")
    bar = axes.inset_axes((1.04, 0.0, 0.045, 1.0))
    bar.imshow(np.linspace(ends[1], ends[0], 256)[:, None], extent=(0, 1, *ends), aspect="auto", **drawn)
    bar.yaxis.tick_right()
    bar.set_xticks([])
    bar.yaxis.set_major_formatter(lambda value, _: f"{value:g}°")
    bar.axhline(middle, color=BLACK, linewidth=0.8)


def _angles(validation: Validation) -> tuple[Array, Array]:
    """Learned and optimal angles; nan for a class and itself."""
    learned, best = validation.deviations.angles, validation.deviations.optimal
    return learned, np.where(np.eye(len(best), dtype=np.bool_), np.nan, best)


def _largest(values: Array) -> float:
    known = values[np.isfinite(values)]
    return float(known.max()) if known.size else 0.0


def _blocks(values: Array, block: int, worst: bool = False) -> Array:
    """Means, or values furthest from 0, over square blocks of pairs; nan where a block has no pair."""
    if block <= 1:
        return values
    cells = math.ceil(values.shape[0] / block)
    padded = np.full((cells * block, cells * block), np.nan)
    padded[: values.shape[0], : values.shape[0]] = values
    parts = padded.reshape(cells, block, cells, block).transpose(0, 2, 1, 3).reshape(cells, cells, block * block)
    known = np.isfinite(parts)
    if worst:
        furthest = np.argmax(np.where(known, np.abs(parts), -1.0), axis=2)
        return np.take_along_axis(parts, furthest[..., None], axis=2)[..., 0]
    number = known.sum(axis=2)
    return np.where(number > 0, np.where(known, parts, 0.0).sum(axis=2) / np.maximum(number, 1), np.nan)


def _name_classes(validation: Validation, order: npt.NDArray[np.intp], axes: Axes, block: int) -> None:
    from matplotlib.ticker import MaxNLocator

    if len(order) > NAMED_CLASSES:
        means = "" if block == 1 else f"\na cell stands for {block} × {block} pairs"
        axes.set_xlabel(f"{len(order)} classes, most frequent first{means}")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(5, integer=True))
            axis.set_major_formatter(lambda value, _: f"{value * block:.0f}" if value >= 0 else "")
        return
    names = [label(validation.names[c], 10) for c in order]
    axes.set_xticks(range(len(order)), names, rotation=90 if max(map(len, names)) > 2 else 0)
    axes.set_yticks(range(len(order)), names)
    axes.set_xlabel("most frequent first")


def plot_angle_scatter(validation: Validation, *, axes: Axes | None = None) -> Axes:
    """Learned against optimal angle of every pair with its interval, orange where they differ.

    Behind them the tolerance, and what the loss allows each pair at the excess of all angles together.
    """
    axes = axes or figures.new_axes()
    pairs = _TestedPairs(validation)
    best, learned = pairs.optimal, pairs.learned
    delta = validation.tolerance_deg
    narrow = bool(best.size) and float(np.ptp(best)) < NARROW_DEG
    if narrow:
        middle = float(best.mean())
        place, low, high = np.linspace(-1, 1, best.size) if best.size > 1 else np.zeros(1), -1.1, 1.1
        line = np.array([middle, middle])
        axes.set_xticks([])
        axes.set_xlabel(f"every pair: optimal angle {middle:.2f}° (side by side)")
    else:
        place = best
        span = (float(best.min()), float(best.max())) if best.size else (0.0, 180.0)
        margin = max(1.0, 0.04 * (span[1] - span[0]))
        low, high = span[0] - margin, span[1] + margin
        line = np.array([low, high])
        axes.set_xlabel("optimal angle (degrees)")
    edge = np.array([low, high])
    axes.fill_between(
        edge, line - delta, line + delta, color=GREY, alpha=0.3, linewidth=0, label=f"tolerance, {delta:g}°"
    )
    axes.plot(edge, line, color=GREY, linestyle="--", linewidth=1)
    pairs.draw_allowed(axes, place, np.zeros_like(best))
    pairs.draw(axes, place, learned, pairs.low_angle, pairs.high_angle)
    axes.set_xlim(low, high)
    axes.set_ylabel("learned angle (degrees)")
    axes.set_title("Learned against optimal angle, pair by pair")
    figures.legend_below(axes)
    return axes


def plot_angle_errors(validation: Validation, *, axes: Axes | None = None) -> Axes:
    """Learned minus optimal angle of every pair with its interval, against the images of its smaller class."""
    axes = axes or figures.new_axes()
    pairs = _TestedPairs(validation)
    counts = pairs.smaller.astype(np.float64)
    delta = validation.tolerance_deg
    axes.axhspan(-delta, delta, color=GREY, alpha=0.3, linewidth=0, label=f"tolerance, {delta:g}°")
    axes.axhline(0, color=GREY, linestyle="--", linewidth=1)
    place = counts * np.exp(_sideways(counts))
    error, low, high = (angle - pairs.optimal for angle in (pairs.learned, pairs.low_angle, pairs.high_angle))
    pairs.draw_allowed(axes, place, pairs.optimal)
    pairs.draw(axes, place, error, low, high, by_size=True)
    if counts.size:
        figures.logarithmic(axes, "x", float(place.min()) / 1.2, float(place.max()) * 1.2)
        if counts.min() == counts.max():  # spread sideways only: other numbers on the axis would be wrong
            axes.set_xticks([counts[0]], [f"{counts[0]:.0f}"])
    axes.set_xlabel("images of the smaller class of the pair")
    axes.set_ylabel("learned minus optimal (degrees)")
    axes.set_title("Off by how much, by class size")
    figures.legend_below(axes)
    return axes


def _sideways(counts: Array) -> Array:
    """Shifts, in the logarithm, that put pairs with the same number of images side by side."""
    values, index, sizes = np.unique(counts, return_inverse=True, return_counts=True)
    gaps = np.diff(np.log(values)) if values.size > 1 else np.array([1.0])
    room = 0.35 * np.minimum(np.concatenate([gaps[:1], gaps]), np.concatenate([gaps, gaps[-1:]]))[: max(values.size, 1)]
    order = np.argsort(index, kind="stable")
    rank = np.empty(counts.size)
    rank[order] = np.arange(counts.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    several = np.maximum(sizes[index] - 1, 1)
    return np.where(sizes[index] > 1, room[index] * (2 * rank / several - 1), 0.0) if counts.size else counts


class _TestedPairs:
    """Tested pairs in the order of the classes, as columns."""

    def __init__(self, validation: Validation) -> None:
        deviations, counts = validation.deviations, validation.directions.counts
        i, j = np.nonzero(np.triu(validation.intervals.tested))
        self.optimal, self.learned = deviations.optimal[i, j], deviations.angles[i, j]
        self.low_angle, self.high_angle = deviations.angles_low[i, j], deviations.angles_high[i, j]
        self.smaller = np.minimum(counts[i], counts[j])
        self.surely = deviations.low[i, j]
        self.different = self.surely > validation.tolerance_deg
        near = validation.ranges
        self.allowed = (near.closest[i, j], near.farthest[i, j]) if near is not None and near.excess > 0 else None
        self.excess = 0.0 if near is None else near.excess

    def draw_allowed(self, axes: Axes, x: Array, baseline: Array) -> None:
        """What the loss allows each pair, above `baseline`, as a bar; of many pairs, the median over neighbours in x.

        The axis keeps to the points: at low temperatures the loss allows nearly everything.
        """
        if self.allowed is None or not np.isfinite(self.allowed[0]).any():
            return
        ends = np.stack([self.low_angle - baseline, self.high_angle - baseline, self.learned - baseline])
        margin = 0.08 * max(float(np.ptp(ends)), 2.0)
        axes.set_ylim(float(ends.min()) - margin, float(ends.max()) + margin)
        low, high = self.allowed[0] - baseline, self.allowed[1] - baseline
        known = np.flatnonzero(np.isfinite(low))
        look: dict[str, Any] = {"color": BLUE, "alpha": 0.16, "zorder": 0.5}
        text = f"allowed at {100 * self.excess:.2g} %"
        if known.size <= BARS:
            axes.vlines(x[known], low[known], high[known], linewidth=5, label=text, **look)
            return
        parts = np.array_split(known[np.argsort(x[known], kind="stable")], COLUMNS)
        middle = [float(np.median(x[part])) for part in parts]
        lowest, highest = ([float(np.median(end[part])) for part in parts] for end in (low, high))
        axes.fill_between(middle, lowest, highest, linewidth=0, label=text, **look)

    def draw(self, axes: Axes, x: Array, y: Array, low: Array, high: Array, by_size: bool = False) -> None:
        """Points and intervals; of very many, their density (in the logarithm of sizes) and the worst."""
        number = x.size
        if number == 0:
            axes.text(
                0.5, 0.5, "no pair of classes could be tested", transform=axes.transAxes, ha="center", va="center"
            )
            return
        if number > POINTS:
            self._density(axes, x, y, by_size)
        for different, colour, text in ((False, BLUE, "agrees"), (True, ORANGE, "off")):
            chosen = np.flatnonzero(self.different == different)
            if chosen.size == 0 or (number > POINTS and not different):
                continue
            most = chosen.size if number <= BARS else WORST if different else 0
            worst = chosen[np.argsort(-self.surely[chosen], kind="stable")[:most]]
            axes.vlines(x[worst], low[worst], high[worst], color=colour, alpha=0.55, linewidth=0.9)
            points = worst if number > POINTS else chosen
            small: dict[str, Any] = {"markersize": 2.8 if different else 1.8, "rasterized": True, "alpha": 0.8}
            look = small if number > BARS else {"markersize": 3.4}
            # Pixels do not follow the page: a tone that can be seen on light and dark.
            tone = colour if number <= BARS else CLOSER if different else APART
            axes.plot(x[points], y[points], "o", color=tone, markeredgewidth=0, **look)
            axes.plot([], [], "o", color=colour, markersize=4, markeredgewidth=0, label=text)

    def _density(self, axes: Axes, x: Array, y: Array, by_size: bool) -> None:
        """How many pairs lie where, as the strength of one colour."""
        from matplotlib.colors import ListedColormap

        number, at_x, at_y = np.histogram2d(np.log(x) if by_size else x, y, bins=(90, 70))
        strength = np.sqrt(number.T / number.max())
        blue = ListedColormap([(*APART, 0.95 * value) for value in np.linspace(0, 1, 256)])
        edges = np.exp(at_x) if by_size else at_x
        axes.pcolormesh(edges, at_y, strength, cmap=blue, rasterized=True, edgecolors="none", antialiased=False)
        axes.plot([], [], "s", color=BLUE, markersize=5, markeredgewidth=0, label=f"{x.size} pairs")


def plot_spectra(validation: Validation, *, axes: Axes | None = None) -> Axes:
    """Eigenvalues of the learned and of the optimal Gram matrix; noise makes small learned ones negative."""
    from matplotlib.ticker import MaxNLocator

    axes = axes or figures.new_axes()
    learned, best = validation.learned_spectrum, validation.optimal_spectrum
    position = np.arange(1, learned.size + 1)
    few = learned.size <= 60
    if learned.size:
        axes.plot(
            position,
            best,
            "o" if few else "-",
            color=BLACK,
            markerfacecolor="none",
            markersize=7,
            linewidth=1.4,
            label="optimal",
        )
        axes.plot(position, learned, "o", color=BLUE, markersize=4 if few else 2, markeredgewidth=0)
        axes.plot([], [], "o", color=BLUE, markersize=4, markeredgewidth=0, label="learned")
        axes.axhline(0, color=GREY, linewidth=0.8)
        axes.set_xlim(1 - 0.04 * learned.size, learned.size * 1.04)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        figures.legend_below(axes)
    else:
        axes.text(0.5, 0.5, "no class has a direction", transform=axes.transAxes, ha="center", va="center")
    axes.set_xlabel("eigenvalue, largest first")
    axes.set_title("Spectrum of the Gram matrix")
    return axes
