r"""The loss of trained rows in the units of the population risk F, and how much of it lies within classes.

Convention: exactly that of `geometry.risk`. Rows that sit at the means of a geometry have, in expectation, its risk: no constant is left
out of SupCon with a batch size, of the full batch, and of InfoNCE; SupCon in the limit of large batches leaves out log(views (N - 1)).

    SupCon, N images     batches with classes i.i.d. by `proportions`; the rows of a class are distinct while they last
    SupCon, N = inf      mean_i [ log sum_c lam_c mean_{j in c} exp(s_ij) - mean_p s_ip ]
    SupConFullBatch      mean_i [ log( (n_i - 1) mean_{j in own} exp(s_ij) + sum_{c != i} n_c mean_{j in c} exp(s_ij) ) - mean_p s_ip ]
    InfoNCE              mean_i mean_p E log( alpha + q sum_l exp(s_il - s_ip) ): classes of negatives by the law of the loss, rows
                         uniform within a class; k = inf takes the mean over the rows of each class in place of the draws

with s = z.z'/tau. Anchors are uniform within a class and weighted by its proportion; i itself is left out of its own class wherever
another row is there. With `SupConFullBatch` and all rows given, this is SupCon of all rows in one batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from optgeom import _checks
from optgeom._numerics import Array, blocks, log_nonnegative
from optgeom.embeddings.metrics.batches import Batches, stratified
from optgeom.embeddings.metrics.empirical_loss import (
    Cosines,
    contrast_terms,
    cosines_of_classes,
    cosines_of_rows,
    positives_of,
    supcon_terms,
)
from optgeom.embeddings.metrics.estimate import Estimate
from optgeom.embeddings.metrics.unit_rows import ENTRIES, Index, UnitRows
from optgeom.errors import IncompatibleError, InvalidInputError
from optgeom.losses import InfoNCE, Loss, SupCon, SupConFullBatch
from optgeom.losses.law import explicit

ROWS = 4096
SEEDS = 3
ANCHORS = 256  # a draw of negatives costs as many binomials as there are rows, so each round takes a part of the anchors
LIMIT = "the limit of the loss minus log(views * (batch_size - 1))"
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
        Anchors, or rows of batches, for which the same row was taken again because its class has no other: the value is then too low.
    views_missing : bool
        The loss has several views and the rows have not: other rows of the class stood for views, and the value is rather too high.
    convention : str
        What the value leaves out, as `geometry.risk` does.
    """

    anchors: int = 0
    skipped: int = 0
    stand_ins: int = 0
    views_missing: bool = False
    convention: str = NOTHING


def empirical_risk(
    rows: Any,
    codes: Any,
    loss: Loss,
    proportions: npt.ArrayLike | None = None,
    seed: int = 0,
    *,
    groups: Any = None,
    counts: npt.ArrayLike | None = None,
    batches: int = 32,
    size: int = ROWS,
) -> RiskEstimate:
    """Loss of unit rows, comparable with `geometry.risk`.

    Parameters
    ----------
    rows : (n, d)
        Unit rows.
    codes : (n,)
        Class of each row, 0 to C - 1; every class has a row.
    loss : SupCon, SupConFullBatch or InfoNCE
    proportions : (C,), optional
        Of the classes in training, scaled to sum 1; the shares of images among the rows by default.
    seed : int
    groups : (n,), optional
        Id of the image that each row is a view of.
    counts : (C,), optional
        SupConFullBatch: rows of each class in the whole batch (images times views), where `rows` is a sample of it. The images among
        the rows times the views of the loss by default.
    batches : int
        Batches of SupCon; draws of negatives of InfoNCE.
    size : int
        Rows up to which all pairs are taken; above it three samples of about this size in which rare classes are whole. SupCon with a
        batch size draws from all rows.

    Returns
    -------
    RiskEstimate
        The standard error is that of the mean over batches or samples; 0 where nothing was drawn.

    Raises
    ------
    InvalidInputError
        Rows, codes or proportions that do not fit; or no anchor with a positive anywhere.
    IncompatibleError
        A loss of one's own.

    References
    ----------
    Khosla et al. 2020, arXiv 2004.11362, equation 2; van den Oord, Li, Vinyals 2018, arXiv 1807.03748; Nguyen, Aeron, Brown, Ishwar
    2026, arXiv 2605.11291 (the laws of negatives).
    """
    return _estimate(rows, codes, loss, proportions, seed, groups, counts, batches, size, None)


def within_term(
    rows: Any,
    codes: Any,
    loss: Loss,
    gram: npt.ArrayLike,
    proportions: npt.ArrayLike | None = None,
    seed: int = 0,
    *,
    groups: Any = None,
    counts: npt.ArrayLike | None = None,
    batches: int = 32,
) -> RiskEstimate:
    """L - F(M): the part of the excess risk that lies within classes, from the same draws for rows and class means.

    The composition of a batch moves both losses alike, so their difference is far more precise than that of two estimates.

    Parameters
    ----------
    gram : (C, C)
        M_cd: the similarity of two rows of classes c and d with the spread within classes averaged out, m_c.m_d off the diagonal and
        rho_c^2 on it. Not clipped.

    Other parameters, result and errors as in `empirical_risk`; its `size` is the default there.
    """
    means = np.asarray(gram, dtype=np.float64)
    if means.ndim != 2 or means.shape[0] != means.shape[1] or not np.all(np.isfinite(means)):
        came = f"shape {means.shape}" if means.ndim != 2 or means.shape[0] != means.shape[1] else "NaN or infinity"
        raise InvalidInputError(f"`gram` must be finite, (C, C); got {came} (leave classes without a mean out of the rows too)")
    return _estimate(rows, codes, loss, proportions, seed, groups, counts, batches, ROWS, means)


def _estimate(
    rows: Any,
    codes: Any,
    loss: Loss,
    proportions: npt.ArrayLike | None,
    seed: int,
    groups: Any,
    counts: npt.ArrayLike | None,
    batches: int,
    size: int,
    gram: Array | None,
) -> RiskEstimate:
    seed = int(_checks.integer("seed", seed, at_least=0))
    batches = int(_checks.integer("batches", batches, at_least=2, hint="a standard error needs two"))
    size = int(_checks.integer("size", size, at_least=2))
    num_classes = None if gram is None else gram.shape[0]
    given = np.asarray(proportions if proportions is not None else counts if counts is not None else [])
    if num_classes is None and given.ndim == 1 and given.size:
        num_classes = given.size
    found = UnitRows.of(rows, codes, num_classes, groups)
    lam = _positive("proportions", proportions, found)
    share = found.image_counts / found.image_counts.sum() if lam is None else lam / lam.sum()
    if isinstance(loss, SupCon) and loss.batch_size != math.inf:
        return _in_batches(found, loss, share, seed, batches, gram)
    if isinstance(loss, SupConFullBatch):
        number = _positive("counts", counts, found)
        return _in_pairs(found, loss, _full_batch(found, loss, number), seed, 1, size, gram)
    if isinstance(loss, SupCon):
        return _in_pairs(found, loss, _Pairs(share, _uniform(share), LIMIT), seed, 1, size, gram)
    if isinstance(loss, InfoNCE):
        rounds = 1 if loss.negatives == math.inf else batches
        return _in_pairs(found, loss, _Pairs(share, _law(loss, share)), seed, rounds, size, gram)
    raise IncompatibleError(f"`loss` must be SupCon, SupConFullBatch or InfoNCE; got {type(loss).__name__} (evaluate your own psi on rows)")


def _positive(name: str, values: npt.ArrayLike | None, found: UnitRows) -> Array | None:
    """One positive number a class, each of which has rows."""
    empty = np.flatnonzero(found.counts == 0)
    if empty.size:
        remedy = "leave it out of the distribution and number the classes anew"
        raise InvalidInputError(f"`codes` must give every class a row; class {int(empty[0])} has none, {empty.size} in all ({remedy})")
    if values is None:
        return None
    given = np.asarray(values, dtype=np.float64)
    if given.shape != (found.num_classes,) or not np.all(np.isfinite(given)) or np.any(given <= 0):
        raise InvalidInputError(
            f"`{name}` must be {found.num_classes} positive numbers, one a class; got shape {given.shape} (in the order of the codes)"
        )
    return given


# ------------------------------------------------------------------------------------------------------------------ batches of SupCon


def _in_batches(found: UnitRows, loss: SupCon, share: Array, seed: int, batches: int, gram: Array | None) -> RiskEstimate:
    drawn = Batches.of(found, share, loss.views)
    rng = np.random.default_rng(seed)
    sums, valid = np.zeros(batches), np.zeros(batches)
    repeats = 0
    for batch in range(batches):
        index, again = drawn.draw(rng, int(loss.batch_size))
        repeats += again
        codes = found.codes[index]
        terms = supcon_terms(cosines_of_rows(found.take(index)), codes, loss.temperature)
        if gram is not None:
            terms = terms - supcon_terms(cosines_of_classes(gram, codes), codes, loss.temperature)
        sums[batch], valid[batch] = np.nansum(terms), np.sum(~np.isnan(terms))
    size = int(loss.batch_size) * loss.views
    total = int(valid.sum())
    if total == 0:
        remedy = "SupCon is undefined, not 0: take larger batches, or views"
        raise InvalidInputError(f"`batch_size` must give some anchor a positive; got none in {batches} batches of {size} rows ({remedy})")
    # The ratio of sums is what accumulated sums and counts converge to; its error is that of the residuals.
    over = valid if loss.singletons == "skip" else np.full(batches, float(size))
    value = float(sums.sum() / over.sum())
    error = float(np.std(sums - value * over, ddof=1) / math.sqrt(batches) / over.mean())
    missing = loss.views > 1 and drawn.views_of is None
    return RiskEstimate(value, error, found.n, batches * size, batches * size - total, repeats, missing)


# -------------------------------------------------------------------------------------------------- all pairs, weighted by their classes


Mass = Callable[[Index], Array]


@dataclass(frozen=True, eq=False)
class _Pairs:
    """A loss as a sum over pairs: weight of each class of anchors, and the mass of the negatives of each class.

    `mass(c)` is (b, C) for anchor classes c (b,): the mass on the rows of every class, that of the anchor's own included.
    """

    anchor_weight: Array
    mass: Mass
    convention: str = NOTHING
    skipped: int = 0


def _uniform(share: Array) -> Mass:
    return lambda classes: np.broadcast_to(share, (classes.size, share.size)).copy()


def _law(loss: InfoNCE, share: Array) -> Mass:
    if loss.negative_law is not None:
        found = explicit(loss.negative_law, share.size)
        matrix = found.other + np.diag(found.own)
        return lambda classes: np.asarray(matrix[classes])
    if loss.sampling == "ucl":
        return _uniform(share)
    if share.size == 1:
        raise InvalidInputError("`sampling` 'scl' needs negatives of other classes; got rows of one class (use sampling='ucl')")
    before = np.concatenate([[0.0], np.cumsum(share)[:-1]])
    after = np.concatenate([np.cumsum(share[::-1])[::-1][1:], [0.0]])
    rest = before + after  # summed: 1 - share loses the digits of rare classes beside a large one

    def mass(classes: Index) -> Array:
        table = share[None, :] / rest[classes][:, None]
        table[np.arange(classes.size), classes] = 0.0
        return np.asarray(table)

    return mass


def _full_batch(found: UnitRows, loss: SupConFullBatch, counts: Array | None) -> _Pairs:
    number = found.image_counts.astype(np.float64) * loss.views if counts is None else counts
    several = number > 1
    if not several.any():
        raise InvalidInputError("`counts` must hold a class with two rows or more; got only singletons (SupCon is undefined, not 0)")
    weight = np.where(several, number, 0.0)

    def mass(classes: Index) -> Array:
        table = np.broadcast_to(number, (classes.size, number.size)).copy()
        table[np.arange(classes.size), classes] -= 1.0
        return table

    return _Pairs(weight / (number.sum() if loss.singletons == "zero" else weight.sum()), mass, skipped=int(np.sum(~several)))


def _in_pairs(found: UnitRows, loss: Loss, pairs: _Pairs, seed: int, rounds: int, size: int, gram: Array | None) -> RiskEstimate:
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
    return RiskEstimate(held.value, held.standard_error, rows, anchors, pairs.skipped, stand_ins, missing, pairs.convention)


def _round(part: UnitRows, loss: Loss, pairs: _Pairs, rng: np.random.Generator, gram: Array | None) -> tuple[float, int, int]:
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
        terms = [contrast_terms(cosines(at), positives, log_weights, log_alpha, loss.temperature) for cosines in similar]
        total += float(np.sum(weight[at] * (terms[0] if gram is None else terms[0] - terms[1])))
    return total, int(chosen.size), alone


def _log_weights(
    codes: Index, per_class: Array, at: Index, positives: npt.NDArray[np.bool_], mass: Array, loss: Loss, rng: np.random.Generator
) -> Array:
    """(b, n) log weight of each row as a negative: the mass of its class, or a draw of it, over the rows of the class."""
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
