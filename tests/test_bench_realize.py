"""The benchmark of realize runs, certifies and judges as it says; nothing here measures a time."""

from __future__ import annotations

import dataclasses
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
    import bench_realize
    from _harness import Row
    from bench_realize import OURS, RIVAL, Case, Plan
finally:
    sys.path.remove(str(FOLDER))

TINY = Plan(
    rival={(6, 3, 0.5): (10.0, 1)},
    towards={
        "inconsistent": (Case(12, 3, 0.5, 15.0),),
        "near": (Case(10, 3, 0.1, math.inf),),
        "large": (Case(12, 3, 0.5, 60.0), Case(12, 3, 0.5, 10.0, math.nan)),
    },
    classes=(60, 3, 1.0),
    repeats=1,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("benchmarks")
    shutil.copy(FOLDER / "README.md", folder)
    assert bench_realize.main(["--into", str(folder)], (TINY, TINY)) == 0
    return folder


def test_every_hypothesis_has_certified_rows_and_a_table(folder):
    rows = _harness.read_rows(folder / "results" / "realize.csv")
    assert {row.hypothesis for row in rows} == set(bench_realize.NAMES)
    assert all(row.certified for row in rows if row.solver == OURS), rows
    text = (folder / "README.md").read_text(encoding="utf-8")
    for name, title in bench_realize.TITLES.items():
        assert f"### `{name}`: {title}" in text
    assert "failed" not in text.split("bench_realize:begin")[1]


def test_only_replaces_the_rows_of_one_hypothesis(folder):
    path = folder / "results" / "realize.csv"
    before = [row for row in _harness.read_rows(path) if row.hypothesis != "classes"]
    assert bench_realize.main(["--into", str(folder), "--only", "classes"], (TINY, TINY)) == 0
    assert list(map(repr, (row for row in _harness.read_rows(path) if row.hypothesis != "classes"))) == list(map(repr, before))


def test_quick_writes_nothing(tmp_path, capsys):
    assert bench_realize.main(["--quick", "--into", str(tmp_path), "--only", "classes"], (TINY, TINY)) == 0
    assert "below the border" in capsys.readouterr().out and not list(tmp_path.iterdir())


def test_the_rival_solves_the_same_program():
    y = bench_realize.labels(8, 3)
    gram, status = bench_realize.clarabel(y, 0.5)
    best = bench_realize.ours(y, 0.5, 1e-9)
    assert status == "optimal"
    assert np.max(np.abs(gram - best.embedding() @ best.embedding().T)) < 1e-2


def verdicts(table):
    return [line.rsplit("|", 2)[1].strip() for line in table.splitlines()[2:]]


@pytest.mark.parametrize(
    ("ours", "rival", "expected"),
    [
        ({}, {}, "yes"),
        ({}, {"seconds": 0.09}, "**no**"),
        ({"certified": False}, {}, "**no**"),
        ({"gap": 1e-5}, {}, "**no**"),
        ({"C": 7}, {"C": 7}, "-"),
    ],
)
def test_faster_counts_only_at_an_equal_gap(ours, rival, expected):
    mine = Row("rival", "dim 3, temperature 0.5", OURS, 6, "", 0, 0.01, gap=1e-12, certified=True)
    other = Row("rival", "dim 3, temperature 0.5", RIVAL, 6, "", 0, 0.11, gap=1e-6)
    rows = [dataclasses.replace(mine, **ours), dataclasses.replace(other, **rival)]
    assert verdicts(bench_realize.rival_table(rows, TINY)) == [expected]


@pytest.mark.parametrize(("seconds", "certified", "expected"), [(14.0, True, "yes"), (16.0, True, "**no**"), (14.0, False, "**no**")])
def test_targets(seconds, certified, expected):
    row = Row("inconsistent", "dim 3, temperature 0.5", OURS, 12, "", 0, seconds, gap=1e-12, certified=certified)
    assert verdicts(bench_realize.towards_table([row], TINY, "inconsistent")) == [expected]
