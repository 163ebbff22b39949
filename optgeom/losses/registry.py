"""The losses by name: where each is defined, what it is called, and which parameters it takes.

A loss of the package is one file and one entry here; from outside, `register` adds a class at run time. The entries
import nothing until a loss is used.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from optgeom.losses import options
from optgeom.losses.options import Option

if TYPE_CHECKING:
    from optgeom.losses.base import Loss


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What is known of a loss before it is imported.

    Attributes
    ----------
    home : str or type
        Module and name of the class as "module:Class", or the class itself.
    label : str
        Short name for titles and tables.
    summary : str
        What the loss is, in a few words, for the help of `--loss`.
    options : tuple of Option
        Its parameters. Every one has a default, so that `Class()` is a loss.
    on_command_line : bool
        False for losses that take code, which no option can give.
    """

    home: str | type[Loss]
    label: str
    summary: str
    options: tuple[Option, ...]
    on_command_line: bool = True


_ENTRIES: dict[str, Entry] = {
    "supcon": Entry(
        home="optgeom.losses.supcon:SupCon",
        label="SupCon",
        summary="SupCon over batches",
        options=(
            options.TEMPERATURE,
            options.BATCH_SIZE,
            options.views("views per image", 2),
            options.SINGLETONS,
            *options.WEIGHTS,
        ),
    ),
    "infonce": Entry(
        home="optgeom.losses.infonce:InfoNCE",
        label="InfoNCE",
        summary="InfoNCE",
        options=(
            options.TEMPERATURE,
            options.NEGATIVES,
            options.ALPHA,
            options.REDUCTION,
            options.SAMPLING,
            *options.WEIGHTS,
        ),
    ),
    "supcon-full": Entry(
        home="optgeom.losses.supcon:SupConFullBatch",
        label="SupCon",
        summary="SupCon with all samples in one batch",
        options=(options.TEMPERATURE, options.views("rows per sample", 1), options.SINGLETONS, *options.WEIGHTS),
    ),
    "generalized": Entry(
        home="optgeom.losses.custom:GeneralizedContrastive",
        label="generalized",
        summary="your own psi",
        options=(options.TEMPERATURE, options.NEGATIVES, options.SAMPLING),
        on_command_line=False,
    ),
}
DEFAULT = "supcon"


def names() -> tuple[str, ...]:
    """Names of all losses that can be written on a command line."""
    return tuple(name for name, entry in _ENTRIES.items() if entry.on_command_line)


def find(name: str) -> Entry | None:
    """The entry of a name; None where no loss has it."""
    return _ENTRIES.get(name)


def options_of(name: str) -> tuple[Option, ...]:
    """The parameters of a registered loss."""
    return _ENTRIES[name].options


def parameter(name: str) -> Option | None:
    """A parameter as the first loss that has it declares it; None where no loss has it."""
    options = (option for entry in _ENTRIES.values() for option in entry.options if option.name == name)
    return next(options, None)


def searched() -> tuple[str, ...]:
    """Parameters that `design` can search for, of any loss on the command line."""
    return tuple(
        dict.fromkeys(option.name for name in names() for option in options_of(name) if option.search is not None)
    )


def loss_class(name: str) -> type[Loss]:
    """The class of a registered loss, imported now."""
    home = _ENTRIES[name].home
    if not isinstance(home, str):
        return home
    module, _, attribute = home.partition(":")
    kind: type[Loss] = getattr(importlib.import_module(module), attribute)
    return kind


def register(kind: type[Loss], *, summary: str, label: str | None = None, options: tuple[Option, ...] = ()) -> None:
    """Make a loss known by its `name`, as those of the package are.

    Parameters
    ----------
    kind : type
        A dataclass derived from `Loss`, whose fields all have defaults.
    summary : str
        What it is, in a few words.
    label : str, optional
        Short name for titles and tables; `kind.name` by default.
    options : tuple of Option
        Its parameters, in the order in which help lists them.

    Raises
    ------
    InvalidInputError
        A name that another class has.
    """
    from optgeom.errors import InvalidInputError

    name = kind.name
    if name in _ENTRIES and _ENTRIES[name].home is not kind:
        raise InvalidInputError(f"`name` of a loss must be new; got {name!r}, which is taken (choose another name)")
    _ENTRIES[name] = Entry(home=kind, label=label or name, summary=summary, options=options)
