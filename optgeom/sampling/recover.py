"""recover: whether the contrastive loss recovers the latents under these positives, and what is optimal otherwise."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from optgeom import _checks, choices
from optgeom.certificates import Certificate
from optgeom.errors import InvalidInputError, NotCertifiedError
from optgeom.formatting import to_json
from optgeom.io import FileKind, plain_number
from optgeom.result import Result, SolverRun
from optgeom.sampling import asymptotic
from optgeom.sampling.bracket import Bracket, best_in_dimension, bracket_of
from optgeom.sampling.conditionals import Conditional
from optgeom.sampling.diversity import RESOLUTION, Diversity, diversity
from optgeom.sampling.fit import LARGEST_KAPPA, fit, law_of
from optgeom.sampling.optimum import SamplingOptimum, global_optimum
from optgeom.sampling.pairs import Pairs
from optgeom.sampling.points import PointSet, on_slices, point_set

# The latter where points have no symmetry: caps, whose optima can need a hundred dimensions.
SLICES, SLICES_WITHOUT_SYMMETRY = 40, 20
# Colder, neighbours on any number of points are out of sight; warmer, every map has the same loss.
TEMPERATURES = (1e-3, 1e3)
FILE = FileKind("optgeom-recovery", "a recovery", "its figures alone: as_dict")
COARSE = 0.1  # of the loss: alignment on the points against alignment under the law


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Recovery(Result):
    """Can the latents be recovered, and what is optimal instead?

    Losses are those of the points (`optimum.point_set`), which stand for the continuum: compare them with one another.
    `asymptotic_identity` and `asymptotic_infimum` are on the continuum, log N left out.

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
    kappa_interval : (float, float) or None
        Pairs: likelihood interval of 95 % for the concentration, if the law has this form; it may end at inf.
    certificate : Certificate
        Of the optimum of InfoNCE, or of the corrected one where only that is not certified.
    solver : SolverRun
        Of the optimum of InfoNCE.
    bracket : (float, float)
        The ends of `in_dimension`.
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
    certificate: Certificate
    solver: SolverRun
    bracket: tuple[float, float]
    kappa_interval: tuple[float, float] | None = None

    def __repr__(self) -> str:
        return (
            f"Recovery(temperature={self.temperature:g}, fixed_dimensions={self.fixed_dimensions}, "
            f"loss_identity={self.loss_identity:.6g}, "
            f"loss_optimum_any_dimension={self.loss_optimum_any_dimension:.6g}, "
            f"loss_best_in_dimension={self.loss_best_in_dimension:.6g})"
        )

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
        """Support-corrected loss of the true latents minus its optimum over any dimension; 0 where they are optimal."""
        return self.corrected.gap

    @property
    def unique(self) -> bool:
        """Whether the optimum of InfoNCE over any dimension is unique, up to orthogonal maps."""
        return self.optimum.unique

    @property
    def recoverable(self) -> bool:
        """Whether minimising InfoNCE over any dimension gives the latents, up to an orthogonal map.

        Never without full support: positives that nearly coincide with their anchors make the difference vanish on
        points only.
        """
        return self.conditional.full_support and self.optimum.orthogonal_maps == "optimal"

    @property
    def correctable(self) -> bool:
        """Whether the corrected loss is another one: some latents are in no support of others, and rho > 0."""
        return not self.conditional.full_support and self.rho > 0

    @property
    def mean_cosine(self) -> float:
        """E z.z+ under the law."""
        return 1 - float(self.conditional.mean_square_change().sum()) / 2

    @property
    def coarse(self) -> bool:
        """Whether the points are coarse for the law: alignment of the latents on them differs by more than 0.1."""
        return abs(self.optimum.point_set.mean_cosine - self.mean_cosine) > COARSE * self.temperature

    @property
    def kappa_matches(self) -> bool:
        """Whether the concentration is 1/temperature, or may be as far as the pairs say."""
        kappa, wanted = getattr(self.conditional, "kappa", None), 1 / self.temperature
        if self.kappa_interval is not None:
            return self.kappa_interval[0] <= wanted <= self.kappa_interval[1]
        return kappa is not None and abs(kappa / wanted - 1) <= 1e-9

    @property
    def verdict(self) -> str:
        """The answer in words."""
        return self._answer() if self.certified else f"not certified, so only an indication: {self._answer()}"

    def _answer(self) -> str:
        if self.recoverable:
            return "the loss recovers the latents, up to an orthogonal map"
        not_recovered = "the loss does not recover the latents"
        if not self.conditional.full_support:
            corrected = f"; with support-corrected negatives (rho {self.rho:g})"
            after = {
                "optimal": f"{corrected} it does",
                "optimal but not unique": f"{corrected} they are optimal, but so are others",
            }
            maps = after.get(self.corrected.orthogonal_maps, "") if self.correctable else ""
            return f"{not_recovered}: {self.diversity.reason}{maps}"
        if self.kappa_interval is not None and self.kappa_matches:
            return "nothing in the pairs speaks against recovery: no direction is fixed, and kappa may be 1/temperature"
        if self.optimum.identity_is_optimal:
            return "the true latents are optimal on these points, but so are other maps (more points may tell)"
        kappa = getattr(self.conditional, "kappa", None)
        if kappa is None:
            return (
                f"{not_recovered}: positives can go everywhere, but not by a von Mises-Fisher law of concentration "
                "1/temperature"
            )
        product = f"{kappa * self.temperature:.4g}"
        fits = (
            f" (as at temperature {1 / kappa:.6g})"
            if kappa > 0 and TEMPERATURES[0] <= 1 / kappa <= TEMPERATURES[1]
            else ""
        )
        if self.kappa_interval is not None:
            product += " ({:.3g} to {:.3g})".format(*(end * self.temperature for end in self.kappa_interval))
        return (
            f"{not_recovered}: its optimum has other angles, as kappa times temperature is {product}, and should be "
            f"1{fits}"
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        law, points, bracket = self.conditional, self.optimum.point_set, self.in_dimension
        return {
            "dimension": law.dimension,
            "kappa": getattr(law, "kappa", None),
            "kappa_interval": to_json(self.kappa_interval),
            "max_angle_deg": getattr(law, "angle_deg", None),
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
            "verdict": self.verdict,
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
                **self.certificate.as_dict(),
                "corrected_gap": max(0.0, self.corrected.loss - self.corrected.lower_bound),
            },
            "asymptotic": {"identity": self.asymptotic_identity, "infimum_in_dimension": self.asymptotic_infimum},
            "points": {
                "slices": points.slices,
                "per_slice": points.per_slice,
                "self_included": points.self_included,
                "mean_cosine": points.mean_cosine,
                "mean_cosine_of_the_law": self.mean_cosine,
            },
            "solver": self.solver.as_dict(),
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to `.npz` or `.json` (versioned, nothing pickled); `Recovery.load` reads it back."""
        points, arrays = self.optimum.point_set.to_parts()
        first, first_arrays = self.optimum.to_parts("optimum")
        second, second_arrays = self.corrected.to_parts("corrected")
        document: dict[str, Any] = {
            **points,
            **first,
            **second,
            "rho": self.rho,
            "in_dimension": {
                "dimension": self.in_dimension.dimension,
                "best": self.in_dimension.best,
                "start": self.in_dimension.start,
            },
            "observed": None if self.diversity.pairs is None else self.diversity.as_dict(),
            "effective_dimension": self.effective_dimension,
            "kappa_interval": None
            if self.kappa_interval is None
            else [plain_number(end) for end in self.kappa_interval],
        }
        FILE.write(path, document, {**arrays, **first_arrays, **second_arrays, "best_rows": self.in_dimension.rows})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Recovery:
        """Read a recovery written by `save`, and compute its optima, certificates and bracket anew.

        What was observed of pairs (diversity, the interval of kappa) is that of the file, which has no pairs.

        Raises
        ------
        InvalidInputError
            Any other file, a damaged one, or one whose figures are not those of its arrays.
        """
        return FILE.read(path, _rebuild)


def recover(
    *,
    latent_dim: int = 3,
    kappa: float | None = None,
    temperature: float = 0.1,
    fixed: int = 0,
    convention: str = "theory",
    rho: float = 1.0,
    conditional: Conditional | None = None,
    pairs: Pairs | None = None,
    dim: int | None = None,
    slices: int | None = None,
    per_slice: int = 10,
    resolution: float = RESOLUTION,
    tolerance: float = 1e-9,
) -> Recovery:
    r"""Sampling diversity, and the optimum of InfoNCE and of its support-corrected form against the true latents.

    Parameters
    ----------
    latent_dim : int
        d >= 2: latents are uniform on S^(d-1).
    kappa : float, optional
        Concentration of the positives; 1/temperature by default, which makes the true latents optimal where positives
        vary fully.
    temperature : float
        tau > 0 of the loss.
    fixed : int
        Number of latent coordinates that positives share with their anchor.
    convention : {"theory", "reported"}
        Whether kappa is in units of the latents or of their normalised free part.
    rho : float
        Share of the negatives that the corrected loss draws from the anchor's own support.
    conditional : Conditional, optional
        The law of positives, instead of latent_dim, kappa, fixed and convention.
    pairs : Pairs, optional
        Observed pairs, instead of latent_dim, kappa and fixed: fixed directions are tested for, and kappa is fitted,
        with an interval.
    dim : int, optional
        Dimension of the maps that are searched; that of the latents by default.
    slices, per_slice : int
        R slices of m points stand for the continuum; 40 (20 for caps) of 10 by default.
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
        An optimum found is not proved to the tolerance; the Recovery is carried by the error.

    References
    ----------
    Zaliaduonis, Putzky, Richter, Gatidis 2026, arXiv 2606.04280.
    """
    tau = _checks.real("temperature", temperature, above=0.0, hint="usual values are 0.05 to 1")
    low, high = TEMPERATURES
    if not low <= tau <= high:
        raise InvalidInputError(
            f"`temperature` must be from {low:g} to {high:g}; got {temperature!r} (usual values are 0.05 to 1)"
        )
    asymptotic.check_rho(rho)
    _checks.choice("convention", convention, choices.Convention)
    if conditional is not None and pairs is not None:
        raise InvalidInputError("`conditional` must be left out with pairs; got both (the law is fitted to the pairs)")
    interval = None
    if pairs is not None:
        variation = diversity(pairs, resolution)
        fitted = fit(pairs, variation, convention=convention)
        law, interval = fitted.conditional, fitted.interval
    else:
        law = conditional or law_of(latent_dim, 1 / tau if kappa is None else kappa, fixed, convention=convention)
        # Before anything is computed from it: densities of such laws overflow.
        concentration = getattr(law, "kappa", 0.0)
        if concentration > LARGEST_KAPPA:
            raise InvalidInputError(
                f"`kappa` must be at most {LARGEST_KAPPA:g}; got {concentration!r} (positives would be their anchors)"
            )
        variation = diversity(law)
    if slices is None:
        slices = SLICES if law.full_support or on_slices(law) else SLICES_WITHOUT_SYMMETRY
    points = point_set(law, slices, per_slice)
    failures: list[NotCertifiedError] = []
    optimum = _optimum(points, tau, 0.0, tolerance, failures)
    # Where every negative lies in the anchor's support there is nothing to correct.
    same = law.full_support or rho == 0
    corrected = replace(optimum, rho=rho) if same else _optimum(points, tau, rho, tolerance, failures)
    bracket = best_in_dimension(optimum, law.dimension if dim is None else dim)
    recovery = _recovery(optimum, corrected, bracket, rho, variation, interval)
    if failures:
        raise NotCertifiedError(str(failures[0]), recovery) from failures[0]
    return recovery


def _recovery(
    optimum: SamplingOptimum,
    corrected: SamplingOptimum,
    bracket: Bracket,
    rho: float,
    variation: Diversity,
    interval: tuple[float, float] | None,
) -> Recovery:
    law, tau = optimum.point_set.conditional, optimum.temperature
    return Recovery(
        conditional=law,
        temperature=tau,
        rho=rho,
        diversity=variation,
        optimum=optimum,
        in_dimension=bracket,
        corrected=corrected,
        asymptotic_identity=asymptotic.orthogonal_loss(law, tau),
        asymptotic_infimum=asymptotic.infimum(law, tau),
        certificate=corrected.certificate if optimum.certified and not corrected.certified else optimum.certificate,
        solver=optimum.solver,
        bracket=(bracket.lower, bracket.best),
        kappa_interval=interval,
    )


def _optimum(
    points: PointSet, tau: float, rho: float, tolerance: float, failures: list[NotCertifiedError]
) -> SamplingOptimum:
    """The optimum, also where it is not proved: the error is kept until all that it carries is computed."""
    try:
        return global_optimum(points, tau, rho, tolerance)
    except NotCertifiedError as error:
        failures.append(error)
        result: SamplingOptimum = error.result
        return result


def _rebuild(document: dict[str, Any], arrays: dict[str, Any]) -> Recovery:
    """The recovery in a file, with figures that were computed anew."""
    points = PointSet.from_parts(document, arrays)
    optimum = SamplingOptimum.from_parts(points, "optimum", document, arrays)
    rho, law = asymptotic.check_rho(document["rho"]), points.conditional
    same = law.full_support or rho == 0
    corrected = replace(optimum, rho=rho) if same else SamplingOptimum.from_parts(points, "corrected", document, arrays)
    interval, observed = document["kappa_interval"], document["observed"]
    variation = diversity(law) if observed is None else Diversity.observed(observed, document["effective_dimension"])
    return _recovery(
        optimum,
        corrected,
        bracket_of(optimum, arrays["best_rows"].astype(np.float64), **document["in_dimension"]),
        rho,
        variation,
        None if interval is None else (float(interval[0]), float(interval[1])),
    )
