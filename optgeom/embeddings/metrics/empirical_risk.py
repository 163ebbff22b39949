"""The loss of trained rows in the units of the population risk F, and how much of it lies within classes.

Convention: exactly that of `geometry.risk`. Rows that sit at the means of a geometry have, in expectation, its risk: no
constant is left out of SupCon with a batch size, of the full batch, and of InfoNCE; SupCon in the limit of large
batches leaves out log(views (N - 1)).

    SupCon, N images     batches with classes i.i.d. by `proportions`; the rows of a class are distinct while they last
    SupCon, N = inf      mean_i [ log sum_c lam_c mean_{j in c} exp(s_ij) - mean_p s_ip ]
    SupConFullBatch      mean_i [ log( (n_i - 1) mean_{j in own} exp(s_ij) + sum_{c != i} n_c mean_{j in c} exp(s_ij) ) - mean_p s_ip ]
    InfoNCE              mean_i mean_p E log( alpha + q sum_l exp(s_il - s_ip) ): classes of negatives by the law of the loss, rows
                         uniform within a class; k = inf takes the mean over the rows of each class in place of the
                         draws

with s = z.z'/tau. Anchors are uniform within a class and weighted by its proportion; i itself is left out of its own
class wherever another row is there. With `SupConFullBatch` and all rows given, this is SupCon of all rows in one batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from optgeom import _checks
from optgeom._numerics import Array
from optgeom.embeddings.metrics.pair_risk import (
    Pairs,
    RiskEstimate,
    by_label,
    cosines_of_classes,
    cosines_of_rows,
    full_batch,
    in_pairs,
    law_of,
    supcon_terms,
    uniform,
)
from optgeom.embeddings.metrics.unit_rows import Index, UnitRows
from optgeom.errors import IncompatibleError, InvalidInputError
from optgeom.losses import InfoNCE, Loss, SupCon, SupConFullBatch


@dataclass(frozen=True, eq=False)
class Batches:
    """Batches of N images with V views each.

    The classes of the images are drawn independently by `proportions`, as the population risk assumes; the images of a
    class are then distinct while they last (a training set is not drawn with replacement either: a row beside its own
    copy would be too good a positive).

    Attributes
    ----------
    members : tuple of C arrays
        Row numbers of each class, or, with views, numbers of its images.
    views_of : tuple of arrays or None
        Row numbers of the views of each image. None where some image has fewer than V rows: then V rows of the class
        stand for the views of one image.
    """

    proportions: Array
    views: int
    members: tuple[Index, ...]
    views_of: tuple[Index, ...] | None

    @classmethod
    def of(cls, found: UnitRows, proportions: Array, views: int) -> Batches:
        """Rows by class, and by image where every image has enough views."""
        if found.images is not None:
            number = np.bincount(found.images)
            if number.min() >= views:
                of_image = by_label(found.images, number.size)
                first = np.array([rows[0] for rows in of_image])
                return cls(proportions, views, by_label(found.codes[first], found.num_classes), of_image)
        return cls(proportions, views, by_label(found.codes, found.num_classes), None)

    def draw(self, rng: np.random.Generator, images: int) -> tuple[Index, int]:
        """Row numbers of one batch, N V of them, and how many are repeats because their class ran out."""
        parts: list[Index] = []
        repeats = 0
        for c in np.flatnonzero(counts := rng.multinomial(images, self.proportions)):
            wanted = int(counts[c]) * (self.views if self.views_of is None else 1)
            chosen = _cycled(rng, self.members[c], wanted)
            repeated = max(0, wanted - self.members[c].size)
            if self.views_of is not None:
                repeated *= self.views
                chosen = np.concatenate(
                    [rng.choice(self.views_of[image], self.views, replace=False) for image in chosen]
                )
            repeats += repeated
            parts.append(chosen)
        return np.concatenate(parts), repeats


def _cycled(rng: np.random.Generator, members: Index, wanted: int) -> Index:
    """`wanted` members at random, each used once before any is used again."""
    whole, rest = divmod(wanted, members.size)
    return np.concatenate([np.tile(members, whole), rng.choice(members, rest, replace=False)])


ROWS = 4096
LIMIT = "the limit of the loss minus log(views * (batch_size - 1))"


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
        SupConFullBatch: rows of each class in the whole batch (images times views), where `rows` is a sample of it. The
        images among the rows times the views of the loss by default.
    batches : int
        Batches of SupCon; draws of negatives of InfoNCE.
    size : int
        Rows up to which all pairs are taken; above it three samples of about this size in which rare classes are whole.
        SupCon with a batch size draws from all rows.

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

    References ---------- Khosla et al. 2020, arXiv 2004.11362, equation 2; van den Oord, Li, Vinyals 2018, arXiv
    1807.03748; Nguyen, Aeron, Brown, Ishwar 2026, arXiv 2605.11291 (the laws of negatives).
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

    The composition of a batch moves both losses alike, so their difference is far more precise than that of two
    estimates.

    Parameters
    ----------
    gram : (C, C)
        M_cd: the similarity of two rows of classes c and d with the spread within classes averaged out, m_c.m_d off the
        diagonal and rho_c^2 on it. Not clipped.

    Other parameters, result and errors as in `empirical_risk`; its `size` is the default there.
    """
    means = np.asarray(gram, dtype=np.float64)
    if means.ndim != 2 or means.shape[0] != means.shape[1] or not np.all(np.isfinite(means)):
        came = f"shape {means.shape}" if means.ndim != 2 or means.shape[0] != means.shape[1] else "NaN or infinity"
        raise InvalidInputError(
            f"`gram` must be finite, (C, C); got {came} (leave classes without a mean out of the rows too)"
        )
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
    seed = _checks.integer("seed", seed, at_least=0)
    batches = _checks.integer("batches", batches, at_least=2, hint="a standard error needs two")
    size = _checks.integer("size", size, at_least=2)
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
        return in_pairs(found, loss, full_batch(found, loss, number), seed, 1, size, gram)
    if isinstance(loss, SupCon):
        return in_pairs(found, loss, Pairs(share, uniform(share), LIMIT), seed, 1, size, gram)
    if isinstance(loss, InfoNCE):
        rounds = 1 if loss.negatives == math.inf else batches
        return in_pairs(found, loss, Pairs(share, law_of(loss, share)), seed, rounds, size, gram)
    raise IncompatibleError(
        f"`loss` must be SupCon, SupConFullBatch or InfoNCE; got {type(loss).__name__} (evaluate your own psi on rows)"
    )


def _positive(name: str, values: npt.ArrayLike | None, found: UnitRows) -> Array | None:
    """One positive number a class, each of which has rows."""
    empty = np.flatnonzero(found.counts == 0)
    if empty.size:
        remedy = "leave it out of the distribution and number the classes anew"
        raise InvalidInputError(
            f"`codes` must give every class a row; class {int(empty[0])} has none, {empty.size} in all ({remedy})"
        )
    if values is None:
        return None
    given = np.asarray(values, dtype=np.float64)
    if given.shape != (found.num_classes,) or not np.all(np.isfinite(given)) or np.any(given <= 0):
        raise InvalidInputError(
            f"`{name}` must be {found.num_classes} positive numbers, one a class; got shape {given.shape} (in the order of the codes)"
        )
    return given


def _in_batches(
    found: UnitRows, loss: SupCon, share: Array, seed: int, batches: int, gram: Array | None
) -> RiskEstimate:
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
        raise InvalidInputError(
            f"`batch_size` must give some anchor a positive; got none in {batches} batches of {size} rows ({remedy})"
        )
    # The ratio of sums is what accumulated sums and counts converge to; its error is that of the residuals.
    over = valid if loss.singletons == "skip" else np.full(batches, float(size))
    value = float(sums.sum() / over.sum())
    error = float(np.std(sums - value * over, ddof=1) / math.sqrt(batches) / over.mean())
    missing = loss.views > 1 and drawn.views_of is None
    return RiskEstimate(
        value,
        error,
        found.n,
        anchors=batches * size,
        skipped=batches * size - total,
        stand_ins=repeats,
        views_missing=missing,
    )
