"""How a run goes: steps, rates, device and precision, and when something is written."""

from __future__ import annotations

import contextlib
import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from optgeom import _checks, choices
from optgeom.errors import InvalidInputError

DEVICES = ("auto", "cpu", "cuda")
# Larger sizes need more memory, or more time, than any machine offers.
LARGEST = {"accumulate": 1_000_000, "dim": 65_536, "batch": 100_000, "anchors": 10_000_000}
LARGEST_RATE = 1e35  # the weights are of single precision
LARGEST_SEED = 2**63 - 1  # torch takes 64 bits, and some draws count a few up from the seed


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of one training run.

    Attributes
    ----------
    steps : int
        Updates of the parameters.
    learning_rate : float
        At its peak: it rises linearly over `warmup` steps, then follows half a cosine down to 0 at the end, which
        averages the noise of the batches away.
    optimizer : {"adam", "sgd"}
    momentum : float
        Momentum of SGD, in [0, 1).
    weight_decay : float
        Decoupled from the gradient for Adam. With unit features a decay only slows the shrinking of the effective
        learning rate.
    warmup : int
    average_from : float
        In [0, 1]: from this share of the steps on the parameters are averaged over all iterates, and the average is the
        result. 1: no average.
    accumulate : int
        Batches per step. Sums and counts of their losses are added before the division, so the gradient is that of the
        mean over all anchors; each batch is still contrasted within itself.
    clip_norm : float or None
        Largest norm of a gradient.
    amp : {"off", "bf16", "fp16"}
    device : str
        "auto", "cpu", "cuda", "cuda:1", ...
    seed : int
    log_every, checkpoint_every : int
        Steps between two lines of the log, and between two checkpoints.
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
        _checks.integer("warmup", self.warmup, at_least=0)
        check_size("accumulate", self.accumulate)
        check_seed(self.seed)
        _checks.choice("optimizer", self.optimizer, choices.Optimizer)
        _checks.choice("amp", self.amp, choices.Precision)
        _checks.real("weight_decay", self.weight_decay, at_least=0.0, hint="0 for none")
        if self.clip_norm is not None:
            _checks.real("clip_norm", self.clip_norm, above=0.0, hint="None for no limit")
        rate = _checks.real("learning_rate", self.learning_rate, above=0.0, hint="0.001 to 0.1")
        momentum = _checks.real("momentum", self.momentum, at_least=0.0, hint="0.9 is usual")
        hint = "the share of the steps before the average; 1 for no average"
        average_from = _checks.real("average_from", self.average_from, at_least=0.0, hint=hint)
        if rate > LARGEST_RATE:
            raise InvalidInputError(f"`learning_rate` must be at most {LARGEST_RATE:g}; got {rate!r} (0.001 to 0.1)")
        if momentum >= 1:
            raise InvalidInputError(f"`momentum` must be below 1; got {momentum!r} (0.9 is usual)")
        if average_from > 1:
            raise InvalidInputError(f"`average_from` must be at most 1; got {average_from!r} (a share of the steps)")
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
    """`size` where it is a whole number from 1 to the largest that can be trained with.

    Raises
    ------
    InvalidInputError
        It is not.
    """
    number = _checks.integer(name, size, at_least=1)
    if number > LARGEST[name]:
        raise InvalidInputError(f"`{name}` must be at most {LARGEST[name]}; got {number} (thousands are plenty)")
    return number


def check_seed(seed: int) -> int:
    """`seed` where it is a whole number from 0 to 2^63 - 1, which torch and numpy both take.

    Raises
    ------
    InvalidInputError
        It is not.
    """
    number = _checks.integer("seed", seed, at_least=0)
    if number > LARGEST_SEED:
        raise InvalidInputError(
            f"`seed` must be at most 2^63 - 1; got a whole number of {number.bit_length()} bits (0 is as good)"
        )
    return number


def choose_device(name: str) -> torch.device:
    """The device of this name; "auto" is a CUDA device where there is one.

    Raises
    ------
    InvalidInputError
        An unknown name, "cuda" without a usable CUDA device, or a number beyond the last device.
    """
    kind, colon, number = name.partition(":")
    if kind != "cuda" or (colon and not (number.isascii() and number.isdecimal())):
        _checks.choice("device", name, DEVICES)
    available = torch.cuda.is_available()
    if name.startswith("cuda") and not available:
        raise InvalidInputError(f"`device` must exist; got {name!r}, but torch finds no CUDA device (take cpu or auto)")
    if colon and int(number) >= torch.cuda.device_count():
        raise InvalidInputError(
            f"`device` must be below cuda:{torch.cuda.device_count()}; got {name!r} (the first device is cuda:0)"
        )
    return torch.device("cuda" if name == "auto" and available else "cpu" if name == "auto" else name)


def check_precision(amp: str, device: torch.device) -> str:
    """`amp` where it is "off", "bf16" or, on CUDA only, "fp16".

    Raises
    ------
    InvalidInputError
        It is not.
    """
    _checks.choice("amp", amp, choices.Precision)
    if amp == "fp16" and device.type == "cpu":
        raise InvalidInputError(
            "`amp` must be bf16 or off on a CPU; got 'fp16' (its gradients need a scaler, which is for CUDA)"
        )
    return amp


def autocast(amp: str, device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Context of a forward pass in this precision."""
    if amp == "off":
        return contextlib.nullcontext()
    kind = torch.bfloat16 if amp == "bf16" else torch.float16
    return torch.autocast(device.type, dtype=kind)


def to_device(numbers: Tensor, device: torch.device) -> Tensor:
    """A CPU tensor on the device, without waiting for it, as a copy out of pageable memory would."""
    if device.type != "cuda":
        return numbers.to(device)
    return numbers.pin_memory().to(device, non_blocking=True)
