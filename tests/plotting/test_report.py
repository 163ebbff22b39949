"""The page that `write_report` makes, read as a parser reads it."""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser

import pytest
from helpers.report_cases import CASES, WEIRD, case

from optgeom.embeddings.result import Validation
from optgeom.errors import InvalidInputError, MissingDependencyError
from optgeom.plotting.validation import frequency_order, plot_angle_map
from optgeom.plotting.validation_report import (
    name_of,
    render_report,
    shortened,
    text_with_names,
    write_report,
)

VOID = {"meta", "link", "br", "img", "hr", "input"}
LARGEST = 3_000_000  # bytes; a page goes into a mail
EVERY = sorted(CASES)


class Reader(HTMLParser):
    """Elements in order, text by element, ids, and links; refuses tags that do not match."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.pointers: list[str] = []
        self.tags: list[str] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(page)
        self.close()
        assert self.open == [], f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._note(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._note(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if data.strip() and self.open[-1] != "style":
            self.texts.append((self.open[-1], " ".join(data.split())))

    def _note(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            assert not name.startswith("on"), f"<{tag} {name}>: nothing on the page is to run"
            if name == "id":
                self.ids.append(value or "")
            if name in ("href", "src", "xlink:href", "data", "action", "srcset", "poster"):
                self.pointers.append(value or "")

    def text(self, *tags: str) -> list[str]:
        return [text for tag, text in self.texts if tag in tags]


@pytest.fixture(scope="module", params=EVERY)
def rendered(request: pytest.FixtureRequest) -> tuple[Validation, str, Reader]:
    found = case(request.param)
    page = render_report(found)
    return found, page, Reader(page)


def test_page_is_well_formed_and_needs_nothing_else(rendered):
    _, page, reader = rendered
    assert page.startswith("<!DOCTYPE html>")
    assert not {"script", "link", "iframe", "object", "embed", "form", "base"} & set(reader.tags)
    assert all(pointer.startswith(("#", "data:image/png;base64,")) for pointer in reader.pointers)
    assert "@import" not in page and "@font-face" not in page
    assert len(reader.ids) == len(set(reader.ids))
    targets = {pointer[1:] for pointer in reader.pointers if pointer.startswith("#")} | set(
        re.findall(r"url\(#([^)]+)\)", page)
    )
    assert targets <= set(reader.ids)
    assert not re.search(r"url\((?!#)", page)
    assert len(page.encode()) < LARGEST


def test_verdict_comes_first(rendered):
    found, _, reader = rendered
    seen = [text for tag, text in reader.texts if tag != "title"]
    assert seen[0] == found.verdict
    assert reader.text("h1") == [seen[1]]
    assert seen[1] == found.judgement.headline
    # The sentence of the verdict follows, but for names that are shortened.
    expected = found.sentence[:1].upper() + found.sentence[1:] if all(len(name) < 60 for name in found.names) else None
    assert expected is None or seen[2] == " ".join(expected.split())
    titles = reader.text("h2")
    assert titles == [
        "Key figures",
        "Learned against optimal",
        "Classes, most trouble first",
        "Worst pairs",
        "Every number",
    ]


def test_every_metric_is_there_with_its_value_or_reason(rendered):
    found, _, reader = rendered
    text = " ".join(reader.text("td", "span", "code", "th", "p", "dd", "b"))
    for name, metric in found.metrics.items():
        assert name in reader.text("code")
        assert metric.words and metric.words in text, f"{name} has no explanation"
        if metric.value is None:
            assert metric.reason is not None and f"n/a: {shortened(metric.reason, found)}" in text
        else:
            assert f"{metric.value:.4g}".replace("e-0", "e-") in text
    cells = reader.text("td")
    for row in found.classes[:100]:
        assert str(row.count) in cells
        if row.deviation is not None:
            assert f"{row.deviation:.1f}°" in cells
            assert f"{row.low:.1f}° to {row.high:.1f}°" in cells
    if found.max_angle_error_deg is not None:
        low, high = found.max_angle_error_ci_deg
        assert f"{found.max_angle_error_deg:.1f}°" in reader.text("p")
        assert f"Between {low:.1f}° and {high:.1f}°" in text
    else:
        assert "n/a" in reader.text("p")
    for term in ("direction", "shrink", "within"):
        assert (term in reader.text("dt")) == (getattr(found.excess_risk, term) is not None)
    for note in found.notes:
        assert " ".join(text_with_names(note, found).split()) in " ".join(reader.text("li"))


def test_pictures_say_what_they_show(rendered):
    found, page, reader = rendered
    pictures = 6 if found.intervals.num_pairs else 1
    assert reader.tags.count("svg") == pictures
    assert page.count('role="img" aria-label="') >= pictures
    # title and desc of each, beside the title of the page
    assert reader.tags.count("desc") == pictures and reader.tags.count("title") == pictures + 1
    body = page[page.index("<body") :]
    assert "var(--ink" in body
    # No colour of the drawing is left that would not change with the scheme.
    outside = re.sub(r"var\([^)]*\)", "", re.sub(r'href="data:[^"]*"', "", body))
    assert re.findall(r"(?:fill|stroke): #[0-9a-f]{6}", outside) == []


def test_names_are_text_and_never_markup():
    for which in ("weird-names", "nothing-available"):
        page = render_report(case(which))
        reader = Reader(page)
        assert "<script" not in page
        shown = " ".join(reader.text("bdi", "text", "li", "p"))
        for name in WEIRD:
            # What steers a terminal is replaced, what is too long shortened.
            assert name_of(name) in shown
        assert "#222222 &amp; $x^2$" in page
        assert "x" * 61 not in re.sub(r'title="[^"]*"', "", page)
        assert "\x07" not in page


def test_many_classes_fold():
    found = case("long-tailed")
    assert found.num_classes == 100
    assert "details" not in Reader(render_report(found)).tags


def test_more_than_a_hundred_classes_fold(monkeypatch):
    monkeypatch.setattr("optgeom.plotting.validation_report.SHOWN_CLASSES", 4)
    monkeypatch.setattr("optgeom.plotting.validation_report.MOST_CLASSES", 7)
    reader = Reader(render_report(case("consistent")))
    assert reader.text("summary") == ["and 6 more"]
    assert "3 classes are not listed here; the JSON output has all of them." in reader.text("p")


def test_thousands_of_pairs_and_classes_stay_small(monkeypatch):
    # The same branches as with 1000 classes, at a hundred.
    monkeypatch.setattr("optgeom.plotting.validation.POINTS", 1000)
    monkeypatch.setattr("optgeom.plotting.validation.MOST_CELLS", 30)
    page = render_report(case("long-tailed"))
    reader = Reader(page)
    assert "4950 pairs" in reader.text("text") and "a cell stands for 4 × 4 pairs" in reader.text("text")
    assert len(page.encode()) < 400_000


def test_same_validation_gives_the_same_bytes(tmp_path):
    for name in ("first.html", "second.html"):
        write_report(case("differs"), tmp_path / name)
    first = (tmp_path / "first.html").read_bytes()
    assert first == (tmp_path / "second.html").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first.html", "second.html"]


def test_nothing_is_left_of_a_report_that_fails(tmp_path, monkeypatch):
    target = tmp_path / "report.html"
    target.write_text("before")

    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", fails)
    with pytest.raises(InvalidInputError, match="No space left"):
        write_report(case("balanced"), target)
    assert target.read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_no_folder_no_report(tmp_path):
    with pytest.raises(InvalidInputError, match="does not exist"):
        write_report(case("balanced"), tmp_path / "nowhere" / "report.html")


@pytest.mark.parametrize("package", ["jinja2", "matplotlib"])
def test_missing_package_names_the_extra(package, tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    if package == "matplotlib":
        monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingDependencyError, match=rf"{package}: pip install 'optgeom\[plot\]'"):
        write_report(case("balanced"), tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


def test_headlines_are_plain_sentences():
    said = {name: case(name).judgement.headline for name in EVERY}
    assert said["consistent"].startswith("The class means are where the loss wants them")
    assert said["differs"] == "1 of 45 pairs of classes is not at the optimal angle"
    assert said["collapsed"] == "1 of 45 pairs of classes has merged, though the loss would keep them apart"
    assert said["nothing-available"] == "These images cannot tell: no pair of classes can be tested"
    assert said["at-a-saddle"] == "Training has stalled: the class means span 8 of 9 dimensions"
    assert said["dimension-limited"] == ("The class means are as good as the best geometry known in so few dimensions")


def test_maps_are_in_the_order_of_training_frequency_and_share_a_scale():
    found = case("collapsed")
    assert frequency_order(found).tolist() == list(range(10))
    learned, best = (plot_angle_map(found, which) for which in ("learned", "optimal"))
    assert learned.images[0].get_clim() == best.images[0].get_clim()
    shown = learned.images[0].get_array()
    assert shown[8, 9] == pytest.approx(found.deviations.angles[8, 9])
    assert shown.mask.diagonal().all()
    off = plot_angle_map(found, "off").images[0].get_array()
    assert off[8, 9] == pytest.approx(-found.deviations.low[8, 9])
    assert off[0, 1] == pytest.approx(0, abs=2)
