"""Which arrays or columns of a file are the vectors, the labels and the group ids."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optgeom.embeddings.readers.values import SHAPES, check_embeddings, counts_differ
from optgeom.errors import InvalidInputError
from optgeom.formatting import first_of
from optgeom.inputs.tables import LABEL_COLUMNS

PAIRS = (("x", "y"), ("embeddings", "labels"), ("features", "targets"), ("data", "targets"))
VECTORS = ("x", "embeddings", "features", "data", "embedding", "feature", "feats", "vectors", "vector")


@dataclass(frozen=True)
class Header:
    """Shape and type of an array that is not read yet; a list has the type of its entries."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class OfHeader:
    """A content whose rows are counted in the header of its array."""

    header: Header

    @property
    def num_rows(self) -> int:
        return self.header.shape[0]

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self.header.shape[1:]


@dataclass(frozen=True)
class Wanted:
    """Names that the user gave, for arrays or columns; None where they are to be found.

    With `labels_apart`, labels come from elsewhere: a text file without a header then holds only numbers of the
    embeddings.
    """

    vector: str | None = None
    label: str | None = None
    group: str | None = None
    labels_apart: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The names that were given."""
        return tuple(name for name in (self.vector, self.label, self.group) if name is not None)


@dataclass(frozen=True)
class Chosen:
    """Names of the arrays to read."""

    vector: str
    label: str | None
    group: str | None


def choose(path: str, arrays: Mapping[str, Header], wanted: Wanted) -> Chosen:
    """Choose by name, and by shape where no name is known; check what can be checked before reading.

    Parameters
    ----------
    path : str
        For messages.
    arrays : mapping of str to Header
        All arrays of the file.
    wanted : Wanted
        What the user named.
    """
    lower = {name.lower(): name for name in arrays}
    vector, label = _pair(lower) if wanted.vector is None and wanted.label is None else (None, None)
    vector = wanted.vector or vector or _vector(path, arrays, lower)
    label = (
        wanted.label
        or label
        or next((lower[word] for word in LABEL_COLUMNS if word in lower and lower[word] != vector), None)
    )
    for parameter, name in (("vector_column", vector), ("label_column", label), ("group_column", wanted.group)):
        if name is not None and name not in arrays:
            raise InvalidInputError(
                f"{path}: `{parameter}` must be an array of the file; got {name!r} among {listing(arrays)} (name one)"
            )
    header = arrays[vector]
    check_embeddings(
        f"{path}: the array {vector!r}" if vector else f"{path}: the embeddings", header.shape, header.dtype
    )
    for what, name in (("the labels", label), ("the groups", wanted.group)):
        if name is None:
            continue
        if arrays[name].dtype.hasobject:
            raise InvalidInputError(
                f"{path}: {what} {name!r} must be numbers or text; got Python objects, which need pickle and are "
                "never unpickled "
                "(save y.astype(str) or y.astype(int) instead)"
            )
        length = arrays[name].shape[0] if arrays[name].shape else 0
        if length != header.shape[0]:
            raise counts_differ(f"{path}: {what} {name!r}", length, header.shape[0])
    return Chosen(vector, label, wanted.group)


def label_shaped(shapes: Mapping[str, tuple[int, ...]]) -> list[str]:
    """Arrays that may be labels: columns, or, where there is none, tables, which may be (n, 1) or one-hot."""
    columns = [name for name, shape in shapes.items() if len(shape) == 1]
    return columns or [name for name, shape in shapes.items() if len(shape) == 2]


def listing(names: Mapping[str, Header] | list[str]) -> str:
    """Names for a message, those of arrays with their shapes."""
    shown = [f"{name} {names[name].shape}" if isinstance(names, Mapping) else name for name in names]
    return first_of(shown, 10) or "nothing"


def _pair(lower: Mapping[str, str]) -> tuple[str | None, str | None]:
    return next(((lower[x], lower[y]) for x, y in PAIRS if x in lower and y in lower), (None, None))


def _vector(path: str, arrays: Mapping[str, Header], lower: Mapping[str, str]) -> str:
    known = [lower[word] for word in VECTORS if word in lower]
    if len(known) == 1 or len(arrays) == 1:
        return (known or list(arrays))[0]
    tables = known or [
        name for name, header in arrays.items() if len(header.shape) in (2, 3) and header.dtype.kind in "fiub"
    ]
    if len(tables) == 1:
        return tables[0]
    if not tables:
        raise InvalidInputError(
            f"{path}: the embeddings must be an array of shape {SHAPES}; got {listing(arrays)} (save one as `X`)"
        )
    raise InvalidInputError(
        f"{path}: the embeddings must be one array; got several that could be: "
        f"{listing({name: arrays[name] for name in tables})} "
        "(choose by `vector_column`, or name it `X`)"
    )


_NUMBERED = re.compile(r"(.*?)([0-9]{1,9})", re.DOTALL)


@dataclass(frozen=True)
class Layout:
    """Columns to read.

    Attributes
    ----------
    vectors : tuple of str
        One column that holds whole vectors, or one column for each dimension, in order.
    whole : bool
        Which of the two.
    label, group : str or None
        Columns of labels and of group ids.
    """

    vectors: tuple[str, ...]
    whole: bool
    label: str | None = None
    group: str | None = None

    @property
    def names(self) -> list[str]:
        """All columns to read, each once."""
        return list(dict.fromkeys([*self.vectors, *(name for name in (self.label, self.group) if name is not None)]))


def find_layout(
    path: str, names: Sequence[str], wanted: Wanted, whole: Callable[[], list[str]], numeric: Callable[[str], bool]
) -> Layout:
    """Find the columns of a table.

    Parameters
    ----------
    path : str
        For messages.
    names : sequence of str
        All columns.
    wanted : Wanted
        What the user named; the vector by its column or by the prefix of its columns.
    whole : callable
        Gives the columns that hold whole vectors.
    numeric : callable
        Whether a column may be one dimension of a vector.
    """
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise InvalidInputError(f"{path}: column names must be all different; got {twice[0]!r} twice (rename one)")
    check_named(path, names, wanted)
    lower = {name.lower(): name for name in reversed(names)}
    label = wanted.label or next((lower[word] for word in LABEL_COLUMNS if word in lower), None)
    wide = _wide([name for name in names if name not in (label, wanted.group) and numeric(name)])
    if wanted.vector is not None:
        if wanted.vector in wide:
            return Layout(_ordered(path, wanted.vector, wide[wanted.vector]), False, label, wanted.group)
        if wanted.vector in whole():
            return Layout((wanted.vector,), True, label, wanted.group)
        raise InvalidInputError(
            f"{path}: `vector_column` must be a column of vectors, or the part before the number of numbered columns; "
            f"got {wanted.vector!r} among {listing(list(names))} (name one)"
        )
    prefixes = [prefix for prefix, columns in wide.items() if len(columns) > 1]
    vectors = [name for name in whole() if name not in (label, wanted.group)]
    if len(prefixes) + len(vectors) == 1:
        columns = _ordered(path, prefixes[0], wide[prefixes[0]]) if prefixes else tuple(vectors)
        return Layout(columns, not prefixes, label, wanted.group)
    if not prefixes and not vectors:
        raise InvalidInputError(
            f"{path}: the embeddings must be a column of vectors, or numbered columns such as embedding_0, "
            "embedding_1; "
            f"got the columns {listing(list(names))} (rename the columns)"
        )
    candidates = [f"{prefix}0.. ({len(wide[prefix])} columns)" for prefix in prefixes] + vectors
    raise InvalidInputError(
        f"{path}: the embeddings must be one vector per row; got several that could be: {listing(candidates)} "
        "(choose by `vector_column`: "
        f"{' or '.join(map(repr, [*prefixes, *vectors][:3]))})"
    )


def check_named(path: str, names: Sequence[str], wanted: Wanted) -> None:
    """Refuse label and group columns that are not there."""
    for parameter, name in (("label_column", wanted.label), ("group_column", wanted.group)):
        if name is not None and name not in names:
            columns = listing(list(names))
            raise InvalidInputError(
                f"{path}: `{parameter}` must be a column of the file; got {name!r} among {columns} (name one)"
            )


def _wide(names: Sequence[str]) -> dict[str, dict[int, list[str]]]:
    """Prefix -> number -> columns that have this prefix and number."""
    wide: dict[str, dict[int, list[str]]] = {}
    for name in names:
        if match := _NUMBERED.fullmatch(name):
            wide.setdefault(match[1], {}).setdefault(int(match[2]), []).append(name)
    return wide


def _ordered(path: str, prefix: str, columns: dict[int, list[str]]) -> tuple[str, ...]:
    """The columns by number, which must run from 0 or 1 without a gap."""
    twice = next((names for names in columns.values() if len(names) > 1), None)
    if twice:
        raise InvalidInputError(f"{path}: each dimension must be one column; got {' and '.join(twice)} (drop one)")
    first, last = min(columns), max(columns)
    missing = next((number for number in range(min(first, 1), last) if number not in columns), None)
    if missing is not None:
        raise InvalidInputError(
            f"{path}: the columns {prefix}{first} to {prefix}{last} must begin with 0 or 1 and have no gap; "
            f"got no {prefix}{missing} (add it)"
        )
    return tuple(columns[number][0] for number in sorted(columns))
