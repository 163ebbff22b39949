"""reproduction.md: its scripts run, and it says what the results say that lie beside it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")

from helpers.scripts import script  # noqa: E402

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "reproduction"
NAMES = (
    "class_collapse",
    "minority_collapse",
    "soft_supcon",
    "y_aware",
    "temperature",
    "digits",
    "sampling_conditions",
    "prescriptions",
    "gpu",
)


@pytest.fixture
def run(monkeypatch):
    torch.set_num_threads(1)
    monkeypatch.syspath_prepend(str(FOLDER))
    return script("reproduction/run")  # not imported by its name: the benchmarks have a run.py too


@pytest.mark.parametrize("name", NAMES)
def test_a_miniature_of_each_experiment_runs(run, name, tmp_path):
    results = run.measure(name, run.experiment(name).QUICK)
    assert json.loads(json.dumps(results)) == results
    text = run.page(f"before\n<!-- {name}:begin -->\nold\n<!-- {name}:end -->\nafter\n", {name: results})
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "\nold\n" not in text
    header, rule, first = [line for line in text.splitlines() if line.startswith("|")][:3]
    assert header.count("|") == rule.count("|") == first.count("|") and header.endswith("agrees |")
    assert run.page(text, {name: results}) == text
    run.draw(name, results, tmp_path)
    figures = [path.name for path in tmp_path.iterdir()]
    assert figures == ([] if name == "gpu" else [run.image(name)])


def test_every_experiment_is_on_the_page_and_the_page_is_made_of_their_results(run):
    text = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
    saved = run.saved()
    assert tuple(saved) == run.EXPERIMENTS == NAMES
    assert re.findall(r"<!-- (\w+):begin -->", text) == list(NAMES)
    assert run.page(text, saved) == text


def test_results_are_those_of_the_settings_in_the_scripts(run):
    for name, results in run.saved().items():
        assert results["settings"] == json.loads(json.dumps(run.experiment(name).SETTINGS)), (
            f"run docs/reproduction/run.py {name}"
        )


def test_without_cuda_nothing_is_claimed(run):
    gpu = run.experiment("gpu")
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    assert gpu.run(gpu.SETTINGS) == {"device": None}
    assert "Not run: no CUDA device" in gpu.markdown({"device": None})


def test_agreement_is_computed_from_the_numbers(run):
    # A wrong result must say no: the table is not a decoration.
    collapse = run.experiment("minority_collapse")
    row = {
        "loss": "ucl",
        "share": 0.9,
        "threshold": 0.8075,
        "published": 0.9292,
        "predicted": 1.0,
        "exact": 1.0,
        "sampled": 1.0,
    }
    settings = collapse.SETTINGS
    for changed, word in (
        ({}, "| yes |"),
        ({"exact": 0.9}, "**no**"),
        ({"sampled": 0.9}, "**no**"),
        ({"share": 0.8}, "**no**"),
    ):
        assert word in collapse.markdown({"settings": settings, "rows": [{**row, **changed}]})


def test_an_unknown_experiment_is_refused_by_name(run, capsys):
    with pytest.raises(SystemExit):
        run.main(["minority"])
    assert "no such experiment: minority" in capsys.readouterr().err
