"""The log of a run: one JSON object a line, one line a logged step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from optgeom.inputs import files


class TrainingLog:
    """Lines with a "step", written as they come and kept in `records`.

    Parameters
    ----------
    path : Path, optional
        File of the log; without one it is only kept in memory.
    step : int
        Steps that the run has already done. Lines of later steps are dropped: the run that wrote them was ended after
        its last checkpoint, and the resumed one does these steps again. So is a line that was cut off while it was
        written.
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
        """Append a line; it is with the system when this returns."""
        self.records.append(record)
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record, allow_nan=False) + "\n")


def read_log(path: Path) -> list[dict[str, Any]]:
    """The records of a log, up to the first line that is none."""
    found: list[dict[str, Any]] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            break
        if not isinstance(record, dict) or "step" not in record:
            break
        found.append(record)
    return found
