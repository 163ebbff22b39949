"""The terminal report of `optgeom train`: what was trained, how far it is from the optimum, which files it wrote."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from optgeom.formatting import short
from optgeom.losses import Loss
from optgeom_cli.output import print_summary

SHOWN_NAMES = 5


def report(content: Mapping[str, Any]) -> None:
    """Print the answer on stdout."""
    print_summary(_lines(content))


def _lines(content: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    if content["kind"] == "encoder":
        yield "Verdict", content["validation"]["sentence"]
        yield (
            "Trained",
            f"encoder on {sum(content['counts'])} samples of {content['data']}, {content['num_classes']} classes",
        )
    else:
        yield "Trained", f"free class means, {content['num_classes']} classes"
    yield "Steps", str(content["steps"])
    yield "Optimum", Loss.from_dict(content["loss"]).words()
    yield "Max angle error", _distance(content["geometry"])
    if content.get("from_simplex"):
        yield "From the simplex", _degrees(content["from_simplex"]["max_angle_error_deg"])
    if content.get("held_out"):
        yield "Held out", _distance(content["held_out"])
    losses = content["losses"]
    if "population" in losses:
        yield (
            "Population loss",
            f"{losses['population']:.10g}, optimum {losses['optimal']:.10g}, excess {max(losses['excess'], 0.0):.2e}",
        )
    else:
        yield "Loss", f"{losses['final']:.6g} on the last batches, {losses['optimal']:.6g} expected at the optimum"
    for path in content["files"].values():
        yield "Written", path


def _distance(distance: Mapping[str, Any]) -> str:
    parts = [_degrees(distance["max_angle_error_deg"])]
    if distance["num_pairs"]:
        total = f" of {distance['all_pairs']}" if distance["num_pairs"] < distance["all_pairs"] else ""
        parts[0] += f" over {distance['num_pairs']}{total} pair{'' if distance['all_pairs'] == 1 else 's'}"
    if distance["class_r2"] is not None:
        # A few degrees are a hundred times the differences between cosines that are nearly equal.
        parts.append(
            "class r2 n/a (the optimal cosines hardly differ)"
            if distance["class_r2_weak"]
            else f"class r2 {distance['class_r2']:.6f}"
        )
    if distance["relative_frobenius"] is not None:
        parts.append(f"Gram distance {distance['relative_frobenius']:.2g}")
    text = ", ".join(parts)
    unmeasured = distance.get("without_direction", ())
    if unmeasured:
        names = ", ".join(short(name) for name in unmeasured[:SHOWN_NAMES])
        more = f" and {len(unmeasured) - SHOWN_NAMES} more" if len(unmeasured) > SHOWN_NAMES else ""
        classes = "class" if len(unmeasured) == 1 else "classes"
        text += f"; without {classes} {names}{more}, too few samples to measure a direction"
    return text


def _degrees(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.3g} degrees"
