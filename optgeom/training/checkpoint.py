"""What a run leaves on disk: a checkpoint with all that the next step depends on, and a log of JSON lines."""

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


def get_random_states() -> dict[str, Any]:
    """States of the global generators of torch, CUDA, numpy and Python."""
    # The global generator of numpy is what a resumed run must go on with.
    kind, keys, position, has_gauss, gauss = np.random.get_state()  # noqa: NPY002
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
    """Go on from `get_random_states`."""
    torch.set_rng_state(states["torch"])
    if states["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(states["cuda"])
    legacy = states["numpy"]
    np.random.set_state((legacy["kind"], np.array(legacy["keys"], dtype=np.uint32), *legacy["rest"]))  # noqa: NPY002
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
        Not a checkpoint, or one of another run: the first difference is named.
    """
    try:
        # Nothing but tensors and plain values is read, so a foreign file cannot run code.
        content = torch.load(path, map_location=device, weights_only=True)
        known = isinstance(content, dict) and content.get("format") == FORMAT
    except OSError as error:
        raise InvalidInputError(f"cannot read {path}: {error.strerror or error} (give the folder of a run)") from error
    except Exception as error:
        raise InvalidInputError(
            f"{path} must be a checkpoint of optgeom; reading it failed with {type(error).__name__} "
            "(start anew in another folder)"
        ) from error
    if not known or content.get("version") != VERSION:
        raise InvalidInputError(
            f"{path} must be a checkpoint of optgeom, version {VERSION}; it is not (start anew in another folder)"
        )
    difference = _first_difference(json.loads(content["run"]), json.loads(json.dumps(run)))
    if difference is not None:
        name, before, now = difference
        # The learning rate falls to 0 over the steps: with another number of them, every step from the first would have
        # been another.
        why = "the learning rate follows their number; " if name == "steps" else ""
        remedy = f"{why}give {before!r}, or start anew in another folder"
        raise InvalidInputError(f"`{name}` must be as in the run to resume, {before!r}; got {now!r} ({remedy})")
    return dict(content)


def _first_difference(before: Any, now: Any, name: str = "run") -> tuple[str, Any, Any] | None:
    if isinstance(before, dict) and isinstance(now, dict):
        for key in [*before, *(key for key in now if key not in before)]:
            difference = _first_difference(before.get(key), now.get(key), key)
            if difference is not None:
                return difference
        return None
    return None if before == now else (name, before, now)


class TrainingLog:
    """Records with a "step", one JSON object per line, written as they come and kept in `records`.

    Parameters
    ----------
    path : Path, optional
        File of the log; without one it stays in memory.
    step : int
        Steps that the run has already done. Lines of later steps are dropped, since the run that wrote them ended after
        its last checkpoint and the resumed one does these steps again. A line that was cut off while it was written is
        dropped too.
    """

    def __init__(self, path: Path | None, step: int = 0) -> None:
        self.path = path
        self.records: list[dict[str, Any]] = []
        if path is None:
            return
        if step > 0 and path.exists():
            self.records = [record for record in read_log(path) if record["step"] <= step]
        files.write_text(path, "".join(json.dumps(record) + "\n" for record in self.records))

    def write(self, record: dict[str, Any]) -> None:
        """Append a line; the operating system has it when this returns."""
        self.records.append(record)
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record, allow_nan=False) + "\n")


def read_log(path: Path) -> list[dict[str, Any]]:
    """The records of a log, up to the first line that is not a record."""
    records: list[dict[str, Any]] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            break
        if not isinstance(record, dict) or "step" not in record:
            break
        records.append(record)
    return records
