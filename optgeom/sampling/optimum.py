r"""The certified optimum over all maps of the latents into any dimension, and whether orthogonal maps attain it.

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
other, then always one that sees points that span the space (`is_determined`).
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg

from optgeom import _checks
from optgeom._numerics import Array, read_only
from optgeom.certificates import Certificate, Certified, certify
from optgeom.certificates.certificate import RANK_EIGENVALUE
from optgeom.errors import InvalidInputError, NotCertifiedError
from optgeom.io import FileKind, check_certificate, check_figure, plain_certificate
from optgeom.programs.gram_program import GramProgram
from optgeom.programs.sampling import SamplingProgram
from optgeom.programs.weighted import WeightedProgram
from optgeom.realization.api import Realization, evaluate, realize
from optgeom.realization.weights import Weights
from optgeom.result import Result, SolverRun
from optgeom.sampling.asymptotic import check_rho
from optgeom.sampling.conditionals import VonMisesFisher
from optgeom.sampling.points import PointSet
from optgeom.sampling.rings import solve_rings
from optgeom.solvers.drive import drive

CLOSED = 1e-12  # times n: eigenvalues of a matrix in closed form that rounding makes negative
MOST = 1000  # points of a program without symmetry
# Slices of one with symmetry: a cosine for each two radii, and time goes with the sixth power of their number.
MOST_SLICES = 160
POINT = 1e-9  # interval of constants that is a point up to rounding
FILE = FileKind("optgeom-sampling-optimum", "an optimum of points", "its matrix alone: numpy.save")
SPANS = 1e-3  # smallest singular value, relative to the largest, of vectors that span the space
SAME_LOSS = 1e-9  # relative to 1 + |loss|: the identity attains the optimum


@dataclass(frozen=True, eq=False, kw_only=True)
class SamplingOptimum(Result):
    """Optimum over all maps, and the loss of the true latents.

    Attributes
    ----------
    point_set : PointSet
    temperature, rho : float
    loss_identity : float
        Loss of h(z) = z, and of all orthogonal maps.
    loss : float
        Least loss of any map into any dimension.
    entropic_bound : float
        A lower bound that may not be attained.
    cosines : (n, n)
        Gram matrix of the points at the optimum.
    certificate : Certificate
        Of `loss`. It is unique where all optimal maps are known to have this Gram matrix on the points.
    solver : SolverRun
    realization : Realization or None
        Where the anchor is left out: the optimum as one of weights.
    """

    point_set: PointSet
    temperature: float
    rho: float
    loss_identity: float
    loss: float
    entropic_bound: float
    cosines: Array
    certificate: Certificate
    solver: SolverRun
    realization: Realization | None = None
    bracket: None = None

    @property
    def lower_bound(self) -> float:
        """No map has a loss below this."""
        return self.certificate.lower_bound

    @property
    def unique(self) -> bool:
        """Whether all optimal maps are known to have the same Gram matrix on the points, this one."""
        return self.certificate.unique

    @property
    def rank(self) -> int:
        """Dimension that this optimum needs."""
        return self.certificate.rank

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
        several = self.point_set.num_components > 1 or not self.point_set.self_included
        return "optimal but not unique" if several else "optimal, perhaps not alone"

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "rho": self.rho,
            "loss_identity": self.loss_identity,
            "loss": self.loss,
            "lower_bound": self.lower_bound,
            "entropic_bound": self.entropic_bound,
            "certified": self.certified,
            "unique": self.unique,
            "rank": self.rank,
            "solver": self.solver.name,
            "orthogonal_maps": self.orthogonal_maps,
            "gap": self.gap,
            "certificate": self.certificate.as_dict(),
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to `.npz` or `.json` (versioned, nothing pickled); `SamplingOptimum.load` reads it back."""
        document, arrays = self.point_set.to_parts()
        own, own_arrays = self.to_parts("optimum")
        FILE.write(path, {**document, **own}, {**arrays, **own_arrays})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SamplingOptimum:
        """Read an optimum written by `save`, and compute its certificate anew."""
        return FILE.read(
            path,
            lambda document, arrays: cls.from_parts(PointSet.from_parts(document, arrays), "optimum", document, arrays),
        )

    def to_parts(self, name: str) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Plain values and arrays for a file, under this name; the points are beside them."""
        document = {
            "temperature": self.temperature,
            "rho": self.rho,
            "loss_identity": self.loss_identity,
            "loss": self.loss,
            "certificate": plain_certificate(self.certificate),
            "solver": self.solver.as_dict(),
        }
        if self.realization is None:
            return {name: document}, {f"{name}_cosines": self.cosines}
        cosines = self.realization.group_cosines
        return {name: document}, {} if cosines is None else {f"{name}_group_cosines": cosines}

    @staticmethod
    def from_parts(point_set: PointSet, name: str, document: dict[str, Any], arrays: dict[str, Any]) -> SamplingOptimum:
        """Optimum in a file, with a loss and a certificate that were computed anew."""
        stored, solver = document[name], SolverRun(**document[name]["solver"])
        tau, rho, tolerance = (
            float(stored["temperature"]),
            float(stored["rho"]),
            float(stored["certificate"]["tolerance"]),
        )
        if point_set.self_included:
            cosines = arrays[f"{name}_cosines"].astype(np.float64)
            if cosines.shape != (point_set.n, point_set.n) or not np.isfinite(cosines).all():
                raise ValueError("its cosines are not a matrix of numbers for its points")
            judged = certify(point_set.program(tau, rho), cosines, tolerance=tolerance)
            result = _result(point_set, tau, rho, judged, solver)
        else:
            given = {
                key: arrays[f"{name}_{key}"].astype(np.float64)
                for key in ("group_cosines",)
                if f"{name}_{key}" in arrays
            }
            weights = _weights(point_set)
            realization = evaluate(weights, "cosine", temperature=tau, tolerance=tolerance, solver=solver, **given)
            result = _of_realization(point_set, rho, realization)
        scale = result.certificate.scale
        check_figure("loss", stored["loss"], result.loss, scale)
        check_figure("loss of the identity", stored["loss_identity"], result.loss_identity, scale)
        check_certificate(stored["certificate"], result.certificate)
        return result


def gram_program(point_set: PointSet, temperature: float, rho: float = 0.0) -> GramProgram:
    """The convex program of these points.

    It is the one with masses where the anchor is included, and the weighted one where it is left out.
    """
    if point_set.self_included:
        return point_set.program(temperature, rho)
    # Every point apart: weights would put points of the same law into one group.
    ones = np.ones(point_set.n, dtype=np.int64)
    return WeightedProgram(ones, 1.0 - np.eye(point_set.n), point_set.rows, ones > 0, temperature)


def global_optimum(
    point_set: PointSet, temperature: float, rho: float = 0.0, tolerance: float = 1e-9
) -> SamplingOptimum:
    """Least loss over all maps into any dimension.

    Parameters
    ----------
    point_set : PointSet
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
    if not point_set.self_included:
        return _anchor_left_out(point_set, tau, rho, tolerance)
    began = time.perf_counter()
    judged, name, iterations = _solve(point_set, point_set.program(tau, rho), tau, rho, tolerance)
    result = _result(point_set, tau, rho, judged, SolverRun(name, iterations, time.perf_counter() - began))
    if not result.certified:
        reason = f"{result.certificate.reason}; take fewer points"
        raise NotCertifiedError(f"the optimum found ({name}) is not certified: {reason}", result)
    return result


def _result(point_set: PointSet, tau: float, rho: float, judged: Certified, solver: SolverRun) -> SamplingOptimum:
    """Everything that follows from a certified matrix, the anchor included."""
    program = point_set.program(tau, rho)
    seen = program.masses > 0
    unique = bool(seen.all()) or (point_set.num_components == 1 and is_determined(judged.cosines, seen))
    return SamplingOptimum(
        point_set=point_set,
        temperature=tau,
        rho=rho,
        loss_identity=program.risk(point_set.points @ point_set.points.T),
        loss=judged.risk,
        entropic_bound=program.bound,
        cosines=read_only(judged.cosines),
        certificate=replace(judged.certificate, unique=unique and judged.certificate.certified),
        solver=solver,
    )


def bound_cosines(program: SamplingProgram) -> Array | None:
    """Matrix that attains the entropic bound; None where there is none.

    It is 0 between components that do not see each other.
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


def _solve(
    point_set: PointSet, program: SamplingProgram, tau: float, rho: float, tolerance: float
) -> tuple[Certified, str, int]:
    def judge(cosines: Array) -> Certified:
        return certify(program, cosines, tolerance=tolerance)

    start = _unit(point_set.points @ point_set.points.T)
    at_bound = program.risk(start) - program.bound <= CLOSED * program.num_samples
    closed = start if at_bound else bound_cosines(program)
    if closed is not None:
        return judge(closed), "closed form", 0
    if point_set.circulant and point_set.slices > MOST_SLICES:
        raise InvalidInputError(
            f"`slices` must be at most {MOST_SLICES}; got {point_set.slices} (take more points on each instead)"
        )
    if point_set.circulant:
        cosines, steps = solve_rings(point_set, tau, rho)
        return judge(cosines), "Newton's method on rings", steps
    if point_set.n > MOST:
        raise InvalidInputError(
            f"`slices` times `per_slice` must be at most {MOST} without cyclic slices; got {point_set.n} (take fewer)"
        )
    attempt = drive(program, start, judge, tolerance=tolerance)
    return attempt.certified, attempt.solver, attempt.iterations


def _weights(point_set: PointSet) -> Weights:
    law = point_set.conditional
    if isinstance(law, VonMisesFisher) and law.kappa > 0:
        return Weights.x_clr(
            point_set.points, 1 / law.kappa
        )  # the same weights, by their logarithms: none of them underflows
    logs = point_set.conditional.log_density(point_set.points[:, None, :], point_set.points[None, :, :])
    np.fill_diagonal(logs, -np.inf)
    weights = np.exp(logs - logs.max())
    # The density is symmetric to the last digit, its rows are not; but at a large concentration whole rows of it
    # vanish.
    return Weights.from_matrix(weights if (weights.sum(axis=1) > 0).all() else point_set.rows)


def _anchor_left_out(point_set: PointSet, tau: float, rho: float, tolerance: float) -> SamplingOptimum:
    if not point_set.conditional.full_support and rho > 0:
        raise InvalidInputError(
            "`self_included` must be true for rho > 0 without full support; got False (include the anchor)"
        )
    try:
        return _of_realization(
            point_set, rho, realize(_weights(point_set), "cosine", temperature=tau, tolerance=tolerance)
        )
    except NotCertifiedError as error:
        raise NotCertifiedError(str(error), _of_realization(point_set, rho, error.result)) from error


def _of_realization(point_set: PointSet, rho: float, realization: Realization) -> SamplingOptimum:
    """The optimum with the anchor left out, as one of weights."""
    tau, verdict = realization.temperature, realization.verdict
    rows = realization.embedding()
    # What is unique in its own dimension need not be over all dimensions: every constant of an interval gives an
    # optimum.
    interval = verdict.shift_interval if verdict.attained else None
    unique = realization.unique and (interval is None or interval[1] - interval[0] <= POINT)
    return SamplingOptimum(
        point_set=point_set,
        temperature=tau,
        rho=rho,
        loss_identity=gram_program(point_set, tau).risk(_unit(point_set.points @ point_set.points.T)),
        loss=realization.optimal_loss,
        entropic_bound=realization.entropic_bound,
        cosines=read_only(_unit(rows @ rows.T)),
        certificate=replace(realization.certificate, unique=unique, rank=rows.shape[1]),
        solver=realization.solver,
        realization=realization,
    )


def _unit(gram: Array) -> Array:
    np.fill_diagonal(gram, 1.0)
    return gram


# --- uniqueness


def is_determined(cosines: Array, seen: npt.NDArray[np.bool_]) -> bool:
    """Whether points can be placed one after the other: then no other matrix has these cosines at the pairs seen.

    Points that all see each other have a known Gram matrix. If they span the r dimensions of `cosines`, any further
    point that sees points placed already that span them, too, is where they say: its part in their span is known, and
    of length 1, so that nothing is left for further dimensions. No order found proves nothing.

    Parameters
    ----------
    cosines : (n, n)
        Positive semidefinite, unit diagonal.
    seen : (n, n)
        Symmetric; the diagonal is true.
    """
    values, axes = np.linalg.eigh(cosines)
    kept = values > RANK_EIGENVALUE
    rows = axes[:, kept] * np.sqrt(values[kept])
    placed = _clique(cosines, seen, rows.shape[1])
    if not _span(rows[placed]):
        return False
    done = np.zeros(cosines.shape[0], dtype=np.bool_)
    done[placed] = True
    waiting = np.flatnonzero(~done)
    while waiting.size:
        fits = np.array([_span(rows[seen[point] & done]) for point in waiting])
        if not fits.any():
            return False
        done[waiting[fits]] = True
        waiting = waiting[~fits]
    return True


def _clique(cosines: Array, seen: npt.NDArray[np.bool_], rank: int) -> npt.NDArray[np.intp]:
    """Points that all see each other, from the one that sees most, nearest first."""
    first = int(np.argmax(seen.sum(axis=1)))
    chosen: list[int] = []
    for point in np.argsort(-cosines[first], kind="stable"):
        if len(chosen) < 10 * rank and seen[point, chosen].all():
            chosen.append(int(point))
    return np.array(chosen, dtype=np.intp)


def _span(rows: Array) -> bool:
    if rows.shape[0] < rows.shape[1]:
        return False
    singular = np.linalg.svd(rows, compute_uv=False)
    return bool(singular[-1] > SPANS * singular[0])
