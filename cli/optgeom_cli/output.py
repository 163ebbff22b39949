"""What every command prints, and how it ends.

One JSON object or a table on stdout, one line on stderr, an exit code.
"""

from __future__ import annotations

import contextlib
import enum
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


PICTURES = (".png", ".svg", ".pdf")
MOST_COLUMNS = 100  # longer lines are hard to read on a wide terminal


class ExitCode(enum.IntEnum):
    """How a command ended."""

    OK = 0
    USAGE = 2
    INVALID_DATA = 3
    NOT_CERTIFIED = 4
    SOLVER_FAILURE = 5
    MISSING_EXTRA = 6


class UsageError(Exception):
    """Options that do not make a command: exit code 2."""


def emit_json(content: Mapping[str, Any]) -> None:
    """Print exactly one JSON object on stdout: floats to full precision, inf and NaN as null."""
    from optgeom.formatting import to_json

    typer.echo(json.dumps(to_json(content), allow_nan=False))


def console() -> Console:
    """A rich console on stdout that shows no character that could steer the terminal.

    Made when it is needed: rich is slow to import, and tests replace stdout.
    """
    from rich.console import Console
    from rich.segment import Segment

    from optgeom.formatting import visible

    class Screen(Console):
        def render(self, renderable: Any, options: Any = None) -> Iterator[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(visible(segment.text), segment.style)

    return Screen(highlight=False)


@contextlib.contextmanager
def page() -> Iterator[Console]:
    """A console whose lines are printed at the end: at most 100 columns wide, without blanks at their ends."""
    out = console()
    out.width = min(out.width, MOST_COLUMNS)
    with out.capture() as captured:
        yield out
    # rich pads every line with blanks, which get in the way of copying and comparing.
    typer.echo("\n".join(line.rstrip() for line in captured.get().rstrip().splitlines()))


def summary_table(lines: Iterable[tuple[str, str]]) -> Table:
    """Headings and sentences in two columns."""
    from rich.table import Table
    from rich.text import Text

    from optgeom.formatting import coded

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for heading, text in lines:
        table.add_row(heading, Text(coded(text)))
    return table


def print_summary(lines: Iterable[tuple[str, str]]) -> None:
    """Print headings and sentences on stdout."""
    with page() as out:
        out.print(summary_table(lines))


def notice(message: str) -> None:
    """One line for the user on stderr, so that stdout stays clean for data."""
    from optgeom.formatting import coded, visible

    typer.echo(visible(coded(" ".join(message.split()))), err=True)


@contextlib.contextmanager
def exit_on_error() -> Iterator[None]:
    """Turn an error that optgeom raises on purpose into one line on stderr and the right exit code.

    Also usable as a decorator.
    """
    try:
        yield
    except UsageError as error:
        notice(str(error))
        raise typer.Exit(ExitCode.USAGE) from error
    except Exception as error:
        # Imported only now: `optgeom --help` must not wait for numpy and scipy.
        from optgeom import errors

        for kind, code in (
            (errors.InvalidInputError, ExitCode.INVALID_DATA),
            (errors.IncompatibleError, ExitCode.USAGE),
            (errors.MissingDependencyError, ExitCode.MISSING_EXTRA),
            (errors.NotCertifiedError, ExitCode.NOT_CERTIFIED),  # before its base, SolverError
            (errors.SolverError, ExitCode.SOLVER_FAILURE),
        ):
            if isinstance(error, kind):
                sys.stdout.flush()
                notice(str(error))
                raise typer.Exit(code) from error
        if isinstance(error, MemoryError):  # millions of classes of different sizes: a matrix of pairs of groups
            notice(f"not enough memory for this problem: {error} (fewer different counts need less)")
            raise typer.Exit(ExitCode.SOLVER_FAILURE) from error
        raise


def check_picture(plot: Path) -> None:
    """Refuse a `--plot` that cannot be written before the work, not after it."""
    from optgeom.inputs import files
    from optgeom.plotting import require_matplotlib

    if plot.suffix.lower() not in PICTURES:
        raise UsageError(f"--plot must end in {', '.join(PICTURES)}; got {str(plot)!r}")
    files.check_target(plot)
    require_matplotlib()
