"""Scripts of the docs and benchmarks as modules, for the tests of what they compute."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

DOCS = Path(__file__).parents[2] / "docs"
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@contextlib.contextmanager
def importable(folder: Path) -> Iterator[None]:
    """The scripts of a folder may be imported by their names, as they import each other."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def script(name: str) -> ModuleType:
    """The script docs/NAME.py, run as a module."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
