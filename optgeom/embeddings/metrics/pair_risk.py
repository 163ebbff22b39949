"""A loss as a sum over pairs of rows, weighted by their classes: what the empirical risk is where no batch is drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from optgeom import _checks
from optgeom._numerics import Array, blocks, log_nonnegative, logsumexp_rows
from optgeom.embeddings.metrics.metric import Estimate
from optgeom.embeddings.metrics.unit_rows import ENTRIES, Index, UnitRows
from optgeom.errors import InvalidInputError
from optgeom.losses import InfoNCE, Loss, SupConFullBatch
from optgeom.losses.law import explicit
from optgeom.losses.supcon import SINGLETONS

Cosines = Callable[[slice | Index], Array]
Mask = npt.NDArray[np.bool_]


NOTHING = "the loss itself, nothing left out"


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
    convention: str = NOTHING

    def caveats(self) -> str | None:
        """What to know before the value is compared, in words."""
        parts = [
            self.convention if self.convention != NOTHING else "",
            "other images of the class stood for views" if self.views_missing else "",
            f"{self.stand_ins} rows stood in for themselves, their classes being too small" if self.stand_ins else "",
        ]
        return "; ".join(filter(None, parts)) or None


@dataclass(frozen=True, eq=False)
class BatchLoss:
    """SupCon of one batch.

    Attributes
    ----------
    value : float
        Mean over the anchors: over all of them (`zero`), or over those that have a positive (`skip`).
    terms : (n,)
        Term of each anchor; nan where it has no positive.
    anchors : int
        n.
    skipped : int
        Anchors without a positive.
    """

    value: float
    terms: Array
    anchors: int
    skipped: int


def supcon_loss(rows: Any, codes: Any, temperature: float = 0.1, singletons: str = "zero") -> BatchLoss:
    r"""SupCon (L_out, the anchor itself excluded) of one batch of unit rows, exactly:

        term_i = log sum_{j != i} exp(z_i.z_j / T) - mean over positives p of z_i.z_p / T.

    Parameters
    ----------
    rows : (n, d)
        Unit rows in any floating type; all sums are float64.
    codes : (n,)
        Class of each row; SimCLR: the image of each row.
    temperature : float
        T > 0. Code that multiplies by T / T_base does so after.
    singletons : {"zero", "skip"}
        Anchors without a positive count as 0, or are left out of the mean.

    Raises
    ------
    InvalidInputError
        A parameter outside its domain, rows that are not unit rows, or a batch in which no anchor has a positive: it
        has no loss.

    References
    ----------
    Khosla et al. 2020, arXiv 2004.11362, equation 2.
    """
    temperature = _checks.real("temperature", temperature, above=0.0, hint="usual values are 0.05 to 1")
    _checks.choice("singletons", singletons, SINGLETONS)
    found = UnitRows.of(rows, codes)
    terms = supcon_terms(cosines_of_rows(found.take(slice(None))), found.codes, temperature)
    skipped = int(np.isnan(terms).sum())
    if skipped == found.n:
        raise InvalidInputError(
            f"`codes` must give some row a positive; got {found.n} rows, each of its own class (SupCon is undefined, not 0: add views)"
        )
    over = found.n if singletons == "zero" else found.n - skipped
    return BatchLoss(float(np.nansum(terms) / over), terms, found.n, skipped)


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


def contrast_terms(cosines: Array, positives: Mask, log_weights: Array, log_alpha: float, temperature: float) -> Array:
    r"""(b,) mean over the positives p of log( alpha + sum_j w_j exp((s_j - s_p)/tau) ).

    Parameters
    ----------
    cosines, positives, log_weights : (b, n)
        Similarities of b anchors, their positives (at least one each), and log w.
    log_alpha : float
        -inf for alpha = 0.
    """
    scaled = cosines / temperature
    total = logsumexp_rows(scaled + log_weights)
    number = positives.sum(axis=1)
    if log_alpha == -math.inf:
        return np.asarray(total - np.where(positives, scaled, 0.0).sum(axis=1) / number)
    row, column = np.nonzero(positives)  # a small share of all entries, and logaddexp is dear
    each = np.logaddexp(log_alpha, total[row] - scaled[row, column])
    return np.asarray(np.bincount(row, each, minlength=number.size) / number)


def positives_of(at: Index, codes: Index, images: Index | None) -> tuple[Mask, int]:
    """(b, n) positives of the anchors at rows `at` (b,), and how many anchors stand in for themselves.

    Positives are the rows of its class from other images; where there are none, the other views of its own; where there
    are none either, the row itself, as if its class had collapsed.
    """
    local = np.arange(at.size)
    found = codes[at][:, None] == codes[None, :]
    found[local, at] = False
    if images is not None:
        others = found & (images[at][:, None] != images[None, :])
        found = np.where(others.any(axis=1)[:, None], others, found)
    alone = ~found.any(axis=1)
    found[local[alone], at[alone]] = True
    return found, int(alone.sum())


SEEDS = 3
ANCHORS = (
    256  # a draw of negatives costs as many binomials as there are rows, so each round takes a part of the anchors
)

Mass = Callable[[Index], Array]


@dataclass(frozen=True, eq=False)
class Pairs:
    """A loss as a sum over pairs: weight of each class of anchors, and the mass of the negatives of each class.

    `mass(c)` is (b, C) for anchor classes c (b,): the mass on the rows of every class, that of the anchor's own
    included.
    """

    anchor_weight: Array
    mass: Mass
    convention: str = NOTHING
    skipped: int = 0


def uniform(share: Array) -> Mass:
    """Negatives from all classes, whatever the anchor."""
    return lambda classes: np.broadcast_to(share, (classes.size, share.size)).copy()


def law_of(loss: InfoNCE, share: Array) -> Mass:
    """The law of the negatives of a loss.

    Raises
    ------
    InvalidInputError
        Negatives of other classes where there is one class, or an explicit law of another size.
    """
    if loss.negative_law is not None:
        found = explicit(loss.negative_law, share.size)
        matrix = found.other + np.diag(found.own)
        return lambda classes: np.asarray(matrix[classes])
    if loss.sampling == "ucl":
        return uniform(share)
    if share.size == 1:
        raise InvalidInputError(
            "`sampling` 'scl' needs negatives of other classes; got rows of one class (use sampling='ucl')"
        )
    before = np.concatenate([[0.0], np.cumsum(share)[:-1]])
    after = np.concatenate([np.cumsum(share[::-1])[::-1][1:], [0.0]])
    rest = before + after  # summed: 1 - share loses the digits of rare classes beside a large one

    def mass(classes: Index) -> Array:
        table = share[None, :] / rest[classes][:, None]
        table[np.arange(classes.size), classes] = 0.0
        return np.asarray(table)

    return mass


def full_batch(found: UnitRows, loss: SupConFullBatch, counts: Array | None) -> Pairs:
    """SupCon of one batch that holds every sample, `counts` (C,) rows of each class; those of the images given by
    default.

    Raises
    ------
    InvalidInputError
        Every class has one row.
    """
    number = found.image_counts.astype(np.float64) * loss.views if counts is None else counts
    several = number > 1
    if not several.any():
        raise InvalidInputError(
            "`counts` must hold a class with two rows or more; got only singletons (SupCon is undefined, not 0)"
        )
    weight = np.where(several, number, 0.0)

    def mass(classes: Index) -> Array:
        table = np.broadcast_to(number, (classes.size, number.size)).copy()
        table[np.arange(classes.size), classes] -= 1.0
        return table

    return Pairs(
        weight / (number.sum() if loss.singletons == "zero" else weight.sum()), mass, skipped=int(np.sum(~several))
    )


def in_pairs(
    found: UnitRows, loss: Loss, pairs: Pairs, seed: int, rounds: int, size: int, gram: Array | None
) -> RiskEstimate:
    """Mean over `rounds` evaluations, on all rows or, above `size`, on three samples of them.

    Parameters
    ----------
    gram : (C, C), optional
        Products of class means, whose loss over the same draws is subtracted.
    """
    rng = np.random.default_rng(seed)
    whole = found.n <= size
    values: list[float] = []
    anchors, stand_ins, rows = 0, 0, found.n
    repeats = 1 if whole else SEEDS
    per_sample = -(-rounds // repeats)
    for _ in range(repeats):
        part = found if whole else found.subset(stratified(found.codes, found.num_classes, size, rng))
        rows = min(rows, part.n)
        took = [_round(part, loss, pairs, rng, gram) for _ in range(per_sample)]
        drawn = [value for value, _, _ in took]
        values += drawn if whole else [float(np.mean(drawn))]
        anchors += sum(number for _, number, _ in took)
        stand_ins += sum(alone for _, _, alone in took)
    held = Estimate.exact(values[0], rows) if len(values) == 1 else Estimate.of_repeats(values, rows)
    several_views = isinstance(loss, SupConFullBatch) and loss.views > 1
    missing = several_views and not found.has_views
    return RiskEstimate(
        held.value,
        held.standard_error,
        rows,
        anchors=anchors,
        skipped=pairs.skipped,
        stand_ins=stand_ins,
        views_missing=missing,
        convention=pairs.convention,
    )


def _round(
    part: UnitRows, loss: Loss, pairs: Pairs, rng: np.random.Generator, gram: Array | None
) -> tuple[float, int, int]:
    """One evaluation over anchors: (value, anchors, anchors that stand in for themselves)."""
    per_class = part.counts.astype(np.float64)
    weight = (pairs.anchor_weight / per_class)[part.codes]
    finite = isinstance(loss, InfoNCE) and loss.negatives != math.inf
    chosen = np.flatnonzero(weight > 0)
    if finite and chosen.size > ANCHORS:
        chosen = np.sort(rng.choice(part.n, ANCHORS, p=weight / weight.sum()))
        weight = np.full(part.n, weight.sum() / ANCHORS)
    images = None if isinstance(loss, SupConFullBatch) else part.images
    log_alpha = float(log_nonnegative(loss.alpha)) if isinstance(loss, InfoNCE) else -math.inf
    rows = part.take(slice(None))
    similar: Sequence[Cosines] = [cosines_of_rows(rows)]
    if gram is not None:
        similar = [*similar, cosines_of_classes(gram, part.codes)]
    total, alone = 0.0, 0
    for block in blocks(chosen.size, part.n, ENTRIES):
        at = chosen[block]
        positives, stands = positives_of(at, part.codes, images)
        alone += stands
        log_weights = _log_weights(part.codes, per_class, at, positives, pairs.mass(part.codes[at]), loss, rng)
        terms = [
            contrast_terms(cosines(at), positives, log_weights, log_alpha, loss.temperature) for cosines in similar
        ]
        total += float(np.sum(weight[at] * (terms[0] if gram is None else terms[0] - terms[1])))
    return total, int(chosen.size), alone


def _log_weights(
    codes: Index,
    per_class: Array,
    at: Index,
    positives: npt.NDArray[np.bool_],
    mass: Array,
    loss: Loss,
    rng: np.random.Generator,
) -> Array:
    """(b, n) log weight of each row as a negative.

    The mass of its class, or a draw of it, over the rows of the class.
    """
    each = (mass / per_class[None, :])[:, codes]
    own = mass[np.arange(at.size), codes[at]] / positives.sum(axis=1)
    same = codes[at][:, None] == codes[None, :]
    each = np.where(same, np.where(positives, own[:, None], 0.0), each)
    if not isinstance(loss, InfoNCE) or loss.negatives == math.inf:
        return log_nonnegative(each)
    factor = 1.0 if loss.negatives_reduction == "sum" else 1.0 / loss.negatives
    return log_nonnegative(_drawn(each, int(loss.negatives), rng) * factor)


def _drawn(masses: Array, number: int, rng: np.random.Generator) -> Array:
    """(b, n) how often each row comes up among `number` independent negatives of each anchor."""
    if 4 * number > masses.shape[1]:
        return rng.multinomial(number, masses / masses.sum(axis=1, keepdims=True)).astype(np.float64)
    # A binomial for each of n rows costs more than finding a few draws in the cumulative law.
    law = np.cumsum(masses, axis=1)
    found = np.empty_like(masses)
    for anchor, cumulative in enumerate(law):
        # In (0, total] and from the left: neither rounding nor a row without mass is ever hit.
        at = np.searchsorted(cumulative, (1.0 - rng.random(number)) * cumulative[-1], side="left")
        found[anchor] = np.bincount(at, minlength=cumulative.size)
    return found


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
