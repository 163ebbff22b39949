r"""Directions of the class means, and the cosines between them, freed from the shortening that finite samples cause.

With z_1 .. z_n the unit rows of a class (or the means of the unit views of its images) and m = (1/n) sum z_i,

    rho^2 = (|sum_i z_i|^2 - sum_i |z_i|^2) / (n (n - 1)),        u = m / rho,
    A_cd  = u_c . u_d   (c != d),        A_cc = 1.

rho^2 is the mean of z_i . z_j over pairs of different images, hence unbiased for |E z|^2, whereas |m|^2 exceeds it by
tr(Sigma)/n. The numerator m_c . m_d is unbiased too, so A is free of the bias of the cosine between the means, which
pulls every angle towards 90 degrees (rho = .7 and n = 5: 114 degrees are read for 120, and 34 for coincident classes).
The price is that A may leave [-1, 1]; it is not clipped before it is tested.

Where image i has weight w_i, with W = sum w_i and W2 = sum w_i^2,

    rho^2 = (|sum_i w_i z_i|^2 - sum_i w_i^2 |z_i|^2) / (W^2 - W2),        u = sum_i w_i z_i / (W rho).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from optgeom._numerics import EPS, Array, freeze
from optgeom.embeddings.moments.first_pass import ClassMoments
from optgeom.errors import InvalidInputError


@dataclass(frozen=True, kw_only=True, eq=False)
class Directions:
    """Directions of the class means. All arrays are read-only.

    Attributes
    ----------
    names : tuple of str, length C
    counts : (C,) int64
        Images of each class.
    rho_squared : (C,)
        Unbiased squared length of the class mean; nan where n_c = 1, and may be negative.
    rho : (C,)
        Its root, in (0, 1]: 1 where all images of a class coincide. nan where the class has no direction.
    vectors : (C, d)
        u_c = m_c / rho_c; nan where the class has no direction. Slightly longer than 1: only the products of different
        classes are free of bias.
    gram : (C, C)
        A, de-attenuated, unit diagonal, not clipped; nan where a class has no direction.
    mean_gram : (C, C)
        M_cd = m_c . m_d with rho_c^2 on the diagonal: unbiased for the products of the true means.
    known : (C,) bool
        Classes that have a direction: at least two images and rho_c^2 > 0.
    """

    names: tuple[str, ...]
    counts: npt.NDArray[np.int64]
    rho_squared: Array
    rho: Array
    vectors: Array
    gram: Array
    mean_gram: Array
    known: npt.NDArray[np.bool_]

    def __post_init__(self) -> None:
        freeze(self)

    @property
    def num_classes(self) -> int:
        """C, the classes that occur."""
        return len(self.names)

    @property
    def singletons(self) -> tuple[str, ...]:
        """Classes of one image, whose spread is unknown."""
        return tuple(name for name, single in zip(self.names, self.counts < 2, strict=True) if single)

    @property
    def without_direction(self) -> tuple[str, ...]:
        """Classes of several images that share no direction: rho_c^2 <= 0."""
        lacking = (self.counts >= 2) & ~self.known
        return tuple(name for name, without in zip(self.names, lacking, strict=True) if without)

    @property
    def median_rho(self) -> float | None:
        """Median of rho over the classes that have several images, 0 for those without direction.

        None where there are none.
        """
        several = self.counts >= 2
        return float(np.median(np.sqrt(np.maximum(self.rho_squared[several], 0.0)))) if several.any() else None


def class_directions(moments: ClassMoments) -> Directions:
    """Directions and their Gram matrix from the sums of each class.

    Parameters
    ----------
    moments : ClassMoments
        Counts (C,), sums (C, d), squares (C,).

    Returns
    -------
    Directions

    Raises
    ------
    InvalidInputError
        A class without images.
    """
    counts = np.array(moments.counts, dtype=np.int64)
    if counts.size and counts.min() < 1:
        empty = int(counts.argmin())
        raise InvalidInputError(
            f"`counts` must be >= 1; got {counts[empty]} for class {moments.names[empty]} (leave empty classes out)"
        )
    n = counts.astype(np.float64)
    rho_squared, rho, vectors, gram = weighted_directions(moments.sums, moments.squares, n, n, counts > 1)
    means = moments.sums / n[:, None]
    mean_gram = means @ means.T
    mean_gram = (mean_gram + mean_gram.T) / 2
    mean_gram[np.diag_indices_from(mean_gram)] = rho_squared
    return Directions(
        names=tuple(moments.names),
        counts=counts,
        rho_squared=rho_squared,
        rho=rho,
        vectors=vectors,
        gram=gram,
        mean_gram=mean_gram,
        known=~np.isnan(rho),
    )


def weighted_directions(
    sums: Array, squares: Array, weight: Array, weight_squares: Array, several: npt.NDArray[np.bool_]
) -> tuple[Array, Array, Array, Array]:
    """Directions of the classes from weighted sums over their images.

    Parameters
    ----------
    sums : (C, d)
        sum_i w_i z_i.
    squares : (C,)
        sum_i w_i^2 |z_i|^2.
    weight, weight_squares : (C,)
        W and W2, both the number of images where all weights are 1.
    several : (C,) bool
        Classes with images enough for a direction.

    Returns
    -------
    rho_squared : (C,)
        nan for classes without several images.
    rho : (C,)
        nan for classes without a direction.
    vectors : (C, d)
        u_c; nan for classes without a direction.
    gram : (C, C)
        A with unit diagonal; nan for classes without a direction.
    """
    pairs = np.where(several, weight**2 - weight_squares, 1.0)
    rho_squared = np.where(several, (np.einsum("cd,cd->c", sums, sums) - squares) / pairs, np.nan)
    # The difference is exact to a few eps n^2: below that a direction is rounding (e.g. two opposite rows).
    known = np.where(several, rho_squared, 0.0) > 8 * EPS
    rho = np.where(known, np.sqrt(np.where(known, rho_squared, 1.0)), np.nan)
    vectors = sums / (np.where(several, weight, np.nan) * rho)[:, None]
    gram = vectors @ vectors.T
    gram = (gram + gram.T) / 2  # BLAS may round the two triangles differently
    # Not by nan in the vectors: they may have no entries (d = 0).
    gram[~(known[:, None] & known[None, :])] = np.nan
    gram[known, known] = 1.0
    return rho_squared, rho, vectors, gram
