"""Check of a built site: internal links, anchors and pictures lead somewhere, and nothing is fetched from elsewhere.

    python docs/website/check_site.py site

Links to other sites are not followed: they must be https and their host be on the list below.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

HOSTS = {
    "arxiv.org",
    "github.com",
    "keepachangelog.com",
    "lightning.ai",
    "semver.org",
    "squidfunk.github.io",
    "www.mkdocs.org",
}
# Where a tag names something that the browser fetches by itself.
FETCHED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
SKIPPED = {"404.html"}  # its links are absolute, for a server at the root


class _Page(HTMLParser):
    """Anchors, links and fetched files of one page."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        held = {name: value or "" for name, value in attrs}
        self.anchors.update(held[name] for name in ("id", "name") if name in held)
        if tag == "a" and "href" in held:
            self.links.append(held["href"])
        if tag in FETCHED and held.get(FETCHED[tag]) and held.get("rel") not in ("canonical", "prev", "next"):
            self.fetched.append(held[FETCHED[tag]])


def read(path: Path) -> _Page:
    """Parse one file."""
    page = _Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def faults(site: Path) -> list[str]:
    """One line a fault: the page, the link, and what is wrong with it."""
    pages = {path.resolve(): read(path) for path in sorted(site.rglob("*.html")) if path.name not in SKIPPED}
    found = [] if pages else [f"{site}: no pages"]
    for path, page in pages.items():
        here = path.relative_to(site.resolve())
        for target in page.links:
            found += [f"{here}: {target}: {fault}" for fault in _link(path, target, pages)]
        for target in page.fetched:
            parts = urlsplit(target)
            if parts.scheme == "data":
                continue
            if parts.scheme or parts.netloc:
                found.append(f"{here}: {target}: fetched from elsewhere")
            elif not (path.parent / unquote(parts.path)).is_file():
                found.append(f"{here}: {target}: no such file")
    return found


def _link(path: Path, target: str, pages: dict[Path, _Page]) -> list[str]:
    parts = urlsplit(target)
    if parts.scheme == "mailto":
        return []
    if parts.scheme or parts.netloc:
        return (
            []
            if parts.scheme == "https" and parts.hostname in HOSTS
            else ["not https, or a host that is not on the list"]
        )
    there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if there.is_dir():
        there /= "index.html"
    if there not in pages:
        return [] if there.is_file() else ["no such page"]
    return [] if not parts.fragment or unquote(parts.fragment) in pages[there].anchors else ["no such anchor"]


if __name__ == "__main__":
    lines = faults(Path(sys.argv[1]))
    print("\n".join(lines) or f"{len(list(Path(sys.argv[1]).rglob('*.html')))} pages: all links lead somewhere")
    sys.exit(bool(lines))
