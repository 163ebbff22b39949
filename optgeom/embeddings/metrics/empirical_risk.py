r"""The loss of trained rows in the units of the population risk F, and how much of it lies within classes.

Convention: exactly that of `geometry.risk`. Rows that sit at the means of a geometry have, in expectation, its risk: no
constant is left out of SupCon with a batch size, of the full batch, and of InfoNCE; SupCon in the limit of large
batches leaves out log(views (N - 1)). What is evaluated is what `Loss.on_rows` says:

    SupCon, N images     batches with classes i.i.d. by `proportions`; the rows of a class are distinct while they last
    SupCon, N = inf      mean_i [ log sum_c lam_c mean_{j in c} exp(s_ij) - mean_p s_ip ]
    SupConFullBatch      mean_i [ log( (n_i - 1) mean_{j in own} exp(s_ij) + sum_{c != i} n_c mean_{j in c} exp(s_ij) )
                                  - mean_p s_ip ]
    InfoNCE              mean_i mean_p E log( alpha + q sum_l exp(s_il - s_ip) ): classes of negatives by the law of the
                         loss, rows uniform within a class; k = inf takes the mean over the rows of each class in place
                         of the draws
    a user's own psi     mean_i mean_p E psi( s_il - s_ip, l = 1 .. k ), with the same draws

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
    BatchRows,
    RiskEstimate,
    by_label,
    cosines_of_classes,
    cosines_of_rows,
    in_pairs,
)
from optgeom.embeddings.moments.unit_rows import Index, UnitRows
from optgeom.errors import InvalidInputError
from optgeom.losses.base import Loss
from optgeom.losses.on_rows import DrawnBatches
from optgeom.losses.weights import ClassValues

ROWS = 4096
ROUNDS = 32  # batches, or draws of negatives
ANCHORS = 2**15  # of all batches together; large batches are fewer
FEWEST_BATCHES = 4


def empirical_risk(
    rows: Any,
    codes: Any,
    loss: Loss,
    proportions: npt.ArrayLike | None = None,
    *,
    values: ClassValues | None = None,
    gram: npt.ArrayLike | None = None,
    seed: int = 0,
    groups: Any = None,
    counts: npt.ArrayLike | None = None,
    batches: int | None = None,
    size: int = ROWS,
) -> RiskEstimate:
    """Loss of unit rows, comparable with `geometry.risk`; or, with `gram`, the part of it that lies within classes.

    Parameters
    ----------
    rows : (n, d)
        Unit rows.
    codes : (n,)
        Class of each row, 0 to C - 1; every class has a row.
    loss : Loss
    proportions : (C,), optional
        Of the classes in training, scaled to sum 1; the shares of images among the rows by default.
    values : ClassValues, optional
        `loss.class_values(classes)` of a loss with weights per class, in the order of the codes.
    gram : (C, C), optional
        M_cd: the similarity of two rows of classes c and d with the spread within classes averaged out, m_c.m_d off the
        diagonal and rho_c^2 on it, not clipped. The result is then L - F(M), from the same draws for rows and class
        means: the composition of a batch moves both losses alike, so that their difference is far more precise than
        that of two estimates.
    seed : int
    groups : (n,), optional
        Id of the image that each row is a view of.
    counts : (C,), optional
        SupConFullBatch: images of each class in the whole batch, of which `rows` are a sample; those among the rows by
        default.
    batches : int, optional
        Batches of SupCon; draws of negatives of InfoNCE. 32 by default, fewer where batches are large.
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
        A loss that explicit rows do not have.

    References
    ----------
    Khosla et al. 2020, arXiv 2004.11362, equation 2; van den Oord, Li, Vinyals 2018, arXiv 1807.03748; Nguyen, Aeron,
    Brown, Ishwar 2026, arXiv 2605.11291 (the laws of negatives).
    """
    seed = _checks.integer("seed", seed, at_least=0)
    size = _checks.integer("size", size, at_least=2)
    if batches is not None:
        batches = _checks.integer("batches", batches, at_least=2, hint="a standard error needs two")
    means = None if gram is None else _means(gram)
    num_classes = None if means is None else means.shape[0]
    given = np.asarray(proportions if proportions is not None else counts if counts is not None else [])
    if num_classes is None and given.ndim == 1 and given.size:
        num_classes = given.size
    unit = UnitRows.of(rows, codes, num_classes=num_classes, groups=groups)
    lam = _positive("proportions", proportions, unit)
    share = unit.image_counts / unit.image_counts.sum() if lam is None else lam / lam.sum()
    images = _positive("counts", counts, unit)
    per_class = unit.image_counts.astype(np.float64) if images is None else images
    evaluated = loss.on_rows(share, images=per_class, values=values)
    if isinstance(evaluated, DrawnBatches):
        if batches is None:
            batches = int(np.clip(ANCHORS // (evaluated.batch_size * evaluated.views), FEWEST_BATCHES, ROUNDS))
        return _in_batches(unit, evaluated, loss.temperature, share, seed=seed, batches=batches, gram=means)
    rounds = 1 if evaluated.draws is None else batches or ROUNDS
    return in_pairs(unit, evaluated, loss.temperature, seed=seed, rounds=rounds, size=size, gram=means)


def _means(gram: npt.ArrayLike) -> Array:
    means = np.asarray(gram, dtype=np.float64)
    square = means.ndim == 2 and means.shape[0] == means.shape[1]
    if not square or not np.all(np.isfinite(means)):
        came = "NaN or infinity" if square else f"shape {means.shape}"
        raise InvalidInputError(
            f"`gram` must be finite, (C, C); got {came} (leave classes without a mean out of the rows too)"
        )
    return means


def _positive(name: str, values: npt.ArrayLike | None, unit: UnitRows) -> Array | None:
    """One positive number per class; every class has rows."""
    empty = np.flatnonzero(unit.counts == 0)
    if empty.size:
        remedy = "leave it out of the distribution and number the classes anew"
        raise InvalidInputError(
            f"`codes` must give every class a row; class {int(empty[0])} has none, {empty.size} in all ({remedy})"
        )
    if values is None:
        return None
    given = np.asarray(values, dtype=np.float64)
    if given.shape != (unit.num_classes,) or not np.all(np.isfinite(given)) or np.any(given <= 0):
        came = f"shape {given.shape} (in the order of the codes)"
        raise InvalidInputError(f"`{name}` must be {unit.num_classes} positive numbers, one per class; got {came}")
    return given


def _in_batches(
    unit: UnitRows,
    plan: DrawnBatches,
    temperature: float,
    share: Array,
    *,
    seed: int,
    batches: int,
    gram: Array | None,
) -> RiskEstimate:
    source = Batches.of(unit, share, plan.views)
    rng = np.random.default_rng(seed)
    sums, valid, every, skipped = (np.zeros(batches) for _ in range(4))
    repeats = 0
    for batch in range(batches):
        index, repeated = source.draw(rng, plan.batch_size)
        repeats += repeated
        codes = unit.codes[index]
        batch_rows = BatchRows(codes, temperature, plan.views, plan.values)
        terms = batch_rows.terms(cosines_of_rows(unit.take(index)))
        if gram is not None:
            terms = terms - batch_rows.terms(cosines_of_classes(gram, codes))
        weight = batch_rows.anchor_weight
        sums[batch], valid[batch] = np.nansum(weight * terms), np.sum(weight[~np.isnan(terms)])
        every[batch], skipped[batch] = weight.sum(), np.isnan(terms).sum()
    size = plan.batch_size * plan.views
    alone = int(skipped.sum())
    if alone == batches * size:
        remedy = "SupCon is undefined, not 0: take larger batches, or views"
        raise InvalidInputError(
            f"`batch_size` must give some anchor a positive; got none in {batches} batches of {size} rows ({remedy})"
        )
    # The ratio of sums is what accumulated sums and counts converge to; its error is that of the residuals.
    over = valid if plan.singletons == "skip" else every
    value = float(sums.sum() / over.sum())
    error = float(np.std(sums - value * over, ddof=1) / math.sqrt(batches) / over.mean())
    return RiskEstimate(
        value,
        error,
        unit.n,
        anchors=batches * size,
        skipped=alone,
        stand_ins=repeats,
        views_missing=plan.views > 1 and source.views_of is None,
    )


@dataclass(frozen=True, eq=False)
class Batches:
    """Batches of images with V views each.

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
    def of(cls, unit: UnitRows, proportions: Array, views: int) -> Batches:
        """Rows by class, and by image where every image has enough views."""
        if unit.images is not None:
            number = np.bincount(unit.images)
            if number.min() >= views:
                of_image = by_label(unit.images, number.size)
                first = np.array([rows[0] for rows in of_image])
                return cls(proportions, views, by_label(unit.codes[first], unit.num_classes), of_image)
        return cls(proportions, views, by_label(unit.codes, unit.num_classes), None)

    def draw(self, rng: np.random.Generator, images: int) -> tuple[Index, int]:
        """Row numbers of one batch, N V of them, and how many are repeats because their class ran out."""
        parts: list[Index] = []
        repeats = 0
        for c in np.flatnonzero(counts := rng.multinomial(images, self.proportions)):
            number = int(counts[c]) * (self.views if self.views_of is None else 1)
            chosen = _cycled(rng, self.members[c], number)
            repeated = max(0, number - self.members[c].size)
            if self.views_of is not None:
                repeated *= self.views
                chosen = np.concatenate(
                    [rng.choice(self.views_of[image], self.views, replace=False) for image in chosen]
                )
            repeats += repeated
            parts.append(chosen)
        return np.concatenate(parts), repeats


def _cycled(rng: np.random.Generator, members: Index, number: int) -> Index:
    """`number` members at random, each used once before any is used again."""
    whole, rest = divmod(number, members.size)
    return np.concatenate([np.tile(members, whole), rng.choice(members, rest, replace=False)])
