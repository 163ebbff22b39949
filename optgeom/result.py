"""What every answer has in common: a certificate, the run of the solver, a bracket, a JSON form and a file."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from optgeom.certificates import Certificate


@dataclass(frozen=True)
class SolverRun:
    """Which solver produced an answer: its name, iterations and wall-clock seconds (certificate included)."""

    name: str
    iterations: int
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {"name": self.name, "iterations": self.iterations, "seconds": self.seconds}


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
