"""optgeom: exact optimal class-mean geometries of contrastive learning on imbalanced data, with certificates."""

from optgeom import profiles
from optgeom.certificates import Certificate
from optgeom.classes import ClassDistribution, ClassGroups
from optgeom.errors import IncompatibleError, InvalidInputError, MissingDependencyError, NotCertifiedError, OptGeomError, SolverError
from optgeom.geometry import Geometry
from optgeom.losses import GeneralizedContrastive, InfoNCE, Loss, SupCon, SupConFullBatch
from optgeom.prototypes import align
from optgeom.solvers.api import certify_gram, solve

__version__ = "0.1.0.dev0"

__all__ = [
    "Certificate",
    "ClassDistribution",
    "ClassGroups",
    "GeneralizedContrastive",
    "Geometry",
    "IncompatibleError",
    "InfoNCE",
    "InvalidInputError",
    "Loss",
    "MissingDependencyError",
    "NotCertifiedError",
    "OptGeomError",
    "SolverError",
    "SupCon",
    "SupConFullBatch",
    "align",
    "certify_gram",
    "profiles",
    "solve",
]
