r"""Sampling noise of the class directions, as the images show it: nothing is shrunk towards other classes.

With z_i the n_c images of class c (unit rows, or means of the unit views of an image), s_c their sum, m_c = s_c/n_c,
rho_c and u_c = m_c/rho_c as in `directions`, A the cosines between directions, Sigma_c the sample covariance and
P_c = I - u_c u_c',

    psi_i = (z_i . u_d - A_cd own_i/rho_c)/rho_c,     own_i = z_i . (s_c - z_i)/(n_c - 1),
    V_cd = sum_i psi_i^2/(n_c (n_c - 1))

is the part of the variance of A_cd that is due to the images of class c: psi_i is the influence of image i, sums to 0
over the class, and knows that rho_c is estimated from the same images. For unit rows own_i is linear in z_i,

    psi_i = (z_i - m_c) . w/rho_c,     w = u_d - A_cd n_c/(n_c - 1) u_c,     V_cd = w' Sigma_c w/(n_c rho_c^2),

so that the covariances of a second pass over the rows are enough. (For images of several views this takes |z_i|^2 as
its mean, an error of order 1/n_c.) Noise of the direction itself, on the sphere, has covariance

    F_c F_c' = P_c Sigma_c P_c/(n_c rho_c^2).

Where covariances of all classes are too large to be kept (C d^2 > 2^24), a sample of rows per class gives F_c instead,
scaled to the trace of all rows; with neither, only traces are known, and the largest eigenvalue is bounded by the
trace. After a single pass over the rows V_cd comes from a shape R common to all classes: rows of unit length do not
scatter along their own mean, so R is what leaves the pooled covariance when every class c loses its own direction,
sum_c g_c P_c R P_c with g_c proportional to (n_c - 1) tr S_c.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from optgeom._numerics import Array, freeze
from optgeom.embeddings.moments.directions import Directions
from optgeom.embeddings.moments.second_pass import WithinClass

SHAPE_STEPS = 20  # leaves .01 of the misfit along the mean of a class that holds .8 of the scatter
JITTER = 1e-13  # of the trace, so that a singular covariance has a Cholesky root: adds 3e-7 of its size


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassNoise:
    """Noise of the K classes that have a direction, in the order of `known`. All arrays are read-only.

    Attributes
    ----------
    known : (K,) intp
        Positions of these classes in the `Directions`.
    counts : (K,)
        Images n_c, as floats.
    vectors : (K, d)
        u_c, a little longer than 1.
    cosines : (K, K)
        De-attenuated cosines A, unit diagonal, unclipped.
    rho : (K,)
        Length of the class mean, in (0, 1].
    shares : (K, K)
        V_cd at [c, d]; 0 on the diagonal.
    traces, tops : (K,)
        Trace and largest eigenvalue of F_c F_c'.
    roots : tuple of K arrays (r_c, d), or None
        F_c' of every class: F_c xi has the covariance F_c F_c' for standard normal xi (r_c,). None where only traces
        are known.
    freedom : (K,)
        Degrees of freedom of `roots`: n_c - 1, or rows of the sample less 1.
    source : {"full", "projected", "pooled"}
        Where the first-order terms come from: covariances, projections of all rows, or the shape of a single pass.
    """

    known: npt.NDArray[np.intp]
    counts: Array
    vectors: Array
    cosines: Array
    rho: Array
    shares: Array
    traces: Array
    tops: Array
    roots: tuple[Array, ...] | None
    freedom: Array
    source: str

    def __post_init__(self) -> None:
        freeze(self)
        for root in self.roots or ():
            root.setflags(write=False)


def class_noise(
    directions: Directions,
    within: WithinClass,
    *,
    rows: Array | None = None,
    codes: npt.NDArray[np.intp] | None = None,
) -> ClassNoise:
    """Noise of the class directions from the covariances of a second pass, or from a sample of rows.

    Parameters
    ----------
    directions : Directions
    within : WithinClass
        Of the same classes in the same order.
    rows : (s, d), optional
        Unit rows (or images) sampled within the classes, used only where `within.full` is None.
    codes : (s,) intp, optional
        Position of their classes in `directions`.

    Returns
    -------
    ClassNoise
    """
    known = np.flatnonzero(directions.known)
    counts = directions.counts[known].astype(np.float64)
    vectors, cosines = directions.vectors[known], directions.gram[np.ix_(known, known)]
    scale = 1 / (counts * directions.rho_squared[known])
    shares = np.zeros_like(cosines)
    tops, traces = np.zeros(known.size), np.zeros(known.size)
    freedom = counts - 1
    roots: list[Array] = []
    if within.full is not None:
        for k, c in enumerate(known):
            factor = counts[k] / (counts[k] - 1)
            shares[k] = _quadratic(within.full[c], vectors - factor * np.outer(cosines[k], vectors[k])) * scale[k]
            moved = _tangential(within.full[c], vectors[k]) * scale[k]
            traces[k] = np.trace(moved)
            tops[k] = np.linalg.eigvalsh(moved)[-1] if traces[k] > 0 else 0.0
            roots.append(_root(moved, traces[k]))
    else:
        # Rows of unit length scatter along their own mean only to second order: the whole trace is tangential.
        traces = within.traces[known] * scale
        if within.projected is not None:
            shares = within.projected[np.ix_(known, known)] * scale[:, None]
        if rows is None or codes is None:
            tops = traces.copy()
        else:
            freedom = freedom.copy()
            for k, c in enumerate(known):
                root = _sample_root(rows[codes == c], vectors[k], traces[k])
                roots.append(root)
                freedom[k] = max(min(len(root) - 1, counts[k] - 1), 1)
                tops[k] = np.linalg.norm(root, 2) ** 2 if root.size else traces[k]
        if within.projected is None:
            shares = _pooled_shares(within, directions, known, traces)
    np.fill_diagonal(shares, 0.0)
    return ClassNoise(
        known=known,
        counts=counts,
        vectors=vectors,
        cosines=cosines,
        rho=directions.rho[known],
        shares=np.maximum(shares, 0.0),
        traces=traces,
        tops=tops,
        roots=tuple(roots) if roots else None,
        freedom=freedom,
        source="full" if within.full is not None else "projected" if within.projected is not None else "pooled",
    )


def isotropic_noise(vectors: Array, rho: Array, counts: Array, mean_squares: Array) -> ClassNoise:
    """Noise of the class directions where only sums of the images were kept: their scatter is taken as isotropic.

    Parameters
    ----------
    vectors : (K, d)
        u_c of classes that all have a direction.
    rho : (K,)
    counts : (K,)
        Images, W^2 / W2 of weighted ones.
    mean_squares : (K,)
        Mean |z|^2 of the images of a class.

    Returns
    -------
    ClassNoise
        Of traces alone; those of one class are (mean |z|^2 - rho^2) / (n rho^2), spread over d - 1 tangential axes.
    """
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, 1.0)
    traces = np.maximum(mean_squares - rho**2, 0.0) / (counts * rho**2)
    shares = traces[:, None] / max(vectors.shape[1] - 1, 1) * np.maximum(1 - cosines**2, 0.0)
    return ClassNoise(
        known=np.arange(len(rho)),
        counts=counts,
        vectors=vectors,
        cosines=cosines,
        rho=rho,
        shares=shares,
        traces=traces,
        tops=traces.copy(),
        roots=None,
        freedom=np.maximum(counts - 1, 1.0),
        source="pooled",
    )


def _quadratic(covariance: Array, vectors: Array) -> Array:
    """w' Sigma w for every row w of `vectors`."""
    return np.asarray(np.einsum("ed,ed->e", vectors @ covariance, vectors))


def _tangential(covariance: Array, u: Array) -> Array:
    """P Sigma P with P = I - u u'/|u|^2."""
    unit = u / np.linalg.norm(u)
    image = covariance @ unit
    outer = np.outer(unit, image)
    return np.asarray(covariance - outer - outer.T + float(unit @ image) * np.outer(unit, unit))


def _root(covariance: Array, trace: float) -> Array:
    """(r, d) R with R' R = `covariance`, r = 0 where it vanishes."""
    if not trace > 0:
        return np.empty((0, len(covariance)))
    shifted = covariance + JITTER * trace * np.eye(len(covariance))
    try:
        return np.ascontiguousarray(np.linalg.cholesky(shifted).T)
    except np.linalg.LinAlgError:  # rounding of a nearly singular matrix
        values, vectors = np.linalg.eigh(covariance)
        return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))).T)


def _sample_root(rows: Array, u: Array, trace: float) -> Array:
    """Tangential deviations of the rows of a sample from their mean, scaled to this trace."""
    if len(rows) < 2 or not trace > 0:
        return np.empty((0, u.size))
    unit = u / np.linalg.norm(u)
    moved = rows - rows.mean(axis=0)
    moved -= np.outer(moved @ unit, unit)
    size = float(np.sum(moved**2))
    return np.asarray(moved * np.sqrt(trace / size)) if size > 0 else np.empty((0, u.size))


def _pooled_shares(within: WithinClass, directions: Directions, known: npt.NDArray[np.intp], traces: Array) -> Array:
    """V_cd after a single pass: one shape for all classes, sized to the trace of each."""
    vectors, cosines = directions.vectors[known], directions.gram[np.ix_(known, known)]
    freedom = directions.counts[known] - 1.0
    shape = _common_shape(_tangential_pooled(within, directions, known), vectors, freedom * within.traces[known])
    products = vectors @ shape @ vectors.T
    own = np.diag(products)
    first = own[None, :] - 2 * cosines * products + cosines**2 * own[:, None]
    total = np.trace(shape) - own  # of P_c R P_c
    return np.asarray(
        np.maximum(first, 0.0) * np.where(total > 0, traces / np.where(total > 0, total, 1.0), 0.0)[:, None]
    )


def _tangential_pooled(within: WithinClass, directions: Directions, known: npt.NDArray[np.intp]) -> Array:
    """Pooled covariance without the scatter of each class along its own mean.

    Of unit rows z = rho u + tangential part e, the part along the mean is sqrt(1 - |e|^2), with variance
    var |e|^2/(4 rho^2), which is tr Sigma^2/(2 rho^2) for Gaussian e.
    """
    unit = directions.vectors[known] / np.linalg.norm(directions.vectors[known], axis=1)[:, None]
    freedom = directions.counts[known] - 1.0
    total = max(float((directions.counts - 1).sum()), 1.0)
    size = float(np.trace(within.pooled))
    square = max((float(np.sum(within.pooled**2)) - size**2 / total) / (1 + 1 / total), 0.0)
    concentration = square / size**2 if size > 0 else 0.0
    along = within.traces[known] ** 2 * concentration / (2 * directions.rho_squared[known])
    return np.asarray(within.pooled - (unit * (freedom / total * along)[:, None]).T @ unit)


def _common_shape(tangential: Array, vectors: Array, weights: Array) -> Array:
    """R with sum_c g_c P_c R P_c = S, the tangential scatter, and g = weights over their sum; its size does not matter.

    R <- R + (S - sum_c g_c P_c R P_c), from S with the mean scatter put where a class has none. It converges like
    (largest g)^k: what a dominant class leaves unknown, its own direction, keeps the mean scatter.
    """
    total = float(weights.sum())
    if not total > 0:
        return tangential
    share = weights / total
    lengths = np.linalg.norm(vectors, axis=1)
    unit = vectors / lengths[:, None]
    dim = tangential.shape[0]
    lost = np.asarray((unit * share[:, None]).T @ unit)
    shape = tangential + float(np.trace(tangential)) / max(dim - 1, 1) * lost
    for _ in range(SHAPE_STEPS):
        own = np.einsum("cd,cd->c", unit @ shape, unit)
        image = shape @ lost
        step = tangential - shape + image + image.T - np.asarray((unit * (share * own)[:, None]).T @ unit)
        shape = shape + step
        if np.abs(step).max() <= 1e-4 * np.abs(shape).max():
            break
    return np.asarray(shape)
