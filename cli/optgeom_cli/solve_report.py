"""The terminal table of `optgeom solve`, for readers who do not know the theory."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.table import Table
from rich.text import Text

from optgeom.formatting import first_of, short
from optgeom.geometry import Geometry
from optgeom.result import Pair
from optgeom.wording import describe_certificate, describe_regime, simplex_angle_deg
from optgeom_cli.determined import Determined, degrees, pairs_table
from optgeom_cli.output import page, summary_table

ALL_CLASSES = 20  # up to this many classes each has its line
HEAD_AND_TAIL = 5
SHOWN_NAMES = 4
TIED_COSINES = 1e-13  # rounding of cosines that symmetry makes equal

_KINDS = {
    "--out": "the geometry; optgeom.Geometry.load reads it",
    "--prototypes": "the class means as unit vectors, in class order",
    "--plot": "the picture",
}


def report(
    geometry: Geometry,
    *,
    source: str | None,
    files: Iterable[tuple[str, Path]],
    collapse: str | None = None,
    determined: Determined | None = None,
) -> None:
    """Print the answer on stdout.

    Parameters
    ----------
    geometry : Geometry
    source : str or None
        Profile or file that the classes come from.
    files : iterable of (option, path)
        Files written.
    collapse : str, optional
        How far the classes are from total collapse.
    determined : Determined, optional
        What the loss determines, where it was asked for.
    """
    lines = [
        *_summary(geometry, source, collapse, determined),
        *(determined.lines() if determined is not None else ()),
        *(("Written", f"{path} ({_KINDS[option]})") for option, path in files),
    ]
    with page() as out:
        out.print(summary_table(lines))
        plain = geometry.num_classes > 3 and not _all_equal(geometry) and not geometry.coincident_classes
        if plain or (determined is not None and determined.ranges is not None):
            out.print()
            out.print(pairs_table(geometry, determined))
        out.print()
        out.print(_classes_table(geometry))


def _summary(
    geometry: Geometry, source: str | None, collapse: str | None, determined: Determined | None
) -> Iterable[tuple[str, str]]:
    yield "Classes", _classes_line(geometry, source)
    yield "Loss", geometry.loss.words()
    omitted = geometry.loss.omitted
    added = "" if omitted is None else f" (a large batch of N images adds log({omitted}))"
    yield "Risk", f"{geometry.risk:.12g}{added}"
    yield "Regime", describe_regime(geometry)
    if collapse is not None:
        yield "Collapse", collapse
    yield from _angle_lines(geometry, determined)
    yield from _coincidence_lines(geometry)
    yield "Rank", _rank_line(geometry)
    yield "Certificate", describe_certificate(geometry)
    run = geometry.solver
    yield "Solver", f"{run.name}, {run.iterations} iteration{'' if run.iterations == 1 else 's'}, {run.seconds:.2g} s"
    for text in geometry.notes:
        yield "Note", text


def _classes_line(geometry: Geometry, source: str | None) -> str:
    classes = geometry.classes
    text = f"{classes.num_classes}" + (f" of {source}" if source else "")
    if classes.counts is not None:
        text += f", {int(classes.counts.sum())} samples"
    if classes.imbalance_factor == 1:
        text += ", all equally frequent"
    else:
        text += f", the most frequent {classes.imbalance_factor:.6g} times as frequent as the rarest"
    return text + (f" (sampler: n^{classes.sampler_power:g})" if classes.sampler_power != 1 else "")


def _all_equal(geometry: Geometry) -> bool:
    return bool(geometry.farthest_pairs(1)[0].angle_deg - geometry.min_angle_deg < 1e-7)


def _angle_lines(geometry: Geometry, determined: Determined | None) -> Iterable[tuple[str, str]]:
    reference = simplex_angle_deg(geometry.num_classes)
    if geometry.num_classes == 2:
        yield "Angle", f"{degrees(geometry.min_angle_deg, geometry)} degrees between the two classes"
        return
    if _all_equal(geometry):
        same = " (the balanced simplex)" if abs(geometry.min_angle_deg - reference) < 1e-6 else ""
        yield "Angles", f"all pairs of classes {degrees(geometry.min_angle_deg, geometry)} degrees apart{same}"
        return
    for heading, pair in (
        ("Smallest angle", geometry.closest_pairs(1)[0]),
        ("Largest angle", geometry.farthest_pairs(1)[0]),
    ):
        more = _equal_pairs(geometry, pair) - 1
        others = f", and {more} more pair{'' if more == 1 else 's'}" if more else ""
        near = "" if determined is None else determined.within(pair.first, pair.second)
        slack = f"; {near} within the slack" if near else ""
        angle = degrees(pair.angle_deg, geometry)
        yield heading, f"{angle} degrees (classes {_pair_names(geometry, pair)}{others}{slack})"
    yield (
        "For comparison",
        f"{degrees(reference, geometry)} degrees for every pair if all classes were equally frequent",
    )


def _equal_pairs(geometry: Geometry, pair: Pair) -> int:
    """How many pairs of classes have the cosine of this one."""
    sizes = geometry.group_sizes
    pairs = np.outer(sizes, sizes) - np.diag(sizes)  # ordered ones: each pair twice
    cosine = geometry.group_cosines[geometry.index[pair.first], geometry.index[pair.second]]
    return int(pairs[np.abs(geometry.group_cosines - cosine) <= TIED_COSINES].sum()) // 2


def _pair_names(geometry: Geometry, pair: Pair) -> str:
    return f"{short(geometry.names[pair.first])} and {short(geometry.names[pair.second])}"


def _coincidence_lines(geometry: Geometry) -> Iterable[tuple[str, str]]:
    for number, members in enumerate(geometry.coincident_classes):
        if number == SHOWN_NAMES:
            yield "", f"and {len(geometry.coincident_classes) - number} more sets"
            break
        names = first_of((short(geometry.names[member]) for member in members), SHOWN_NAMES)
        yield "Same direction", f"{len(members)} classes: {names}"
    if geometry.num_near_coincident_pairs:
        number = geometry.num_near_coincident_pairs
        yield "Near pairs", f"{number} pair{' is' if number == 1 else 's are'} less than 1 degree apart"


def _rank_line(geometry: Geometry) -> str:
    most = geometry.num_classes - 1
    needed = geometry.required_rank
    if needed is not None:
        return (
            f"{geometry.rank}; the optimum without a limit on the dimension has rank {needed}: it needs --dim {needed}"
        )
    dimensions = f"{geometry.rank} dimension{'' if geometry.rank == 1 else 's'}"
    text = f"{geometry.rank} of at most {most}: the class means fit in {dimensions}"
    return text + (f" ({geometry.dim} asked for)" if geometry.dim is not None else "")


def _classes_table(geometry: Geometry) -> Table:
    classes = geometry.classes
    order = classes.frequency_order()
    whole = classes.num_classes <= ALL_CLASSES
    title = "Classes by frequency" if whole else f"Most and least frequent classes ({classes.num_classes} in all)"
    table = Table(
        box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", show_edge=False, pad_edge=False
    )
    table.add_column("class", overflow="ellipsis", no_wrap=True)
    if classes.counts is not None:
        table.add_column("count", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    table.add_column("nearest class", overflow="ellipsis", no_wrap=True)
    table.add_column("at (degrees)", justify="right", no_wrap=True)
    parts = [order] if whole else [order[:HEAD_AND_TAIL], order[-HEAD_AND_TAIL:]]
    for number, part in enumerate(parts):
        if number:
            table.add_row("...")
        for which in part.tolist():
            table.add_row(*_class_row(geometry, which))
    return table


def _class_row(geometry: Geometry, which: int) -> list[Any]:
    classes = geometry.classes
    nearest, others, angle = nearest_class(geometry, which)
    row: list[Any] = [Text(short(classes.names[which]))]
    if classes.counts is not None:
        row.append(str(int(classes.counts[which])))
    row.append(f"{100 * classes.proportions[which]:.3g} %")
    row.append(Text(short(classes.names[nearest]) + (f" (+{others} more)" if others else "")))
    row.append(degrees(angle, geometry))
    return row


def nearest_class(geometry: Geometry, which: int) -> tuple[int, int, float]:
    """The nearest class, how many others are exactly as near, and the angle in degrees."""
    group = int(geometry.index[which])
    number = geometry.group_sizes.copy()
    number[group] -= 1
    cosines = np.where(number > 0, geometry.group_cosines[group], -np.inf)
    best = float(cosines.max())
    ties = cosines >= best - TIED_COSINES
    members = np.flatnonzero(geometry.index == np.flatnonzero(ties)[0])
    nearest = int(members[members != which][0])
    return nearest, int(number[ties].sum()) - 1, float(np.degrees(np.arccos(np.clip(best, -1.0, 1.0))))
