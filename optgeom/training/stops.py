"""Why a run ended before its last step: a loss that is no number, or somebody who asked it to stop."""

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
        kept = f"the last good checkpoint is {checkpoint}" if checkpoint is not None else "no checkpoint was kept"
        super().__init__(f"the loss must stay finite; got {loss} at step {step}: {cause}; {kept}")
        self.step, self.cause, self.checkpoint = step, cause, checkpoint


class TrainingInterruptedError(OptGeomError):
    """A run was asked to stop (SIGINT, SIGTERM).

    Attributes
    ----------
    signal : int
    step : int
        Steps done.
    checkpoint : Path or None
        Where they are kept.
    """

    def __init__(self, number: int, step: int, checkpoint: Path | None) -> None:
        name = signal.Signals(number).name
        again = "run the same again with --resume (resume=True)"
        kept = f"saved in {checkpoint}; {again}" if checkpoint else "nothing was saved (give a folder)"
        super().__init__(f"stopped by {name} after step {step}: {kept}")
        self.signal, self.step, self.checkpoint = number, step, checkpoint


def likely_cause(inputs: float, features: float, step: int, rate: float) -> str:
    """What made the loss of a step infinite or NaN, from sums over its inputs and its features that are finite while all of them are."""
    if not math.isfinite(inputs):
        return "the inputs of its batch hold NaN or infinity (check the data)"
    if math.isfinite(features):
        return "the features were finite, so the loss itself overflowed (raise the temperature)"
    if step == 1:
        return "the features were not finite before any update (check the initial weights, or switch off reduced precision)"
    return f"the features were not finite although the inputs were: the weights diverged (lower the learning rate, {rate:.3g} here)"


class Stop:
    """Whether somebody asked the run to stop, and how."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __call__(self, number: int, _: FrameType | None) -> None:
        if self.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt  # asked twice: now, without a checkpoint
        self.signal = number


@contextlib.contextmanager
def stoppable() -> Iterator[Stop]:
    """SIGINT and SIGTERM set a mark instead of ending the process.

    The run ends between two steps, where it can be saved.
    """
    stop = Stop()
    held: dict[int, Any] = {}
    # Python lets only the main thread handle signals; elsewhere they do what they did before.
    if threading.current_thread() is threading.main_thread():
        held = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in held.items():
            signal.signal(number, handler)
