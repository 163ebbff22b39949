"""Tables of numeric labels, a row a sample, and which of their columns are labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SHOWN_NAMES = 5
# Headings of columns that number or name the samples; pandas leaves that of its index empty.
NO_LABELS = frozenset(
    {"", "id", "ids", "idx", "index", "row", "path", "file", "filename", "image_id", "sample_id", "unnamed: 0"}
)


@dataclass(frozen=True)
class LabelTable:
    """Labels as numbers.

    Attributes
    ----------
    values : (n,) or (n, p) array
    columns : tuple of str
        Headings of the columns taken; empty where the file has none.
    """

    values: Any
    columns: tuple[str, ...] = ()

    @property
    def note(self) -> str | None:
        """What is said where several columns of a text file count as labels."""
        if len(self.columns) < 2:
            return None
        more = f" and {len(self.columns) - SHOWN_NAMES} more" if len(self.columns) > SHOWN_NAMES else ""
        named = ", ".join(self.columns[:SHOWN_NAMES])
        return f"labels: {len(self.columns)} columns, {named}{more} (--label-column NAME takes some of them)"


def read_label_table(path: Path, wanted: Sequence[str] = ()) -> LabelTable:
    """Read an .npy file, or text with commas or blanks between numbers and perhaps a header.

    Parameters
    ----------
    path : Path
    wanted : sequence of str
        Headings of the columns that are labels; all columns by default.

    Raises
    ------
    InvalidInputError
        The file cannot be read, holds what is no number, lacks a wanted column, or has one that names the samples and
        none is wanted.
    """
    import numpy as np

    from optgeom.errors import InvalidInputError
    from optgeom.inputs import numpy_files

    try:
        if path.suffix.lower() == ".npy":
            if wanted:
                raise InvalidInputError(f"--label-column needs a table with headings; got {path} (slice the array)")
            with open(path, "rb") as file:
                return LabelTable(numpy_files.read_array(file))
        # An empty cell between commas must not let its neighbours move up.
        lines = [line for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
        rows = [[cell.strip() for cell in line.split(",")] if "," in line else line.split() for line in lines]
        header = rows.pop(0) if rows and not any(map(is_number, rows[0])) else []
        for number, row in enumerate(rows):
            if len(row) != len(rows[0]):
                raise ValueError(f"row {number} has {len(row)} cells, row 0 has {len(rows[0])}")
        chosen = _chosen(header, wanted, path)
        if chosen:
            if rows and len(rows[0]) != len(header):
                raise ValueError(f"row 0 has {len(rows[0])} cells, the header has {len(header)}")
            rows = [[row[place] for place in chosen] for row in rows]
        for number, row in enumerate(rows):
            for cell in row:
                if not is_number(cell):
                    raise ValueError(f"row {number} has {cell!r}")
        named = (
            [header[place] for place in chosen]
            if chosen
            else [f"column {place + 1}" for place in range(len(rows[0]) if rows else 0)]
        )
        return LabelTable(np.array([[float(cell) for cell in row] for row in rows]), tuple(named))
    except (OSError, ValueError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(
            f"`labels` must be numbers, a row a sample, for this scheme; cannot read {path} ({error})"
        ) from error


def _chosen(header: Sequence[str], wanted: Sequence[str], path: Path) -> list[int]:
    """Places of the columns that are labels; none for a file without a header."""
    from optgeom.errors import InvalidInputError

    if wanted:
        for name in wanted:
            if header.count(name) != 1:
                held = ", ".join(header[:SHOWN_NAMES]) or "no header"
                raise InvalidInputError(f"--label-column must name one column of {path}; got {name!r} (it has {held})")
        return [header.index(name) for name in wanted]
    naming = [name for name in header if name.lower() in NO_LABELS]
    others = [name for name in header if name not in naming]
    if naming and others:
        choice = " ".join(f"--label-column {name}" for name in others[:SHOWN_NAMES])
        raise InvalidInputError(
            f"`labels` must be columns of labels; got {naming[0]!r} in {path}, which seems to name the samples (say which are: {choice})"
        )
    return list(range(len(header)))


def is_number(text: str) -> bool:
    """Whether a cell is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True
