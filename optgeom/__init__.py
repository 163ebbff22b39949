"""optgeom: exact optimal class-mean geometries of contrastive learning on imbalanced data, with certificates."""

from optgeom import profiles
from optgeom.certificates import Certificate
from optgeom.classes import ClassDistribution, ClassGroups
from optgeom.collapse.design import Design, design
from optgeom.collapse.loss_values import LossValues, batch_loss_values, loss_values
from optgeom.collapse.rank_path import first_rank_loss
from optgeom.collapse.scan import Scan, scan
from optgeom.collapse.sensitivity import proportion_sensitivity, temperature_sensitivity
from optgeom.collapse.thresholds import CollapseThreshold, collapse_margin, collapse_threshold
from optgeom.embeddings.metrics.recovery import LatentRecovery, latent_recovery
from optgeom.embeddings.result import Validation
from optgeom.embeddings.validation import validate
from optgeom.errors import (
    IncompatibleError,
    InvalidInputError,
    MissingDependencyError,
    NotCertifiedError,
    OptGeomError,
    SolverError,
)
from optgeom.geometry import Geometry
from optgeom.losses import GeneralizedContrastive, InfoNCE, Loss, SupCon, SupConFullBatch
from optgeom.prototypes import align
from optgeom.realization.api import Realization, realize
from optgeom.realization.weights import Weights
from optgeom.sampling.pairs import Pairs
from optgeom.sampling.recover import Recovery, recover
from optgeom.solvers.api import certify_gram, solve

__version__ = "0.1.0"

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
