"""Options that many commands share, declared once: a command takes `ClassOptions` or `LossOptions` as one argument.

`with_shared_options` replaces such an argument by the options that it stands for, so that typer sees a flat signature.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from optgeom_cli import class_input
from optgeom_cli.loss_input import LossAxes, LossOptions

if TYPE_CHECKING:
    from optgeom.inputs.classes import ClassDistribution


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


__all__ = ["ClassOptions", "LossAxes", "LossOptions", "with_shared_options"]


def with_shared_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with its arguments that stand for several options spread out into these options.

    Such an argument is of a dataclass with a default for each field, or of a class with `declared`, which gives the
    annotations of its options by name (all None where they are not given), and `gathered`, which makes it of their
    values.
    """
    hints = typing.get_type_hints(command, include_extras=True)
    spread: dict[str, tuple[Callable[[dict[str, Any]], Any], list[str]]] = {}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        kind = hints[name]
        if hasattr(kind, "declared"):
            options: dict[str, tuple[Any, Any]] = {
                option: (annotation, None) for option, annotation in kind.declared().items()
            }
            spread[name] = (kind.gathered, list(options))
        elif isinstance(kind, type) and dataclasses.is_dataclass(kind):
            annotations = typing.get_type_hints(kind, include_extras=True)
            options = {field.name: (annotations[field.name], field.default) for field in dataclasses.fields(kind)}
            spread[name] = (functools.partial(_from_fields, kind), list(options))
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=kind))
            continue
        parameters += [
            inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for option, (annotation, default) in options.items()
        ]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        arguments = {
            name: gather({option: given.pop(option) for option in options})
            for name, (gather, options) in spread.items()
        }
        command(**arguments, **given)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _from_fields(kind: Callable[..., Any], values: dict[str, Any]) -> Any:
    return kind(**values)
