"""Files outside docs/ as pages of the site, so that a link which works in the repository works on the site.

README.md becomes the home page, other Markdown files become pages, and source files that a page links to become
listings. The command line's own help becomes a page as well.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.structure.files import Files

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)(#[^)\s]*)?(?=\))")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
ALWAYS = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/README.md")
LISTING = "---\nsearch:\n  exclude: true\nhide: [toc]\n---\n\n# {path}\n\n```{language}\n{content}```\n"

# Pages made here, by their place on the site, with the file they come from.
_origin: dict[str, str] = {}


def site_path(path: str) -> str:
    """Where a file of the repository stands on the site; both relative to their roots."""
    place = PurePosixPath(path)
    if place.parts[0] == "docs" and place.suffix != ".py":
        return place.relative_to("docs").as_posix()
    if place.suffix != ".md":
        return f"source/{path}.md"
    if place.name == "README.md":
        return "index.md" if len(place.parts) == 1 else f"{place.parent.as_posix()}.md"
    return path.lower()


def rewrite(markdown: str, path: str) -> str:
    """Links of the Markdown file `path`, as they must be at its place on the site."""
    here = PurePosixPath(site_path(path)).parent.as_posix()

    def moved(match: re.Match[str]) -> str:
        target = os.path.normpath(f"{PurePosixPath(path).parent}/{match[1]}")
        return os.path.relpath(site_path(target), here) + (match[2] or "")

    return "".join(part if part.startswith("```") else LINK.sub(moved, part) for part in _parts(markdown))


def targets(markdown: str, path: str) -> Iterator[str]:
    """Files of the repository that a page links to."""
    for part in _parts(markdown):
        if not part.startswith("```"):
            for match in LINK.finditer(part):
                yield os.path.normpath(f"{PurePosixPath(path).parent}/{match[1]}")


def _parts(markdown: str) -> Iterator[str]:
    start = 0
    for fence in FENCE.finditer(markdown):
        yield markdown[start : fence.start()]
        yield fence[0]
        start = fence.end()
    yield markdown[start:]


def on_files(files: Files, config: Any) -> Files:
    """Add the home page, the page of commands, and every file outside docs/ that a page links to."""
    from mkdocs.structure.files import File

    _origin.clear()
    wanted = [*ALWAYS]
    for file in files.documentation_pages():
        wanted.extend(targets(file.content_string, f"docs/{file.src_uri}"))
    while wanted:
        path = wanted.pop()
        place = site_path(path)
        if place in _origin or files.get_file_from_path(place) is not None or not (ROOT / path).is_file():
            continue  # what does not exist is left to the check of links
        content = (ROOT / path).read_text(encoding="utf-8")
        if path.endswith(".md"):
            wanted.extend(targets(content, path))
        else:
            language = {"py": "python"}.get(path.rsplit(".", 1)[-1], "text")
            content = LISTING.format(path=path, language=language, content=content)
        _origin[place] = path
        files.append(File.generated(config, place, content=content))
    files.append(File.generated(config, "commands.md", content=commands()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Turn links between files of the repository into links between pages."""
    return rewrite(markdown, _origin.get(page.file.src_uri, f"docs/{page.file.src_uri}"))


def commands() -> str:
    """The help of every command, as it prints it."""
    from optgeom_cli.main import app
    from typer.testing import CliRunner

    def shown(*words: str) -> str:
        return CliRunner().invoke(app, [*words, "--help"], prog_name="optgeom", env={"COLUMNS": "80"}).stdout.strip()

    overview = shown()
    names = re.findall(r"^  ([a-z]+)", overview[overview.index("Commands:") :], re.MULTILINE)
    page = ["# Command line", f"```text\n{overview}\n```"]
    for name in names:
        page.append(f"## optgeom {name}\n\n```text\n{shown(name)}\n```")
        inner = shown(name)
        if "\nCommands:" in inner:
            for sub in re.findall(r"^  ([a-z]+)", inner[inner.index("\nCommands:") :], re.MULTILINE):
                page.append(f"### optgeom {name} {sub}\n\n```text\n{shown(name, sub)}\n```")
    return "\n\n".join(page) + "\n"
