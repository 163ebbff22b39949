"""A result in words, shared by the terminal table and the pictures, for readers who do not know the theory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from optgeom.geometry import Geometry


def simplex_angle_deg(num_classes: int) -> float:
    """Angle of the balanced simplex, arccos(-1/(C-1)), in degrees.

    What every pair has when all classes are equally frequent.
    """
    return math.degrees(math.acos(-1.0 / (num_classes - 1)))


def short(name: str, width: int = 24) -> str:
    """`name` in one line of at most `width` characters, cut in the middle: class names often differ at the end only."""
    text = " ".join(name.split()) or "(no name)"
    if len(text) <= width:
        return text
    head = (width - 2) // 2
    return f"{text[:head].rstrip()}..{text[len(text) - (width - 2 - head) :].lstrip()}"


def describe_loss(loss: Mapping[str, Any]) -> str:
    """The loss in one line, from `Loss.describe()`.

    Parameters
    ----------
    loss : mapping
        Name and parameters; parameters that are not there are not mentioned.
    """
    name = str(loss.get("name", "loss"))
    parts = [f"temperature {loss['temperature']:g}"] if "temperature" in loss else []
    if name == "supcon":
        name = "SupCon"
        views = loss["views"]
        per_image = "one view an image" if views == 1 else f"{views} views an image"
        size = loss["batch_size"]
        parts.append("the limit of large batches" if size == "inf" else f"batches of {size} images, {per_image}")
        if views == 1 and size != "inf":
            parts.append(_singletons(loss))
    elif name == "supcon-full":
        name = "SupCon"
        views = loss["views"]
        parts.append("the whole data set as one batch" + ("" if views == 1 else f", {views} rows a sample"))
        parts.append(_singletons(loss))
    elif name == "infonce":
        name = "InfoNCE"
        parts += [_negatives(loss), _alpha(loss["alpha"])]
    else:
        if "psi" in loss:
            parts.insert(0, f"psi = {loss['psi']}")
        if "negatives" in loss and "sampling" in loss:
            parts.append(_negatives(loss))
    return ", ".join([name, *parts])


def _singletons(loss: Mapping[str, Any]) -> str:
    return f"anchors without a positive {'count as 0' if loss['singletons'] == 'zero' else 'left out'}"


def _negatives(loss: Mapping[str, Any]) -> str:
    number = loss["negatives"]
    text = "infinitely many negatives" if number == "inf" else "1 negative" if number == 1 else f"{number} negatives"
    origin = {"ucl": "from all classes", "scl": "from the other classes only", "explicit": "from a law of their own"}[
        loss["sampling"]
    ]
    averaged = " (averaged)" if loss.get("negatives_reduction") == "mean" else ""
    return f"{text} {origin}{averaged}"


def _alpha(alpha: float) -> str:
    if alpha == 0:
        return "positive left out of the denominator"
    return "positive in the denominator" if alpha == 1 else f"positive in the denominator with weight {alpha:g}"


def describe_regime(geometry: Geometry) -> str:
    """The regime in one sentence."""
    classes, rank = geometry.num_classes, geometry.rank
    if geometry.regime == "dimension-limited":
        return (
            f"dimension limited: {classes} classes in {_dimensions(geometry.dim or rank)}, fewer than the optimum needs"
        )
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
        return (
            f"not certified: in {_dimensions(geometry.dim or geometry.rank)} the lowest risk lies in the bracket from {low:.10g} to "
            f"{high:.10g} (width {high - low:.1e}); this geometry attains the upper end, and whether a better one exists is unknown"
        )
    if not certificate.certified:
        why = certificate.reason or "it does not meet the limits that were asked for"
        return f"NOT certified: {why}; do not use this geometry as the answer"
    only = "no other geometry attains it" if certificate.unique else "other geometries may attain the same risk"
    return f"certified: the risk is within {max(certificate.gap, 0.0):.0e} of the optimum; {only}"
