"""optgeom: exact optimal class-mean geometries of contrastive learning on imbalanced data, with certificates.

Public names are imported when they are first used (PEP 562): `import optgeom` itself loads nothing else.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optgeom.certificates import Certificate
    from optgeom.collapse.design import Design, design
    from optgeom.collapse.loss_values import LossValues, batch_loss_values, loss_values
    from optgeom.collapse.rank_path import first_rank_loss
    from optgeom.collapse.scan import Scan, scan
    from optgeom.collapse.sensitivity import proportion_sensitivity, temperature_sensitivity
    from optgeom.collapse.thresholds import CollapseThreshold, collapse_margin, collapse_threshold
    from optgeom.embeddings.metrics.recovery import LatentRecovery, latent_recovery
    from optgeom.embeddings.result import Validation
    from optgeom.embeddings.validate import validate
    from optgeom.errors import (
        IncompatibleError,
        InvalidInputError,
        MissingDependencyError,
        NotCertifiedError,
        OptGeomError,
        SolverError,
    )
    from optgeom.geometry import Geometry
    from optgeom.inputs import profiles
    from optgeom.inputs.classes import ClassDistribution, ClassGroups
    from optgeom.losses import GeneralizedContrastive, InfoNCE, Loss, SupCon, SupConFullBatch
    from optgeom.prototypes import align
    from optgeom.realization.api import Realization, realize
    from optgeom.realization.weights import Weights
    from optgeom.sampling.pairs import Pairs
    from optgeom.sampling.recover import Recovery, recover
    from optgeom.solvers.api import certify_gram, solve

__version__ = "0.2.0.dev0"

# The module of each public name.
_HOMES = {
    "Certificate": "certificates",
    "ClassDistribution": "inputs.classes",
    "ClassGroups": "inputs.classes",
    "CollapseThreshold": "collapse.thresholds",
    "Design": "collapse.design",
    "GeneralizedContrastive": "losses",
    "Geometry": "geometry",
    "IncompatibleError": "errors",
    "InfoNCE": "losses",
    "InvalidInputError": "errors",
    "LatentRecovery": "embeddings.metrics.recovery",
    "Loss": "losses",
    "LossValues": "collapse.loss_values",
    "MissingDependencyError": "errors",
    "NotCertifiedError": "errors",
    "OptGeomError": "errors",
    "Pairs": "sampling.pairs",
    "Realization": "realization.api",
    "Recovery": "sampling.recover",
    "Scan": "collapse.scan",
    "SolverError": "errors",
    "SupCon": "losses",
    "SupConFullBatch": "losses",
    "Validation": "embeddings.result",
    "Weights": "realization.weights",
    "align": "prototypes",
    "batch_loss_values": "collapse.loss_values",
    "certify_gram": "solvers.api",
    "collapse_margin": "collapse.thresholds",
    "collapse_threshold": "collapse.thresholds",
    "design": "collapse.design",
    "first_rank_loss": "collapse.rank_path",
    "latent_recovery": "embeddings.metrics.recovery",
    "loss_values": "collapse.loss_values",
    "profiles": "inputs",
    "proportion_sensitivity": "collapse.sensitivity",
    "realize": "realization.api",
    "recover": "sampling.recover",
    "scan": "collapse.scan",
    "solve": "solvers.api",
    "temperature_sensitivity": "collapse.sensitivity",
    "validate": "embeddings.validate",
}

__all__ = [
    "Certificate",
    "ClassDistribution",
    "ClassGroups",
    "CollapseThreshold",
    "Design",
    "GeneralizedContrastive",
    "Geometry",
    "IncompatibleError",
    "InfoNCE",
    "InvalidInputError",
    "LatentRecovery",
    "Loss",
    "LossValues",
    "MissingDependencyError",
    "NotCertifiedError",
    "OptGeomError",
    "Pairs",
    "Realization",
    "Recovery",
    "Scan",
    "SolverError",
    "SupCon",
    "SupConFullBatch",
    "Validation",
    "Weights",
    "align",
    "batch_loss_values",
    "certify_gram",
    "collapse_margin",
    "collapse_threshold",
    "design",
    "first_rank_loss",
    "latent_recovery",
    "loss_values",
    "profiles",
    "proportion_sensitivity",
    "realize",
    "recover",
    "scan",
    "solve",
    "temperature_sensitivity",
    "validate",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'optgeom' has no attribute {name!r}")
    home = importlib.import_module(f"optgeom.{_HOMES[name]}")
    found = importlib.import_module("optgeom.inputs.profiles") if name == "profiles" else getattr(home, name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
