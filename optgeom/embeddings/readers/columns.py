"""Which columns of a table are the vector, the label and the group id."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from optgeom.embeddings.readers.names import Wanted, listing
from optgeom.errors import InvalidInputError
from optgeom.inputs.tables import LABEL_COLUMNS

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
    label: str | None
    group: str | None

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
            f"{path}: the embeddings must be a column of vectors, or numbered columns such as embedding_0, embedding_1; "
            f"got the columns {listing(list(names))} (rename the columns)"
        )
    found = [f"{prefix}0.. ({len(wide[prefix])} columns)" for prefix in prefixes] + vectors
    raise InvalidInputError(
        f"{path}: the embeddings must be one vector a row; got several that could be: {listing(found)} (choose by `vector_column`: "
        f"{' or '.join(map(repr, [*prefixes, *vectors][:3]))})"
    )


def check_named(path: str, names: Sequence[str], wanted: Wanted) -> None:
    """Refuse label and group columns that are not there."""
    for parameter, name in (("label_column", wanted.label), ("group_column", wanted.group)):
        if name is not None and name not in names:
            held = listing(list(names))
            raise InvalidInputError(
                f"{path}: `{parameter}` must be a column of the file; got {name!r} among {held} (name one)"
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
    twice = next((held for held in columns.values() if len(held) > 1), None)
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
