"""Latents seen through generators, and encoders that are trained to recover them: what the experiments share."""

from __future__ import annotations

from optgeom.errors import InvalidInputError


def require(holds: bool, message: str) -> None:
    """Refuse a parameter with `message`, which has its name, the requirement and what came, unless `holds`."""
    if not holds:
        raise InvalidInputError(message)
