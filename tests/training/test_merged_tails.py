"""The runs of the page on merged tails: what they train on, and that the page shows every one of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from helpers import scripts

torch = pytest.importorskip("torch")
pytest.importorskip("matplotlib")

PAGE = Path(__file__).parents[2] / "docs" / "why-are-my-tail-classes-merged.md"


@pytest.fixture(scope="module")
def script():
    return scripts.script("merged_tails")


def test_images_are_of_their_classes_but_for_the_mixed_ones(script):
    counts = (50,) * 10
    for mixed in (False, True):
        images = script.Images(0, mixed=mixed)
        rows, labels = images.draw(counts)
        shown = torch.cdist(rows, images.templates).argmin(dim=1)
        assert torch.equal(shown[labels < 9], labels[labels < 9])
        of_the_last = shown[labels == 9]
        assert set(of_the_last.tolist()) == ({8, 9} if mixed else {9})


@pytest.mark.parametrize("name", ["plain", "majority"])
def test_a_line_says_verdict_and_confusion(script, monkeypatch, name):
    monkeypatch.setitem(script.RUNS, name, script.RUNS[name]._replace(steps=3))
    assert re.fullmatch(
        rf"{name} +seed 4 .* angle of 8 and 9 +[\d.]+ \(optimal [\d.]+\), confused [\d.]+ %", script.judge(name, 4)
    )


def test_the_page_shows_every_run(script):
    page = PAGE.read_text(encoding="utf-8")
    shown = re.findall(r"^    (\w[\w ]*?) +seed (\d)  ", page, re.MULTILINE)
    assert sorted(shown) == sorted((name, str(seed)) for name in script.RUNS for seed in range(3))
