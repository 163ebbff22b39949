# The public names, each once: type checkers read them here, and `__init__.py` imports each when it is first used.
from optgeom.certificates import Certificate as Certificate
from optgeom.collapse.design import Design as Design
from optgeom.collapse.design import design as design
from optgeom.collapse.loss_values import LossValues as LossValues
from optgeom.collapse.loss_values import loss_values as loss_values
from optgeom.collapse.ranges import Ranges as Ranges
from optgeom.collapse.ranges import SlackNeeded as SlackNeeded
from optgeom.collapse.ranges import ranges as ranges
from optgeom.collapse.ranges import slack_needed as slack_needed
from optgeom.collapse.relaxation import Relaxation as Relaxation
from optgeom.collapse.relaxation import relaxation as relaxation
from optgeom.collapse.scan import Scan as Scan
from optgeom.collapse.scan import scan as scan
from optgeom.collapse.sensitivity import sensitivity as sensitivity
from optgeom.collapse.thresholds import CollapseThreshold as CollapseThreshold
from optgeom.collapse.thresholds import collapse_margin as collapse_margin
from optgeom.collapse.thresholds import collapse_threshold as collapse_threshold
from optgeom.embeddings import metrics as metrics
from optgeom.embeddings.result import Validation as Validation
from optgeom.embeddings.validate import validate as validate
from optgeom.errors import IncompatibleError as IncompatibleError
from optgeom.errors import InvalidInputError as InvalidInputError
from optgeom.errors import MissingDependencyError as MissingDependencyError
from optgeom.errors import NotCertifiedError as NotCertifiedError
from optgeom.errors import OptGeomError as OptGeomError
from optgeom.errors import SolverError as SolverError
from optgeom.geometry import Geometry as Geometry
from optgeom.inputs import profiles as profiles
from optgeom.inputs.classes import ClassDistribution as ClassDistribution
from optgeom.losses import GeneralizedContrastive as GeneralizedContrastive
from optgeom.losses import InfoNCE as InfoNCE
from optgeom.losses import Loss as Loss
from optgeom.losses import SupCon as SupCon
from optgeom.losses import SupConFullBatch as SupConFullBatch
from optgeom.prototypes import align as align
from optgeom.realization.api import Realization as Realization
from optgeom.realization.api import realize as realize
from optgeom.realization.weights import Weights as Weights
from optgeom.sampling.pairs import Pairs as Pairs
from optgeom.sampling.recover import Recovery as Recovery
from optgeom.sampling.recover import recover as recover
from optgeom.solvers.api import certify_gram as certify_gram
from optgeom.solvers.api import solve as solve
from optgeom.training.monitor import GeometryMonitor as GeometryMonitor

__all__: list[str]
__version__: str
