"""`optgeom scan`: the optimal geometry on a grid of imbalance and loss parameters."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optgeom.choices import Colour, Shape
from optgeom.losses import registry
from optgeom.losses.options import Option
from optgeom.progress import progress_bar, working
from optgeom_cli.loss_input import flag, number_or_inf
from optgeom_cli.output import UsageError, check_picture, emit_json, exit_on_error, notice
from optgeom_cli.shared_options import LossAxes, with_shared_options

if TYPE_CHECKING:
    from optgeom.collapse.scan import Scan

_AXES = "Grid: a,b,c or from:to:number or from:to:number:log"
_OUTPUT = "Output"
_TABLES = (".csv", ".parquet")
MOST_STEPS = 1_000_000  # of an axis: a slip of the keyboard, not a scan
INTERRUPTED = 130  # what a shell reports for a command ended by Ctrl-C


def _axis(option: str, text: str) -> Any:
    return typer.Option(option, metavar="GRID", help=text, rich_help_panel=_AXES)


@with_shared_options
@exit_on_error()
def scan(
    loss_axes: LossAxes,
    majority: Annotated[str | None, _axis("--majority", "Shares of the majority class, such as .1:.95:50.")] = None,
    majority_odds: Annotated[
        str | None,
        _axis(
            "--majority-odds",
            "Odds of the majority class against all others, such as 1:1e10:40:log; for shares that round to 1.",
        ),
    ] = None,
    imbalance: Annotated[
        str | None, _axis("--imbalance", "Most over least frequent class, such as 1:1000:20:log.")
    ] = None,
    shape: Annotated[
        Shape,
        typer.Option(
            "--shape", help="How class sizes fall; all but majority go with --imbalance.", rich_help_panel=_AXES
        ),
    ] = "majority",
    num_classes: Annotated[str, _axis("--num-classes", "Numbers of classes.")] = "10",
    workers: Annotated[int, typer.Option("--workers", help="Processes on this machine.")] = 1,
    dask: Annotated[
        str | None,
        typer.Option(
            "--dask", metavar="ADDRESS", help="Scheduler of a dask cluster, as tcp://host:8786; replaces --workers."
        ),
    ] = None,
    tolerance: Annotated[
        float, typer.Option("--tolerance", help="Gap that counts as certified, relative to 1 + |risk|.")
    ] = 1e-8,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Keep the table: .csv or .parquet. Cells that it already holds are not solved again.",
            rich_help_panel=_OUTPUT,
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume/--no-resume", help="Go on with the file or replace it.", rich_help_panel=_OUTPUT)
    ] = True,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot", metavar="FILE", help="Draw the phase diagram: .png, .svg or .pdf.", rich_help_panel=_OUTPUT
        ),
    ] = None,
    colour: Annotated[
        Colour, typer.Option("--colour", help="Colours of the phase diagram.", rich_help_panel=_OUTPUT)
    ] = "regime",
    json_output: Annotated[
        bool, typer.Option("--json", help="One JSON object on stdout.", rich_help_panel=_OUTPUT)
    ] = False,
    # Names of 0.1.0, read until 0.3.
    profile: Annotated[Shape | None, typer.Option("--profile", hidden=True)] = None,
    classes: Annotated[str | None, typer.Option("--classes", hidden=True)] = None,
    # Known here only to say where they belong: "no such option" would leave a user with counts alone.
    own: Annotated[
        str | None, typer.Option("--counts", "--counts-file", "--labels", "--proportions", hidden=True)
    ] = None,
) -> None:
    """Where do classes keep their own directions, and where do they collapse? Solves every cell of a grid.

    A GRID is a,b,c or from:to:number (equal steps) or from:to:number:log (equal ratios). A cell that fails is a row of
    the table that says why; the exit code is 0 when every cell has its row.
    """
    if own is not None:
        raise UsageError(
            "scan takes class sizes by formula, not --counts or --labels (give --majority or "
            "--imbalance with --shape; for classes of "
            "your own `optgeom design` varies one parameter, and `optgeom solve` gives the geometry)"
        )
    if plot is not None:
        check_picture(plot)
    if out is not None and out.suffix.lower() not in _TABLES:
        raise UsageError(f"--out must end in {', '.join(_TABLES)}; got {str(out)!r}")
    named = {"majority": majority, "majority_odds": majority_odds, "imbalance": imbalance}
    axes: dict[str, Any] = {name: parse_grid(flag(name), text) for name, text in named.items() if text is not None}
    if len(axes) != 1:
        raise UsageError(
            "give exactly one of --majority, --majority-odds, --imbalance (for example --majority .1:.95:50)"
        )
    upwards = next(iter(axes))
    axes["num_classes"] = parse_grid("--num-classes", num_classes if classes is None else classes, whole=True)
    name = loss_axes.name()
    options = {option.name: option for option in registry.options_of(name)}
    axes |= {key: _axis_values(options[key], text) for key, text in loss_axes.given.items()}

    from optgeom.collapse.scan import scan as run

    try:
        with progress_bar("cells") as show:
            table = run(
                loss=loss_axes.build(),
                axes=axes,
                shape=shape if profile is None else profile,
                workers=workers,
                dask=dask,
                out=out,
                resume=resume,
                progress=show,
                tolerance=tolerance,
            )
    except KeyboardInterrupt:
        kept = (
            f"what was done is in {out}, and the same command goes on with it" if out else "nothing was kept (no --out)"
        )
        notice(f"interrupted; {kept}")
        raise typer.Exit(INTERRUPTED) from None
    if plot is not None:
        _draw(table, plot, upwards, colour)
    if json_output:
        from optgeom_cli.scan_report import summary

        emit_json({**summary(table), "plot": plot})
    else:
        from optgeom_cli.scan_report import report

        report(table, plot)


def _axis_values(option: Option, text: str) -> list[Any]:
    if option.kind != "choice":
        return parse_grid(flag(option.name), text, whole=option.kind == "whole")
    return [part.strip() for part in text.split(",")]


def parse_grid(option: str, text: str, *, whole: bool = False) -> list[float]:
    """Values of an axis: ``a,b,c``, or ``from:to:number`` (equal steps), or ``from:to:number:log`` (equal ratios).

    Whole numbers stay whole; axes of whole numbers are rounded to them, so that ``3:100:8:log`` is a grid of class
    numbers too.
    """
    if ":" not in text:
        return [number_or_inf(option, part.strip()) for part in text.split(",")]
    ends, logarithmic = text.split(":"), False
    if len(ends) == 4 and ends[3] == "log":
        ends, logarithmic = ends[:3], True
    try:
        low, high, number = float(ends[0]), float(ends[1]), int(ends[2])
        usable = abs(low) + abs(high) < float("inf") and not (logarithmic and min(low, high) <= 0)
        if len(ends) != 3 or not 1 <= number <= MOST_STEPS or not usable:
            raise ValueError
    except (ValueError, IndexError):
        form = f"a,b,c or from:to:number or from:to:number:log (log: positive ends; number: 1 to {MOST_STEPS})"
        raise UsageError(f"{option} must be {form}; got {text!r}") from None
    import numpy as np

    values = np.geomspace(low, high, number) if logarithmic else np.linspace(low, high, number)
    if whole:
        return [int(value) for value in np.unique(np.rint(values))]
    return [float(value) for value in values]


def _draw(table: Scan, plot: Path, upwards: str, colour: Colour) -> None:
    from optgeom.plotting.figures import save_figure
    from optgeom.plotting.phase_diagram import plot_phase_diagram

    with working("drawing"):
        save_figure(plot_phase_diagram(table, y=upwards, colour=colour), plot)
