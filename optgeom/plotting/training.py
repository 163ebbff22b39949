"""Pictures of a training run: loss, distance from the optimal Gram matrix, angles over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from optgeom.errors import InvalidInputError
from optgeom.formatting import short
from optgeom.geometry import Geometry
from optgeom.plotting import figures
from optgeom.plotting.figures import BLACK, BLUE, GREY, ORANGE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Records = Sequence[Mapping[str, Any]]

NAMED_PAIRS = 6  # more labels than this at the right end would overlap
LABEL_DEGREES = 5.0  # and so would labels of angles closer than this


def plot_training(records: Records, geometry: Geometry) -> Figure:
    """One figure of a run.

    Parameters
    ----------
    records : sequence of mapping
        Lines of the log: step, loss, optimal_loss, max_angle_error_deg, relative_frobenius, angles_deg.
    geometry : Geometry
        The optimum.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    InvalidInputError
        An empty log.
    MissingDependencyError
        matplotlib is not installed.
    """
    if not records:
        raise InvalidInputError("`records` must hold a line of the log; got none (train for at least one logged step)")
    figures.require_matplotlib()
    import matplotlib

    with matplotlib.rc_context(figures.scaled_style(9.5)):
        figure = figures.new_figure((12.0, 3.9))
        loss, distance, angles = figure.subplots(1, 3)
        plot_loss(records, loss)
        plot_distance(records, distance)
        plot_angles_over_time(records, geometry, angles)
        words = geometry.loss.words().replace("$", r"\$")
        figure.suptitle(f"{geometry.num_classes} classes; {words}", x=0.01, ha="left", fontsize=10.5)
    return figure


def plot_loss(records: Records, axes: Axes) -> Axes:
    """Loss of every logged window.

    The dashed line is the smallest expected loss, around which batches of other classes scatter.
    """
    steps = [record["step"] for record in records]
    axes.plot(steps, [record["loss"] for record in records], color=BLUE, marker=_marker(records))
    optimal = records[-1].get("optimal_loss")
    if optimal is not None:
        axes.axhline(optimal, color=BLACK, linestyle="--", linewidth=1.0)
        axes.annotate(
            "optimum",
            (0.99, optimal),
            xycoords=("axes fraction", "data"),
            xytext=(0, 3),
            textcoords="offset points",
            ha="right",
        )
    axes.set(xlabel="step", title="Loss")
    return axes


def plot_distance(records: Records, axes: Axes) -> Axes:
    """Relative Frobenius distance of the Gram matrix of the class means from the optimal one, off the diagonal."""
    measured = [
        (record["step"], record["relative_frobenius"]) for record in records if record.get("relative_frobenius")
    ]
    if measured:
        steps, values = zip(*measured, strict=True)
        axes.plot(steps, values, color=ORANGE, marker=_marker(measured))
        figures.logarithmic(axes, "y", 0.7 * min(values), 1.4 * max(values))
    else:
        axes.text(0.5, 0.5, "no distance was measured", transform=axes.transAxes, ha="center", color=GREY)
    axes.set(xlabel="step", title="Gram distance (relative)")
    return axes


def plot_angles_over_time(records: Records, geometry: Geometry, axes: Axes) -> Axes:
    """Angle of every pair of classes, the optimal one dashed.

    Above 12 classes, the largest error of an angle.
    """
    angles = [record.get("angles_deg") for record in records]
    steps = [record["step"] for record in records]
    if any(entry is None for entry in angles):
        errors = [record.get("max_angle_error_deg") for record in records]
        axes.plot(steps, [np.nan if error is None else error for error in errors], color=BLUE, marker=_marker(records))
        axes.set(xlabel="step", title="Largest angle error (degrees)")
        return axes
    import matplotlib

    values = np.array(angles, dtype=np.float64)  # None becomes nan, a gap in the line
    first, second = np.triu_indices(geometry.num_classes, 1)
    colours = matplotlib.colormaps["viridis"](np.linspace(0.0, 0.85, first.size))
    optimal = geometry.angles()[first, second]
    named = first.size <= NAMED_PAIRS
    taken: list[float] = []
    for pair in range(first.size):
        axes.plot(steps, values[:, pair], color=colours[pair], marker=_marker(records))
        axes.axhline(optimal[pair], color=colours[pair], linestyle="--", linewidth=0.8)
        if named and all(abs(optimal[pair] - other) > LABEL_DEGREES for other in taken):
            words = f"{short(geometry.names[first[pair]], 10)}, {short(geometry.names[second[pair]], 10)}".replace(
                "$", r"\$"
            )
            place: dict[str, Any] = {
                "xycoords": ("axes fraction", "data"),
                "xytext": (3, 0),
                "textcoords": "offset points",
            }
            axes.annotate(words, (1.0, optimal[pair]), va="center", color=colours[pair], annotation_clip=False, **place)
            taken.append(float(optimal[pair]))
    axes.set(xlabel="step", title="Angles of class means (degrees)")
    return axes


def _marker(values: Sequence[Any]) -> str:
    """A single point is no line."""
    return "o" if len(values) < 2 else ""
