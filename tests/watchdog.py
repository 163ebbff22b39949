"""A watchdog for tests: it ends what hangs with an error that says what hung, and never judges how long anything took."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

HANG_SECONDS = 120  # far beyond what any guarded block needs, on a busy machine too


class HangError(BaseException):
    """Raised in the middle of what hangs; no Exception, so that nothing that is tested can take it for one of its own."""


@contextlib.contextmanager
def watched(what: str, seconds: float = HANG_SECONDS) -> Iterator[None]:
    """Raise `HangError` in a block that runs longer than `seconds`; without effect where there are no alarms."""

    def bark(number: int, frame: FrameType | None) -> None:
        raise HangError(f"{what}: no answer and no error within {seconds:g} s")

    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, bark)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
