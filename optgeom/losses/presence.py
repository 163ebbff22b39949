r"""Negatives averaged over the rows of each class that a batch holds: which classes it holds is all that counts.

With n ~ Multinomial(k, p), x_j = exp(t_j) (t shifted by the margin of the anchor) and S = sum_j 1{n_j >= 1} x_j over
the other classes, rows are E log(1 + S): the own class, averaged too, is the 1. As in `expectation`, log(1 + S) =
int exp(-s) (1 - exp(-s S)) ds/s, and

    E exp(-s S) = k! [z^k] exp(p_own z) prod_j ( 1 + (exp(p_j z) - 1) exp(-s x_j) )
                = (1/2 pi) int W(theta) exp(L) dtheta,      z = k exp(i theta),
    W = k! k^-k exp(z - i k theta),      L = sum_j log( 1 + (1 - exp(-s x_j)) (exp(-p_j z) - 1) ),

Cauchy's formula on |z| = k with exp(z) = exp(p_own z) prod_j exp(p_j z) taken out of the product. Since W alone
integrates to 1, 1 - E exp(-s S) is the integral of -W (exp(L) - 1): no digit is lost where the risk is tiny. The
derivative in x_j replaces one factor. Where a positive must be in the batch, the factor exp(p_own z) loses its 1.

The trapezoidal rule with 12 sqrt(k + 1) points converges beyond rounding (10 from 32 images on); for large k only
angles with k (1 - cos theta) below 60 count, since |W exp(L)| is at most exp(-k (1 - cos theta)) there, and below
exp(-k) where the cosine is negative.

References
----------
Zhu et al. 2022, arXiv 2207.09052 (balanced contrastive learning, without its prototypes).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from optgeom._numerics import Array, Square, Vector, log_nonnegative
from optgeom.losses.expectation import FIRST_NODE, STEP
from optgeom.losses.law import NegativeLaw
from optgeom.losses.rows import Majorizer, RowLoss

LARGEST_NODE = 45.0  # exp(-s) is below rounding beyond
NEGLIGIBLE = 60.0  # exp of minus this, too
# On the circle, times sqrt(k + 1): what changes no digit any more, from 32 images on fewer do.
POINTS, FEWER_POINTS, LARGER = 12, 10, 32
ENTRIES = 1 << 16  # of one block: nodes x angles x classes
SMALL, LARGE = 1e-4, 1e-2  # of a change of a factor: below, a series; above, the product itself keeps the digits
FEW = 8  # classes of a group up to which its factor is multiplied, not raised to a power
TINY = 1e-300  # in place of a factor that underflows to 0

Complex = npt.NDArray[np.complex128]


@dataclass(frozen=True)
class _Block:
    """One anchor at some nodes: the integrand on the circle, and by how much one class more changes it."""

    row: int
    s: Array  # (q,)
    ds: Array  # (q,) weights of int f(s) exp(-s) ds
    weight: Complex  # (a,) W over the circle
    product: Complex  # (q, a) L
    ratio: Complex  # (q, a, G) the factor of a class that is present over the factor of the class

    def over_circle(self, values: Complex) -> Array:
        """(q, ...) integral over the circle of values (q, a, ...)."""
        return np.asarray(np.tensordot(values, self.weight, axes=(1, 0)).real)


@dataclass(frozen=True)
class PresenceRows(RowLoss):
    """value_g = E log( 1 + sum_j 1{n_j >= 1} exp(t_j) ), with k other images in the batch.

    Attributes
    ----------
    law : NegativeLaw
    k : int
    positive_required : bool
        Restrict to the event that the anchor's own class occurs among the k others.
    shift : float or (G, G)
        Added to every t: logarithms of the weights of margins.
    """

    count: Array
    anchor_weight: Array
    law: NegativeLaw
    k: int
    positive_required: bool
    shift: Array | float = 0.0
    gives: ClassVar[frozenset[str]] = frozenset({"majorizer"})

    @cached_property
    def mass(self) -> Vector:
        """(G,) probability of the event: 1, or P(n_own >= 1)."""
        if not self.positive_required:
            return np.ones(self.law.own.size)
        return np.asarray(-np.expm1(self.k * np.log1p(-self.law.own)))

    @cached_property
    def _circle(self) -> tuple[Complex, Complex]:
        """Points z of the upper half circle, and W there times the weight of the rule for the whole circle."""
        points = FEWER_POINTS if self.k >= LARGER else POINTS
        number = 2 * math.ceil(points * math.sqrt(self.k + 1) / 2)
        theta = 2 * math.pi * (np.arange(number // 2) + 0.5) / number
        theta = theta[self.k * (1 - np.cos(theta)) < NEGLIGIBLE]
        weight = np.exp(-2 * self.k * np.sin(theta / 2) ** 2 + 1j * self.k * (np.sin(theta) - theta))
        # W integrates to 1: its factor need not be computed, where k! would lose digits.
        return np.asarray(self.k * np.exp(1j * theta)), np.asarray(weight / weight.real.sum())

    def _blocks(self, t: Square) -> Iterator[_Block]:
        """All nodes of the rows with anchors, some at a time; t with the shift."""
        circle, weight = self._circle
        steps = math.ceil(math.log(LARGEST_NODE * (1 + float(self.count.sum(axis=1).max())) / FIRST_NODE) / STEP)
        s = LARGEST_NODE * np.exp(STEP * (np.arange(steps + 1) - steps))
        ds = STEP * s * np.exp(-s)
        ds[0] /= -math.expm1(-STEP)  # the tail below the first node is a geometric series
        length = max(1, ENTRIES // (circle.size * t.shape[1]))
        for row in range(t.shape[0]):
            absent = np.expm1(-self.law.other[row] * circle[:, None])  # (a, G)
            own = -np.expm1(-self.law.own[row] * circle) * weight if self.positive_required else weight
            x = np.where(self.count[row] > 0, np.exp(np.minimum(t[row], 20.0)), 0.0)
            for start in range(0, s.size, length):
                part = slice(start, start + length)
                exponent = s[part, None] * x
                shortfall = -np.expm1(-exponent)  # (q, G)
                change = shortfall[:, None, :] * absent
                factor = np.exp(-exponent)[:, None, :] + shortfall[:, None, :] * (1 + absent)
                factor = np.where(factor == 0, TINY, factor)
                product = _log_product(change, factor, self.count[row])
                ratio = -absent * np.exp(-exponent)[:, None, :] / factor
                yield _Block(row, s[part], ds[part], own, product, ratio)

    def value(self, t: Square) -> Vector:
        total = np.zeros(t.shape[0])
        for block in self._blocks(t + self.shift):
            missing = -block.over_circle(np.expm1(block.product))
            total[block.row] += float(np.sum(block.ds / block.s * missing))
        return total

    def _weights(self, t: Square) -> tuple[Square, Vector]:
        """(G, G) E[ 1{n_j >= 1} / (1 + S) ], and (G,) E[ 1 / (1 + S) ]."""
        present, base = np.zeros_like(t), np.zeros(t.shape[0])
        for block in self._blocks(t):
            whole = np.exp(block.product)
            base[block.row] += float(block.ds @ block.over_circle(whole))
            present[block.row] += block.ds @ block.over_circle(whole[:, :, None] * block.ratio)
        return present, base

    def log_pull(self, t: Square) -> Square:
        t = t + self.shift
        return np.asarray(log_nonnegative(np.maximum(self._weights(t)[0], 0.0)) + t)

    def reaches(self) -> npt.NDArray[np.bool_]:
        return self.law.other > 0

    def curvature(self, t: Square) -> Callable[[Array], Array]:
        t = t + self.shift
        x = np.where(self.count > 0, np.exp(t), 0.0)
        pull = self._weights(t)[0] * x
        groups = t.shape[0]
        pairs, same = np.zeros((groups, groups, groups)), np.zeros_like(t)
        for block in self._blocks(t):
            whole = np.exp(block.product)[:, :, None] * block.ratio
            same[block.row] += (block.ds * block.s) @ block.over_circle(whole)
            # Sum over nodes and angles at once: (G, n) times (n, G).
            weighted = whole * (block.ds * block.s)[:, None, None] * block.weight[:, None]
            flat = (-1, groups)
            pairs[block.row] += (weighted.reshape(flat).T @ block.ratio.reshape(flat)).real
        own = np.einsum("ghh->gh", pairs)

        def product(direction: Square) -> Array:
            moved = x * direction
            others = np.einsum("ghl,gl->gh", pairs, self.count * moved) - own * moved
            return np.asarray(pull * direction - x * (others + same * moved))

        return product

    def majorizer(self, t: Square) -> Majorizer:
        present, base = self._weights(t + self.shift)
        log_weight = np.asarray(log_nonnegative(np.maximum(present, 0.0)) + self.shift)
        return Majorizer(log_nonnegative(base), log_weight, self.mass, exact=False)


def _log_product(change: Complex, factor: Complex, count: Array) -> Complex:
    """(q, a) log of prod_j factor_j^count_j, with factor = 1 + change; a logarithm of each entry is what costs most."""
    largest = float(np.max(np.abs(change)))
    if largest < SMALL:
        return np.asarray((change * (1 - change * (1 / 2 - change * (1 / 3 - change / 4)))) @ count)
    if largest < LARGE:
        return np.asarray(np.log1p(change) @ count)
    few = count <= FEW
    repeated = np.repeat(np.flatnonzero(few), count[few].astype(np.intp))
    with np.errstate(divide="ignore"):
        total = np.log(np.prod(factor[:, :, repeated], axis=2))
    return np.asarray(total if few.all() else total + np.log(factor[:, :, ~few]) @ count[~few])
