"""What is wrong in a CSV file that could not be read: a second, slower look that finds the line."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence

from optgeom.embeddings.readers.columns import Layout
from optgeom.embeddings.readers.text_vectors import size_of
from optgeom.errors import InvalidInputError
from optgeom.formatting import excerpt
from optgeom.inputs.tables import is_number


def find_faults(
    path: str, delimiter: str, columns: Sequence[str], skip: int, layout: Layout, size: int, reason: str
) -> InvalidInputError:
    """The error that names the first bad line and counts them all.

    Parameters
    ----------
    path, delimiter, columns, skip, layout, size
        As in `csv_table.CsvContent`; `size` 0 where the length of the vectors is not known yet.
    reason : str
        What the parser said, for faults that are not found here.
    """
    first, more = None, 0
    try:
        for number, cells in _lines(path, delimiter, skip):
            fault = _fault(cells, columns, layout, size)
            if fault and first is None:
                first = f"line {number} {fault}"
            elif fault:
                more += 1
    except (csv.Error, UnicodeDecodeError) as error:
        reason = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else str(error)
    if first is None:
        return InvalidInputError(
            f"{path}: the file cannot be read as a table: {' '.join(reason.split())} (save it again)"
        )
    others = f"so are {more} other lines: " if more else ""
    return InvalidInputError(f"{path}: {first} ({others}correct or drop {'them' if more else 'the line'})")


def _lines(path: str, delimiter: str, skip: int) -> Iterator[tuple[int, list[str]]]:
    """Rows with the number of their first line, from 1."""
    with open(path, encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter=delimiter)
        number = 1
        for cells in reader:
            if cells and reader.line_num > skip:
                yield number, cells
            number = reader.line_num + 1


def _fault(cells: list[str], columns: Sequence[str], layout: Layout, size: int) -> str | None:
    if len(cells) != len(columns):
        return f"must have {len(columns)} cells; got {len(cells)}"
    if not layout.whole:
        for name in layout.vectors:
            cell = cells[columns.index(name)].strip()
            if not is_number(cell):
                return f"must have a number in column {name!r}; got {_shown(cell)}"
        return None
    if not size:
        return None
    name = layout.vectors[0]
    cell = cells[columns.index(name)]
    found = size_of(cell)
    if found is None:
        hint = " (numpy shortened it, so that its numbers are lost)" if "..." in cell else ""
        return f"must have a vector in column {name!r}; got {_shown(cell)}{hint}"
    return (
        None
        if found == size
        else f"must have a vector of {size} numbers in column {name!r}, as the first row; got {found} numbers"
    )


def _shown(text: str) -> str:
    return excerpt(text) if text else "an empty cell"
