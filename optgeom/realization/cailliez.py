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
import numpy.typing as npt
import scipy.linalg

from optgeom import _checks
from optgeom._numerics import Array
from optgeom.errors import InvalidInputError
from optgeom.programs import group_matrix
from optgeom.realization import entropy, euclidean, lift
from optgeom.realization.weights import Weights

LARGEST_CAILLIEZ = 1000  # points: eigenvalues of a general matrix of twice the size, about a minute
REAL = 1e-7  # imaginary parts, relative to the largest eigenvalue, of a double root that rounding split


@dataclass(frozen=True, eq=False, kw_only=True)
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


def additive_constant(distances: npt.ArrayLike, sizes: npt.ArrayLike | None = None) -> float:
    r"""Cailliez' constant: the least c >= 0 such that d_ij + c are Euclidean distances.

    The largest real eigenvalue of [[0, 2 B(d^2)], [-I, -4 B(d)]] with B(x) = -1/2 J x J, 2n x 2n, here 2G x 2G on
    groups. Added to the distances, not to their squares, so other than Lingoes' constant it does not keep the bound
    attained: it is for comparison.

    Raises
    ------
    InvalidInputError
        Negative distances, or more than 1000 groups.
    """
    d, count = euclidean.check_group_form(distances, sizes)
    if d.shape[0] > LARGEST_CAILLIEZ:
        raise InvalidInputError(
            f"`distances` must be of at most {LARGEST_CAILLIEZ} points for Cailliez' constant; got {d.shape[0]} "
            "(use Lingoes' constant)"
        )
    if np.any(d < 0):
        raise InvalidInputError(
            f"`distances` must not be negative; got {float(d.min()):g} (are they squared distances + c?)"
        )
    plain = euclidean.spectrum(d**2, count)
    if plain.lingoes <= plain.rounding:
        return 0.0  # Euclidean as they are; the double root 0 would come out as the root of a rounding error

    def gram(values: Array) -> Array:
        block = group_matrix.symmetric_block(values, np.zeros(count.size), count)
        return -0.5 * lift.ones_first(block, count)[1:, 1:]

    inner = gram(d)
    # Within a group the 2 x 2 blocks have the double root -d: it is 0 that bounds the constant there.
    if inner.size == 0:
        return 0.0
    size = inner.shape[0]
    companion = np.block([[np.zeros((size, size)), 2 * gram(d**2)], [-np.eye(size), -4 * inner]])
    roots = scipy.linalg.eigvals(companion)
    real = roots.real[np.abs(roots.imag) <= REAL * max(float(np.abs(roots).max()), np.finfo(np.float64).tiny)]
    return max(0.0, float(real.max(initial=0.0)))


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
    constant = additive_constant(distances, weights.sizes)
    raised = np.where(pairs, (distances + constant) ** 2, 0.0)
    spectrum = euclidean.spectrum(raised, weights.sizes)
    gap = entropy.gap_to_bound(weights, -raised / temperature)
    return CailliezGeometry(
        constant=constant,
        dimension=spectrum.rank(0.0),
        loss=entropy.entropic_bound(weights) + gap,
        gap_to_bound=gap,
        _weights=weights,
        _squared=raised,
        _threshold=spectrum.threshold(0.0),
    )
