"""Distance geometry against scikit-learn's metric multidimensional scaling (SMACOF).

SMACOF minimises stress, not the loss. Both start from the matrix of weights and are judged by the points that come
out: their distances against the target distances, and their loss, recomputed, with the certificate of the weighted
program. Target distances are |y_i - y_j| (Euclidean similarity) or chords sqrt(2 - 2 cos) of the target cosines. For
cosines, the points of MDS are put on the sphere that fits them best.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import _rivals
import _tables
import numpy as np
from _harness import OURS, Row, alternate, failure
from _suite import Effort, Table
from _versus import of_weights
from scipy.spatial.distance import pdist, squareform

from optgeom.realization import entropy
from optgeom.realization.api import realize
from optgeom.realization.optimum import program_of
from optgeom.realization.weights import Weights

TOLERANCE = 1e-9
DIM = 3
RIVALS = {"MDS, random start": "random", "MDS, classical start": "classical_mds"}


@dataclass(frozen=True)
class Problem:
    """(n, n) weights with what they ask for; `dim` None where the optimum may take any dimension."""

    case: str
    similarity: str
    temperature: float
    weights: Any
    distances: Any
    dim: int | None

    @property
    def n(self) -> int:
        return len(self.distances)


def euclidean(n: int) -> Problem:
    """Points in space, weights exp(-|y_i - y_j|^2/2) at temperature 2: squared distances are the targets themselves."""
    y = np.random.default_rng(0).normal(size=(n, DIM))
    distances = squareform(pdist(y))
    return Problem(
        f"Euclidean, points in {DIM} dimensions", "euclidean", 2.0, np.exp(-(distances**2) / 2), distances, DIM
    )


def spherical(n: int) -> Problem:
    """Points on the sphere, weights exp(cos/temperature): realizable."""
    y = np.random.default_rng(0).normal(size=(n, DIM))
    y /= np.linalg.norm(y, axis=1, keepdims=True)
    weights = np.exp((y @ y.T) / 0.5)
    return Problem(
        f"cosine, points on a sphere in {DIM} dimensions", "cosine", 0.5, weights, chords(weights, 0.5, 0.0), DIM
    )


def inconsistent(n: int) -> Problem:
    """Points in space, cosine similarity: no points on a sphere have the target cosines 1 + temperature log w."""
    y = np.random.default_rng(0).normal(size=(n, DIM))
    weights = np.exp(-(squareform(pdist(y)) ** 2) / 2)
    return Problem(
        f"cosine, points in {DIM} dimensions, inconsistent", "cosine", 0.5, weights, chords(weights, 0.5, 1.0), None
    )


def chords(weights: Any, temperature: float, shift: float) -> Any:
    """sqrt(2 - 2 cos) of the target cosines temperature log w + shift."""
    found = np.sqrt(np.maximum(0.0, 2 - 2 * (shift + temperature * np.log(weights))))
    np.fill_diagonal(found, 0.0)
    return found


FULL: dict[Callable[[int], Problem], tuple[int, ...]] = {
    euclidean: (100, 300, 1000),
    spherical: (100, 300),
    inconsistent: (100, 300),
}
QUICK: dict[Callable[[int], Problem], tuple[int, ...]] = {euclidean: (60,), spherical: (60,), inconsistent: (60,)}
TINY: dict[Callable[[int], Problem], tuple[int, ...]] = {euclidean: (12,), spherical: (12,), inconsistent: (12,)}


def ours(problem: Problem) -> tuple[Any, str]:
    found = realize(
        problem.weights, problem.similarity, temperature=problem.temperature, dim=problem.dim, tolerance=TOLERANCE
    )
    return found.embedding(), found.solver.name


def scaling(problem: Problem, init: str) -> tuple[Any, str]:
    points, stress, steps = _rivals.smacof(problem.distances, DIM, init)
    if problem.similarity == "cosine":
        points = _rivals.on_sphere(points)
    return points, f"stress {stress:.1e}, {steps} iterations"


def judged(
    row: Callable[..., Row], problem: Problem, found: tuple[Any, str], best: float = math.nan
) -> tuple[Row, float]:
    """Distances against the targets (relative to the largest), and the loss with its gap to the bound.

    The bound is the entropic one, or else the dual one.
    """
    points, note = found
    held = Weights.from_matrix(problem.weights)
    distances = squareform(pdist(points))
    error = float(np.max(np.abs(distances - problem.distances)) / np.max(problem.distances))
    if problem.similarity == "cosine":
        verdict = of_weights(program_of(held, problem.temperature), TOLERANCE)(points @ points.T)
        gap, loss, certified = verdict.gap, verdict.loss, verdict.certified
    else:
        gap = entropy.gap_to_bound(held, -(distances**2) / problem.temperature)
        loss = entropy.entropic_bound(held) + gap
        certified = gap <= TOLERANCE * (1 + abs(loss))
    return row(gap=gap, certified=certified, excess=loss - best, difference=error, note=note), loss


def measure(effort: Effort) -> Iterator[Row]:
    problems = [make(n) for make, sizes in effort.plan(FULL, QUICK, TINY).items() for n in sizes if effort.wants(n)]
    warm = euclidean(10)
    for call in (partial(ours, warm), *(partial(scaling, warm, init) for init in RIVALS.values())):
        call()
    for problem in problems:
        _, best = judged(partial(Row, problem.case, OURS, problem.n, 0), problem, ours(problem))
        calls: dict[str, Callable[[], Any]] = {OURS: partial(ours, problem)}
        calls.update({who: partial(scaling, problem, init) for who, init in RIVALS.items()})
        for who, turn, seconds, result in alternate(calls, dict.fromkeys(calls, effort.times(effort.plan(3, 1, 1)))):
            row = partial(Row, problem.case, who, problem.n, turn, seconds)
            yield row(note=failure(result)) if isinstance(result, Exception) else judged(row, problem, result, best)[0]


def render(rows: Sequence[Row]) -> str:
    lines = []
    for (case, n), found in _tables.cases(rows).items():
        for who, held in found.items():
            ratio = "-" if who == OURS else f"{held.seconds / found[OURS].seconds:.2g} x"
            excess = "-" if who == OURS else _tables.number(held.excess)
            quality = [
                _tables.number(held.difference),
                "no answer" if held.failed else _tables.certificate(held),
                excess,
            ]
            lines.append([case, str(n), who, _tables.timing(held), ratio, *quality, held.note])
    header = ["case", "n", "solver", "time", "its time over ours", "distance error", "gap", "excess loss", "note"]
    return _tables.markdown(header, lines)


TABLES = (
    Table(
        "realize-mds",
        "Distance geometry against scikit-learn MDS",
        "Targets that points can have are recovered exactly, as by SMACOF from a classical start, not from a random "
        "one; where no points have them, the least stress is not the least loss.",
        measure,
        render,
    ),
)
