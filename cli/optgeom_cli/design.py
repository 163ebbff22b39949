"""`optgeom design`: what to change so that classes do not collapse, or so that the closest two reach an angle."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from optgeom.progress import working
from optgeom_cli.output import UsageError, emit_json, exit_on_error
from optgeom_cli.shared_options import ClassOptions, LossOptions, with_shared_options
from optgeom_cli.summary import print_summary

if TYPE_CHECKING:
    from optgeom.collapse.design import Design


class Parameter(enum.StrEnum):
    """What may be changed."""

    SAMPLER = "sampler"
    TEMPERATURE = "temperature"
    BATCH_SIZE = "batch-size"
    NEGATIVES = "negatives"
    EPSILON = "epsilon"


@with_shared_options
@exit_on_error()
def design(
    parameter: Annotated[
        Parameter, typer.Option("--parameter", help="What to change; everything else stays as given.")
    ],
    class_options: ClassOptions,
    loss_options: LossOptions,
    min_angle: Annotated[
        float | None,
        typer.Option(
            "--min-angle", metavar="DEGREES", help="Wanted smallest angle between two means; without it: no collapse."
        ),
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Sampler power, temperature, batch size, negatives or softness that avoids collapse or reaches a wanted angle.

    Exit code 0 also when no value can: the answer then says so, with the best that was seen.
    """
    if parameter is Parameter.SAMPLER and class_options.sampler is not None:
        raise UsageError(
            f"--parameter sampler looks for the sampler; got --sampler {class_options.sampler} too (leave it out)"
        )
    classes = class_options.read()
    chosen = loss_options.read()
    from optgeom.collapse.design import design as run

    with working(f"searching over the {parameter.value}"):
        found = run(classes, chosen, parameter.value.replace("-", "_"), min_angle=min_angle)
    if json_output:
        emit_json(found.as_dict())
        return
    print_summary(_lines(found, parameter.value))


def _lines(found: Design, parameter: str) -> Iterable[tuple[str, str]]:
    yield "Goal", found.goal
    yield "Parameter", parameter
    yield "Value", "none" if found.value is None else f"{found.value:.6g}"
    yield "Why", found.reason
    if found.geometry is not None:
        geometry = found.geometry
        certified = "certified" if geometry.certificate.certified else "not certified"
        seen = (
            f"smallest angle {geometry.min_angle_deg:.4g} degrees, rank {geometry.rank}, {geometry.regime}, {certified}"
        )
        yield ("There" if found.value is not None else "Best seen"), seen
    if found.note is not None:
        yield "Note", found.note
