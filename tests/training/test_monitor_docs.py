"""The Lightning module on the page about the monitor is the one in the file, and trains."""

from __future__ import annotations

import importlib.util
import sys
import textwrap
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_shows_the_file():
    page = (DOCS / "monitor-my-training.md").read_text(encoding="utf-8")
    shown = page.split("<!-- monitor_lightning:begin -->\n")[1].split("<!-- monitor_lightning:end -->")[0]
    assert textwrap.dedent(shown) in (DOCS / "monitor_lightning.py").read_text(encoding="utf-8")


@pytest.mark.filterwarnings("ignore")  # of Lightning, at its import and about the number of workers
def test_lightning_module_reaches_the_optimum(monkeypatch, tmp_path):
    if not any(importlib.util.find_spec(name) for name in ("lightning", "pytorch_lightning")):
        pytest.skip("Lightning is not installed (pip install lightning)")
    monkeypatch.syspath_prepend(str(DOCS))
    import monitor_lightning

    sys.modules.pop("monitor_lightning")
    logged = monitor_lightning.train(str(tmp_path))
    assert logged["geometry/max_angle_error_deg"] < 4
    assert logged["geometry/simplex_max_angle_error_deg"] > 20
    assert logged["geometry/classes_measured"] == 3
