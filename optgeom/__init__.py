"""optgeom: exact optimal class-mean geometries of contrastive learning on imbalanced data, with certificates.

`__init__.pyi` lists the public names for type checkers; each is imported when it is first used (PEP 562, SPEC 1), so
that `import optgeom` loads nothing else.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

__version__ = "0.2.0.dev0"


def _read_names() -> dict[str, str]:
    """The module that each public name comes from."""
    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    return {
        alias.name: str(line.module) for line in stub.body if isinstance(line, ast.ImportFrom) for alias in line.names
    }


_HOMES = _read_names()
# What `from optgeom import *` brings needs no extra.
__all__ = sorted(name for name, home in _HOMES.items() if not home.startswith("optgeom.training"))


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'optgeom' has no attribute {name!r}")
    try:
        value = getattr(__import__(_HOMES[name], fromlist=[name]), name)
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "torchmetrics"):
            raise
        from optgeom.errors import MissingDependencyError

        raise MissingDependencyError(f"`{name}` needs {error.name}: pip install 'optgeom[torch]'") from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
