r"""Exact expectations over the classes of k i.i.d. negatives, for any number of classes and any k.

For one anchor, let n ~ Multinomial(k, p) be the class counts of its negatives, x_j = exp(t_j) with t_j = (A_ij -
1)/tau, and Y = a + sum_j n_j x_j. The sum over all C(k+C-1, C-1) counts is replaced by one-dimensional integrals of the
probability generating function phi(s) = sum_j p_j exp(-s x_j), because 1/Y = int exp(-s Y) ds and log Y = int (exp(-s)
- exp(-s Y)) ds/s:

    E log Y                = log M + int [ exp(-M s) - exp(-a s) phi^k ] ds/s                          for any M > 0
    omega_j = E n_j / Y    = int exp(-a s) k p_j exp(-s x_j) phi^(k-1) ds
    E n_j n_l / Y^2        = int s exp(-a s) [ k (k-1) p_j p_l exp(-s (x_j + x_l)) phi^(k-2)
                                               + 1{j=l} k p_j exp(-s x_j) phi^(k-1) ] ds

With `positive_required` everything is restricted to the event n_own >= 1 (SupCon with one view): phi^r becomes phi^r -
phi_0^r, where phi_0 leaves the anchor's own class out. Weights of negatives change x_j only; the row of the anchor's
own class enters with x_own, which is 1 unless it is weighted or left out of the denominator.

Numerics. M = E Y cancels the first order of the integrand, so log Y keeps its relative accuracy when the risk is tiny,
and half of the lower tail need not be summed. With s = exp(v)/S the integrands are analytic in |Im v| < pi/2 and the
trapezoidal rule with step h errs by exp(-pi^2/h): 7e-18 at h = 1/4. Below the first node the integrands of omega are
proportional to s to relative accuracy s, so the lost tail is a geometric series that the first node's weight absorbs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from optgeom._numerics import Array, Square, Vector, blocks, log_nonnegative
from optgeom.losses.law import NegativeLaw

STEP = 0.25
FIRST_NODE = 3e-9  # sigma_0: the tail correction errs by sigma_0^2, below rounding
CHUNK = 24  # nodes evaluated at once; the upper end of the range is found while marching
ENTRIES = 1 << 18  # rows x nodes x columns of one block: 2 MiB, which stays in the second-level cache
TAIL = -42.0  # log of the relative remainder at which marching stops
# Without a constant in Y the nodes reach 1e3 / min x, and their squares must be floating-point numbers. The losses
# refuse temperatures at which cosines could reach this exponent; a trial point of a solver, far from every Gram matrix,
# may, and must still come back finite.
LARGEST_EXPONENT = 340.0
LARGEST_GAIN = 20.0  # t <= 0 at every Gram matrix


@dataclass(frozen=True)
class Multinomial:
    """Counts of k negatives for every anchor group, with the constant a = alpha / q of the loss.

    Attributes
    ----------
    law : NegativeLaw
        Per-class probabilities seen from each anchor group.
    k : int
        Number of negatives, >= 1.
    a : float or (G,)
        The constant in Y = a + sum_j n_j x_j, >= 0: positive in all rows, or 0 in all.
    positive_required : bool
        Restrict to the event that the anchor's own class occurs among the k others.
    own_x : float or (G,)
        x of the anchor's own class, in [0, 1].
    """

    law: NegativeLaw
    k: int
    a: float | Array
    positive_required: bool = False
    own_x: float | Array = 1.0

    @cached_property
    def constants(self) -> Vector:
        """(G,) `a` of each row."""
        return np.broadcast_to(np.asarray(self.a, dtype=np.float64), self.law.own.shape)

    @cached_property
    def own_terms(self) -> Vector:
        """(G,) `own_x` of each row."""
        return np.broadcast_to(np.asarray(self.own_x, dtype=np.float64), self.law.own.shape)

    @property
    def has_floor(self) -> bool:
        """Whether the constant keeps log Y from falling without limit, so that E log(Y / a) exists."""
        return bool(np.all(self.constants > 0)) and not self.positive_required

    def mass(self) -> Vector:
        """(G,) probability of the event: 1, or P(n_own >= 1)."""
        if not self.positive_required:
            return np.ones(self.law.own.size)
        return np.asarray(-np.expm1(self.k * np.log1p(-self.law.own)))

    def mean_sum(self, x: Square) -> Vector:
        """(G,) E[sum_j n_j x_j] over the event, own class included."""
        others = (self.law.count * self.law.other * x).sum(axis=1)
        if self.positive_required:
            others *= -np.expm1((self.k - 1) * np.log1p(-self.law.own))
        return np.asarray(self.k * (self.law.own * self.own_terms + others))


@dataclass(frozen=True)
class _Nodes:
    """Quantities of one block of rows (b) at one chunk of nodes (q), for columns j (one class of group h)."""

    rows: slice
    s: Array  # (b, q) nodes
    ds: Array  # (b, q) trapezoidal weights of int f(s) ds
    decay: Array  # (b, q, G) exp(-s x_j)
    own_decay: Array  # (b, q) exp(-s x_own), for the anchor's own class
    log_phi: Array  # (b, q)
    log_rho: Array | None  # (b, q) log(phi_0 / phi), only when a positive is required

    def log_power(self, exponent: int) -> Array:
        """(b, q) log of phi^r, or of phi^r - phi_0^r when a positive is required."""
        power = exponent * self.log_phi if exponent else np.zeros_like(self.log_phi)
        if self.log_rho is None:
            return power
        if exponent == 0:
            return np.full_like(power, -np.inf)
        return power + log_nonnegative(-np.expm1(exponent * self.log_rho))


def _within_range(counts: Multinomial, t: Array) -> Array:
    bounded = counts.positive_required or np.all(counts.constants > 0)
    return np.asarray(np.clip(t, -np.inf if bounded else -LARGEST_EXPONENT, LARGEST_GAIN))


def _march(counts: Multinomial, t: Array) -> Iterator[_Nodes]:
    """All quadrature nodes for a (G, G) array t of log x, block of rows by block of rows."""
    law, k, a, own_x = counts.law, counts.k, counts.constants, counts.own_terms
    x = np.exp(t)
    mass = counts.mass()
    mean = a + counts.mean_sum(x) / np.where(mass > 0, mass, 1.0)
    seen = (law.count > 0) & (law.other > 0)
    largest = np.where(seen, x, 0.0).max(axis=1)
    smallest = np.where(seen, x, np.inf).min(axis=1)
    has_own = law.own > 0
    largest = np.where(has_own, np.maximum(largest, own_x), largest)
    smallest = np.where(has_own, np.minimum(smallest, own_x), smallest)
    # No draw of k negatives makes Y smaller than this; with a positive among them it is at least x_own.
    floor = a + (own_x if counts.positive_required else smallest)
    scale = np.maximum(mean, a + largest)
    weighted = law.count * law.other
    columns = t.shape[1]
    for rows in blocks(t.shape[0], CHUNK * columns, ENTRIES):
        start = 0
        finished = False
        while not finished:
            sigma = FIRST_NODE * np.exp(STEP * np.arange(start, start + CHUNK))
            s = sigma[None, :] / scale[rows, None]
            ds = STEP * s
            if start == 0:
                ds[:, 0] /= -np.expm1(-STEP)
            exponent = s[:, :, None] * x[rows, None, :]
            shortfall = np.expm1(-exponent)
            own_exponent = s * own_x[rows, None]
            own_shortfall = np.expm1(-own_exponent)
            total = np.matmul(shortfall, weighted[rows, :, None])[:, :, 0] + law.own[rows, None] * own_shortfall
            if total.min() > -0.5:
                decay = shortfall
                decay += 1.0
                log_phi = np.log1p(total)
            else:
                decay = np.exp(-exponent)
                direct = np.matmul(decay, weighted[rows, :, None])[:, :, 0] + law.own[rows, None] * np.exp(
                    -own_exponent
                )
                log_phi = np.where(total > -0.5, np.log1p(np.maximum(total, -0.75)), log_nonnegative(direct))
            own_decay = np.exp(-own_exponent)
            log_rho = None
            if counts.positive_required:
                log_share = (
                    log_nonnegative(law.own[rows, None]) - own_exponent - np.where(np.isfinite(log_phi), log_phi, 0.0)
                )
                with np.errstate(divide="ignore"):
                    log_rho = np.log1p(-np.exp(np.minimum(log_share, 0.0)))
            yield _Nodes(rows, s, ds, decay, own_decay, log_phi, log_rho)
            start += CHUNK
            # int_s^inf exp(-a s') exp(-x_j s') phi^(k-1) ds' <= exp(-floor s) phi(s)^(k-1) / floor, since phi
            # decreases.
            last = s[:, -1]
            remainder = (k - 1) * log_phi[:, -1] if k > 1 else np.zeros_like(last)
            remainder = remainder - floor[rows] * last + np.log(scale[rows] / floor[rows])
            finished = not np.any((remainder >= TAIL) | (mean[rows] * last <= -TAIL))  # so that NaN ends the march too


@dataclass(frozen=True)
class Expectation:
    """E log Y and the weights of its gradient.

    Attributes
    ----------
    log_over_a : (G,) or None
        E log(Y / a) when a > 0 and no positive is required (relative accuracy kept when it is tiny), else None.
    log_mean : (G,)
        E log Y over the event.
    weight : (G, G)
        omega_gh = E n_j / Y for one class j of group h, other than the anchor's own.
    offset : (G,)
        beta_g = E (a + n_own x_own) / Y, so that beta + sum_h count * omega * x = mass.
    """

    log_over_a: Array | None
    log_mean: Array
    weight: Array
    offset: Array


def expect(counts: Multinomial, t: Square) -> Expectation:
    """Expectation of log Y and its weights at t = log x, (G, G); entries that stand for no class are ignored."""
    law, k, a = counts.law, counts.k, counts.constants
    t = _within_range(counts, t)
    mass = counts.mass()
    sums = counts.mean_sum(np.exp(t))
    mean = a + sums / np.where(mass > 0, mass, 1.0)
    correction = np.zeros(t.shape[0])
    weight = np.zeros_like(t)
    own_weight = np.zeros(t.shape[0])
    base_weight = np.zeros(t.shape[0])
    for nodes in _march(counts, t):
        rows = nodes.rows
        log_power = nodes.log_power(k)
        log_integrand = log_power - a[rows, None] * nodes.s
        center = -mean[rows, None] * nodes.s
        if counts.positive_required:
            difference = mass[rows, None] * np.exp(center) - np.exp(log_integrand)
        else:
            # Jensen makes the excess >= 0; the expm1 form keeps its relative accuracy while it is small.
            excess = np.where(np.isfinite(log_integrand), log_integrand - center, 0.0)
            small = np.exp(center) * -np.expm1(np.minimum(excess, 1.0))
            difference = np.where(excess > 1.0, np.exp(center) - np.exp(log_integrand), small)
            difference = np.where(np.isfinite(log_integrand), difference, np.exp(center))
        correction[rows] += STEP * difference.sum(axis=1)
        coefficient = nodes.ds * np.exp(nodes.log_power(k - 1) - a[rows, None] * nodes.s)
        weight[rows] += np.matmul(coefficient[:, None, :], nodes.decay)[:, 0, :]
        # The anchor's own class is present in every draw counted by n_own, so no part of phi is taken away here.
        own_power = (k - 1) * nodes.log_phi if k > 1 else np.zeros_like(nodes.log_phi)
        own_weight[rows] += (nodes.ds * np.exp(own_power - a[rows, None] * nodes.s) * nodes.own_decay).sum(axis=1)
        if np.any(a > 0):
            base_weight[rows] += (nodes.ds * np.exp(log_integrand)).sum(axis=1)
    offset = a * base_weight + k * law.own * counts.own_terms * own_weight
    log_mean = mass * np.log(mean) + correction
    log_over_a = np.log1p(sums / a) + correction if counts.has_floor else None
    return Expectation(log_over_a, log_mean, k * law.other * weight, offset)


DENSE_MOMENTS = 1 << 25  # entries of the table of all second moments that is still worth keeping (256 MiB)


class SecondMoments:
    """The part of the Hessian of E log Y that is not diagonal, at one t.

    It takes a direction to sum_l E[n_j n_l / Y^2] x_j x_l direction_l. Directions are (G, G) perturbations of t; the
    sum runs over the classes l other than the anchor's own. While the (G, G, G) table of moments fits, it is computed
    once (a product then costs no quadrature); otherwise each product marches through the nodes.
    """

    def __init__(self, counts: Multinomial, t: Square) -> None:
        self.counts = counts
        self.t = _within_range(counts, t)
        self.x = np.exp(self.t)
        g = t.shape[0]
        # A table costs as much as G / 2 products by marching, so it pays wherever it fits.
        self.table = np.zeros((g, g, g)) if counts.k > 1 and g**3 <= DENSE_MOMENTS else None
        self.same = np.zeros_like(t)
        for nodes, pair_tilt, same_tilt in self._tilts():
            self.same[nodes.rows] += np.matmul(same_tilt[:, None, :], nodes.decay)[:, 0, :]
            if self.table is not None:
                self.table[nodes.rows] += np.matmul(
                    (nodes.decay * pair_tilt[:, :, None]).transpose(0, 2, 1), nodes.decay
                )

    def _tilts(self) -> Iterator[tuple[_Nodes, Array, Array]]:
        k, a = self.counts.k, self.counts.constants
        for nodes in _march(self.counts, self.t):
            # Beyond 1e150 every exp(-s x) is below 1e-100 (x >= exp(-340) where a = 0), but the square of s overflows.
            tilt = np.minimum(nodes.ds, 1e150) * np.minimum(nodes.s, 1e150) * np.exp(-a[nodes.rows, None] * nodes.s)
            pair = tilt * np.exp(nodes.log_power(k - 2)) if k > 1 else np.zeros_like(tilt)
            yield nodes, pair, tilt * np.exp(nodes.log_power(k - 1))

    def product(self, direction: Square) -> Square:
        """(G, G) result for a (G, G) direction."""
        law, k = self.counts.law, self.counts.k
        moved = self.x * direction
        weighted = law.count * law.other * moved
        pairs = np.zeros_like(moved)
        if self.table is not None:
            pairs = np.matmul(self.table, weighted[:, :, None])[:, :, 0]
        elif k > 1:
            for nodes, pair_tilt, _ in self._tilts():
                inner = np.matmul(nodes.decay, weighted[nodes.rows, :, None])[:, :, 0]
                with np.errstate(invalid="ignore"):
                    coefficient = np.where(inner != 0, pair_tilt * inner, 0.0)
                pairs[nodes.rows] += np.matmul(coefficient[:, None, :], nodes.decay)[:, 0, :]
        return np.asarray(k * law.other * self.x * ((k - 1) * pairs + self.same * moved))
