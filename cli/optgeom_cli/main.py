"""The `optgeom` command: one function a file, registered here.

Command files import optgeom, rich and everything slow inside their functions, so that `optgeom --help` answers at once.
"""

from __future__ import annotations

from typing import Annotated

import typer

from optgeom_cli.design import design
from optgeom_cli.loss import loss
from optgeom_cli.profiles import profiles
from optgeom_cli.realize import realize
from optgeom_cli.scan import scan
from optgeom_cli.solve import solve
from optgeom_cli.threshold import threshold

# Plain help and plain usage errors: rich would draw boxes around what scripts read line by line, and costs start-up time.
app = typer.Typer(
    help="Exact optimal class-mean geometries of contrastive learning on imbalanced data, with certificates.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

# One line a command, in the order of the help.
app.command("solve")(solve)
app.command("loss")(loss)
app.command("threshold")(threshold)
app.command("scan")(scan)
app.command("design")(design)
app.command("realize")(realize)
app.command("profiles")(profiles)


def _version(wanted: bool) -> None:
    if wanted:
        import importlib.metadata

        try:
            number = importlib.metadata.version("optgeom")
        except importlib.metadata.PackageNotFoundError:
            number = "(not installed: run from its source folder)"
        typer.echo(f"optgeom {number}")
        raise typer.Exit()


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.", callback=_version, is_eager=True)] = False,
) -> None:
    """Exact optimal class-mean geometries of contrastive learning on imbalanced data, with certificates."""


if __name__ == "__main__":
    app()
