"""Options of losses, the same in every command, built from what the registry of losses says of their parameters."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from optgeom.losses import registry
from optgeom.losses.options import Option
from optgeom_cli.output import UsageError

if TYPE_CHECKING:
    from optgeom.losses.base import Loss

_PANEL = "Loss"
GRID = "GRID"  # metavar of an option that takes several values
FIXED = ("flag", "per-class")  # kinds of parameters that a scan does not vary


@dataclass(frozen=True)
class LossOptions:
    """The loss and its parameters.

    Attributes
    ----------
    loss : str or None
        Its name; None where it was not given.
    given : dict
        The parameters that were typed, by name, also where they are those by default: what is typed beside a geometry,
        which has its loss, must not pass unseen.
    """

    loss: str | None
    given: dict[str, Any]

    @staticmethod
    def declared() -> dict[str, Any]:
        """Annotation of each option by name."""
        return {"loss": _loss_option(), **{name: _single(name) for name in parameters()}}

    @classmethod
    def gathered(cls, values: dict[str, Any]) -> LossOptions:
        """From the values of the options, None for those not given."""
        typed = {name: value for name, value in values.items() if name != "loss" and value is not None}
        return cls(values["loss"], typed)

    @property
    def used(self) -> bool:
        """True if any of them was set explicitly, even to its default."""
        return self.loss is not None or bool(self.given)

    def read(self) -> Loss:
        """The loss that the options describe.

        Raises
        ------
        UsageError
            An option of another loss, or text that is not a number.
        InvalidInputError
            A parameter outside its domain.
        """
        name = self.loss or registry.DEFAULT
        refuse_foreign(name, self.given)
        values = {key: value_of(_option_of(name, key), value) for key, value in self.given.items()}
        return registry.loss_class(name).from_options(values)


@dataclass(frozen=True)
class LossAxes:
    """The loss of a scan, and its parameters as axes.

    Attributes
    ----------
    loss : str or None
    given : dict of str to str
        Text of each axis that was typed.
    fixed : dict
        Parameters that a scan does not vary, as typed.
    """

    loss: str | None
    given: dict[str, str]
    fixed: dict[str, Any]

    @staticmethod
    def declared() -> dict[str, Any]:
        """Annotation of each option by name."""
        return {"loss": _loss_option(), **{name: _grid(name) for name in parameters()}}

    @classmethod
    def gathered(cls, values: dict[str, Any]) -> LossAxes:
        """From the values of the options, None for those not given."""
        typed = {name: value for name, value in values.items() if name != "loss" and value is not None}
        fixed = {name: typed.pop(name) for name in list(typed) if _kinds(name)[0].kind in FIXED}
        return cls(values["loss"], typed, fixed)

    def name(self) -> str:
        """Name of the loss: as given, or the first that has all the parameters that were typed."""
        typed = {**self.given, **self.fixed}
        if self.loss is not None:
            refuse_foreign(self.loss, typed)
            return self.loss
        fitting = (name for name in registry.names() if all(_option_of(name, key) for key in typed))
        name = next(fitting, registry.DEFAULT)
        refuse_foreign(name, typed)
        return name

    def build(self) -> Loss:
        """The loss before its axes."""
        name = self.name()
        return registry.loss_class(name)(
            **{key: value_of(_option_of(name, key), typed) for key, typed in self.fixed.items()}
        )


def parameters() -> tuple[str, ...]:
    """Names of all parameters of losses, in the order of the help."""
    return tuple(dict.fromkeys(option.name for name in registry.names() for option in registry.options_of(name)))


def flag(name: str) -> str:
    """A parameter as it is typed."""
    return "--" + name.replace("_", "-")


def refuse_foreign(loss: str, given: Mapping[str, Any]) -> None:
    """Raise `UsageError` for a parameter that this loss does not have."""
    for name in given:
        if _option_of(loss, name) is None:
            owners = " or ".join(f"--loss {other}" for other in registry.names() if _option_of(other, name))
            remedy = f"change --loss, or leave {flag(name)} out"
            raise UsageError(f"{flag(name)} goes with {owners}; got --loss {loss} ({remedy})")


def _option_of(loss: str, name: str) -> Option | None:
    entry = registry.find(loss)
    return None if entry is None else next((option for option in entry.options if option.name == name), None)


def number_or_inf(option: str, text: str) -> float:
    """A number, exact where it is whole, or infinity; the loss says whether it lies in its domain."""
    try:
        number = float(text)
    except ValueError:
        raise UsageError(f"{option} must be a whole number or inf; got {text!r}") from None
    return int(number) if number.is_integer() else number


def value_of(option: Option | None, typed: Any) -> Any:
    """What was typed for a parameter, as its loss takes it."""
    assert option is not None, "foreign parameters are refused before"
    if option.kind == "per-class":
        return _per_class(option, typed)
    return number_or_inf(flag(option.name), typed) if option.infinite else typed


def _per_class(option: Option, text: str) -> Any:
    """One of the words of the option, a file, or ``name=number,name=number``."""
    if text in option.choices:
        return text
    path = Path(text)
    if path.suffix == ".json" or (path.suffix == ".npy" and option.square):
        from optgeom.inputs import files

        try:
            with files.open_regular(path) as file:
                return files.read_array(file) if path.suffix == ".npy" else json.loads(file.read().decode("utf-8"))
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else files.reason(error)
            form = "weights as rows of numbers" if path.suffix == ".npy" else '{"name": number, ...}'
            raise UsageError(f"{flag(option.name)} {text} must hold {form}; got {reason}") from error
    values: dict[str, float] = {}
    for part in text.split(","):
        name, equals, number = part.rpartition("=")
        name = name.strip()
        if name in values:
            raise UsageError(f"{flag(option.name)} must name each class once; got {name!r} twice (leave one out)")
        try:
            values[name] = float(number if equals else "")
        except ValueError:
            raise UsageError(f"{flag(option.name)} must be {_form(option)}; got {part!r} (as cat=1,dog=2)") from None
    return values


def _form(option: Option) -> str:
    files = "FILE.json|FILE.npy" if option.square else "FILE.json"
    return "|".join([*option.choices, "NAME=W,...", files])


def _kinds(name: str) -> list[Option]:
    """The parameter as each loss has it."""
    options = (_option_of(loss, name) for loss in registry.names())
    return [option for option in options if option is not None]


def _loss_option() -> Any:
    names = registry.names()
    listed = [entry.summary + (" (the default)" if name == registry.DEFAULT else "") for name, entry in _entries()]
    text = ", ".join(listed[:-1]) + f", or {listed[-1]}."
    return Annotated[Literal[names] | None, typer.Option("--loss", help=text, rich_help_panel=_PANEL)]  # type: ignore[valid-type]


def _entries() -> list[tuple[str, registry.Entry]]:
    return [(name, entry) for name in registry.names() if (entry := registry.find(name)) is not None]


def _help(name: str) -> str:
    """What the parameter is, for each loss that has it, with its default."""
    texts: dict[str, list[str]] = {}
    for loss, _ in _entries():
        option = _option_of(loss, name)
        if option is not None:
            texts.setdefault(f"{option.help} ({_default(option)})", []).append(loss)
    if len(texts) == 1 and len(next(iter(texts.values()))) == len(registry.names()):
        return next(iter(texts)).capitalize() + "."
    return "; ".join(f"{', '.join(losses)}: {text}" for text, losses in texts.items()) + "."


def _default(option: Option) -> str:
    if option.kind == "flag":
        return "yes" if option.default else "no"
    if option.default is None:
        return "none"
    return "inf" if option.default == math.inf else option.default if option.kind == "choice" else f"{option.default:g}"


def _single(name: str) -> Any:
    """Annotation of a parameter that takes one value."""
    option = _kinds(name)[0]
    kind: Any = {"real": float, "whole": int, "flag": bool}.get(option.kind, str)
    metavar = _form(option) if option.kind == "per-class" else None
    if option.kind == "choice":
        kind = Literal[tuple(dict.fromkeys(word for other in _kinds(name) for word in other.choices))]
    elif option.infinite:
        kind, metavar = str, "N|inf"
    typed = f"{flag(name)}/--no-{flag(name)[2:]}" if option.kind == "flag" else flag(name)
    shown = typer.Option(typed, metavar=metavar, help=_help(name), rich_help_panel=_PANEL)
    return Annotated[kind | None, shown]


def _grid(name: str) -> Any:
    """Annotation of a parameter that takes the values of an axis, but for what is not a number or a word."""
    option = _kinds(name)[0]
    if option.kind in FIXED:
        return _single(name)
    metavar = ",".join(option.choices) if option.kind == "choice" else GRID
    return Annotated[str | None, typer.Option(flag(name), metavar=metavar, help=_help(name), rich_help_panel=_PANEL)]
