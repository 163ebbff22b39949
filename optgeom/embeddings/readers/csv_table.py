"""CSV and TSV files, block by block: numbered columns, vectors as text, or numbers without a header.

`pyarrow.csv` is used and not `pyarrow.dataset`, which takes 245 MB instead of 180 MB for a file of 143 MB and needs
the same options and the same search for the line at fault.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from optgeom.embeddings.readers.arrow_tables import RaggedError, need_pyarrow, size_of, to_block
from optgeom.embeddings.readers.file_source import Block
from optgeom.embeddings.readers.layout import Layout, Wanted, find_layout
from optgeom.embeddings.readers.values import no_rows, unreadable
from optgeom.errors import InvalidInputError
from optgeom.formatting import excerpt
from optgeom.inputs.tables import is_number

# Bytes parsed at once: a row must fit, and rows of 10^5 numbers do.
_BLOCK = 2**23
_DELIMITERS = ("\t", ",", ";")
_DECIMAL_COMMA = re.compile(r"\s*[+-]?\d*,\d+([eE][+-]?\d+)?\s*", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class CsvContent:
    """A CSV file with known columns, whose rows begin after `skip` lines; labels are text, as in all text files."""

    path: str
    delimiter: str
    columns: tuple[str, ...]
    skip: int
    layout: Layout
    size: int
    num_rows: int | None = None

    @property
    def row_shape(self) -> tuple[int, ...]:
        return (self.size,)

    def blocks(self, rows: int) -> Iterator[Block]:
        import pyarrow as pa  # type: ignore[import-untyped]

        start = 0
        try:
            for batch in self._stream():
                yield to_block(self.path, batch, self.layout, self.size, start)
                start += batch.num_rows
        except (pa.ArrowInvalid, RaggedError) as error:
            raise self._faults(str(error)) from error

    def first_row(self) -> dict[str, str]:
        """The cells of the first row, or an empty dict."""
        import pyarrow as pa

        try:
            batch = next(self._stream(), None)
        except pa.ArrowInvalid as error:
            raise self._faults(str(error)) from error
        return {} if batch is None or batch.num_rows == 0 else batch.slice(0, 1).to_pylist()[0]

    def _stream(self) -> Iterator[Any]:
        import pyarrow as pa
        import pyarrow.csv as arrow_csv  # type: ignore[import-untyped]

        types = dict.fromkeys(self.columns, pa.string())
        if not self.layout.whole:
            types |= dict.fromkeys(self.layout.vectors, pa.float64())
        with open(self.path, "rb") as file:
            try:
                reader = arrow_csv.open_csv(
                    file,
                    arrow_csv.ReadOptions(block_size=_BLOCK, column_names=list(self.columns), skip_rows=self.skip),
                    arrow_csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
                    # An empty cell is a fault, not a missing value: the line is named.
                    arrow_csv.ConvertOptions(
                        column_types=types, include_columns=self.layout.names, null_values=[], strings_can_be_null=False
                    ),
                )
            except pa.ArrowInvalid as error:
                # No row, or not even the end of a line, behind the header.
                if "Empty CSV" in str(error) or "Could not skip initial" in str(error):
                    return
                raise
            with reader:
                yield from reader

    def _faults(self, reason: str) -> InvalidInputError:
        """Error that names the first bad line and counts them all; `reason` is for faults that only pyarrow sees."""
        first, more = None, 0
        try:
            for number, cells in self._lines():
                fault = self._fault(cells)
                if fault and first is None:
                    first = f"line {number} {fault}"
                elif fault:
                    more += 1
        except (csv.Error, UnicodeDecodeError) as error:
            reason = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else str(error)
        if first is None:
            return InvalidInputError(
                f"{self.path}: the file cannot be read as a table: {' '.join(reason.split())} (save it again)"
            )
        others = f"so are {more} other lines: " if more else ""
        return InvalidInputError(f"{self.path}: {first} ({others}correct or drop {'them' if more else 'the line'})")

    def _lines(self) -> Iterator[tuple[int, list[str]]]:
        """Rows with the number of their first line, from 1."""
        with open(self.path, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter=self.delimiter)
            number = 1
            for cells in reader:
                if cells and reader.line_num > self.skip:
                    yield number, cells
                number = reader.line_num + 1

    def _fault(self, cells: list[str]) -> str | None:
        """What is wrong with a row."""
        if len(cells) != len(self.columns):
            return f"must have {len(self.columns)} cells; got {len(cells)}"
        if not self.layout.whole:
            for name in self.layout.vectors:
                cell = cells[self.columns.index(name)].strip()
                if not is_number(cell):
                    return f"must have a number in column {name!r}; got {_shown(cell)}"
            return None
        if not self.size:  # the length of the vectors is not known yet
            return None
        name = self.layout.vectors[0]
        cell = cells[self.columns.index(name)]
        length = size_of(cell)
        if length is None:
            hint = " (numpy shortened it, so that its numbers are lost)" if "..." in cell else ""
            return f"must have a vector in column {name!r}; got {_shown(cell)}{hint}"
        if length != self.size:
            return (
                f"must have a vector of {self.size} numbers in column {name!r}, as the first row; got {length} numbers"
            )
        return None


def open_csv(path: str, wanted: Wanted) -> CsvContent:
    """Read the first lines of a CSV or TSV file and find its columns.

    Parameters
    ----------
    path : str
        Separated by commas, or by tabs where the suffix is ``.tsv``; where line 1 has none of these, by tabs, commas or
        semicolons.
    wanted : Wanted
        What the user named.
    """
    need_pyarrow("CSV")
    delimiter = "\t" if path.lower().endswith(".tsv") else ","
    cells, skip = _first_cells(path, delimiter)
    if len(cells) == 1 and "[" not in cells[0]:
        # Files of Excel have semicolons in half of the world, and many a table with tabs is named .csv.
        delimiter = next((mark for mark in _DELIMITERS if mark in cells[0]), delimiter)
        cells, skip = _first_cells(path, delimiter)
    if all(is_number(cell.strip()) for cell in cells) and not _is_range(cells):
        if not wanted.labels_apart:
            raise InvalidInputError(
                f"{path}: line 1 must be a header with the names of the columns; got {len(cells)} numbers "
                "(name them embedding_0, embedding_1, ... and labels, or give `labels` apart if all columns are "
                "embeddings)"
            )
        names = tuple(str(number) for number in range(len(cells)))
        return CsvContent(
            path=path, delimiter=delimiter, columns=names, skip=0, layout=Layout(names, whole=False), size=len(names)
        )
    names = tuple(cell.strip() for cell in cells)
    probe = CsvContent(
        path=path, delimiter=delimiter, columns=names, skip=skip, layout=Layout(names, whole=True), size=0
    )
    first = probe.first_row()
    if not first:
        raise no_rows(path)
    _check_decimals(path, delimiter, [*names, *first.values()])
    sizes = {name: _text_size(cell) for name, cell in first.items()}
    layout = find_layout(
        path, names, wanted, lambda: [name for name in names if sizes[name]], lambda name: not sizes[name]
    )
    size = sizes[layout.vectors[0]] if layout.whole else len(layout.vectors)
    assert size is not None
    return replace(probe, layout=layout, size=size)


def _check_decimals(path: str, delimiter: str, cells: Iterable[str]) -> None:
    """Refuse decimal commas, of which each would pass for a vector of two numbers."""
    wrong = next((cell for cell in cells if delimiter == ";" and _DECIMAL_COMMA.fullmatch(cell)), None)
    if wrong is not None:
        raise InvalidInputError(
            f"{path}: numbers must have a decimal point; got {wrong.strip()!r} in row 0 (write points)"
        )


def _is_range(cells: list[str]) -> bool:
    """Whether the first line is the header 0, 1, 2, ... that pandas gives to columns without names."""
    return len(cells) > 1 and cells == [str(number) for number in range(len(cells))]


def _text_size(cell: str) -> int | None:
    """Numbers of a vector as text; None for other text and for a single bare number, which is a cell like any other."""
    size = size_of(cell)
    return None if size == 1 and is_number(cell.strip()) else size


def _first_cells(path: str, delimiter: str) -> tuple[list[str], int]:
    """The cells of the first line that is not empty, and its number from 1."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter=delimiter)
            cells = next((cells for cells in reader if cells), None)
            number = reader.line_num
    except OSError as error:
        raise unreadable(path, error) from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidInputError(
            f"cannot read the embeddings file {path}: it is not UTF-8 text (save it as text)"
        ) from error
    if cells is None:
        raise no_rows(path)
    return cells, number


def _shown(text: str) -> str:
    return excerpt(text) if text else "an empty cell"
