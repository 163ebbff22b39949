"""Where embeddings come from: rows in batches, with a label per row, from memory or from files larger than memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from optgeom.errors import InvalidInputError
from optgeom.formatting import of_source
from optgeom.inputs.labels import ClassNames


@dataclass(frozen=True, eq=False)
class Batch:
    """Consecutive rows of a source.

    Attributes
    ----------
    rows : (b, d) or (b, V, d)
        Embeddings as stored (float16, float32 or float64), not normalised; V views of one image, where the source has
        them.
    labels : (b,) or None
        Numbers or text, as stored; their meaning is given by `labels.ClassNames`.
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


def read_batch(
    batch: Batch, names: ClassNames, source: str
) -> tuple[npt.NDArray[Any], npt.NDArray[np.intp], npt.NDArray[Any] | None]:
    """Rows of a batch, (b, d) or (b, V, d), their running class codes, and group ids, where there are any.

    Raises
    ------
    InvalidInputError
        Rows that are not real numbers of at least one component; labels as `ClassNames.encode`; labels or group ids
        that are not one per row.
    """
    rows = np.asarray(batch.rows)
    of = of_source(source)
    if rows.dtype.kind not in "fiu":
        raise InvalidInputError(
            f"`embeddings` must be real numbers; got values of type {rows.dtype}{of} (convert them to float32)"
        )
    if rows.ndim not in (2, 3) or 0 in rows.shape[1:]:
        raise InvalidInputError(
            f"`embeddings` must be (n, d), or (n, views, d); got a batch of shape {rows.shape}{of} (one row per vector)"
        )
    codes = names.encode(batch.labels, batch.start)
    groups = None if batch.groups is None else np.asarray(batch.groups)
    for what, values in (("labels", codes), ("group_ids", groups)):
        if values is not None and len(values) != len(rows):
            raise InvalidInputError(
                f"`{what}` must have one entry per row; got {len(values)} for {len(rows)} rows{of} "
                "(check that both go together)"
            )
    return rows, codes, groups


def display_name(source: Source) -> str:
    """The name for messages, empty for what is a parameter (`embeddings`), which the message names anyway."""
    return "" if source.name.startswith("`") else source.name
