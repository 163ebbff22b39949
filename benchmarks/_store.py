"""The files of results: one CSV per table, written whole or not at all.

machines.csv has the run that each row points to.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from _harness import Row

from optgeom.inputs import files

MACHINES = "machines.csv"
CONVERT: dict[str, Callable[[str], Any]] = {
    "str": str,
    "int": int,
    "float": lambda text: float(text) if text else math.nan,
    "bool": lambda text: text == "True",
}


def write_table(path: Path, rows: Sequence[Row]) -> None:
    """All rows to a CSV file, NaN as an empty cell, without the columns that no row uses."""
    used = [
        field.name
        for field in fields(Row)
        if field.default is MISSING or any(_told(getattr(row, field.name)) for row in rows)
    ]
    _write(path, used, ([_cell(getattr(row, name)) for name in used] for row in rows))


def read_table(path: Path) -> list[Row]:
    """Rows of a file written by `write_table`; a column that is not there has its default. No file: no rows."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        kinds = {field.name: CONVERT[str(field.type)] for field in fields(Row)}
        return [Row(**{name: kinds[name](text) for name, text in line.items()}) for line in csv.DictReader(file)]


def merged(kept: Iterable[Row], fresh: Sequence[Row]) -> list[Row]:
    """Replace kept rows by fresh ones of the same case and size.

    Cases stay in order of first appearance, ordered by size within.
    """
    measured = {(row.case, row.size) for row in fresh}
    rows = [*(row for row in kept if (row.case, row.size) not in measured), *fresh]
    order = {case: place for place, case in enumerate(dict.fromkeys(row.case for row in rows))}
    return sorted(rows, key=lambda row: (order[row.case], row.size))


def read_machines(results: Path) -> dict[int, dict[str, str]]:
    """Number of a run -> what it was measured on."""
    path = results / MACHINES
    if not path.exists():
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        return {
            int(line.pop("run")): {name: text for name, text in line.items() if text} for line in csv.DictReader(file)
        }


def write_machines(results: Path, machines: Mapping[int, Mapping[str, str]]) -> None:
    """Only the runs that a row still points to."""
    used = {row.run for path in results.glob("*.csv") if path.name != MACHINES for row in read_table(path)}
    names = list(dict.fromkeys(name for machine in machines.values() for name in machine))
    lines = (
        [str(run), *(machine.get(name, "") for name in names)]
        for run, machine in sorted(machines.items())
        if run in used
    )
    _write(results / MACHINES, ["run", *names], lines)


def _told(value: Any) -> bool:
    return value == value and value != "" and value is not False


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.6g}"
    return value.replace("\n", " ") if isinstance(value, str) else value


def _write(path: Path, header: Sequence[str], lines: Iterable[Sequence[Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with files.atomic_path(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *lines])
