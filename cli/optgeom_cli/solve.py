"""`optgeom solve`: the optimal class-mean geometry."""

from __future__ import annotations

import importlib.util
import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from optgeom.choices import Solver
from optgeom.progress import working
from optgeom_cli.output import ExitCode, UsageError, emit_json, exit_on_error, notice
from optgeom_cli.shared_options import ClassOptions, LossOptions, with_shared_options

if TYPE_CHECKING:
    from optgeom.collapse.thresholds import CollapseMargin
    from optgeom.geometry import Geometry
    from optgeom.inputs.classes import ClassDistribution
    from optgeom.losses.base import Loss
    from optgeom_cli.determined import Determined

_PANEL = "Output"
_DETERMINED = "What the loss determines"
_ENDINGS = {
    "--out": (".npz", ".json"),
    "--prototypes": (".npy", ".npz", ".csv", ".pt", ".safetensors"),
    "--plot": (".png", ".svg", ".pdf"),
}
# Negatives that see the split of the minorities need it whole, some 50 times: more groups would cost more than the
# solve itself.
MARGIN_GROUPS = 300
_EXTRAS = {".pt": ("torch", "torch"), ".safetensors": ("safetensors", "io")}  # ending: module, extra that installs it


@with_shared_options
@exit_on_error()
def solve(
    class_options: ClassOptions,
    loss_options: LossOptions,
    dim: Annotated[
        int | None,
        typer.Option("--dim", help="Embedding dimension; below the rank of the optimum the answer is a bracket."),
    ] = None,
    solver: Annotated[Solver, typer.Option("--solver", help="auto tries the others in turn, except conic.")] = "auto",
    tolerance: Annotated[
        float, typer.Option("--tolerance", help="Gap that counts as certified, relative to 1 + |risk|.")
    ] = 1e-8,
    backward_tolerance: Annotated[
        float,
        typer.Option(
            "--backward-tolerance", help="Backward error that counts as certified; 1e-6 for very rare classes."
        ),
    ] = 1e-8,
    slack: Annotated[
        float | None,
        typer.Option(
            "--slack",
            metavar="SHARE",
            help="Range of each angle within this share of the way from optimal to collapsed loss, such as 1e-3.",
            rich_help_panel=_DETERMINED,
        ),
    ] = None,
    whole: Annotated[
        bool,
        typer.Option(
            "--whole",
            help="Slack of the mean over all images, not per image of the two classes.",
            rich_help_panel=_DETERMINED,
        ),
    ] = False,
    screen: Annotated[
        bool,
        typer.Option(
            "--screen",
            help="With --slack: estimates (~, to second order) of all other pairs, for more than 30 classes.",
            rich_help_panel=_DETERMINED,
        ),
    ] = False,
    workers: Annotated[
        int, typer.Option("--workers", help="Processes that compute ranges.", rich_help_panel=_DETERMINED)
    ] = 1,
    saddles: Annotated[
        bool,
        typer.Option(
            "--saddles",
            help="Where training stalls in fewer dimensions, and which classes are still together there.",
            rich_help_panel=_DETERMINED,
        ),
    ] = False,
    json_output: Annotated[
        bool, typer.Option("--json", help="One JSON object on stdout.", rich_help_panel=_PANEL)
    ] = False,
    full: Annotated[
        bool,
        typer.Option(
            "--full", help="JSON with the Gram matrix, whatever the number of classes.", rich_help_panel=_PANEL
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write the geometry: .npz or .json.", rich_help_panel=_PANEL),
    ] = None,
    prototypes: Annotated[
        list[Path] | None,
        typer.Option(
            "--prototypes",
            metavar="FILE",
            help="Write the class means as vectors: .npy, .npz, .csv, .pt or .safetensors; may be repeated.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Draw the geometry: .png, .svg or .pdf.", rich_help_panel=_PANEL),
    ] = None,
) -> None:
    """Optimal class-mean geometry of a class distribution and a loss, with a certificate.

    Exit code 4 when the certificate does not hold: the geometry is then shown for inspection and no file is written.
    """
    vectors = [("--prototypes", path) for path in prototypes or ()]
    targets = [(option, path) for option, path in (("--out", out), *vectors, ("--plot", plot)) if path is not None]
    _check_targets(targets)
    for option, given in (("--whole", whole), ("--screen", screen)):
        if given and slack is None:
            raise UsageError(f"{option} goes with --slack; got no --slack (give one, such as --slack 1e-3)")
    classes = class_options.read()
    chosen = loss_options.read()

    import optgeom
    from optgeom.errors import NotCertifiedError

    failure: NotCertifiedError | None = None
    try:
        with working(f"solving {classes.num_classes} classes"):
            geometry = optgeom.solve(
                classes, chosen, dim=dim, solver=solver, tolerance=tolerance, backward_tolerance=backward_tolerance
            )
    except NotCertifiedError as error:
        geometry, failure, targets = error.result, error, []
    _write(geometry, targets, dim)
    margin, margin_line = _collapse_margin(classes, chosen)
    determined = None if failure is not None else _determine(geometry, slack, whole, screen, saddles, workers)
    if json_output:
        content = geometry.as_dict(full or None)
        if margin is None and margin_line is not None:
            content["notes"].append(f"collapse_margin: {margin_line}")
        emit_json(
            {
                **content,
                "collapse_margin": None if margin is None else margin.as_dict(),
                **(determined.as_dict() if determined is not None else {}),
            }
        )
    else:
        from optgeom_cli.solve_report import report

        report(geometry, source=class_options.source, files=targets, collapse=margin_line, determined=determined)
    if failure is not None:
        notice(str(failure) + (" (no file was written)" if out or prototypes or plot else ""))
        raise typer.Exit(ExitCode.NOT_CERTIFIED)


def _determine(
    geometry: Geometry, slack: float | None, whole: bool, screen: bool, saddles: bool, workers: int
) -> Determined | None:
    """What the loss determines, where it was asked for."""
    if slack is None and not saddles:
        return None
    from optgeom_cli.determined import determine

    return determine(geometry, slack=slack, whole=whole, screen=screen, saddles=saddles, workers=workers)


def _collapse_margin(classes: ClassDistribution, loss: Loss) -> tuple[CollapseMargin | None, str | None]:
    """The margin to total collapse and its line in the table; no line where the question does not arise."""
    from optgeom.collapse.thresholds import collapse_margin
    from optgeom.errors import IncompatibleError, InvalidInputError
    from optgeom_cli.threshold import margin_text

    groups = classes.groups.num_groups
    if "uniform-negatives" not in loss.gives and groups > MARGIN_GROUPS:
        return None, f"margin not computed for {groups} different class sizes (`optgeom threshold` does it)"
    try:
        margin = collapse_margin(classes, loss)
    except IncompatibleError:
        return None, "none: the other classes stay apart however large the majority is"
    except InvalidInputError as error:
        return None, f"margin not computed: {error}"
    if margin is not None:
        return margin, margin_text(margin)
    if classes.num_classes > 2 and classes.groups.sizes[0] > 1:
        return None, "no single class is the most frequent: total collapse is not the optimum"
    return None, None


def _check_targets(targets: list[tuple[str, Path]]) -> None:
    """Refuse what cannot be written before the work, not after it."""
    for option, path in targets:
        if path.suffix.lower() not in _ENDINGS[option]:
            raise UsageError(f"{option} must end in {', '.join(_ENDINGS[option])}; got {str(path)!r}")
    for (option, path), (other, second) in itertools.combinations(targets, 2):
        if path.absolute() == second.absolute():
            raise UsageError(f"{option} and {other} must be different files; got {str(path)!r} for both")
    for _, path in targets:
        _check_writable(path)


def _check_writable(path: Path) -> None:
    from optgeom.errors import MissingDependencyError
    from optgeom.inputs import files

    files.check_target(path)
    ending = path.suffix.lower()
    if ending in _ENDINGS["--plot"]:
        from optgeom.plotting import require_matplotlib

        require_matplotlib()
    elif ending in _EXTRAS and importlib.util.find_spec(_EXTRAS[ending][0]) is None:
        module, extra = _EXTRAS[ending]
        raise MissingDependencyError(f"saving {ending} needs {module}: pip install 'optgeom[{extra}]'")


def _write(geometry: Geometry, targets: list[tuple[str, Path]], dim: int | None) -> None:
    for option, path in targets:
        if option == "--out":
            geometry.save(path)
        elif option == "--prototypes":
            geometry.save_prototypes(path, dim)
        else:
            from optgeom.plotting import plot_geometry, save_figure

            with working("drawing"):
                save_figure(plot_geometry(geometry), path)
