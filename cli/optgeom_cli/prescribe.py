"""`optgeom prescribe`: weights, margins or temperatures per class that make a wanted geometry the optimum."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from optgeom import choices
from optgeom.progress import working
from optgeom_cli.output import UsageError, emit_json, exit_on_error, notice, page, summary_table
from optgeom_cli.shared_options import ClassOptions, LossOptions, with_shared_options

if TYPE_CHECKING:
    from rich.table import Table

    from optgeom.collapse.prescription import Prescription

LISTED = 30  # classes that are printed; the file has all
FILES = (".json", ".csv")


@with_shared_options
@exit_on_error()
def prescribe(
    class_options: ClassOptions,
    loss_options: LossOptions,
    target: Annotated[
        str,
        typer.Option(
            "--target",
            metavar="simplex|FILE",
            help="Wanted geometry: the regular simplex, or a file: a geometry that `solve --out` wrote, a C x C Gram "
            "matrix (.npy, .npz, .csv), or a tree of classes (.json).",
        ),
    ] = "simplex",
    by: Annotated[
        choices.Prescribed,
        typer.Option("--by", help="What to change; the rest of the loss stays as given."),
    ] = "both",
    strength: Annotated[
        float,
        typer.Option(
            "--strength", metavar="SHARE", help="Share of the largest force that can hold the target, between 0 and 1."
        ),
    ] = 0.5,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE.json|FILE.csv", help="Write the values of every class to this file."),
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Weights, margins or temperatures per class with which a wanted geometry is the optimum, with its certificate.

    Exit code 0 also where one value per class comes close in finite batches: the answer then says how close.
    """
    if out is not None and out.suffix.lower() not in FILES:
        raise UsageError(f"--out must end in .json or .csv; got {str(out)!r}")
    if out is not None:
        from optgeom.inputs import files

        files.check_target(out)
    classes = class_options.read()
    chosen = loss_options.read()
    from optgeom.collapse.prescribe import prescribe as run
    from optgeom.collapse.targets import SIMPLEX, read_target

    wanted = target if target == SIMPLEX else read_target(target, classes)
    with working("looking for the loss"):
        plan = run(classes, chosen, target=wanted, by=by, strength=strength)
    with working("how firmly it holds the target"):
        content = plan.as_dict()
    if out is not None:
        plan.save(out)
    if json_output:
        emit_json(content)
        return
    with page() as printed:
        printed.print(summary_table(_lines(plan)))
        printed.print(_values(plan))
    typer.echo("In Python:\n")
    for line in plan.code(None if out is None or out.suffix.lower() != ".json" else str(out)).splitlines():
        typer.echo(f"    {line}")
    if out is None and plan.needs_file:
        notice("the Python reads prescription.json: write it with --out prescription.json")


def _lines(plan: Prescription) -> Iterable[tuple[str, str]]:
    yield "Target", plan.target.words
    yield "Loss", plan.loss.words()
    certificate = plan.certificate
    if certificate.certified:
        yield (
            "Certificate",
            f"the target is the optimum: gap {certificate.gap:.1e}, "
            f"backward error {certificate.backward_error or 0:.1e}",
        )
    else:
        yield "Certificate", f"the optimum is near the target, up to {plan.distance_deg:.3g} degrees from it"
    geometry, before = plan.geometry, plan.before
    yield "Angles", f"{geometry.min_angle_deg:.4g} to {geometry.farthest_pairs(1)[0].angle_deg:.4g} degrees"
    yield "Before", f"{before.min_angle_deg:.4g} to {before.max_angle_deg:.4g} degrees"
    needed, earlier = plan.slack_needed.smallest, before.slack_needed.smallest
    yield (
        "Firmness",
        f"to fix every angle to {plan.slack_needed.tolerance_deg:g} degrees the loss must come within "
        f"{100 * needed.whole:.1e} % of its floor, on the way from collapsed to optimal; before within "
        f"{100 * earlier.whole:.1e} %",
    )
    for note in plan.notes:
        yield "Note", note


def _values(plan: Prescription) -> Table:
    """One line per class."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from optgeom.formatting import coded

    out = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    out.add_column("class")
    for heading in ("anchor weight", "negative weight", "margin", "temperature"):
        out.add_column(heading, justify="right")
    records = plan.records()
    for record in records[:LISTED]:
        negative = "per pair" if record["negative_weight"] is None else f"{record['negative_weight']:.6g}"
        out.add_row(
            Text(coded(record["name"])),
            f"{record['anchor_weight']:.6g}",
            negative,
            f"{record['margin']:.6g}",
            f"{record['temperature']:.6g}",
        )
    if len(records) > LISTED:
        out.add_row(f"... {len(records) - LISTED} more", "", "", "", "")
    return out
