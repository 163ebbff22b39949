"""A loss as a sum over pairs of rows, weighted by their classes: what the empirical risk is where no batch is drawn.

The similarities come as a function that gives a block of rows of the (n, n) matrix, which never exists as a whole: of
the rows themselves, or of the class means that stand for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from optgeom._numerics import Array, blocks, log_nonnegative, logsumexp_rows
from optgeom.embeddings.metrics.metric import Estimate
from optgeom.embeddings.moments.unit_rows import ENTRIES, Index, UnitRows
from optgeom.losses.on_rows import WHOLE, PairSum
from optgeom.losses.weights import ClassValues

Cosines = Callable[[slice | Index], Array]
Mask = npt.NDArray[np.bool_]

SEEDS = 3
# A draw of negatives costs as many binomials as there are rows, so each round takes a part of the anchors.
ANCHORS = 256


@dataclass(frozen=True)
class RiskEstimate(Estimate):
    """An estimate of a risk.

    Attributes
    ----------
    anchors : int
        Anchor terms that were evaluated.
    skipped : int
        Of these, anchors without a positive: counted as 0 or left out, as the loss says.
    stand_ins : int
        Anchors, or rows of batches, for which the same row was taken again because its class has no other: the value is
        then too low.
    views_missing : bool
        The loss has several views and the rows have not: other rows of the class stood for views, and the value is
        rather too high.
    convention : str
        What the value leaves out, as `geometry.risk` does.
    """

    _: KW_ONLY
    anchors: int = 0
    skipped: int = 0
    stand_ins: int = 0
    views_missing: bool = False
    convention: str = WHOLE

    def caveats(self) -> str | None:
        """What to know before the value is compared, in words."""
        parts = [
            self.convention if self.convention != WHOLE else "",
            "other images of the class stood for views" if self.views_missing else "",
            f"{self.stand_ins} rows stood in for themselves, their classes being too small" if self.stand_ins else "",
        ]
        return "; ".join(filter(None, parts)) or None


def cosines_of_rows(rows: Array) -> Cosines:
    """Cosines of unit rows; rounding above 1 is clipped."""
    return lambda block: np.asarray(np.clip(rows[block] @ rows.T, -1.0, 1.0))


def cosines_of_classes(gram: Array, codes: Index) -> Cosines:
    """Inner products of class means in place of the rows; the diagonal of `gram` stands for two rows of one class."""
    return lambda block: np.asarray(gram[codes[block]][:, codes])


def supcon_terms(cosines: Cosines, codes: Index, temperature: float) -> Array:
    """(n,) terms of SupCon; nan without a positive."""
    n = codes.size
    terms = np.full(n, math.nan)
    for block in blocks(n, n, ENTRIES):
        at = np.arange(n)[block]
        scaled = cosines(block) / temperature
        positive = codes[block][:, None] == codes[None, :]
        positive[at - block.start, at] = False
        scaled[at - block.start, at] = -math.inf
        count = positive.sum(axis=1)
        mean = np.where(positive, scaled, 0.0).sum(axis=1) / np.maximum(count, 1)
        terms[block] = np.where(count > 0, logsumexp_rows(scaled) - mean, math.nan)
    return terms


@dataclass(frozen=True, eq=False)
class BatchRows:
    """SupCon of the rows of one batch, with weights and temperatures per class.

    Attributes
    ----------
    codes : (n,)
        Class of each row; the rows of an image follow each other.
    temperature : float
    views : int
        Rows per image.
    values : ClassValues or None
    """

    codes: Index
    temperature: float
    views: int
    values: ClassValues | None

    @property
    def anchor_weight(self) -> Array:
        """(n,) weights of the terms."""
        return np.ones(self.codes.size) if self.values is None else self.values.anchor[self.codes]

    def terms(self, cosines: Cosines) -> Array:
        """(n,) terms; nan without a positive."""
        values, codes, n = self.values, self.codes, self.codes.size
        if values is None:
            return supcon_terms(cosines, codes, self.temperature)
        terms = np.full(n, math.nan)
        number = np.bincount(codes, minlength=values.anchor.size)
        images = np.arange(n) // self.views
        for block in blocks(n, n, ENTRIES):
            at = np.arange(n)[block]
            own = codes[at][:, None] == codes[None, :]
            log_weight = log_nonnegative(values.negative[codes[at]][:, codes])
            if values.averaged:
                log_weight -= np.log(np.where(own, number[codes] - 1.0, number[codes]).clip(1.0))
            else:
                log_weight = np.where(images[at][:, None] == images[None, :], 0.0, log_weight)
            if not values.with_own:
                log_weight = np.where(own, -math.inf, log_weight)
            log_weight[at - block.start, at] = -math.inf
            positives = own.copy()
            positives[at - block.start, at] = False
            several = positives.any(axis=1)
            scaled = cosines(block) / values.temperature[codes[at]][:, None]
            log_alpha = -math.inf if values.with_own else 0.0
            known = contrast_terms(scaled[several], positives[several], log_weight[several], log_alpha)
            terms[at[several]] = known
        return terms


def contrast_terms(scaled: Array, positives: Mask, log_weights: Array, log_alpha: float) -> Array:
    r"""(b,) mean over the positives p of log( alpha + sum_j w_j exp((s_j - s_p)/tau) ).

    Parameters
    ----------
    scaled, positives, log_weights : (b, n)
        Similarities of b anchors over tau, their positives (at least one each), and log w.
    log_alpha : float
        -inf for alpha = 0.
    """
    total = logsumexp_rows(scaled + log_weights)
    number = positives.sum(axis=1)
    if log_alpha == -math.inf:
        return np.asarray(total - np.where(positives, scaled, 0.0).sum(axis=1) / number)
    row, column = np.nonzero(positives)  # a small share of all entries, and logaddexp is expensive
    each = np.logaddexp(log_alpha, total[row] - scaled[row, column])
    return np.asarray(np.bincount(row, each, minlength=number.size) / number)


def positives_of(at: Index, codes: Index, images: Index | None) -> tuple[Mask, int]:
    """(b, n) positives of the anchors at rows `at` (b,), and how many anchors stand in for themselves.

    Positives are the rows of its class from other images; where there are none, the other views of its own; where there
    are none either, the row itself, as if its class had collapsed.
    """
    local = np.arange(at.size)
    positives = codes[at][:, None] == codes[None, :]
    positives[local, at] = False
    if images is not None:
        others = positives & (images[at][:, None] != images[None, :])
        positives = np.where(others.any(axis=1)[:, None], others, positives)
    alone = ~positives.any(axis=1)
    positives[local[alone], at[alone]] = True
    return positives, int(alone.sum())


def in_pairs(
    unit: UnitRows, pairs: PairSum, temperature: float, *, seed: int, rounds: int, size: int, gram: Array | None
) -> RiskEstimate:
    """Mean over `rounds` evaluations, on all rows or, above `size`, on three samples of them.

    Parameters
    ----------
    unit : UnitRows
    pairs : PairSum
    temperature : float
    seed, rounds, size : int
    gram : (C, C), optional
        Products of class means, whose loss over the same draws is subtracted.
    """
    rng = np.random.default_rng(seed)
    whole = unit.n <= size
    values: list[float] = []
    anchors, stand_ins, rows = 0, 0, unit.n
    repeats = 1 if whole else SEEDS
    for _ in range(repeats):
        part = unit if whole else unit.subset(stratified(unit.codes, unit.num_classes, size, rng))
        rows = min(rows, part.n)
        drawn = [_Round(part, pairs, temperature, rng, gram) for _ in range(-(-rounds // repeats))]
        means = [one.value for one in drawn]
        values += means if whole else [float(np.mean(means))]
        anchors += sum(one.anchors for one in drawn)
        stand_ins += sum(one.stand_ins for one in drawn)
    mean = Estimate.exact(values[0], rows) if len(values) == 1 else Estimate.of_repeats(values, rows)
    return RiskEstimate(
        mean.value,
        mean.standard_error,
        rows,
        anchors=anchors,
        skipped=pairs.skipped,
        stand_ins=stand_ins,
        views_missing=pairs.views > 1 and not unit.has_views,
        convention=pairs.convention,
    )


class _Round:
    """One evaluation over anchors.

    Attributes
    ----------
    value : float
    anchors : int
    stand_ins : int
        Anchors that stand in for themselves.
    """

    def __init__(
        self, part: UnitRows, pairs: PairSum, temperature: float, rng: np.random.Generator, gram: Array | None
    ) -> None:
        per_class = part.counts.astype(np.float64)
        weight = (pairs.anchor_weight / per_class)[part.codes]
        chosen = np.flatnonzero(weight > 0)
        if pairs.draws is not None and chosen.size > ANCHORS:
            chosen = np.sort(rng.choice(part.n, ANCHORS, p=weight / weight.sum()))
            weight = np.full(part.n, weight.sum() / ANCHORS)
        images = None if pairs.whole_batch else part.images
        similar = [(1.0, cosines_of_rows(part.take(slice(None))))]
        if gram is not None:
            similar.append((-1.0, cosines_of_classes(gram, part.codes)))
        self.value, self.anchors, self.stand_ins = 0.0, int(chosen.size), 0
        for block in blocks(chosen.size, part.n, ENTRIES):
            at = chosen[block]
            positives, alone = positives_of(at, part.codes, images)
            self.stand_ins += alone
            masses = _masses(part.codes, per_class, at, positives, pairs.mass(part.codes[at]))
            counts = masses if pairs.draws is None else _drawn(masses, pairs.draws, rng)
            for sign, cosines in similar:
                own = temperature if pairs.temperature is None else pairs.temperature[part.codes[at]][:, None]
                scaled = cosines(at) / own
                if pairs.psi is None:
                    factor: Any = 1.0 if pairs.draws is None else pairs.draw_weight
                    if pairs.draw_weights is not None:
                        factor = factor * pairs.draw_weights[part.codes[at]][:, part.codes]
                    log_alpha = float(log_nonnegative(pairs.alpha))
                    terms = contrast_terms(scaled, positives, log_nonnegative(counts * factor), log_alpha)
                else:
                    terms = _psi_terms(scaled, positives, counts, pairs.psi)
                self.value += sign * float(np.sum(weight[at] * terms))


def _masses(codes: Index, per_class: Array, at: Index, positives: Mask, mass: Array) -> Array:
    """(b, n) mass of each row as a negative: that of its class over its rows, of the anchor's class over positives."""
    each = (mass / per_class[None, :])[:, codes]
    own = mass[np.arange(at.size), codes[at]] / positives.sum(axis=1)
    same = codes[at][:, None] == codes[None, :]
    return np.where(same, np.where(positives, own[:, None], 0.0), each)


def _drawn(masses: Array, number: int, rng: np.random.Generator) -> Array:
    """(b, n) how often each row comes up among `number` independent negatives of each anchor."""
    if 4 * number > masses.shape[1]:
        return rng.multinomial(number, masses / masses.sum(axis=1, keepdims=True)).astype(np.float64)
    # A binomial for each of n rows costs more than finding a few draws in the cumulative law.
    law = np.cumsum(masses, axis=1)
    counts = np.empty_like(masses)
    for anchor, cumulative in enumerate(law):
        # In (0, total] and from the left: neither rounding nor a row without mass is ever hit.
        at = np.searchsorted(cumulative, (1.0 - rng.random(number)) * cumulative[-1], side="left")
        counts[anchor] = np.bincount(at, minlength=cumulative.size)
    return counts


def _psi_terms(scaled: Array, positives: Mask, counts: Array, psi: Callable[[Array], Array]) -> Array:
    """(b,) mean over the positives p of psi((s_j - s_p)/tau over the drawn negatives j)."""
    terms = np.empty(len(scaled))
    for anchor, row in enumerate(scaled):
        negatives = np.repeat(row, counts[anchor].astype(np.intp))
        own = row[positives[anchor]]
        parts = blocks(own.size, negatives.size, ENTRIES)
        terms[anchor] = sum(float(psi(negatives - own[part, None]).sum()) for part in parts) / own.size
    return terms


def stratified(codes: Index, num_classes: int, size: int, rng: np.random.Generator) -> Index:
    """Row numbers of a sample of about `size` rows: every class whole up to a common number of rows, two at least.

    Rare classes weigh in every sum over negatives, and a plain sample would lose them; classes are weighted by their
    proportions afterwards, so their share of the sample does not matter.
    """
    counts = np.bincount(codes, minlength=num_classes)
    level = 2
    low, high = 2, int(counts.max())
    while low <= high:
        level_tried = (low + high) // 2
        if int(np.minimum(counts, level_tried).sum()) <= size:
            level, low = level_tried, level_tried + 1
        else:
            high = level_tried - 1
    members = by_label(codes, num_classes)
    kept = [rows if rows.size <= level else rng.choice(rows, level, replace=False) for rows in members]
    return np.sort(np.concatenate(kept))


def by_label(labels: Index, count: int) -> tuple[Index, ...]:
    """Positions of each label, 0 to count - 1."""
    order = np.argsort(labels, kind="stable")
    ends = np.cumsum(np.bincount(labels, minlength=count))[:-1]
    return tuple(np.split(order, ends))
