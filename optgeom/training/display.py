"""The words beside the progress bar of a training."""

from __future__ import annotations

from optgeom.training.distance import GramDistance


def figures(loss: float, optimal_loss: float | None, distance: GramDistance | None) -> str:
    """The loss, its optimal value and the distance of the Gram matrices, in a few words."""
    words = f"loss {loss:.5g}"
    if optimal_loss is not None:
        words += f" (optimum {optimal_loss:.5g})"
    if distance is not None and distance.max_angle_error_deg is not None:
        words += f", angles within {distance.max_angle_error_deg:.2g} deg"
        if distance.relative_frobenius is not None:
            words += f", Gram {distance.relative_frobenius:.2g}"
    return words
