"""Scans: rows against known thresholds and geometries, files, resuming, workers, clusters, failures."""

from __future__ import annotations

import importlib.util
import itertools
import math
import os
import subprocess
import sys

import numpy as np
import pytest
from helpers import reference

import optgeom as og
from optgeom.collapse import scan as scans
from optgeom.collapse import scan_table
from optgeom.collapse.scan import Scan, scan
from optgeom.inputs import parallel

AXES = {
    "majority": [0.3, 0.7, 0.95],
    "temperature": [0.5, 1.0],
    "negatives": [1, math.inf],
    "sampling": ["ucl", "scl"],
}
GRID = {"classes": 4, "loss": og.InfoNCE(), "axes": AXES}
CELLS = 24
UNDERFLOW = {
    "negatives": 1,
    "alpha": 0.0,
    "temperature": [0.002, 0.5],
}  # such a loss does not exist at the lower temperature


def steady(rows):
    """Rows without what differs between runs."""
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


@pytest.fixture(scope="module")
def serial():
    return scan(**GRID)


# ----------------------------------------------------------------------------------------------------------------------
# rows


@pytest.mark.parametrize("sampling", ["ucl", "scl"])
@pytest.mark.parametrize(
    "case", reference.GOLDEN["thresholds"], ids=lambda case: f"k{case['negatives']}-m{case['minorities']}"
)
def test_regime_flips_exactly_at_the_known_threshold(case, sampling):
    share = case[sampling]
    found = scan(
        case["minorities"] + 1,
        loss=og.InfoNCE(),
        axes={
            "majority": [share - 1e-6, share + 1e-6],
            "temperature": case["temperature"],
            "negatives": case["negatives"],
            "sampling": sampling,
        },
    )
    below, above = found.rows
    assert (below["regime"], below["rank"]) == ("spread", case["minorities"])
    assert (above["regime"], above["rank"], above["min_angle_deg"]) == ("minority-collapse", 1, 0.0)
    assert found.collapsed == 1 and found.uncertified == 0
    for row in found.rows:
        assert 1 / (1 + math.exp(-row["threshold_log_odds"])) == pytest.approx(share, abs=1e-12)
        assert row["threshold_imbalance"] == pytest.approx(case["minorities"] * share / (1 - share), rel=1e-9)


def test_row_of_a_known_geometry():
    case = reference.case("three-classes-strong")
    (row,) = scan(
        3, loss=og.InfoNCE(), axes={"majority": 0.9, "temperature": 1, "negatives": math.inf, "alpha": 0}
    ).rows
    assert row["risk"] == pytest.approx(case["risk"], rel=1e-12)
    assert row["rank"] == case["rank"] and row["certified"] and row["error"] == ""
    assert row["min_angle_deg"] == pytest.approx(math.degrees(math.acos(case["gram"]["1,2"])), abs=1e-7)
    assert row["log_odds"] == pytest.approx(math.log(9), rel=1e-12)
    assert row["imbalance"] == pytest.approx(18) and row["majority"] == 0.9
    assert math.exp(row["threshold_log_odds"]) == pytest.approx(12.1613696667, rel=1e-11)
    assert list(row) == list(scan_table.COLUMNS)


def test_supcon_is_the_default_and_its_limit_is_infonce():
    batches = scan(4, axes={"majority": 0.8, "temperature": 0.5}).rows[0]
    limit = scan(
        4, loss=og.InfoNCE(), axes={"majority": 0.8, "temperature": 0.5, "negatives": math.inf, "alpha": 0}
    ).rows[0]
    assert batches["loss"] == "supcon" and batches["batch_size"] == math.inf and batches["negatives"] is None
    assert batches["risk"] == pytest.approx(limit["risk"], rel=1e-12)


def test_shares_odds_and_imbalance_are_one_axis():
    by_share, by_odds, by_ratio = (
        scan(4, axes={"temperature": 1, **given}).rows[0]
        for given in ({"majority": 0.75}, {"majority_odds": 3}, {"imbalance": 9})
    )
    assert steady([by_share]) == steady([by_odds]) == steady([by_ratio])
    rare = scan(4, axes={"majority": 0.1, "temperature": 1}).rows[0]  # the "majority" may be the rarest class
    assert rare["imbalance"] == pytest.approx(1 / 3) and rare["certified"] and rare["regime"] == "spread"


def test_odds_beyond_the_last_share_are_cells_of_their_own():
    found = scan(
        3, axes={"majority_odds": [1e17, 1e18], "temperature": 0.05}
    )  # both shares round to 1; the threshold is at 4.7e17
    assert found.column("majority").tolist() == [1.0, 1.0]
    assert [row["log_odds"] > row["threshold_log_odds"] for row in found.rows] == [False, True]


@pytest.mark.parametrize(
    ("profile", "name"), [("exp", "exp:6:50:100000000"), ("step", "step:7:50:5000"), ("zipf", "zipf:6:{s}")]
)
def test_profiles_are_those_of_the_same_name(profile, name):
    classes = int(name.split(":")[1])
    known = og.ClassDistribution.from_profile(name.format(s=math.log(50) / math.log(6)))
    row = scan(classes, axes={"imbalance": 50, "temperature": 1}, shape=profile).rows[0]
    assert row["majority"] == pytest.approx(known.proportions[0], rel=1e-6)
    assert row["risk"] == pytest.approx(og.solve(known, og.SupCon(1.0)).risk, rel=1e-6)


@pytest.mark.parametrize("profile", ["exp", "zipf"])
def test_threshold_of_a_falling_profile(profile):
    at = scan(4, axes={"imbalance": 10, "temperature": 2}, shape=profile).rows[0]["threshold_imbalance"]
    below, above = scan(4, axes={"imbalance": [at * (1 - 1e-4), at * (1 + 1e-4)], "temperature": 2}, shape=profile).rows
    assert below["regime"] != "minority-collapse" and above["regime"] == "minority-collapse"


def test_no_threshold_where_there_is_none():
    two = scan(2, axes={"majority": 0.9, "temperature": 1}).rows[0]
    step = scan(6, axes={"imbalance": 100, "temperature": 1}, shape="step").rows[0]
    split = scan(
        6, loss=og.InfoNCE(), axes={"imbalance": 100, "temperature": 1, "negatives": 8, "sampling": "scl"}, shape="zipf"
    ).rows[0]  # depends on the split
    overflow = scan(3, axes={"majority": 0.9, "temperature": 0.002}).rows[0]
    for row in (two, step, split, overflow):
        assert row["threshold_log_odds"] is None and row["threshold_imbalance"] is None
    assert two["regime"] == "spread"


def test_order_and_repetitions_of_the_values_do_not_matter(serial):
    turned = {name: values[::-1] + values[:1] for name, values in AXES.items()}
    assert steady(scan(4, og.InfoNCE(), axes=turned).rows) == steady(serial.rows)
    assert len(serial) == CELLS


def test_columns_and_paths(serial):
    assert serial.column("majority").dtype == np.float64 and serial.column("certified").dtype == np.bool_
    assert np.isnan(serial.column("batch_size")).all() and set(serial.column("sampling")) == {"ucl", "scl"}
    assert np.isinf(serial.column("negatives")).sum() == CELLS / 2
    assert len(serial.paths()) == 8
    for path, rows in serial.paths():
        assert [row["majority"] for row in rows] == AXES["majority"]
        assert {row["temperature"] for row in rows} == {path["temperature"]}
    assert "cells=24" in repr(serial)
    with pytest.raises(og.InvalidInputError, match="`name` must be one of"):
        serial.column("loss_value")


# ------------------------------------------------------------------------------------------------------- the same rows,
# whoever solves them


def test_two_processes_give_the_same_rows(serial, tmp_path):
    pytest.importorskip("joblib")
    found = scan(**GRID, workers=2, out=tmp_path / "scan.csv")
    assert steady(found.rows) == steady(serial.rows)
    assert steady(Scan.load(tmp_path / "scan.csv").rows) == steady(serial.rows)


def test_a_cluster_of_two_processes_gives_the_same_rows(serial, tmp_path):
    distributed = pytest.importorskip("distributed")
    arguments = {
        "n_workers": 2,
        "threads_per_worker": 1,
        "processes": True,
        "dashboard_address": None,
        "local_directory": str(tmp_path),
    }
    with distributed.LocalCluster(**arguments) as cluster:
        found = scan(**GRID, dask=cluster.scheduler_address, out=tmp_path / "scan.parquet")
        assert steady(found.rows) == steady(serial.rows)
        with distributed.Client(cluster) as client:
            assert steady(scan(**GRID, dask=client).rows) == steady(serial.rows)
            assert client.status == "running", "a client that was lent is not closed"
            with pytest.raises(og.SolverError, match="the cluster lost its workers"):
                list(parallel.run(math.sqrt, [-1.0], 1, client))
    assert steady(Scan.load(tmp_path / "scan.parquet").rows) == steady(serial.rows)


def test_no_scheduler_at_the_address(monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(parallel, "CONNECT_SECONDS", 0.2)
    with pytest.raises(og.InvalidInputError, match="`dask` must be the address of a scheduler"):
        scan(axes={"majority": 0.9}, dask="tcp://127.0.0.1:1")


def test_a_worker_that_dies_is_an_error_and_not_a_cell():
    pytest.importorskip("joblib")
    with pytest.raises(og.SolverError, match="a worker process died"):
        list(parallel.run(os._exit, [3, 3, 3], 2, None))


# ----------------------------------------------------------------------------------------------------------------------
# resume


def test_interrupted_and_resumed_is_the_same_as_one_run(serial, tmp_path, monkeypatch):
    file = tmp_path / "scan.csv"
    counter = itertools.count()

    def interrupted(*arguments, **named):
        if next(counter) == 10:
            raise KeyboardInterrupt
        return og.solve(*arguments, **named)

    monkeypatch.setattr(scans, "solve", interrupted)
    with pytest.raises(KeyboardInterrupt):
        scan(**GRID, out=file)
    kept = Scan.load(file)
    assert len(kept) == 9, "three paths of three cells were finished"
    resumed = scan(**GRID, out=file)
    assert resumed.new == CELLS - 9 and steady(resumed.rows) == steady(serial.rows)
    assert resumed.rows[:9] == kept.rows, "solved cells are not solved again"
    assert Scan.load(file).rows == resumed.rows
    again = scan(**GRID, out=file)
    assert again.new == 0 and again.rows == resumed.rows


DIES = """
import math, os, sys
import optgeom as og
from optgeom.collapse import scan as scans
scans.WRITE_SECONDS = scans.WRITE_SHARE = 0
stop = lambda done, total: os._exit(9) if done >= 12 else None
scans.scan(4, og.InfoNCE(), axes={axes}, out=sys.argv[1], progress=stop)
"""


def test_killed_without_a_warning_and_resumed(serial, tmp_path):
    file = tmp_path / "scan.csv"
    axes = repr(AXES).replace("inf", "math.inf")
    done = subprocess.run([sys.executable, "-c", DIES.format(axes=axes), str(file)], capture_output=True, text=True)
    assert done.returncode == 9, done.stderr
    assert len(Scan.load(file)) == 12
    assert sorted(path.name for path in tmp_path.iterdir()) == ["scan.csv"]
    assert steady(scan(**GRID, out=file).rows) == steady(serial.rows)


def test_another_grid_adds_to_the_file(tmp_path):
    file = tmp_path / "scan.csv"
    first = scan(3, axes={"majority": [0.5, 0.9], "temperature": 1}, out=file)
    second = scan(3, axes={"majority": [0.9, 0.95], "temperature": 1}, out=file)
    assert (second.new, len(second)) == (1, 2)
    held = Scan.load(file)
    assert held.column("majority").tolist() == [0.5, 0.9, 0.95] and held.rows[:2] == first.rows
    stricter = scan(3, axes={"majority": 0.9, "temperature": 1}, out=file, tolerance=1e-10)
    assert stricter.new == 1, "a certificate at another tolerance is another cell"
    assert len(scan(3, axes={"majority": 0.2, "temperature": 1}, out=file, resume=False)) == len(Scan.load(file)) == 1


def test_progress_counts_cells(tmp_path):
    seen = []
    scan(
        3,
        axes={"majority": [0.5, 0.9], "temperature": [0.5, 1]},
        out=tmp_path / "a.csv",
        progress=lambda *pair: seen.append(pair),
    )
    assert seen == [(0, 4), (2, 4), (4, 4)]
    seen.clear()
    scan(
        3,
        axes={"majority": [0.5, 0.9], "temperature": [0.5, 1, 2]},
        out=tmp_path / "a.csv",
        progress=lambda *pair: seen.append(pair),
    )
    assert seen == [(4, 6), (6, 6)]


# ----------------------------------------------------------------------------------------------------------------------
# failures


def test_a_cell_whose_loss_does_not_exist_is_a_row():
    found = scan(3, og.InfoNCE(), axes={"majority": [0.4, 0.9], **UNDERFLOW})
    assert [row["certified"] for row in found.rows] == [False, False, True, True]
    assert found.uncertified == 2 and found.collapsed == 1
    failed = found.rows[0]
    assert "`temperature` must be >= 0.0059" in failed["error"]
    assert failed["risk"] is None and failed["rank"] is None and failed["regime"] == "" and failed["seconds"] >= 0


@pytest.mark.parametrize("error", [RuntimeError("a bug,\nin two lines"), MemoryError(), og.SolverError("it diverged")])
def test_whatever_goes_wrong_in_a_cell_is_a_row(error, monkeypatch, tmp_path):
    def solve(classes, *arguments, **named):
        if classes.proportions[0] > 0.8:
            raise error
        return og.solve(classes, *arguments, **named)

    monkeypatch.setattr(scans, "solve", solve)
    found = scan(3, axes={"majority": [0.5, 0.9], "temperature": 1}, out=tmp_path / "scan.csv")
    good, bad = found.rows
    assert good["certified"] and not bad["certified"]
    reasons = {
        "RuntimeError": "RuntimeError: a bug, in two lines",
        "MemoryError": "MemoryError: MemoryError",
        "SolverError": "it diverged",
    }
    assert bad["error"] == reasons[type(error).__name__]
    assert Scan.load(tmp_path / "scan.csv").rows == found.rows


def test_an_uncertified_cell_keeps_its_numbers():
    found = scan(4, axes={"majority": 0.6, "temperature": 0.5}, tolerance=1e-300)  # no gap is that small
    row = found.rows[0]
    assert found.uncertified == 1 and not row["certified"] and "not certified" in row["error"]
    assert row["rank"] == 3 and row["regime"] == "spread" and 0 < row["gap"] < 1e-12
    assert found.count("spread") == 0, "counts are of what is proved"


def test_a_loss_that_exists_nowhere_is_an_error():
    with pytest.raises(
        og.InvalidInputError, match="`negatives_reduction` must be 'mean' for infinitely many negatives"
    ):
        scan(loss=og.InfoNCE(), axes={"majority": 0.9, "negatives": math.inf, "negatives_reduction": "sum"})
    partly = scan(
        3,
        loss=og.InfoNCE(),
        axes={"majority": 0.9, "temperature": 1, "negatives": [1, math.inf], "negatives_reduction": "sum"},
    )
    assert [bool(row["error"]) for row in partly.rows] == [False, True]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "`axes` must hold exactly one of `majority`, `majority_odds`, `imbalance`; got none"),
        ({"axes": {"majority": 0.5, "imbalance": 2}}, "got majority and imbalance"),
        ({"axes": {"majority": 1.0}}, "`majority` must be below 1; got 1.0"),
        ({"axes": {"majority": [0.5, 0.0]}}, "`majority` must be > 0; got 0.0"),
        ({"axes": {"majority": []}}, "`majority` must hold at least one value"),
        ({"axes": {"majority_odds": math.inf}}, "`majority_odds` must be > 0; got inf"),
        ({"axes": {"majority": 0.5}, "shape": "zipf"}, "`majority` goes with shape 'majority'; got 'zipf'"),
        ({"axes": {"imbalance": 0.5}, "shape": "exp"}, "`imbalance` must be >= 1; got 0.5"),
        ({"axes": {"majority": 0.5}, "classes": 1}, "`classes` must be a whole number >= 2; got 1"),
        ({"axes": {"majority": 0.5, "num_classes": [3, 1]}}, "`num_classes` must be a whole number >= 2; got 1"),
        ({"axes": {"majority": 0.5, "num_classes": 3}, "classes": 3}, "must not both be given"),
        ({"axes": {"majority": 0.5}, "classes": "ten"}, "`classes` must be a ClassDistribution; got str"),
        ({"axes": {"majority": 0.5, "temperature": [0.1, 0.0]}}, "`temperature` must be > 0; got 0.0"),
        (
            {"axes": {"majority": 0.5, "negatives": 0}, "loss": og.InfoNCE()},
            "`negatives` must be a whole number >= 1 or inf; got 0",
        ),
        ({"axes": {"majority": 0.5, "batch_size": 2.5}}, "`batch_size` must be a whole number >= 2 or inf; got 2.5"),
        ({"axes": {"majority": 0.5, "sampling": "both"}, "loss": og.InfoNCE()}, "`sampling` must be one of ucl, scl"),
        ({"axes": {"majority": 0.5, "views": 2}, "loss": og.InfoNCE()}, "got 'views'"),
        ({"axes": {"majority": 0.5, "alpha": 1.0}}, "`axes` must name parameters of SupCon (temperature, batch_size,"),
        ({"axes": {"majority": 0.5}, "loss": "triplet"}, "`loss` must be a loss; got str"),
        ({"axes": [0.5]}, "`axes` must be a mapping; got list"),
        ({"axes": {"majority": 0.5}, "shape": "pareto"}, "`shape` must be one of"),
        ({"axes": {"majority": 0.5}, "workers": 0}, "`workers` must be a whole number >= 1; got 0"),
        ({"axes": {"majority": 0.5}, "tolerance": 0}, "`tolerance` must be > 0; got 0"),
        ({"axes": {"majority": 0.5}, "out": "scan.txt"}, "a scan is kept as .csv or .parquet; got 'scan.txt'"),
        ({"axes": {"majority": 0.5}, "out": "nowhere/scan.csv"}, "the folder nowhere does not exist"),
        ({"majority": 0.5}, "`majority` of scan is gone; got majority=... (write axes={'majority': [...]}"),
        ({"negatives": 8}, "`negatives` of scan is gone; got negatives=... (write loss=InfoNCE(negatives=...)"),
        ({"profile": "exp"}, "`profile` of scan is gone; got profile=... (write shape=..."),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(og.InvalidInputError) as caught:
        scan(**arguments)
    assert message in str(caught.value)


# ----------------------------------------------------------------------------------------------------------------------
# files


def test_csv_and_parquet_hold_the_same(serial, tmp_path):
    pytest.importorskip("pyarrow")
    serial.save(tmp_path / "scan.csv")
    serial.save(tmp_path / "scan.parquet")
    assert Scan.load(tmp_path / "scan.csv").rows == Scan.load(tmp_path / "scan.parquet").rows == serial.rows
    failed = scan(3, og.InfoNCE(), axes={"majority": [0.4, 0.9], **UNDERFLOW})
    for name in ("failed.csv", "failed.parquet"):
        failed.save(tmp_path / name)
        assert Scan.load(tmp_path / name).rows == failed.rows
        assert {type(value) for value in Scan.load(tmp_path / name).rows[0].values()} == {
            type(value) for value in failed.rows[0].values()
        }


def test_csv_is_for_others_too(serial, tmp_path):
    serial.save(tmp_path / "scan.csv")
    lines = (tmp_path / "scan.csv").read_text().splitlines()
    assert lines[0].startswith("loss,sampling,negatives,") and len(lines) == CELLS + 1
    assert lines[1].startswith("infonce,scl,1,,,1.0,sum,0.5,majority,4,1e-08,")
    assert "NaN" not in "".join(lines) and "None" not in "".join(lines)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b\n1,2\n", "is not a scan of this version: its columns differ"),
        ("", "is not a scan of this version: its columns differ"),
        ("{header}\ninfonce,ucl\n", "line 2: a row of a scan must have 29 cells; got 2 (repair or remove it)"),
        ("{row}x", "line 2: `certified` must be true or false; got 'perhaps' (repair or remove it)"),
        ("\x00\udcff", "is not a scan"),
    ],
)
def test_files_that_are_no_scan_are_left_alone(content, message, serial, tmp_path):
    file = tmp_path / "scan.csv"
    Scan(serial.rows[:1]).save(file)
    good = file.read_text()
    bad = content.format(header=good.splitlines()[0], row=good.replace("true", "perhaps")).encode(
        "utf-8", "surrogateescape"
    )
    file.write_bytes(bad)
    with pytest.raises(og.InvalidInputError, match=r"scan\.csv") as caught:
        scan(**GRID, out=file)
    assert message in str(caught.value)
    assert file.read_bytes() == bad


@pytest.mark.parametrize(
    "text", [" blanks around ", "# no comment", 'a "quote", a comma', "a\u2028separator", "a\ttab"]
)
def test_text_of_a_cell_stays_as_it_is(text, serial, tmp_path):
    """Tables that people write are stripped and may have comments; those of scans are not and have none."""
    row = {**serial.rows[0], "loss": text, "error": text, "parameters": '{"name": "own"}'}
    Scan([row]).save(tmp_path / "scan.csv")
    assert Scan.load(tmp_path / "scan.csv").rows == [row]


def test_parquet_that_is_none(tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "scan.parquet").write_text("loss,sampling\n")
    with pytest.raises(og.InvalidInputError, match="is not a Parquet file"):
        Scan.load(tmp_path / "scan.parquet")
    with pytest.raises(og.InvalidInputError, match="there is no scan file"):
        Scan.load(tmp_path / "other.csv")


def test_missing_packages_are_named(monkeypatch, tmp_path):
    known = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pyarrow" else known(name))
    with pytest.raises(og.MissingDependencyError, match=r"optgeom\[io\]"):
        scan(axes={"majority": 0.9}, out=tmp_path / "scan.parquet")
    monkeypatch.setitem(sys.modules, "joblib", None)
    with pytest.raises(og.MissingDependencyError, match=r"joblib: pip install 'optgeom\[distributed\]'"):
        scan(axes={"majority": 0.9, "temperature": [1, 2]}, workers=2)
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(og.MissingDependencyError, match=r"dask: pip install 'optgeom\[distributed\]'"):
        scan(axes={"majority": 0.9}, dask="tcp://127.0.0.1:8786")
