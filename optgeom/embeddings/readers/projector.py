"""The files of TensorBoard's embedding projector: `vectors.tsv` (or `tensors.tsv`) with `metadata.tsv` beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from optgeom.embeddings.readers.csv_table import open_csv
from optgeom.embeddings.readers.file_source import FileSource
from optgeom.embeddings.readers.layout import Wanted, check_named, listing
from optgeom.errors import InvalidInputError
from optgeom.inputs.tables import LABEL_COLUMNS, read_text

NAMES = ("vectors.tsv", "tensors.tsv")


def open_projector(path: str, wanted: Wanted) -> FileSource:
    """Count the vectors, which have no header line, and read the columns `wanted` of the metadata.

    Where labels come from elsewhere and no column is named, the metadata is not read.
    """
    content = open_csv(path, Wanted(labels_apart=True))
    with open(path, "rb") as file:
        content = replace(content, num_rows=sum(1 for line in file if line.strip()))
    metadata = Path(path).with_name("metadata.tsv")
    if not metadata.exists() or (wanted.labels_apart and not wanted.names):
        return FileSource(content)
    labels, groups = _metadata(metadata, path, content.num_rows or 0, wanted)
    return FileSource(content, labels, groups)


def _metadata(
    metadata: Path, vectors: str, rows: int, wanted: Wanted
) -> tuple[npt.NDArray[Any], npt.NDArray[Any] | None]:
    lines = read_text(metadata, "metadata file").removesuffix("\n").split("\n")
    table = [line.removesuffix("\r").split("\t") for line in lines]
    several = len(table[0]) > 1
    if len(table) != rows + several:
        kind = (
            "a header line and one line per vector, since it has several columns"
            if several
            else "one line per vector and no header line"
        )
        remedy = (
            "the metadata file of a single column has no header: remove it"
            if len(table) == rows + 1
            else "export both files again"
        )
        raise InvalidInputError(
            f"{metadata}: it must have {kind}; got {len(table)} lines for the {rows} vectors of {vectors} ({remedy})"
        )
    names = table.pop(0) if several else [wanted.label or "label"]
    for number, cells in enumerate(table, 1 + several):
        if len(cells) != len(names):
            raise InvalidInputError(
                f"{metadata}: line {number} must have {len(names)} cells; got {len(cells)} (no tabs within a cell)"
            )
    label = wanted.label or next((name for name in names if name.lower() in LABEL_COLUMNS), None)
    if label is None:
        raise InvalidInputError(
            f"{metadata}: the labels must be a column named {', '.join(LABEL_COLUMNS)}; got {listing(names)} "
            "(choose by `label_column`)"
        )
    check_named(str(metadata), names, wanted)

    def column(name: str) -> npt.NDArray[Any]:
        return np.array([cells[names.index(name)] for cells in table], dtype=str)

    return column(label), None if wanted.group is None else column(wanted.group)
