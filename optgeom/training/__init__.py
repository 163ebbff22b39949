"""Training with contrastive losses, in torch: the only room that imports it at the top of a file (extra `torch`)."""

from __future__ import annotations

from optgeom.errors import MissingDependencyError


def require_torch() -> None:
    """Raise `MissingDependencyError`, which names the extra, where torch is not installed."""
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError("training needs torch: pip install 'optgeom[torch]'") from error
