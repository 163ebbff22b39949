"""The `optgeom` command: one function per file, registered here.

Command files import optgeom, rich and everything slow inside their functions, so that `optgeom --help` is fast.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from optgeom_cli.design import design
from optgeom_cli.loss import loss
from optgeom_cli.output import ExitCode, notice
from optgeom_cli.prescribe import prescribe
from optgeom_cli.profiles import profiles
from optgeom_cli.realize import realize
from optgeom_cli.recover import recover
from optgeom_cli.scan import scan
from optgeom_cli.solve import solve
from optgeom_cli.threshold import threshold
from optgeom_cli.train import train
from optgeom_cli.validate import validate

# The base of what typer raises on wrong options. It belongs to click, which typer imports or carries within itself, by
# version.
_WrongOptions: Any = typer.BadParameter.__mro__[1]


@contextlib.contextmanager
def _one_line() -> Iterator[None]:
    try:
        yield
    except _WrongOptions as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # its message is the whole help
            raise
        where = f" (see {error.ctx.command_path} --help)" if error.ctx is not None else ""
        notice(error.format_message().rstrip(".") + where)
        raise typer.Exit(ExitCode.USAGE) from error


class Commands(TyperGroup):
    """Report wrong options like every other error: one line on stderr, without the usage that click prints."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Parse what stands before the command."""
        for stream in (sys.stdout, sys.stderr):
            # Names of files and classes that the terminal cannot show are shown by their codes, not by a traceback.
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        with _one_line():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        """Parse the command's own options and run it."""
        with _one_line():
            return super().invoke(ctx)


# Plain help and plain usage errors: rich would draw boxes around what scripts read line by line, and costs start-up
# time.
app = typer.Typer(
    cls=Commands,
    help="Exact optimal class-mean geometries of contrastive learning on imbalanced data, with certificates.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

# One line per command, in the order of the help.
app.command("solve")(solve)
app.command("loss")(loss)
app.command("threshold")(threshold)
app.command("scan")(scan)
app.command("design")(design)
app.command("prescribe")(prescribe)
app.command("realize")(realize)
app.command("recover")(recover)
app.command("validate")(validate)
app.add_typer(train, name="train")
app.command("profiles")(profiles)


def _print_version(requested: bool) -> None:
    if requested:
        import importlib.metadata

        try:
            number = importlib.metadata.version("optgeom")
        except importlib.metadata.PackageNotFoundError:
            number = "(not installed: run from its source folder)"
        typer.echo(f"optgeom {number}")
        raise typer.Exit()


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Exact optimal class-mean geometries of contrastive learning on imbalanced data, with certificates."""


if __name__ == "__main__":
    app()
