"""The benchmark of validation runs and judges as it says; nothing here measures a time."""

from __future__ import annotations

import math
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parent.parent / "benchmarks"
sys.path.insert(0, str(FOLDER))
try:
    import _harness
    import bench_validate
    from bench_validate import MOMENTS, ONE, SUM, TWO, Plan, Run
finally:
    sys.path.remove(str(FOLDER))

TINY = Plan(400, 5, 40, {"first": 2, "memory": 1, "workers": 1, "labels": 1, "report": 1}, False, 2000)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    pytest.importorskip("joblib")
    pytest.importorskip("matplotlib")
    pytest.importorskip("jinja2")
    folder = tmp_path_factory.mktemp("benchmarks")
    shutil.copy(FOLDER / "README.md", folder)
    assert bench_validate.main(["--into", str(folder)], (TINY, TINY)) == 0
    return folder


def test_every_hypothesis_has_rows_and_a_table(folder):
    runs = _harness.read_rows(folder / "results" / "validate.csv", Run)
    assert {run.hypothesis for run in runs} == set(bench_validate.NAMES)
    assert not any(run.note for run in runs), runs
    memory = next(run for run in runs if run.hypothesis == "memory")
    assert math.isnan(memory.peak_mb) or 10 < memory.baseline_mb <= memory.peak_mb < 400
    text = (folder / "README.md").read_text(encoding="utf-8").split("bench_validate:begin")[1]
    for name, title in bench_validate.TITLES.items():
        assert f"### `{name}`: {title}" in text
    assert "400 rows of 256, 5 classes" in text and "failed" not in text


def test_only_replaces_the_rows_of_one_hypothesis(folder):
    path = folder / "results" / "validate.csv"
    before = [run for run in _harness.read_rows(path, Run) if run.hypothesis != "labels"]
    assert bench_validate.main(["--into", str(folder), "--only", "labels"], (TINY, TINY)) == 0
    assert list(map(repr, (run for run in _harness.read_rows(path, Run) if run.hypothesis != "labels"))) == list(map(repr, before))


def test_quick_writes_nothing(tmp_path, capsys):
    assert bench_validate.main(["--quick", "--into", str(tmp_path), "--only", "labels"], (TINY, TINY)) == 0
    assert "100000 labels, 5 classes" in capsys.readouterr().out and not list(tmp_path.iterdir())


def test_both_rivals_read_every_row(tmp_path):
    path = bench_validate.make_file(tmp_path, 300, 3)
    table = np.load(path).astype(np.float64)
    np.testing.assert_allclose(bench_validate.chunked_sum(path), table.sum(axis=0))
    unit = table / np.linalg.norm(table, axis=1, keepdims=True)
    np.testing.assert_allclose(bench_validate.first_pass(path).sums.sum(axis=0), unit.sum(axis=0))


def runs_of(pairs, busy=math.nan):
    for repeat, (above, below) in enumerate(pairs):
        yield Run("first", MOMENTS, 10, 2, repeat, above, busy_elsewhere=busy)
        yield Run("first", SUM, 10, 2, repeat, below, busy_elsewhere=busy)


def test_ratios_are_of_neighbours_and_of_quiet_pairs_where_there_are_any():
    busy = list(runs_of([(2.0, 1.0), (9.0, 3.0), (8.0, 2.0)], 1.5))
    assert bench_validate.ratios(busy, MOMENTS, SUM) == (3.0, 3, False)
    quiet = [Run("first", MOMENTS, 10, 2, 7, 5.0, busy_elsewhere=0.05), Run("first", SUM, 10, 2, 7, 4.0, busy_elsewhere=0.0)]
    assert bench_validate.ratios([*busy, *quiet], MOMENTS, SUM) == (1.25, 1, True)
    assert "| 3.00 x | **no** | 1.5 cores |" in bench_validate.report_text(busy, {"cpu": "x"})
    assert "beside other work" in bench_validate.report_text(busy, {})


@pytest.mark.parametrize(("one", "two", "met"), [(3.2, 2.0, "| 1.60 x | yes |"), (3.0, 2.0, "| 1.50 x | **no** |")])
def test_targets_are_judged(one, two, met):
    runs = [Run("workers", ONE, 8, 2, 0, one), Run("workers", TWO, 8, 2, 0, two)]
    assert met in bench_validate.report_text(runs, {})
    memory = [Run("memory", "both passes", 8, 2, 0, 1.0, peak_mb=401.0, baseline_mb=50.0)]
    assert "| 401 MiB | **no** |" in bench_validate.report_text(memory, {})
    failed = [Run("memory", "both passes", 8, 2, 0, math.nan, note="exit status 1: no room")]
    assert "failed" in bench_validate.report_text(failed, {}) and "no room" in bench_validate.report_text(failed, {})
