"""Options of values per class: words, names, files, flags; what they refuse, in one line."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest
from helpers import command_line

import optgeom as og

COUNTS = ("--counts", "5000,1500,400,100", "--temperature", 0.5)
CLASSES = og.ClassDistribution.from_counts([5000, 1500, 400, 100])
BOTH = {"anchor_weights": "balanced", "negative_weights": "class-average"}
run = partial(command_line.run, "solve")
answer = partial(command_line.answer, "solve")


@pytest.mark.parametrize(
    ("options", "given"),
    [
        (("--anchor-weights", "balanced"), {"anchor_weights": "balanced"}),
        (("--negative-weights", "class-average"), {"negative_weights": "class-average"}),
        (("--negative-weights", "batch-average"), {"negative_weights": "batch-average"}),
        (("--anchor-weights", "0=1, 1=2,2=3.5,3=4"), {"anchor_weights": {"0": 1.0, "1": 2.0, "2": 3.5, "3": 4.0}}),
        (
            ("--class-temperatures", "0=.4,1=.5,2=.6,3=.7"),
            {"class_temperatures": {"0": 0.4, "1": 0.5, "2": 0.6, "3": 0.7}},
        ),
        (("--no-own-class-in-denominator",), {"own_class_in_denominator": False}),
        (("--own-class-in-denominator",), {}),
    ],
)
def test_values_of_the_command_line(options: tuple[str, ...], given: dict[str, object]) -> None:
    expected = og.solve(CLASSES, og.SupCon(0.5, **given))  # type: ignore[arg-type]
    found = answer(*COUNTS, *options)
    assert found["risk"] == pytest.approx(expected.risk, rel=1e-12)
    assert found["loss"] == expected.loss.to_dict()


@pytest.mark.parametrize(
    ("options", "smallest"),
    [
        ((), 76.0),
        (("--anchor-weights", "balanced"), 38.8),
        (("--negative-weights", "class-average"), 13.5),
        (("--anchor-weights", "balanced", "--negative-weights", "class-average"), 96.379),
    ],
)
def test_angles_of_the_theory(options: tuple[str, ...], smallest: float) -> None:
    found = answer("--profile", "cifar10-lt:100", "--temperature", 0.5, *options)
    assert found["min_angle_deg"] == pytest.approx(smallest, abs=0.06)
    assert found["certificate"]["certified"]


def test_files(tmp_path) -> None:
    named, table = {"0": 1.0, "1": 2.0, "2": 3.0, "3": 4.0}, np.arange(1.0, 17.0).reshape(4, 4)
    (tmp_path / "w.json").write_text(json.dumps(named))
    np.save(tmp_path / "w.npy", table)
    for option, given, path in (
        ("--anchor-weights", {"anchor_weights": named}, tmp_path / "w.json"),
        ("--negative-weights", {"negative_weights": named}, tmp_path / "w.json"),
        ("--negative-weights", {"negative_weights": table}, tmp_path / "w.npy"),
    ):
        found = answer(*COUNTS, option, path)
        assert found["risk"] == pytest.approx(og.solve(CLASSES, og.SupCon(0.5, **given)).risk, rel=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--anchor-weights", "equal"), "--anchor-weights must be balanced|NAME=W,...|FILE.json; got 'equal'"),
        (("--anchor-weights", "0=1,1=x"), "got '1=x' (as cat=1,dog=2)"),
        (("--anchor-weights", "0=1,0=2"), "--anchor-weights must name each class once; got '0' twice"),
        (("--anchor-weights", "0=1,1=2"), "`anchor_weights` must have a value for every class; got none for 2, 3"),
        (("--anchor-weights", "0=1,1=2,2=0,3=1"), "`anchor_weights[2]` must be > 0; got 0.0"),
        (("--class-temperatures", "balanced"), "--class-temperatures must be NAME=W,...|FILE.json; got 'balanced'"),
        (("--anchor-weights", "none.json"), 'none.json must hold {"name": number, ...}; got No such file or directory'),
        (("--negative-weights", "none.npy"), "none.npy must hold weights as rows of numbers; got No such file"),
        (("--loss", "infonce", "--negative-weights", "batch-average"), "must not be 'batch-average' for InfoNCE"),
    ],
)
def test_refusals_in_one_line(options: tuple[str, ...], message: str) -> None:
    done = run(*COUNTS, *options)
    assert done.exit_code in (2, 3)
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_damaged_files(tmp_path) -> None:
    (tmp_path / "w.json").write_text("{")
    (tmp_path / "w.npy").write_bytes(b"no array")
    for option, name in (("--anchor-weights", "w.json"), ("--negative-weights", "w.npy")):
        done = run(*COUNTS, option, tmp_path / name)
        assert done.exit_code == 2
        assert "must hold" in done.stderr
        assert done.stderr.count("\n") == 1


def test_other_commands_take_weights() -> None:
    balanced = ("--anchor-weights", "balanced", "--negative-weights", "class-average")
    scanned = command_line.answer("scan", "--majority", ".5,.99", "--num-classes", 3, "--temperature", 0.5, *balanced)
    assert scanned["spread"] == 2
    threshold = command_line.answer("threshold", "--minorities", 9, "--temperature", 0.5, *balanced[2:])
    assert 9 * threshold["odds"] == pytest.approx(126.808808, rel=1e-8)
    values = command_line.answer("loss", *COUNTS, "--batch-size", 64, *balanced)
    assert values["optimal_value"] == pytest.approx(og.solve(CLASSES, og.SupCon(0.5, 64, **BOTH)).risk)
    done = command_line.run("threshold", "--minorities", 9, "--temperature", 0.5, *balanced)
    assert done.exit_code != 0
    assert "has no threshold" in done.stderr
    assert "own class left out of the denominator" in command_line.words(
        "solve", *COUNTS, "--no-own-class-in-denominator"
    )


def test_both_balances_have_no_margin_to_collapse() -> None:
    words = command_line.words("solve", *COUNTS, "--anchor-weights", "balanced", "--negative-weights", "class-average")
    assert "Collapse none: the other classes stay apart however large the majority is" in words
