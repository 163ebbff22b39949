r"""The best symmetric similarity for weights that are not symmetric.

Both latent similarities are symmetric, so the loss of every embedding is at least

    min { L(S) : S symmetric },        and at the minimum        P + P' = w~ + w~',        P_ij = softmax_j(s_ij).

A row-stochastic P with these sums whose logarithm is symmetric but for a term of the row is a Bradley-Terry model,
P_ij = (w~_ij + w~_ji) / (1 + exp(u_i - u_j)), so that

    s_ij = log(w~_ij + w~_ji) - log(exp(-u_i) + exp(-u_j)),

unique up to one constant where all weights are positive. In Euclidean space every symmetric similarity is that of an
embedding (Lingoes' constant, which the loss does not see), so that this is not only a bound but the optimum: asymmetric
weights have the geometry of the symmetric weights exp(s_ij).

References
----------
Bradley, Terry 1952, Biometrika 39:324; Hunter 2004, Annals of Statistics 32 (existence and uniqueness).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optgeom._numerics import Array
from optgeom.certificates.entropy_dual import bradley_terry_scores
from optgeom.realization import entropy
from optgeom.realization.weights import Weights

FITTED = 1e-12  # misfit of the row sums: the loss is off by its square, far below what a certificate asks for


@dataclass(frozen=True)
class SymmetricFit:
    """What the best symmetric similarity is, and its loss.

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


def fit(weights: Weights) -> SymmetricFit:
    """Minimise the loss over symmetric similarities; all weights must be positive (not `hard`)."""
    rows = np.where(weights.count > 0, weights.log_rows, -np.inf)
    logs = np.logaddexp(rows, rows.T)
    total = np.exp(logs)
    scores, share = bradley_terry_scores(
        total, weights.count, weights.sizes, weights.with_positive, np.zeros(weights.sizes.size)
    )
    misfit = float(np.abs((weights.count * total * share).sum(axis=1) - 1.0).max())
    similarity: Array = logs - np.logaddexp(-scores[:, None], -scores[None, :])
    gap = entropy.gap_to_bound(weights, np.where(weights.count > 0, similarity, 0.0))
    fitted = Weights(
        weights.index,
        weights.sizes,
        (similarity + similarity.T) / 2,
        None,
        {"name": "matrix"},
        (),
        True,
        weights.precision,
    )
    return SymmetricFit(fitted, gap, misfit <= FITTED)
