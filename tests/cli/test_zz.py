"""The `scan` command: JSON, the summary, grids, files, interruption, exit codes."""

from __future__ import annotations

import sys
from functools import partial

import pytest
from helpers import command_line
from optgeom_cli import scan as command
from optgeom_cli.output import UsageError

import optgeom as og
from optgeom import progress
from optgeom.collapse import scan as scans
from optgeom.collapse.scan import Scan

SMALL = (
    "--majority",
    ".5,.95",
    "--classes",
    3,
    "--temperature",
    "1,2",
    "--negatives",
    "1,inf",
    "--sampling",
    "ucl,scl",
)
FAILING = ("--majority", ".4,.9", "--classes", 3, "--temperature", ".002,.5", "--negatives", 1, "--alpha", 0)
USUAL = ("--majority", ".1:.95:10", "--temperature", ".1", "--loss", "supcon")

run = partial(command_line.run, "scan")
scanned = partial(command_line.answer, "scan")
words = partial(command_line.words, "scan")


def test_json_keys(tmp_path):
    file = tmp_path / "scan.csv"
    found = scanned(*SMALL, "--out", file)
    assert {"rows", "collapsed", "uncertified", "file", "spread", "partial", "new", "errors", "plot", "paths"} == set(
        found
    )
    assert (
        found["rows"] == found["new"] == 16 and found["collapsed"] + found["spread"] == 16 and found["collapsed"] >= 7
    )
    assert found["uncertified"] == 0 and found["file"] == str(file) and found["plot"] is None and found["errors"] == {}
    assert len(Scan.load(file)) == 16
    first = next(
        path
        for path in found["paths"]
        if path["temperature"] == 1 and path["negatives"] == 1 and path["sampling"] == "ucl"
    )
    assert (
        first["threshold"] == pytest.approx(0.8074897294850626, abs=1e-12)
        and first["rows"] == 2
        and first["collapsed"] == 1
    )
    assert {path["negatives"] for path in found["paths"]} == {1, "inf"}
    assert scanned(*SMALL, "--out", file)["new"] == 0
    assert scanned(*SMALL, "--out", file, "--no-resume")["new"] == 16
    assert scanned(*SMALL)["file"] is None


def test_two_workers(tmp_path):
    pytest.importorskip("joblib")
    one, two = scanned(*SMALL), scanned(*SMALL, "--workers", 2)
    assert one == two


def test_summary_in_words():
    text = words(*SMALL)
    assert "3 classes, InfoNCE" in text and "Cells 16" in text and "collapse from" in text and "share 0.807490" in text
    assert "Uncertified" not in text


def test_failed_cells_are_counted_and_the_exit_code_is_0():
    text = words(*FAILING)
    assert "Uncertified 2" in text and "2 x `temperature` must be >= 0.0059" in text
    assert scanned(*FAILING)["uncertified"] == 2


def test_case_31_says_what_it_would_take():
    text = words(*USUAL)
    assert "Collapsed 0" in text and "odds of 9.703e+08 or more" in text and "the largest here are 19" in text
    assert "--majority-odds" in text and "odds 9.703e+08 of the majority class on (exact)" in text
    reached = words("--majority-odds", "1e8,1e9", "--temperature", ".1", "--loss", "supcon")
    assert "Collapsed 1" in reached and "It would take" not in reached


@pytest.mark.parametrize(
    ("option", "text", "values"),
    [
        ("--majority", ".5,.9,.99", [0.5, 0.9, 0.99]),
        ("--majority", ".1:.9:5", [0.1, 0.3, 0.5, 0.7, 0.9]),
        ("--imbalance", "1:1000:4:log", [1, 10, 100, 1000]),
        ("--negatives", "1,8,inf", [1, 8, float("inf")]),
        ("--num-classes", "3:100:3:log", [3, 17, 100]),
        ("--num-classes", "3:5:9", [3, 4, 5]),
        ("--temperature", ".1:.1:1", [0.1]),
    ],
)
def test_grids(option, text, values):
    whole = option in ("--num-classes", "--negatives")
    assert command.parse_grid(option, text, whole=whole) == pytest.approx(values)


@pytest.mark.parametrize(
    "text", ["", "a", "1:2", "1:2:3:lin", "1:2:0", "1:2:x", "0:1:3:log", "1:inf:3", "1,,2", "1:2:3:log:4"]
)
def test_wrong_grids(text):
    with pytest.raises(UsageError, match="--temperature must be"):
        command.parse_grid("--temperature", text)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            ("--counts", "5,3,1"),
            2,
            "for classes of your own `optgeom design` varies one parameter, and `optgeom solve` gives",
        ),
        (("--majority", ".5", "--labels", "y.npy"), 2, "scan takes class sizes by formula, not --counts or --labels"),
        ((), 2, "give exactly one of --majority, --majority-odds, --imbalance"),
        (("--majority", ".5", "--imbalance", "3"), 2, "give exactly one of"),
        (("--majority", "1:2"), 2, "--majority must be a,b,c or from:to:number"),
        (("--majority", "1.5"), 3, "`majority` must be below 1"),
        (
            ("--majority", ".5", "--batch-size", "4", "--loss", "infonce"),
            2,
            "--batch-size goes with --loss supcon; got",
        ),
        (("--majority", ".5", "--plot", "x.jpg"), 2, "--plot must end in"),
        (("--majority", ".5", "--plot", "nowhere/x.png"), 3, "the folder nowhere does not exist (make it first)"),
        (("--majority", ".5", "--out", "x.txt"), 2, "--out must end in .csv, .parquet; got 'x.txt'"),
        (("--majority", ".5", "--sampling", "both"), 3, "`sampling` must be one of ucl, scl"),
    ],
)
def test_exit_codes(arguments, code, message):
    done = run(*arguments)
    assert done.exit_code == code and done.stdout == "" and message in done.stderr and done.stderr.count("\n") == 1


def test_interruption_keeps_the_file(tmp_path, monkeypatch):
    file = tmp_path / "scan.csv"
    count = iter(range(100))

    def solve(*arguments, **named):
        if next(count) == 5:
            raise KeyboardInterrupt
        return og.solve(*arguments, **named)

    monkeypatch.setattr(scans, "solve", solve)
    done = run(*SMALL, "--out", file)
    assert done.exit_code == 130 and done.stdout == "" and done.stderr.count("\n") == 1
    assert f"what was done is in {file}" in done.stderr
    assert len(Scan.load(file)) == 4
    assert scanned(*SMALL, "--out", file)["new"] == 12


def test_missing_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "joblib", None)
    done = run(*SMALL, "--workers", 2)
    assert done.exit_code == 6 and "optgeom[distributed]" in done.stderr


def test_picture(tmp_path):
    pytest.importorskip("matplotlib")
    found = scanned(*SMALL, "--plot", tmp_path / "phases.svg", "--colour", "rank")
    assert found["plot"] == str(tmp_path / "phases.svg")
    assert (tmp_path / "phases.svg").read_text().startswith("<?xml")


def test_bar_only_for_people_who_wait(monkeypatch, capsys):
    with progress.progress_bar("cells") as show:
        show(1, 2)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with progress.progress_bar("cells") as show:
        show(1, 2)
    assert capsys.readouterr().err == "", "done within a second"
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", -1.0)
    with progress.progress_bar("cells") as show:
        show(1, 2)
    assert "1/2" in capsys.readouterr().err


def test_names_of_0_1_0_are_read():
    usual = scanned("--imbalance", "1,20", "--shape", "exp", "--num-classes", "4", "--temperature", "1")
    old = scanned("--imbalance", "1,20", "--profile", "exp", "--classes", "4", "--temperature", "1")
    assert old == usual and old["rows"] == 2 and old["paths"][0]["num_classes"] == 4


def test_every_parameter_of_a_loss_is_an_axis():
    rows = scanned(
        "--majority", ".5", "--num-classes", "3", "--temperature", "1", "--alpha", "0,1", "--negatives", "4,inf"
    )
    assert [(path["negatives"], path["alpha"], path["negatives_reduction"]) for path in rows["paths"]] == [
        (4, 0.0, "sum"),
        (4, 1.0, "sum"),
        ("inf", 0.0, "mean"),
        ("inf", 1.0, "mean"),
    ]
def test_aaa(tmp_path):
    f=tmp_path/"a.csv"
    scanned(*SMALL,"--out",f)
    print(f.read_text()[:1500]); assert 0
