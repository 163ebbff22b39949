r"""In fewer dimensions than the optimum needs: judge an embedding by its risk, not pair by pair.

There the best geometry is one of many: other arrangements of the classes have the same risk, or one that differs by
less than any search resolves, and have other angles. What can be compared is the risk itself,

    e = ( F(A) - F_best ) / ( F(11') - F_best ),

with A the cosines between the class means, freed of sampling noise, and F_best the upper end of the bracket. Noise of
the means raises F on average, since F is convex: its mean over draws of the noise, less the value without, is taken
off, and its standard deviation over the draws is given.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optgeom._numerics import Array
from optgeom.embeddings.moments.directions import Directions
from optgeom.embeddings.statistics.bootstrap import cosine_draws
from optgeom.embeddings.statistics.class_noise import ClassNoise
from optgeom.embeddings.statistics.excess_risk import risk_of_products
from optgeom.geometry import Geometry

DRAWS = 100
STANDARD_ERRORS = 2.0  # on either side
ROUNDING = 1e-6  # relative accuracy of the best value that was found: closer values are equally good


@dataclass(frozen=True, kw_only=True)
class LimitedRisk:
    """Risk of an embedding beside the best geometry that was found in as many dimensions.

    Attributes
    ----------
    excess, sd : float
        e, a share of the way from the best value that was found to total collapse, and its standard deviation.
    accuracy : float
        Share below which two values are the same.
    """

    excess: float
    sd: float
    accuracy: float

    @property
    def low(self) -> float:
        """Lower end of an interval of two standard deviations."""
        return self.excess - STANDARD_ERRORS * self.sd

    @property
    def high(self) -> float:
        """Upper end."""
        return self.excess + STANDARD_ERRORS * self.sd

    def allowed(self, slack: float) -> float:
        """Excess up to which an embedding counts as good as the best geometry found."""
        return max(slack, self.accuracy)


def limited_risk(
    directions: Directions, noise: ClassNoise, geometry: Geometry, *, draws: int = DRAWS, seed: int = 0
) -> LimitedRisk | None:
    """Risk of the class means beside the best of the bracket.

    Parameters
    ----------
    directions : Directions
        Of all classes of the geometry, in its order.
    noise : ClassNoise
        Of these directions.
    geometry : Geometry
        With a bracket.
    draws : int
        Of the noise of the means.
    seed : int

    Returns
    -------
    LimitedRisk or None
        None where the risk is not known: a class without embeddings or direction, noise of which only the size is
        known, a loss that was not kept, or one that does not separate the classes.
    """
    every = directions.num_classes == geometry.num_classes and bool(directions.known.all())
    if geometry.bracket is None or not every or noise.roots is None or not geometry.loss.gives:
        return None

    def risk(cosines: Array) -> float:
        return risk_of_products(np.clip(cosines, -1.0, 1.0), geometry.classes, geometry.loss)

    best, size = geometry.bracket[1], geometry.num_classes
    unit = risk(np.ones((size, size))) - best
    if not unit > ROUNDING * (1 + abs(best)):
        return None
    pairs = np.triu_indices(size, 1)
    null = noise.vectors / np.linalg.norm(noise.vectors, axis=1)[:, None]
    values = np.array(
        [
            risk(_symmetric(drawn, pairs, size))
            for block in cosine_draws(null, noise, pairs, draws, seed)
            for drawn in block
        ]
    )
    raised = float(values.mean()) - risk(null @ null.T)
    excess = risk(directions.gram) - raised - best
    return LimitedRisk(
        excess=excess / unit, sd=float(values.std(ddof=1)) / unit, accuracy=ROUNDING * (1 + abs(best)) / unit
    )


def _symmetric(upper: Array, pairs: tuple[np.ndarray, ...], size: int) -> Array:
    cosines = np.eye(size)
    cosines[pairs] = upper
    cosines.T[pairs] = upper
    return cosines
