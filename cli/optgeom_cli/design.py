"""`optgeom design`: what to change so that classes do not collapse, or so that the closest two reach an angle."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from optgeom.losses import registry
from optgeom.progress import working
from optgeom_cli.output import UsageError, emit_json, exit_on_error, print_summary
from optgeom_cli.shared_options import ClassOptions, LossOptions, with_shared_options

if TYPE_CHECKING:
    from optgeom.collapse.design import Design


PARAMETERS = tuple(name.replace("_", "-") for name in ("sampler", *registry.searched(), "epsilon"))


@with_shared_options
@exit_on_error()
def design(
    parameter: Annotated[
        Literal[PARAMETERS],  # type: ignore[valid-type]
        typer.Option("--parameter", help="What to change; everything else stays as given."),
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
    if parameter == "sampler" and class_options.sampler is not None:
        raise UsageError(
            f"--parameter sampler looks for the sampler; got --sampler {class_options.sampler} too (leave it out)"
        )
    classes = class_options.read()
    chosen = loss_options.read()
    from optgeom.collapse.design import design as run

    with working(f"searching over the {parameter}"):
        answer = run(classes, chosen, parameter.replace("-", "_"), min_angle=min_angle)
    if json_output:
        emit_json(answer.as_dict())
        return
    print_summary(_lines(answer, parameter))


def _lines(answer: Design, parameter: str) -> Iterable[tuple[str, str]]:
    yield "Goal", answer.goal
    yield "Parameter", parameter
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
