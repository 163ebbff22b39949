r"""The entropic bound, how far a similarity matrix is from it, and the best symmetric similarity.

With w~ the normalised rows of W and p_ij = exp(s_ij) / sum_{k != i} exp(s_ik),

    L(S) = -(1/n) sum_i sum_{j != i} w~_ij log p_ij = H + (1/n) sum_i KL(w~_i || p_i),
    H    = -(1/n) sum_ij w~_ij log w~_ij,

so L >= H, with equality iff s_ij = log w_ij + c_i. All arrays are in group form (see `Weights`); a sample without
positives has no term.

Both latent similarities are symmetric, so the loss of every embedding is at least

    min { L(S) : S symmetric },        and at the minimum        P + P' = w~ + w~',        P_ij = softmax_j(s_ij).

A row-stochastic P with these sums whose logarithm is symmetric except for one term per row is a Bradley-Terry model,
P_ij = (w~_ij + w~_ji) / (1 + exp(u_i - u_j)), so that

    s_ij = log(w~_ij + w~_ji) - log(exp(-u_i) + exp(-u_j)),

unique up to one constant where all weights are positive. In Euclidean space every symmetric similarity is that of an
embedding (Lingoes' constant, which the loss does not see), so that this is not only a bound but the optimum: asymmetric
weights have the geometry of the symmetric weights exp(s_ij).

References
----------
Bradley, Terry 1952, Biometrika 39:324; Hunter 2004, Annals of Statistics 32 (existence and uniqueness of the fit);
Vock, Duchesnay, Dufumier 2026, arXiv 2605.13943.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from optgeom._numerics import Array, log_nonnegative, logsumexp_rows
from optgeom.certificates.entropy_dual import bradley_terry_scores
from optgeom.errors import InvalidInputError
from optgeom.programs.weighted import relative_entropy
from optgeom.realization.weights import Weights

FITTED = 1e-12  # misfit of the row sums: the loss is off by its square, far below what a certificate asks for


def entropic_bound(weights: Weights) -> float:
    """H, in nats; 0 log 0 = 0."""
    logs = np.where(np.isfinite(weights.log_rows), weights.log_rows, 0.0)
    terms = weights.count * np.exp(weights.log_rows) * -logs
    return float((weights.sizes * terms.sum(axis=1)).sum() / weights.n)


def loss(weights: Weights, similarity: npt.ArrayLike) -> float:
    """L(S) of a (G, G) similarity in group form, s = cos/tau or -|z_i - z_j|^2/tau.

    Entries without a pair are ignored.
    """
    s = _similarity(weights, similarity)
    logs = np.where(np.isfinite(weights.log_rows), s - _log_norm(weights, s)[:, None], 0.0)
    terms = weights.count * np.exp(weights.log_rows) * -logs
    return float((weights.sizes * terms.sum(axis=1)).sum() / weights.n)


def row_gaps(weights: Weights, similarity: npt.ArrayLike) -> Array:
    """(G,) KL(w~_i || p_i) >= 0 of one sample of each group."""
    s = _similarity(weights, similarity)
    gaps = relative_entropy(weights.log_rows, s - _log_norm(weights, s)[:, None], weights.count)
    return np.where(weights.with_positive, gaps, 0.0)


def gap_to_bound(weights: Weights, similarity: npt.ArrayLike) -> float:
    """L(S) - H >= 0: the mean of `row_gaps` over the samples."""
    return float((weights.sizes * row_gaps(weights, similarity)).sum() / weights.n)


@dataclass(frozen=True)
class SymmetricFit:
    """The best symmetric similarity for weights that are not symmetric, and its loss.

    Attributes
    ----------
    weights : Weights
        exp(s), symmetric, with the groups of the weights that were fitted.
    gap : float
        Loss of s above the entropic bound: no symmetric similarity comes nearer, up to rounding.
    exact : bool
        Whether the row sums hold to rounding; else `gap` is only what was reached.
    """

    weights: Weights
    gap: float
    exact: bool


def fit_symmetric(weights: Weights) -> SymmetricFit:
    """Minimise the loss over symmetric similarities; all weights must be positive (not `hard`)."""
    rows = np.where(weights.count > 0, weights.log_rows, -np.inf)
    logs = np.logaddexp(rows, rows.T)
    total = np.exp(logs)
    scores, share = bradley_terry_scores(
        total, weights.count, weights.sizes, weights.with_positive, np.zeros(weights.sizes.size)
    )
    misfit = float(np.abs((weights.count * total * share).sum(axis=1) - 1.0).max())
    similarity: Array = logs - np.logaddexp(-scores[:, None], -scores[None, :])
    gap = gap_to_bound(weights, np.where(weights.count > 0, similarity, 0.0))
    fitted = replace(
        weights,
        log_weights=(similarity + similarity.T) / 2,
        labels=None,
        scheme={"name": "matrix"},
        notes=(),
        symmetric=True,
    )
    return SymmetricFit(fitted, gap, misfit <= FITTED)


def _log_norm(weights: Weights, similarity: Array) -> Array:
    return logsumexp_rows(similarity + log_nonnegative(weights.count))


def _similarity(weights: Weights, similarity: npt.ArrayLike) -> Array:
    s = np.asarray(similarity, dtype=np.float64)
    if s.shape != weights.log_weights.shape:
        raise InvalidInputError(f"`similarity` must be in group form, {weights.log_weights.shape}; got shape {s.shape}")
    s = np.where(weights.count > 0, s, 0.0)
    if not np.isfinite(s).all():
        raise InvalidInputError(
            "`similarity` must be finite; got NaN or infinity (the limit of a hard scheme has no finite similarity)"
        )
    return s
