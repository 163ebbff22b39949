"""README.md from the files of results: nothing on the page but what the files say."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import _store
import _tables
from _harness import Row
from _machine import DATE, LOAD
from _suite import Table

from optgeom.inputs import files

MACHINES, MISSED = "machines", "missed"
ALWAYS = (DATE, "BLAS threads", LOAD)  # told run by run even where all agree


def write(into: Path, tables: Mapping[str, Table], figures: Path) -> None:
    """Write every table, the runs and the missed targets between their markers in `into`/README.md, and the figures."""
    page, results = into / "README.md", into / "results"
    text = page.read_text(encoding="utf-8")
    missed: list[str] = []
    for name, table in tables.items():
        rows = _store.read_table(results / f"{name}.csv")
        picture = figures / f"benchmark-{name}.png"
        body = _section(table, rows, Path(os.path.relpath(picture, into)).as_posix())
        text = replace_between(text, name, body)
        missed += [f"* `{name}`: {told}" for told in _missed(body)]
        if table.figure is not None and rows:
            figures.mkdir(parents=True, exist_ok=True)
            table.figure(rows, picture, results)
    text = replace_between(text, MACHINES, _machines(_store.read_machines(results)))
    text = replace_between(text, MISSED, "\n".join(missed) or "None.")
    files.write_text(page, text)


def _section(table: Table, rows: Sequence[Row], picture: str) -> str:
    parts = [f"### `{table.name}`: {table.title}", table.hypothesis]
    if not rows:
        return "\n\n".join([*parts, "Not measured yet."])
    if table.figure is not None:
        parts.append(f"![{table.title}]({picture})")
    return "\n\n".join([*parts, table.render(rows), _provenance(rows)])


def _provenance(rows: Sequence[Row]) -> str:
    """Which run measured what."""
    runs: dict[int, list[str]] = {}
    for row in rows:
        cases = runs.setdefault(row.run, [])
        if (told := f"{row.case}, {row.size}") not in cases:
            cases.append(told)
    if len(runs) == 1:
        return f"Run {next(iter(runs))}."
    return (
        "; ".join(
            f"run {run}: {', '.join(f'({told})' for told in cases)}" for run, cases in sorted(runs.items())
        ).capitalize()
        + "."
    )


def _machines(machines: Mapping[int, Mapping[str, str]]) -> str:
    """What all runs share in one sentence, what differs in a table."""
    if not machines:
        return "No run yet."
    names = list(dict.fromkeys(name for machine in machines.values() for name in machine))
    held = {name: {machine[name] for machine in machines.values() if name in machine} for name in names}
    common = [name for name in names if name not in ALWAYS and len(held[name]) == 1]
    told = "Common to all runs that recorded it: " + "; ".join(f"{name} {min(held[name])}" for name in common) + "."
    other = [name for name in names if name not in common]
    lines = [[str(run), *(machine.get(name, "-") for name in other)] for run, machine in machines.items()]
    return f"{told}\n\n{_tables.markdown(['run', *other], lines)}"


def _missed(body: str) -> list[str]:
    """Lines of a table that did not meet their target."""
    found: list[str] = []
    header: list[str] = []
    for line in body.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if not cells:
            header = []
        elif not header:
            header = cells
        elif "**no**" in cells:
            held = dict(zip(header, cells, strict=True))
            size = next((f", {name} = {held[name]}" for name in ("C", "n") if name in held), "")
            reached = held.get("reached", held.get("ratio", ""))
            found.append(f"{held['case']}{size}: target {held['target']}, reached {reached}.")
    return found


def replace_between(text: str, name: str, body: str) -> str:
    """`text` with what stands between the two markers of `name` replaced."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise ValueError(f"the text must hold the lines {begin!r} and {end!r} once each, in this order (restore them)")
    return f"{text[: text.index(begin)]}{begin}\n{body}\n{text[text.index(end) :]}"
