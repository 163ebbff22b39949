"""`optgeom profiles`: the class counts known by name."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from optgeom_cli.output import console, emit_json, exit_on_error

# More numbers than this say nothing on a terminal; --json has them all.
_MOST_SHOWN = 2000


@exit_on_error()
def profiles(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Show this one, such as places-lt or cifar10-lt:100.")
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """List the known class profiles, or show one with its source and counts."""
    if name is None:
        _list(json_output)
    else:
        _show(name, json_output)


def _list(json_output: bool) -> None:
    from optgeom.inputs.profiles import describe, formula_usages, list_profiles

    known = [describe(name) for name in list_profiles()]
    usages = formula_usages()
    if json_output:
        emit_json(
            {"profiles": known, "formulas": [{"usage": usage, "meaning": meaning} for usage, meaning in usages.items()]}
        )
        return
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, title="Real data sets (`optgeom profiles NAME` shows one)")
    # The note goes below the name: beside the counts it would have four columns left of a terminal's eighty.
    table.add_column("name, note")
    for heading in ("classes", "max", "min", "imbalance"):
        table.add_column(heading, justify="right", no_wrap=True)
    for entry in known:
        numbers = [str(entry[key]) for key in ("num_classes", "max_count", "min_count")]
        named = Text(str(entry["name"]), style="bold").append(
            f"\n{entry['note']}" if entry["note"] else "", style="not bold dim"
        )
        table.add_row(named, *numbers, f"{entry['imbalance_factor']:.6g}")
    formulas = Table(box=box.SIMPLE_HEAD, title="Formulas")
    formulas.add_column("name", no_wrap=True)
    formulas.add_column("counts")
    for usage, meaning in usages.items():
        formulas.add_row(_verbatim(usage), _verbatim(meaning))
    console().print(table, formulas)


def _show(name: str, json_output: bool) -> None:
    from rich import box
    from rich.table import Table

    from optgeom.inputs.profiles import describe, load

    profile = load(name)
    summary: dict[str, Any] = {**describe(name), "names": profile.names}
    if json_output:
        emit_json({**summary, "counts": profile.counts, "proportions": profile.proportions})
        return
    table = Table(box=box.SIMPLE_HEAD, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    values = profile.proportions if profile.counts is None else profile.counts
    shown = ", ".join(
        f"{value:.6g}" if profile.counts is None else str(value) for value in values[:_MOST_SHOWN].tolist()
    )
    if values.size > _MOST_SHOWN:
        shown += f", and {values.size - _MOST_SHOWN} more (--json has all)"
    for heading, text in (
        ("name", profile.name),
        ("source", profile.source),
        ("note", profile.note),
        ("classes", str(profile.num_classes)),
        ("imbalance", f"{profile.imbalance_factor:.6g}"),
    ):
        table.add_row(heading, _verbatim(text))
    # Thousands of numbers make no table cell: rich would take the width from the other column.
    console().print(table, _verbatim(f"{'proportions' if profile.counts is None else 'counts'}: {shown}"))


def _verbatim(text: str) -> Any:
    """Text in which rich looks for no markup: "[:n_max]" is not a style."""
    from rich.text import Text

    return Text(text)
