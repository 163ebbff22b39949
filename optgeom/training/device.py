"""Which device, which precision."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import Tensor

from optgeom import _checks
from optgeom.errors import InvalidInputError

DEVICES = ("auto", "cpu", "cuda")
PRECISIONS = ("off", "bf16", "fp16")


def choose_device(name: str) -> torch.device:
    """A device by name; "auto" is a CUDA device where there is one.

    Raises
    ------
    InvalidInputError
        Another name, "cuda" without a usable CUDA device, or a number that none of them has.
    """
    kind, colon, number = name.partition(":")
    if kind != "cuda" or (colon and not (number.isascii() and number.isdecimal())):
        _checks.choice("device", name, DEVICES)
    available = torch.cuda.is_available()
    if name.startswith("cuda") and not available:
        raise InvalidInputError(
            f"`device` must be there; got {name!r}, but torch finds no CUDA device (take cpu or auto)"
        )
    if colon and int(number) >= torch.cuda.device_count():
        raise InvalidInputError(
            f"`device` must be below cuda:{torch.cuda.device_count()}; got {name!r} (the first device is cuda:0)"
        )
    return torch.device("cuda" if name == "auto" and available else "cpu" if name == "auto" else name)


def check_precision(amp: str, device: torch.device) -> str:
    """One of "off", "bf16", "fp16"; half precision only exists on CUDA.

    Raises
    ------
    InvalidInputError
        Another name, or "fp16" on a CPU.
    """
    _checks.choice("amp", amp, PRECISIONS)
    if amp == "fp16" and device.type == "cpu":
        raise InvalidInputError(
            "`amp` must be bf16 or off on a CPU; got 'fp16' (its gradients need a scaler, which is for CUDA)"
        )
    return amp


def autocast(amp: str, device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """The forward pass in this precision."""
    if amp == "off":
        return contextlib.nullcontext()
    kind = torch.bfloat16 if amp == "bf16" else torch.float16
    context: contextlib.AbstractContextManager[Any] = torch.autocast(device.type, dtype=kind)
    return context


def to_device(drawn: Tensor, device: torch.device) -> Tensor:
    """A CPU tensor on the device, without waiting for it: a copy out of pageable memory would."""
    if device.type != "cuda":
        return drawn.to(device)
    return drawn.pin_memory().to(device, non_blocking=True)
