"""A progress bar on stderr for a person who is watching, and nothing otherwise."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from optgeom.training.distance import GramDistance

Update = Callable[[int, float | None, GramDistance | None], None]


@contextlib.contextmanager
def progress_bar(steps: int, start: int, optimal_loss: float | None, wanted: bool) -> Iterator[Update]:
    """A function of (steps done, loss, distance) that moves the bar; None leaves a figure as it was."""
    if not (wanted and sys.stderr.isatty()):
        yield lambda step, loss, distance: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    count = (MofNCompleteColumn(), TimeRemainingColumn())
    columns = (TextColumn("training"), BarColumn(bar_width=20), *count, TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True, highlight=False), transient=True, refresh_per_second=4) as bar:
        task = bar.add_task("", total=steps, completed=start)

        def update(step: int, loss: float | None, distance: GramDistance | None) -> None:
            if loss is None:
                bar.update(task, completed=step)
                return
            bar.update(task, completed=step, description=figures(loss, optimal_loss, distance))

        yield update


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
