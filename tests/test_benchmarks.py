"""The benchmark scripts run, certify and judge as they say; nothing here measures a time."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import optgeom as og

FOLDER = Path(__file__).parent.parent / "benchmarks"
sys.path.insert(0, str(FOLDER))
try:
    import _harness
    import _rivals
    import _speed_tables
    import bench_speed
    from _harness import Row
finally:
    sys.path.remove(str(FOLDER))

TINY = bench_speed.Plan(
    conic={"clarabel": {4: 1}, "scs": {4: 1}},
    temperatures=(1.0,),
    eigh=(6,),
    profiles=("inaturalist2018-supercategories",),
    finite_k=(5, 3, 1),
    many=(1000, 20),
    growth=(4, 8, 16),
    repeats=1,
)
with_scs = pytest.mark.skipif(importlib.util.find_spec("scs") is None, reason="scs comes with the extra `bench`")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder after one whole run on tiny sizes."""
    folder = tmp_path_factory.mktemp("benchmarks")
    shutil.copy(FOLDER / "README.md", folder)
    assert bench_speed.main(["--into", str(folder)], (TINY, TINY)) == 0
    return folder


@pytest.fixture
def rows(folder):
    return _harness.read_rows(folder / "results" / "speed.csv")


def test_every_hypothesis_is_measured_and_every_answer_of_ours_certified(rows):
    assert {row.hypothesis for row in rows} == set(_speed_tables.NAMES)
    ours = [row for row in rows if row.solver == "optgeom"]
    assert all(row.certified and row.gap < 1e-10 and not row.note for row in ours), ours
    assert all(row.seconds > 0 for row in rows)


def test_rivals_are_certified_by_the_same_rule(rows):
    (found,) = [row for row in rows if row.solver == "CVXPY + Clarabel"]
    classes, loss = og.ClassDistribution.from_proportions(bench_speed.zipf(4)), og.SupCon(temperature=1.0)
    expected = og.certify_gram(_rivals.supcon_limit(bench_speed.zipf(4), 1.0, "CLARABEL").gram, classes, loss)
    assert found.certified == expected.certified
    assert found.gap == pytest.approx(expected.gap, rel=1e-4)
    assert found.backward_error == pytest.approx(expected.backward_error, rel=1e-4)
    assert 0 <= found.excess_risk + 1e-12 <= found.gap + 1e-12
    assert found.cosine_error < 1e-3


def test_memory_is_that_of_a_fresh_process(rows):
    held = [row for row in rows if not math.isnan(row.peak_mb)]
    assert {row.case for row in held if row.hypothesis == "growth"} == {"zipf, memory"}
    assert len(held) == 4
    assert all(10 < row.baseline_mb <= row.peak_mb < 1000 for row in held)


def test_peak_memory_is_of_the_process_itself():
    own = "import sys; sys.path.insert(0, {folder!r}); import _harness; print(_harness.peak_mb())"
    code = """
import subprocess, sys
sys.path.insert(0, {folder!r})
import numpy as np
import _harness
before = _harness.peak_mb()
np.ones(2**25)
after = _harness.peak_mb()
print(before, after, subprocess.run([sys.executable, "-c", {own!r}], capture_output=True, text=True, check=True).stdout)
"""
    code = code.format(folder=str(FOLDER), own=own.format(folder=str(FOLDER)))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, after, child = map(float, done.stdout.split())
    assert after - before == pytest.approx(256, abs=8)
    assert child < before + 8, "a child process must not start with the peak of its parent"


def test_the_readme_holds_the_tables(folder):
    text = (folder / "README.md").read_text(encoding="utf-8")
    for name, title in _speed_tables.TITLES.items():
        assert f"### `{name}`: {title}" in text
    assert text.startswith((FOLDER / "README.md").read_text(encoding="utf-8").split("<!-- bench_speed:begin -->")[0])
    for secret in (socket.gethostname(), FOLDER.parent.as_posix().lstrip("/"), folder.as_posix().lstrip("/")):
        for path in folder.rglob("*.*"):
            found = re.search(rf"\b{re.escape(secret)}\b", path.read_text(encoding="utf-8"))
            assert not found, f"{path.name} names the machine"


def test_only_replaces_the_rows_of_one_hypothesis(folder, rows):
    assert bench_speed.main(["--into", str(folder), "--only", "many-classes"], (TINY, TINY)) == 0
    after = _harness.read_rows(folder / "results" / "speed.csv")

    def kept(rows):
        return [repr(row) for row in rows if row.hypothesis != "many-classes"]

    assert kept(after) == kept(rows)
    assert len(after) == len(rows)


def test_rows_of_another_machine_are_not_mixed_in(folder, rows, capsys):
    path = folder / "results" / "speed-machine.csv"
    before = path.read_text(encoding="utf-8")
    try:
        path.write_text(re.sub(r"python,.*", "python,2.7", before), encoding="utf-8")
        assert bench_speed.main(["--into", str(folder), "--only", "many-classes"], (TINY, TINY)) == 2
        assert "another machine" in capsys.readouterr().err
    finally:
        path.write_text(before, encoding="utf-8")


def test_quick_writes_nothing(tmp_path, capsys):
    assert bench_speed.main(["--quick", "--into", str(tmp_path), "--only", "many-classes"], (TINY, TINY)) == 0
    assert "ClassDistribution.from_groups" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("solver", ["CLARABEL", pytest.param("SCS", marks=with_scs)])
def test_the_rival_solves_the_same_program(solver):
    # Balanced classes: the simplex, at every temperature; C = 2: antipodes.
    simplex = np.full((3, 3), -0.5) + 1.5 * np.eye(3)
    assert np.max(np.abs(_rivals.supcon_limit(np.full(3, 1 / 3), 0.5, solver).gram - simplex)) < 1e-3
    assert _rivals.supcon_limit(np.array([0.6, 0.4]), 1.0, solver).gram[0, 1] == pytest.approx(-1, abs=1e-3)


def test_a_failing_rival_is_a_row(monkeypatch):
    def refuse(proportions, temperature, solver):
        raise RuntimeError("no finite matrix, status infeasible\nat some place")

    monkeypatch.setattr(_rivals, "supcon_limit", refuse)
    rows = bench_speed.run(TINY, ["clarabel"])
    (failed,) = [row for row in rows if row.solver != "optgeom"]
    assert failed.note == "RuntimeError: no finite matrix, status infeasible"
    assert not failed.certified and math.isnan(failed.gap)
    assert "no answer" in _speed_tables.conic_table(rows, "clarabel")


def verdict(table: str) -> list[str]:
    return [line.rsplit("|", 2)[1].strip() for line in table.splitlines()[2:]]


OURS = Row("clarabel", "zipf", "optgeom", 20, "inf", 0, 0.01, gap=1e-12, certified=True)
RIVAL = Row("clarabel", "zipf", "CVXPY + Clarabel", 20, "inf", 0, 0.31, gap=1e-6)


@pytest.mark.parametrize(
    ("ours", "rival", "expected"),
    [
        ({}, {}, "yes"),
        ({}, {"seconds": 0.29}, "**no**"),
        ({"certified": False}, {}, "**no**"),
        ({"gap": 1e-5}, {}, "**no**"),
        ({"C": 30}, {"C": 30}, "-"),
        ({}, {"gap": math.nan, "note": "failed at once"}, "-"),
        ({}, {"gap": math.nan, "note": "out of time", "seconds": 1800.0}, "yes"),
    ],
)
def test_faster_counts_only_at_an_equal_gap(ours, rival, expected):
    rows = [dataclasses.replace(OURS, **ours), dataclasses.replace(RIVAL, **rival)]
    assert verdict(_speed_tables.conic_table(rows, "clarabel")) == [expected]


@pytest.mark.parametrize(("seconds", "certified", "expected"), [(0.59, True, "yes"), (0.61, True, "**no**"), (0.59, False, "**no**")])
def test_the_eigendecomposition_is_the_measure(seconds, certified, expected):
    ours = dataclasses.replace(OURS, hypothesis="eigh", seconds=seconds, certified=certified)
    assert verdict(_speed_tables.eigh_table([ours, Row("eigh", "zipf", "eigh C x C", 20, "inf", 0, 0.1)])) == [expected]


@pytest.mark.parametrize(("seconds", "peak", "expected"), [(14, 1000, "yes"), (16, 1000, "**no**"), (14, 1100, "**no**")])
def test_finite_negatives_have_two_targets(seconds, peak, expected):
    row = Row("finite-k", "zipf", "optgeom", 1000, "4096", 0, seconds, gap=1e-12, certified=True, peak_mb=peak, baseline_mb=80)
    assert verdict(_speed_tables.finite_table([row])) == [expected]


@pytest.mark.parametrize(("power", "expected"), [(2.0, "yes"), (2.2, "**no**")])
def test_growth_of_memory(power, expected):
    row = Row("growth", "zipf, memory", "optgeom", 1000, "inf", 0, 1.0, gap=1e-12, certified=True, peak_mb=200.0, baseline_mb=80.0)
    rows = [dataclasses.replace(row, C=C, peak_mb=80 + 120 * (C / 1000) ** power) for C in (1000, 2000)]
    assert verdict(_speed_tables.growth_table(rows)) == ["-", expected]


@pytest.mark.parametrize(("ratio", "expected"), [(8.9, "yes"), (9.1, "**no**")])
def test_growth_of_time(ratio, expected):
    row = Row("growth", "zipf, time", "optgeom", 1000, "inf", 0, 1.0, gap=1e-12, certified=True)
    assert verdict(_speed_tables.growth_table([row, dataclasses.replace(row, C=2000, seconds=ratio)])) == ["-", expected]


@pytest.mark.parametrize(("seconds", "expected"), [(2.9, "yes"), (3.1, "**no**")])
def test_many_classes(seconds, expected):
    row = Row("many-classes", "650 groups", "optgeom", 10**7, "inf", 0, seconds, gap=1e-12, certified=True)
    assert verdict(_speed_tables.many_table([row])) == [expected]


def test_rivals_take_turns():
    order = []
    calls = {name: (lambda name=name: order.append(name)) for name in "ab"}
    list(_harness.alternate(calls, {"a": 3, "b": 2}))
    assert order == ["a", "b", "b", "a", "a"]


def test_a_text_without_its_markers_is_refused():
    with pytest.raises(ValueError, match="must hold the lines '<!-- x:begin -->'"):
        _harness.replace_between("nothing", "x", "body")
