"""Values as people and JSON see them: shortened user input in messages, numbers in JSON. Imports no numpy."""

from __future__ import annotations

import math
import os
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

LONGEST = 60  # characters of a text
# Marks that reverse the direction of what follows them: a name that holds one can make a line read as another.
BIDIRECTIONAL = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def first_of(names: Iterable[str], most: int = 5) -> str:
    """At most `most` names, and how many more there are."""
    every = list(names)
    return ", ".join(every[:most]) + (f" and {len(every) - most} more" if len(every) > most else "")


def excerpt(text: str) -> str:
    """`text` in quotes, its end cut off where it is long."""
    return repr(text if len(text) <= LONGEST else text[: LONGEST - 3] + "...")


def of_source(name: str) -> str:
    """Words for a message that a row is of a file or another source; nothing for a source without a name."""
    return f" of {name}" if name else ""


def visible(text: str) -> str:
    """The same text with U+FFFD in place of characters that steer a terminal or turn the direction of writing."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        "\ufffd"
        if character in BIDIRECTIONAL or (unicodedata.category(character) in ("Cc", "Cs") and character not in "\t\n")
        else character
        for character in text
    )


def coded(text: str) -> str:
    """The same text with each byte that is not text, which Python keeps as half of a surrogate pair, as its code.

    It makes a text longer, so it comes before the layout of a page; `visible`, which keeps lengths, comes after it.
    """
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def finite(value: float | None) -> float | None:
    """A finite float, or None, as JSON has no infinity and no NaN."""
    return float(value) if value is not None and math.isfinite(value) else None


def to_json(value: Any) -> Any:
    """`value` in the types of JSON.

    Arrays and tuples as lists, numpy numbers as Python's, paths as text, inf and NaN as None.
    """
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return finite(value)
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist"):  # numpy arrays and numbers, without importing numpy here
        return to_json(value.tolist())
    raise TypeError(f"no JSON for {type(value).__name__}")


def short(name: str, width: int = 24) -> str:
    """`name` in one line of at most `width` characters, cut in the middle: class names often differ at the end only."""
    text = " ".join(name.split()) or "(no name)"
    if len(text) <= width:
        return text
    head = (width - 2) // 2
    return f"{text[:head].rstrip()}..{text[len(text) - (width - 2 - head) :].lstrip()}"
