"""Contrastive losses as torch modules; on features at class means each is the objective of a program of optgeom."""

from optgeom.training.losses.base import ContrastiveLoss
from optgeom.training.losses.generalized import GeneralizedContrastiveLoss, InfoNCEPsi
from optgeom.training.losses.reweighted import HardContrastiveLoss, SupportCorrectedLoss
from optgeom.training.losses.supcon import SoftSupConLoss, SupConLoss
from optgeom.training.losses.weighted import WeightedInfoNCELoss, XCLRLoss, YAwareLoss

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
