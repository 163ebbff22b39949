r"""Diversity: can positives go everywhere, and if not, which directions of the latents never vary?

The contrastive loss identifies the latents (up to an orthogonal map) only if the law of positives has full support.
What varies is read from the second moment of the change, M = E (z+ - z)(z+ - z)': a direction a is fixed iff a'M a = 0,
and the effective dimension of the variation is exp(entropy of the normalised eigenvalues of M), d for an isotropic law.

From n observed pairs M has sampling error. For n Gaussian changes the least eigenvalue of the sample is at least that
of M times (1 - sqrt(d/n) - sqrt(2 log(1/alpha)/n))^2 with probability 1 - alpha, so dividing by this gives an upper
bound on how much the stillest direction varies. A direction is called fixed when that bound is below `resolution`: a
data set can show that a direction varies less than some amount, never that it does not vary.

References
----------
Zaliaduonis, Putzky, Richter, Gatidis 2026, arXiv 2606.04280 (diversity condition); Davidson,
Szarek 2001 (extreme singular values).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from optgeom import _checks
from optgeom._numerics import Array, arccos_clipped, read_only
from optgeom.sampling.conditionals import Conditional
from optgeom.sampling.pairs import Pairs

RESOLUTION = 0.02  # rms change, in units of the radius: above the noise of stored features, well below a real factor
LEVEL = 0.05


@dataclass(frozen=True, eq=False, kw_only=True)
class Diversity:
    """Directions of the latents that the positives do and do not vary.

    Attributes
    ----------
    holds : bool or None
        Full support. None: pairs show no fixed direction, and no finite number of them could show full support.
    fixed_dimensions : int
        Number of directions that never vary.
    fixed_directions : (d, fixed_dimensions)
        Orthonormal columns that span them.
    undecided_directions : int
        Pairs only: directions whose observed variation is below the resolution, while its upper bound is not.
    effective_dimension : float
        exp(entropy) of the shares of the directions in the variation.
    variation : (d,)
        Root mean square change along the principal directions, ascending.
    resolution : float
        Largest root mean square change of what is called fixed; 0 for an analytic law.
    widest_angle_deg : float or None
        Pairs only: the largest angle seen between anchor and positive.
    pairs : int or None
    """

    holds: bool | None
    fixed_dimensions: int
    fixed_directions: Array
    undecided_directions: int
    effective_dimension: float
    variation: Array
    resolution: float
    widest_angle_deg: float | None = None
    pairs: int | None = None

    @staticmethod
    def observed(described: dict[str, Any], effective_dimension: float) -> Diversity:
        """Diversity of observed pairs, from its `as_dict`."""
        directions = np.array(described["fixed_directions"], dtype=np.float64)
        variation = np.array(described["variation"], dtype=np.float64)
        return Diversity(
            holds=described["holds"],
            fixed_dimensions=len(directions),
            fixed_directions=read_only(directions.reshape(len(directions), variation.size).T.copy()),
            undecided_directions=int(described["undecided_directions"]),
            effective_dimension=float(effective_dimension),
            variation=read_only(variation),
            resolution=float(described["resolution"]),
            widest_angle_deg=float(described["widest_angle_deg"]),
            pairs=int(described["pairs"]),
        )

    @property
    def reason(self) -> str:
        """In words."""
        d = self.variation.size
        if self.fixed_dimensions:
            plural = self.fixed_dimensions > 1
            how = f"never {'vary' if plural else 'varies'}"
            if self.pairs is not None:
                how = f"{'vary' if plural else 'varies'} by less than {self.resolution:g} in {self.pairs} pairs"
            return f"{self.fixed_dimensions} of {d} latent directions {how}"
        if self.holds:
            return "every point of the sphere can be a positive of every anchor"
        if self.pairs is None:
            return "every direction varies, but positives stay in a part of the sphere"
        rest = f"; {self.undecided_directions} undecided: more pairs are needed" if self.undecided_directions else ""
        return f"no direction is seen to be fixed, positives up to {self.widest_angle_deg:.0f} degrees away{rest}"

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "holds": self.holds,
            "reason": self.reason,
            "undecided_directions": self.undecided_directions,
            "fixed_directions": self.fixed_directions.T.tolist(),
            "variation": self.variation.tolist(),
            "resolution": self.resolution,
            "widest_angle_deg": self.widest_angle_deg,
            "pairs": self.pairs,
        }


def diversity(source: Conditional | Pairs, resolution: float = RESOLUTION) -> Diversity:
    """Diversity of a law (exact) or of observed pairs (statistical).

    Parameters
    ----------
    source : Conditional or Pairs
    resolution : float
        Pairs only: root mean square change below which a direction counts as fixed.
    """
    _checks.real("resolution", resolution, above=0.0, hint=f"the default is {RESOLUTION}")
    if isinstance(source, Pairs):
        return _observed(source, resolution)
    change = source.mean_square_change()
    fixed = read_only(np.eye(source.dimension)[:, list(source.fixed)])
    order = np.sort(change)
    return Diversity(
        holds=source.full_support,
        fixed_dimensions=len(source.fixed),
        fixed_directions=fixed,
        undecided_directions=0,
        effective_dimension=_effective(order),
        variation=read_only(np.sqrt(order)),
        resolution=0.0,
    )


def _observed(pairs: Pairs, resolution: float) -> Diversity:
    change = pairs.z_plus - pairs.z
    n, d = change.shape
    # Singular values, not eigenvalues of the second moment: a change of 1e-9 would drown in its rounding.
    _, singular, axes = np.linalg.svd(change, full_matrices=n < d)
    rms = np.zeros(d)
    rms[: singular.size] = singular / math.sqrt(n)
    rms, axes = rms[::-1], axes[::-1]
    shrink = 1 - math.sqrt(d / n) - math.sqrt(2 * math.log(1 / LEVEL) / n)
    still = rms < resolution
    fixed = still & (rms < resolution * shrink)
    cosine = float(np.min((pairs.z * pairs.z_plus).sum(axis=1)))
    return Diversity(
        holds=False if fixed.any() else None,
        fixed_dimensions=int(fixed.sum()),
        fixed_directions=read_only(np.ascontiguousarray(axes[fixed].T)),
        undecided_directions=int((still & ~fixed).sum()),
        effective_dimension=_effective(rms**2),
        variation=read_only(rms.copy()),
        resolution=resolution,
        widest_angle_deg=math.degrees(float(arccos_clipped(cosine))),
        pairs=n,
    )


def _effective(squares: Array) -> float:
    total = float(squares.sum())
    if total == 0:
        return 0.0
    share = squares[squares > 0] / total
    return float(np.exp(-np.sum(share * np.log(share))))
