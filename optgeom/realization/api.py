"""realize: does an embedding attain the entropic bound of weighted InfoNCE.

If not, what is the optimum, and how far from the bound?
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from optgeom import _checks, choices, prototypes
from optgeom._numerics import Array
from optgeom.errors import InvalidInputError, NotCertifiedError
from optgeom.formatting import to_json
from optgeom.realization import bracket, entropy, euclidean, optimum, spherical
from optgeom.realization.cailliez import CailliezGeometry, cailliez_geometry
from optgeom.realization.uniqueness import is_unique
from optgeom.realization.verdict import Verdict, embed, judge
from optgeom.realization.weights import Weights

SYMMETRIC = "best symmetric similarity"


@dataclass(frozen=True, eq=False, repr=False)
class Realization:
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
    lower_bound : float
        No embedding has a loss below this: the certificate of `optimal_loss`.
    certified : bool
        optimal_loss - lower_bound is within the tolerance.
    rank : int or None
        Dimension of the geometry given here.
    unique : bool
        Whether it is proved to be the only one, up to rotation and reflection (and, in Euclidean space, translation).
    bracket : (float, float) or None
        In a dimension below what the optimum needs: [lower bound from the optimum without the limit, best found].
    solver : str
    iterations : int
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
    lower_bound: float
    tolerance: float
    rank: int | None
    unique: bool
    bracket: tuple[float, float] | None
    solver: str
    iterations: int
    group_cosines: Array | None = None
    _points: Array | None = None
    _fitted: tuple[Weights, Verdict] | None = None
    cailliez: CailliezGeometry | None = None

    def __repr__(self) -> str:
        state = "certified" if self.certified else "not certified"
        return (
            f"Realization(n={self.n}, similarity={self.similarity!r}, regime={self.regime!r}, optimal_loss={self.optimal_loss:.12g}, "
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
    def certified(self) -> bool:
        """Whether the loss is within the tolerance of its lower bound."""
        return self.bracket is None and self.optimal_loss - self.lower_bound <= self.tolerance * (
            1 + abs(self.optimal_loss)
        )

    def embedding(self, dim: int | None = None) -> Array:
        """(n, dim) rows of the geometry: unit vectors (cosine) or points (Euclidean); zeros fill columns beyond its
        rank.

        Raises
        ------
        InvalidInputError
            `dim` below the rank; or the limit of a hard scheme, which no embedding attains.
        """
        if self._points is not None:
            found = self._points
        elif self.group_cosines is not None:
            return prototypes.factor(self.group_cosines, self.weights.sizes, self.weights.index, dim)
        else:
            weights, verdict = self._fitted or (self.weights, self.verdict)
            return embed(weights, verdict, dim)
        if dim is None or dim == found.shape[1]:
            return found
        columns = _checks.integer("dim", dim, at_least=found.shape[1], hint="the dimension of the geometry")
        return np.pad(found, ((0, 0), (0, columns - found.shape[1])))

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        interval = self.verdict.shift_interval
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
            "shift_interval": to_json(interval),
            "min_dimension": self.verdict.min_dimension,
            "rank": self.rank,
            "bracket": None if self.bracket is None else list(self.bracket),
            "certificate": {
                "certified": self.certified,
                "gap": max(0.0, self.optimal_loss - self.lower_bound),
                "lower_bound": self.lower_bound,
                "tolerance": self.tolerance,
            },
            "cailliez": None if self.cailliez is None else self.cailliez.as_dict(),
            "solver": {"name": self.solver, "iterations": self.iterations},
            "notes": list(self.weights.notes),
        }


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
    s in Euclidean space (`symmetric_fit`).

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
    _checks.real("tolerance", tolerance, above=0.0, hint="the default is 1e-9")
    _checks.choice("constant", constant, choices.AdditiveConstant)
    held = weights if isinstance(weights, Weights) else Weights.from_matrix(weights)
    if constant == "cailliez":
        if similarity == "cosine":
            raise InvalidInputError(
                "`constant` must be lingoes with cosine similarity; got 'cailliez' (it is about Euclidean distances)"
            )
        compared = realize(held, similarity, temperature=temperature, dim=dim, tolerance=tolerance, search=search)
        return replace(compared, cailliez=cailliez_geometry(held, temperature))
    verdict = judge(held, similarity, temperature, dim=dim, search=search)
    bound = entropy.entropic_bound(held)
    if verdict.attained and verdict.shift is not None:
        if similarity == "cosine":
            target = spherical.target_cosines(held, temperature, verdict.shift) / temperature
        else:
            target = -euclidean.squared_distances(held, temperature, verdict.shift) / temperature
        gap = entropy.gap_to_bound(held, target)
        rank = None if verdict.ranks is None else min(verdict.ranks)
        return _result(
            held,
            similarity,
            temperature,
            dim,
            verdict,
            bound,
            gap,
            bound,
            tolerance,
            rank,
            verdict.unique,
            "closed form",
            0,
        )
    if similarity == "euclidean" and not held.symmetric and not held.hard:
        return _asymmetric(held, temperature, dim, verdict, bound, tolerance)
    if similarity == "euclidean":
        return _euclidean(held, temperature, dim, verdict, bound, tolerance)
    found = optimum.optimal_cosines(held, temperature, tolerance)
    gap = entropy.gap_to_bound(held, found.cosines / temperature)
    lower = max(bound, found.certificate.lower_bound)
    if dim is not None and dim < found.rank:
        points, loss, steps = bracket.best_on_sphere(held, temperature, dim, found.cosines)
        return Realization(
            held, similarity, temperature, dim, verdict, bound, loss, loss - bound, lower, tolerance, dim, False, (lower, loss),
            "low-rank, dimension limited", steps, None, points,
        )  # fmt: skip
    unique = is_unique(held, optimum.program_of(held, temperature), found.cosines, found.certificate.gap)
    result = _result(
        held, similarity, temperature, dim, verdict, bound, gap, lower, tolerance, found.rank, unique, found.solver, found.iterations,
        found.cosines,
    )  # fmt: skip
    return _believed(result)


def _believed(result: Realization) -> Realization:
    """The result, unless it is not certified."""
    if not result.certified:
        limit = result.tolerance * (1 + abs(result.optimal_loss))
        proved = f"its gap is {result.optimal_loss - result.lower_bound:.1e} (limit {limit:.1e})"
        raise NotCertifiedError(f"the optimum found by the {result.solver} is not certified: {proved}", result)
    return result


def _asymmetric(
    held: Weights, temperature: float, dim: int | None, verdict: Verdict, bound: float, tolerance: float
) -> Realization:
    """Euclidean: the geometry of the best symmetric similarity, which is the optimum.

    It bounds the loss in too few dimensions.
    """
    found = entropy.fit_symmetric(held)
    inner = judge(found.weights, "euclidean", temperature, dim=dim)
    lower = bound + found.gap if found.exact else bound
    if inner.attained and inner.shift is not None:
        rank = None if inner.ranks is None else min(inner.ranks)
        result = _result(
            held,
            "euclidean",
            temperature,
            dim,
            verdict,
            bound,
            found.gap,
            lower,
            tolerance,
            rank,
            inner.unique,
            SYMMETRIC,
            0,
        )
        return _believed(replace(result, _fitted=(found.weights, inner)))
    points, loss, steps = bracket.best_in_space(held, temperature, dim or max(1, held.n - 1), near=found.weights)
    return Realization(
        held, "euclidean", temperature, dim, verdict, bound, loss, loss - bound, lower, tolerance, points.shape[1], False, (lower, loss),
        "L-BFGS, dimension limited", steps, None, points,
    )  # fmt: skip


def _euclidean(
    held: Weights, temperature: float, dim: int | None, verdict: Verdict, bound: float, tolerance: float
) -> Realization:
    """Not attained.

    The limit of a hard scheme (the bound is the infimum), or too few dimensions, or perhaps too few for that limit.
    """
    if verdict.regime == "degenerate" and (
        dim is None or verdict.min_dimension is None or dim >= verdict.min_dimension
    ):
        return _result(
            held, "euclidean", temperature, dim, verdict, bound, 0.0, bound, tolerance, None, False, "limit", 0
        )
    points, loss, steps = bracket.best_in_space(held, temperature, dim or max(1, held.n - 1))
    return Realization(
        held, "euclidean", temperature, dim, verdict, bound, loss, loss - bound, bound, tolerance, points.shape[1], False, (bound, loss),
        "L-BFGS, dimension limited", steps, None, points,
    )  # fmt: skip


def _result(
    held: Weights,
    similarity: str,
    temperature: float,
    dim: int | None,
    verdict: Verdict,
    bound: float,
    gap: float,
    lower: float,
    tolerance: float,
    rank: int | None,
    unique: bool,
    solver: str,
    iterations: int,
    cosines: Array | None = None,
) -> Realization:
    loss = bound + gap
    return Realization(
        held,
        similarity,
        temperature,
        dim,
        verdict,
        bound,
        loss,
        gap,
        lower,
        tolerance,
        rank,
        unique,
        None,
        solver,
        iterations,
        cosines,
    )
