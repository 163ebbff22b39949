r"""Latents uniform on the sphere S^(d-1), and the functions of one cosine that its integrals reduce to.

For a unit vector u and z uniform, the cosine t = u.z has density proportional to (1 - t^2)^((d-3)/2) on (-1, 1), and

    E exp(k t) = Gamma(d/2) (2/k)^(d/2 - 1) I_(d/2-1)(k),      d/dk log E exp(k t) = I_(d/2)(k) / I_(d/2-1)(k),

the normaliser and the mean cosine of a von Mises-Fisher law of concentration k. On S^0 (two points) they are cosh k and
tanh k.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from optgeom import _checks
from optgeom._numerics import Array
from optgeom.errors import InvalidInputError

UNIT = 1e-6  # largest distance of a squared length from 1: float32 data pass
# Scaled Bessel functions below this are about to underflow; their order is then above 40 and larger than k/4.
VANISHING = 1e-280
LARGEST_DIMENSION = 10_000
LARGEST_JACOBI = 1000  # dimensions
FRACTION_TERMS = 400  # of the continued fraction there: far more than it needs


@dataclass(frozen=True)
class LatentSphere:
    """The uniform law on S^(dimension - 1).

    Attributes
    ----------
    dimension : int
        d >= 2: latents are unit vectors of R^d.
    """

    dimension: int

    def __post_init__(self) -> None:
        check_dimension("dimension", self.dimension)

    def sample(self, rng: np.random.Generator, n: int) -> Array:
        """(n, d) uniform unit vectors."""
        return uniform(rng, n, self.dimension)


def check_dimension(name: str, value: int) -> int:
    """A dimension of latents, from 2 to LARGEST_DIMENSION."""
    size = _checks.integer(name, value, at_least=2, hint="3 is the sphere of the published experiments")
    if size > LARGEST_DIMENSION:
        raise InvalidInputError(
            f"`{name}` must be at most {LARGEST_DIMENSION}; got {size} (points and directions fill the memory)"
        )
    return size


def uniform(rng: np.random.Generator, n: int, dimension: int) -> Array:
    """(n, dimension) uniform unit vectors; signs in dimension 1."""
    rows = rng.standard_normal((n, dimension))
    return np.asarray(rows / np.linalg.norm(rows, axis=1)[:, None])


def log_mean_exp(kappa: npt.ArrayLike, dimension: int) -> Array:
    """log E exp(kappa t) for the cosine t of a uniform vector of S^(dimension - 1); 0 at kappa = 0."""
    k = np.asarray(kappa, dtype=np.float64)
    if dimension == 1:
        return np.asarray(np.logaddexp(k, -k) - math.log(2.0))
    order = dimension / 2 - 1
    # Below 1e-4 the power and the Bessel function cancel; the series is exact there to k^4.
    small = k < 1e-4
    safe = np.where(small, 1.0, k)
    large = special.gammaln(dimension / 2) - order * np.log(safe / 2) + _log_bessel(order, safe)
    return np.asarray(np.where(small, np.where(small, k, 0.0) ** 2 / (2 * dimension), large))


def mean_cosine(kappa: npt.ArrayLike, dimension: int) -> Array:
    """Mean cosine of the von Mises-Fisher law: I_(d/2)(k)/I_(d/2-1)(k); coth k - 1/k on S^2, tanh k on two points."""
    k = np.asarray(kappa, dtype=np.float64)
    if dimension == 1:
        return np.asarray(np.tanh(k))
    small = k < 1e-4
    safe = np.where(small, 1.0, k)
    above, below = special.ive(dimension / 2, safe), special.ive(dimension / 2 - 1, safe)
    gone = above < VANISHING
    ratio = np.where(gone, 0.0, above / np.where(gone, 1.0, below))
    if gone.any():
        # I_(v+1)/I_v = 1/(2(v+1)/k + 1/(2(v+2)/k + ...)), from its tail.
        tail = np.zeros_like(safe)
        for term in range(FRACTION_TERMS, -1, -1):
            tail = 1.0 / (2 * (dimension / 2 + term) / safe + tail)
        ratio = np.where(gone, tail, ratio)
    return np.asarray(np.where(small, k / dimension, ratio))


def _log_bessel(order: float, k: Array) -> Array:
    """log I_order(k), from scaled Bessel functions.

    Where those underflow, from the uniform expansion in the order (DLMF 10.41.3).
    """
    scaled = special.ive(order, k)
    gone = scaled < VANISHING
    logs = np.log(np.where(gone, 1.0, scaled)) + k
    if gone.any():
        ratio = k / order
        root = np.sqrt(1 + ratio**2)
        t = 1 / root
        eta = root + np.log(ratio / (1 + root))
        first = (3 * t - 5 * t**3) / 24
        second = (81 * t**2 - 462 * t**4 + 385 * t**6) / 1152
        third = (30375 * t**3 - 369603 * t**5 + 765765 * t**7 - 425425 * t**9) / 414720
        series = np.log1p(first / order + second / order**2 + third / order**3)
        logs = np.where(gone, order * eta - 0.5 * np.log(2 * math.pi * order * root) + series, logs)
    return np.asarray(logs)


def free_square_rule(dimension: int, free: int, size: int = 200) -> tuple[Array, Array]:
    """Gauss-Jacobi nodes and probabilities for |v|^2, v being `free` < dimension coordinates of a uniform unit vector.

    |v|^2 is a Beta(free/2, (dimension - free)/2) variable.
    """
    a, b = free / 2, (dimension - free) / 2
    if dimension > LARGEST_JACOBI:
        # The normaliser of the Jacobi weight overflows; the law is then so narrow that its quantiles do as nodes.
        nodes, weights = np.polynomial.legendre.leggauss(size)
        return np.asarray(special.betaincinv(a, b, (1 + nodes) / 2)), weights / 2
    nodes, weights = special.roots_jacobi(size, b - 1, a - 1)
    return (1 + nodes) / 2, weights / weights.sum()


def carry_pole(vectors: Array, onto: Array) -> Array:
    """Reflect (n, d) vectors, row by row, so that the first axis lands on the unit row of `onto`."""
    axis = -onto.copy()
    axis[:, 0] += 1.0
    square = (axis**2).sum(axis=1)
    safe = np.where(square > 0, square, 1.0)  # already there
    return np.asarray(vectors - (2 * (vectors * axis).sum(axis=1) / safe)[:, None] * axis)


def unit_rows(name: str, values: npt.ArrayLike, dimension: int | None = None) -> Array:
    """(n, d) unit rows, lengths brought to 1 exactly."""
    if np.iscomplexobj(values):
        raise InvalidInputError(
            f"`{name}` must be real; got complex numbers (take their real parts, or stack real and imaginary ones)"
        )
    rows = np.asarray(values, dtype=np.float64)
    wanted = "d" if dimension is None else str(dimension)
    if (
        rows.ndim != 2
        or rows.shape[0] == 0
        or rows.shape[1] < 2
        or (dimension is not None and rows.shape[1] != dimension)
    ):
        raise InvalidInputError(
            f"`{name}` must be (n, {wanted}) unit vectors, one per row; got shape {rows.shape} (stack them as rows)"
        )
    holes = np.argwhere(~np.isfinite(rows))
    if holes.size:
        row, column = holes[0].tolist()
        came = "NaN" if np.isnan(rows[row, column]) else "infinity"
        number = len(np.unique(holes[:, 0]))
        where = f"row {row}, column {column}" + (
            f", and in {number - 1} more row{'' if number == 2 else 's'}" if number > 1 else ""
        )
        raise InvalidInputError(f"`{name}` must be finite; got {came} in {where} (leave these pairs out)")
    square = (rows**2).sum(axis=1)
    wrong = np.flatnonzero(~(np.abs(square - 1.0) <= UNIT))
    if wrong.size:
        length = float(np.linalg.norm(rows[wrong[0]]))
        raise InvalidInputError(
            f"`{name}` must be unit vectors; got length {length:.6g} in row {wrong[0]} (divide rows by their lengths)"
        )
    return np.asarray(rows / np.sqrt(square)[:, None])
