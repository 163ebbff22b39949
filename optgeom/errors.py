"""Every error that optgeom raises on purpose.

A message names the parameter, the requirement, what came and the remedy, in one line, so that the command line can
print it as it is.
"""

from __future__ import annotations

from typing import Any


class OptGeomError(Exception):
    """Base of all errors raised by optgeom."""


class InvalidInputError(OptGeomError, ValueError):
    """A value outside its domain, or data that cannot be read."""


class IncompatibleError(OptGeomError, TypeError):
    """Two valid arguments that do not go together; the message says what is missing."""


class MissingDependencyError(OptGeomError, ImportError):
    """An optional package is needed; the message names the extra that installs it."""


class SolverError(OptGeomError, RuntimeError):
    """A solver could not produce a geometry at all."""


class NotCertifiedError(SolverError):
    """An answer was computed, but its certificate does not hold.

    Attributes
    ----------
    result : Result
        The best answer computed, with the certificate that failed: to be inspected, never to be used as the answer.
    """

    def __init__(self, message: str, result: Any) -> None:
        super().__init__(message)
        self.result = result

    @property
    def geometry(self) -> Any:
        """The name of `result` in 0.1.0; it goes in 0.3."""
        return self.result
