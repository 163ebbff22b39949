"""What the sums that a monitor keeps of each class say: directions of the class means, and their distance from the
optimum.

Of the weights w_i and rows z_i of its images a class keeps W = sum w_i, W2 = sum w_i^2, Q = sum w_i^2 |z_i|^2 and S =
sum w_i z_i, from which rho^2 = (|S|^2 - Q) / (W^2 - W2), the weighted mean of z_i . z_j over pairs of different images,
and u = S / (W rho). With equal weights these are the directions of `optgeom.embeddings.statistics.directions`, free of the
shortening that small samples cause. W^2 / W2 is the number of images of equal weight that would be as informative.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from optgeom._numerics import EPS, Array
from optgeom.training.distance import GramDistance

WEIGHT, SQUARED, SQUARES, SUMS = 0, 1, 2, 3  # columns of W, W2 and Q, and the first of S
FORGOTTEN = 1e-3  # weight of a class that was last seen seven windows ago: the features have moved on
FEWEST_IMAGES = 1.5  # W^2 / W2 of one image is 1, whose rho would be 0/0


def readings(table: Array, optimal: Array, proportions: Array, min_images: float) -> dict[str, float]:
    """The numbers of `GeometryMonitor.compute` from the sums of each class.

    Parameters
    ----------
    table : (C, 3 + d)
        W, W2, Q and S of each class.
    optimal : (C, C)
        Optimal Gram matrix.
    proportions : (C,)
        Class proportions that it is optimal for.
    min_images : float
        Least W^2 / W2 of a measured class.
    """
    gram, rho, images = class_directions(table, min_images)
    known = np.diag(gram) == 1.0
    # All classes would be on this simplex, also where only some are measured.
    simplex = np.full_like(optimal, -1.0 / (optimal.shape[0] - 1))
    off, apart = GramDistance.between(gram, optimal), GramDistance.between(gram, simplex)
    pairs = np.triu(np.outer(known, known), 1)
    size = float(np.linalg.norm(optimal[pairs]))
    weight, total = table[:, WEIGHT], float(table[:, WEIGHT].sum())
    lengths = rho[~np.isnan(rho)]
    return {
        "max_angle_error_deg": _or_nan(off.max_angle_error_deg),
        "gram_distance": _or_nan(off.relative_frobenius),
        "class_r2": _or_nan(off.class_r2),
        "simplex_max_angle_error_deg": _or_nan(apart.max_angle_error_deg),
        "simplex_gram_distance": float(np.linalg.norm((gram - simplex)[pairs])) / size if size > 0 else np.nan,
        "min_rho": float(lengths.min()) if lengths.size else np.nan,
        "median_rho": float(np.median(lengths)) if lengths.size else np.nan,
        "max_rho": float(lengths.max()) if lengths.size else np.nan,
        "classes_seen": float(np.count_nonzero(weight > FORGOTTEN)),
        "classes_measured": float(np.count_nonzero(known)),
        "images": total,
        "smallest_class_images": float(images[known].min()) if known.any() else np.nan,
        "proportions_distance": float(np.abs(weight / total - proportions).sum() / 2) if total > 0 else np.nan,
    }


def class_directions(table: Array, min_images: float) -> tuple[Array, Array, Array]:
    """(C, C) cosines with nan for classes that are not measured, (C,) rho with nan for too few images, and (C,) W^2 / W2."""
    weight, squared, sums = table[:, WEIGHT], table[:, SQUARED], table[:, SUMS:]
    seen = weight > FORGOTTEN
    images = np.where(seen, weight**2 / np.where(seen, squared, 1.0), 0.0)
    # Two images that came together, aged a thousand updates, are 2 up to rounding.
    several = images >= min_images * (1 - 1e-9)
    pairs = np.where(several, weight**2 - squared, 1.0)
    rho_squared = np.where(several, (np.einsum("cd,cd->c", sums, sums) - table[:, SQUARES]) / pairs, np.nan)
    known: npt.NDArray[np.bool_] = np.where(several, rho_squared, 0.0) > 8 * EPS
    rho = np.sqrt(np.maximum(rho_squared, 0.0))
    vectors = sums / np.where(known, weight * rho, 1.0)[:, None]
    # Not by nan in the vectors: they have no entries before the first update.
    gram = np.where(np.outer(known, known), vectors @ vectors.T, np.nan)
    gram[known, known] = 1.0
    return gram, rho, images


def _or_nan(value: float | None) -> float:
    return np.nan if value is None else value
