"""What came, as messages show it: the first of many names, the start of a long text."""

from __future__ import annotations

from collections.abc import Iterable

LONGEST = 60  # characters of a text


def first_of(names: Iterable[str], most: int = 5) -> str:
    """At most `most` names, and how many more there are."""
    held = list(names)
    return ", ".join(held[:most]) + (f" and {len(held) - most} more" if len(held) > most else "")


def excerpt(text: str) -> str:
    """`text` in quotes, its end cut off where it is long."""
    return repr(text if len(text) <= LONGEST else text[: LONGEST - 3] + "...")
