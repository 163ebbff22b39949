"""The terminal report of `optgeom validate`: the verdict in words, the numbers, the pairs and classes to look at."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from rich import box
from rich.table import Table
from rich.text import Text

from optgeom.embeddings.metrics.metric import Metric
from optgeom.embeddings.result import Validation
from optgeom.embeddings.statistics.saddle import Saddle
from optgeom.formatting import short
from optgeom_cli.output import page, summary_table

SHOWN_PAIRS = 5
SHOWN_CLASSES = 8
SHOWN_NAMES = 5
_CONFUSED_WIDTH = 72  # from which on the share of confused images fits beside a pair
_BESIDE = {"CDNV": 68, "accuracy": 79, "CAC": 90}  # columns, and from which width on names fit beside them


def report(validation: Validation, files: Mapping[str, Path]) -> None:
    """Print the answer on stdout."""
    sentence = validation.sentence
    written = [("Written", str(path)) for path in files.values()]
    with page() as out:
        out.print(Text(sentence[:1].upper() + sentence[1:]))
        out.print()
        out.print(summary_table([*_summary(validation), *written]))
        out.print()
        out.print(_pairs(validation, out.width))
        out.print()
        out.print(_classes(validation, out.width))


def _summary(validation: Validation) -> Iterable[tuple[str, str]]:
    images, rows = validation.num_images, validation.num_rows
    number = f"{images} images" + (f" ({rows} rows)" if rows != images else "")
    room = f"{validation.num_classes} classes in {validation.dim} dimensions"
    yield "Embeddings", f"{validation.embeddings_from}: {number} of {room}"
    yield "Optimum", f"{validation.optimum_from}; {validation.geometry.loss.words()}"
    if validation.seeds is not None:
        for source, verdict in zip(validation.seeds.sources, validation.seeds.verdicts, strict=True):
            yield "Seed", f"{source}: {verdict}"
    error, reach = validation.max_angle_error_deg, validation.max_angle_error_ci_deg
    if error is not None and reach is not None:
        yield (
            "Max angle error",
            f"{error:.2f} degrees, between {reach[0]:.2f} and {reach[1]:.2f} (all pairs together, 95 %)",
        )
    if validation.reference is not None and validation.reference.two_geometries:
        yield "All angles", validation.reference.sentence()
    r2 = validation.metrics["class_r2"]
    yield "Class r2", _value(r2)
    yield "Excess risk", _excess(validation)
    yield from _allowed(validation)
    saddle = validation.saddle
    if saddle is not None and not math.isnan(saddle.least_eigenvalue):
        yield "Dimensions", _dimensions(saddle)
    for metric in validation.metrics.values():
        if metric.heading and metric.value is not None:
            yield metric.heading, _value(metric)
    yield from _worst(validation)
    for label, rows in validation.ignored.items():
        yield "Ignored", f"{rows} rows with label {label}"
    if validation.missing:
        yield "Without embeddings", _names(validation.missing)
    if validation.extra:
        yield "Not in the geometry", _names(tuple(validation.extra))
    for pair in validation.judgement.as_predicted[:SHOWN_NAMES]:
        first, second = (short(validation.names[c]) for c in (pair.first, pair.second))
        yield "As predicted", f"{first} and {second} coincide, also at the optimum"
    for note in validation.notes:
        yield "Note", note


def _allowed(validation: Validation) -> Iterable[tuple[str, str]]:
    """What the loss allows the worst pair at the excess of all angles together."""
    near = validation.ranges
    if near is None or near.excess <= 0:
        return
    pair = validation.worst_pairs(1)[0]
    place = pair.first, pair.second
    if not near.exact[place]:
        return
    first, second = (short(validation.names[c]) for c in place)
    yield (
        "Loss allows",
        f"at this excess, {first} and {second} any angle from {near.closest[place]:.1f} to {near.farthest[place]:.1f} "
        f"degrees; to fix theirs to {near.tolerance_deg:g} degrees the loss of their images must come within "
        f"{100 * near.slack_needed[place]:.2g} % of its floor",
    )


def _dimensions(saddle: Saddle) -> str:
    spanned = f"the class means span {saddle.rank} of {saddle.optimal_rank}"
    if not saddle.at_saddle:
        return f"{spanned}; not a saddle: {saddle.reason}"
    return (
        f"{spanned}; least eigenvalue of the dual {saddle.least_eigenvalue:.2g}: a missing one grows like "
        f"exp({saddle.growth:.2g} kappa s), s the sum of learning rates (kappa: 1000 to 3000 in small networks with "
        "Adam)"
    )


def _worst(validation: Validation) -> Iterable[tuple[str, str]]:
    """The class in most trouble; both of a pair where neither is in more, and the order of their names would choose."""
    worst, other = validation.classes[:2]
    if worst.deviation is None:
        return
    measured = _interval(worst.deviation, worst.low, worst.high)
    if (worst.worst_pair, other.worst_pair, worst.pairs) == (other.name, worst.name, other.pairs):
        yield (
            "Worst classes",
            f"{short(worst.name)} and {short(other.name)}, with each other: off by {measured} degrees",
        )
    else:
        yield "Worst class", f"{short(worst.name)}, with {short(worst.worst_pair or '')}: off by {measured} degrees"


def _names(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    return ", ".join(short(name) for name in names[:SHOWN_NAMES]) + more


def _value(metric: Metric) -> str:
    if metric.value is None:
        return f"n/a ({metric.reason})"
    error = f" +- {metric.standard_error:.1g}" if metric.standard_error else ""
    return f"{metric.value:.4g}{error}" + (f" ({metric.reason})" if metric.reason else "")


def _excess(validation: Validation) -> str:
    terms = validation.excess_risk
    if terms.direction is None or terms.shrink is None:
        return f"n/a ({terms.reason})"
    parts = f"direction {100 * terms.direction:.2g} %, shrink {100 * terms.shrink:.2g} %"
    if terms.within is None:
        return f"{parts}, within n/a ({terms.reason})"
    error = f" +- {100 * terms.within_error:.1g}" if terms.within_error else ""
    return f"{parts}, within {100 * terms.within:.2g}{error} % of the way to total collapse"


def _interval(value: float | None, low: float | None, high: float | None) -> str:
    return "n/a" if value is None or low is None or high is None else f"{value:.1f} ({low:.1f} to {high:.1f})"


def _table(title: str, columns: Iterable[tuple[str, bool]]) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", show_edge=False, pad_edge=False
    )
    for heading, number in columns:
        # Where the terminal is narrow rich takes from the columns that may wrap: names get shorter, numbers stay whole.
        side: Literal["left", "right"] = "right" if number else "left"
        table.add_column(heading, justify=side, no_wrap=number, overflow="ellipsis", min_width=None if number else 8)
    return table


def _confused(validation: Validation, first: int, second: int) -> str:
    share = None if validation.confusion is None else validation.confusion[first, second]
    return "n/a" if share is None or math.isnan(share) else f"{100 * share:.1f} %"


def _pairs(validation: Validation, width: int) -> Table:
    columns = (("class", False), ("class", False), ("angle", True), ("optimal", True), ("off by (degrees)", True))
    beside = width >= _CONFUSED_WIDTH
    more = (("confused", True),) if beside else ()
    table = _table(f"Worst pairs (of {validation.intervals.num_pairs})", (*columns, *more))
    for pair in validation.worst_pairs(SHOWN_PAIRS):
        low, high = pair.deviation_ci or (None, None)
        cells = (f"{pair.angle_deg:.1f}", f"{pair.optimal_deg:.1f}", _interval(pair.deviation, low, high))
        confused = (_confused(validation, pair.first, pair.second),) if beside else ()
        table.add_row(_class(validation.names[pair.first]), _class(validation.names[pair.second]), *cells, *confused)
    return table


def _classes(validation: Validation, width: int) -> Table:
    columns = (("class", False), ("images", True), ("rho", True), ("worst with", False), ("off by (degrees)", True))
    beside = [heading for heading, least in _BESIDE.items() if width >= least]
    title = f"Classes in most trouble (of {validation.num_classes})"
    table = _table(title, (*columns, *((heading, True) for heading in beside)))
    for row in validation.classes[:SHOWN_CLASSES]:
        more = {"CDNV": _cell(row.cdnv), "accuracy": _cell(row.nearest_mean), "CAC": _cell(row.cac)}
        table.add_row(
            _class(row.name),
            str(row.count),
            _cell(row.rho),
            _class("n/a" if row.worst_pair is None else row.worst_pair),
            _interval(row.deviation, row.low, row.high),
            *(more[heading] for heading in beside),
        )
    return table


def _class(name: str) -> Text:
    return Text(short(name), no_wrap=True, overflow="ellipsis")


def _cell(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.2g}"
