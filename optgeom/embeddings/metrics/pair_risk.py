"""A loss as a sum over pairs of rows, weighted by their classes: what the empirical risk is where no batch is drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from optgeom._numerics import Array, blocks, log_nonnegative
from optgeom.embeddings.metrics.batches import stratified
from optgeom.embeddings.metrics.empirical_loss import (
    Cosines,
    contrast_terms,
    cosines_of_classes,
    cosines_of_rows,
    positives_of,
)
from optgeom.embeddings.metrics.estimate import NOTHING, Estimate, RiskEstimate
from optgeom.embeddings.metrics.unit_rows import ENTRIES, Index, UnitRows
from optgeom.errors import InvalidInputError
from optgeom.losses import InfoNCE, Loss, SupConFullBatch
from optgeom.losses.law import explicit

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
        held.value, held.standard_error, rows, anchors, pairs.skipped, stand_ins, missing, pairs.convention
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
