r"""Von Mises-Fisher laws truncated to a cap around the anchor; kappa = 0 is the uniform law on the cap.

p(z+ | z) ~ exp(kappa z.z+)  for  angle(z, z+) <= alpha,  0 otherwise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import special

from optgeom import _checks
from optgeom._numerics import Array, log_nonnegative
from optgeom.errors import InvalidInputError
from optgeom.sampling import latents
from optgeom.sampling.conditionals import Conditional, around
from optgeom.sampling.latents import LatentSphere

NODES = 400  # of Gauss-Legendre in the angle: exact to rounding up to concentrations of some thousands


@dataclass(frozen=True)
class Cap(Conditional):
    """Truncated law.

    Attributes
    ----------
    size : int
        d >= 2.
    angle_deg : float
        Largest angle between anchor and positive, degrees, in (0, 180].
    kappa : float
        Concentration >= 0; 0 is uniform on the cap.
    """

    size: int
    angle_deg: float
    kappa: float = 0.0

    def __post_init__(self) -> None:
        LatentSphere(self.size)
        _checks.real("kappa", self.kappa, at_least=0.0, hint="0 is uniform on the cap")
        if _checks.real("angle_deg", self.angle_deg, above=0.0, hint="in degrees") > 180:
            raise InvalidInputError(
                f"`angle_deg` must be in (0, 180]; got {self.angle_deg!r} (180 is the whole sphere)"
            )

    @property
    def dimension(self) -> int:
        return self.size

    @property
    def full_support(self) -> bool:
        return self.angle_deg == 180

    @property
    def edge(self) -> float:
        """Least cosine."""
        return -1.0 if self.full_support else math.cos(math.radians(self.angle_deg))

    @cached_property
    def _log_rule(self) -> tuple[Array, Array]:
        # By logarithms: small caps of high dimension have a share below every float.
        nodes, weights = np.polynomial.legendre.leggauss(NODES)
        half = math.radians(self.angle_deg) / 2
        angles = half * (nodes + 1)
        d = self.size
        log_total = 0.5 * math.log(math.pi) + float(special.gammaln((d - 1) / 2) - special.gammaln(d / 2))
        return angles, np.log(half * weights) + (d - 2) * log_nonnegative(np.sin(angles)) - log_total

    @cached_property
    def log_total(self) -> float:
        """log of the mean of the unnormalised density over the whole sphere."""
        angles, log_weights = self._log_rule
        return self.kappa + float(special.logsumexp(log_weights + self.kappa * (np.cos(angles) - 1)))

    @property
    def share(self) -> float:
        """Share of the sphere that the cap covers."""
        return math.exp(self._log_share)

    @property
    def _log_share(self) -> float:
        return float(special.logsumexp(self._log_rule[1]))

    def contains(self, z: Array, z_plus: Array) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        return np.asarray((z * z_plus).sum(axis=-1) >= self.edge - 1e-12)

    def log_normaliser(self, z: Array) -> Array:
        return np.full(z.shape[:-1], self.log_total)

    def log_density(self, z: Array, z_plus: Array) -> Array:
        density = self.kappa * (z * z_plus).sum(axis=-1) - self.log_total
        return np.asarray(np.where(self.contains(z, z_plus), density, -np.inf))

    def sample(self, rng: np.random.Generator, z: Array) -> Array:
        # Two exact rejections; the acceptance of both is known, and the better one is never poor.
        from_law = math.exp(self.log_total - float(latents.log_mean_exp(self.kappa, self.size)))
        from_cap = math.exp(self.log_total - self.kappa - self._log_share)
        positives, waiting = np.empty_like(z), np.arange(z.shape[0])
        while waiting.size:
            anchors = z[waiting]
            if from_law >= from_cap:
                drawn = around(rng, anchors, np.full(anchors.shape[0], self.kappa))
                good = self.contains(anchors, drawn)
            else:
                drawn = self.sample_support(rng, anchors)
                good = np.log(1.0 - rng.random(anchors.shape[0])) <= self.kappa * ((anchors * drawn).sum(axis=1) - 1)
            positives[waiting[good]] = drawn[good]
            waiting = waiting[~good]
        return positives

    def sample_support(self, rng: np.random.Generator, z: Array) -> Array:
        """Uniform on the cap: (1 + cosine)/2 is a Beta variable, truncated through its distribution function."""
        half = (self.size - 1) / 2
        # sin^2 of half the angle is 1 minus that variable, of the same law: small caps keep their digits.
        most = special.betainc(half, half, math.sin(math.radians(self.angle_deg) / 2) ** 2)
        low = special.betaincinv(half, half, most * rng.random(z.shape[0]))
        tangent = latents.uniform(rng, z.shape[0], self.size - 1)
        local = np.column_stack([1 - 2 * low, 2 * np.sqrt(low * (1 - low))[:, None] * tangent])
        return latents.carry_pole(local, z)

    def mean_square_change(self) -> Array:
        angles, log_weights = self._log_rule
        density = np.exp(log_weights + self.kappa * np.cos(angles) - self.log_total)
        return np.full(self.size, 2 * float(np.sum(density * (1 - np.cos(angles)))) / self.size)
