"""The table of the page on temperature and batch size against a new computation."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import scripts

pytest.importorskip("matplotlib")

PAGE = Path(__file__).parents[2] / "docs" / "choose-temperature-and-batch.md"


@pytest.mark.parametrize("name", ["CIFAR-10-LT", pytest.param("CIFAR-100-LT", marks=pytest.mark.slow)])
def test_the_page_has_the_rows_of_the_script(name):
    page = PAGE.read_text(encoding="utf-8")
    shown = [line for line in page.splitlines() if line.startswith(f"| {name} |")]
    computed = list(scripts.script("temperature_and_sampler").rows((name,)))
    assert len(shown) == len(computed) == 4
    for line, row in zip(shown, computed, strict=True):
        cells, wanted = ([float(cell.strip(" %")) for cell in text.split("|")[2:-1]] for text in (line, row))
        assert cells == pytest.approx(wanted, rel=0.06, abs=0.0)  # two digits are printed
