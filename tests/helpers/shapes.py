"""Shapes in annotations, checked while the tests run.

`Annotated[Array, "G G"]` says of an array of floats that it is square; equal names of axes are equal lengths within one
call. The package needs nothing for it. In the tests an import hook of jaxtyping hands each function of the rooms below
to `check`, and beartype refuses arrays of other kinds and shapes. Annotations without a shape are left to mypy, and to
functions whose part it is to refuse what a user gives.
"""

from __future__ import annotations

import functools
import operator
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any

import beartype
import jaxtyping
import numpy as np

ROOMS = ("losses", "programs", "certificates", "solvers")
KINDS = {np.floating: jaxtyping.Float64, np.integer: jaxtyping.Integer, np.bool_: jaxtyping.Bool}


def shaped(hint: Any) -> Any:
    """The annotation with its shapes as jaxtyping has them; Any where it has none."""
    parts = typing.get_args(hint)
    if typing.get_origin(hint) is Annotated:
        number = typing.get_args(typing.get_args(parts[0])[1])[0]
        (kind,) = (kind for base, kind in KINDS.items() if issubclass(number, base))
        return kind[np.ndarray, parts[1]]
    inner = [part if part is Ellipsis or part is type(None) else shaped(part) for part in parts]
    if all(part in (Any, Ellipsis, type(None)) for part in inner):
        return Any
    if isinstance(hint, types.UnionType):
        return functools.reduce(operator.or_, inner)
    if typing.get_origin(hint) is tuple:
        return tuple[*inner]
    raise AssertionError(f"shapes inside {hint} are not checked: state them another way")


def evaluated(hint: Any, function: Callable[..., Any]) -> Any:
    """The annotation itself; Any where it names what only type checkers import."""
    if not isinstance(hint, str):
        return hint
    try:
        return eval(hint, function.__globals__)
    except NameError:
        return Any


def check(function: Callable[..., Any]) -> Callable[..., Any]:
    """Refuse arguments and results of another shape than annotated."""
    annotations = {name: evaluated(given, function) for name, given in function.__annotations__.items()}
    function.__annotations__ = {name: hint for name, given in annotations.items() if (hint := shaped(given)) is not Any}
    return beartype.beartype(function) if function.__annotations__ else function


def install() -> None:
    """Check shapes from now on; before optgeom is imported."""
    jaxtyping.install_import_hook([f"optgeom.{room}" for room in ROOMS], "helpers.shapes.check")
