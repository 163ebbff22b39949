"""The law of one negative, seen from an anchor: who is compared with whom, and how often.

Classes of one group have the same probability, so a law is stored per group: entry (g, h) speaks of ONE class of group
h, other than the anchor's own class, seen from one anchor class of group g. A program without groups is the case where
every group holds one class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt

from optgeom._numerics import Square, Vector
from optgeom.errors import InvalidInputError


@dataclass(frozen=True)
class NegativeLaw:
    """Probabilities of the class of a negative.

    Attributes
    ----------
    count : (G, G)
        Number of classes of group h other than the anchor's own: m_h, and m_g - 1 on the diagonal.
    other : (G, G)
        Probability p[i, j] of one such class j of group h for an anchor i of group g; 0 where count is 0.
    own : (G,)
        Probability p[i, i] that the negative has the anchor's own class (a class collision). own + sum_h count * other
        = 1.
    """

    count: Square
    other: Square
    own: Vector


def other_classes(sizes: Annotated[npt.NDArray[np.int64], "G"]) -> Square:
    """(G, G) number of classes of group h other than one given class of group g."""
    count = np.broadcast_to(sizes.astype(np.float64), (sizes.size, sizes.size)).copy()
    np.fill_diagonal(count, sizes - 1.0)
    return count


def ucl(sizes: Annotated[npt.NDArray[np.int64], "G"], proportions: Vector) -> NegativeLaw:
    """Negatives drawn from all classes, collisions included: p[i, j] = lam_j."""
    count = other_classes(sizes)
    other = np.where(count > 0, proportions[None, :], 0.0)
    return NegativeLaw(count, other, proportions.copy())


def scl(sizes: Annotated[npt.NDArray[np.int64], "G"], proportions: Vector) -> NegativeLaw:
    """Negatives drawn from the other classes: p[i, j] = lam_j / sum_{l != i} lam_l, p[i, i] = 0."""
    count = other_classes(sizes)
    # The others are summed: 1 - lam_i loses all digits of a rare class beside a majority of nearly 1.
    rest = count @ proportions
    other = np.where(count > 0, proportions[None, :] / rest[:, None], 0.0)
    return NegativeLaw(count, other, np.zeros(sizes.size))


def explicit(matrix: npt.ArrayLike, num_classes: int) -> NegativeLaw:
    """Any row-stochastic (C, C) matrix in class order; every class is then a group of its own.

    Raises
    ------
    InvalidInputError
        If the matrix is not (C, C), has a negative or non-finite entry, or a row whose sum differs from 1 by more than
        rounding.
    """
    given = np.asarray(matrix)
    # Rows of a narrower floating type sum to 1 within its own rounding.
    slack = 1e-9 if given.dtype.kind != "f" else max(1e-9, 4 * num_classes * float(np.finfo(given.dtype).eps))
    law = given.astype(np.float64)
    if law.shape != (num_classes, num_classes):
        raise InvalidInputError(
            f"`negative_law` must have shape (C, C) = ({num_classes}, {num_classes}) in class order; got {law.shape}"
        )
    if not np.all(np.isfinite(law)) or law.min() < 0:
        row, column = np.argwhere(~(law >= 0) | ~np.isfinite(law))[0]
        raise InvalidInputError(
            f"`negative_law` must hold finite probabilities >= 0; got {law[row, column]} in row {row}, column {column}"
        )
    sums = law.sum(axis=1)
    worst = int(np.argmax(np.abs(sums - 1)))
    if abs(sums[worst] - 1) > slack:
        came = f"row {worst} sums to {sums[worst]:.12g}"
        raise InvalidInputError(f"`negative_law` must have rows that sum to 1; {came} (divide each row by its sum)")
    law /= sums[:, None]
    own = np.diag(law).copy()
    np.fill_diagonal(law, 0.0)
    return NegativeLaw(other_classes(np.ones(num_classes, dtype=np.int64)), law, own)
