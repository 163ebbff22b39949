"""What a loop must know about the thing that it trains, and how far its class means are from the optimal geometry."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from optgeom._numerics import Array, arccos_clipped
from optgeom.embeddings.statistics.deviation import EQUAL_COSINES, NEARLY_EQUAL_COSINES

LISTED_CLASSES = 12  # up to here a log holds the angle of every pair
REFRESHING_BATCHES = 50  # whose statistics batch normalisation takes for averaged weights


@dataclass(frozen=True, kw_only=True)
class Terms:
    """One batch, forward; scalar tensors on the device.

    Attributes
    ----------
    total, count : Tensor
        Sum of the loss terms (attached to the graph) and number of anchors.
    inputs, features : Tensor
        Sums over the inputs and the features of the batch, or any other numbers that are not finite as soon as one of
        these is not: they tell where a NaN comes from.
    """

    total: Tensor
    count: Tensor
    inputs: Tensor
    features: Tensor


class Task(ABC):
    """A module with a loss on random batches, and a way to measure its geometry.

    Attributes
    ----------
    module : torch.nn.Module
        Its parameters are trained. A loss with a state is part of it.
    expected_count : float
        Anchors per batch, on average or at most; it only keeps gradients in the range of half precision.
    optimal_loss : float or None
        Smallest possible expectation of the loss.
    description : dict
        What is trained on what, ready for JSON; a run is resumed under the same description only.
    """

    module: torch.nn.Module
    expected_count: float
    optimal_loss: float | None
    description: dict[str, Any]

    @abstractmethod
    def to(self, device: torch.device) -> None:
        """Move everything to a device, before the first batch."""

    @abstractmethod
    def terms(self) -> Terms:
        """Draw the next batch and evaluate the loss on it, without waiting for the device."""

    @abstractmethod
    def distance(self) -> GramDistance:
        """The geometry of the module now, without drawing any random number."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Position in the data and random states, in tensors and plain values."""

    @abstractmethod
    def load(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""

    def refresh(self) -> None:  # noqa: B027 - most modules have nothing to refresh
        """Recompute what depends on the parameters, now their average: the statistics of batch normalisation."""


@dataclass(frozen=True, kw_only=True)
class GramDistance:
    """A Gram matrix of class means beside the optimal one, over the pairs of different classes.

    Attributes
    ----------
    max_angle_error_deg : float or None
        Largest difference of an angle, degrees; None where no pair has an angle.
    class_r2 : float or None
        1 - sum (A - A*)^2 / sum (A* - mean A*)^2; None where the optimal cosines are all equal.
    relative_frobenius : float or None
        sqrt( sum (A - A*)^2 / sum A*^2 ).
    angles_deg : tuple of float or None
        Angles of the pairs i < j in row order, up to 12 classes; None where a class has no direction.
    num_pairs : int
        Pairs of classes that have an angle: the figures above are over these.
    all_pairs : int
        C (C-1) / 2.
    without_direction : tuple of int
        Classes in none of these pairs.
    class_r2_weak : bool
        The standard deviation of the optimal cosines is below .05: class r2 magnifies what is left of the differences.
    """

    max_angle_error_deg: float | None
    class_r2: float | None
    relative_frobenius: float | None
    angles_deg: tuple[float | None, ...] | None
    num_pairs: int = 0
    all_pairs: int = 0
    without_direction: tuple[int, ...] = ()
    class_r2_weak: bool = False

    @classmethod
    def between(cls, gram: Array, optimal: Array) -> GramDistance:
        """From two (C, C) matrices in the same class order; rows and columns of nan are classes without a direction."""
        pairs = np.triu_indices(gram.shape[0], 1)
        cosines, best = gram[pairs], optimal[pairs]
        angles = np.degrees(arccos_clipped(cosines))
        known = np.isfinite(cosines)
        listed = None
        if gram.shape[0] <= LISTED_CLASSES:
            listed = tuple(float(angle) if has_angle else None for angle, has_angle in zip(angles, known, strict=True))
        errors = np.abs(angles - np.degrees(arccos_clipped(best)))[known]
        missed = float(np.sum((cosines - best)[known] ** 2))
        size = float(np.sum(best[known] ** 2))
        spread = float(np.std(best[known])) if known.any() else 0.0
        differing = spread >= EQUAL_COSINES
        return cls(
            max_angle_error_deg=float(errors.max()) if known.any() else None,
            class_r2=1 - missed / (int(known.sum()) * spread**2) if differing else None,
            class_r2_weak=differing and spread < NEARLY_EQUAL_COSINES,
            relative_frobenius=float(np.sqrt(missed / size)) if size > 0 else None,
            angles_deg=listed,
            num_pairs=int(known.sum()),
            all_pairs=known.size,
            without_direction=tuple(np.flatnonzero(~np.isfinite(np.diag(gram))).tolist()),
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "max_angle_error_deg": self.max_angle_error_deg,
            "class_r2": self.class_r2,
            "class_r2_weak": self.class_r2_weak,
            "relative_frobenius": self.relative_frobenius,
            "angles_deg": None if self.angles_deg is None else list(self.angles_deg),
            "num_pairs": self.num_pairs,
            "all_pairs": self.all_pairs,
        }
