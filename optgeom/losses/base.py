"""What every loss offers: a description, and its rows bound to class groups."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from optgeom.losses.rows import RowLoss

if TYPE_CHECKING:
    from optgeom.inputs.classes import ClassGroups


class Loss(ABC):
    """A contrastive loss at unit-norm features whose classes have collapsed to their means.

    Attributes
    ----------
    temperature : float
        tau > 0, dimensionless; similarities are cosines divided by tau.
    respects_groups : bool
        Whether classes of equal probability are interchangeable (not so under an explicit negative law).
    uniform_negatives : bool
        Whether the k negatives of every anchor are simply drawn from the class proportions (UCL).
    strictly_convex : bool
        Whether the pairwise cosines of the optimum are unique wherever two classes exert a force on each other.
    """

    temperature: float
    respects_groups: bool = True
    uniform_negatives: bool = False
    strictly_convex: bool = True

    @abstractmethod
    def rows(self, groups: ClassGroups) -> RowLoss:
        """Rows bound to groups of equal classes; raises `InvalidInputError` where the loss is undefined for them."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Name and parameters, ready for JSON."""

    def coincident(self, groups: ClassGroups) -> npt.NDArray[np.bool_]:
        """(G,) groups whose classes carry no anchor weight, hence coincide exactly at the optimum."""
        return np.zeros(groups.sizes.size, dtype=np.bool_)


def plain(value: float) -> float | int | str:
    """A parameter as JSON can hold it: infinity becomes the string 'inf'."""
    return "inf" if value == np.inf else value
