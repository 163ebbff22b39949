r"""How positives are drawn: laws p(z+ | z) on the sphere of the latents.

Densities are relative to the uniform law on the reference set of z: the whole sphere (von Mises-Fisher) or the slice of
the sphere on which the fixed coordinates keep their values. On a slice with free part v, radius |v|, and concentration
kappa two conventions are in use:

    theory     p(z+ | z) ~ exp(kappa z.z+) restricted to the slice: concentration kappa |v|^2 for the direction of the
               free part,
    reported   concentration kappa for that direction, whatever the radius (what the published experiments sample).

References
----------
Zaliaduonis, Putzky, Richter, Gatidis 2026, arXiv 2606.04280.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from optgeom import _checks, choices
from optgeom._numerics import Array, log_nonnegative
from optgeom.errors import InvalidInputError
from optgeom.sampling import latents
from optgeom.sampling.latents import LatentSphere

SAME_SLICE = 1e-9  # largest difference of fixed coordinates that are the same


class Conditional(ABC):
    """A law of positives given the anchor.

    Attributes
    ----------
    dimension : int
        d of the latents in R^d.
    fixed : tuple of int
        Coordinates that never change.
    full_support : bool
        Whether every point of the sphere can be the positive of every anchor: diversity holds.
    """

    @property
    @abstractmethod
    def dimension(self) -> int: ...

    @property
    def fixed(self) -> tuple[int, ...]:
        return ()

    @property
    def free(self) -> tuple[int, ...]:
        """The other coordinates."""
        return tuple(axis for axis in range(self.dimension) if axis not in self.fixed)

    @property
    @abstractmethod
    def full_support(self) -> bool: ...

    @abstractmethod
    def contains(self, z: Array, z_plus: Array) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """Whether rows of z_plus lie in the supports of rows of z (broadcast over leading axes)."""

    @abstractmethod
    def log_normaliser(self, z: Array) -> Array:
        """(n,) log of the mean of the unnormalised density over the reference set of each anchor."""

    @abstractmethod
    def log_density(self, z: Array, z_plus: Array) -> Array:
        """Log density relative to the uniform law on the reference set, -inf outside the support.

        Leading axes are broadcast.
        """

    @abstractmethod
    def sample(self, rng: np.random.Generator, z: Array) -> Array:
        """(n, d) one positive for each row of z, exactly from the law."""

    @abstractmethod
    def sample_support(self, rng: np.random.Generator, z: Array) -> Array:
        """(n, d) one uniform point of the support of each row of z: a support-corrected negative."""

    @abstractmethod
    def mean_square_change(self) -> Array:
        """(d,) exact E (z+_a - z_a)^2 for every coordinate.

        By symmetry different coordinates change without correlation.
        """

    def sample_pairs(self, rng: np.random.Generator, n: int) -> tuple[Array, Array]:
        """(n, d) uniform anchors and their positives."""
        z = LatentSphere(self.dimension).sample(rng, n)
        return z, self.sample(rng, z)


@dataclass(frozen=True)
class VonMisesFisher(Conditional):
    """p(z+ | z) ~ exp(kappa z.z+) on the whole sphere.

    Attributes
    ----------
    size : int
        d >= 2.
    kappa : float
        Concentration >= 0; 0 is uniform.
    """

    size: int
    kappa: float

    def __post_init__(self) -> None:
        LatentSphere(self.size)
        _checks.real("kappa", self.kappa, at_least=0.0, hint="1/temperature makes the true latents optimal")

    @property
    def dimension(self) -> int:
        return self.size

    @property
    def full_support(self) -> bool:
        return True

    def contains(self, z: Array, z_plus: Array) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        return np.ones(np.broadcast_shapes(z.shape, z_plus.shape)[:-1], dtype=np.bool_)

    def log_normaliser(self, z: Array) -> Array:
        return np.full(z.shape[:-1], float(latents.log_mean_exp(self.kappa, self.size)))

    def log_density(self, z: Array, z_plus: Array) -> Array:
        return np.asarray(self.kappa * (z * z_plus).sum(axis=-1) - self.log_normaliser(z))

    def sample(self, rng: np.random.Generator, z: Array) -> Array:
        return around(rng, z, np.full(z.shape[0], self.kappa))

    def sample_support(self, rng: np.random.Generator, z: Array) -> Array:
        return latents.uniform(rng, z.shape[0], self.size)

    def mean_square_change(self) -> Array:
        return np.full(self.size, 2 * (1 - float(latents.mean_cosine(self.kappa, self.size))) / self.size)


@dataclass(frozen=True)
class Slice(Conditional):
    """Some coordinates never change; the direction of the free part follows a von Mises-Fisher law.

    Attributes
    ----------
    size : int
        d >= 2.
    kappa : float
        Concentration >= 0.
    axes : tuple of int
        The fixed coordinates, 1 to d - 1 of them; with d - 1 the free part is one number, and only its sign can change.
    convention : {"theory", "reported"}
        Whether kappa is in units of the latents or of the normalised free part.
    """

    size: int
    kappa: float
    axes: tuple[int, ...]
    convention: str = "theory"

    def __post_init__(self) -> None:
        LatentSphere(self.size)
        _checks.real("kappa", self.kappa, at_least=0.0, hint="1/temperature makes the true latents optimal")
        _checks.choice("convention", self.convention, choices.Convention)
        axes = tuple(self.axes)
        if not 1 <= len(set(axes)) == len(axes) < self.size or not all(
            isinstance(a, int) and 0 <= a < self.size for a in axes
        ):
            limit = self.size - 1
            raise InvalidInputError(
                f"`axes` must be 1 to {limit} different coordinates 0..{limit}; got {axes} (one must stay free)"
            )

    @property
    def dimension(self) -> int:
        return self.size

    @property
    def fixed(self) -> tuple[int, ...]:
        return tuple(sorted(self.axes))

    @property
    def full_support(self) -> bool:
        return False

    def concentration(self, z: Array) -> Array:
        """Concentration of the direction of the free part, for each row."""
        square = (z[..., self.free] ** 2).sum(axis=-1)
        return np.asarray(self.kappa * (square if self.convention == "theory" else np.ones_like(square)))

    def contains(self, z: Array, z_plus: Array) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        return np.asarray(np.abs(z[..., self.fixed] - z_plus[..., self.fixed]).max(axis=-1) <= SAME_SLICE)

    def log_normaliser(self, z: Array) -> Array:
        return latents.log_mean_exp(self.concentration(z), len(self.free))

    def log_density(self, z: Array, z_plus: Array) -> Array:
        lengths = np.linalg.norm(z[..., self.free], axis=-1) * np.linalg.norm(z_plus[..., self.free], axis=-1)
        products = (z[..., self.free] * z_plus[..., self.free]).sum(axis=-1)
        cosine = products / np.where(lengths > 0, lengths, 1.0)
        inside = self.contains(z, z_plus)
        return np.asarray(np.where(inside, self.concentration(z) * cosine - self.log_normaliser(z), -np.inf))

    def sample(self, rng: np.random.Generator, z: Array) -> Array:
        return self._turned(z, lambda direction: around(rng, direction, self.concentration(z)))

    def sample_support(self, rng: np.random.Generator, z: Array) -> Array:
        return self._turned(z, lambda direction: latents.uniform(rng, *direction.shape))

    def mean_square_change(self) -> Array:
        count = len(self.free)
        square, weights = latents.free_square_rule(self.size, count)
        cosine = latents.mean_cosine(
            self.kappa * (square if self.convention == "theory" else np.ones_like(square)), count
        )
        change = np.zeros(self.size)
        change[list(self.free)] = float(np.sum(weights * 2 * square * (1 - cosine))) / count
        return change

    def _turned(self, z: Array, draw: Callable[[Array], Array]) -> Array:
        free = z[:, self.free]
        length = np.linalg.norm(free, axis=1)[:, None]
        first = np.zeros_like(free)
        first[:, 0] = 1.0
        # At a pole of the slices there is nothing to turn.
        direction = np.where(length > 0, free / np.where(length > 0, length, 1.0), first)
        turned = z.copy()
        turned[:, self.free] = length * draw(direction)
        return turned


@dataclass(frozen=True)
class Mixture(Conditional):
    """One of several laws, drawn independently for every pair.

    Attributes
    ----------
    parts : tuple of Conditional
    weights : tuple of float
        Probabilities of the parts.
    """

    parts: tuple[Conditional, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.parts) == 0 or len(self.parts) != len(self.weights):
            came = f"{len(self.parts)} parts and {len(self.weights)} weights"
            raise InvalidInputError(
                f"`weights` must give a probability to each of at least one part; got {came} (one weight per part)"
            )
        for weight in self.weights:
            _checks.real("weights", weight, above=0.0, hint="leave parts of probability zero out")
        if abs(sum(self.weights) - 1.0) > 1e-9:
            raise InvalidInputError(f"`weights` must sum to 1; got a sum of {sum(self.weights):.12g} (divide by it)")
        sizes = {part.dimension for part in self.parts}
        if len(sizes) > 1:
            raise InvalidInputError(
                f"`parts` must be laws in one dimension; got dimensions {sorted(sizes)} (mix laws of one sphere)"
            )

    @property
    def dimension(self) -> int:
        return self.parts[0].dimension

    @property
    def fixed(self) -> tuple[int, ...]:
        return tuple(sorted(set.intersection(*(set(part.fixed) for part in self.parts))))

    @property
    def full_support(self) -> bool:
        return any(part.full_support for part in self.parts)

    def contains(self, z: Array, z_plus: Array) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        return np.asarray(np.any([part.contains(z, z_plus) for part in self.parts], axis=0))

    def log_normaliser(self, z: Array) -> Array:
        """0: the parts are normalised."""
        return np.zeros(z.shape[:-1])

    def log_density(self, z: Array, z_plus: Array) -> Array:
        if any(part.fixed != self.parts[0].fixed for part in self.parts):
            listed = [list(part.fixed) for part in self.parts]
            raise InvalidInputError(
                f"`parts` must fix the same coordinates to have a density; got {listed} (sample them instead)"
            )
        logs = np.stack(
            [log_nonnegative(w) + part.log_density(z, z_plus) for part, w in zip(self.parts, self.weights, strict=True)]
        )
        return np.asarray(np.logaddexp.reduce(logs, axis=0))

    def sample(self, rng: np.random.Generator, z: Array) -> Array:
        chosen = rng.choice(len(self.parts), size=z.shape[0], p=np.array(self.weights) / sum(self.weights))
        positives = np.empty_like(z)
        for number, part in enumerate(self.parts):
            rows = np.flatnonzero(chosen == number)
            if rows.size:
                positives[rows] = part.sample(rng, z[rows])
        return positives

    def sample_support(self, rng: np.random.Generator, z: Array) -> Array:
        """Uniform on the support of the largest part, where one contains the others."""
        largest = self.largest
        if largest is None:
            raise InvalidInputError(
                "`parts` must have a largest support to draw from; got none that contains the others (add one)"
            )
        return largest.sample_support(rng, z)

    @property
    def largest(self) -> Conditional | None:
        """A part whose support contains those of the others, where one is known to."""
        everywhere = [part for part in self.parts if part.full_support]
        if everywhere or len(self.parts) == 1:
            return (everywhere or list(self.parts))[0]
        if not all(isinstance(part, Slice) for part in self.parts):
            return None
        widest = min(self.parts, key=lambda part: len(part.fixed))
        return widest if all(set(widest.fixed) <= set(part.fixed) for part in self.parts) else None

    def mean_square_change(self) -> Array:
        return np.asarray(sum(w * part.mean_square_change() for part, w in zip(self.parts, self.weights, strict=True)))


def around(rng: np.random.Generator, directions: Array, kappa: Array) -> Array:
    """(n, p) von Mises-Fisher draws around unit rows, each with its own concentration.

    By exact rejection (Wood 1994), in any dimension.

    The cosine w of p >= 2 dimensions is drawn as (1 - (1+b) y) / (1 - (1-b) y), y ~ Beta((p-1)/2, (p-1)/2), and
    accepted with the ratio of the densities; b = (p-1) / (2k + sqrt(4k^2 + (p-1)^2)), which keeps the acceptance above
    about two thirds for every k.
    """
    n, p = directions.shape
    k = np.broadcast_to(np.asarray(kappa, dtype=np.float64), (n,))
    if p == 1:
        stay = rng.random(n) < 1.0 / (1.0 + np.exp(-2 * k))
        return np.asarray(np.where(stay[:, None], directions, -directions))
    b = (p - 1) / (2 * k + np.sqrt(4 * k**2 + (p - 1) ** 2))
    x = (1 - b) / (1 + b)
    # log1p(-x^2) loses its digits for large k: 1 - x^2 = 4 b / (1 + b)^2.
    top = k * x + (p - 1) * np.log(4 * b / (1 + b) ** 2)
    cosine, waiting = np.empty(n), np.arange(n)
    while waiting.size:
        y = rng.beta((p - 1) / 2, (p - 1) / 2, size=waiting.size)
        below = 1 - (1 - b[waiting]) * y
        w = (1 - (1 + b[waiting]) * y) / below
        accept = k[waiting] * w + (p - 1) * np.log(2 * b[waiting] / ((1 + b[waiting]) * below)) - top[waiting]
        # 1 - x w = 2 b / ((1 + b) (1 - (1 - b) y)), without cancellation.
        good = np.log(1.0 - rng.random(waiting.size)) <= accept
        cosine[waiting[good]] = w[good]
        waiting = waiting[~good]
    tangent = latents.uniform(rng, n, p - 1)
    local = np.column_stack([cosine, np.sqrt(np.maximum(0.0, 1 - cosine**2))[:, None] * tangent])
    return latents.carry_pole(local, directions)
