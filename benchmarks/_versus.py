"""optgeom and its rivals on the same problem, in turns, judged by the same recomputed certificate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import _rivals
import numpy as np
from _harness import OURS, Row, alternate, attempt, failure
from _rivals import RowsProgram
from _suite import Effort

from optgeom.certificates import Certified, certify
from optgeom.programs.class_mean import ClassMeanProgram
from optgeom.programs.weighted import WeightedProgram

TIGHT = 1e-10  # norm of the gradient at which pymanopt stops, beside its default of 1e-6
PATIENCE = {"full": 30.0, "quick": 3.0, "tiny": 1.0}  # seconds after which it gives that up
CONIC_WARM_UP = np.array([0.5, 0.3, 0.2])


@dataclass(frozen=True)
class Judgement:
    """What the certificate says of a matrix, whoever made it."""

    gap: float
    backward_error: float
    certified: bool
    loss: float
    cosines: Any
    why: str

    @staticmethod
    def of(answer: Certified) -> Judgement:
        certificate = answer.certificate
        backward = math.nan if certificate.backward_error is None else certificate.backward_error
        return Judgement(
            certificate.gap, backward, certificate.certified, answer.risk, answer.cosines, certificate.reason
        )

    def row(self, row: Callable[..., Row], reference: Judgement | None = None, note: str = "", **more: Any) -> Row:
        """A row with this certificate, and its distance from `reference` where there is one."""
        if reference is not None:
            more["excess"] = self.loss - reference.loss
            more["cosine_error"] = float(np.max(np.abs(self.cosines - reference.cosines)))
        told = "; ".join(part for part in (note, self.why) if part)
        return row(gap=self.gap, backward_error=self.backward_error, certified=self.certified, note=told, **more)


Judge = Callable[[Any], Judgement]


def of_class_means(program: ClassMeanProgram) -> Judge:
    """Diagonal brought to 1, then `certify`."""

    def judge(cosines: Any) -> Judgement:
        unit, moved = _unit(cosines, program.sizes)
        return Judgement.of(certify(program, unit, moved=moved))

    return judge


def of_weights(program: WeightedProgram, tolerance: float) -> Judge:
    """Diagonal brought to 1, then `certify`."""

    def judge(cosines: Any) -> Judgement:
        unit, moved = _unit(cosines, program.sizes)
        return Judgement.of(certify(program, unit, tolerance=tolerance, moved=moved))

    return judge


def _unit(cosines: Any, sizes: Any) -> tuple[Any, float]:
    given = np.asarray(cosines, dtype=np.float64)
    root = np.where(sizes == 1, np.sqrt(np.abs(np.diag(given))), 1.0)
    unit = given / (root[:, None] * root[None, :])
    return unit, float(np.max(np.abs(unit - given)))


Rival = Callable[[RowsProgram], _rivals.Answer]


def conic_rival(solver: str, by_rows: bool = False) -> dict[str, Rival]:
    """CVXPY with "CLARABEL" or "SCS"."""
    return {_rivals.NAMES[solver]: partial(_rivals.conic_by_rows if by_rows else _rivals.conic, solver=solver)}


def oblique_rivals(effort: Effort) -> dict[str, Rival]:
    """pymanopt with its default tolerance, and with one tight enough for a certificate, under a time limit."""
    loose = partial(_rivals.oblique, limit=PATIENCE[effort.level])
    return {"pymanopt, default": loose, f"pymanopt, gradient {TIGHT:.0e}": partial(loose, gradient_norm=TIGHT)}


@dataclass(frozen=True)
class Contest:
    """One problem.

    `ours` goes from the data of the problem to the certified answer, `theirs` from the same data to the program of the
    rival.
    """

    case: str
    size: int
    ours: Callable[[], Any]
    read: Callable[[Any], tuple[Any, str]]  # our answer -> matrix, note
    theirs: Callable[[], RowsProgram]
    judge: Judge
    runs: int  # of a rival
    k: str = ""


def contest(effort: Effort, problems: Sequence[Contest], rivals: Mapping[str, Rival], runs: int) -> Iterator[Row]:
    """All rows; `runs` is how often we run."""
    wanted = [problem for problem in problems if effort.wants(problem.size)]
    for rival in rivals.values() if wanted else ():
        attempt(partial(rival, _rivals.supcon_limit(CONIC_WARM_UP, 1.0)))
    for problem in wanted:
        first = attempt(problem.ours)
        reference = None if isinstance(first, Exception) else problem.judge(problem.read(first)[0])
        calls: dict[str, Callable[[], Any]] = {OURS: problem.ours}
        calls.update({who: partial(_whole, rival, problem.theirs) for who, rival in rivals.items()})
        repeats = {who: effort.times(runs if who == OURS else problem.runs) for who in calls}
        for who, turn, seconds, result in alternate(calls, repeats):
            row = partial(Row, problem.case, who, problem.size, turn, seconds, problem.k)
            if isinstance(result, Exception):
                yield row(note=failure(result))
            elif who == OURS:
                matrix, note = problem.read(result)
                yield problem.judge(matrix).row(row, note=note)
            else:
                found = problem.judge(result.gram)
                yield found.row(row, reference, result.note, solver_seconds=result.solver_seconds)


def _whole(rival: Rival, theirs: Callable[[], RowsProgram]) -> _rivals.Answer:
    return rival(theirs())
