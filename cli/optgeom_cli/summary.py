"""Two columns, headings and sentences: the output of commands whose answer is a few numbers."""

from __future__ import annotations

from collections.abc import Iterable

import typer

from optgeom_cli.output import console

MOST_COLUMNS = 100  # longer lines are hard to read on a wide terminal


def print_summary(lines: Iterable[tuple[str, str]]) -> None:
    """Print headings and texts on stdout, without the blanks with which rich pads lines."""
    from rich.table import Table
    from rich.text import Text

    out = console()
    out.width = min(out.width, MOST_COLUMNS)
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for heading, text in lines:
        table.add_row(heading, Text(text))
    with out.capture() as captured:
        out.print(table)
    typer.echo("\n".join(line.rstrip() for line in captured.get().rstrip().splitlines()))
