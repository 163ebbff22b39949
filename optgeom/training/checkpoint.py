"""Checkpoints: everything that the next step depends on, in one file that is never half written."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch

from optgeom.errors import InvalidInputError
from optgeom.inputs import files

FORMAT = "optgeom-checkpoint"
VERSION = 1


def random_states() -> dict[str, Any]:
    """States of the global generators of torch, CUDA, numpy and Python."""
    kind, keys, position, has_gauss, gauss = np.random.get_state()  # noqa: NPY002 - the global one is what a resumed run must go on with
    version, internal, following = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": {
            "kind": kind,
            "keys": np.asarray(keys).tolist(),
            "rest": [int(position), int(has_gauss), float(gauss)],
        },
        "python": [version, list(internal), following],
    }


def set_random_states(states: dict[str, Any]) -> None:
    """Go on from `random_states`."""
    torch.set_rng_state(states["torch"])
    if states["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(states["cuda"])
    held = states["numpy"]
    position, has_gauss, gauss = held["rest"]
    np.random.set_state((held["kind"], np.array(held["keys"], dtype=np.uint32), position, has_gauss, gauss))  # noqa: NPY002
    version, internal, following = states["python"]
    random.setstate((version, tuple(internal), following))


def save(path: Path, content: dict[str, Any]) -> None:
    """Write `content`, of tensors and plain values only, in one step."""
    with files.atomic_path(path) as temporary:
        torch.save({"format": FORMAT, "version": VERSION, **content}, temporary)


def load(path: Path, run: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """Read a checkpoint of the same run.

    Parameters
    ----------
    path : Path
    run : dict
        What the run is, as it was saved under "run".
    device : torch.device
        For the tensors.

    Raises
    ------
    InvalidInputError
        No checkpoint, or one of another run: the first difference is named.
    """
    try:
        # Nothing but tensors and plain values is read, so a foreign file cannot run code.
        content = torch.load(path, map_location=device, weights_only=True)
        known = isinstance(content, dict) and content.get("format") == FORMAT
    except OSError as error:
        raise InvalidInputError(f"cannot read {path}: {error.strerror or error}") from error
    except Exception as error:
        raise InvalidInputError(
            f"{path} must be a checkpoint of optgeom; reading it failed ({type(error).__name__})"
        ) from error
    if not known or content.get("version") != VERSION:
        raise InvalidInputError(
            f"{path} must be a checkpoint of optgeom, version {VERSION}; it is not (start anew in another folder)"
        )
    difference = _difference(json.loads(content["run"]), json.loads(json.dumps(run)))
    if difference is not None:
        name, before, now = difference
        # The learning rate falls to 0 over the steps: with another number of them every step from the first would have
        # been another.
        why = "the learning rate follows their number; " if name == "steps" else ""
        remedy = f"{why}give {before!r}, or start anew in another folder"
        raise InvalidInputError(f"`{name}` must be as in the run to resume, {before!r}; got {now!r} ({remedy})")
    return dict(content)


def _difference(before: Any, now: Any, name: str = "run") -> tuple[str, Any, Any] | None:
    if isinstance(before, dict) and isinstance(now, dict):
        for key in [*before, *(key for key in now if key not in before)]:
            found = _difference(before.get(key), now.get(key), key)
            if found is not None:
                return found
        return None
    return None if before == now else (name, before, now)
