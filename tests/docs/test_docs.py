"""The code of the README and of the docs runs and prints what they say."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from optgeom_cli.main import app
from typer.testing import CliRunner

from optgeom.losses import registry

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass
class Block:
    """Code with a fence and the output stated after it, if any."""

    language: str
    code: str
    stated: str | None


def blocks(page: Path) -> list[Block]:
    """Blocks of code; a `text` block is the output of the block before it."""
    found: list[Block] = []
    for language, content in FENCE.findall(page.read_text(encoding="utf-8")):
        if language == "text":
            assert found and found[-1].stated is None, f"{page.name}: output of nothing"
            found[-1].stated = content
        else:
            found.append(Block(language, content, None))
    return found


def steady(text: str) -> str:
    """Remove what differs between runs and machines: times, iterations, and gaps at the level of rounding."""
    text = re.sub(r"\d+ iterations?, [\d.e+-]+ s$", "RUN", text.strip(), flags=re.MULTILINE)
    return re.sub(r"within \S+ of the optimum", "within GAP of the optimum", text)


def shell(code: str) -> str | None:
    """Output of an `optgeom` command; None for commands that set things up."""
    if not code.startswith("optgeom "):
        return None
    done = CliRunner().invoke(app, shlex.split(code)[1:])
    assert done.exit_code == 0, done.output
    return done.stdout


def python(code: str, names: dict[str, Any]) -> str:
    """Output of a block; blocks of one page share their names."""
    with contextlib.redirect_stdout(io.StringIO()) as captured:
        exec(compile(code, "<docs>", "exec", dont_inherit=True), names)
    return captured.getvalue()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_code_prints_what_the_page_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # pages may write files, and read what they wrote
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))  # and register losses of their own
    names: dict[str, Any] = {"__name__": page.stem}
    for block in blocks(page):
        assert block.language in ("python", "sh"), f"{page.name}: nobody runs {block.language}"
        printed = python(block.code, names) if block.language == "python" else shell(block.code)
        if block.stated is not None:
            assert steady(printed) == steady(block.stated)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_targets_of_make_that_the_readme_names_exist():
    named = re.findall(r"^make (\w+)", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    rules = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert named and set(named) <= set(rules)
