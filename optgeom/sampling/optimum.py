r"""The global optimum over all maps of the latents into any dimension, certified, and whether orthogonal maps attain
it.

On points the loss of a map is a convex function of its Gram matrix, so the optimum over all maps is a convex program:

* the entropic bound H, where the matrix that attains it is positive semidefinite (no solver);
* slices of points in cyclic order, as circles are: Newton's method on what their symmetry leaves (`rings`);
* full support, the anchor left out: weighted InfoNCE with W = p(z_j | z_i) (`realization`);
* anything else: a low-rank staircase.

Uniqueness. The anchor's own term is constant, so a log-sum-exp that includes it with other terms of positive mass is
strictly convex in their cosines: the optimum is unique whenever all masses are positive. At rho = 1 only the cosines of
pairs in each other's support are unique, and the others are any positive semidefinite completion of them. Components of
the support do not see each other, and for two components or more there are several completions (turn one against the
other). Within one component there is only one if points can be placed one after the other: first some that all see each
other, then always one that sees points that span the space (`completion`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

from optgeom import _checks
from optgeom._numerics import Array, read_only
from optgeom.certificates import Certified, certify
from optgeom.errors import InvalidInputError, NotCertifiedError
from optgeom.programs.gram_program import GramProgram
from optgeom.programs.sampling import SamplingProgram
from optgeom.programs.weighted import WeightedProgram
from optgeom.realization.api import realize
from optgeom.realization.weights import Weights
from optgeom.sampling.asymptotic import check_rho
from optgeom.sampling.completion import is_determined
from optgeom.sampling.conditionals import VonMisesFisher
from optgeom.sampling.points import PointSet
from optgeom.sampling.rings import solve_rings
from optgeom.solvers.low_rank import solve_low_rank

CLOSED = 1e-12  # times n: eigenvalues of a matrix in closed form that rounding makes negative
EXTRA, GROWTH, TIGHT = 16, 6, (1e-7, 1e-9, 1e-13)  # of the staircase, as for weighted programs
MOST = 1000  # points of a program without symmetry
MOST_SLICES = (
    160  # of one with symmetry: a cosine for each two radii, and time goes with the sixth power of their number
)
POINT = 1e-9  # interval of constants that is a point up to rounding
SAME_LOSS = 1e-9  # relative to 1 + |loss|: the identity attains the optimum


@dataclass(frozen=True, eq=False)
class SamplingOptimum:
    """Optimum over all maps, and the loss of the true latents.

    Attributes
    ----------
    held : PointSet
    temperature, rho : float
    loss_identity : float
        Loss of h(z) = z, and of all orthogonal maps.
    loss : float
        Least loss of any map into any dimension.
    lower_bound : float
        No map has a loss below this: the certificate of `loss`.
    entropic_bound : float
        A lower bound that may not be attained.
    certified : bool
    unique : bool
        Whether all optimal maps are known to have the same Gram matrix on the points, this one.
    cosines : (n, n)
    rank : int
        Dimension that this optimum needs.
    solver : str
    """

    held: PointSet
    temperature: float
    rho: float
    loss_identity: float
    loss: float
    lower_bound: float
    entropic_bound: float
    certified: bool
    unique: bool
    cosines: Array
    rank: int
    solver: str

    @property
    def gap(self) -> float:
        """How much the identity loses to the optimum over any dimension."""
        return max(0.0, self.loss_identity - self.loss)

    @property
    def identity_is_optimal(self) -> bool:
        """Whether orthogonal maps attain the optimum, to rounding."""
        return self.loss_identity - self.lower_bound <= SAME_LOSS * (1 + abs(self.loss))

    @property
    def orthogonal_maps(self) -> str:
        """One of "optimal" (alone), "optimal but not unique", "optimal, perhaps not alone" and "beaten"."""
        if not self.identity_is_optimal:
            return "beaten"
        if self.unique:
            return "optimal"
        several = self.held.num_components > 1 or not self.held.self_included
        return "optimal but not unique" if several else "optimal, perhaps not alone"

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        names = (
            "rho",
            "loss_identity",
            "loss",
            "lower_bound",
            "entropic_bound",
            "certified",
            "unique",
            "rank",
            "solver",
        )
        return {
            **{name: getattr(self, name) for name in names},
            "orthogonal_maps": self.orthogonal_maps,
            "gap": self.gap,
        }


def gram_program(held: PointSet, temperature: float, rho: float = 0.0) -> GramProgram:
    """The convex program of these points.

    With masses where the anchor is included, the weighted one where it is left out.
    """
    if held.self_included:
        return held.program(temperature, rho)
    # Every point apart: weights would put points of the same law into one group.
    ones = np.ones(held.n, dtype=np.int64)
    return WeightedProgram(ones, 1.0 - np.eye(held.n), held.rows, ones > 0, temperature)


def global_optimum(held: PointSet, temperature: float, rho: float = 0.0, tolerance: float = 1e-9) -> SamplingOptimum:
    """Least loss over all maps into any dimension.

    Parameters
    ----------
    held : PointSet
    temperature : float
        tau > 0.
    rho : float
        Share of negatives from the anchor's own support; 0 is InfoNCE.
    tolerance : float
        Gap of the certificate, relative to 1 + |loss|.

    Raises
    ------
    NotCertifiedError
        The optimum found is not proved to the tolerance; it is carried by the error.
    """
    tau = _checks.real("temperature", temperature, above=0.0, hint="usual values are 0.05 to 1")
    check_rho(rho)
    if not held.self_included:
        return _anchor_left_out(held, tau, rho, tolerance)
    program = held.program(tau, rho)
    identity = program.risk(held.points @ held.points.T)
    found, solver = _solve(held, program, tau, rho, tolerance)
    certificate = found.certificate
    seen = program.masses > 0
    unique = bool(seen.all()) or (held.num_components == 1 and is_determined(found.cosines, seen))
    result = SamplingOptimum(
        held, tau, rho, identity, found.risk, certificate.lower_bound, program.bound, certificate.certified, unique,
        read_only(found.cosines), certificate.rank, solver,
    )  # fmt: skip
    if not certificate.certified:
        proved = f"its gap is {certificate.gap:.1e} (limit {tolerance * (1 + abs(found.risk)):.1e})"
        raise NotCertifiedError(f"the optimum found ({solver}) is not certified: {proved}; take fewer points", result)
    return result


def bound_cosines(program: SamplingProgram) -> Array | None:
    """Matrix that attains the entropic bound, 0 between components that do not see each other; None where there is
    none.

    A_ij/tau = log(w_ij/m_ij) + c_i, and A_ii = 1 gives c_i.
    """
    seen = program.masses > 0
    if (seen & (program.rows == 0)).any():
        return None
    ratio = np.where(seen, program.rows, 1.0) / np.where(seen, program.masses, 1.0)
    logs = program.temperature * np.log(ratio)
    target = np.where(seen, 1.0 + logs - logs.diagonal()[:, None], 0.0)
    rounding = CLOSED * program.num_samples
    if (
        np.abs(target - target.T).max() > rounding
        or scipy.linalg.eigvalsh(target, subset_by_index=[0, 0])[0] < -rounding
    ):
        return None
    return np.asarray((target + target.T) / 2)


def _solve(held: PointSet, program: SamplingProgram, tau: float, rho: float, tolerance: float) -> tuple[Certified, str]:
    def judge(cosines: Array) -> Certified:
        return certify(program, cosines, tolerance=tolerance)

    start = _unit(held.points @ held.points.T)
    at_bound = program.risk(start) - program.bound <= CLOSED * program.num_samples
    closed = start if at_bound else bound_cosines(program)
    if closed is not None:
        return judge(closed), "closed form"
    if held.circulant and held.slices > MOST_SLICES:
        raise InvalidInputError(
            f"`slices` must be at most {MOST_SLICES}; got {held.slices} (take more points on each instead)"
        )
    if held.circulant:
        return judge(solve_rings(held, tau, rho)[0]), "Newton's method on rings"
    if held.n > MOST:
        raise InvalidInputError(
            f"`slices` times `per_slice` must be at most {MOST} without cyclic slices; got {held.n} (take fewer)"
        )
    return solve_low_rank(
        program, start, judge, None, 1e-3 * tolerance, extra=EXTRA, growth=GROWTH, tight=TIGHT
    ).certified, "low-rank staircase"


def _weights(held: PointSet) -> Weights:
    law = held.conditional
    if isinstance(law, VonMisesFisher) and law.kappa > 0:
        return Weights.x_clr(
            held.points, 1 / law.kappa
        )  # the same weights, by their logarithms: none of them underflows
    logs = held.conditional.log_density(held.points[:, None, :], held.points[None, :, :])
    np.fill_diagonal(logs, -np.inf)
    weights = np.exp(logs - logs.max())
    # The density is symmetric to the last digit, its rows are not; but at a large concentration whole rows of it
    # vanish.
    return Weights.from_matrix(weights if (weights.sum(axis=1) > 0).all() else held.rows)


def _anchor_left_out(held: PointSet, tau: float, rho: float, tolerance: float) -> SamplingOptimum:
    if not held.conditional.full_support and rho > 0:
        raise InvalidInputError(
            "`self_included` must be true for rho > 0 without full support; got False (include the anchor)"
        )
    weights = _weights(held)
    identity = gram_program(held, tau).risk(_unit(held.points @ held.points.T))

    def result(found: Any) -> SamplingOptimum:
        rows = found.embedding()
        cosines = read_only(_unit(rows @ rows.T))
        # What is unique in its own dimension need not be over all dimensions: every constant of an interval gives an
        # optimum.
        interval = found.verdict.shift_interval if found.verdict.attained else None
        unique = found.unique and (interval is None or interval[1] - interval[0] <= POINT)
        return SamplingOptimum(
            held, tau, rho, identity, found.optimal_loss, found.lower_bound, found.entropic_bound, found.certified, unique, cosines,
            rows.shape[1], found.solver,
        )  # fmt: skip

    try:
        return result(realize(weights, "cosine", temperature=tau, tolerance=tolerance))
    except NotCertifiedError as error:
        raise NotCertifiedError(str(error), result(error.geometry)) from error


def _unit(gram: Array) -> Array:
    np.fill_diagonal(gram, 1.0)
    return gram
