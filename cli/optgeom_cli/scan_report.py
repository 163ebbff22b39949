"""The summary of `optgeom scan`: how many cells of each regime, and where the exact frontier lies on every path."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path as FilePath
from typing import Any

from rich import box
from rich.table import Table

from optgeom.collapse.scan import Scan
from optgeom.collapse.scan_grid import expand
from optgeom.collapse.scan_table import Row
from optgeom.collapse.thresholds import LARGEST_LOG_ODDS
from optgeom.plotting.phase_axes import distinguishing, setting_words, tick_words
from optgeom_cli.output import page, summary_table

SHOWN_PATHS = 24
SHOWN_ERRORS = 3
REGIMES = {"spread": "spread", "partial-collapse": "partial", "minority-collapse": "collapsed"}


def _counts(rows: list[Row]) -> dict[str, int]:
    counts = {
        name: sum(bool(row["certified"]) and row["regime"] == regime for row in rows)
        for regime, name in REGIMES.items()
    }
    return {**counts, "uncertified": sum(not row["certified"] for row in rows)}


def _frontier(rows: list[Row]) -> dict[str, float | None]:
    """Threshold of a path in three forms; None where it has none."""
    log_odds, imbalance = rows[0]["threshold_log_odds"], rows[0]["threshold_imbalance"]
    if log_odds is None:
        return {"threshold": None, "one_minus_threshold": None, "threshold_odds": None, "threshold_imbalance": None}
    rest = math.exp(-log_odds) / (1 + math.exp(-log_odds))
    share = 1 / (1 + math.exp(-log_odds))
    return {
        "threshold": share,
        "one_minus_threshold": rest,
        "threshold_odds": math.exp(log_odds),
        "threshold_imbalance": imbalance,
    }


def summary(table: Scan) -> dict[str, Any]:
    """The JSON object."""
    paths = []
    for path, rows in table.paths():
        parameters = {name: value for name, value in path.items() if value not in (None, "")}
        infinite = {name: "inf" for name in ("negatives", "batch_size") if parameters.get(name) == math.inf}
        paths.append({**parameters, **infinite, "rows": len(rows), **_counts(rows), **_frontier(rows)})
    counts = _counts(table.rows)
    return {
        "rows": len(table.rows),
        **counts,
        "new": table.new,
        "file": table.file,
        "errors": dict(_errors(table.rows)),
        "paths": paths,
    }


def _errors(rows: list[Row]) -> list[tuple[str, int]]:
    """Reasons of failure with their number, most frequent first."""
    number: dict[str, int] = {}
    for row in rows:
        if row["error"]:
            number[row["error"]] = number.get(row["error"], 0) + 1
    return sorted(number.items(), key=lambda item: (-item[1], item[0]))


def report(table: Scan, plot: FilePath | None) -> None:
    """Print the summary on stdout."""
    with page() as out:
        out.print(summary_table(_lines(table, plot)))
        if len(table.paths()) > 1:
            out.print()
            out.print(_paths_table(table))


def _lines(table: Scan, plot: FilePath | None) -> Iterable[tuple[str, str]]:
    rows, counts = table.rows, _counts(table.rows)
    setting = ", ".join(setting_words(expand(rows), ""))
    yield "Setting", setting[:1].upper() + setting[1:]
    kept = len(rows) - table.new
    yield "Cells", f"{len(rows)}" + (f" ({kept} of them from the file)" if kept else "")
    yield "Spread", f"{counts['spread']}: every class has its own direction"
    if counts["partial"]:
        yield "Partial", f"{counts['partial']}: fewer directions than classes"
    yield "Collapsed", f"{counts['collapsed']}: all minority classes in one direction"
    yield from _where_it_collapses(table)
    if counts["uncertified"]:
        yield "Uncertified", f"{counts['uncertified']}: no geometry, or none that could be proved"
        reasons = _errors(rows)
        for reason, number in reasons[:SHOWN_ERRORS]:
            yield "", f"{number} x {reason}"
        if len(reasons) > SHOWN_ERRORS:
            yield "", f"and {len(reasons) - SHOWN_ERRORS} more reasons (column `error`)"
    if table.file is not None:
        yield "Table", f"{table.file}"
    if plot is not None:
        yield "Picture", f"{plot}"


def _where_it_collapses(table: Scan) -> Iterable[tuple[str, str]]:
    """The exact threshold of a single path; or, when nothing collapses, what it would take.

    At usual temperatures the threshold is so near to 1 that no grid of shares meets it: saying "no collapse" would
    mislead.
    """
    rows, paths = table.rows, table.paths()
    known = [row for row in rows if row["threshold_log_odds"] is not None]
    if not known:
        return
    if len(paths) == 1:
        yield "Collapse from", f"{_where(_frontier(rows))} of the majority class on (exact)"
    if any(row["regime"] == "minority-collapse" for row in rows):
        return
    nearest = min(known, key=lambda row: row["threshold_log_odds"] - row["log_odds"])
    factor = math.exp(min(nearest["threshold_log_odds"] - nearest["log_odds"], LARGEST_LOG_ODDS))
    needed = math.exp(min(row["threshold_log_odds"] for row in known))
    largest = math.exp(max(row["log_odds"] for row in rows))
    text = f"odds of {needed:.4g} or more of the majority class against all others; the largest here are {largest:.4g}"
    advice = " (--majority-odds takes odds)" if rows[0]["profile"] == "majority" else ""
    yield "It would take", f"{text}. The nearest cell lacks a factor of {factor:.3g}{advice}"


def _paths_table(table: Scan) -> Table:
    rows = expand(table.rows)
    varying, counts = distinguishing(rows), _counts(rows)
    grid = Table(
        box=box.SIMPLE_HEAD, title="Paths", title_justify="left", title_style="bold", show_edge=False, pad_edge=False
    )
    counted = [name for name in counts if counts[name] or name in ("spread", "collapsed")]
    for heading in (*(name.replace("num_", "").replace("_", " ") for name in varying), *counted, "collapse from"):
        grid.add_column(heading, justify="right", no_wrap=True)
    paths = table.paths()
    for _, members in paths[:SHOWN_PATHS]:
        counts = _counts(members)
        parameters = (tick_words(_tidy(expand(members[:1])[0][name])) for name in varying)
        grid.add_row(*parameters, *(str(counts[name]) for name in counted), _where(_frontier(members)))
    if len(paths) > SHOWN_PATHS:
        grid.add_row("...", *[""] * (len(grid.columns) - 2), f"{len(paths) - SHOWN_PATHS} more paths")
    return grid


def _tidy(value: Any) -> Any:
    return "-" if value is None or value == "" else float(f"{value:.4g}") if isinstance(value, float) else value


def _where(frontier: dict[str, float | None]) -> str:
    """The threshold as a share, or as odds where the share is too near to 1."""
    share, rest, odds = frontier["threshold"], frontier["one_minus_threshold"], frontier["threshold_odds"]
    if share is None or rest is None or odds is None:
        return "-"
    return f"share {share:.6f}" if rest > 1e-3 else f"odds {odds:.4g}"
