"""Shapes in annotations: what tests/helpers/shapes.py refuses, and that it reads every shape there is."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import shapes
from jaxtyping import TypeCheckError

import optgeom
from optgeom.programs import group_matrix

ROOT = Path(optgeom.__file__).parents[1]
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for room in shapes.ROOMS
    for path in sorted((ROOT / "optgeom" / room).rglob("*.py"))
    if "Annotated[" in path.read_text(encoding="utf-8")
]
SQUARE, LINE, SIZES = np.eye(3), np.ones(3), np.array([1, 2, 3])


def functions(module: Any) -> Iterator[Callable[..., Any]]:
    """Functions and methods defined in a module."""
    for owner in [module, *(kind for _, kind in inspect.getmembers(module, inspect.isclass))]:
        for member in vars(owner).values():
            function = inspect.unwrap(getattr(member, "fget", getattr(member, "__func__", member)))
            if inspect.isfunction(function) and function.__module__ == module.__name__:
                yield function


@pytest.mark.parametrize("name", MODULES)
def test_every_shape_is_read(name: str) -> None:
    """A hint that cannot be evaluated would be skipped without a word."""
    hints = [
        eval(hint, function.__globals__)
        for function in functions(importlib.import_module(name))
        for hint in function.__annotations__.values()
        if "Annotated[" in str(hint)
    ]
    assert hints
    assert all(shapes.shaped(hint) is not Any for hint in hints)


def test_right_shapes_pass() -> None:
    assert group_matrix.complement(SQUARE, LINE, SIZES).shape == (3,)


@pytest.mark.parametrize(
    ("between", "diagonal", "sizes", "wrong"),
    [
        (np.eye(4), LINE, SIZES, "diagonal"),
        (np.ones((3, 4)), LINE, SIZES, "between"),
        (SQUARE, np.ones(1), SIZES, "diagonal"),
        (SQUARE.astype(np.float32), LINE, SIZES, "between"),
        (SQUARE, LINE, SIZES.astype(float), "sizes"),
        (SQUARE.tolist(), LINE, SIZES, "between"),
        (SQUARE, None, SIZES, "diagonal"),
    ],
)
def test_wrong_shapes_are_refused(between: Any, diagonal: Any, sizes: Any, wrong: str) -> None:
    with pytest.raises(TypeCheckError, match=f"parameter '{wrong}'"):
        group_matrix.complement(between, diagonal, sizes)
