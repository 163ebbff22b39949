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
    """Two things that are fine by themselves but do not go together: the message says what is missing."""


class MissingDependencyError(OptGeomError, ImportError):
    """An optional package is needed; the message names the extra that installs it."""


class SolverError(OptGeomError, RuntimeError):
    """A solver could not produce a geometry at all."""


class NotCertifiedError(SolverError):
    """A geometry was computed, but its certificate does not hold.

    Attributes
    ----------
    geometry : Geometry or Realization
        The best that was found, with the certificate that failed. It is carried for inspection, never to be used as the
        answer.
    """

    def __init__(self, message: str, geometry: Any) -> None:
        super().__init__(message)
        self.geometry = geometry
