"""Why a run ended before its last step: a loss that is not finite, or a signal that asked it to stop."""

from __future__ import annotations

import contextlib
import math
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from optgeom.errors import OptGeomError, SolverError


class DivergedError(SolverError):
    """The loss is no longer finite.

    Attributes
    ----------
    step : int
        First step (counted from 1) whose loss was not finite.
    cause : str
    checkpoint : Path or None
        The last checkpoint from before it.
    """

    def __init__(self, step: int, loss: float, cause: str, checkpoint: Path | None) -> None:
        saved = f"the last good checkpoint is {checkpoint}" if checkpoint is not None else "no checkpoint was kept"
        super().__init__(f"the loss must stay finite; got {loss} at step {step}: {cause}; {saved}")
        self.step, self.cause, self.checkpoint = step, cause, checkpoint


class TrainingInterruptedError(OptGeomError):
    """A run was asked to stop (SIGINT, SIGTERM).

    Attributes
    ----------
    signal : int
    step : int
        Steps done.
    checkpoint : Path or None
        Where they are saved.
    """

    def __init__(self, number: int, step: int, checkpoint: Path | None) -> None:
        name = signal.Signals(number).name
        again = "run the same again with --resume (resume=True)"
        saved = f"saved in {checkpoint}; {again}" if checkpoint else "nothing was saved (give a folder)"
        super().__init__(f"stopped by {name} after step {step}: {saved}")
        self.signal, self.step, self.checkpoint = number, step, checkpoint


def explain_divergence(inputs: float, features: float, step: int, rate: float) -> str:
    """What made the loss of a step infinite or NaN.

    `inputs` and `features` are sums over those of the step, finite as long as all of them are; `rate` is the learning
    rate.
    """
    if not math.isfinite(inputs):
        return "the inputs of its batch hold NaN or infinity (check the data)"
    if math.isfinite(features):
        return "the features were finite, so the loss itself overflowed (raise the temperature)"
    if step == 1:
        remedy = "check the initial weights, or switch off reduced precision"
        return f"the features were not finite before any update ({remedy})"
    remedy = f"lower the learning rate, {rate:.3g} here"
    return f"the features were not finite although the inputs were: the weights diverged ({remedy})"


class StopRequest:
    """The signal that asked the run to stop, None as long as none did."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __call__(self, number: int, _: FrameType | None) -> None:
        if self.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt  # the second Ctrl-C ends the process at once, without a checkpoint
        self.signal = number


@contextlib.contextmanager
def stoppable() -> Iterator[StopRequest]:
    """Record SIGINT and SIGTERM, so that the run ends between two steps, where it can be saved."""
    request = StopRequest()
    previous: dict[int, Any] = {}
    # Python lets only the main thread handle signals; elsewhere they do what they did before.
    if threading.current_thread() is threading.main_thread():
        previous = {number: signal.signal(number, request) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
