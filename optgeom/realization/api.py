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
from optgeom._numerics import Array, freeze, read_only
from optgeom.certificates import Certificate
from optgeom.errors import IncompatibleError, InvalidInputError, NotCertifiedError
from optgeom.formatting import to_json
from optgeom.geometry import pair_angles
from optgeom.io import FileKind, FileMismatchError, check_certificate, check_figure, plain_certificate
from optgeom.realization import optimum, spherical
from optgeom.realization.cailliez import CailliezGeometry, cailliez_geometry
from optgeom.realization.question import Question, figures, search_geometry
from optgeom.realization.verdict import Verdict, embed, judge
from optgeom.realization.weights import Weights
from optgeom.result import GramResult, OptimalGram, Pair, SolverRun

FILE = FileKind("optgeom-realization", "a realization", "its embedding alone: numpy.save")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Realization(GramResult):
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
    def names(self) -> tuple[str, ...]:
        """The numbers of the samples."""
        return tuple(map(str, range(self.n)))

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

    @functools.cached_property
    def optimal_cosines(self) -> Array:
        """(G, G) Gram matrix of the optimum over all dimensions, in the group form of `weights`.

        Raises
        ------
        IncompatibleError
            Euclidean similarity, or a bracket.
        """
        if self.similarity != "cosine":
            raise IncompatibleError(
                "`geometry` must have cosine similarity; got euclidean (its loss determines squared distances only up "
                "to a constant that may be added to all)"
            )
        self._check_optimum()
        if self.group_cosines is not None:
            return self.group_cosines
        shift = self.verdict.shift
        assert shift is not None  # without a Gram matrix the bound is attained
        return read_only(spherical.target_cosines(self.weights, self.temperature, shift))

    def optimal_gram(self) -> OptimalGram:
        """The weighted program that this is the optimum of."""
        cosines = self.optimal_cosines.copy()
        return OptimalGram(program=optimum.program_of(self.weights, self.temperature), cosines=cosines)

    def closest_pairs(self, limit: int = 5) -> tuple[Pair, ...]:
        """The pairs of samples with the smallest angles, closest first: one for every two groups of equal samples."""
        return self._pairs_by_angle(limit, 1.0)

    def farthest_pairs(self, limit: int = 5) -> tuple[Pair, ...]:
        """The pairs of samples with the largest angles, farthest first: one for every two groups of equal samples."""
        return self._pairs_by_angle(limit, -1.0)

    def _pairs_by_angle(self, limit: int, sign: float) -> tuple[Pair, ...]:
        index = self.weights.index
        left, right, angles, _ = pair_angles(self.optimal_cosines, self.weights.sizes)
        pairs = []
        for which in np.argsort(sign * angles, kind="stable")[: max(limit, 1)]:
            g, h = left[which], right[which]
            first = int(np.argmax(index == g))
            second = int(np.flatnonzero(index == h)[int(g == h)])
            pairs.append(Pair(min(first, second), max(first, second), float(angles[which])))
        return tuple(pairs)

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
    question = Question(
        weights=checked,
        temperature=temperature,
        tolerance=tolerance,
        verdict=judge(checked, similarity, temperature, dim=dim, search=search),
    )
    name, iterations, arrays = search_geometry(question)
    parts = figures(question, **arrays)
    result = Realization(**parts, solver=SolverRun(name, iterations, time.perf_counter() - began))
    if result.bracket is None and not result.certified:
        raise NotCertifiedError(
            f"the optimum found by the {name} is not certified: {result.certificate.reason}", result
        )
    return result if constant == "lingoes" else replace(result, cailliez=cailliez_geometry(checked, temperature))


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
    question = Question(weights=weights, temperature=temperature, tolerance=tolerance, verdict=verdict)
    groups = weights.log_weights.shape
    for name, array in arrays.items():
        fits = array.shape == groups if name != "points" else array.ndim == 2 and array.shape[0] == weights.n
        if not fits or not np.isfinite(array).all():
            raise ValueError(f"its {name} are not a matrix of numbers for its weights")
    if not arrays and not (verdict.attained or question.is_limit or question.symmetric is not None):
        raise ValueError("it has no geometry")
    return Realization(**figures(question, **arrays), solver=solver)


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
