"""How far class means are from the optimal geometry: the figures that a run logs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from optgeom._numerics import Array, arccos_clipped
from optgeom.embeddings.statistics.deviation import EQUAL_COSINES, NEARLY_EQUAL_COSINES

LISTED_CLASSES = 12  # up to here a log holds the angle of every pair


@dataclass(frozen=True)
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
        Classes in none of them.
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
        found, best = gram[pairs], optimal[pairs]
        angles = np.degrees(arccos_clipped(found))
        known = np.isfinite(found)
        listed = None
        if gram.shape[0] <= LISTED_CLASSES:
            listed = tuple(float(angle) if held else None for angle, held in zip(angles, known, strict=True))
        lacking = tuple(np.flatnonzero(~np.isfinite(np.diag(gram))).tolist())
        counted = (int(known.sum()), known.size, lacking)
        if not known.any():
            return cls(None, None, None, listed, *counted)
        missed = float(np.sum((found - best)[known] ** 2))
        spread = float(np.std(best[known]))
        r2 = None if spread < EQUAL_COSINES else 1 - missed / (int(known.sum()) * spread**2)
        weak = r2 is not None and spread < NEARLY_EQUAL_COSINES
        errors = np.abs(angles - np.degrees(arccos_clipped(best)))[known]
        size = float(np.sum(best[known] ** 2))
        return cls(float(errors.max()), r2, float(np.sqrt(missed / size)) if size > 0 else None, listed, *counted, weak)

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
