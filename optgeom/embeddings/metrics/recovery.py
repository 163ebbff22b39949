r"""Whether features recover latents: linear R2, matched correlation, and angle after the best rotation.

With latents z_i in R^d and features h_i in R^q of the same n samples:

    linear R2     1 - min_{A, b} sum_i |z_i - A h_i - b|^2 / sum_i |z_i - mean z|^2, pooled over the coordinates of z
    MCC           max over matchings pi of (1/d) sum_a |corr(z_a, h_pi(a))|; every coordinate of z has its own of h
    angle error   angle between z_i/|z_i| and Q h_i/|h_i|, Q the orthogonal map of least sum_i |z_i - Q h_i|^2 for
                  unit rows

The regression is fitted and judged on the samples given: give samples that the encoder was not trained on, many more
than q. 1 - linear R2 is the share of the variance of the latents that no linear map finds in the features.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment

from optgeom._numerics import Array
from optgeom.errors import InvalidInputError

CONSTANT = 1e-12  # relative to the largest value: a spread that is rounding


@dataclass(frozen=True)
class LatentRecovery:
    """How far features recover latents.

    Attributes
    ----------
    linear_r2 : float
        At most 1; 1: the latents are an affine function of the features.
    mcc : float
        In [0, 1]; 1: the features are the latents up to order, signs and scales.
    mean_angle_error_deg, max_angle_error_deg : float
        0: the features are the latents up to an orthogonal map.
    samples : int
    """

    linear_r2: float
    mcc: float
    mean_angle_error_deg: float
    max_angle_error_deg: float
    samples: int

    def as_dict(self) -> dict[str, float | int]:
        """Plain values for JSON."""
        return asdict(self)


def latent_recovery(latents: npt.ArrayLike, features: npt.ArrayLike) -> LatentRecovery:
    """All metrics of this file.

    Parameters
    ----------
    latents : (n, d)
        Not constant, none of them 0.
    features : (n, q)
        None of them 0; q >= d for the matching of coordinates, else latents without a partner count 0.

    Returns
    -------
    LatentRecovery

    Raises
    ------
    InvalidInputError
        Shapes that do not fit, values that are not finite, latents without variance, or rows of length 0.

    References
    ----------
    Hyvarinen, Morioka 2016, arXiv 1605.06336 (MCC); Zimmermann et al. 2021, arXiv 2102.08850; Zaliaduonis et al. 2026,
    arXiv 2606.04280 (pooled linear R2).
    """
    z, h = _pair(latents, features)
    angles = _angle_errors(z, h)
    return LatentRecovery(linear_r2(z, h), permutation_mcc(z, h), float(angles.mean()), float(angles.max()), z.shape[0])


def linear_r2(latents: npt.ArrayLike, features: npt.ArrayLike) -> float:
    """Pooled R2 of the regression of latents on features, with intercept."""
    z, h = (values - values.mean(axis=0) for values in _pair(latents, features))
    # An orthonormal basis in place of the normal equations: features that lie on a line or in a plane lose no digit.
    left, singular, _ = np.linalg.svd(h, full_matrices=False)
    basis = left[:, singular > CONSTANT * max(1.0, float(singular[0]))]
    residual = z - basis @ (basis.T @ z)
    return 1.0 - float((residual**2).sum() / (z**2).sum())


def permutation_mcc(latents: npt.ArrayLike, features: npt.ArrayLike) -> float:
    """Mean absolute Pearson correlation after the best matching of coordinates; 0 for constant coordinates."""
    z, h = _pair(latents, features)
    scores = np.abs(_standardised(z).T @ _standardised(h))
    rows, columns = linear_sum_assignment(scores, maximize=True)
    return float(np.sum(scores[rows, columns])) / int(z.shape[1])


def _angle_errors(z: Array, h: Array) -> Array:
    """(n,) degrees."""
    size = max(z.shape[1], h.shape[1])
    rows = [
        np.pad(_unit(name, values), ((0, 0), (0, size - values.shape[1])))
        for name, values in (("latents", z), ("features", h))
    ]
    left, _, right = np.linalg.svd(rows[1].T @ rows[0])
    chord = np.linalg.norm(rows[0] - rows[1] @ (left @ right), axis=1)
    # By the chord: the arccos of a cosine near 1 would not see below 1e-6 degrees.
    return np.asarray(np.degrees(2 * np.arcsin(np.minimum(1.0, chord / 2))))


def _standardised(values: Array) -> Array:
    centred = values - values.mean(axis=0)
    spread = np.sqrt((centred**2).sum(axis=0))
    still = spread <= CONSTANT * np.maximum(1.0, np.abs(values).max(axis=0)) * np.sqrt(values.shape[0])
    return np.asarray(np.where(still, 0.0, centred / np.where(still, 1.0, spread)))


def _unit(name: str, values: Array) -> Array:
    length = np.linalg.norm(values, axis=1)
    zero = np.flatnonzero(length == 0)
    if zero.size:
        raise InvalidInputError(
            f"`{name}` must have no row of length 0; got one in row {zero[0]} (it has no direction)"
        )
    return np.asarray(values / length[:, None])


def _pair(latents: npt.ArrayLike, features: npt.ArrayLike) -> tuple[Array, Array]:
    z, h = np.asarray(latents, dtype=np.float64), np.asarray(features, dtype=np.float64)
    if z.ndim != 2 or h.ndim != 2 or z.shape[0] != h.shape[0] or min(*z.shape, *h.shape) < 1:
        came = f"{z.shape} and {h.shape}"
        raise InvalidInputError(
            f"`features` must be (n, q) for latents (n, d), one row per sample; got {came} (the same samples in both)"
        )
    for name, values in (("latents", z), ("features", h)):
        if not np.isfinite(values).all():
            raise InvalidInputError(f"`{name}` must be finite; got a value that is not (look for a run that diverged)")
    if np.ptp(z, axis=0).max() == 0:
        raise InvalidInputError(f"`latents` must vary; got {z.shape[0]} equal rows (there is no variance to explain)")
    return z, h
