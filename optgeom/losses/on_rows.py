"""What the loss of explicit rows is, as data: batches to be drawn, or a sum over pairs of rows weighted by classes.

The rows themselves belong to `embeddings.metrics`; a loss only says what is to be evaluated on them. Rows that sit at
class means have, in expectation, the risk of the loss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from optgeom._numerics import Array
from optgeom.errors import InvalidInputError
from optgeom.losses import law

if TYPE_CHECKING:
    from optgeom.losses.weights import ClassValues

Mass = Callable[[npt.NDArray[np.intp]], Array]
WHOLE = "the loss itself, nothing left out"
LIMIT = "the limit of the loss minus log(views * (batch_size - 1))"


@dataclass(frozen=True, kw_only=True)
class DrawnBatches:
    """SupCon of random batches.

    Attributes
    ----------
    batch_size : int
        Images per batch, classes i.i.d. by the proportions.
    views : int
        Rows per image.
    singletons : {"zero", "skip"}
        Anchors without a positive count as 0, or are left out of the mean.
    values : ClassValues or None
        Weights and temperatures per class.
    """

    batch_size: int
    views: int
    singletons: str
    values: ClassValues | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class PairSum:
    """A loss as a sum over anchors of a function of their negatives, which are weighted or drawn by classes.

    Attributes
    ----------
    anchor_weight : (C,)
        Weight of each class of anchors, over all of its rows.
    mass : callable
        (b,) anchor classes -> (b, C) mass of the negatives on the rows of every class, the anchor's own included.
    alpha : float
        Term of the positive in the denominator.
    draws : int or None
        Number k of negatives that are drawn for each anchor by `mass`; None: all rows count, with their mass.
    draw_weight : float
        Weight of one drawn negative: 1, or 1/k where they are averaged.
    psi : callable or None
        (..., k) scaled differences t of similarities -> (...) loss, in place of log(alpha + draw_weight sum exp t).
    whole_batch : bool
        All rows are one batch: the views of an image are positives like other rows of its class.
    views : int
        Rows per image in the whole batch.
    skipped : int
        Classes without anchors, since no row of them has a positive.
    convention : str
        Constants that the value leaves out, in words.
    draw_weights : (C, C) or None
        Further weight of a drawn negative by the class of the anchor and its own.
    temperature : (C,) or None
        Of the anchors of each class, in place of that of the loss.
    """

    anchor_weight: Array
    mass: Mass
    alpha: float = 0.0
    draws: int | None = None
    draw_weight: float = 1.0
    psi: Callable[[Array], Array] | None = None
    whole_batch: bool = False
    views: int = 1
    skipped: int = 0
    convention: str = WHOLE
    draw_weights: Array | None = None
    temperature: Array | None = None

    def weighted(self, values: ClassValues) -> PairSum:
        """The same sum with weights per class."""
        anchor, mass = self.anchor_weight * values.anchor, self.mass
        anchor = anchor * (self.anchor_weight.sum() / anchor.sum())
        given = replace(self, anchor_weight=anchor, temperature=values.temperature)
        if self.draws is not None:
            return replace(given, draw_weights=values.negative)
        return replace(given, mass=lambda classes: np.asarray(mass(classes) * values.negative[classes]))


def uniform_mass(share: Array) -> Mass:
    """Negatives from all classes, whatever the anchor."""
    return lambda classes: np.broadcast_to(share, (classes.size, share.size)).copy()


def explicit_mass(matrix: npt.ArrayLike, share: Array) -> Mass:
    """Negatives by an explicit law; raises `InvalidInputError` where it is not one of these classes."""
    checked = law.explicit(matrix, share.size)
    whole = checked.other + np.diag(checked.own)
    return lambda classes: np.asarray(whole[classes])


def sampled_mass(sampling: str, share: Array) -> Mass:
    """Negatives from all classes ("ucl"), or from the other classes only ("scl").

    Raises
    ------
    InvalidInputError
        Negatives of other classes where there is one class.
    """
    if sampling == "ucl":
        return uniform_mass(share)
    if share.size == 1:
        raise InvalidInputError(
            "`sampling` 'scl' needs negatives of other classes; got rows of one class (use sampling='ucl')"
        )
    before = np.concatenate([[0.0], np.cumsum(share)[:-1]])
    after = np.concatenate([np.cumsum(share[::-1])[::-1][1:], [0.0]])
    rest = before + after  # summed: 1 - share loses the digits of rare classes beside a large one

    def mass(classes: npt.NDArray[np.intp]) -> Array:
        table = share[None, :] / rest[classes][:, None]
        table[np.arange(classes.size), classes] = 0.0
        return np.asarray(table)

    return mass


def averaged_batch(anchor_weight: Array, values: ClassValues) -> PairSum:
    """SupCon with the rows of each class averaged, in a batch that holds all classes."""
    anchor = anchor_weight * values.anchor
    table = values.negative
    return PairSum(
        anchor_weight=anchor / anchor.sum(),
        mass=lambda classes: table[classes],
        alpha=0.0 if values.with_own else 1.0,
        temperature=values.temperature,
    )


def whole_batch(rows: Array, views: int, singletons: str, values: ClassValues | None = None) -> PairSum:
    """SupCon of one batch that holds every sample, `rows` (C,) rows of each class.

    With weights the rows of the own class share theirs evenly: the other views of the anchor's image count once.

    Raises
    ------
    InvalidInputError
        Every class has one row.
    """
    several = rows > 1
    if not several.any():
        raise InvalidInputError(
            "`counts` must hold a class with two rows or more; got only singletons (SupCon is undefined, not 0)"
        )
    weight = np.where(several, rows, 0.0)

    def mass(classes: npt.NDArray[np.intp]) -> Array:
        table = np.broadcast_to(rows, (classes.size, rows.size)).copy()
        table[np.arange(classes.size), classes] -= 1.0
        return table

    skipped = int(np.sum(~several))
    if values is None:
        over = rows.sum() if singletons == "zero" else weight.sum()
        return PairSum(anchor_weight=weight / over, mass=mass, whole_batch=True, views=views, skipped=skipped)
    over = ((rows if singletons == "zero" else weight) * values.anchor).sum()
    table = values.negative * (1.0 if values.averaged else rows)
    own = np.diag(values.negative)
    shared = 1.0 if values.averaged else (views - 1) + (rows - views) * own
    np.fill_diagonal(table, shared if values.with_own else 0.0)
    return PairSum(
        anchor_weight=weight * values.anchor / over,
        mass=lambda classes: table[classes],
        alpha=0.0 if values.with_own else 1.0,
        whole_batch=True,
        views=views,
        skipped=skipped,
        temperature=values.temperature,
    )
