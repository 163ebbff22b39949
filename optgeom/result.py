"""What every answer has in common: a certificate, the run of the solver, a bracket, a JSON form and a file."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from optgeom._numerics import Array
from optgeom.certificates import Certificate
from optgeom.errors import IncompatibleError, InvalidInputError
from optgeom.programs.gram_program import PairProgram


@dataclass(frozen=True)
class SolverRun:
    """Which solver produced an answer: its name, iterations and wall-clock seconds (certificate included)."""

    name: str
    iterations: int
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {"name": self.name, "iterations": self.iterations, "seconds": self.seconds}


@dataclass(frozen=True, kw_only=True)
class OptimalGram:
    """An optimum as the minimiser of a convex program, for questions about single pairs of its members.

    Attributes
    ----------
    program : PairProgram
    cosines : (G, G)
        The optimum in the group form of the program.
    """

    program: PairProgram
    cosines: Array


@dataclass(frozen=True)
class Pair:
    """Two classes, or samples, and the angle between them in degrees."""

    first: int
    second: int
    angle_deg: float


class Result(ABC):
    """Base of `Geometry`, `Realization` and `Recovery`.

    Attributes
    ----------
    certificate : Certificate
        What has been proved about the answer.
    solver : SolverRun
    bracket : (float, float) or None
        Where the dimension asked for is below what the optimum needs: a lower bound and the best value found, which are
        not certified to meet.
    """

    certificate: Certificate
    solver: SolverRun
    bracket: tuple[float, float] | None

    @property
    def certified(self) -> bool:
        """Whether the certificate holds; `certificate.reason` says why where it does not."""
        return self.certificate.certified

    @abstractmethod
    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""

    @abstractmethod
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to `.npz` or `.json` (versioned, nothing pickled); `load` reads it back."""

    @classmethod
    @abstractmethod
    def load(cls, path: str | os.PathLike[str]) -> Result:
        """Read what `save` wrote, and compute the certificate anew: the file's figures are compared, not believed.

        Raises
        ------
        InvalidInputError
            Any other file, a damaged one, or one whose figures are not those of its arrays.
        """


class GramResult(Result):
    """Base of the results that are a Gram matrix of unit vectors: `Geometry` and `Realization`."""

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """Names of the classes; samples have their numbers."""

    @abstractmethod
    def optimal_gram(self) -> OptimalGram:
        """The convex program that this is the optimum of.

        Raises
        ------
        IncompatibleError
            A bracket, or points that are not unit vectors.
        InvalidInputError
            Not certified.
        """

    @abstractmethod
    def closest_pairs(self, limit: int = 5) -> tuple[Pair, ...]:
        """The pairs with the smallest angles, closest first."""

    @abstractmethod
    def farthest_pairs(self, limit: int = 5) -> tuple[Pair, ...]:
        """The pairs with the largest angles, farthest first."""

    def _check_optimum(self) -> None:
        """Refuse what is not proved to be an optimum over all dimensions."""
        if self.bracket is not None:
            raise IncompatibleError(
                "`geometry` must be an optimum without a limit of dimension; got a bracket (in fewer dimensions than "
                "its optimum needs a geometry is one of many, and has no ranges)"
            )
        if not self.certificate.certified:
            raise InvalidInputError("`geometry` must be certified; got one that is not (solve it again, more loosely)")
