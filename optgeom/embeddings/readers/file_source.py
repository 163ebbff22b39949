"""A file as a `Source`: what a format has to give, batches of equal size, and labels given apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from optgeom._checks import integer
from optgeom.embeddings.moments.source import Batch
from optgeom.embeddings.readers.values import counts_differ, no_rows


class Block(NamedTuple):
    """Consecutive rows as a format gives them, of any number; see `Batch`."""

    rows: npt.NDArray[Any]
    labels: npt.NDArray[Any] | None = None
    groups: npt.NDArray[Any] | None = None


class Content(Protocol):
    """What a format has to give. It holds a path and what the header says, never an open file, so that it can be
    pickled.

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
            for what, given in (("`labels`", self.labels), ("`group_ids`", self.groups)):
                if given is not None and len(given) != self.num_rows:
                    raise counts_differ(f"{self.name}: {what}", len(given), self.num_rows)

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
            for what, given in (("`labels`", self.labels), ("`group_ids`", self.groups)):
                if given is not None and len(given) < stop:
                    raise counts_differ(
                        f"{self.name}: {what}", len(given), stop + sum(len(rest.rows) for rest in blocks)
                    )
            yield Batch(
                block.rows,
                block.labels if self.labels is None else self.labels[start:stop],
                block.groups if self.groups is None else self.groups[start:stop],
                start,
            )
            start = stop
        if start == 0:
            raise no_rows(self.name)
        for what, given in (("`labels`", self.labels), ("`group_ids`", self.groups)):
            if given is not None and len(given) > start:
                raise counts_differ(f"{self.name}: {what}", len(given), start)


def regroup(blocks: Iterable[Block], rows: int) -> Iterator[Block]:
    """Blocks of exactly `rows` rows and a last one with the rest.

    Blocks that have this size already are passed on uncopied.
    """
    waiting: list[Block] = []
    held = 0
    for block in blocks:
        start, size = 0, len(block.rows)
        while start < size:
            stop = min(size, start + rows - held)
            waiting.append(_part(block, start, stop))
            held += stop - start
            start = stop
            if held == rows:
                yield _joined(waiting)
                waiting, held = [], 0
    if waiting:
        yield _joined(waiting)


def _part(block: Block, start: int, stop: int) -> Block:
    if start == 0 and stop == len(block.rows):
        return block
    labels, groups = (None if part is None else part[start:stop] for part in block[1:])
    return Block(block.rows[start:stop], labels, groups)


def _joined(blocks: list[Block]) -> Block:
    if len(blocks) == 1:
        return blocks[0]
    rows, labels, groups = zip(*blocks, strict=True)
    return Block(
        np.concatenate(rows), *(None if parts[0] is None else np.concatenate(parts) for parts in (labels, groups))
    )
