"""What it costs the loss that pairs of classes are off: the evidence for `within-slack`.

A pair whose angle is off by more than the tolerance is judged by the angle next to the optimum that its interval leaves open:
the least risk above the optimum at which any geometry has that angle, per image of the two classes (`collapse.ranges`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from optgeom._numerics import Array
from optgeom.collapse.ranges import excess_of_angles
from optgeom.embeddings.statistics.deviation import Deviations
from optgeom.geometry import Geometry

EXACT_PAIRS = 20  # pairs that are solved, the costliest to second order; the others are left to second order


def own_excess(
    geometry: Geometry, places: npt.NDArray[np.intp], deviations: Deviations, tolerance_deg: float
) -> Array | None:
    """(C, C) own excess of each pair that is off by more than the tolerance, above the diagonal; nan elsewhere.

    None where the geometry is not a certified optimum, or is that of a loss that was not kept.

    Parameters
    ----------
    geometry : Geometry
    places : (C,) intp
        Class of the geometry for each class of the deviations.
    deviations : Deviations
    tolerance_deg : float
        delta, degrees.
    """
    if geometry.bracket is not None or not geometry.certificate.certified or not geometry.loss.gives:
        return None
    costs = np.full(deviations.low.shape, np.nan)
    with np.errstate(invalid="ignore"):
        first, second = np.nonzero(np.triu(deviations.low > tolerance_deg, 1))
    if first.size == 0:
        return costs
    nearest = np.clip(
        deviations.optimal[first, second], deviations.angles_low[first, second], deviations.angles_high[first, second]
    )
    pairs = [(int(places[i]), int(places[j])) for i, j in zip(first, second, strict=True)]
    found = excess_of_angles(geometry, pairs=pairs, angles_deg=nearest.tolist(), exact=EXACT_PAIRS)
    costs[first, second] = [pair.own for pair in found]
    return costs
