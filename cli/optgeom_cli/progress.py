"""A sign of life on stderr while something takes longer than a second, and only when a person is watching."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

PATIENCE_SECONDS = 1.0


@contextlib.contextmanager
def working(what: str) -> Iterator[None]:
    """Show `what` and a spinner on stderr from the second second on; nothing at all when stderr is no terminal."""
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
