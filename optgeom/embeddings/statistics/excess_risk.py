r"""Excess risk of a trained embedding over the optimum, split into three terms that say what to work on.

With D the de-attenuated Gram matrix of the class directions, M_cd = m_c . m_d with rho_c^2 on the diagonal, L the loss
of the embedding, F the risk of collapsed classes and F* its optimum, all in units of F(all classes at one point) - F*:

    direction   F(D) - F*       the class means point elsewhere
    shrink      F(M) - F(D)     the class means are shorter than 1
    within      L - F(M)        the images scatter around them (>= 0 by Jensen's inequality, but for noise of L)

For M, whose diagonal is not 1, an anchor of class i sees its positives at M_ii and negatives of class j at M_ij: t_ij =
(M_ij - M_ii)/tau.

D is an unbiased estimate and need not be positive semidefinite. It is evaluated as it is, with cosines clipped to [-1,
1]: the rows of every loss are defined there, and the projection would add a bias of the size of the noise (the optimum
has rank C - 1 or less, so its smallest eigenvalue is 0 and noise makes it negative half of the time). Hence `direction`
may come out slightly below 0.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from optgeom._numerics import Array
from optgeom.collapse.ranges import excess_of_angles
from optgeom.embeddings.moments.directions import Directions
from optgeom.embeddings.statistics.deviation import Deviations
from optgeom.errors import InvalidInputError
from optgeom.formatting import first_of
from optgeom.geometry import Geometry
from optgeom.inputs.classes import ClassDistribution
from optgeom.losses.base import Loss

EXACT_PAIRS = 20  # pairs that are solved, the costliest to second order; the others are left to second order


@dataclass(frozen=True, kw_only=True)
class ExcessRisk:
    """Three terms, in units of `unit`; None where they cannot be computed.

    Attributes
    ----------
    direction, shrink, within : float or None
        `within` needs the loss of the embedding.
    within_error : float or None
        Standard error of `within`.
    unit : float or None
        F(all classes at one point) - F*, in the units of the loss.
    reason : str or None
        Why terms are missing.
    """

    direction: float | None = None
    shrink: float | None = None
    within: float | None = None
    within_error: float | None = None
    unit: float | None = None
    reason: str | None = None

    @property
    def total(self) -> float | None:
        """(L - F*) / unit."""
        if self.direction is None or self.shrink is None or self.within is None:
            return None
        return self.direction + self.shrink + self.within

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**asdict(self), "total": self.total}


def excess_risk(
    directions: Directions,
    classes: ClassDistribution,
    loss: Loss,
    optimal_risk: float,
    *,
    observed: tuple[float, float] | None = None,
) -> ExcessRisk:
    """Excess risk in three terms.

    Parameters
    ----------
    directions : Directions
        Of the classes of the embedding, in the order of `classes`.
    classes : ClassDistribution
        Classes of the geometry. Where some have no embeddings, or no direction, the risk is not defined: every term is
        None.
    loss : Loss
    optimal_risk : float
        F*, the risk of the geometry.
    observed : (float, float), optional
        L, the loss of the embedding (same k or batch size, in the same units as F), and its standard error.

    Raises
    ------
    InvalidInputError
        More classes among the embeddings than in the geometry.
    """
    if directions.num_classes > classes.num_classes:
        came = f"{directions.num_classes} classes for {classes.num_classes}"
        raise InvalidInputError(f"`directions` must hold classes of the geometry only; got {came} (leave others out)")
    if directions.num_classes < classes.num_classes:
        missing = classes.num_classes - directions.num_classes
        return ExcessRisk(reason=f"{missing} of the {classes.num_classes} classes of the geometry have no embeddings")
    if not directions.known.all():
        lacking = [name for name, known in zip(directions.names, directions.known, strict=True) if not known]
        return ExcessRisk(reason=f"without a direction: {first_of(lacking, 3)} (one image, or images that share none)")
    collapsed = risk_of_products(np.ones((classes.num_classes, classes.num_classes)), classes, loss)
    unit = collapsed - optimal_risk
    if not unit > 0:
        return ExcessRisk(reason="all classes at one point are as good as the optimum: the loss does not separate them")
    direction = risk_of_products(np.clip(directions.gram, -1.0, 1.0), classes, loss)
    shrunk = risk_of_products(directions.mean_gram, classes, loss)
    terms = ExcessRisk(
        direction=(direction - optimal_risk) / unit,
        shrink=(shrunk - direction) / unit,
        unit=unit,
        reason="the loss of the embedding was not computed",
    )
    if observed is None:
        return terms
    value, error = observed
    return replace(terms, within=(value - shrunk) / unit, within_error=error / unit, reason=None)


def risk_of_products(products: Array, classes: ClassDistribution, loss: Loss) -> float:
    """F at the (C, C) inner products of class means of any length.

    t_ij = (M_ij - M_ii)/tau, and every class is a group of its own, since the products of equal classes differ here.
    """
    groups = loss.groups(classes)
    apart = groups.regrouped(np.arange(classes.num_classes), groups.index)
    rows = loss.rows(apart)
    t = (products - np.diag(products)[:, None]) / loss.temperatures(apart)[:, None]
    return float(np.sum(np.where(rows.anchor_weight > 0, rows.anchor_weight * rows.value(t), 0.0)))


def measures_slack(geometry: Geometry) -> bool:
    """Whether risks above the optimum can be given as shares of the loss range.

    It takes a certified optimum, a loss that was kept, and a collapsed geometry that is worse than the optimum.
    """
    if geometry.bracket is not None or not geometry.certificate.certified or not geometry.loss.gives:
        return False
    collapsed = risk_of_products(np.ones((geometry.num_classes, geometry.num_classes)), geometry.classes, geometry.loss)
    return collapsed - geometry.risk > geometry.certificate.gap


def own_excess(
    geometry: Geometry, places: npt.NDArray[np.intp], deviations: Deviations, beyond: npt.NDArray[np.bool_]
) -> Array | None:
    """(C, C) own excess of each pair that is off by more than the tolerance, above the diagonal; nan elsewhere.

    A pair is judged by the angle next to the optimum that its interval leaves open: the least risk above the optimum at
    which any geometry has that angle, per image of its two classes, as a share of the loss range (`collapse.ranges`).
    None where the geometry is not a certified optimum, or is that of a loss that was not kept.

    Parameters
    ----------
    geometry : Geometry
    places : (C,) intp
        Class of the geometry for each class of the deviations.
    deviations : Deviations
    beyond : (C, C) bool
        Pairs that are off by more than the tolerance.
    """
    if not measures_slack(geometry):
        return None
    costs = np.full(deviations.low.shape, np.nan)
    first, second = np.nonzero(np.triu(beyond, 1))
    if first.size == 0:
        return costs
    nearest = np.clip(
        deviations.optimal[first, second], deviations.angles_low[first, second], deviations.angles_high[first, second]
    )
    pairs = [(int(places[i]), int(places[j])) for i, j in zip(first, second, strict=True)]
    excesses = excess_of_angles(geometry, pairs=pairs, angles_deg=nearest.tolist(), exact=EXACT_PAIRS)
    costs[first, second] = [pair.own for pair in excesses]
    return costs
