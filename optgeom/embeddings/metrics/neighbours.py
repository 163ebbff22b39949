r"""What takes all pairs of rows: one pass over blocks of the cosine matrix, exact for the rows given.

Ties. Collapsed classes have many neighbours at the same distance, told apart by rounding alone. Rows within `TIE` of
the deciding cosine count as tied, and a share is the one expected when ties are broken at random: it depends neither on
the order of rows nor on the BLAS.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from optgeom._numerics import Array, blocks
from optgeom.embeddings.metrics.unit_rows import ENTRIES, UnitRows

TIE = 1e-12  # rounding of a cosine of unit rows is eps sqrt(d), 1e-14 at d = 2048


@dataclass(frozen=True, eq=False)
class PairStatistics:
    """Quantities of all pairs.

    Attributes
    ----------
    uniformity : float
        log of the mean of exp(-t |z - z'|^2) over pairs of distinct rows; nan for one row.
    same_image : (n,) or None
        Chance that the nearest neighbour is another view of the same image; nan for an image with one view; None
        without views.
    same_class : (n,)
        Share of the row's class among its nearest neighbours.
    entropy : (n,) or None
        Entropy of the relative penalties, in nats; None without a temperature.
    """

    uniformity: float
    same_image: Array | None
    same_class: Array
    entropy: Array | None


def neighbours(n: int, share: float) -> int:
    """floor(share n), at least 1 and at most n - 1: the neighbours that CAC looks at."""
    # 0.05 is not a float: without the slack 0.05 * 60 may fall below 3.
    return max(1, min(n - 1, math.floor(share * n * (1 + 1e-12))))


def pair_statistics(found: UnitRows, t: float, share: float, temperature: float | None) -> PairStatistics:
    """One pass over all pairs of at least two rows; memory of a few blocks and n d."""
    n, rows = found.n, found.take(slice(None))
    if n < 2:
        nothing = np.full(n, math.nan)
        return PairStatistics(
            math.nan, nothing if found.has_views else None, nothing, None if temperature is None else nothing
        )
    nearest = neighbours(n, share)
    potential = -math.inf
    same_class = np.empty(n)
    images = found.images if found.has_views else None
    same_image = None if images is None else np.empty(n)
    entropy = None if temperature is None else np.empty(n)
    for block in blocks(n, n, ENTRIES):
        at = np.arange(n)[block]
        own = (at - block.start, at)
        cosines = np.clip(rows[block] @ rows.T, -1.0, 1.0)
        exponents = (2 * t) * (cosines - 1.0)
        exponents[own] = -math.inf
        top = float(exponents.max())
        potential = float(np.logaddexp(potential, top + math.log(float(np.exp(exponents - top).sum()))))
        if entropy is not None and temperature is not None:
            entropy[block] = _entropies(cosines / temperature, own)
        cosines[own] = -math.inf
        matching = found.codes[block][:, None] == found.codes[None, :]
        same_class[block] = _share_of_nearest(cosines, matching, nearest)
        if same_image is not None and images is not None:
            views = images[block][:, None] == images[None, :]
            alone = views.sum(axis=1) == 1
            same_image[block] = np.where(alone, math.nan, _share_of_nearest(cosines, views, 1))
    return PairStatistics(potential - math.log(n * (n - 1.0)), same_image, same_class, entropy)


def _share_of_nearest(cosines: Array, matching: npt.NDArray[np.bool_], nearest: int) -> Array:
    """Expected share of matching rows among the `nearest` largest cosines of each row; a row itself has cosine -inf."""
    last = np.partition(cosines, cosines.shape[1] - nearest, axis=1)[:, cosines.shape[1] - nearest][:, None]
    above = cosines > last + TIE
    tied = (cosines >= last - TIE) & ~above
    room = nearest - above.sum(axis=1)
    hits = (above & matching).sum(axis=1) + room * (tied & matching).sum(axis=1) / tied.sum(axis=1)
    return np.asarray(hits / nearest)


def _entropies(scaled: Array, own: tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]) -> Array:
    """-sum_j r_j log r_j of r_j = exp(s_j) / sum_k exp(s_k), the row itself left out."""
    scaled[own] = -math.inf
    scaled -= scaled.max(axis=1, keepdims=True)
    weight = np.exp(scaled)
    total = weight.sum(axis=1)
    scaled[own] = 0.0  # its weight is 0, and 0 * -inf would be nan
    return np.asarray(np.log(total) - np.einsum("ij,ij->i", weight, scaled) / total)
