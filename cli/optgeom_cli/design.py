"""`optgeom design`: what to change so that classes do not collapse, or so that the closest two reach an angle."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from optgeom.losses import registry
from optgeom.progress import progress_bar, working
from optgeom_cli.output import UsageError, emit_json, exit_on_error, page, summary_table
from optgeom_cli.shared_options import ClassOptions, LossOptions, with_shared_options

if TYPE_CHECKING:
    from rich.table import Table

    from optgeom.collapse.design import Candidate, Design, DesignCell


PARAMETERS = tuple(name.replace("_", "-") for name in ("sampler", *registry.searched(), "epsilon"))


@with_shared_options
@exit_on_error()
def design(
    class_options: ClassOptions,
    loss_options: LossOptions,
    parameter: Annotated[
        Literal[PARAMETERS] | None,  # type: ignore[valid-type]
        typer.Option("--parameter", help="What to change; everything else stays as given."),
    ] = None,
    min_angle: Annotated[
        float | None,
        typer.Option(
            "--min-angle", metavar="DEGREES", help="Wanted smallest angle between two means; without it: no collapse."
        ),
    ] = None,
    table: Annotated[
        bool,
        typer.Option(
            "--table",
            help="Smallest angle and slack needed over temperature, batch size and sampler, for these classes.",
        ),
    ] = False,
    json_output: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Sampler power, temperature, batch size, negatives or softness that avoids collapse or reaches a wanted angle.

    Exit code 0 also when no value can: the answer then says so, with the best that was seen.
    """
    if parameter == "sampler" and class_options.sampler is not None:
        raise UsageError(
            f"--parameter sampler looks for the sampler; got --sampler {class_options.sampler} too (leave it out)"
        )
    if parameter is None and not table:
        raise UsageError(f"give --parameter ({', '.join(PARAMETERS)}), or --table for the trade-off between them")
    classes = class_options.read()
    chosen = loss_options.read()
    from optgeom.collapse.design import design as run
    from optgeom.collapse.design import design_table

    answer = None
    if parameter is not None:
        with working(f"searching over the {parameter}"):
            answer = run(classes, chosen, parameter.replace("-", "_"), min_angle=min_angle)
    cells: tuple[DesignCell, ...] = ()
    if table:
        with progress_bar("solving settings") as update:
            cells = design_table(classes, chosen, progress=update)
    if json_output:
        content = {} if answer is None else answer.as_dict()
        emit_json(content | ({"table": [cell.as_dict() for cell in cells]} if table else {}))
        return
    with page() as out:
        if answer is not None and parameter is not None:
            out.print(summary_table(_lines(answer, parameter)))
        if table:
            out.print(_trade_off(cells))


def _lines(answer: Design, parameter: str) -> Iterable[tuple[str, str]]:
    yield "Goal", answer.goal
    yield "Parameter", parameter
    if answer.present is not None:
        yield "Present", _candidate(answer.present, meets=answer.present.works)
    if answer.nearest is not None and answer.present is not None and not answer.present.works:
        yield "Nearest", _candidate(answer.nearest, meets=True)
    yield "Value", "none" if answer.value is None else f"{answer.value:.6g}"
    yield "Why", answer.reason
    if answer.geometry is not None:
        geometry = answer.geometry
        certified = "certified" if geometry.certificate.certified else "not certified"
        seen = (
            f"smallest angle {geometry.min_angle_deg:.4g} degrees, rank {geometry.rank}, {geometry.regime}, {certified}"
        )
        yield ("There" if answer.value is not None else "Best seen"), seen
    if answer.note is not None:
        yield "Note", answer.note


def _candidate(candidate: Candidate, *, meets: bool) -> str:
    angle = "" if candidate.min_angle_deg is None else f", smallest angle {candidate.min_angle_deg:.4g} degrees"
    return f"{candidate.value:.6g} {'meets the goal' if meets else 'does not meet it'}{angle}"


def _trade_off(cells: tuple[DesignCell, ...]) -> Table:
    """One line per temperature and batch size, two columns per sampler."""
    from rich import box
    from rich.table import Table

    samplers = sorted({cell.sampler for cell in cells}, reverse=True)
    out = Table(
        box=box.SIMPLE_HEAD,
        title="Smallest angle (degrees), and slack that fixes it to 2 degrees (% of the way from optimal to collapsed)",
        title_justify="left",
        title_style="bold",
        show_edge=False,
        pad_edge=False,
    )
    out.add_column("T", justify="right")
    out.add_column("batch", justify="right")
    for power in samplers:
        name = {1.0: "sampler n", 0.0: "balanced"}.get(power, f"n^{power:g}")
        out.add_column(name, justify="right", no_wrap=True)
        out.add_column("slack", justify="right", no_wrap=True)
    settings = list(dict.fromkeys((cell.temperature, cell.batch_size) for cell in cells))
    for temperature, size in settings:
        row = [f"{temperature:g}", "" if size is None else f"{size:g}"]
        for power in samplers:
            here = next(
                cell
                for cell in cells
                if (cell.temperature, cell.batch_size, cell.sampler) == (temperature, size, power)
            )
            row.append("-" if here.min_angle_deg is None else f"{here.min_angle_deg:.1f}")
            row.append("-" if here.slack_needed is None else f"{100 * here.slack_needed:.1g}")
        out.add_row(*row)
    return out
