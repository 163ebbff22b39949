r"""Cosine similarity: is there a sphere embedding with s_ij = cos_ij / tau = log w_ij + const?

The target cosines are known up to one constant c,

    G(c) = I + tau log W (off the diagonal) + c (11' - I),

and the entropic bound is attained iff G(c) is positive semidefinite for some c. lambda_min(G(c)) is concave in c, so
these c form an interval [lo, hi], perhaps a point, perhaps empty. Inside an interval the rank is n: a null vector v of
G at an inner point would be one for all c, but G(c) v - G(0) v = c (1 (1'v) - v) is 0 only for n = 1. At the ends the
rank drops, so the least dimension is there.

References
----------
Vock, Duchesnay, Dufumier 2026, arXiv 2605.13943; Schoenberg 1935 (Gram matrices and distances).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from scipy.optimize import brentq

from optgeom._numerics import EPS, Array
from optgeom.errors import InvalidInputError
from optgeom.programs import group_matrix
from optgeom.programs.group_matrix import Sizes
from optgeom.realization import lift as _lift
from optgeom.realization.weights import Weights

BISECTIONS = 200  # halvings of the bracket of the maximum: it stops at neighbouring numbers long before


@dataclass(frozen=True)
class ShiftRange:
    """The constants c for which the target cosines are those of unit vectors.

    Attributes
    ----------
    interval : (float, float) or None
        [lo, hi], equal where it is a point; None where no c works.
    ranks : (int, int) or None
        Rank of G at lo and at hi. Between them it is n.
    margin : float
        max_c lambda_min(G(c)): how far from the border; negative where no c works, 0 up to rounding for a point.
    best_shift : float
        Where lambda_min is largest.
    threshold : float
        Eigenvalues above it count for the ranks.
    """

    interval: tuple[float, float] | None
    ranks: tuple[int, int] | None
    margin: float
    best_shift: float
    threshold: float

    @property
    def kind(self) -> str:
        """One of "interval", "point" or "empty"."""
        if self.interval is None:
            return "empty"
        return "point" if self.interval[0] == self.interval[1] else "interval"

    @property
    def min_dimension(self) -> int | None:
        """Least dimension of a sphere embedding that attains the bound."""
        return None if self.ranks is None else min(self.ranks)

    def shifts_up_to(self, dim: int) -> tuple[float, ...]:
        """Ends of the interval whose rank is at most `dim`; the end of least rank first, hi before lo at a tie."""
        if self.interval is None or self.ranks is None:
            return ()
        ends = sorted({(self.ranks[which], -self.interval[which]) for which in (0, 1)})
        if self.interval[1] - self.interval[0] <= self.threshold:
            ends = ends[:1]  # the two geometries differ by less than what counts for the rank
        return tuple(-shift for rank, shift in ends if rank <= dim)


def target_cosines(weights: Weights, temperature: float, shift: float) -> Array:
    """(G, G) target tau log w + c between different samples, in group form.

    1 on the diagonal of a group of one sample.
    """
    check_target(weights)
    cosines = np.where(weights.count > 0, temperature * weights.log_weights, 0.0) + shift
    alone = weights.sizes == 1
    cosines[alone, alone] = 1.0
    return cosines


def feasible_shifts(weights: Weights, temperature: float) -> ShiftRange:
    """Find the interval of c, the ranks at its ends and the largest lambda_min.

    One reduction to tridiagonal form, O(G^3); every c then costs O(G).
    """
    pencil = _Pencil.of(weights, temperature)
    best, margin = pencil.maximise()
    threshold = _threshold(temperature, pencil.rounding)
    if margin < -pencil.rounding:
        return ShiftRange(None, None, margin, best, threshold)
    if margin <= pencil.rounding:
        rank = pencil.rank(best, threshold)
        return ShiftRange((best, best), (rank, rank), margin, best, threshold)
    low, high = pencil.root(best, pencil.floor), pencil.root(best, pencil.cap)
    return ShiftRange((low, high), (pencil.rank(low, threshold), pencil.rank(high, threshold)), margin, best, threshold)


def margin(weights: Weights, temperature: float) -> float:
    """max_c lambda_min(G(c)): the bound is attained in some dimension iff this is >= 0. Concave in the temperature."""
    return _Pencil.of(weights, temperature).maximise()[1]


def largest_temperature(weights: Weights) -> float:
    """The largest temperature at which the bound is attained, in enough dimensions; inf where all weights are equal.

    G is linear in (tau, c), so the temperatures that work are an interval (0, tau_max].
    """
    check_target(weights)
    logs = weights.log_weights[weights.count > 0]
    spread = float(logs.max() - logs.min())
    if spread == 0:
        return np.inf
    top = 2.0 / spread  # cosines differ by at most 2
    if margin(weights, top) >= 0:
        return top
    return float(brentq(lambda tau: margin(weights, tau) if tau > 0 else 1.0, 0.0, top, xtol=1e-13 * top, rtol=4 * EPS))


def embedding(weights: Weights, temperature: float, shift: float, dim: int | None = None) -> Array:
    """(n, dim) unit vectors whose cosines are the target at this c.

    They come from a factorisation of G(c) without the eigenvalues that do not count for its rank. Unique up to
    O(dim). `dim` is the rank by default; further columns are zero.
    """
    cosines = target_cosines(weights, temperature, shift)
    ones = np.ones(weights.sizes.size)
    block = group_matrix.symmetric_block(cosines, ones, weights.sizes)
    rest = group_matrix.complement(cosines, ones, weights.sizes)
    floor = _lift.rounding(cosines - shift, weights.sizes, weights.precision, temperature)
    table = _lift.lift(block, rest, weights.sizes, weights.index, _threshold(temperature, floor), dim)
    return np.asarray(table / np.linalg.norm(table, axis=1, keepdims=True))


def check_target(weights: Weights) -> None:
    """Reject weights that have no finite symmetric target."""
    if weights.hard:
        raise InvalidInputError(
            "`weights` must be positive for target similarities; got a weight of zero (hard scheme: no finite target)"
        )
    if not weights.symmetric:
        raise InvalidInputError(
            "`weights` must be symmetrisable for target similarities; got log w_ij - log w_ji that is not a_j - a_i"
        )


def _threshold(temperature: float, rounding: float) -> float:
    """Threshold above which eigenvalues count: 1e-7, times a low temperature, since s = cos/tau magnifies errors."""
    return _lift.rank_threshold(min(1.0, temperature), rounding)


@dataclass(frozen=True)
class _Pencil:
    """G(c) in a basis that starts with the ones vector (tridiagonal, diagonal d - c + c n e1), and its complements."""

    diagonal: Array
    beside: Array  # entries beside the diagonal
    rest: Array  # G(0) on the complement of each group, +inf where there is none
    sizes: Sizes
    rounding: float

    @staticmethod
    def of(weights: Weights, temperature: float) -> _Pencil:
        cosines = target_cosines(weights, temperature, 0.0)
        ones = np.ones(weights.sizes.size)
        diagonal, beside = _lift.tridiagonal(group_matrix.symmetric_block(cosines, ones, weights.sizes), weights.sizes)
        rest = np.where(weights.sizes > 1, group_matrix.complement(cosines, ones, weights.sizes), np.inf)
        rounding = _lift.rounding(cosines, weights.sizes, weights.precision, temperature)
        return _Pencil(diagonal, beside, rest, weights.sizes, rounding)

    @property
    def cap(self) -> float:
        """On the complement of the ones vector G(c) = G(0) - c I, so c is at most its least eigenvalue there."""
        least = float(self.rest.min())
        if self.diagonal.size > 1:
            least = min(least, float(_lowest(self.diagonal[1:], self.beside[1:])[0]))
        return least

    @property
    def floor(self) -> float:
        """Along the ones vector G(c) = d_1 + c (n - 1) must not be negative."""
        return -float(self.diagonal[0]) / (float(self.sizes.sum()) - 1.0)

    def shifted(self, shift: float) -> Array:
        """Diagonal of the tridiagonal matrix at c."""
        diagonal = self.diagonal - shift
        diagonal[0] = self.diagonal[0] + shift * (float(self.sizes.sum()) - 1.0)
        return diagonal

    def lowest(self, shift: float) -> float:
        """lambda_min(G(c))."""
        return min(float(_lowest(self.shifted(shift), self.beside)[0]), float(self.rest.min()) - shift)

    def slope(self, shift: float) -> float:
        """A supergradient of lambda_min: v' (11' - I) v = n v_1^2 - 1 for a unit eigenvector."""
        value, vector = _lowest(self.shifted(shift), self.beside)
        if float(self.rest.min()) - shift < value:
            return -1.0
        return float(self.sizes.sum()) * float(vector[0]) ** 2 - 1.0

    def maximise(self) -> tuple[float, float]:
        """Where lambda_min is largest, and its value.

        Bisection on the sign of the slope, as the maximum may be a kink.
        """
        low, high = self.floor, self.cap
        if low > high:
            # No c is feasible; the maximum is still bracketed: beyond both ends the value falls at a slope of -1, or
            # rises towards them.
            low, high = high, low
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            if not low < middle < high:
                break
            if self.slope(middle) > 0:
                low = middle
            else:
                high = middle
        best = max(((shift, self.lowest(shift)) for shift in (low, high)), key=lambda pair: pair[1])
        # At a kink the slope is up to n on one side, and rounding blurs its sign: the values decide there.
        blur = 10 * self.rounding
        if -blur * float(self.sizes.sum()) < best[1] <= self.rounding:
            best = max(best, self.search(low - blur, high + blur), key=lambda pair: pair[1])
        return best

    def search(self, low: float, high: float) -> tuple[float, float]:
        """Golden section on the values of lambda_min, down to the spacing of numbers."""
        golden = (5.0**0.5 - 1) / 2
        points = [high - golden * (high - low), low + golden * (high - low)]
        values = [self.lowest(point) for point in points]
        while high - low > 2 * EPS * max(abs(low), abs(high), np.finfo(np.float64).tiny) and points[0] < points[1]:
            if values[0] >= values[1]:
                high, points[1], values[1] = points[1], points[0], values[0]
                points[0] = high - golden * (high - low)
                values[0] = self.lowest(points[0])
            else:
                low, points[0], values[0] = points[0], points[1], values[1]
                points[1] = low + golden * (high - low)
                values[1] = self.lowest(points[1])
        return max(zip(points, values, strict=True), key=lambda pair: pair[1])

    def root(self, inside: float, outside: float) -> float:
        """The end of the interval between a feasible c and one where lambda_min <= 0 up to rounding."""
        if self.lowest(outside) >= -self.rounding:
            return outside
        return float(brentq(self.lowest, inside, outside, xtol=4 * EPS, rtol=4 * EPS))

    def rank(self, shift: float, threshold: float) -> int:
        """Number of eigenvalues of the (n, n) matrix G(c) above the threshold."""
        eigenvalues = (
            scipy.linalg.eigvalsh_tridiagonal(self.shifted(shift), self.beside)
            if self.beside.size
            else self.shifted(shift)
        )
        inside = int((self.sizes - 1)[self.rest - shift > threshold].sum())
        return int((eigenvalues > threshold).sum()) + inside


def _lowest(diagonal: Array, beside: Array) -> tuple[float, Array]:
    """Least eigenvalue of a tridiagonal matrix, and a unit eigenvector."""
    if diagonal.size == 1:
        return float(diagonal[0]), np.ones(1)
    values, vectors = scipy.linalg.eigh_tridiagonal(
        diagonal, beside, select="i", select_range=(0, 0), lapack_driver="stebz"
    )
    return float(values[0]), np.asarray(vectors[:, 0], dtype=np.float64)
