r"""realize: whether an embedding attains the entropic bound of weighted InfoNCE, and what the optimum is otherwise.

Everything that a `Realization` says is computed from the weights and, where no closed form holds, one array: a Gram
matrix, or points in too few dimensions. So it is said anew, by the same function, of the array in a file.
"""

from __future__ import annotations

import functools
import os
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from optgeom import _checks, choices, prototypes
from optgeom._numerics import Array, freeze
from optgeom.certificates import Certificate, certify, decide
from optgeom.errors import InvalidInputError, NotCertifiedError
from optgeom.formatting import to_json
from optgeom.io import FileKind, FileMismatchError, check_certificate, check_figure, plain_certificate
from optgeom.realization import bracket, entropy, euclidean, optimum, spherical
from optgeom.realization.cailliez import CailliezGeometry, cailliez_geometry
from optgeom.realization.verdict import Verdict, embed, is_unique, judge
from optgeom.realization.weights import Weights
from optgeom.result import Result, SolverRun

SYMMETRIC = "best symmetric similarity"
FILE = FileKind("optgeom-realization", "a realization", "its embedding alone: numpy.save")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Realization(Result):
    """What weighted InfoNCE asks for, and what can be had.

    Attributes
    ----------
    weights : Weights
    similarity : {"cosine", "euclidean"}
    temperature : float
    dim : int or None
        Embedding dimension that was asked for.
    verdict : Verdict
        Whether the bound is attained, in which dimension, uniquely or not, why, and what would change it.
    entropic_bound : float
        H: no embedding has a lower loss.
    optimal_loss : float
        The least loss (for the limit of a hard scheme in Euclidean space, its infimum); in too low a dimension the best
        found.
    gap_to_bound : float
        optimal_loss - entropic_bound, the mean relative entropy of the rows.
    certificate : Certificate
        Of `optimal_loss`; `unique` says whether the geometry is proved to be the only one, up to rotation and
        reflection (and, in Euclidean space, translation).
    rank : int or None
        Dimension of the geometry given here; None for a limit.
    solver : SolverRun
    bracket : (float, float) or None
        In a dimension below what the optimum needs: [lower bound, best found].
    group_cosines : (G, G) or None
        Gram matrix in group form, where the bound is out of reach on the sphere.
    points : (n, dim) or None
        With a bracket: the best embedding found.
    relaxed_cosines : (G, G) or None
        With a bracket on the sphere: the optimum without the limit, whose certificate is the lower end.
    cailliez : CailliezGeometry or None
        With `constant="cailliez"`, the geometry of that constant, with its own loss, to compare. Nothing else here is
        about it.
    """

    weights: Weights
    similarity: str
    temperature: float
    dim: int | None
    verdict: Verdict
    entropic_bound: float
    optimal_loss: float
    gap_to_bound: float
    certificate: Certificate
    rank: int | None
    solver: SolverRun
    bracket: tuple[float, float] | None = None
    group_cosines: Array | None = None
    points: Array | None = None
    relaxed_cosines: Array | None = None
    cailliez: CailliezGeometry | None = None
    _attained: tuple[Weights, Verdict] | None = None  # what the embedding in closed form is of

    def __post_init__(self) -> None:
        freeze(self)

    def __repr__(self) -> str:
        state = "certified" if self.certified else "not certified"
        return (
            f"Realization(n={self.n}, similarity={self.similarity!r}, temperature={self.temperature:g}, "
            f"regime={self.regime!r}, optimal_loss={self.optimal_loss:.12g}, "
            f"gap_to_bound={self.gap_to_bound:.3g}, {state})"
        )

    @property
    def n(self) -> int:
        """Number of samples."""
        return self.weights.n

    @property
    def regime(self) -> str:
        """One of "realizable", "degenerate" or "inconsistent"."""
        return self.verdict.regime

    @property
    def lower_bound(self) -> float:
        """No embedding has a loss below this."""
        return self.certificate.lower_bound

    @property
    def unique(self) -> bool:
        """Whether this geometry is proved to be the only one; see `certificate`."""
        return self.certificate.unique

    def embedding(self, dim: int | None = None) -> Array:
        """(n, dim) rows of the geometry: unit vectors (cosine) or points (Euclidean).

        `dim` is the dimension that was asked for, or the rank, by default; zeros fill columns beyond the rank.

        Raises
        ------
        InvalidInputError
            `dim` below the rank; or the limit of a hard scheme, which no embedding attains.
        """
        columns = self.dim if dim is None else dim
        if self.group_cosines is not None:
            return prototypes.factor(self.group_cosines, self.weights.sizes, self.weights.index, columns)
        if self.points is None:
            weights, verdict = self._attained or (self.weights, self.verdict)
            return embed(weights, verdict, columns)
        width = self.points.shape[1]
        columns = _checks.integer("dim", columns or width, at_least=width, hint="the dimension of the geometry")
        return np.pad(self.points, ((0, 0), (0, columns - width)))

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "n": self.n,
            "scheme": self.weights.scheme,
            "similarity": self.similarity,
            "temperature": self.temperature,
            "dim": self.dim,
            "entropic_bound": self.entropic_bound,
            "optimal_loss": self.optimal_loss,
            "gap_to_bound": self.gap_to_bound,
            "regime": self.regime,
            "attained": self.verdict.attained,
            "unique": self.unique,
            "reason": self.verdict.reason,
            "remedy": self.verdict.remedy,
            "shift_interval": to_json(self.verdict.shift_interval),
            "min_dimension": self.verdict.min_dimension,
            "rank": self.rank,
            "bracket": to_json(self.bracket),
            "certificate": self.certificate.as_dict(),
            "cailliez": None if self.cailliez is None else self.cailliez.as_dict(),
            "solver": self.solver.as_dict(),
            "notes": list(self.weights.notes),
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to `.npz` or `.json` (versioned, nothing pickled); `Realization.load` reads it back."""
        document, arrays = self.weights.to_parts()
        document |= {
            "similarity": self.similarity,
            "temperature": self.temperature,
            "dim": self.dim,
            "remedy": self.verdict.remedy,
            "regime": self.regime,
            "entropic_bound": self.entropic_bound,
            "optimal_loss": self.optimal_loss,
            "rank": self.rank,
            "bracket": self.bracket,
            "certificate": plain_certificate(self.certificate),
            "solver": self.solver.as_dict(),
            "cailliez": self.cailliez is not None,
        }
        for name in ("group_cosines", "points", "relaxed_cosines"):
            array = getattr(self, name)
            if array is not None:
                arrays[name] = array
        FILE.write(path, document, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Realization:
        """Read a realization written by `save`, and compute its verdict and certificate anew.

        Raises
        ------
        InvalidInputError
            Any other file, a damaged one, or one whose figures are not those of its arrays.
        """
        return FILE.read(path, _rebuild)


def realize(
    weights: Weights | npt.ArrayLike,
    similarity: str = "cosine",
    *,
    temperature: float = 0.1,
    dim: int | None = None,
    tolerance: float = 1e-9,
    search: bool = False,
    constant: str = "lingoes",
) -> Realization:
    r"""Distance geometry of weighted InfoNCE.

        L(S) = -(1/n) sum_i sum_{j != i} w~_ij log( exp s_ij / sum_{k != i} exp s_ik ) >= H = -(1/n) sum_ij w~_ij log
        w~_ij,

    with equality iff s_ij = log w_ij + c_i. The latent similarity is s = cos/tau on the sphere, or -|z_i - z_j|^2/tau.
    Positive weights that are not symmetric, whose bound no symmetric s attains, have the optimum of the best symmetric
    s in Euclidean space (`entropy.fit_symmetric`).

    Parameters
    ----------
    weights : Weights or (n, n) array
    similarity : {"cosine", "euclidean"}
    temperature : float
        tau > 0.
    dim : int, optional
        Embedding dimension q; any by default.
    tolerance : float
        Gap of the certificate, relative to 1 + |loss|.
    search : bool
        Look for the largest temperature at which inconsistent cosine targets become realizable (some ten times the
        work).
    constant : {"lingoes", "cailliez"}
        Euclidean similarity: the geometry of the bound adds Lingoes' constant to squared distances, which the loss does
        not see. "cailliez" adds, to compare, the geometry with a constant added to distances: it misses the bound, and
        `cailliez` says by how much.

    Returns
    -------
    Realization

    Raises
    ------
    InvalidInputError
        Weights or parameters outside their domain.
    NotCertifiedError
        The best geometry found is not proved optimal to the tolerance; it is carried by the error.

    References
    ----------
    Vock, Duchesnay, Dufumier 2026, arXiv 2605.13943.
    """
    began = time.perf_counter()
    _checks.real("tolerance", tolerance, above=0.0, hint="the default is 1e-9")
    _checks.choice("constant", constant, choices.AdditiveConstant)
    if constant == "cailliez" and similarity == "cosine":
        raise InvalidInputError(
            "`constant` must be lingoes with cosine similarity; got 'cailliez' (it is about Euclidean distances)"
        )
    checked = weights if isinstance(weights, Weights) else Weights.from_matrix(weights)
    question = _Question(
        weights=checked,
        temperature=temperature,
        tolerance=tolerance,
        verdict=judge(checked, similarity, temperature, dim=dim, search=search),
    )
    name, iterations, arrays = _search(question)
    parts = _evaluate(question, **arrays)
    result = Realization(**parts, solver=SolverRun(name, iterations, time.perf_counter() - began))
    if result.bracket is None and not result.certified:
        raise NotCertifiedError(
            f"the optimum found by the {name} is not certified: {result.certificate.reason}", result
        )
    return result if constant == "lingoes" else replace(result, cailliez=cailliez_geometry(checked, temperature))


@dataclass(frozen=True, kw_only=True)
class _Question:
    """What was asked, and what follows from the weights alone."""

    weights: Weights
    temperature: float
    tolerance: float
    verdict: Verdict

    @functools.cached_property
    def bound(self) -> float:
        """The entropic bound."""
        return entropy.entropic_bound(self.weights)

    @property
    def is_limit(self) -> bool:
        """Whether the bound is the infimum of a hard scheme in Euclidean space, which no embedding attains."""
        verdict = self.verdict
        enough = verdict.dim is None or verdict.min_dimension is None or verdict.dim >= verdict.min_dimension
        return verdict.similarity == "euclidean" and verdict.regime == "degenerate" and not verdict.attained and enough

    @functools.cached_property
    def symmetric(self) -> tuple[entropy.SymmetricFit, Verdict] | None:
        """Best symmetric similarity of asymmetric weights in Euclidean space, and the verdict on it."""
        if self.verdict.similarity != "euclidean" or self.weights.symmetric or self.weights.hard:
            return None
        fit = entropy.fit_symmetric(self.weights)
        return fit, judge(fit.weights, "euclidean", self.temperature, dim=self.verdict.dim)


def _search(question: _Question) -> tuple[str, int, dict[str, Array]]:
    """Solver, iterations, and the array that no closed form gives."""
    weights, temperature, verdict = question.weights, question.temperature, question.verdict
    if verdict.attained:
        return "closed form", 0, {}
    if verdict.similarity == "euclidean":
        if question.is_limit:
            return "limit", 0, {}
        if question.symmetric is not None and question.symmetric[1].attained:
            return SYMMETRIC, 0, {}
        near = None if question.symmetric is None else question.symmetric[0].weights
        dim = verdict.dim or max(1, weights.n - 1)
        points, steps = bracket.best_in_space(weights, temperature, dim, near=near)
        return "L-BFGS, dimension limited", steps, {"points": points}
    best = optimum.optimal_cosines(weights, temperature, question.tolerance)
    if verdict.dim is not None and verdict.dim < best.certificate.rank:
        points, steps = bracket.best_on_sphere(weights, temperature, verdict.dim, best.cosines)
        return "low-rank, dimension limited", steps, {"points": points, "relaxed_cosines": best.cosines}
    return best.solver, best.iterations, {"group_cosines": best.cosines}


def _evaluate(
    question: _Question,
    *,
    group_cosines: Array | None = None,
    points: Array | None = None,
    relaxed_cosines: Array | None = None,
) -> dict[str, Any]:
    """Everything that a realization says, but for who solved it, from the weights and at most one array."""
    weights, verdict, bound = question.weights, question.verdict, question.bound
    shared = {
        "weights": weights,
        "similarity": verdict.similarity,
        "temperature": question.temperature,
        "dim": verdict.dim,
        "verdict": verdict,
        "entropic_bound": bound,
    }
    if points is not None:
        return {**shared, **_bracketed(question, points, relaxed_cosines)}
    if group_cosines is not None:
        gap = entropy.gap_to_bound(weights, group_cosines / question.temperature)
        certificate = _certified(question, group_cosines)
        geometry = {"group_cosines": group_cosines, "rank": certificate.rank}
        return {**shared, **geometry, "optimal_loss": bound + gap, "gap_to_bound": gap, "certificate": certificate}
    attained, gap, lower = (weights, verdict), 0.0, bound
    if verdict.attained and verdict.shift is not None:
        gap = entropy.gap_to_bound(weights, _target(weights, verdict, verdict.shift))
    elif question.symmetric is not None:
        fit, inner = question.symmetric
        attained, gap, lower = (fit.weights, inner), fit.gap, bound + fit.gap if fit.exact else bound
    ranks = attained[1].ranks if attained[1].attained else None
    rank = None if ranks is None else min(ranks)
    certificate = decide(
        risk=bound + gap,
        gap=gap if lower == bound else max(0.0, bound + gap - lower),
        lower_bound=lower,
        primal_shift=0.0,
        rank=rank or 0,
        tolerance=question.tolerance,
        unique=attained[1].unique,
    )
    geometry = {"rank": rank, "_attained": attained}
    return {**shared, **geometry, "optimal_loss": bound + gap, "gap_to_bound": gap, "certificate": certificate}


def _target(weights: Weights, verdict: Verdict, shift: float) -> Array:
    """(G, G) similarities of the geometry that attains the bound."""
    tau = verdict.temperature
    if verdict.similarity == "cosine":
        return spherical.target_cosines(weights, tau, shift) / tau
    return -euclidean.squared_distances(weights, tau, shift) / tau


def _certified(question: _Question, cosines: Array) -> Certificate:
    """Certificate of a Gram matrix in any dimension."""
    program = optimum.program_of(question.weights, question.temperature)
    certificate = certify(program, cosines, tolerance=question.tolerance).certificate
    unique = certificate.certified and is_unique(question.weights, program, cosines, certificate.gap)
    return replace(certificate, unique=unique, lower_bound=max(question.bound, certificate.lower_bound))


def _bracketed(question: _Question, points: Array, relaxed: Array | None) -> dict[str, Any]:
    """The loss of points in too few dimensions, and the best lower bound."""
    loss = bracket.loss_of(question.weights, question.temperature, question.verdict.similarity, points)
    lower = question.bound
    if relaxed is not None:
        least = bracket.least_on_sphere(question.weights, question.temperature, points.shape[1])
        lower = min(loss, max(_certified(question, relaxed).lower_bound, least))
    elif question.symmetric is not None and question.symmetric[0].exact:
        lower += question.symmetric[0].gap
    certificate = decide(
        risk=loss,
        gap=loss - lower,
        lower_bound=lower,
        primal_shift=0.0,
        rank=points.shape[1],
        tolerance=question.tolerance,
        refusal=f"{points.shape[1]} dimensions are fewer than the optimum needs: the answer is "
        + ("a bracket" if loss > lower else "the lowest there, not that optimum"),
    )
    return {
        "points": points,
        "relaxed_cosines": relaxed,
        "rank": points.shape[1],
        "optimal_loss": loss,
        "gap_to_bound": loss - question.bound,
        "bracket": (lower, loss),
        "certificate": certificate,
    }


def evaluate(
    weights: Weights,
    similarity: str,
    *,
    temperature: float,
    tolerance: float,
    solver: SolverRun,
    dim: int | None = None,
    **arrays: Array,
) -> Realization:
    """The realization whose geometry is given, not searched for.

    Parameters
    ----------
    weights, similarity, temperature, tolerance, dim
        As in `realize`.
    solver : SolverRun
        What found the geometry.
    **arrays
        `group_cosines`, or `points` with `relaxed_cosines`; nothing where a closed form holds.

    Raises
    ------
    ValueError
        Arrays that do not fit the weights, or none where no closed form holds.
    """
    verdict = judge(weights, similarity, temperature, dim=dim)
    _checks.real("tolerance", tolerance, above=0.0, hint="the default is 1e-9")
    question = _Question(weights=weights, temperature=temperature, tolerance=tolerance, verdict=verdict)
    groups = weights.log_weights.shape
    for name, array in arrays.items():
        fits = array.shape == groups if name != "points" else array.ndim == 2 and array.shape[0] == weights.n
        if not fits or not np.isfinite(array).all():
            raise ValueError(f"its {name} are not a matrix of numbers for its weights")
    if not arrays and not (verdict.attained or question.is_limit or question.symmetric is not None):
        raise ValueError("it has no geometry")
    return Realization(**_evaluate(question, **arrays), solver=solver)


def _rebuild(document: dict[str, Any], arrays: dict[str, Any]) -> Realization:
    """The realization in a file, with figures that were computed anew."""
    stored, temperature = document["certificate"], float(document["temperature"])
    names = [name for name in ("group_cosines", "points", "relaxed_cosines") if name in arrays]
    result = evaluate(
        Weights.from_parts(document, arrays),
        document["similarity"],
        temperature=temperature,
        tolerance=stored["tolerance"],
        solver=SolverRun(**document["solver"]),
        dim=document["dim"],
        **{name: arrays[name].astype(np.float64) for name in names},
    )
    for name in ("regime", "rank"):
        if document[name] != getattr(result, name):
            raise FileMismatchError(
                f"its {name} is {document[name]}, but that of its arrays is {getattr(result, name)}"
            )
    scale = result.certificate.scale
    for name in ("entropic_bound", "optimal_loss"):
        check_figure(name.replace("_", " "), document[name], getattr(result, name), scale)
    check_certificate(stored, result.certificate)
    for end, computed in zip(document["bracket"] or (), result.bracket or (), strict=True):
        check_figure("bracket", end, computed, scale)
    # The remedy may be that of a search, which is not repeated.
    verdict = replace(result.verdict, remedy=str(document["remedy"]))
    cailliez = cailliez_geometry(result.weights, temperature) if document["cailliez"] else None
    return replace(result, verdict=verdict, cailliez=cailliez)
