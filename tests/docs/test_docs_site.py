"""The documentation as a whole: public names, commands and files that it cites, and the tools that build its site."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
from optgeom_cli.main import app
from optgeom_cli.output import ExitCode
from typer.testing import CliRunner

import optgeom
import optgeom.plotting

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
API = "\n".join(path.read_text(encoding="utf-8") for path in sorted((DOCS / "api").glob("*.md")))
DOCUMENTED = re.findall(r"^::: (\S+)$", API, flags=re.MULTILINE)
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def tools(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS / "website"))


def resolve(path):
    """The object with a dotted path, whichever part of it is the module."""
    parts = path.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for name in parts[cut:]:
            found = getattr(found, name)
        return found
    raise AssertionError(path)


# ----------------------------------------------------------------------------------------------------------------------
# reference and commands


def test_every_public_name_has_one_place_in_the_reference():
    pytest.importorskip("torch")
    from optgeom.training import losses

    public = {f"{module.__name__}.{name}" for module in (optgeom, optgeom.plotting, losses) for name in module.__all__}
    assert not public - set(DOCUMENTED)
    assert len(DOCUMENTED) == len(set(DOCUMENTED))


def test_what_the_reference_names_exists_and_says_something():
    pytest.importorskip("torch")
    for path in DOCUMENTED:
        doc = resolve(path).__doc__
        assert doc is not None and len(doc) > 20, path


def test_the_readme_lists_every_command_and_exit_code():
    overview = CliRunner().invoke(app, ["--help"]).stdout
    commands = re.findall(r"^  ([a-z]+)", overview[overview.index("Commands:") :], flags=re.MULTILINE)
    assert set(commands) == set(re.findall(r"^\| `optgeom ([a-z]+)` \|", README, flags=re.MULTILINE))
    row = re.search(r"^\| exit code \|(.*)\|$", README, flags=re.MULTILINE)
    assert row is not None and [int(code) for code in row[1].split("|")] == sorted(int(code) for code in ExitCode)


def test_files_that_the_docs_cite_exist():
    for page in [ROOT / "README.md", *DOCS.rglob("*.md")]:
        for cited in re.findall(r"`((?:optgeom|tests|docs|cli|benchmarks)/[\w/.]+)`", page.read_text(encoding="utf-8")):
            assert (ROOT / cited).exists(), f"{page.name}: {cited}"


def test_the_navigation_names_pages_that_exist():
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:\n")[1]
    listed = set(re.findall(r"([\w/-]+\.md)$", menu, flags=re.MULTILINE))
    there = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert listed - there == {"index.md", "benchmarks.md", "changelog.md", "commands.md", "contributing.md"}, (
        "made when the site is built"
    )
    assert {page for page in there - listed if "/" in page} == set(), (
        "only pages of docs/ itself are found without being listed"
    )


def test_a_page_that_the_navigation_lacks_is_added():
    import navigation

    nav = [{"Home": "index.md"}, {"How to": [{"A": "a.md"}, "b.md"]}, {"Theory": ["theory/index.md", {"C": "c.md"}]}]
    added = [
        {"Home": "index.md"},
        {"How to": [{"A": "a.md"}, "b.md", "d.md"]},
        {"Theory": ["theory/index.md", {"C": "c.md"}]},
    ]
    assert navigation.completed(nav, ["a.md", "b.md", "c.md", "d.md"]) == added
    assert list(navigation.listed(nav)) == ["index.md", "a.md", "b.md", "theory/index.md", "c.md"]


# ----------------------------------------------------------------------------------------------------------------------
# tools of the site


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("README.md", "index.md"),
        ("docs/theory/index.md", "theory/index.md"),
        ("docs/images/places-lt.png", "images/places-lt.png"),
        ("benchmarks/README.md", "benchmarks.md"),
        ("CHANGELOG.md", "changelog.md"),
        ("docs/monitor_lightning.py", "source/docs/monitor_lightning.py.md"),
    ],
)
def test_places_on_the_site(path, place):
    import repository_pages

    assert repository_pages.site_path(path) == place


def test_links_are_moved_and_code_is_not():
    import repository_pages

    page = "[a](docs/x.md#y) [b](https://a.b/c) [c](#d) ![e](docs/images/f.png)\n```python\nf[0](docs/x.md)\n```\n"
    moved = "[a](x.md#y) [b](https://a.b/c) [c](#d) ![e](images/f.png)\n```python\nf[0](docs/x.md)\n```\n"
    assert repository_pages.rewrite(page, "README.md") == moved
    assert (
        repository_pages.rewrite("[a](../README.md) [b](../benchmarks/README.md)", "docs/x.md")
        == "[a](index.md) [b](benchmarks.md)"
    )
    assert (
        repository_pages.rewrite("[a](../../optgeom/inputs/classes.py)", "docs/theory/x.md")
        == "[a](../source/optgeom/inputs/classes.py.md)"
    )
    assert list(repository_pages.targets(page, "README.md")) == ["docs/x.md", "docs/images/f.png"]


def test_the_page_of_commands_holds_the_help_of_every_command():
    import repository_pages

    page = repository_pages.commands()
    assert "## optgeom solve\n" in page and "### optgeom train encoder\n" in page
    assert "--backward-tolerance" in page and "--min-angle" in page


def test_formulas_become_mathml():
    pytest.importorskip("latex2mathml")
    import mathml

    page = r'<p><span class="arithmatex">\(A_{ij} &lt; 1\)</span></p>'
    page += r'<div class="arithmatex">\[\log \mathrm{Diag}(x)\]</div>'
    found = mathml.to_mathml(page)
    assert found.count("<math ") == 2 and "arithmatex" not in found
    assert "<mi>A</mi>" in found and "&#x0003C;" in found and "<mi>Diag</mi>" in found


@pytest.fixture
def site(tmp_path):
    (tmp_path / "other.html").write_text(
        '<h2 id="part">x</h2><img src="a.png"><a href="https://arxiv.org/abs/1">x</a>', encoding="utf-8"
    )
    (tmp_path / "a.png").write_bytes(b"x")
    (tmp_path / "404.html").write_text('<a href="/nowhere">x</a>', encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (
            '<a href="other.html#part">x</a> <a href="a.png">x</a> <a href="#me" id="me">x</a> '
            '<a href="mailto:a@b.c">x</a>',
            None,
        ),
        ('<a href="missing.html">x</a>', "missing.html: no such page"),
        ('<a href="other.html#whole">x</a>', "other.html#whole: no such anchor"),
        ('<a href="#gone">x</a>', "#gone: no such anchor"),
        ('<img src="b.png">', "b.png: no such file"),
        ('<script src="https://cdn.example/x.js"></script>', "fetched from elsewhere"),
        ('<link rel="stylesheet" href="//fonts.example/x.css">', "fetched from elsewhere"),
        ('<a href="http://arxiv.org">x</a>', "not https"),
        ('<a href="https://unknown.example">x</a>', "not on the list"),
    ],
)
def test_faults_of_a_site_are_found(site, content, fault):
    import check_site

    (site / "page.html").write_text(content, encoding="utf-8")
    found = check_site.faults(site)
    assert len(found) == (fault is not None)
    assert fault is None or (found[0].startswith("page.html: ") and fault in found[0])


def test_a_site_without_pages_is_a_fault(tmp_path):
    import check_site

    assert "no pages" in check_site.faults(tmp_path)[0]
