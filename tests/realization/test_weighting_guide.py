"""The table of the weighting guide is what its script makes."""

from __future__ import annotations

import pytest
from helpers import scripts


@pytest.fixture(scope="module")
def script():
    return scripts.script("weighting_table")


def test_the_page_holds_the_table(script):
    page = (scripts.DOCS / "weighting-guide.md").read_text(encoding="utf-8")
    stated = page.split(script.BEGIN)[1].split(script.END)[0].strip()
    assert stated == script.table()


def test_write_restores_the_page_and_draws(script, tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    page = (scripts.DOCS / "weighting-guide.md").read_text(encoding="utf-8")
    (tmp_path / "images").mkdir()
    (tmp_path / "page.md").write_text(page.replace("| realizable in 2 dimensions |", "| outdated |"), encoding="utf-8")
    monkeypatch.setattr(script, "PAGE", tmp_path / "page.md")
    assert script.main(["--write"]) == 0
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == page
    assert (tmp_path / "images" / "weighting-line.png").read_bytes().startswith(b"\x89PNG")
    assert "| SupCon, 3 classes |" in capsys.readouterr().out
