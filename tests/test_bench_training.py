"""The benchmark of training runs and judges as it says; nothing here measures a time."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
FOLDER = Path(__file__).parent.parent / "benchmarks"
sys.path.insert(0, str(FOLDER))
try:
    import _harness
    import bench_training
    from bench_training import MONITOR, OURS, PEER, STEP, Plan, Run
finally:
    sys.path.remove(str(FOLDER))

TINY = Plan(128, 8, 10, {"loss": 2, "memory": 1, "monitor": 2}, False, 16)


def test_all_hypotheses_run_and_are_written(tmp_path):
    pytest.importorskip("pytorch_metric_learning", reason="the `bench` extra has it")
    (tmp_path / "README.md").write_text("<!-- bench_training:begin -->\n<!-- bench_training:end -->\n", encoding="utf-8")
    assert bench_training.main(["--into", str(tmp_path)], (TINY, TINY)) == 0
    runs = _harness.read_rows(tmp_path / "results" / "training.csv", Run)
    assert not any(run.note for run in runs), runs
    assert {(run.hypothesis, run.what) for run in runs if run.device == "cpu"} == {
        *((name, who) for name in ("loss", "memory") for who in (OURS, PEER)),
        ("monitor", MONITOR),
        ("monitor", STEP),
    }
    assert all(run.difference < bench_training.AGREEMENT for run in runs if run.hypothesis == "loss")
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    for name, title in bench_training.TITLES.items():
        assert f"### `{name}`: {title}" in text
    assert bench_training.main(["--quick", "--only", "memory", "--into", str(tmp_path / "none")], (TINY, TINY)) == 0
    assert not (tmp_path / "none").exists()


def test_the_readme_has_room_for_the_tables():
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert text.count(f"<!-- {bench_training.SECTION}:begin -->") == text.count(f"<!-- {bench_training.SECTION}:end -->") == 1


def times(peer, difference=1e-15):
    for repeat, (ours, theirs) in enumerate([(1.0, peer), (2.0, 2 * peer)]):
        yield Run("loss", OURS, "cpu", 10, 2, 3, repeat, ours, difference=difference)
        yield Run("loss", PEER, "cpu", 10, 2, 3, repeat, theirs, difference=difference)


@pytest.mark.parametrize(
    ("peer", "difference", "cell"),
    [(2.5, 1e-15, "| 2.50 x | yes |"), (2.4, 1e-15, "| 2.40 x | **no** |"), (9.0, 1e-3, "| 9.00 x | **no** |")],
)
def test_faster_is_not_enough_without_equal_values(peer, difference, cell):
    assert cell in bench_training.report_text(list(times(peer, difference)), {"cpu": "x"})


@pytest.mark.parametrize(("ours", "cell"), [(25.0, "| 0.250 x | yes |"), (26.0, "| 0.260 x | **no** |")])
def test_memory_is_judged_by_the_median(ours, cell):
    runs = [Run("memory", OURS, "cpu", 10, 2, 3, n, extra_mb=mb) for n, mb in enumerate((1.0, ours, 1000.0))]
    runs += [Run("memory", PEER, "cpu", 10, 2, 3, 0, extra_mb=100.0)]
    assert cell in bench_training.report_text(runs, {})


def test_a_failure_stays_in_the_table():
    text = bench_training.report_text([Run("memory", OURS, "cpu", 10, 2, 3, 0, note="exit status 1: no memory")], {})
    assert "failed" in text and "no memory" in text and math.isnan(Run("memory", OURS, "cpu", 10, 2, 3, 0).seconds)


@pytest.mark.parametrize(("update", "cell"), [(0.3, "| 3.00 % | yes |"), (0.31, "| 3.10 % | **no** |")])
def test_the_monitor_is_judged_against_the_step(update, cell):
    runs = [Run("monitor", who, "cpu", 8, 2, 3, n, seconds * (n + 1)) for n in range(3) for who, seconds in ((MONITOR, update), (STEP, 10))]
    assert cell in bench_training.report_text(runs, {})
