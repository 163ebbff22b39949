r"""Contrastive losses of explicit unit rows, one term an anchor: the kernels of `empirical_risk`, and SupCon of one
batch.

The similarities come as a function that gives a block of rows of the (n, n) matrix, so that nothing of that size is
held: of the rows themselves, or of the class means that stand for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from optgeom import _checks
from optgeom._numerics import Array, blocks, logsumexp_rows
from optgeom.embeddings.metrics.unit_rows import ENTRIES, Index, UnitRows
from optgeom.errors import InvalidInputError
from optgeom.losses.supcon import SINGLETONS

Cosines = Callable[[slice | Index], Array]
Mask = npt.NDArray[np.bool_]


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
