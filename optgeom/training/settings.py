"""How a run goes: steps, rates, precision, what is written when."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from optgeom import _checks
from optgeom.errors import InvalidInputError
from optgeom.training.device import PRECISIONS

OPTIMIZERS = ("adam", "sgd")
LARGEST = {
    "accumulate": 1_000_000,
    "dim": 65_536,
    "batch": 100_000,
    "anchors": 10_000_000,
}  # beyond, no memory or no patience
LARGEST_RATE = 1e35  # the weights are of single precision
LARGEST_SEED = 2**63 - 1  # torch takes 64 bits, and some draws count a few up from the seed


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Of one training run.

    Attributes
    ----------
    steps : int
        Updates of the parameters.
    learning_rate : float
        At its peak; it rises linearly over `warmup` steps, then follows half a cosine down to 0 at the end, where the
        noise of the batches is averaged away.
    optimizer : {"adam", "sgd"}
    momentum : float
        Of SGD, in [0, 1).
    weight_decay : float
        Decoupled from the gradient for Adam. With unit features a decay only slows the shrinking of the effective
        learning rate.
    warmup : int
    average_from : float
        In [0, 1]: from this share of the steps on, the parameters are averaged over all iterates, and the average is
        the result. 1: no average.
    accumulate : int
        Batches a step. Sums and counts of their losses are added before the division, so the gradient is that of the
        mean over all anchors; each batch is still contrasted within itself.
    clip_norm : float or None
        Largest norm of a gradient.
    amp : {"off", "bf16", "fp16"}
    device : str
        "auto", "cpu", "cuda", "cuda:1", ...
    seed : int
    log_every, checkpoint_every : int
        Steps.
    """

    steps: int = 1500
    learning_rate: float = 0.01
    optimizer: str = "adam"
    momentum: float = 0.9
    weight_decay: float = 0.0
    warmup: int = 0
    average_from: float = 0.5
    accumulate: int = 1
    clip_norm: float | None = None
    amp: str = "off"
    device: str = "auto"
    seed: int = 0
    log_every: int = 100
    checkpoint_every: int = 500

    def __post_init__(self) -> None:
        for name in ("steps", "log_every", "checkpoint_every"):
            _checks.integer(name, getattr(self, name), at_least=1)
        check_size("accumulate", self.accumulate)
        _checks.integer("warmup", self.warmup, at_least=0)
        check_seed(self.seed)
        if _checks.real("learning_rate", self.learning_rate, above=0.0, hint="0.001 to 0.1") > LARGEST_RATE:
            raise InvalidInputError(
                f"`learning_rate` must be at most {LARGEST_RATE:g}; got {self.learning_rate!r} (0.001 to 0.1)"
            )
        _checks.real("momentum", self.momentum, at_least=0.0, hint="0.9 is usual")
        _checks.real("weight_decay", self.weight_decay, at_least=0.0, hint="0 for none")
        _checks.real(
            "average_from",
            self.average_from,
            at_least=0.0,
            hint="the share of the steps before the average; 1 for no average",
        )
        _checks.choice("optimizer", self.optimizer, OPTIMIZERS)
        _checks.choice("amp", self.amp, PRECISIONS)
        if self.clip_norm is not None:
            _checks.real("clip_norm", self.clip_norm, above=0.0, hint="None for no limit")
        for name, least, hint in (
            ("momentum", "below 1", "0.9 is usual"),
            ("average_from", "at most 1", "a share of the steps"),
        ):
            value = getattr(self, name)
            if value > 1 or (name == "momentum" and value == 1):
                raise InvalidInputError(f"`{name}` must be {least}; got {value!r} ({hint})")
        if self.warmup >= self.steps:
            raise InvalidInputError(
                f"`warmup` must be below `steps` = {self.steps}; got {self.warmup} (a tenth of them is usual)"
            )

    def rate(self, step: int) -> float:
        """Learning rate of step 0, 1, ...: a function of the step alone, so that a resumed run needs nothing else."""
        if step < self.warmup:
            return self.learning_rate * (step + 1) / self.warmup
        passed = (step - self.warmup) / (self.steps - self.warmup)
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * passed))

    @property
    def first_averaged(self) -> int:
        """Step after which the first iterate enters the average; `steps` where none does."""
        return math.ceil(self.average_from * self.steps)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def check_size(name: str, size: int) -> int:
    """A whole number from 1 to the largest that can be trained with.

    Raises
    ------
    InvalidInputError
        Another one.
    """
    number = _checks.integer(name, size, at_least=1)
    if number > LARGEST[name]:
        raise InvalidInputError(f"`{name}` must be at most {LARGEST[name]}; got {number} (thousands are plenty)")
    return number


def check_seed(seed: int) -> int:
    """A whole number from 0 to 2^63 - 1, which torch and numpy both take.

    Raises
    ------
    InvalidInputError
        Another one.
    """
    number = _checks.integer("seed", seed, at_least=0)
    if number > LARGEST_SEED:
        raise InvalidInputError(
            f"`seed` must be at most 2^63 - 1; got a whole number of {number.bit_length()} bits (0 is as good)"
        )
    return number
