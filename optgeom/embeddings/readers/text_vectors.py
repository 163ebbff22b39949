"""Vectors written as text, such as "[0.1, 0.2]" or numpy's "[0.1 0.2]".

Read by a strict parser of numbers, never evaluated.
"""

from __future__ import annotations

import re
from typing import Any

from optgeom.inputs.tables import is_number

_VECTOR = re.compile(r"\s*(?:\[\s*(.*?)\s*\]|\(\s*(.*?)\s*\)|(.*?))\s*", re.DOTALL)
_BETWEEN = re.compile(r"\s*,\s*|\s+")


def size_of(text: str) -> int | None:
    """How many numbers the vector in `text` has; None if it is no vector."""
    match = _VECTOR.fullmatch(text)
    assert match is not None
    numbers = _BETWEEN.split(next(part for part in match.groups() if part is not None))
    return len(numbers) if all(map(is_number, numbers)) else None


def to_lists(texts: Any) -> Any:
    """A pyarrow column of texts as a column of lists of float64; ArrowInvalid if one of them is no vector."""
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    texts = pc.utf8_trim_whitespace(texts)
    for opening, closing in ("[]", "()"):
        inside = pc.and_(pc.starts_with(texts, opening), pc.ends_with(texts, closing))
        texts = pc.if_else(inside, pc.utf8_trim_whitespace(pc.utf8_slice_codeunits(texts, 1, -1)), texts)
    # A comma and a space both separate, but two commas do not become one: a missing number stays an error.
    numbers = pc.split_pattern(pc.replace_substring_regex(texts, r"\s*,\s*|\s+", ","), ",")
    return pc.cast(numbers, pa.list_(pa.float64()))
