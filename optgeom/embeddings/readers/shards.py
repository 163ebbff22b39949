"""Several files of one kind as one source."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy.typing as npt

from optgeom.embeddings.moments.source import Batch
from optgeom.embeddings.readers.file_source import FileSource
from optgeom.embeddings.readers.values import counts_differ
from optgeom.errors import InvalidInputError


@dataclass(eq=False)
class ShardedSource:
    """Files one after the other.

    Attributes
    ----------
    name : str
        The folder or the pattern.
    parts : tuple of FileSource
        In natural order.
    """

    name: str
    parts: tuple[FileSource, ...]
    re_readable: bool = True
    num_rows: int | None = field(init=False)

    def __post_init__(self) -> None:
        first = self.parts[0]
        for part in self.parts[1:]:
            if part.row_shape != first.row_shape:
                raise InvalidInputError(
                    f"{self.name}: all shards must have rows of the same shape; got {first.row_shape} in {first.name} and "
                    f"{part.row_shape} in {part.name} (leave out the shards of another model)"
                )
        sizes = [part.num_rows for part in self.parts if part.num_rows is not None]
        self.num_rows = sum(sizes) if len(sizes) == len(self.parts) else None

    @property
    def row_shape(self) -> tuple[int, ...]:
        """(d,) or (V, d)."""
        return self.parts[0].row_shape

    def shards(self) -> tuple[FileSource, ...]:
        """The files as sources of their own, which workers may read side by side."""
        return self.parts

    def batches(self, rows: int) -> Iterator[Batch]:
        """Batches of at most `rows` rows, in order; each shard begins a new one."""
        start = 0
        for part in self.parts:
            stop = start
            for batch in part.batches(rows):
                stop = start + batch.start + len(batch.rows)
                yield replace(batch, start=start + batch.start)
            start = stop


def natural_key(path: str) -> list[Any]:
    """Sort key that puts shard-2 before shard-10."""
    return [
        [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"([0-9]+)", step)]
        for step in Path(path).parts
    ]


def deal_out(what: str, values: npt.NDArray[Any], parts: Sequence[FileSource]) -> list[npt.NDArray[Any]]:
    """One column for all shards in order -> the piece of each.

    Files that do not tell their number of rows are read once for it.
    """
    sizes = [
        part.num_rows if part.num_rows is not None else sum(len(batch.rows) for batch in part.batches(4096))
        for part in parts
    ]
    if sum(sizes) != len(values):
        raise counts_differ(what, len(values), sum(sizes))
    pieces, start = [], 0
    for size in sizes:
        pieces.append(values[start : start + size])
        start += size
    return pieces
