"""The tables of the benchmarks judge rows as they say."""

from __future__ import annotations

import dataclasses
import math

import pytest
from helpers.scripts import BENCHMARKS, importable

with importable(BENCHMARKS):
    import _page
    import _suite
    import _tables
    from _harness import OURS, Row

    TABLES = _suite.tables()
    from bench_training import MONITOR, PEER, STEP
    from bench_validate import MOMENTS, ONE, SUM, TWO

MINE = Row("zipf, temperature 0.1", OURS, 20, 0, 0.01, "inf", gap=1e-12, certified=True)
RIVAL = Row("zipf, temperature 0.1", "CVXPY + Clarabel", 20, 0, 0.31, "inf", gap=1e-6)


def cells(table: str, column: str) -> list[str]:
    header, _, *lines = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line.startswith("|")
    ]
    return [line[header.index(column)] for line in lines]


def met(name: str, rows: list[Row]) -> list[str]:
    return cells(TABLES[name].render(rows), "met")


@pytest.mark.parametrize(
    ("ours", "rival", "expected"),
    [
        ({}, {}, "yes"),
        ({}, {"seconds": 0.29}, "**no**"),
        ({"certified": False}, {}, "**no**"),
        ({"gap": 1e-5}, {}, "**no**"),
        ({"size": 30}, {"size": 30}, "-"),
        ({}, {"gap": math.nan, "note": "failed: at once"}, "-"),
        ({}, {"gap": math.nan, "note": "failed: out of time", "seconds": 1800.0}, "yes"),
    ],
)
def test_faster_counts_only_at_an_equal_gap(ours, rival, expected):
    rows = [dataclasses.replace(MINE, **ours), dataclasses.replace(RIVAL, **rival)]
    assert met("speed-clarabel", rows) == [expected]


def test_the_target_of_samples_is_their_own():
    rows = [dataclasses.replace(row, case="dim 3, temperature 0.5", size=30) for row in (MINE, RIVAL)]
    assert met("realize-clarabel", rows) == ["yes"]
    assert cells(TABLES["realize-clarabel"].render(rows), "rival's gap") == ["1.0e-06, not certified"]


@pytest.mark.parametrize(
    ("seconds", "certified", "expected"), [(0.59, True, "yes"), (0.61, True, "**no**"), (0.59, False, "**no**")]
)
def test_the_eigendecomposition_is_the_measure(seconds, certified, expected):
    ours = dataclasses.replace(MINE, seconds=seconds, certified=certified)
    assert met("speed-eigh", [ours, Row(MINE.case, "eigh C x C", 20, 0, 0.1)]) == [expected]


@pytest.mark.parametrize(
    ("seconds", "peak", "expected"), [(14, 1000, "yes"), (16, 1000, "**no**"), (14, 1100, "**no**")]
)
def test_finite_negatives_have_two_targets(seconds, peak, expected):
    row = Row("zipf", OURS, 1000, 0, seconds, "4096", gap=1e-12, certified=True, peak_mb=peak, baseline_mb=80)
    assert met("speed-finite-k", [row]) == [expected]


@pytest.mark.parametrize(("power", "expected"), [(2.0, "yes"), (2.2, "**no**")])
def test_growth_of_memory(power, expected):
    row = Row("zipf, memory", OURS, 1000, 0, 1.0, "inf", gap=1e-12, certified=True, peak_mb=200.0, baseline_mb=80.0)
    rows = [dataclasses.replace(row, size=size, peak_mb=80 + 120 * (size / 1000) ** power) for size in (1000, 2000)]
    assert met("speed-growth", rows) == ["-", expected]


@pytest.mark.parametrize(("ratio", "expected"), [(8.9, "yes"), (9.1, "**no**")])
def test_growth_of_time(ratio, expected):
    row = Row("zipf, time", OURS, 1000, 0, 1.0, "inf", gap=1e-12, certified=True)
    assert met("speed-growth", [row, dataclasses.replace(row, size=2000, seconds=ratio)]) == ["-", expected]


@pytest.mark.parametrize(
    ("name", "case", "size", "seconds", "certified", "expected"),
    [
        ("speed-many-classes", "650 groups, ClassDistribution.from_counts", 10**7, 2.9, True, "yes"),
        ("speed-many-classes", "650 groups, ClassDistribution.from_counts", 10**7, 3.1, True, "**no**"),
        ("realize-inconsistent", "dim 3, temperature 0.2", 200, 14.0, True, "yes"),
        ("realize-inconsistent", "dim 3, temperature 0.2", 200, 16.0, True, "**no**"),
        ("realize-inconsistent", "dim 3, temperature 0.2", 200, 14.0, False, "**no**"),
        ("collapse-large", "zipf 2.1, temperature 1", 300, 0.9, True, "yes"),
        ("collapse-large", "zipf 2.1, temperature 1", 300, 1.1, True, "**no**"),
        ("realize-classes", "100 classes, below the border", 50_000, 0.9, True, "yes"),
    ],
)
def test_limits_of_time(name, case, size, seconds, certified, expected):
    assert met(name, [Row(case, OURS, size, 0, seconds, gap=1e-12, certified=certified)]) == [expected]


def pairs_of(pairs, above, below, busy=math.nan, case="10 rows of 256, 2 classes", **told):
    for repeat, (upper, lower) in enumerate(pairs):
        yield Row(case, above, 10, repeat, upper, busy_elsewhere=busy, **told)
        yield Row(case, below, 10, repeat, lower, busy_elsewhere=busy, **told)


def test_ratios_are_of_neighbours_and_of_quiet_pairs_where_there_are_any():
    busy = list(pairs_of([(2.0, 1.0), (9.0, 3.0), (8.0, 2.0)], MOMENTS, SUM, 1.5))
    assert _tables.ratios(busy, MOMENTS, SUM) == (3.0, 3, False)
    quiet = [dataclasses.replace(row, repeat=7) for row in pairs_of([(5.0, 4.0)], MOMENTS, SUM, 0.05)]
    assert _tables.ratios([*busy, *quiet], MOMENTS, SUM) == (1.25, 1, True)
    text = TABLES["validate-first"].render(busy)
    assert "| 3.00 x | **no** | 1.5 cores |" in text and "beside other work" in text


@pytest.mark.parametrize(("one", "two", "told"), [(3.2, 2.0, "| 1.60 x | yes |"), (3.0, 2.0, "| 1.50 x | **no** |")])
def test_a_second_worker(one, two, told):
    assert told in TABLES["validate-workers"].render(list(pairs_of([(one, two)], ONE, TWO)))


def test_memory_and_failures_of_validation():
    row = Row("8 rows", OURS, 8, 0, 1.0, peak_mb=401.0, baseline_mb=50.0)
    assert "| 401 MiB | **no** |" in TABLES["validate-memory"].render([row])
    failed = TABLES["validate-memory"].render([Row("8 rows", OURS, 8, 0, note="failed: exit status 1: no room")])
    assert "failed" in failed and "no room" in failed


@pytest.mark.parametrize(
    ("peer", "difference", "cell"),
    [(2.5, 1e-15, "| 2.50 x | yes |"), (2.4, 1e-15, "| 2.40 x | **no** |"), (9.0, 1e-3, "| 9.00 x | **no** |")],
)
def test_faster_is_not_enough_without_equal_values(peer, difference, cell):
    rows = list(pairs_of([(peer, 1.0), (2 * peer, 2.0)], PEER, OURS, difference=difference))
    assert cell in TABLES["training-loss"].render(rows)


@pytest.mark.parametrize(("ours", "cell"), [(25.0, "| 0.250 x | yes |"), (26.0, "| 0.260 x | **no** |")])
def test_memory_is_judged_by_the_median(ours, cell):
    rows = [Row("cpu", OURS, 10, n, 1.0, extra_mb=mb) for n, mb in enumerate((1.0, ours, 1000.0))]
    assert cell in TABLES["training-memory"].render([*rows, Row("cpu", PEER, 10, 0, 1.0, extra_mb=100.0)])


@pytest.mark.parametrize(("update", "cell"), [(0.3, "| 3.00 % | yes |"), (0.31, "| 3.10 % | **no** |")])
def test_the_monitor_is_judged_against_the_step(update, cell):
    rows = list(pairs_of([(update * n, 10.0 * n) for n in (1, 2, 3)], MONITOR, STEP))
    assert cell in TABLES["training-monitor"].render(rows)


def test_a_scan_is_judged_by_time_workers_and_cells():
    rows = [
        Row("scan", who, size, 0, seconds, certified=True, note="7 collapsed, 0 uncertified")
        for size, who, seconds in ((6000, ONE, 90.0), (6000, TWO, 50.0), (1500, ONE, 20.0), (1500, TWO, 12.0))
    ]
    assert met("scan", rows) == ["yes", "yes", "**no**", "yes"]
    assert met("scan", [dataclasses.replace(row, certified=False) for row in rows]) == ["**no**"] * 4


def test_growth_tells_exponents():
    rows = [
        Row("a", OURS, size, 0, size**1.5, gap=0.0, certified=True, extra_mb=size**2.0, peak_mb=9, baseline_mb=8)
        for size in (10, 20)
    ]
    text = TABLES["growth-classes"].render(rows)
    assert "| 1.50 |" in text and "| 2.00 |" in text


def test_missed_targets_are_listed():
    slow = dataclasses.replace(RIVAL, seconds=0.29)
    body = TABLES["speed-clarabel"].render([MINE, slow])
    assert _page._missed(body) == ["zipf, temperature 0.1, C = 20: target >= 30 x, reached 29 x."]
    assert _page._missed(TABLES["speed-clarabel"].render([MINE, RIVAL])) == []
