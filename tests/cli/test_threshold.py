"""The `threshold` command and the margin that `solve` reports: JSON, table, words at real temperatures, errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers import command_line, reference
from optgeom_cli import solve as solve_command
from optgeom_cli.threshold import margin_text, odds_text

import optgeom as og
from optgeom.collapse.thresholds import CollapseMargin, collapse_margin, collapse_threshold

INFONCE = ("--loss", "infonce", "--temperature", 1, "--negatives", 8)

run = command_line.run
found = command_line.answer
shown = command_line.words


# ----------------------------------------------------------------------------------------------------------------------
# threshold


@pytest.mark.parametrize("law", ["ucl", "scl"])
def test_golden(law):
    for case in reference.GOLDEN["thresholds"]:
        arguments = [
            "--minorities",
            case["minorities"],
            "--loss",
            "infonce",
            "--negatives",
            case["negatives"],
            "--sampling",
            law,
        ]
        held = found("threshold", *arguments, "--temperature", case["temperature"])
        assert held["threshold"] == pytest.approx(case[law], abs=1e-9)
        assert held["published_sufficient"] == {"ucl": 0.9292, "scl": 0.9438}[law]
        assert held["margin"] is None


@pytest.mark.parametrize(("temperature", "needs"), [(1, "12.16"), (0.5, "106.3"), (0.1, "9.703e8"), (0.07, "5.122e12")])
def test_real_temperatures_are_told_in_odds(temperature, needs):
    text = shown("threshold", "--temperature", temperature)
    assert f"Total collapse needs odds of {needs} : 1 or more" in text
    assert "1.000" not in text and "no collapse" not in text
    assert "literature" not in text


def test_share_near_one_is_told_by_its_complement():
    assert "Majority share 1 - 1.031e-9 or more" in shown("threshold")
    assert "Majority share 0.924020 or more" in shown("threshold", "--temperature", 1)


def test_split():
    held = found("threshold", *INFONCE, "--sampling", "scl", "--split", ".5,.3,.15,.05")
    assert held["threshold"] == pytest.approx(0.685872, abs=5e-7)
    assert held["minorities"] == 4
    text = shown("threshold", *INFONCE, "--sampling", "scl", "--split", ".5,.3,.15,.05")
    assert "Minorities 4, in proportions .5,.3,.15,.05" in text
    assert "In the literature a share of 0.9438 is known to suffice; exactly, 0.685872 suffices and is needed" in text
    assert "Minorities 7, equally frequent" in shown("threshold", *INFONCE, "--sampling", "scl", "--minorities", 7)
    assert "the same for any number of them, however unequal" in shown("threshold", *INFONCE)


def test_classes_bring_their_own_split_and_margin():
    arguments = [*INFONCE, "--sampling", "scl", "--counts", "100,50,30,15,5"]
    held = found("threshold", *arguments)
    expected = collapse_threshold(og.InfoNCE(1.0, 8, sampling="scl"), split=[50, 30, 15, 5])
    assert held["log_odds"] == pytest.approx(expected.log_odds, abs=1e-12)
    assert held["minorities"] == 4
    margin = held["margin"]
    assert margin["majority_odds"] == pytest.approx(1.0) and margin["threshold_odds"] == pytest.approx(expected.odds)
    assert margin["collapsed"] is False and margin["factor"] == pytest.approx(expected.odds)
    text = shown("threshold", *arguments)
    assert "Minorities 4, in proportion as given" in text
    assert "Your classes the majority's odds are 1 : 1; total collapse needs 2.183 : 1, 2.183 times as much" in text


def test_places_lt_is_far_from_collapse():
    text = shown("threshold", "--profile", "places-lt", "--batch-size", 256)
    assert "the majority's odds are 0.08658 : 1; total collapse needs 3.228e8 : 1, 3.729e9 times as much" in text


def test_collapsed_classes_and_other_minorities():
    arguments = ["--counts", "95,3,2", "--temperature", 1]
    assert found("threshold", *arguments)["margin"]["collapsed"] is True
    assert "total collapse: the majority's odds are 19 : 1, 1.562 times the 12.16 : 1 at which it begins" in shown(
        "threshold", *arguments
    )
    both = found("threshold", *arguments, "--minorities", 9)
    assert both["minorities"] == 9 and both["margin"]["collapsed"] is True


def test_tie_for_the_largest_class():
    held = found("threshold", "--counts", "5,5,3", "--temperature", 1)
    assert held["margin"] is None and held["minorities"] == 2
    assert "no single class is the most frequent: total collapse is not the optimum" in shown(
        "threshold", "--counts", "5,5,3"
    )


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--minorities", 1], 3, "`minorities` must be a whole number >= 2; got 1 (two classes are always opposite)"),
        (["--counts", "5,3"], 3, "two classes are always opposite"),
        (["--split", ".5,.5", "--minorities", 2], 2, "give --minorities or --split, not both"),
        (["--split", ".5,x"], 3, "`split` must be numbers with commas between; got 'x'"),
        (["--split", "1,0"], 3, "`split` must be two or more positive numbers"),
        (["--loss", "supcon-full"], 2, "the full batch depends on counts (use SupCon with its batch size)"),
        (["--temperature", 0.002], 3, "`temperature` must be larger for a threshold in floating point; got 0.002"),
        (["--sampler", "sqrt"], 2, "give exactly one of --counts"),
    ],
    ids=lambda part: " ".join(map(str, part)) if isinstance(part, list) else None,
)
def test_errors_are_one_line(arguments, code, message):
    done = run("threshold", *arguments)
    assert done.exit_code == code
    assert message in done.stderr and done.stderr.count("\n") == 1
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (12.1613, "12.16"),
        (0.0866, "0.0866"),
        (21984.2, "21984"),
        (9.7033e8, "9.703e8"),
        (4.5e-5, "4.500e-5"),
        (1e250, "1.000e250"),
        (1.0, "1"),
    ],
)
def test_odds_as_people_write_them(value, text):
    assert odds_text(math.log(value)) == text


# ----------------------------------------------------------------------------------------------------------------------
# margin in `solve`


@pytest.mark.parametrize(
    ("arguments", "loss"),
    [
        (["--temperature", 1], og.SupCon(1.0)),
        ([*INFONCE, "--sampling", "scl"], og.InfoNCE(1.0, 8, sampling="scl")),
        (["--temperature", 1, "--batch-size", 12, "--views", 1], og.SupCon(1.0, 12, 1)),
    ],
    ids=["limit", "scl", "one view"],
)
@pytest.mark.parametrize("counts", [[95, 3, 2], [5, 3, 2]], ids=str)
def test_solve_reports_the_margin(arguments, loss, counts):
    margin = collapse_margin(og.ClassDistribution.from_counts(counts), loss)
    given = ["--counts", ",".join(map(str, counts)), *arguments]
    held = found("solve", *given)
    assert held["collapse_margin"] == pytest.approx(margin.as_dict())
    assert held["collapse_margin"]["collapsed"] == (held["regime"] == "minority-collapse")
    assert f"Collapse {margin_text(margin)}" in shown("solve", *given)


@pytest.mark.parametrize(
    "arguments", [["--counts", "5,3"], ["--counts", "5,3,2", "--loss", "supcon-full"]], ids=["two", "full batch"]
)
def test_solve_has_no_margin_where_the_question_does_not_arise(arguments):
    held = found("solve", *arguments)
    assert held["collapse_margin"] is None and not any("margin" in note for note in held["notes"])
    assert "Collapse " not in shown("solve", *arguments)


def test_solve_says_why_there_is_no_margin():
    tie = ["--counts", "5,5,3"]
    assert found("solve", *tie)["collapse_margin"] is None
    assert "Collapse no single class is the most frequent: total collapse is not the optimum" in shown("solve", *tie)
    cold = ["--counts", "9,4,2", "--temperature", 0.003]
    held = found("solve", *cold)
    assert held["collapse_margin"] is None
    assert any(
        note.startswith("collapse_margin: margin not computed: `temperature` must be larger") for note in held["notes"]
    )
    assert "Collapse margin not computed: `temperature` must be larger" in shown("solve", *cold)


def test_many_class_sizes_do_not_slow_a_solve_down(monkeypatch):
    monkeypatch.setattr(solve_command, "MARGIN_GROUPS", 4)
    five = ["--counts", "9,8,7,6,5", "--temperature", 1]
    wanted = [*five, "--loss", "infonce", "--sampling", "scl"]
    assert found("solve", *wanted)["collapse_margin"] is None
    assert "Collapse margin not computed for 5 different class sizes (`optgeom threshold` does it)" in shown(
        "solve", *wanted
    )
    # Negatives from all classes do not see how the minorities are split: two groups, whatever the number of classes.
    assert found("solve", *five)["collapse_margin"]["collapsed"] is False


def test_margin_in_words():
    assert margin_text(CollapseMargin(True, math.log(20), math.log(10))).startswith(
        "total collapse: the majority's odds are 20 : 1, 2 times"
    )
    assert np.isclose(CollapseMargin(False, 0.0, math.log(4)).factor, 4)
