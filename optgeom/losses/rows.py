r"""One anchor's expected loss as a function of its row of the Gram matrix, for every anchor group at once.

Everything is a function of t = (A - 1)/tau <= 0, a (G, G) array whose entry (g, h) stands for one class j of group h
other than the anchor's own class i of group g (the diagonal is the other classes of the same group). The risk is

    F = sum_g m_g anchor_weight_g value_g(t_g),        pull_gh = d value_g / d t_ij   for one such class j.

Solvers ask for what they need: the second-order solver for `curvature`, the Newton solver for a `majorizer`
(log-sum losses) or for `pair_slopes` (separable losses).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from optgeom._numerics import Array, Square, Vector, log_nonnegative, logsumexp_rows
from optgeom.errors import IncompatibleError
from optgeom.losses.expectation import Multinomial, SecondMoments, expect
from optgeom.losses.law import NegativeLaw, other_classes


@dataclass(frozen=True)
class Majorizer:
    r"""Upper bound of every row, exact in value and slope at the point where it was taken:

        value_g(t) <= const + mass_g log( exp(log_offset_g) + sum_h count_gh exp(log_weight_gh + t_gh) ).

    `exact` says that it is the row itself, whatever the point (infinitely many negatives, full batch).
    """

    log_offset: Array
    log_weight: Array
    mass: Array
    exact: bool


@dataclass(frozen=True)
class Cuts:
    """Affine minorants of the terms of all rows, for losses with kinks: hinges, hardest negatives.

    A convex term lies above each of its tangents, and above every mixture of them. At a kink those of both sides, in a
    mixture that is free to choose, are what solvers and certificates need in place of a gradient.

    The risk is constant + sum over terms of weight (term); a cut of term k of row g says
    term >= level + sum_h count_gh slope_h t_gh.

    Attributes
    ----------
    row : (T,) intp
        Row g of each term.
    weight : (T,)
        m_g r_g times the weight of the term within its row.
    term : (K,) intp
        Term of each cut.
    level : (K,)
    slope : (K, G)
        Derivative in t_gh of one class.
    """

    row: npt.NDArray[np.intp]
    weight: Array
    term: npt.NDArray[np.intp]
    level: Array
    slope: Array

    def joined(self, other: Cuts) -> Cuts:
        """These cuts and others of the same terms, each once."""
        term, level = np.concatenate([self.term, other.term]), np.concatenate([self.level, other.level])
        slope = np.concatenate([self.slope, other.slope])
        size = np.maximum(1.0, np.abs(np.column_stack([level, slope])).max(axis=0))
        rounded = np.round(np.column_stack([level, slope]) / size, 13)
        kept = np.sort(np.unique(np.column_stack([term, rounded]), axis=0, return_index=True)[1])
        return Cuts(self.row, self.weight, term[kept], level[kept], slope[kept])


def lacks(capability: str, rows: RowLoss) -> IncompatibleError:
    """Error for a method that these rows do not have."""
    given = ", ".join(sorted(rows.gives)) or "nothing beyond value, pull and curvature"
    return IncompatibleError(f"{type(rows).__name__} must give {capability!r} for this; got rows that give {given}")


class RowLoss(ABC):
    """Rows of a loss bound to class groups.

    Attributes
    ----------
    count : (G, G)
        Number of other classes, as in `NegativeLaw.count`.
    anchor_weight : (G,)
        Weight of ONE anchor class of each group in the risk.
    gives : frozenset of str
        What solvers may use beyond value, pull and curvature:
        "majorizer": `majorizer`, a log-sum upper bound; "log-sum": the rows are such a log-sum themselves;
        "pair-slopes": `pair_slopes`, since the pull of a pair depends on its own cosine only;
        "linear": the rows are linear in t (k = 1, alpha = 0), a linear program over the elliptope;
        "pair-mean": with equally frequent classes a row is at least the mean, over its pairs, of the row in which every
        pair has that t, as a log-sum is, being concave in the distribution of t;
        "cuts": `cuts`, for rows with kinks, whose pull is one of several derivatives there;
        "merge": `merge`, for losses under which some classes coincide whatever the parameters.
    """

    count: Array
    anchor_weight: Array
    gives: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def value(self, t: Square) -> Vector:
        """(G,) expected loss of one anchor of each group."""

    def value_above_floor(self, t: Square) -> Vector:
        """(G,) value minus a constant of the row, where that keeps digits: what is left as all t fall without limit."""
        return self.value(t)

    @abstractmethod
    def log_pull(self, t: Square) -> Square:
        """(G, G) log of the derivative with respect to one t_ij; -inf where there is no force."""

    def pull(self, t: Square) -> Square:
        """(G, G) the derivative itself; it underflows at very small temperatures."""
        return np.asarray(np.exp(self.log_pull(t)))

    @abstractmethod
    def reaches(self) -> npt.NDArray[np.bool_]:
        """(G, G) True where classes of group h are among the negatives of anchors of group g, with a positive pull."""

    @abstractmethod
    def curvature(self, t: Square) -> Callable[[Array], Array]:
        """Hessian products at t: a function from a (G, G) direction to the (G, G) derivative of the pull along it."""

    def majorizer(self, t: Square) -> Majorizer:
        """Log-sum upper bound at t, where these rows give a "majorizer"."""
        raise lacks("majorizer", self)

    def pair_slopes(self, t: Square) -> Square:
        """(G, G) derivative of each pull in its own t, where these rows give "pair-slopes"."""
        raise lacks("pair-slopes", self)

    def largest_multiple(self, pulls: Square) -> Vector:
        """(G,) how many times these pulls weights of negatives can make a row exert, where these give a "majorizer".

        A pull is the share of the denominator that one class holds, on average over the negatives: all pulls together
        stay below 1.
        """
        return np.asarray(1.0 / (self.count * np.where(self.count > 0, pulls, 0.0)).sum(axis=1))

    def smallest_multiple(self, pulls: Square) -> Vector:
        """(G,) how many times these pulls a row exerts at least: 0 where something else stands in the denominator."""
        return np.zeros(self.count.shape[0])

    def cuts(self, t: Square) -> Cuts:
        """Tangents near t on both sides of every kink, where these rows give "cuts"."""
        raise lacks("cuts", self)

    def first_cuts(self, t: Square) -> Cuts:
        """Tangents all over the range of t, from which a search can begin."""
        return self.cuts(t)

    def merge(self, merged: npt.NDArray[np.bool_]) -> RowLoss:
        """Rows in which each marked group, whose classes have no weight, is one pseudo-class of its total weight."""
        raise lacks("merge", self)


@dataclass(frozen=True)
class LogSumRows(RowLoss):
    """value_g = log( offset_g + sum_h count_gh weight_gh exp(t_gh) ): infinitely many negatives, and the full batch."""

    count: Array
    anchor_weight: Array
    offset: Array  # (G,) >= 0
    log_weight: Array  # (G, G), -inf where there is no negative
    gives: ClassVar[frozenset[str]] = frozenset({"majorizer", "log-sum", "merge", "pair-mean"})

    @cached_property
    def _log_counted(self) -> Array:
        return np.asarray(log_nonnegative(self.count) + self.log_weight)

    def _log_terms(self, t: Square) -> Array:
        return np.asarray(self._log_counted + t)

    def _log_sum(self, t: Square) -> Array:
        return np.asarray(np.logaddexp(log_nonnegative(self.offset), logsumexp_rows(self._log_terms(t))))

    def value_above_floor(self, t: Square) -> Vector:
        terms = self._log_terms(t)
        based = self.offset > 0
        base = np.where(based, self.offset, 1.0)
        # log1p keeps the relative accuracy of a tiny excess over a positive offset.
        above = np.log1p(np.exp(terms).sum(axis=1) / base)
        return above if based.all() else np.where(based, above, logsumexp_rows(terms))

    def value(self, t: Square) -> Vector:
        return np.asarray(np.log(np.where(self.offset > 0, self.offset, 1.0)) + self.value_above_floor(t))

    def pull(self, t: Square) -> Square:
        # One exponential per entry, where the logarithm of the pull and its exponential take three.
        terms = self._log_terms(t)
        log_offset = log_nonnegative(self.offset)
        top = np.maximum(log_offset, terms.max(axis=1))
        top = np.where(np.isfinite(top), top, 0.0)
        shares = np.exp(terms - top[:, None])
        total = np.exp(log_offset - top) + shares.sum(axis=1)
        return np.asarray(
            shares / (np.where(total > 0, total, 1.0)[:, None] * np.where(self.count > 0, self.count, 1.0))
        )

    def log_pull(self, t: Square) -> Square:
        return np.asarray(self.log_weight + t - self._log_sum(t)[:, None])

    def reaches(self) -> npt.NDArray[np.bool_]:
        return np.isfinite(self.log_weight)

    def curvature(self, t: Square) -> Callable[[Array], Array]:
        pull = np.exp(self.log_pull(t))
        counted = self.count * pull
        return lambda direction: np.asarray(pull * (direction - np.einsum("gh,gh->g", counted, direction)[:, None]))

    def majorizer(self, t: Square) -> Majorizer:
        return Majorizer(log_nonnegative(self.offset), self.log_weight, np.ones(self.offset.size), exact=True)

    def merge(self, merged: npt.NDArray[np.bool_]) -> LogSumRows:
        sizes = np.where(merged, 1, np.diag(self.count) + 1).astype(np.int64)
        column = np.where(merged, np.log(np.diag(self.count) + 1), 0.0)
        return replace(self, count=other_classes(sizes), log_weight=self.log_weight + column[None, :])


@dataclass(frozen=True)
class LinearRows(RowLoss):
    """value_g = constant + sum_h count_gh p_gh t_gh.

    Rows of one negative without the positive in the denominator (k = 1, alpha = 0).
    """

    count: Array
    anchor_weight: Array
    law: NegativeLaw
    constant: Array | float  # log q and the logs of weights, which move nothing
    gives: ClassVar[frozenset[str]] = frozenset({"linear", "pair-mean"})

    def value(self, t: Square) -> Vector:
        chance = self.count * self.law.other
        return np.asarray(self.constant + np.where(chance > 0, chance * t, 0.0).sum(axis=1))

    def log_pull(self, t: Square) -> Square:
        return log_nonnegative(self.law.other)

    def reaches(self) -> npt.NDArray[np.bool_]:
        return self.law.other > 0

    def curvature(self, t: Square) -> Callable[[Array], Array]:
        return np.zeros_like


@dataclass(frozen=True)
class RowWeights:
    """Weights of the rows of a loss, bound to groups.

    Attributes
    ----------
    anchor : (G,)
        Weight of ONE anchor class in the risk.
    negative : (G, G)
        b_gh >= 0 of a negative of one class of group h for an anchor of group g.
    own : (G,)
        b_gg of a row of the anchor's own class; 0 where the denominator leaves it out.
    """

    anchor: Array
    negative: Array
    own: Array


@dataclass(frozen=True)
class MultinomialRows(RowLoss):
    """value_g = log( factor_g ) + E log( a_g + sum_j n_j b_j exp(t_j) ) with k i.i.d. negatives (`expectation`).

    The weights are scaled to at most 1 in each row, and `factor` holds the rest. Where there is a constant the value is
    written log(alpha) + E log(Y / a), which is exact when the risk is tiny.
    """

    count: Array
    anchor_weight: Array
    counts: Multinomial
    log_weight: Array | float  # log of the scaled weights of negatives, 0 where there are none
    log_alpha: Array | float  # log of the constant in the loss, -inf when there is none
    log_factor: Array | float
    gives: ClassVar[frozenset[str]] = frozenset({"majorizer", "pair-mean"})

    @classmethod
    def of(
        cls,
        law: NegativeLaw,
        k: int,
        weights: RowWeights,
        *,
        alpha: float | Array,
        factor: float = 1.0,
        positive_required: bool = False,
    ) -> MultinomialRows:
        """Rows of E log( alpha + factor sum_j n_j b_j exp(t_j) ), or of that on the event that a positive occurs."""
        seen = (law.count > 0) & (law.other > 0)
        used = np.where(seen, weights.negative, 0.0)
        own = np.where(law.own > 0, weights.own, 0.0)
        top = np.maximum(used.max(axis=1), own)
        top = np.where(top > 0, top, 1.0)
        scaled = np.where(seen, weights.negative / top[:, None], 1.0)
        counts = Multinomial(law, k, alpha / (factor * top), positive_required, weights.own / top)
        return cls(
            law.count,
            weights.anchor,
            counts,
            log_nonnegative(scaled),
            log_nonnegative(alpha),
            np.log(factor * top),
        )

    def value_above_floor(self, t: Square) -> Vector:
        expected = expect(self.counts, t + self.log_weight)
        return expected.log_mean if expected.log_over_a is None else expected.log_over_a

    def value(self, t: Square) -> Vector:
        above = self.value_above_floor(t)
        if self.counts.has_floor:
            return np.asarray(self.log_alpha + above)
        return np.asarray(above + self.counts.mass() * self.log_factor)

    def log_pull(self, t: Square) -> Square:
        scaled = t + self.log_weight
        return np.asarray(log_nonnegative(expect(self.counts, scaled).weight) + scaled)

    def reaches(self) -> npt.NDArray[np.bool_]:
        return np.asarray((self.counts.law.other > 0) & np.isfinite(self.log_weight))

    def curvature(self, t: Square) -> Callable[[Array], Array]:
        scaled = t + self.log_weight
        pull = np.exp(self.log_pull(t))
        moments = SecondMoments(self.counts, scaled)
        return lambda direction: np.asarray(pull * direction - moments.product(direction))

    def largest_multiple(self, pulls: Square) -> Vector:
        # Classes of a set S hold a share of the denominator only where one of them is drawn, with probability f(q(S)),
        # f concave: of all sets those with the most pull per probability bind, one group after the other.
        pulled, probability = self._in_order(pulls, -1.0)
        drawn = self._chance(probability)
        return np.asarray(np.min(np.divide(drawn, pulled, out=np.full_like(pulled, np.inf), where=pulled > 0), axis=1))

    def smallest_multiple(self, pulls: Square) -> Vector:
        if self.counts.positive_required or np.any(self.counts.constants > 0):
            return super().smallest_multiple(pulls)
        # Where all negatives are of a set S, it holds the whole denominator: with probability q(S)^k, which is convex.
        pulled, probability = self._in_order(pulls, 1.0)
        return np.asarray(np.max(np.minimum(probability, 1.0) ** self.counts.k / pulled, axis=1))

    def _in_order(self, pulls: Square, sign: float) -> tuple[Square, Square]:
        """Pull and probability of the first 1, 2, ... groups of other classes in order of pull per probability."""
        law = self.counts.law
        some = (self.count > 0) & (law.other > 0)
        density = np.divide(pulls, law.other, out=np.full_like(pulls, np.inf), where=some)
        order = np.argsort(np.where(some, sign * density, np.inf), axis=1, kind="stable")
        parts = (np.where(some, self.count * values, 0.0) for values in (pulls, law.other))
        pulled, probability = (np.cumsum(np.take_along_axis(part, order, axis=1), axis=1) for part in parts)
        return pulled, probability

    def _chance(self, probability: Square) -> Square:
        """Chance that a set of other classes is drawn (with a positive, if required), from that of one negative."""
        k, own = self.counts.k, self.counts.law.own[:, None]
        with np.errstate(divide="ignore"):
            none = np.exp(k * np.log1p(-np.minimum(probability, 1.0)))
            neither = np.exp(k * np.log1p(-np.minimum(probability + own, 1.0)))
        if not self.counts.positive_required:
            return np.asarray(1.0 - none)
        return np.asarray(self.counts.mass()[:, None] - (none - neither))

    def majorizer(self, t: Square) -> Majorizer:
        expected = expect(self.counts, t + self.log_weight)
        log_offset = log_nonnegative(expected.offset)
        return Majorizer(
            log_offset, log_nonnegative(expected.weight) + self.log_weight, self.counts.mass(), exact=False
        )
