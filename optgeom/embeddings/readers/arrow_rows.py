"""Record batches of pyarrow -> rows, labels and group ids."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from optgeom.embeddings.readers.columns import Layout
from optgeom.embeddings.readers.file_source import Block
from optgeom.embeddings.readers.text_vectors import to_lists
from optgeom.embeddings.readers.values import as_rows
from optgeom.errors import InvalidInputError, MissingDependencyError


class RaggedError(Exception):
    """Vectors of a batch have another length than the first one of the file."""


def need_pyarrow(kind: str) -> None:
    """Refuse to go on without pyarrow."""
    try:
        import pyarrow  # type: ignore[import-untyped]  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError(
            f"reading {kind} needs pyarrow: pip install 'optgeom[io]' (or save the embeddings as .npy or .npz)"
        ) from error


def is_vector(kind: Any) -> bool:
    """Whether a pyarrow type is a list of numbers."""
    import pyarrow as pa

    types = pa.types
    listed = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return bool(listed and is_scalar(kind.value_type))


def is_scalar(kind: Any) -> bool:
    """Whether a pyarrow type is a number."""
    import pyarrow as pa

    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))


def to_block(path: str, batch: Any, layout: Layout, size: int, start: int) -> Block:
    """Rows of a record batch whose first row is row `start` of the file; `size` is the length of the vectors.

    Raises
    ------
    RaggedError
        A vector is missing or has another length.
    InvalidInputError
        A label or a group id is missing.
    """
    if layout.whole:
        rows = _whole(batch.column(layout.vectors[0]), size)
    else:
        rows = np.stack([as_rows(batch.column(name).to_numpy(zero_copy_only=False)) for name in layout.vectors], axis=1)
    labels, groups = (
        None if name is None else _column(path, what, batch.column(name), start)
        for what, name in (("label", layout.label), ("group id", layout.group))
    )
    return Block(rows, labels, groups)


def lengths(column: Any) -> npt.NDArray[np.int64]:
    """Numbers in each vector of a column; -1 where there is no vector."""
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    found = pc.fill_null(pc.list_value_length(column), -1)
    return np.asarray(found.to_numpy(zero_copy_only=False), dtype=np.int64)


def _whole(column: Any, size: int) -> npt.NDArray[Any]:
    import pyarrow as pa

    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = to_lists(column)
    if (lengths(column) != size).any():
        raise RaggedError
    return as_rows(column.flatten().to_numpy(zero_copy_only=False)).reshape(len(column), size)


def _column(path: str, what: str, column: Any, start: int) -> npt.NDArray[Any]:
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.null_count:
        row = start + int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        raise InvalidInputError(
            f"{path}: each row must have a {what}; row {row} has none (drop the row, or give it one)"
        )
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type) or pa.types.is_string_view(column.type):
        return np.array(column.to_pylist(), dtype=str)
    if what == "label" and is_vector(column.type):  # one-hot rows, perhaps: `ClassNames` judges them
        sizes = lengths(column)
        if (sizes == sizes[0]).all() and not column.flatten().null_count:
            return np.asarray(column.flatten().to_numpy(zero_copy_only=False)).reshape(len(column), int(sizes[0]))
    if not (is_scalar(column.type) or pa.types.is_boolean(column.type)):
        raise InvalidInputError(
            f"{path}: each {what} must be a number or text; got the type {column.type} (convert the column)"
        )
    return np.asarray(column.to_numpy(zero_copy_only=False))
