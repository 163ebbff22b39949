"""Contrastive losses as torch modules; on features at class means each is the objective of a program of optgeom."""

from optgeom.training.losses.base import ContrastiveLoss
from optgeom.training.losses.generalized import GeneralizedContrastiveLoss
from optgeom.training.losses.hard import HardContrastiveLoss
from optgeom.training.losses.psi import InfoNCEPsi
from optgeom.training.losses.soft_supcon import SoftSupConLoss
from optgeom.training.losses.supcon import SupConLoss
from optgeom.training.losses.support_corrected import SupportCorrectedLoss
from optgeom.training.losses.weighted import WeightedInfoNCELoss
from optgeom.training.losses.x_clr import XCLRLoss
from optgeom.training.losses.y_aware import YAwareLoss

__all__ = [
    "ContrastiveLoss",
    "GeneralizedContrastiveLoss",
    "HardContrastiveLoss",
    "InfoNCEPsi",
    "SoftSupConLoss",
    "SupConLoss",
    "SupportCorrectedLoss",
    "WeightedInfoNCELoss",
    "XCLRLoss",
    "YAwareLoss",
]
