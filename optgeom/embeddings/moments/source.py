"""Where embeddings come from: rows in batches, with a label per row, from memory or from files larger than memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy.typing as npt


@dataclass(frozen=True, eq=False)
class Batch:
    """Consecutive rows of a source.

    Attributes
    ----------
    rows : (b, d) or (b, V, d)
        Embeddings as stored (float16, float32 or float64), not normalised; V views of one image, where the source has
        them.
    labels : (b,) or None
        Numbers or text, as stored; their meaning is given by `class_names.ClassNames`.
    groups : (b,) or None
        Id of the image that a row is a view of (any values; equal ids are one image), where views are rows.
    start : int
        Row number of the first row in the whole source, for messages.
    """

    rows: npt.NDArray[Any]
    labels: npt.NDArray[Any] | None
    groups: npt.NDArray[Any] | None = None
    start: int = 0


class Source(Protocol):
    """Embeddings and labels in batches.

    Attributes
    ----------
    name : str
        For messages: the path, or what the user passed.
    num_rows : int or None
        Rows in all (images, where a row holds V views), where it is known before reading.
    re_readable : bool
        Whether `batches` may be called again and gives the same rows: two passes are then possible.
    """

    name: str
    num_rows: int | None
    re_readable: bool

    def batches(self, rows: int) -> Iterator[Batch]:
        """Batches of at most `rows` rows, in order."""
        ...


def source_parts(source: Source) -> list[Source]:
    """The shards of a source, or the source itself where it has none."""
    shards = getattr(source, "shards", None)
    return list(shards()) if callable(shards) else [source]


def display_name(source: Source) -> str:
    """The name for messages, empty for what is a parameter (`embeddings`), which the message names anyway."""
    return "" if source.name.startswith("`") else source.name
