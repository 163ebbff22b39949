"""`optgeom scan`: the optimal geometry on a grid of imbalance and loss parameters."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optgeom.progress import progress_bar, working
from optgeom_cli import loss_input
from optgeom_cli.output import UsageError, check_picture, emit_json, exit_on_error, notice

if TYPE_CHECKING:
    from optgeom.collapse.scan import Scan

_AXES = "Grid: a,b,c or from:to:number or from:to:number:log"
_LOSS = "Loss"
_OUTPUT = "Output"
_TABLES = (".csv", ".parquet")
MOST_STEPS = 1_000_000  # of an axis: a slip of the keyboard, not a scan
INTERRUPTED = 130  # what a shell reports for a command ended by Ctrl-C


class ScanLoss(enum.StrEnum):
    """Losses that depend on class proportions alone, as a grid of proportions needs."""

    INFONCE = "infonce"
    SUPCON = "supcon"


class Profile(enum.StrEnum):
    """How class sizes fall."""

    MAJORITY = "majority"
    EXP = "exp"
    STEP = "step"
    ZIPF = "zipf"


class Colour(enum.StrEnum):
    """What the colours of the phase diagram mean."""

    REGIME = "regime"
    RANK = "rank"


def _axis(option: str, text: str) -> Any:
    return typer.Option(option, metavar="GRID", help=text, rich_help_panel=_AXES)


@exit_on_error()
def scan(
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
    profile: Annotated[
        Profile,
        typer.Option(
            "--profile", help="How class sizes fall; all but majority go with --imbalance.", rich_help_panel=_AXES
        ),
    ] = Profile.MAJORITY,
    classes: Annotated[str, _axis("--classes", "Numbers of classes.")] = "10",
    temperature: Annotated[str, _axis("--temperature", "Temperatures.")] = "0.1",
    negatives: Annotated[
        str | None, _axis("--negatives", "infonce: negatives of an anchor, such as 1,8,inf (256).")
    ] = None,
    batch_size: Annotated[
        str | None, _axis("--batch-size", "supcon: images in a batch, such as 256,inf (inf).")
    ] = None,
    sampling: Annotated[
        str | None,
        typer.Option(
            "--sampling",
            metavar="ucl,scl",
            help="infonce: negatives from all classes (ucl), from the others (scl), or both in turn.",
            rich_help_panel=_AXES,
        ),
    ] = None,
    loss: Annotated[
        ScanLoss | None,
        typer.Option(
            "--loss",
            help="infonce where one of its options is given, else supcon.",
            show_default=False,
            rich_help_panel=_LOSS,
        ),
    ] = None,
    alpha: loss_input.AlphaOption = None,
    negatives_reduction: loss_input.ReductionOption = None,
    views: Annotated[
        int | None, typer.Option("--views", help="supcon: views of an image (2).", rich_help_panel=_LOSS)
    ] = None,
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
    ] = Colour.REGIME,
    json_output: Annotated[
        bool, typer.Option("--json", help="One JSON object on stdout.", rich_help_panel=_OUTPUT)
    ] = False,
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
            "scan takes class sizes by formula, not --counts or --labels (give --majority or --imbalance with --profile; for classes of "
            "your own `optgeom design` varies one parameter, and `optgeom solve` gives the geometry)"
        )
    if plot is not None:
        check_picture(plot)
    if out is not None and out.suffix.lower() not in _TABLES:
        raise UsageError(f"--out must end in {', '.join(_TABLES)}; got {str(out)!r}")
    given = {
        "majority": majority,
        "majority_odds": majority_odds,
        "imbalance": imbalance,
        "negatives": negatives,
        "batch_size": batch_size,
    }
    grid: dict[str, Any] = {name: parse_grid(_option(name), text) for name, text in given.items() if text is not None}
    if sum(name in grid for name in ("majority", "majority_odds", "imbalance")) != 1:
        raise UsageError(
            "give exactly one of --majority, --majority-odds, --imbalance (for example --majority .1:.95:50)"
        )
    grid["classes"] = parse_grid("--classes", classes)
    grid["temperature"] = parse_grid("--temperature", temperature)
    grid["sampling"] = None if sampling is None else [part.strip() for part in sampling.split(",")]

    from optgeom.collapse import scan as scans

    try:
        with progress_bar("cells") as show:
            found = scans.scan(
                **grid,
                profile=profile.value,
                loss=loss and loss.value,
                alpha=alpha,
                negatives_reduction=negatives_reduction and negatives_reduction.value,
                views=views,
                workers=workers,
                dask=dask,
                out=out,
                resume=resume,
                progress=show,
                tolerance=tolerance,
            )
    except KeyboardInterrupt:
        notice(
            "interrupted; "
            + (
                f"what was done is in {out}, and the same command goes on with it"
                if out
                else "nothing was kept (no --out)"
            )
        )
        raise typer.Exit(INTERRUPTED) from None
    if plot is not None:
        _draw(found, plot, grid, colour)
    if json_output:
        from optgeom_cli.scan_report import summary

        emit_json({**summary(found), "plot": plot})
    else:
        from optgeom_cli.scan_report import report

        report(found, plot)


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def parse_grid(option: str, text: str) -> list[float]:
    """Values of an axis: ``a,b,c``, or ``from:to:number`` with equal steps, or ``from:to:number:log`` with equal
    ratios.

    Whole numbers stay whole; axes of whole numbers are rounded to them, so that ``3:100:8:log`` is a grid of class
    numbers too.
    """
    if ":" not in text:
        return [loss_input.number_or_inf(option, part.strip()) for part in text.split(",")]
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
    if option in ("--classes", "--negatives", "--batch-size"):
        return [int(value) for value in np.unique(np.rint(values))]
    return [float(value) for value in values]


def _draw(found: Scan, plot: Path, grid: dict[str, Any], colour: Colour) -> None:
    from optgeom.plotting.figures import save_figure
    from optgeom.plotting.phase_diagram import plot_phase_diagram

    upwards = next(name for name in ("majority", "majority_odds", "imbalance") if name in grid)
    with working("drawing"):
        save_figure(plot_phase_diagram(found, y=upwards, colour=colour.value), plot)
