"""`optgeom loss`: what value should my loss have?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from optgeom.progress import working
from optgeom_cli.batch_form import BatchForm
from optgeom_cli.output import UsageError, emit_json, exit_on_error, print_summary
from optgeom_cli.shared_options import ClassOptions, LossOptions, with_shared_options

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
    batch_form: BatchForm,
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
    dim: Annotated[
        int | None,
        typer.Option("--dim", help="Embedding dimension; in fewer than the optimum needs the floor is a bracket."),
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
    batches: Annotated[
        int, typer.Option("--batches", metavar="N", help="Batches that the observed value is the mean of.")
    ] = 1,
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
    source = batch_form.source
    if source is not None:
        with working("solving"):
            values, words = batch_form.values(
                source,
                loss_options,
                others={"classes": class_options.given, "--rows": rows is not None, "--simclr": simclr is not None},
                dim=dim,
                base_temperature=base_temperature,
                observed=observed,
                equal_within=equal_within,
            )
        if json_output:
            emit_json({**values.as_dict(), "base_temperature": base_temperature, "num_classes": batch_form.num_classes})
        else:
            print_summary([("Loss", words), *_values(values)])
        return
    if simclr is not None:
        classes, chosen = _simclr(simclr, class_options, loss_options, rows)
    else:
        chosen = loss_options.read()
        if not class_options.given and rows is None and chosen.in_rows(None, None)[1] is None:
            raise UsageError(
                "give classes (for example --counts 900,50,50), --rows N for the collapsed value alone, or --pairs N, "
                "--queue K or --per-class P,K for batches without class counts"
            )
        classes = class_options.read() if class_options.given else None

    from optgeom.collapse.loss_values import loss_values

    with working("solving" if classes is None else f"solving {classes.num_classes} classes"):
        values = loss_values(
            classes,
            chosen,
            rows=rows,
            dim=dim,
            base_temperature=base_temperature,
            observed=observed,
            batches=batches,
            equal_within=equal_within,
        )
    if json_output:
        number = None if classes is None else classes.num_classes
        emit_json({**values.as_dict(), "base_temperature": base_temperature, "num_classes": number})
    else:
        print_summary(_lines(values, classes, chosen, simclr, base_temperature))


def _simclr(
    pairs: int, class_options: ClassOptions, loss_options: LossOptions, rows: int | None
) -> tuple[ClassDistribution, Loss]:
    """SimCLR is SupCon on a batch in which every image is a class of its own, with two views."""
    if (
        class_options.given
        or rows is not None
        or loss_options.loss is not None
        or set(loss_options.given) - {"temperature"}
    ):
        raise UsageError(
            "--simclr goes with --temperature and --base-temperature only: its classes are the "
            "images, its loss is fixed"
        )
    if pairs < 2:
        raise UsageError(
            f"--simclr must be 2 pairs or more; got {pairs} (the pairs of a batch are each other's negatives)"
        )

    from optgeom.inputs.classes import ClassDistribution
    from optgeom.losses import SupConFullBatch

    loss = SupConFullBatch(views=2).with_options(loss_options.given)
    return ClassDistribution.from_groups([1], [pairs]), loss


def _lines(
    values: LossValues, classes: ClassDistribution | None, chosen: Loss, simclr: int | None, base: float | None
) -> Iterable[tuple[str, str]]:
    if simclr is not None:
        yield "Loss", f"SimCLR, {simclr} pairs in a batch, temperature {chosen.temperature:g}"
    elif classes is not None and values.loss is not None:
        yield "Classes", f"{classes.num_classes}"
        yield "Loss", values.loss.words()
    else:
        yield (
            "Loss",
            f"SupCon, {values.rows} rows in a batch"
            + (f", temperature {chosen.temperature:g}" if base is not None else ""),
        )
    if base is not None:
        yield (
            "Factor",
            f"{values.scale:.6g}: temperature {chosen.temperature:g} / base temperature {base:g}, in all values below",
        )
    yield from _values(values)


def _values(values: LossValues) -> Iterable[tuple[str, str]]:
    # The limit of large batches is an offset from a logarithm of the batch size.
    limit = ""
    if values.loss is not None and values.loss.omitted is not None:
        limit = f" + {'' if values.scale == 1 else f'{values.scale:.6g} '}ln({values.loss.omitted})"
    yield "Collapsed", f"{values.collapsed_value:.6f}{limit}  all features at one point: {values.collapsed_formula}"
    if values.bracket is not None:
        low, high = values.bracket
        where = "one dimension" if values.dim == 1 else f"{values.dim} dimensions"
        if high > low:
            yield "Floor", f"{low:.6f}{limit}  no features in {where} with each class at one point go below it"
            yield "Best found", f"{high:.6f}{limit}  reached in {where}; the lowest value lies in this bracket"
        else:
            yield "Optimal", f"{high:.6f}{limit}  the lowest value in {where}: all placements were tried"
    elif values.optimal_value is not None:
        proof = ""
        if values.geometry is not None:  # a gap below the rounding of the risk itself promises too much
            gap = max(values.geometry.certificate.gap, 2e-16 * (1 + abs(values.geometry.risk)))
            proof = f", proved to within {gap:.0e} of the optimum"
        yield "Optimal", f"{values.optimal_value:.6f}{limit}  the floor: no features go below it{proof}"
    if values.simplex_value is not None and values.loss is not None:
        which = "is the optimum only of balanced classes" if values.bracket is None else "needs more dimensions"
        yield "Simplex", f"{values.simplex_value:.6f}{limit}  all classes at equal angles, which {which}"
    if values.batch_sd == 0:
        yield "Noise", "none at the floor: every batch has this value there"
    elif values.batch_sd is not None:
        yield "Noise", f"one batch varies by {values.batch_sd:.2g} (one standard deviation, at the optimum)"
    if values.observed is not None:
        yield "Observed", f"{values.observed:.10g}"
        yield "Verdict", str(values.verdict)
    for note in values.notes:
        yield "Note", note
