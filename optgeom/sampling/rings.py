r"""The optimum on slices that are circles of m equispaced points: a few hundred unknowns instead of n^2/2.

The program does not change when a single slice is turned or flipped, nor when slices of the same radius are
exchanged, and it is convex: an optimum is invariant, and so is made of one cosine c_gh between any point of a slice of
class g and any point of another slice of class h, and m/2 cosines a_g(k) at lag k within a slice of class g (classes
hold q_g slices of one radius). Such a matrix is positive semidefinite iff

    1 + sum_k mu_k cos(2 pi p k/m) a_g(k) >= 0   for p = 1..m/2                       (mu_k = 2; 1 for k = m/2)
    b_g - m c_gg >= 0,   b_g = 1 + sum_k mu_k a_g(k)                                   where q_g >= 2
    S = [ sqrt(q_g q_h) m c_gh ],  S_gg = b_g + (q_g - 1) m c_gg                       is,

and this is solved by Newton's method with a logarithmic barrier. The result is judged by the certificate of the full
program.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.linalg

from optgeom._numerics import Array
from optgeom.sampling.points import PointSet

Index = npt.NDArray[np.intp]

FIRST, LAST, FACTOR = 1e-1, 1e-12, 0.1  # weight of the barrier
NEWTON_STEPS = 60
SETTLED = 1e-3  # squared Newton decrement, relative to the barrier


@dataclass(frozen=True, eq=False, kw_only=True)
class _Reduced:
    """The program in the unknowns x: a_g(k) class by class, then c_gh for g <= h (g < h where q_g = 1)."""

    multiplicity: Array  # (G,) q_g
    terms: Array  # (G, V) mass of the negatives that an unknown stands for, seen from an anchor of class g
    own: Array  # (G,) mass of the anchor itself
    pull: Array  # (V,) coefficient of each unknown in the alignment, over all slices
    linear: Array  # (L, V) rows of the scalar constraints, which are 1 + linear x >= 0
    first: Index  # (V,) row and
    second: Index  # column of S that the unknown adds to,
    amount: Array  # how much, to both triangles
    temperature: float

    def block(self, x: Array) -> Array:
        g = self.multiplicity.size
        s = np.eye(g)
        np.add.at(s, (self.first, self.second), self.amount * x)
        np.add.at(s, (self.second, self.first), self.amount * x)
        return s

    def softmax(self, x: Array) -> tuple[Array, Array]:
        scaled = np.exp((x - 1) / self.temperature)  # no cosine exceeds 1
        total = self.own + self.terms @ scaled
        return self.terms * scaled / total[:, None], np.log(total) + 1 / self.temperature

    def value(self, x: Array, weight: float) -> float:
        """Loss plus barrier; inf outside."""
        slack = 1 + self.linear @ x
        if slack.min() <= 0:
            return np.inf
        try:
            root = np.linalg.cholesky(self.block(x))
        except np.linalg.LinAlgError:
            return np.inf
        barrier = -float(np.log(slack).sum()) - 2 * float(np.log(np.diag(root)).sum())
        share = self.multiplicity / self.multiplicity.sum()
        return float(share @ self.softmax(x)[1] - self.pull @ x) + weight * barrier

    def derivatives(self, x: Array, weight: float) -> tuple[Array, Array]:
        share, tau = self.multiplicity / self.multiplicity.sum(), self.temperature
        p, _ = self.softmax(x)
        slope = share @ p / tau
        gradient = slope - self.pull
        curvature = np.diag(slope / tau) - (p * share[:, None]).T @ p / tau**2
        scaled = self.linear / (1 + self.linear @ x)[:, None]
        inverse = np.linalg.inv(self.block(x))
        i, j, amount = self.first, self.second, self.amount
        gradient -= weight * (scaled.sum(axis=0) + 2 * amount * inverse[i, j])
        crossed = inverse[np.ix_(i, i)] * inverse[np.ix_(j, j)] + inverse[np.ix_(i, j)] * inverse[np.ix_(j, i)]
        curvature += weight * (scaled.T @ scaled + 2 * amount[:, None] * amount[None, :] * crossed)
        return gradient, curvature


def solve_rings(point_set: PointSet, temperature: float, rho: float) -> tuple[Array, int]:
    """(n, n) nearly optimal Gram matrix of the sampling program, and Newton steps."""
    count, m = point_set.slices, point_set.per_slice
    first_rows = point_set.rows.reshape(count, m, count, m)[np.arange(count), 0, np.arange(count)]
    # Slices of one radius differ by rounding only.
    _, first, index, sizes = np.unique(
        np.round(first_rows, 12), axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    reduced, pairs = _reduce(first_rows[first], sizes, m, temperature, rho, count)
    x = np.zeros(reduced.pull.size)
    weight, steps = FIRST, 0
    while weight >= LAST:
        for _ in range(NEWTON_STEPS):
            gradient, curvature = reduced.derivatives(x, weight)
            # Near the end slacks differ by ten orders of magnitude: scaled to a unit diagonal the matrix keeps its
            # digits.
            scale = 1 / np.sqrt(curvature.diagonal())
            try:
                factor = scipy.linalg.cho_factor(curvature * scale[:, None] * scale, check_finite=False)
            except np.linalg.LinAlgError:
                return _gram(point_set, x, pairs, index.ravel(), sizes.size), steps
            step = -scale * scipy.linalg.cho_solve(factor, scale * gradient, check_finite=False)
            decrement = -float(gradient @ step)
            steps += 1
            length, current = 1.0, reduced.value(x, weight)
            while length > 1e-10 and not reduced.value(
                x + length * step, weight
            ) <= current - 1e-4 * length * decrement + 1e-15 * abs(current):
                length /= 2
            if length <= 1e-10:
                break
            x = x + length * step
            if decrement <= SETTLED * weight:
                break
        weight *= FACTOR
    return _gram(point_set, x, pairs, index.ravel(), sizes.size), steps


def _gram(point_set: PointSet, x: Array, pairs: tuple[Index, Index], index: Index, groups: int) -> Array:
    """(n, n) matrix of these unknowns; `index` is the class of each slice."""
    m, lags = point_set.per_slice, point_set.per_slice // 2
    across = np.zeros((groups, groups))
    across[pairs] = x[groups * lags :]
    across = across + np.triu(across, 1).T
    gram = np.repeat(np.repeat(across[np.ix_(index, index)], m, axis=0), m, axis=1)
    lag = np.abs(np.arange(m)[:, None] - np.arange(m)[None, :])
    full = np.column_stack([np.ones(groups), x[: groups * lags].reshape(groups, lags)])
    for ring in range(point_set.slices):
        part = slice(ring * m, (ring + 1) * m)
        gram[part, part] = full[index[ring]][np.minimum(lag, m - lag)]
    return gram


def _reduce(
    rows: Array, sizes: Index, m: int, temperature: float, rho: float, count: int
) -> tuple[_Reduced, tuple[Index, Index]]:
    groups, lags = sizes.size, m // 2
    q = sizes.astype(np.float64)
    mu = np.full(lags, 2.0)
    if m % 2 == 0:
        mu[-1] = 1.0
    above = np.triu_indices(groups)
    kept = (above[0] != above[1]) | (sizes[above[0]] >= 2)
    g, h = above[0][kept], above[1][kept]
    inner, outer = groups * lags, g.size
    same, other = 1 - rho + rho * count, 1 - rho

    terms = np.zeros((groups, inner + outer))
    pull = np.zeros(inner + outer)
    linear = np.zeros((inner + int((sizes >= 2).sum()), inner + outer))
    waves = mu * np.cos(2 * np.pi * np.outer(np.arange(1, lags + 1), np.arange(1, lags + 1)) / m)
    for group in range(groups):
        within = slice(group * lags, (group + 1) * lags)
        terms[group, within] = same * mu
        pull[within] = (q[group] / count) * mu * rows[group, 1 : lags + 1] / temperature
        linear[within, within] = waves
    at = inner + np.arange(outer)
    terms[g, at] = other * m * np.where(g == h, q[g] - 1, q[h])
    terms[h, at] = other * m * np.where(g == h, q[g] - 1, q[g])
    for number, several in enumerate(np.flatnonzero(sizes >= 2)):
        linear[inner + number, several * lags : (several + 1) * lags] = mu
        linear[inner + number, at[(g == several) & (h == several)]] = -m
    inside = np.repeat(np.arange(groups), lags)
    # Halves on the diagonal, which both triangles meet.
    amount = np.where(g == h, (q[g] - 1) * m / 2, np.sqrt(q[g] * q[h]) * m)
    reduced = _Reduced(
        multiplicity=q,
        terms=terms,
        own=np.full(groups, same),
        pull=pull,
        linear=linear,
        first=np.concatenate([inside, g]),
        second=np.concatenate([inside, h]),
        amount=np.concatenate([np.tile(mu / 2, groups), amount]),
        temperature=temperature,
    )
    return reduced, (g, h)
