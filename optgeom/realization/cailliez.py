r"""Cailliez' additive constant for weights: distances, not their squares, are raised until they are Euclidean.

The entropic bound is attained for every constant that is added to squared distances (Lingoes' among them), because the
loss does not see it. It does see a constant added to distances, (d + c)^2 = d^2 + 2cd + c^2: this geometry misses the
bound, and its loss says by how much. It is for comparison only.

References
----------
Cailliez 1983, Psychometrika 48:305.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from optgeom import _checks
from optgeom._numerics import Array
from optgeom.realization import entropy, euclidean
from optgeom.realization.weights import Weights


@dataclass(frozen=True, eq=False)
class CailliezGeometry:
    """Points with distances sqrt(-tau log w) + constant between any two samples.

    Attributes
    ----------
    constant : float
        The least one >= 0; 0 where the distances are Euclidean as they are.
    dimension : int
        n - 2 at most where the constant is not 0.
    loss : float
        Weighted InfoNCE of these points.
    gap_to_bound : float
        loss - entropic bound; 0 where the constant is 0.
    """

    constant: float
    dimension: int
    loss: float
    gap_to_bound: float
    _weights: Weights
    _squared: Array
    _threshold: float

    def embedding(self, dim: int | None = None) -> Array:
        """(n, dim) centred points; `dim` is `dimension` by default, further columns are zero."""
        columns = None if dim is None else _checks.integer("dim", dim, at_least=1, hint="the embedding dimension")
        return euclidean.classical_scaling(
            self._squared, self._weights.sizes, self._weights.index, self._threshold, columns
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {name: getattr(self, name) for name in ("constant", "dimension", "loss", "gap_to_bound")}


def cailliez_geometry(weights: Weights, temperature: float) -> CailliezGeometry:
    """The least constant, and the geometry that it gives.

    Distances are sqrt(-tau log w), of weights divided by that of two equal labels: exp(1/tau') for X-CLR, 1 otherwise
    (for a matrix the largest where that is above 1). The loss does not see a factor of the weights, but this constant
    does.

    Raises
    ------
    InvalidInputError
        Weights of zero, weights that are not symmetrisable, or more than 1000 distinct rows.
    """
    squared = euclidean.squared_distances(weights, temperature, 0.0)
    pairs = weights.count > 0
    equal = -temperature / weights.scheme["temperature"] if weights.scheme["name"] == "x-clr" else 0.0
    squared = np.where(pairs, squared - min(equal, float(squared[pairs].min())), 0.0)
    distances = np.sqrt(squared)
    constant = euclidean.cailliez(distances, weights.sizes)
    raised = np.where(pairs, (distances + constant) ** 2, 0.0)
    found = euclidean.spectrum(raised, weights.sizes)
    gap = entropy.gap_to_bound(weights, -raised / temperature)
    loss = entropy.entropic_bound(weights) + gap
    return CailliezGeometry(constant, found.rank(0.0), loss, gap, weights, raised, found.threshold(0.0))
