"""recover: does the contrastive loss recover the latents under these positives; if not, what is optimal, and does a correction help?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import brentq

from optgeom import _checks
from optgeom._numerics import EPS, Array
from optgeom.errors import InvalidInputError
from optgeom.sampling import asymptotic, latents
from optgeom.sampling.bracket import Bracket, best_in_dimension
from optgeom.sampling.conditionals import CONVENTIONS, Conditional, Slice, VonMisesFisher
from optgeom.sampling.diversity import RESOLUTION, Diversity, diversity
from optgeom.sampling.optimum import SamplingOptimum, global_optimum
from optgeom.sampling.pairs import Pairs
from optgeom.sampling.points import point_set

LARGEST_KAPPA = 1e6  # fitted to pairs; beyond, positives hardly differ from their anchors


@dataclass(frozen=True, eq=False, repr=False)
class Recovery:
    """Can the latents be recovered, and what is optimal instead?

    Losses are those of the points (`optimum.held`), which stand for the continuum: compare them with one another. `asymptotic_identity`
    and `asymptotic_infimum` are on the continuum, log N left out.

    Attributes
    ----------
    conditional : Conditional
        The law of positives; fitted where pairs were given.
    temperature, rho : float
    diversity : Diversity
    optimum : SamplingOptimum
        InfoNCE: the optimum over maps into ANY dimension, against the orthogonal maps.
    in_dimension : Bracket
        InfoNCE: maps into one given dimension, another question with another answer.
    corrected : SamplingOptimum
        The support-corrected loss at `rho`, over maps into any dimension.
    asymptotic_identity : float
    asymptotic_infimum : float or None
        Infimum over all maps into the sphere of the latents; None where it is not known.
    """

    conditional: Conditional
    temperature: float
    rho: float
    diversity: Diversity
    optimum: SamplingOptimum
    in_dimension: Bracket
    corrected: SamplingOptimum
    asymptotic_identity: float
    asymptotic_infimum: float | None

    def __repr__(self) -> str:
        best = f"loss_optimum_any_dimension={self.loss_optimum_any_dimension:.6g}, loss_best_in_dimension={self.loss_best_in_dimension:.6g}"
        return f"Recovery(fixed_dimensions={self.fixed_dimensions}, loss_identity={self.loss_identity:.6g}, {best})"

    @property
    def fixed_dimensions(self) -> int:
        """Latent directions that never vary."""
        return self.diversity.fixed_dimensions

    @property
    def effective_dimension(self) -> float:
        """Effective dimension of the variation."""
        return self.diversity.effective_dimension

    @property
    def loss_identity(self) -> float:
        """InfoNCE of the true latents, and of all orthogonal maps of them."""
        return self.optimum.loss_identity

    @property
    def loss_optimum_any_dimension(self) -> float:
        """Least InfoNCE over maps into any dimension, certified."""
        return self.optimum.loss

    @property
    def loss_best_in_dimension(self) -> float:
        """Least InfoNCE found over maps into the given dimension."""
        return self.in_dimension.best

    @property
    def corrected_gap(self) -> float:
        """Support-corrected loss of the true latents minus its optimum over any dimension: 0 where the correction makes them optimal."""
        return self.corrected.gap

    @property
    def unique(self) -> bool:
        """Whether the optimum of InfoNCE over any dimension is unique, up to orthogonal maps."""
        return self.optimum.unique

    @property
    def recoverable(self) -> bool:
        """Whether minimising InfoNCE over any dimension gives the latents, up to an orthogonal map."""
        return self.optimum.orthogonal_maps == "optimal"

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        law, held, bracket = self.conditional, self.optimum.held, self.in_dimension
        return {
            "dimension": law.dimension,
            "kappa": getattr(law, "kappa", None),
            "temperature": self.temperature,
            "convention": getattr(law, "convention", None),
            "rho": self.rho,
            "diversity": self.diversity.holds,
            "fixed_dimensions": self.fixed_dimensions,
            "effective_dimension": self.effective_dimension,
            "diversity_details": self.diversity.as_dict(),
            "loss_identity": self.loss_identity,
            "loss_optimum_any_dimension": self.loss_optimum_any_dimension,
            "loss_best_in_dimension": self.loss_best_in_dimension,
            "corrected_gap": self.corrected_gap,
            "unique": self.unique,
            "recoverable": self.recoverable,
            "orthogonal_maps": {
                "any_dimension": self.optimum.orthogonal_maps,
                "any_dimension_gap": self.optimum.gap,
                "dim": bracket.dimension,
                "in_dimension_gap": bracket.gain,
                "bracket": [bracket.lower, bracket.best],
                "best_start": bracket.start,
            },
            "corrected": self.corrected.as_dict(),
            "certificate": {
                "certified": self.optimum.certified,
                "gap": max(0.0, self.optimum.loss - self.optimum.lower_bound),
                "lower_bound": self.optimum.lower_bound,
                "corrected_gap": max(0.0, self.corrected.loss - self.corrected.lower_bound),
            },
            "asymptotic": {"identity": self.asymptotic_identity, "infimum_in_dimension": self.asymptotic_infimum},
            "points": {"slices": held.slices, "per_slice": held.per_slice, "self_included": held.self_included},
            "solver": {"name": self.optimum.solver},
        }


def recover(
    dimension: int = 3,
    kappa: float | None = None,
    temperature: float = 0.3,
    fixed: int = 0,
    convention: str = "theory",
    rho: float = 1.0,
    *,
    conditional: Conditional | None = None,
    pairs: Pairs | None = None,
    dim: int | None = None,
    slices: int = 40,
    per_slice: int = 10,
    resolution: float = RESOLUTION,
    tolerance: float = 1e-9,
) -> Recovery:
    r"""Sampling diversity, and the optimum of InfoNCE and of its support-corrected form against the true latents.

    Parameters
    ----------
    dimension : int
        d >= 2: latents are uniform on S^(d-1).
    kappa : float, optional
        Concentration of the positives; 1/temperature by default, which makes the true latents optimal where positives vary fully.
    temperature : float
        tau > 0 of the loss.
    fixed : int
        Number of latent coordinates that positives share with their anchor.
    convention : {"theory", "reported"}
        Whether kappa is in units of the latents or of their normalised free part.
    rho : float
        Share of the negatives that the corrected loss draws from the anchor's own support.
    conditional : Conditional, optional
        The law of positives, instead of dimension, kappa, fixed and convention.
    pairs : Pairs, optional
        Observed pairs, instead of dimension, kappa and fixed: fixed directions are tested for, and kappa fitted to the mean cosine.
    dim : int, optional
        Dimension of the maps that are searched; that of the latents by default.
    slices, per_slice : int
        R slices of m points stand for the continuum.
    resolution : float
        Pairs: root mean square change below which a direction counts as fixed.
    tolerance : float
        Gap of the certificates, relative to 1 + |loss|.

    Returns
    -------
    Recovery

    Raises
    ------
    InvalidInputError
        Parameters outside their domain.
    NotCertifiedError
        An optimum found is not proved to the tolerance.

    References
    ----------
    Zaliaduonis, Putzky, Richter, Gatidis 2026, arXiv 2606.04280.
    """
    tau = _checks.real("temperature", temperature, above=0.0, hint="usual values are 0.05 to 1")
    asymptotic.check_rho(rho)
    _checks.choice("convention", convention, CONVENTIONS)
    if conditional is not None and pairs is not None:
        raise InvalidInputError("`conditional` must be left out with pairs; got both (the law is fitted to the pairs)")
    if pairs is not None:
        seen = diversity(pairs, resolution)
        law = fitted(pairs, seen, convention)
    else:
        law = conditional or law_of(dimension, 1 / tau if kappa is None else kappa, fixed, convention)
        seen = diversity(law)
    held = point_set(law, slices, per_slice)
    found = global_optimum(held, tau, 0.0, tolerance)
    whole = held.num_components == 1 or rho == 0
    # Where every negative lies in the anchor's support there is nothing to correct.
    corrected = replace(found, rho=rho) if whole else global_optimum(held, tau, rho, tolerance)
    bracket = best_in_dimension(found, law.dimension if dim is None else dim)
    identity = asymptotic.orthogonal_loss(law, tau)
    return Recovery(law, tau, rho, seen, found, bracket, corrected, identity, asymptotic.infimum(law, tau))


def law_of(dimension: int, kappa: float, fixed: int, convention: str = "theory") -> Conditional:
    """The law with the last `fixed` coordinates fixed; von Mises-Fisher where none is."""
    size = int(_checks.integer("dimension", dimension, at_least=2, hint="3 is the sphere of the published experiments"))
    still = int(_checks.integer("fixed", fixed, at_least=0, hint="the number of latent coordinates that never vary"))
    if still >= size:
        raise InvalidInputError(f"`fixed` must be below dimension {size}; got {still} (one coordinate must stay free)")
    return Slice(size, kappa, tuple(range(size - still, size)), convention) if still else VonMisesFisher(size, kappa)


def fitted(pairs: Pairs, seen: Diversity, convention: str = "theory") -> Conditional:
    """The law whose mean cosine, at the anchors of the pairs, is that of the pairs; its last coordinates are the fixed directions."""
    d, still = pairs.dimension, seen.fixed_dimensions
    if still >= d:
        raise InvalidInputError("`pairs` must vary in some direction; got positives equal to their anchors (augment more strongly)")
    directions = seen.fixed_directions
    square = np.clip(1 - ((pairs.z @ directions) ** 2).sum(axis=1), 0.0, 1.0)
    free, target = d - still, float((pairs.z * pairs.z_plus).sum(axis=1).mean())

    def excess(kappa: float) -> float:
        own: Array = kappa * (square if still == 0 or convention == "theory" else np.ones_like(square))
        return float(np.mean(1 - square + square * latents.mean_cosine(own, free))) - target

    if excess(LARGEST_KAPPA) <= 0:
        kappa = LARGEST_KAPPA
    else:
        kappa = 0.0 if excess(0.0) >= 0 else float(brentq(excess, 0.0, LARGEST_KAPPA, xtol=1e-12, rtol=4 * EPS))
    return law_of(d, kappa, still, convention)
