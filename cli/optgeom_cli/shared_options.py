"""Options that many commands share, declared once: a command takes `ClassOptions` or `LossOptions` as one argument.

`with_shared_options` replaces such an argument, of any dataclass, by the options that it stands for, so that typer sees
a flat signature.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from optgeom_cli import class_input, loss_input

if TYPE_CHECKING:
    from optgeom.inputs.classes import ClassDistribution
    from optgeom.losses.base import Loss


@dataclass(frozen=True, kw_only=True)
class ClassOptions:
    """Where the classes come from."""

    counts: class_input.CountsOption = None
    proportions: class_input.ProportionsOption = None
    counts_file: class_input.CountsFileOption = None
    labels: class_input.LabelsOption = None
    profile: class_input.ProfileOption = None
    sampler: class_input.SamplerOption = None
    drop_empty: class_input.DropEmptyOption = False
    ignore_label: class_input.IgnoreLabelOption = None

    @property
    def given(self) -> bool:
        """True if any of them was given; a command to which classes are optional must then read them."""
        return self != ClassOptions()

    @property
    def source(self) -> str | None:
        """Name of the classes: the profile or the file that they come from."""
        return self.profile or next((str(path) for path in (self.counts_file, self.labels) if path is not None), None)

    def read(self) -> ClassDistribution:
        """The classes; see `class_input.read_classes`."""
        return class_input.read_classes(**self.as_given())

    def as_given(self) -> dict[str, Any]:
        """Options by name."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


@dataclass(frozen=True, kw_only=True)
class LossOptions:
    """The loss and its parameters."""

    loss: loss_input.LossOption = None
    temperature: loss_input.TemperatureOption = None
    negatives: loss_input.NegativesOption = None
    alpha: loss_input.AlphaOption = None
    negatives_reduction: loss_input.ReductionOption = None
    sampling: loss_input.SamplingOption = None
    batch_size: loss_input.BatchSizeOption = None
    views: loss_input.ViewsOption = None
    singletons: loss_input.SingletonsOption = None

    @property
    def given(self) -> bool:
        """True if any of them was given, even with its default value."""
        return self != LossOptions()

    def read(self) -> Loss:
        """The loss; see `loss_input.read_loss`."""
        return loss_input.read_loss(**self.as_given())

    def as_given(self) -> dict[str, Any]:
        """Options by name."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


def with_shared_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the arguments of a command that are dataclasses by their fields, as options."""
    hints = typing.get_type_hints(command, include_extras=True)
    spread: dict[str, type] = {}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        kind = hints[name]
        if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=kind))
            continue
        spread[name] = kind
        declared = typing.get_type_hints(kind, include_extras=True)
        for field in dataclasses.fields(kind):
            parameters.append(
                inspect.Parameter(
                    field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=declared[field.name]
                )
            )

    @functools.wraps(command)
    def run(**given: Any) -> None:
        grouped = {
            name: kind(**{field.name: given.pop(field.name) for field in dataclasses.fields(kind)})
            for name, kind in spread.items()
        }
        command(**grouped, **given)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run
