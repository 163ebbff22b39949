r"""The weighted program: samples x weights x cosine similarity.

With row-normalised weights w~_ij = w_ij / sum_{k != i} w_ik over n samples and similarities s_ij = A_ij / tau,

    minimise  L(A) = (1/n) sum_i [ log sum_{k != i} exp(A_ik/tau) - sum_{j != i} w~_ij A_ij/tau ]

over A positive semidefinite with unit diagonal.

Samples with the same label have the same rows of W and form groups, exactly as equal classes do; entry (g, h) speaks of
one sample of group g and ANOTHER sample of group h.

References
----------
Vock, Duchesnay, Dufumier 2026, arXiv 2605.13943 (weighted InfoNCE as distance geometry).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from optgeom._numerics import Array, Square, log_nonnegative, logsumexp_rows
from optgeom.programs import group_matrix
from optgeom.programs.group_matrix import Sizes


@dataclass(frozen=True)
class WeightedProgram:
    """A weighted program on groups.

    Attributes
    ----------
    sizes : (G,)
        Samples of each group; their sum is n.
    count : (G, G)
        Number of other samples: m_h, and m_g - 1 on the diagonal.
    rows : (G, G)
        w~ of one sample of group g for another one of group h; sum_h count * rows = 1, or 0 for samples without a
        positive.
    anchored : (G,) bool
        Samples with a positive. The others carry no term of the loss and act as negatives only (n still counts them).
    temperature : float
        tau > 0.
    given_index : (n,) intp, optional
        Group of each sample; the samples of a group are neighbours by default.
    """

    sizes: Sizes
    count: Array
    rows: Array
    anchored: npt.NDArray[np.bool_]
    temperature: float
    given_index: npt.NDArray[np.intp] | None = None
    dual: ClassVar[Literal["entropy"]] = "entropy"
    gives: ClassVar[frozenset[str]] = frozenset({"row-softmax"})

    @property
    def num_samples(self) -> int:
        return int(self.sizes.sum())

    @property
    def index(self) -> npt.NDArray[np.intp]:
        """(n,) group of each sample."""
        return np.repeat(np.arange(self.sizes.size), self.sizes) if self.given_index is None else self.given_index

    @property
    def anchor_weight(self) -> Array:
        """(G,) weight of one sample of each group in the risk."""
        return self.anchored / self.num_samples

    def log_softmax(self, cosines: Square) -> tuple[Array, Array]:
        """(G, G) log P_gh = log softmax_k(A_ik/tau) of one other sample, and (G,) log of the normaliser."""
        scaled = cosines / self.temperature
        norm = logsumexp_rows(scaled + log_nonnegative(self.count))
        return scaled - norm[:, None], norm

    def risk(self, cosines: Square) -> float:
        """L at a group-form Gram matrix."""
        _, norm = self.log_softmax(cosines)
        pulled = (self.count * self.rows * cosines).sum(axis=1) / self.temperature
        return float(np.sum(self.sizes * (np.where(self.anchored, norm, 0.0) - pulled)) / self.num_samples)

    def known_gap(self, cosines: Square) -> float:
        """L - H, H = -(1/n) sum_ij w~_ij log w~_ij the entropic bound: the mean relative entropy of the rows."""
        log_p, _ = self.log_softmax(cosines)
        gaps = relative_entropy(log_nonnegative(self.rows), log_p, self.count)
        return float(np.sum(self.sizes * np.where(self.anchored, gaps, 0.0)) / self.num_samples)

    def probabilities(self, cosines: Square) -> Square:
        """(G, G) P, 0 where there is no pair, and for anchors without a positive."""
        log_p, _ = self.log_softmax(cosines)
        # Where there is no pair, log P may be large: a single sample does not occur in its own normaliser.
        return np.where((self.count > 0) & self.anchored[:, None], np.exp(np.minimum(log_p, 0.0)), 0.0)

    def risk_above_floor(self, cosines: Square) -> float:
        """L - H, which keeps the digits of a loss near its bound."""
        return self.known_gap(cosines)

    def gradient(self, cosines: Square) -> Square:
        """(G, G) (P + P' - w~ - w~')/(2 tau n): half the derivative in A_ij = A_ji."""
        excess = self.probabilities(cosines) - np.where(self.count > 0, self.rows, 0.0)
        return np.asarray((excess + excess.T) / (2 * self.temperature * self.num_samples))

    def gradient_derivative(self, cosines: Square) -> Callable[[Array], Array]:
        """Derivative of the gradient: row i moves by P_ij (D_ij - sum_k P_ik D_ik)/tau."""
        p = self.probabilities(cosines)
        counted = self.count * p
        factor = 2 * self.temperature**2 * self.num_samples

        def derivative(direction: Square) -> Square:
            moved = p * (direction - np.einsum("gh,gh->g", counted, direction)[:, None])
            return np.asarray((moved + moved.T) / factor)

        return derivative

    def with_apart(self, samples: tuple[int, ...]) -> tuple[WeightedProgram, npt.NDArray[np.intp]]:
        """The same program with these samples in groups of their own, and the old group of each new group."""
        index, sizes, source = group_matrix.with_apart(self.index, self.sizes, samples)
        count = np.broadcast_to(sizes.astype(np.float64), (sizes.size, sizes.size)).copy()
        np.fill_diagonal(count, sizes - 1.0)
        rows, anchored = self.rows[np.ix_(source, source)], self.anchored[source]
        finer = replace(self, sizes=sizes, count=count, rows=rows, anchored=anchored, given_index=index)
        return finer, source

    def pair_curvature(self, cosines: Square, gradient: Square) -> Square:
        """(P + P')/(2 tau^2 n): exact but for the coupling within a row."""
        p = self.probabilities(cosines)
        return np.asarray((p + p.T) / (2 * self.temperature**2 * self.num_samples))


def relative_entropy(log_target: Array, log_p: Array, count: Array) -> Array:
    """(G,) KL(w || p) >= 0 of every row of probabilities w and p, entry (g, h) standing for `count` equal ones.

    Written as sum w (e^x - 1 - x) with x = log p - log w, whose terms are all non-negative: a value of 1e-14 has
    correct digits, which a difference of two entropies does not have.
    """
    positive = np.isfinite(log_target)
    x = np.where(positive, log_p - np.where(positive, log_target, 0.0), 0.0)
    # Where there is no pair, log p may be large: a single member does not occur in its own normaliser.
    p = np.where(count > 0, np.exp(np.minimum(log_p, 0.0)), 0.0)
    w = np.exp(log_target)
    # Beyond 1/2 the difference of probabilities is exact enough, and e^x may overflow where w is tiny.
    small = np.abs(x) < 0.5
    near = w * (np.expm1(np.where(small, x, 0.0)) - x)
    terms = np.where(positive, np.where(small, near, p - w - w * x), p)
    return np.asarray(np.maximum((count * terms).sum(axis=1), 0.0))
