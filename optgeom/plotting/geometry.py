"""Pictures of a geometry: Gram matrix, angles against frequency, eigenvalues."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from optgeom._numerics import Array, arccos_clipped
from optgeom.formatting import short
from optgeom.geometry import Geometry
from optgeom.plotting import figures, prototypes
from optgeom.plotting.figures import BLACK, BLUE, GREY, ORANGE
from optgeom.wording import describe_certificate, describe_regime, simplex_angle_deg

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Rows of a heat map: more than a picture has pixels. Beyond, one cell stands for a group of equal classes.
MOST_CELLS = 1500
NAMED_CLASSES = 20  # more names than this cannot be read
NUMBERED_CLASSES = 8  # up to here each cell shows its angle
CELL_INCHES = 1.2  # width of the figure for each class that its number in a cell needs
# Pairs all nearer to the simplex than this: show the deviation, since the cosines would all have one colour.
DEVIATION_DEG = 30.0
NOTHING_DEG = 1e-5  # deviations below are rounding of cosines near -1 and 1
DRAWN_DIAGONAL = 250  # a one-cell diagonal of more rows is thinner than a pixel and would come out dashed
ZERO_EIGENVALUE = 1e-7  # as in the definition of the rank
LEAST_WIDTH = 9.0  # inches; a narrower figure has no room for the prototypes beside the rest
TEXT_POINTS = 9.5
SMALLEST_SCALE = 0.52  # below, text is too small to read: the axes shrink alone
LOG_RATIO = 30.0  # eigenvalues whose extremes differ more than this need a logarithmic axis
INCHES_PER_CHARACTER = 0.0076  # width of a character per point of font size, a little generous


def plot_geometry(geometry: Geometry, *, size: tuple[float, float] | None = None) -> Figure:
    """Draw a geometry: Gram matrix, angles against frequency, eigenvalues.

    Up to four classes in up to three dimensions are drawn as vectors, too.

    Parameters
    ----------
    geometry : Geometry
        Above 1500 classes it is drawn from its groups; the (C, C) matrix is never built.
    size : (float, float), optional
        Width and height in inches.

    Returns
    -------
    matplotlib.figure.Figure
        Unknown to pyplot; `save_figure` or its own `savefig` writes it.

    Raises
    ------
    MissingDependencyError
        matplotlib is not installed.
    """
    figures.require_matplotlib()
    import matplotlib

    drawn = prototypes.can_draw(geometry) and (size is None or size[0] >= LEAST_WIDTH)
    natural = (13.5, 5.6) if drawn else (11.0, 6.0)
    width, height = size or natural
    scale = max(min(width / natural[0], height / natural[1]), SMALLEST_SCALE)
    points = TEXT_POINTS * min(scale, 1.3)
    with matplotlib.rc_context(figures.scaled_style(points)):
        figure = figures.new_figure((width, height))
        columns, ratios = (3, [1.2, 0.95, 1.1]) if drawn else (2, [1.1, 1.0])
        grid = figure.add_gridspec(2, columns, width_ratios=ratios)
        plot_gram(geometry, axes=figure.add_subplot(grid[:, 0]))
        if drawn:
            prototypes.plot_prototypes(geometry, axes=prototypes.add_axes(geometry, figure, grid[:, 1]))
        plot_angles(geometry, axes=figure.add_subplot(grid[0, -1]))
        plot_spectrum(geometry, axes=figure.add_subplot(grid[1, -1]))
        title_points = points * 1.15
        columns_of_text = max(20, int(0.96 * width / (INCHES_PER_CHARACTER * title_points)))
        lines = [line for text in _title(geometry) for line in textwrap.wrap(text, columns_of_text)]
        figure.suptitle("\n".join(lines), x=0.01, ha="left", fontsize=title_points)
    return figure


def _title(geometry: Geometry) -> tuple[str, str, str]:
    """Regime, loss and certificate in words; a dollar sign in a name must not start a formula."""
    factor = geometry.classes.imbalance_factor
    balance = "equally frequent" if factor == 1 else f"imbalance {factor:.6g}"
    texts = (
        f"{geometry.num_classes} classes, {balance}; {describe_regime(geometry)}",
        geometry.loss.words(),
        describe_certificate(geometry),
    )
    first, loss, certificate = (text[0].upper() + text[1:].replace("$", r"\$") for text in texts)
    return first, loss, certificate


def label(name: str, width: int = 14) -> str:
    """A class name for an axis: short, with escaped dollar signs."""
    return short(name, width).replace("$", r"\$")


def plot_gram(geometry: Geometry, *, axes: Axes | None = None) -> Axes:
    """Heat map of the angles between class means, most frequent class first.

    Cosines on [-1, 1] where they differ much; otherwise the deviation of the angles from the balanced simplex, on its
    own range, because at small temperatures all cosines have nearly the same value. Red is always closer.
    """
    axes = axes or figures.new_axes()
    groups, of_classes = _rows(geometry)
    cosines = geometry.group_cosines[np.ix_(groups, groups)]
    reference = simplex_angle_deg(geometry.num_classes)
    deviation = np.degrees(arccos_clipped(cosines)) - reference
    # Pairs are of two different classes: a group of one class has none.
    none = np.eye(groups.size, dtype=np.bool_) & (of_classes | (geometry.group_sizes[groups] == 1))
    reach = float(np.abs(deviation[~none]).max())
    if groups.size > DRAWN_DIAGONAL:
        cosines, deviation, none = (_smooth_diagonal(array, none) for array in (cosines, deviation, none))
    if reach > DEVIATION_DEG:
        shown, colours, limit, title = np.ma.masked_array(cosines, none), "RdBu_r", 1.0, "Cosines between classes"
        text = "cosine (red: same direction, blue: opposite)"
    else:
        shown, colours, limit = np.ma.masked_array(deviation, none), "RdBu", reach if reach > NOTHING_DEG else 1.0
        title = "Angles against the balanced simplex"
        text = f"angle minus {reference:.2f}° (degrees; red: closer)"
    axes.set_facecolor("#d0d0d0")
    image = axes.imshow(shown, cmap=colours, vmin=-limit, vmax=limit, interpolation="nearest", aspect="equal")
    if reach > NOTHING_DEG:
        # Placed in the coordinates of the heat map: as high as it is, whatever room the equal aspect leaves.
        bar = axes.figure.colorbar(image, cax=axes.inset_axes((1.05, 0.05, 0.045, 0.9)), label=text)
        bar.ax.ticklabel_format(useOffset=False)
    else:
        title = f"All pairs at {reference:.2f}°, the balanced simplex"
    axes.set_title(title)
    _gram_ticks(geometry, axes, of_classes, groups.size)
    if (
        geometry.num_classes <= NUMBERED_CLASSES
        and axes.figure.bbox.width / axes.figure.dpi > CELL_INCHES * geometry.num_classes
    ):
        _gram_numbers(axes, np.degrees(arccos_clipped(cosines)), image, none)
    return axes


def _smooth_diagonal(array: npt.NDArray[Any], none: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    """`array` with diagonal entries that are not pairs replaced by the value of the next pair."""
    filled = array.copy()
    own = np.flatnonzero(none.diagonal())
    beside = np.where(own > 0, own - 1, 1)
    filled[own, own] = array[own, beside]
    return filled


def _rows(geometry: Geometry) -> tuple[npt.NDArray[np.intp], bool]:
    """Groups to draw as rows, most frequent first, and whether a row is a class (else a group)."""
    by_frequency = geometry.index[geometry.classes.frequency_order()]
    if geometry.num_classes <= MOST_CELLS:
        return by_frequency, True
    present, first = np.unique(by_frequency, return_index=True)
    groups = present[np.argsort(first)]
    return groups[:: -(-groups.size // MOST_CELLS)], False


def _gram_ticks(geometry: Geometry, axes: Axes, of_classes: bool, rows: int) -> None:
    from matplotlib.ticker import MaxNLocator

    if not of_classes:
        _group_ticks(geometry, axes, rows)
        return
    if geometry.num_classes > NAMED_CLASSES:
        axes.set_xlabel("classes, most frequent first")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
        return
    names = [label(geometry.names[which]) for which in geometry.classes.frequency_order()]
    upright = max(map(len, names)) > 3
    axes.set_xticks(range(rows), names, rotation=90 if upright else 0)
    axes.set_yticks(range(rows), names)
    axes.set_xlabel("most frequent first")


def _group_ticks(geometry: Geometry, axes: Axes, rows: int) -> None:
    number = geometry.group_sizes.size
    if number > NAMED_CLASSES:
        axes.set_xlabel(f"{number} groups of equally frequent classes, most frequent first")
        axes.set_xticks([])
        axes.set_yticks([])
        return
    groups, _ = _rows(geometry)
    values = _frequency_of_group(geometry)[groups]
    names = [f"{size} × {value:g}" for size, value in zip(geometry.group_sizes[groups], values, strict=True)]
    axes.set_xticks(range(rows), names, rotation=90)
    axes.set_yticks(range(rows), names)
    axes.set_xlabel(f"classes × {'proportion' if geometry.classes.counts is None else 'samples'} of each")


def _frequency_of_group(geometry: Geometry) -> Array:
    """(G,) count, or else proportion, of one class of each group."""
    counts = geometry.classes.counts
    values = geometry.proportions if counts is None else counts
    member = np.empty(geometry.group_sizes.size, dtype=np.intp)
    member[geometry.index] = np.arange(geometry.num_classes)
    return np.asarray(values[member], dtype=np.float64)


def _gram_numbers(axes: Axes, angles: Array, image: Any, none: npt.NDArray[np.bool_]) -> None:
    for (row, column), angle in np.ndenumerate(angles):
        if none[row, column]:
            continue
        red, green, blue, _ = image.cmap(image.norm(image.get_array()[row, column]))
        dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
        axes.text(
            column, row, f"{angle:.1f}°", ha="center", va="center", color="white" if dark else BLACK, fontsize="small"
        )


def plot_angles(geometry: Geometry, *, axes: Axes | None = None) -> Axes:
    """Smallest, median and largest angle of each class to the others, against its count (or proportion)."""
    axes = axes or figures.new_axes()
    groups, of_classes = _rows(geometry)
    groups = groups[np.sort(np.unique(groups, return_index=True)[1])] if of_classes else groups
    lowest, middle, highest = _angle_summary(geometry, groups)
    x = _frequency_of_group(geometry)[groups]
    few = groups.size <= 60
    large, small = (figures.marker_size() * factor for factor in ((1.0, 0.5) if few else (0.47, 0.34)))
    look: dict[str, Any] = {"linestyle": "none", "markeredgewidth": 0, "clip_on": False}
    reference = simplex_angle_deg(geometry.num_classes)
    axes.axhline(reference, color=GREY, linestyle="--", linewidth=1, label=f"simplex {reference:.2f}°")
    if (highest - lowest).max() < NOTHING_DEG:
        axes.plot(x, middle, "o", color=BLACK, label="to every other class", markersize=large, **look)
    else:
        if few:
            axes.vlines(x, lowest, highest, color="#c8c8c8", linewidth=1, zorder=1)
        axes.plot(x, highest, "^", color=BLUE, label="largest", markersize=large, **look)
        axes.plot(x, lowest, "v", color=ORANGE, label="smallest", markersize=large, **look)
        # Last and smaller: the median may be the smallest or largest itself and must not hide it.
        axes.plot(x, middle, "o", color=BLACK, label="median", markersize=small, **look)
    least, most = min(float(lowest.min()), reference), max(float(highest.max()), reference)
    margin = max(0.08 * (most - least), 1e-3 if most - least > NOTHING_DEG else 1.0)
    axes.set_ylim(least - margin, most + margin)
    axes.ticklabel_format(axis="y", useOffset=False)
    figures.logarithmic(axes, "x", float(x.min()) / 1.3, float(x.max()) * 1.3)
    axes.set_xlabel("proportion of the class" if geometry.classes.counts is None else "samples of the class")
    axes.set_ylabel("degrees")
    axes.set_title("Angle of a class to the others")
    figures.legend_below(axes)
    return axes


def _angle_summary(geometry: Geometry, groups: npt.NDArray[np.intp]) -> tuple[Array, Array, Array]:
    """Smallest, median and largest angle in degrees from a class of each group to the others, each (len(groups),)."""
    angles = np.degrees(arccos_clipped(geometry.group_cosines[groups]))
    number = np.broadcast_to(geometry.group_sizes, angles.shape).astype(np.float64)
    number[np.arange(groups.size), groups] -= 1
    lowest = np.where(number > 0, angles, np.inf).min(axis=1)
    highest = np.where(number > 0, angles, -np.inf).max(axis=1)
    order = np.argsort(angles, axis=1)
    reached = np.cumsum(np.take_along_axis(number, order, axis=1), axis=1)
    half = np.argmax(reached >= (geometry.num_classes - 1) / 2, axis=1)
    middle = np.take_along_axis(angles, np.take_along_axis(order, half[:, None], axis=1), axis=1)[:, 0]
    return lowest, middle, highest


def plot_spectrum(geometry: Geometry, *, axes: Axes | None = None) -> Axes:
    """Eigenvalues of the Gram matrix, largest first, with the rank marked.

    Those below 1e-7 count as zero and lie on the lower edge.
    """
    axes = axes or figures.new_axes()
    from matplotlib.ticker import MaxNLocator

    values = geometry.eigenvalues()
    position = np.arange(1, values.size + 1)
    positive = values > ZERO_EIGENVALUE
    size = figures.marker_size() * (0.85 if values.size <= 60 else 0.42)
    look: dict[str, Any] = {"linestyle": "none", "markersize": size, "clip_on": False}
    axes.plot(position[positive], values[positive], "o", color=BLUE, label="eigenvalue", **look)
    # On the lower edge, in the coordinates of the axes: a logarithmic axis has no zero.
    zeros = np.zeros(int((~positive).sum()))
    edge: dict[str, Any] = {
        "transform": axes.get_xaxis_transform(),
        "color": GREY,
        "markerfacecolor": "white",
        "zorder": 3,
    }
    axes.plot(position[~positive], zeros, "o", label="zero", **edge, **look)
    highest, least = float(values[0]), float(values[positive].min())
    if highest > LOG_RATIO * least:
        figures.logarithmic(axes, "y", least / 3, highest * 2)
    else:
        axes.set_ylim(0, 1.12 * highest)
    complete = values.size == geometry.num_classes
    if complete:
        axes.axvline(geometry.rank + 0.5, color=GREY, linestyle="--", linewidth=1, label="rank")
        axes.set_xlim(1 - 0.04 * values.size, values.size * 1.04)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set_xlabel("eigenvalue, largest first" if complete else "distinct eigenvalues, multiplicities left out")
    axes.set_title(f"Gram eigenvalues: rank {geometry.rank} of at most {geometry.num_classes - 1}")
    figures.legend_below(axes)
    return axes
