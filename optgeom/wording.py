"""A geometry in words, for the terminal and the pictures, and for readers who do not know the theory."""

from __future__ import annotations

import math

import numpy as np

from optgeom.formatting import short
from optgeom.geometry import Geometry


def simplex_angle_deg(num_classes: int) -> float:
    """Angle arccos(-1/(C-1)), in degrees, of every pair when all classes are equally frequent."""
    return math.degrees(math.acos(-1.0 / (num_classes - 1)))


def describe_regime(geometry: Geometry) -> str:
    """The regime in one sentence."""
    classes, rank = geometry.num_classes, geometry.rank
    if geometry.regime == "dimension-limited":
        space = _dimensions(geometry.dim or rank)
        return f"dimension limited: {classes} classes in {space}, fewer than the optimum needs"
    if classes == 2:
        return "spread: the two classes point in opposite directions"
    if geometry.regime == "spread":
        return "spread: every class keeps its own direction"
    if geometry.regime == "minority-collapse":
        return f"minority collapse: all minority classes share one direction{_opposite(geometry)}"
    return f"partial collapse: {classes} classes squeezed into {_dimensions(rank)}"


def _opposite(geometry: Geometry) -> str:
    """The class that stands alone, where there is exactly one."""
    most = int(geometry.classes.frequency_order()[0])
    group = int(geometry.index[most])
    alone = geometry.group_sizes[group] == 1 and bool((np.delete(geometry.group_cosines[group], group) < 0).all())
    return f", opposite to class {short(geometry.names[most])}" if alone else ""


def _dimensions(number: int) -> str:
    return "one dimension" if number == 1 else f"{number} dimensions"


def describe_certificate(geometry: Geometry) -> str:
    """What has been proved, in one sentence or two."""
    certificate = geometry.certificate
    if geometry.bracket is not None:
        low, high = geometry.bracket
        if not high > low:
            where = _dimensions(geometry.dim or geometry.rank)
            return (
                f"not certified: the optimum needs {_dimensions(geometry.required_rank or geometry.rank)}; in {where} "
                f"this is the lowest risk, {high:.10g}: it meets its lower bound"
            )
        return (
            f"not certified: in {_dimensions(geometry.dim or geometry.rank)} the lowest risk lies in the bracket from "
            f"{low:.10g} to {high:.10g} (width {high - low:.1e}); this geometry attains the upper end, and whether a "
            "better one exists is unknown"
        )
    if not certificate.certified:
        why = certificate.reason or "it does not meet the limits that were asked for"
        return f"NOT certified: {why}; do not use this geometry as the answer"
    only = "no other geometry attains it" if certificate.unique else "other geometries may attain the same risk"
    return f"certified: the risk is within {max(certificate.gap, 0.0):.0e} of the optimum; {only}"
