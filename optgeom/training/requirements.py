"""Whether torch is there, asked without needing it."""

from __future__ import annotations

from optgeom.errors import MissingDependencyError


def require_torch() -> None:
    """Raise `MissingDependencyError` naming the extra when torch is not there."""
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError("training needs torch: pip install 'optgeom[torch]'") from error
