r"""The entropic bound and how far a similarity matrix is from it.

With w~ the normalised rows of W and p_ij = exp(s_ij) / sum_{k != i} exp(s_ik),

    L(S) = -(1/n) sum_i sum_{j != i} w~_ij log p_ij = H + (1/n) sum_i KL(w~_i || p_i),      H = -(1/n) sum_ij w~_ij log w~_ij,

so L >= H, with equality iff s_ij = log w_ij + c_i. All arrays are in group form (see `Weights`); a sample without
positives has no term.

References
----------
Vock, Duchesnay, Dufumier 2026, arXiv 2605.13943.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from optgeom._numerics import Array, log_nonnegative, logsumexp_rows
from optgeom.errors import InvalidInputError
from optgeom.programs.weighted import relative_entropy
from optgeom.realization.weights import Weights


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
