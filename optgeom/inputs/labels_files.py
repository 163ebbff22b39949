"""Files of labels, one label a row."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from optgeom.errors import InvalidInputError
from optgeom.inputs import numpy_files
from optgeom.inputs.counts_files import csv_rows, is_number, load_json, read_text

COLUMNS = ("label", "labels", "target", "targets", "y", "class")
_KINDS = ".npy, .npz, .csv, .tsv, .txt or .json"


def read_labels(path: str | os.PathLike[str]) -> npt.NDArray[Any]:
    """Read a column of labels.

    Parameters
    ----------
    path : str or path-like
        By suffix: ``.npy``; ``.npz`` with an array ``label``, ``labels``, ``target``, ``targets``, ``y`` or ``class``,
        or with a single one-dimensional array; ``.csv`` or ``.tsv`` with a column of one of these names, or with a
        single column; ``.txt`` with one label a line; ``.json`` with a list. A single column has a header only if its
        first line is one of these names. Nothing is unpickled.

    Returns
    -------
    ndarray of shape (n,)
        Numbers from binary files and JSON, text from the others; two-dimensional arrays are returned as they are.
        Missing values are judged by `ClassDistribution.from_labels`.

    Raises
    ------
    InvalidInputError
        The file cannot be read, holds pickled objects, or its column of labels cannot be told.
    """
    suffix = Path(path).suffix.lower()
    if suffix in (".npy", ".npz"):
        return _binary(path)
    if suffix == ".json":
        content = load_json(path, read_text(path, "labels file"))
        if not isinstance(content, list):
            raise InvalidInputError(
                f"{path}: a JSON labels file must be a list with one label a row; got {type(content).__name__}"
            )
        return listed(content)
    if suffix in (".csv", ".tsv"):
        return _table(path, read_text(path, "labels file"))
    if suffix == ".txt":
        return _lines(path, read_text(path, "labels file"))
    raise InvalidInputError(
        f"{path}: a labels file must be {_KINDS}; got the suffix {suffix!r} (save the labels in one of these)"
    )


def listed(content: list[Any]) -> npt.NDArray[Any]:
    """A list of labels as an array; mixed kinds stay objects."""
    # Mixed and ragged lists are kept as objects, so that the check of the labels can name the row.
    kinds = {type(label) for label in content}
    if len(kinds) == 1 and kinds <= {int, str, float, bool}:
        return np.array(content)
    array = np.empty(len(content), dtype=object)
    array[:] = content
    return array


def _binary(path: str | os.PathLike[str]) -> npt.NDArray[Any]:
    try:
        with open(path, "rb") as file, numpy_files.opened(file) as loaded:
            if isinstance(loaded, np.ndarray):
                return loaded
            named = [key for key in COLUMNS if key in loaded]
            if named:
                return loaded[named[0]]
            columns = [key for key in loaded if loaded[key].ndim == 1]
            if len(columns) == 1:
                return loaded[columns[0]]
            held = ", ".join(loaded) or "nothing"
    except OSError as error:
        raise InvalidInputError(f"cannot read the labels file {path}: {error.strerror or error}") from error
    except ValueError as error:
        if "pickle" in str(error):
            raise InvalidInputError(
                f"{path}: labels must be numbers or text; got Python objects, which need pickle and are never unpickled "
                "(save labels.astype(str) or labels.astype(int) instead)"
            ) from error
        raise InvalidInputError(
            f"cannot read the labels file {path}: {numpy_files.reason(error)} (save it again)"
        ) from error
    raise InvalidInputError(
        f"{path}: the labels must be the array `labels` or the only one-dimensional array; got {held} (rename it)"
    )


def _table(path: object, text: str) -> npt.NDArray[Any]:
    rows = csv_rows(path, text)
    if not rows:
        raise InvalidInputError(f"{path}: a labels file must have at least one row; got an empty file")
    header = [cell.lower() for cell in rows[0][1]]
    width, column = len(header), 0
    found = [header.index(word) for word in COLUMNS if word in header]
    if found:
        column, rows = found[0], rows[1:]
    elif width > 1:
        raise InvalidInputError(
            f"{path}: the labels must be a column named {', '.join(COLUMNS)}, or the only column; "
            f"got {', '.join(rows[0][1][:8])} (rename the column)"
        )
    elif not is_number(header[0]) and len(rows) > 1 and all(is_number(cells[0]) for _, cells in rows[1:]):
        rows = rows[1:]
    for number, cells in rows:
        if len(cells) != width:
            raise InvalidInputError(
                f"{path}: line {number} must have {width} cells, as the first; got {len(cells)} (quote commas)"
            )
    return np.array([cells[column] for _, cells in rows], dtype=str)


def _lines(path: object, text: str) -> npt.NDArray[Any]:
    lines = text.rstrip().splitlines()
    for number, line in enumerate(lines, 1):
        # A line left out would shift all labels after it against their embeddings.
        if not line.strip():
            raise InvalidInputError(
                f"{path}: line {number} must be a label; got an empty line (one label a line, in row order)"
            )
    return np.array([line.strip() for line in lines], dtype=str)
