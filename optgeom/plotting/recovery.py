"""Picture of a recovery: positives, losses of the true latents and of the optimum, and optimal angles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from optgeom._numerics import Array
from optgeom.plotting import figures
from optgeom.plotting.figures import BLACK, BLUE, GREEN, GREY, ORANGE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from optgeom.sampling.conditionals import Conditional
    from optgeom.sampling.recover import Recovery

POSITIVES = 120  # of each anchor in the picture of the sphere
ANCHORS = {
    2: [[1.0, 0.2], [-0.5, 0.9], [-0.3, -1.0]],
    3: [[-0.3, -0.5, 0.82], [0.75, -0.6, 0.3], [-0.8, -0.6, 0.02], [0.2, -0.75, -0.6]],
}
COLOURS = (ORANGE, BLUE, GREEN, "#CC79A7")
ELEVATION = np.radians(18)  # of the eye above the equator
MOST_PAIRS = 20_000  # of the panel of angles
MOST_BARS = 40  # directions with a bar each; of more, the stillest
NOTHING = 1e-9  # relative to 1 + |loss|: losses this near are equal
LEAST_RANGE = 0.01  # of the axis of losses: smaller differences must not fill the panel
NEAR = 0.03  # cosines that differ less look the same


def plot_recovery(recovery: Recovery, *, size: tuple[float, float] | None = None) -> Figure:
    """Draw where positives may be, losses above the optimum, and optimal cosines against those of the latents.

    The first panel is the sphere with a few anchors and their positives (up to three dimensions), or how much every
    direction changes from anchor to positive (more dimensions, and observed pairs, with the threshold of "fixed").

    Parameters
    ----------
    recovery : Recovery
    size : (float, float), optional
        Width and height in inches; panels are one below the other where the figure is higher than wide.

    Raises
    ------
    MissingDependencyError
        matplotlib is not installed.
    """
    figures.require_matplotlib()
    import matplotlib

    width, height = size or (13.0, 4.9)
    beside = width > 1.15 * height
    columns = 3 if beside else 1
    points = float(np.clip(0.72 * width if beside else 1.3 * width, 5.0, 9.5))
    with matplotlib.rc_context(figures.scaled_style(points)):
        figure = figures.new_figure((width, height))
        axes = figure.subplots(1 if beside else 3, columns).ravel()
        verdict = recovery.verdict[0].upper() + recovery.verdict[1:]
        figure.suptitle(figures.wrapped(verdict, 0.97 * width, 1.2 * points), fontsize=1.2 * points, x=0.01, ha="left")
        room = (0.76 if beside else 0.7) * width / columns
        if recovery.diversity.pairs is None and recovery.conditional.dimension <= 3:
            _sphere(axes[0], recovery, room)
        else:
            _changes(axes[0], recovery, room)
        _losses(axes[1], recovery, room)
        _angles(axes[2], recovery, room)
    return figure


def _title(axes: Axes, text: str, room: float) -> None:
    points = figures.text_points()
    axes.set_title(figures.wrapped(text, room, 1.05 * points))


# ----------------------------------------------------------------------------------------------------------------------
# where positives may be


def _sphere(axes: Axes, recovery: Recovery, room: float) -> None:
    law = recovery.conditional
    d = law.dimension
    # Fixed coordinates last: the upright axis of the picture.
    order = [*law.free, *law.fixed]
    turn = np.linspace(0, 2 * np.pi, 200)
    axes.plot(np.cos(turn), np.sin(turn), color=GREY, linewidth=0.8)
    if d == 3:
        for height in (-0.6, 0.0, 0.6):
            ring = np.column_stack(
                [np.sqrt(1 - height**2) * np.cos(turn), np.sqrt(1 - height**2) * np.sin(turn), np.full(200, height)]
            )
            x, y, near = _seen(ring)
            axes.plot(np.where(near, x, np.nan), y, color=GREY, linewidth=0.5, alpha=0.6)
    rng = np.random.default_rng(0)
    scale = figures.marker_size()
    for anchor, colour in zip(ANCHORS[d], COLOURS, strict=False):
        shown = np.array(anchor) / np.linalg.norm(anchor)
        z = np.empty(d)
        z[order] = shown
        positives = law.sample(rng, np.tile(z, (POSITIVES, 1)))[:, order]
        x, y, near = (
            _seen(positives) if d == 3 else (positives[:, 0], positives[:, 1], np.ones(POSITIVES, dtype=np.bool_))
        )
        edge = _edge(law, shown)
        if edge is not None:
            across, up, front = _seen(edge)
            axes.plot(across, up, color=colour, linewidth=0.8, alpha=0.25)
            axes.plot(np.where(front, across, np.nan), up, color=colour, linewidth=0.8, alpha=0.7)
        axes.plot(x[~near], y[~near], ".", color=colour, markersize=0.7 * scale, alpha=0.3, markeredgewidth=0)
        axes.plot(x[near], y[near], ".", color=colour, markersize=scale, alpha=0.7, markeredgewidth=0)
        x, y, _ = _seen(shown[None]) if d == 3 else (shown[:1], shown[1:], None)
        axes.plot(x, y, "o", color=colour, markeredgecolor=BLACK, markersize=1.3 * scale, zorder=4)
    axes.set_aspect("equal")
    axes.set_axis_off()
    axes.margins(0.04)
    words = "large: anchors; small: their positives"
    axes.text(0.5, -0.02, words, transform=axes.transAxes, ha="center", va="top", fontsize="small")
    _title(axes, f"Positives: {recovery.diversity.reason}", room)


def _edge(law: Conditional, anchor: Array) -> Array | None:
    """(200, 3) points of the circle on which an anchor's positives lie, or that bounds its cap; None without one."""
    turn = np.linspace(0, 2 * np.pi, 200)
    if law.dimension == 3 and len(law.fixed) == 1:
        radius = np.hypot(anchor[0], anchor[1])
        return np.column_stack([radius * np.cos(turn), radius * np.sin(turn), np.full(200, anchor[2])])
    angle = getattr(law, "angle_deg", None)
    if law.dimension != 3 or angle is None or law.full_support:
        return None
    _, _, axes = np.linalg.svd(anchor[None])
    side = np.cos(turn)[:, None] * axes[1] + np.sin(turn)[:, None] * axes[2]
    return np.asarray(np.cos(np.radians(angle)) * anchor + np.sin(np.radians(angle)) * side)


def _seen(rows: Array) -> tuple[Array, Array, npt.NDArray[np.bool_]]:
    """Right, up, and whether on the near side, for an eye in front (-y) and a little above."""
    up = rows[:, 2] * np.cos(ELEVATION) + rows[:, 1] * np.sin(ELEVATION)
    return rows[:, 0], up, np.asarray(rows[:, 1] * np.cos(ELEVATION) - rows[:, 2] * np.sin(ELEVATION) <= 0)


def _changes(axes: Axes, recovery: Recovery, room: float) -> None:
    from matplotlib.ticker import MaxNLocator

    seen = recovery.diversity
    d = seen.variation.size
    change = seen.variation[:MOST_BARS]
    place = np.arange(1, change.size + 1)
    axes.bar(
        place, change, width=0.75, color=[ORANGE if k < seen.fixed_dimensions else BLUE for k in range(change.size)]
    )
    for x in place[: seen.fixed_dimensions]:  # a bar of height zero must still be visible
        axes.plot([x - 0.375, x + 0.375], [change[x - 1]] * 2, color=ORANGE, linewidth=2.5, solid_capstyle="butt")
    axes.axhline(np.sqrt(2 / d), color=GREY, linestyle="--", label="if positives did not depend on anchors")
    if seen.pairs is not None:
        axes.axhline(seen.resolution, color=BLACK, linestyle=":", label=f"threshold of fixed: {seen.resolution:g}")
    axes.set_xlim(0.3, change.size + 0.7)
    axes.set_ylim(0, 1.35 * max(float(change.max()), np.sqrt(2 / d)))
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    few = "" if d <= MOST_BARS else f", the stillest {MOST_BARS} of {d}"
    axes.set_xlabel(f"direction of the latents{few}")
    axes.set_ylabel("change from anchor to positive (rms)")
    axes.legend(loc="upper left", frameon=False, fontsize="small")
    _title(axes, f"Positives: {seen.reason}", room)


# ----------------------------------------------------------------------------------------------------------------------
# losses


def ladder(recovery: Recovery) -> list[tuple[str, float, float]]:
    """What the panel of losses shows: name, loss, and loss above the optimum over any dimension, from the top."""
    optimum, bracket = recovery.optimum, recovery.in_dimension
    rungs = [
        ("true latents", optimum.loss_identity, optimum.gap),
        (
            f"best found into\n{_dimensions(bracket.dimension)}",
            bracket.best,
            bracket.best - optimum.loss,
        ),
        ("optimum into\nany dimension", optimum.loss, 0.0),
    ]
    if recovery.correctable:
        corrected = recovery.corrected
        rungs += [
            (f"true latents,\ncorrected (rho {corrected.rho:g})", corrected.loss_identity, corrected.gap),
            ("optimum of the\ncorrected loss", corrected.loss, 0.0),
        ]
    return rungs


def _losses(axes: Axes, recovery: Recovery, room: float) -> None:
    from matplotlib.ticker import MaxNLocator

    rungs = ladder(recovery)
    excess = np.array([max(0.0, above) for _, _, above in rungs])
    excess[excess <= NOTHING * (1 + abs(recovery.loss_identity))] = 0.0
    longest = float(excess.max())
    limit = max(longest, LEAST_RANGE)
    place = np.array([0.0, 1.0, 2.0, 3.6, 4.6])[: len(rungs)]
    colours = [ORANGE, BLUE, GREEN, ORANGE, GREEN][: len(rungs)]
    axes.barh(place, excess, height=0.62, color=colours)
    for y, (_, loss, _), above, colour in zip(place, rungs, excess, colours, strict=True):
        axes.plot([0, 0], [y - 0.31, y + 0.31], color=colour, linewidth=3, solid_capstyle="butt")
        text = f"+{above:.3g}" if above > 0 else "0"
        axes.text(above + 0.03 * limit, y, f"{text}\nloss {loss:.3f}", va="center", fontsize="small", linespacing=1.05)
    axes.set_yticks(place, [name for name, _, _ in rungs])
    axes.set_ylim(place[-1] + 0.6, -0.6)
    axes.set_xlim(0, 1.42 * limit)
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    if longest == 0:
        axes.set_xticks([0])
    axes.tick_params(axis="y", length=0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.set_xlabel("loss above the optimum over any dimension")
    gain = recovery.optimum.gap
    beaten = f"The true latents are {gain:.3g} above the optimum" if excess[0] > 0 else "No map beats the true latents"
    if excess[0] > 0 and recovery.correctable:
        beaten += (
            f", after correction {recovery.corrected.gap:.3g}" if excess[3] > 0 else ", and at it after correction"
        )
    _title(axes, beaten, room)


def _dimensions(count: int) -> str:
    return f"{count} dimension{'' if count == 1 else 's'}"


# ----------------------------------------------------------------------------------------------------------------------
# angles


def angle_pairs(recovery: Recovery) -> tuple[Array, Array, npt.NDArray[np.bool_]]:
    """Cosines of pairs of latents, of the same pairs at the optimum, and whether they can be a positive pair.

    At most 20 000 pairs: half of them in each other's support, half not.
    """
    points = recovery.optimum.point_set
    first, second = np.triu_indices(points.n, 1)
    positive = points.support()[first, second]
    kept = np.concatenate([_spread(np.flatnonzero(positive)), _spread(np.flatnonzero(~positive))])
    i, j = first[kept], second[kept]
    return np.einsum("nd,nd->n", points.points[i], points.points[j]), recovery.optimum.cosines[i, j], positive[kept]


def _spread(which: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if which.size <= MOST_PAIRS // 2:
        return which
    return which[np.linspace(0, which.size - 1, MOST_PAIRS // 2).astype(np.intp)]


def _angles(axes: Axes, recovery: Recovery, room: float) -> None:
    latent, optimal, positive = angle_pairs(recovery)
    axes.plot([-1, 1], [-1, 1], color=GREY, linestyle="--", linewidth=1, label="as the latents")
    scale = figures.marker_size()
    fixed = bool(recovery.conditional.fixed)
    names = ("same slice", "different slices") if fixed else ("can be a positive pair", "cannot be one")
    for chosen, colour, name, z in ((~positive, BLUE, names[1], 2), (positive, ORANGE, names[0], 3)):
        if chosen.any():
            label = "pairs of points" if recovery.conditional.full_support else name
            shown = BLUE if recovery.conditional.full_support else colour
            axes.plot(
                latent[chosen],
                optimal[chosen],
                ".",
                color=shown,
                markersize=0.55 * scale,
                alpha=0.4,
                markeredgewidth=0,
                label=label,
                zorder=z,
                rasterized=True,
            )
    axes.set_xlim(-1.05, 1.05)
    axes.set_ylim(-1.05, 1.05)
    axes.set_box_aspect(1)
    axes.set_xticks([-1, -0.5, 0, 0.5, 1])
    axes.set_yticks([-1, -0.5, 0, 0.5, 1])
    axes.set_xlabel("cosine of the latents")
    axes.set_ylabel("cosine at the optimum")
    legend = axes.legend(loc="lower right", frameon=False, fontsize="small", markerscale=2.5)
    for handle in legend.legend_handles:
        if handle is not None:
            handle.set_alpha(1.0)
    where = f"in {_dimensions(recovery.optimum.rank)}"
    if recovery.optimum.identity_is_optimal:
        text = "Optimal cosines are those of the latents"
    elif float(np.abs(latent - optimal).max()) < NEAR:
        text = f"Optimal cosines, {where}, are within {np.abs(latent - optimal).max():.1g} of those of the latents"
    elif fixed:
        apart, together = float(optimal[~positive].mean()), float(optimal[positive].mean())
        text = f"The optimum, {where}: mean cosine {together:.2f} within slices, {apart:.2f} between"
    else:
        text = f"The optimum, {where}, has other angles"
    _title(axes, text, room)
