"""Pages of docs/ that mkdocs.yml does not list come last under "How to": a new page needs no second edit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1]
SECTION = "How to"


def listed(nav: Any) -> Iterator[str]:
    """Pages of a navigation as mkdocs reads it: lists of titles with a page or a list."""
    if isinstance(nav, str):
        yield nav
    else:
        for entry in nav.values() if isinstance(nav, dict) else nav:
            yield from listed(entry)


def completed(nav: list[dict[str, Any]], pages: list[str]) -> list[dict[str, Any]]:
    """The navigation with the pages that it lacks."""
    missing = sorted(set(pages) - set(listed(nav)))
    return [{title: [*held, *missing] if title == SECTION else held for title, held in entry.items()} for entry in nav]


def on_config(config: Any) -> Any:
    """Complete the navigation."""
    config.nav = completed(config.nav, [path.name for path in DOCS.glob("*.md")])
    return config
