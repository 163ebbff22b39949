"""The contract between a solver and the cascade that tries it (`drive`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import scipy.linalg

from optgeom._numerics import Array, Square
from optgeom.certificates import Certified
from optgeom.certificates.certificate import RANK_EIGENVALUE
from optgeom.certificates.repair import repair
from optgeom.errors import IncompatibleError
from optgeom.programs import group_matrix
from optgeom.programs.gram_program import CertifiableProgram
from optgeom.programs.group_matrix import Sizes

Judge = Callable[[Array], Certified]  # group-form matrix -> the feasible matrix next to it, with its certificate

# What a program or its rows may give, in the words of an error message.
CAPABILITIES = {
    "majorizer": "a log-sum loss",
    "pair-slopes": "a separable one (k = 1, or an additive psi)",
    "linear": "a linear one (k = 1 without the positive)",
    "cuts": "one with kinks",
    "row-softmax": "the softmax of each row, with equal masses",
}


@dataclass(frozen=True)
class Attempt:
    """What a solver reached, judged.

    Attributes
    ----------
    certified : Certified
        The feasible matrix with its certificate, which may have failed.
    solver : str
        Name of the method, as results show it.
    iterations : int
    """

    certified: Certified
    solver: str
    iterations: int


class Solver(Protocol):
    """A method for one kind of program; its options are its fields.

    Attributes
    ----------
    name : str
        The name by which users choose it.
    needs : frozenset of str
        What the program must give (`CertifiableProgram.gives`).
    """

    @property
    def name(self) -> str: ...

    @property
    def needs(self) -> frozenset[str]: ...

    def solve(self, program: Any, start: Square, judge: Judge) -> Attempt | None:
        """Search from a group-form matrix; None where there is nothing that could be judged."""
        ...


def incompatible(solvers: Iterable[Solver], program: CertifiableProgram, instead: str) -> IncompatibleError:
    """Error that names what the program would have to give for one of these solvers."""
    solvers = tuple(solvers)
    lacking = [sorted(solver.needs - program.gives) for solver in solvers]
    needs = " or ".join(" and ".join(CAPABILITIES.get(need, need) for need in needs) for needs in lacking)
    return IncompatibleError(f"`solver` {solvers[0].name!r} needs {needs}; use solver={instead!r} for this loss")


class FeasibleInTheLimit:
    """The best of the matrices of a method whose iterates are feasible, and of low rank, only in the limit.

    What is judged is the nearest feasible matrix. At the end eigenvalues that do not count for the rank, but would
    count for an embedding, are left out where the gap stays good.
    """

    def __init__(self, judge: Judge, sizes: Sizes, good_gap: float) -> None:
        self.judge, self.sizes, self.good_gap = judge, sizes, good_gap
        self.best: Certified | None = None

    def good(self, gram: Array) -> bool:
        """Judge a matrix; whether the best gap is small enough to end the search."""
        there = self.judge(repair(gram, self.sizes).cosines)
        if self.best is None or there.certificate.gap < self.best.certificate.gap:
            self.best = there
        enough = self.good_gap * (1 + abs(self.best.risk))
        if not self.best.certificate.gap <= enough:
            return False
        exact = self.judge(repair(of_low_rank(gram, self.sizes), self.sizes).cosines)
        if exact.certificate.gap <= enough:
            self.best = exact
        return True

    def attempt(self, solver: str, iterations: int) -> Attempt | None:
        """The best matrix as an attempt; None where nothing was judged."""
        return None if self.best is None else Attempt(self.best, solver, iterations)


def of_low_rank(gram: Array, sizes: Sizes) -> Array:
    """A Gram matrix without the eigenvalues that do not count for its rank, its diagonal brought back to 1."""
    ones = np.ones(sizes.size)
    eigenvalues, vectors = scipy.linalg.eigh(group_matrix.symmetric_block(gram, ones, sizes), check_finite=False)
    kept = eigenvalues > RANK_EIGENVALUE
    rest = group_matrix.complement(gram, ones, sizes)
    block = (vectors[:, kept] * eigenvalues[kept]) @ vectors[:, kept].T
    cosines, diagonal = group_matrix.from_blocks(block, np.where(rest > RANK_EIGENVALUE, rest, 0.0), sizes)
    root = np.sqrt(np.maximum(diagonal, 1e-300))
    cosines /= root[:, None] * root[None, :]
    return (cosines + cosines.T) / 2
