"""Record batches of pyarrow as rows, labels and group ids, and Parquet files."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from optgeom.embeddings.readers.file_source import Block
from optgeom.embeddings.readers.layout import Layout, Wanted, find_layout
from optgeom.embeddings.readers.values import as_rows, no_rows, unreadable
from optgeom.errors import InvalidInputError, MissingDependencyError
from optgeom.inputs.tables import is_number

_VECTOR = re.compile(r"\s*(?:\[\s*(.*?)\s*\]|\(\s*(.*?)\s*\)|(.*?))\s*", re.DOTALL)
_BETWEEN = re.compile(r"\s*,\s*|\s+")


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
    """Numbers in each vector of a column; -1 where a vector is missing."""
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    sizes = pc.fill_null(pc.list_value_length(column), -1)
    return np.asarray(sizes.to_numpy(zero_copy_only=False), dtype=np.int64)


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


# Pages are read through a buffer of this size: without it a whole column of a row group is in memory, often the whole
# file. `pyarrow.dataset` has a whole row group in memory even so: 710 to 840 MB for one of 160 MB, against 30 MB here.
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
        sizes = np.concatenate(parts)
        wrong = np.flatnonzero(sizes != self.size)
        row = int(wrong[0])
        got = "no vector" if sizes[row] < 0 else f"{sizes[row]} numbers"
        return InvalidInputError(
            f"{self.path}: all vectors of {name!r} must have the same length; got {self.size} numbers in row 0 and "
            f"{got} in row {row} "
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
        with open(path, "rb") as opened, pq.ParquetFile(opened, buffer_size=_BUFFER, pre_buffer=False) as file:
            yield file
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise InvalidInputError(
            f"{path}: it must be a Parquet file; it is another kind of file, or cut off (copy or save it again)"
        ) from error
    except OSError as error:
        raise unreadable(path, error) from error


def size_of(text: str) -> int | None:
    """How many numbers the vector in `text` has; None if it is not a vector."""
    match = _VECTOR.fullmatch(text)
    assert match is not None
    numbers = _BETWEEN.split(next(part for part in match.groups() if part is not None))
    return len(numbers) if all(map(is_number, numbers)) else None


def to_lists(texts: Any) -> Any:
    """A pyarrow column of texts as a column of lists of float64; ArrowInvalid if one of them is not a vector."""
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    texts = pc.utf8_trim_whitespace(texts)
    for opening, closing in ("[]", "()"):
        inside = pc.and_(pc.starts_with(texts, opening), pc.ends_with(texts, closing))
        texts = pc.if_else(inside, pc.utf8_trim_whitespace(pc.utf8_slice_codeunits(texts, 1, -1)), texts)
    # A comma and a space both separate, but two commas do not become one: a missing number stays an error.
    numbers = pc.split_pattern(pc.replace_substring_regex(texts, r"\s*,\s*|\s+", ","), ",")
    return pc.cast(numbers, pa.list_(pa.float64()))
