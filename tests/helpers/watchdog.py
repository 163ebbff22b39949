"""End tests that hang with an error that names them; times are never judged."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

HANG_SECONDS = 120  # of the processor: a busy machine makes nothing hang
WAITING = 10  # times as many on the clock, for what waits and does not work


class HangError(BaseException):
    """Raised inside code that hangs.

    It is not an Exception, so that the code under test does not catch it.
    """


@contextlib.contextmanager
def watched(what: str, seconds: float = HANG_SECONDS) -> Iterator[None]:
    """Raise `HangError` in a block that computes for more than `seconds`; without effect where there are no alarms."""

    def bark(number: int, frame: FrameType | None) -> None:
        # A second bark where the first one fell into something that swallows all errors, as a destructor does.
        raise HangError(f"{what}: no answer and no error within {seconds:g} s")

    timers = {"ITIMER_PROF": ("SIGPROF", seconds), "ITIMER_REAL": ("SIGALRM", WAITING * seconds)}

    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {name: signal.signal(getattr(signal, name), bark) for name, _ in timers.values()}
    for timer, (_, after) in timers.items():
        signal.setitimer(getattr(signal, timer), after, after)
    try:
        yield
    finally:
        for timer, (name, _) in timers.items():
            signal.setitimer(getattr(signal, timer), 0)
            signal.signal(getattr(signal, name), before[name])
