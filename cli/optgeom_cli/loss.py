"""`optgeom loss`: what value should my loss have?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from optgeom.progress import working
from optgeom_cli import loss_input
from optgeom_cli.output import UsageError, emit_json, exit_on_error
from optgeom_cli.shared_options import ClassOptions, LossOptions, with_shared_options
from optgeom_cli.summary import print_summary

if TYPE_CHECKING:
    from optgeom.collapse.loss_values import LossValues
    from optgeom.inputs.classes import ClassDistribution
    from optgeom.losses.base import Loss

_PANEL = "Output"


@with_shared_options
@exit_on_error()
def loss(
    class_options: ClassOptions,
    loss_options: LossOptions,
    rows: Annotated[
        int | None,
        typer.Option(
            "--rows", metavar="N", help="supcon: rows in a batch, images times views; enough for the collapsed value."
        ),
    ] = None,
    simclr: Annotated[
        int | None,
        typer.Option("--simclr", metavar="N", help="SimCLR with N pairs in a batch, instead of classes and a loss."),
    ] = None,
    base_temperature: Annotated[
        float | None,
        typer.Option(
            "--base-temperature", help="The loss is multiplied by temperature / base temperature (SupContrast: 0.07)."
        ),
    ] = None,
    observed: Annotated[
        float | None, typer.Option("--observed", metavar="X", help="A value that training printed, to be judged.")
    ] = None,
    equal_within: Annotated[
        float,
        typer.Option("--equal-within", help="What counts as equal, as a share of the way from collapsed to optimal."),
    ] = 0.01,
    tolerance: Annotated[float | None, typer.Option("--tolerance", hidden=True)] = None,  # the name of 0.1.0
    json_output: Annotated[
        bool, typer.Option("--json", help="One JSON object on stdout.", rich_help_panel=_PANEL)
    ] = False,
) -> None:
    """What value should my loss have: collapsed, optimal, and at the balanced simplex.

    With --rows alone only the collapsed value. With --observed it says what the value that training printed means.
    """
    equal_within = equal_within if tolerance is None else tolerance
    classes: ClassDistribution | None
    if simclr is not None:
        classes, chosen = _simclr(simclr, class_options, loss_options, rows)
    else:
        chosen = loss_options.read()
        finite = loss_options.loss in (None, loss_input.LossName.SUPCON) and loss_options.batch_size not in (
            None,
            "inf",
        )
        if not class_options.given and rows is None and not finite:
            raise UsageError(
                "give classes (for example --counts 900,50,50), --rows N for the collapsed value alone, or --simclr N"
            )
        classes = class_options.read() if class_options.given else None

    from optgeom.collapse.loss_values import loss_values

    with working("solving" if classes is None else f"solving {classes.num_classes} classes"):
        found = loss_values(
            classes,
            chosen,
            rows=rows,
            base_temperature=base_temperature,
            observed=observed,
            equal_within=equal_within,
        )
    if json_output:
        number = None if classes is None else classes.num_classes
        emit_json({**found.as_dict(), "base_temperature": base_temperature, "num_classes": number})
    else:
        print_summary(_lines(found, classes, chosen, simclr, base_temperature))


def _simclr(
    pairs: int, class_options: ClassOptions, loss_options: LossOptions, rows: int | None
) -> tuple[ClassDistribution, Loss]:
    """SimCLR is SupCon on a batch in which every image is a class of its own, with two views."""
    if class_options.given or rows is not None or loss_options != LossOptions(temperature=loss_options.temperature):
        raise UsageError(
            "--simclr goes with --temperature and --base-temperature only: its classes are the images, its loss is fixed"
        )
    if pairs < 2:
        raise UsageError(
            f"--simclr must be 2 pairs or more; got {pairs} (the pairs of a batch are each other's negatives)"
        )

    from optgeom.inputs.classes import ClassDistribution
    from optgeom.losses import SupConFullBatch

    temperature = loss_input.DEFAULT_TEMPERATURE if loss_options.temperature is None else loss_options.temperature
    return ClassDistribution.from_groups([1], [pairs]), SupConFullBatch(temperature, views=2)


def _lines(
    found: LossValues, classes: ClassDistribution | None, chosen: Loss, simclr: int | None, base: float | None
) -> Iterable[tuple[str, str]]:
    if simclr is not None:
        yield "Loss", f"SimCLR, {simclr} pairs in a batch, temperature {chosen.temperature:g}"
    elif classes is not None and found.loss is not None:
        yield "Classes", f"{classes.num_classes}"
        yield "Loss", found.loss.words()
    else:
        yield (
            "Loss",
            f"SupCon, {found.rows} rows in a batch"
            + (f", temperature {chosen.temperature:g}" if base is not None else ""),
        )
    if base is not None:
        yield (
            "Factor",
            f"{found.scale:.6g}: temperature {chosen.temperature:g} / base temperature {base:g}, in all values below",
        )
    # The limit of large batches is an offset from a logarithm of the batch size.
    limit = ""
    if found.loss is not None and found.loss.omitted is not None:
        limit = f" + {'' if found.scale == 1 else f'{found.scale:.6g} '}ln({found.loss.omitted})"
    yield "Collapsed", f"{found.collapsed_value:.6f}{limit}  all features at one point: {found.collapsed_formula}"
    if found.optimal_value is not None:
        proof = ""
        if found.geometry is not None:  # a gap below the rounding of the risk itself promises too much
            gap = max(found.geometry.certificate.gap, 2e-16 * (1 + abs(found.geometry.risk)))
            proof = f", proved to within {gap:.0e} of the optimum"
        yield "Optimal", f"{found.optimal_value:.6f}{limit}  the floor: no features go below it{proof}"
    if found.simplex_value is not None:
        yield (
            "Simplex",
            f"{found.simplex_value:.6f}{limit}  all classes at equal angles, which is the optimum only of balanced classes",
        )
    if found.observed is not None:
        yield "Observed", f"{found.observed:.10g}"
        yield "Verdict", str(found.verdict)
    for note in found.notes:
        yield "Note", note
