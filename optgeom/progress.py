"""A sign of life on stderr while something takes longer than a second, and only when a person is watching."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import Protocol

PATIENCE_SECONDS = 1.0


class Update(Protocol):
    """Moves the bar: what is done, of how many in all (None: as before), and words beside it (None: as before)."""

    def __call__(self, done: int, total: int | None = None, words: str | None = None) -> None: ...


@contextlib.contextmanager
def working(what: str) -> Iterator[None]:
    """Show `what` and a spinner on stderr after the first second; nothing at all when stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    spinner = Console(stderr=True, highlight=False, markup=False).status(what)
    timer = threading.Timer(PATIENCE_SECONDS, spinner.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # a start that is under way must end before the stop
        spinner.stop()


@contextlib.contextmanager
def progress_bar(label: str, *, start: int = 0, total: int | None = None, wanted: bool = True) -> Iterator[Update]:
    """Show a bar on stderr after the first second; nothing at all unless `wanted` and stderr is a terminal."""
    if not (wanted and sys.stderr.isatty()):
        yield lambda done, total=None, words=None: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(label), BarColumn(bar_width=20), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True, highlight=False, markup=False)
    bar = Progress(
        *columns, TextColumn("{task.description}", markup=False), console=console, transient=True, refresh_per_second=4
    )
    task = bar.add_task("", total=total, completed=start)
    began = time.monotonic()

    def update(done: int, total: int | None = None, words: str | None = None) -> None:
        bar.update(task, completed=done, total=total, description=words)
        if not bar.live.is_started and time.monotonic() - began > PATIENCE_SECONDS:
            bar.start()

    try:
        yield update
    finally:
        bar.stop()
