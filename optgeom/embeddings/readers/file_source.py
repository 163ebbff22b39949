"""A file as a source of batches, alone or as one of several shards."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from optgeom._checks import integer
from optgeom.embeddings.moments.source import Batch
from optgeom.embeddings.readers.values import as_rows, check_counts, counts_differ, no_rows
from optgeom.errors import InvalidInputError


class Block(NamedTuple):
    """Consecutive rows as a format gives them, of any number; see `Batch`."""

    rows: Any
    labels: npt.NDArray[Any] | None = None
    groups: npt.NDArray[Any] | None = None

    def part(self, start: int, stop: int) -> Block:
        """Rows from `start` up to `stop`."""
        if start == 0 and stop == len(self.rows):
            return self
        return Block(*(None if column is None else column[start:stop] for column in self))

    def pieces(self, rows: int, convert: Callable[[Any], npt.NDArray[Any]] = as_rows) -> Iterator[Block]:
        """`rows` rows at a time, converted when they are read, so that a memory map is never in memory as a whole."""
        for start in range(0, len(self.rows), rows):
            piece = self.part(start, min(start + rows, len(self.rows)))
            yield piece._replace(rows=convert(piece.rows))


class Content(Protocol):
    """What a format has to give.

    It holds a path and the figures of the header, never an open file, so that it can be pickled.

    Attributes
    ----------
    path : str
        The file.
    num_rows : int or None
        Rows in all, where the header tells.
    row_shape : tuple of int
        (d,) or (V, d).
    """

    @property
    def path(self) -> str: ...

    @property
    def num_rows(self) -> int | None: ...

    @property
    def row_shape(self) -> tuple[int, ...]: ...

    def blocks(self, rows: int) -> Iterator[Block]:
        """All rows in order; about `rows` at a time where the format lets one choose."""
        ...


@dataclass(eq=False)
class FileSource:
    """The rows of one file, with labels of its own or given apart.

    Attributes
    ----------
    content : Content
        The opened format.
    labels, groups : (n,) or None
        Given apart; they go before those in the file.
    """

    content: Content
    labels: npt.NDArray[Any] | None = None
    groups: npt.NDArray[Any] | None = None
    re_readable: bool = True
    name: str = field(init=False)
    num_rows: int | None = field(init=False)

    def __post_init__(self) -> None:
        self.name, self.num_rows = self.content.path, self.content.num_rows
        if self.num_rows is not None:
            self._check_counts(self.num_rows)

    @property
    def row_shape(self) -> tuple[int, ...]:
        """(d,) or (V, d)."""
        return self.content.row_shape

    def batches(self, rows: int) -> Iterator[Batch]:
        """Batches of `rows` rows, the last one with what is left, in order."""
        rows = integer("rows", rows, at_least=1)
        blocks = regroup(self.content.blocks(rows), rows)
        start = 0
        for block in blocks:
            stop = start + len(block.rows)
            if any(given is not None and len(given) < stop for given in (self.labels, self.groups)):
                self._check_counts(stop + sum(len(rest.rows) for rest in blocks))
            yield Batch(
                block.rows,
                block.labels if self.labels is None else self.labels[start:stop],
                block.groups if self.groups is None else self.groups[start:stop],
                start,
            )
            start = stop
        if start == 0:
            raise no_rows(self.name)
        self._check_counts(start)

    def _check_counts(self, rows: int) -> None:
        check_counts(f"{self.name}: ", self.labels, self.groups, rows)


def regroup(blocks: Iterable[Block], rows: int) -> Iterator[Block]:
    """Blocks of exactly `rows` rows and a last one with the rest.

    Blocks that have this size already are passed on uncopied.
    """
    waiting: list[Block] = []
    waiting_rows = 0
    for block in blocks:
        start, size = 0, len(block.rows)
        while start < size:
            stop = min(size, start + rows - waiting_rows)
            waiting.append(block.part(start, stop))
            waiting_rows += stop - start
            start = stop
            if waiting_rows == rows:
                yield _joined(waiting)
                waiting, waiting_rows = [], 0
    if waiting:
        yield _joined(waiting)


def _joined(blocks: list[Block]) -> Block:
    if len(blocks) == 1:
        return blocks[0]
    rows, labels, groups = zip(*blocks, strict=True)
    return Block(
        np.concatenate(rows), *(None if parts[0] is None else np.concatenate(parts) for parts in (labels, groups))
    )


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
                    f"{self.name}: all shards must have rows of the same shape; got {first.row_shape} in "
                    f"{first.name} and "
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
    """Cut one column into pieces for the shards; files that do not tell their number of rows are read once for it."""
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
