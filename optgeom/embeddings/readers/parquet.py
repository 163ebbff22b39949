"""Parquet files, a few rows at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from optgeom.embeddings.readers.arrow_rows import RaggedError, is_scalar, is_vector, lengths, need_pyarrow, to_block
from optgeom.embeddings.readers.columns import Layout, find_layout
from optgeom.embeddings.readers.file_source import Block
from optgeom.embeddings.readers.names import Wanted
from optgeom.embeddings.readers.values import no_rows, unreadable
from optgeom.errors import InvalidInputError

# Pages are read through a buffer of this size: without it a whole column of a row group is in memory, often the whole
# file.
_BUFFER = 2**16


@dataclass(frozen=True)
class ParquetContent:
    """A Parquet file whose columns were found."""

    path: str
    layout: Layout
    num_rows: int
    size: int

    @property
    def row_shape(self) -> tuple[int, ...]:
        return (self.size,)

    def blocks(self, rows: int) -> Iterator[Block]:
        start = 0
        with _opened(self.path) as file:
            for batch in file.iter_batches(batch_size=rows, columns=self.layout.names):
                try:
                    yield to_block(self.path, batch, self.layout, self.size, start)
                except RaggedError:
                    raise self._ragged() from None
                start += batch.num_rows

    def _ragged(self) -> InvalidInputError:
        """The first vector of another length than the first, and how many there are in the whole file."""
        name = self.layout.vectors[0]
        with _opened(self.path) as file:
            parts = [lengths(batch.column(name)) for batch in file.iter_batches(columns=[name])]
        found = np.concatenate(parts)
        wrong = np.flatnonzero(found != self.size)
        row = int(wrong[0])
        got = "no vector" if found[row] < 0 else f"{found[row]} numbers"
        return InvalidInputError(
            f"{self.path}: all vectors of {name!r} must have the same length; got {self.size} numbers in row 0 and {got} in row {row} "
            f"(this and {wrong.size - 1} other rows differ from row 0: drop or recompute them)"
        )


def open_parquet(path: str, wanted: Wanted) -> ParquetContent:
    """Read the footer of a Parquet file and find its columns."""
    need_pyarrow("Parquet")
    with _opened(path) as file:
        schema = file.schema_arrow
        kinds = dict(zip(schema.names, schema.types, strict=True))
        layout = find_layout(
            path,
            schema.names,
            wanted,
            lambda: [name for name in kinds if is_vector(kinds[name])],
            lambda name: is_scalar(kinds[name]),
        )
        num_rows = file.metadata.num_rows
        if num_rows == 0:
            raise no_rows(path)
        size = len(layout.vectors)
        if layout.whole:
            first = next(file.iter_batches(batch_size=1, columns=list(layout.vectors)), None)
            if first is None:
                raise no_rows(path)
            size = int(lengths(first.column(layout.vectors[0]))[0])
            if size < 1:
                raise InvalidInputError(
                    f"{path}: each row must have a vector in {layout.vectors[0]!r}; row 0 has none (drop the row)"
                )
    return ParquetContent(path, layout, num_rows, size)


@contextlib.contextmanager
def _opened(path: str) -> Iterator[Any]:
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    try:
        with open(path, "rb") as held, pq.ParquetFile(held, buffer_size=_BUFFER, pre_buffer=False) as file:
            yield file
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise InvalidInputError(
            f"{path}: it must be a Parquet file; it is none, or cut off (copy or save it again)"
        ) from error
    except OSError as error:
        raise unreadable(path, error) from error
