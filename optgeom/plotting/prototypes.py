"""The class means themselves, on the circle or the sphere, for up to four classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from optgeom._numerics import Array
from optgeom.errors import InvalidInputError
from optgeom.formatting import short
from optgeom.geometry import Geometry
from optgeom.plotting import figures
from optgeom.plotting.figures import BLACK, BLUE, GREEN, GREY, ORANGE
from optgeom.prototypes import from_gram

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_CLASSES = 4
TOGETHER_DEG = 3.0  # arrows nearer than this share one label: two would lie on each other
COLOURS = (BLUE, ORANGE, GREEN, BLACK)
NAME_WIDTH = 16


def can_draw(geometry: Geometry) -> bool:
    """Up to four classes that span at most three dimensions."""
    return geometry.num_classes <= MOST_CLASSES and geometry.rank <= 3


def add_axes(geometry: Geometry, figure: Figure, place: Any = 111) -> Axes:
    """Axes that suit `plot_prototypes`: flat up to rank 2, three-dimensional for rank 3."""
    return figure.add_subplot(place, projection="3d" if geometry.rank == 3 else None)


def plot_prototypes(geometry: Geometry, *, axes: Axes | None = None) -> Axes:
    """Class means as arrows on the unit circle (rank 1 or 2) or the unit sphere (rank 3).

    The most frequent class points upwards.

    Parameters
    ----------
    geometry : Geometry
        At most four classes and rank at most 3.
    axes : Axes, optional
        Three-dimensional for rank 3; `add_axes` makes the right ones.

    Raises
    ------
    InvalidInputError
        More classes or dimensions than a picture can show, or flat axes for rank 3.
    """
    if not can_draw(geometry):
        raise InvalidInputError(
            f"prototypes can be drawn for up to {MOST_CLASSES} classes of rank up to 3; "
            f"got {geometry.num_classes} classes of rank {geometry.rank} (see plot_gram)"
        )
    axes = axes or add_axes(geometry, figures.new_figure((5.0, 5.0)))
    vectors = _oriented(from_gram(geometry.gram, max(geometry.rank, 2)), geometry.classes.frequency_order())
    if (vectors.shape[1] == 3) != (axes.name == "3d"):
        raise InvalidInputError("`axes` must be three-dimensional for rank 3 and flat otherwise (add_axes makes them)")
    if vectors.shape[1] == 3:
        _on_sphere(axes, vectors, geometry)
    else:
        _on_circle(axes, vectors, geometry)
    axes.set_title(f"Class means on the unit {'sphere' if vectors.shape[1] == 3 else 'circle'}")
    return axes


def _oriented(vectors: Array, order: Any) -> Array:
    """Rotate the vectors: the most frequent upwards, the next to the right, the third to the front."""
    frame: list[Array] = []
    for vector in [*vectors[order], *np.eye(vectors.shape[1])]:
        rest = vector - sum((axis * (axis @ vector) for axis in frame), np.zeros_like(vector))
        length = float(np.linalg.norm(rest))
        if length > 1e-3 and len(frame) < vectors.shape[1]:
            frame.append(rest / length)
    up, right, *front = frame
    return vectors @ np.stack([right, *front, up], axis=1)


def _labels(vectors: Array, geometry: Geometry) -> list[tuple[Array, str]]:
    """Where to write which names: the names of classes that lie together go together."""
    left = list(geometry.classes.frequency_order())
    labels = []
    while left:
        first = left[0]
        near = [which for which in left if vectors[first] @ vectors[which] > np.cos(np.radians(TOGETHER_DEG))]
        left = [which for which in left if which not in near]
        text = "\n".join(short(geometry.names[which], NAME_WIDTH).replace("$", r"\$") for which in near)
        labels.append((vectors[near].mean(axis=0), text))
    return labels


def _on_circle(axes: Axes, vectors: Array, geometry: Geometry) -> None:
    turn = np.linspace(0, 2 * np.pi, 361)
    axes.plot(np.cos(turn), np.sin(turn), color=GREY, linewidth=0.8)
    for number, which in enumerate(geometry.classes.frequency_order()):
        arrow = {"arrowstyle": "-|>", "color": COLOURS[number], "linewidth": 1.8, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", tuple(vectors[which]), (0, 0), arrowprops=arrow)
    for place, text in _labels(vectors, geometry):
        side = "center" if abs(place[0]) < 0.3 else "left" if place[0] > 0 else "right"
        level = "center" if abs(place[1]) < 0.3 else "bottom" if place[1] > 0 else "top"
        axes.annotate(text, tuple(1.07 * place), ha=side, va=level, annotation_clip=False)
    axes.set_aspect("equal")
    axes.set_xlim(-1.5, 1.5)
    axes.set_ylim(-1.3, 1.3)
    axes.set_axis_off()


def _on_sphere(axes: Any, vectors: Array, geometry: Geometry) -> None:
    around, down = np.meshgrid(np.linspace(0, 2 * np.pi, 25), np.linspace(0, np.pi, 13))
    ball = (np.cos(around) * np.sin(down), np.sin(around) * np.sin(down), np.cos(down))
    axes.plot_wireframe(*ball, color="#d4d4d4", linewidth=0.5)
    elevation, azimuth = _viewpoint(vectors)
    for number, which in enumerate(geometry.classes.frequency_order()):
        tip = vectors[which]
        axes.plot(*np.stack([np.zeros(3), tip], axis=1), color=COLOURS[number], linewidth=2)
        axes.plot(*tip[:, None], "o", color=COLOURS[number], markersize=5)
    screen = _screen(elevation, azimuth)
    for place, text in _labels(vectors, geometry):
        seen = screen @ place
        outwards = seen / np.linalg.norm(seen)
        side = "center" if abs(outwards[0]) < 0.3 else "left" if outwards[0] > 0 else "right"
        axes.text(*(place + 0.14 * (outwards @ screen)), text, ha=side, va="center", zorder=10)
    axes.set_proj_type("ortho")
    axes.set_box_aspect((1, 1, 1), zoom=1.3)
    axes.view_init(elev=elevation, azim=azimuth)
    axes.set_axis_off()


def _screen(elevation: float, azimuth: float) -> Array:
    """(2, 3) directions in space of the right and the top of a picture taken from there (degrees)."""
    e, a = np.radians(elevation), np.radians(azimuth)
    return np.array([[-np.sin(a), np.cos(a), 0.0], [-np.sin(e) * np.cos(a), -np.sin(e) * np.sin(a), np.cos(e)]])


def _viewpoint(vectors: Array) -> tuple[float, float]:
    """Elevation and azimuth in degrees from which no arrow points at the viewer and no two overlap, if possible."""
    best = (-1.0, 15.0, -60.0)
    for elevation in (15.0, 25.0, 5.0):
        for azimuth in range(-180, 180, 10):
            seen = vectors @ _screen(elevation, float(azimuth)).T
            apart = np.linalg.norm(seen[:, None] - seen[None, :], axis=2) + 2 * np.eye(seen.shape[0])
            score = min(float(np.linalg.norm(seen, axis=1).min()), float(apart.min()))
            if score > best[0] + 1e-9:
                best = (score, elevation, float(azimuth))
    return best[1], best[2]
