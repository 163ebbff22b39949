"""Losses: what is minimised, as functions of the rows of the class-mean Gram matrix, and what is said of each.

Names are imported when they are first used, so that `losses.registry` and `losses.options` load no numpy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optgeom.losses.base import Loss
    from optgeom.losses.custom import GeneralizedContrastive, Psi
    from optgeom.losses.infonce import InfoNCE
    from optgeom.losses.supcon import SupCon, SupConFullBatch

_HOMES = {
    "GeneralizedContrastive": "custom",
    "InfoNCE": "infonce",
    "Loss": "base",
    "Psi": "custom",
    "SupCon": "supcon",
    "SupConFullBatch": "supcon",
}

__all__ = ["GeneralizedContrastive", "InfoNCE", "Loss", "Psi", "SupCon", "SupConFullBatch"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'optgeom.losses' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"optgeom.losses.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
