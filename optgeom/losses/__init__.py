"""Losses: what is minimised, as functions of the rows of the class-mean Gram matrix."""

from optgeom.losses.base import Loss
from optgeom.losses.custom import GeneralizedContrastive, Psi
from optgeom.losses.infonce import InfoNCE
from optgeom.losses.supcon import SupCon, SupConFullBatch

__all__ = ["GeneralizedContrastive", "InfoNCE", "Loss", "Psi", "SupCon", "SupConFullBatch"]
