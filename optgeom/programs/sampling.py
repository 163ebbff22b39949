r"""The contrastive loss on points of a latent sphere, the anchor included: positive law x masses x cosine similarity.

Points z_1..z_n stand for a continuum. With w_ij the probability that j is the positive of i, and masses m_ik of the
negatives,

    minimise  L(A) = (1/n) sum_i [ log sum_k m_ik exp(A_ik/tau) - sum_j w_ij A_ij/tau ]

over A positive semidefinite with unit diagonal, both sums over all points. The weighted program leaves the anchor out;
on a continuum that would remove a neighbourhood of it from thin slices, where it is a sizeable part of the support. All
masses 1: InfoNCE. Masses 1 - rho + rho n/n_c within the n_c points of a connected component of the support and 1 - rho
across: the support-corrected loss, in which at rho = 1 components do not see each other.

References
----------
Zaliaduonis, Putzky, Richter, Gatidis 2026, arXiv 2606.04280.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np

from optgeom._numerics import Array, Square, log_nonnegative, logsumexp_rows
from optgeom.programs.group_matrix import Sizes
from optgeom.programs.weighted import relative_entropy


@dataclass(frozen=True, eq=False)
class SamplingProgram:
    """The program of n points, each a group of its own.

    Attributes
    ----------
    rows : (n, n)
        Probabilities of the positives, the anchor itself included; rows sum to 1.
    masses : (n, n)
        Masses of the negatives, >= 0, positive on the diagonal and wherever `rows` is.
    temperature : float
        tau > 0.
    """

    rows: Array
    masses: Array
    temperature: float
    dual: ClassVar[Literal["entropy-with-anchors"]] = "entropy-with-anchors"
    gives: ClassVar[frozenset[str]] = frozenset()

    @property
    def num_samples(self) -> int:
        return int(self.rows.shape[0])

    @cached_property
    def sizes(self) -> Sizes:
        """(n,) ones."""
        return np.ones(self.num_samples, dtype=np.int64)

    @cached_property
    def count(self) -> Array:
        """(n, n) other points: 1 off the diagonal."""
        return np.asarray(1.0 - np.eye(self.num_samples))

    @cached_property
    def log_masses(self) -> Array:
        return log_nonnegative(self.masses)

    @cached_property
    def bound(self) -> float:
        """H = -(1/n) sum_ij w_ij log(w_ij/m_ij).

        No Gram matrix has a lower loss, and L = H iff A_ij/tau = log(w_ij/m_ij) + c_i.
        """
        kept = self.rows > 0
        ratio = np.where(kept, self.rows, 1.0) / np.where(kept, self.masses, 1.0)
        return -float(np.sum(self.rows * np.log(ratio))) / self.num_samples

    def known_gap(self, cosines: Square) -> float:
        """L minus `bound`: the mean relative entropy of the rows."""
        scaled = cosines / self.temperature + self.log_masses
        log_p = scaled - logsumexp_rows(scaled)[:, None]
        return float(np.mean(relative_entropy(log_nonnegative(self.rows), log_p, np.ones_like(log_p))))

    def log_norm(self, cosines: Square) -> Array:
        """(n,) log of the denominators."""
        return logsumexp_rows(cosines / self.temperature + self.log_masses)

    def risk(self, cosines: Square) -> float:
        """L."""
        pulled = (self.rows * cosines).sum(axis=1) / self.temperature
        return float(np.mean(self.log_norm(cosines) - pulled))

    def probabilities(self, cosines: Square) -> Square:
        """(n, n) P_ik = m_ik exp(A_ik/tau) / sum_l m_il exp(A_il/tau)."""
        scaled = cosines / self.temperature + self.log_masses
        return np.asarray(np.exp(scaled - logsumexp_rows(scaled)[:, None]))

    def risk_above_floor(self, cosines: Square) -> float:
        """L: it has no constant to leave out."""
        return self.risk(cosines)

    def gradient(self, cosines: Square) -> Square:
        """(n, n) (P + P' - w - w')/(2 tau n) off the diagonal, which is fixed: half the derivative in A_ij = A_ji."""
        excess = self.probabilities(cosines) - self.rows
        slopes = (excess + excess.T) / (2 * self.temperature * self.num_samples)
        np.fill_diagonal(slopes, 0.0)
        return np.asarray(slopes)

    def gradient_derivative(self, cosines: Square) -> Callable[[Array], Array]:
        """Derivative of the gradient along a symmetric direction of zero diagonal.

        P_ij (D_ij - sum_k P_ik D_ik)/tau in row i.
        """
        p = self.probabilities(cosines)
        factor = 2 * self.temperature**2 * self.num_samples

        def derivative(direction: Square) -> Square:
            moved = p * (direction - np.einsum("ij,ij->i", p, direction)[:, None])
            slopes = (moved + moved.T) / factor
            np.fill_diagonal(slopes, 0.0)
            return np.asarray(slopes)

        return derivative

    def pair_curvature(self, cosines: Square, gradient: Square) -> Square:
        """(P + P')/(2 tau^2 n): exact but for the coupling within a row."""
        p = self.probabilities(cosines)
        estimate = (p + p.T) / (2 * self.temperature**2 * self.num_samples)
        np.fill_diagonal(estimate, 0.0)
        return np.asarray(estimate)
