"""The `loss` command: JSON, table, one command for each case from practice, errors."""

from __future__ import annotations

import math
from functools import partial

import pytest
from helpers import command_line

run = partial(command_line.run, "loss")
found = partial(command_line.answer, "loss")
shown = partial(command_line.words, "loss")


@pytest.mark.parametrize(
    ("arguments", "collapsed", "optimal"),
    [
        (["--rows", 8], 1.945910, None),
        (["--rows", 16], 2.708050, None),
        (["--batch-size", 64, "--views", 2], math.log(127), None),
        (["--rows", 128, "--temperature", 0.1, "--base-temperature", 0.07], 6.920267, None),
        (["--simclr", 128, "--temperature", 0.1], 5.541264, 0.010602),
        (["--counts", "20,20,20,20,20,20", "--loss", "supcon-full", "--temperature", 0.1], math.log(119), 2.944471),
        (["--simclr", 128, "--temperature", 0.001], 5.541264, 0.0),
        (["--counts", "5,5", "--loss", "infonce", "--negatives", 8], math.log(9), None),
    ],
    ids=lambda part: " ".join(map(str, part)) if isinstance(part, list) else None,
)
def test_values(arguments, collapsed, optimal):
    held = found(*arguments)
    assert {
        "collapsed_value",
        "optimal_value",
        "simplex_value",
        "verdict",
        "loss",
        "num_classes",
        "scale",
        "notes",
    } <= set(held)
    assert held["collapsed_value"] == pytest.approx(collapsed, abs=5e-7)
    if optimal is not None:
        assert held["optimal_value"] == pytest.approx(optimal, abs=5e-7)
    assert held["verdict"] is None


@pytest.mark.parametrize(
    ("arguments", "verdict"),
    [
        (["--rows", 8, "--observed", 1.9459], "collapsed: this is ln(8 - 1)"),
        (["--rows", 128, "--observed", 6.92], "collapsed, if your code multiplies"),
        (
            ["--rows", 128, "--observed", 6.92, "--base-temperature", 0.07],
            "collapsed: this is 1.42857 times ln(128 - 1)",
        ),
        (["--simclr", 128, "--observed", 5.5], "collapsed: this is ln(256 - 1)"),
        (["--simclr", 128, "--observed", 0.02], "at the optimum"),
        (["--counts", "900,50,50", "--rows", 128, "--observed", 0], "exactly 0: no anchor had a positive"),
        (["--counts", "900,50,50", "--batch-size", 64, "--observed", 1], "below the optimum"),
    ],
    ids=lambda part: " ".join(map(str, part)) if isinstance(part, list) else None,
)
def test_verdicts(arguments, verdict):
    assert found(*arguments)["verdict"].startswith(verdict)
    assert f"Verdict {verdict}" in shown(*arguments)


def test_table_explains_every_number():
    text = shown("--profile", "cifar100-lt:100", "--batch-size", 256)
    assert "Collapsed 6.236370 all features at one point: ln(512 - 1)" in text
    assert "Optimal 2.279044 the floor: no features go below it, proved to within" in text
    assert "Simplex 2.279270 all classes at equal angles, which is the optimum only of balanced classes" in text
    assert "19.0 classes have one image in a batch and 36.8 none" in text
    assert "Verdict" not in text


def test_table_of_the_limit_shows_what_a_batch_adds():
    text = shown("--counts", "900,50,50")
    assert "Collapsed 0.000000 + ln(2 (N - 1))" in text
    assert "+ 2 ln(N - 1)" in shown("--counts", "900,50,50", "--views", 1, "--base-temperature", 0.05)


def test_table_names_the_factor_and_the_batch():
    text = shown("--counts", "900,50,50", "--rows", 128, "--base-temperature", 0.05)
    assert "Factor 2: temperature 0.1 / base temperature 0.05, in all values below" in text
    assert "batches of 64 images" in text
    assert "SimCLR, 16 pairs in a batch, temperature 0.2" in shown("--simclr", 16, "--temperature", 0.2)


def test_labels_of_one_batch(tmp_path):
    path = tmp_path / "labels.txt"
    path.write_text("0\n1\n1\n3\n")
    for rule, mean, fate in (("skip", 1.098612, "are skipped"), ("zero", 0.549306, "count as 0")):
        arguments = ["--labels", path, "--loss", "supcon-full", "--singletons", rule]
        assert found(*arguments)["collapsed_value"] == pytest.approx(mean, abs=5e-7)
        assert f"2 of 4 anchors without a positive: they {fate}" in shown(*arguments)
    path.write_text("0\n1\n2\n3\n")
    done = run("--labels", path, "--loss", "supcon-full")
    assert done.exit_code == 3 and "no anchor has a positive: SupCon is undefined" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "give classes (for example --counts 900,50,50), --rows N for the collapsed value alone, or --pairs N"),
        (["--sampler", "sqrt"], 2, "give exactly one of --counts"),
        (["--simclr", 8, "--counts", "5,5"], 2, "--simclr goes with --temperature and --base-temperature only"),
        (["--simclr", 8, "--views", 2], 2, "--simclr goes with"),
        (["--simclr", 8, "--rows", 16], 2, "--simclr goes with"),
        (["--simclr", 1], 2, "--simclr must be 2 pairs or more; got 1"),
        (["--rows", 8, "--loss", "infonce"], 3, "`rows` goes with SupCon"),
        (["--rows", 2], 3, "`rows` must be a whole number >= 3"),
        (
            ["--counts", "5,5", "--observed", 1],
            3,
            "`observed` needs the size of the batches; got the limit of SupCon "
            "(give rows or a batch size: --rows or --batch-size)",
        ),
        (["--rows", 8, "--base-temperature", 0], 3, "`base_temperature` must be > 0"),
    ],
    ids=lambda part: " ".join(map(str, part)) or "nothing" if isinstance(part, list) else None,
)
def test_errors_are_one_line(arguments, code, message):
    done = run(*arguments)
    assert done.exit_code == code
    assert message in done.stderr and done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_the_name_of_0_1_0_for_what_counts_as_equal_is_read():
    near = ["--counts", "900,50,50", "--batch-size", 64, "--observed", 4.8]
    narrow, wide, old = found(*near), found(*near, "--equal-within", 0.45), found(*near, "--tolerance", 0.45)
    assert old["verdict"] == wide["verdict"] != narrow["verdict"]


SIX = ["--counts", "7,7,7,7,7,7", "--loss", "infonce", "--negatives", 8, "--temperature", 0.5]


def test_few_dimensions_make_the_floor_a_bracket():
    held = found(*SIX, "--dim", 2)
    low, high = held["bracket"]
    assert held["unlimited_value"] < low < high == held["optimal_value"] < held["collapsed_value"]
    assert held["dim"] == 2
    lines = shown(*SIX, "--dim", 2)
    assert f"Floor {low:.6f} no features in 2 dimensions with each class at one point go below it" in lines
    assert f"Best found {high:.6f} reached in 2 dimensions; the lowest value lies in this bracket" in lines
    free = found(*SIX, "--dim", 5)
    assert free["bracket"] is None and free["optimal_value"] == pytest.approx(held["unlimited_value"], abs=1e-8)
    assert found(*SIX)["dim"] is None


def test_one_dimension_has_a_lowest_value():
    held = found(*SIX, "--dim", 1)
    assert held["bracket"] == [held["optimal_value"]] * 2
    assert "the lowest value in one dimension: all placements were tried" in shown(*SIX, "--dim", 1)


@pytest.mark.parametrize(
    ("observed", "verdict"),
    [
        (2.197, "collapsed: this is ln(1 + 8)"),
        (1.5, "above the lowest value found, 1.204306 by 0.2957"),
        (1.2043, "at the lowest value found in so few dimensions, 1.204306"),
        (1.17, "inside the bracket: below the lowest value found in so few dimensions"),
        (1.1, "impossible for these settings with each class at one point"),
        (0.9, "below the lower end of the bracket, 1.133779 by 0.2338: impossible for these settings (check"),
    ],
)
def test_observed_is_impossible_only_below_the_lower_end(observed, verdict):
    said = found(*SIX, "--dim", 2, "--observed", observed)["verdict"]
    assert verdict in said
    assert ("impossible" in said) == (observed < 1.133779)


# --- batches without class counts


@pytest.mark.parametrize(
    ("options", "collapsed", "optimal", "words"),
    [
        (
            ("--pairs", 128, "--form", "clip", "--temperature", 0.07),
            math.log(128),
            7.09e-5,
            "CLIP, symmetric, 128 pairs",
        ),
        (
            ("--pairs", 4, "--form", "mnrl", "--temperature", 0.05),
            math.log(4),
            None,
            "MultipleNegativesRanking, 4 pairs",
        ),
        (
            ("--pairs", 64, "--form", "simclr"),
            math.log(127),
            None,
            "SimCLR (NT-Xent), 64 pairs in a batch, temperature 0.1",
        ),
        (
            ("--queue", 65536, "--temperature", 0.2),
            math.log(65537),
            None,
            "a queue of 65536 keys (MoCo), temperature 0.2",
        ),
        (
            ("--per-class", "32,4", "--num-classes", 200),
            math.log(127),
            1.1003952607505736,
            "32 classes with 4 images each",
        ),
        (("--per-class", "8,4", "--num-classes", 9, "--views", 2), math.log(63), None, "8 classes with 4 images each"),
    ],
)
def test_batches_without_class_counts(options, collapsed, optimal, words):
    found = command_line.answer("loss", *options)
    assert found["collapsed_value"] == pytest.approx(collapsed, rel=1e-12)
    assert optimal is None or found["optimal_value"] == pytest.approx(optimal, rel=2e-3)
    assert "batch_sd" in found
    printed = " ".join(command_line.shown("loss", *options, "--observed", f"{collapsed:.4f}").split())
    assert words in printed
    assert "collapsed: this is ln" in printed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--pairs", 8), "--pairs needs --form, one of simclr, clip, mnrl"),
        (("--form", "clip"), "--form goes with --pairs; got it without"),
        (
            ("--pairs", 8, "--form", "clip", "--queue", 9),
            "give one of --pairs, --queue, --per-class; got --pairs and --queue",
        ),
        (("--pairs", 8, "--form", "clip", "--images", 9), "--images goes with --queue; got it without"),
        (
            ("--pairs", 8, "--form", "clip", "--counts", "5,4"),
            "--pairs says what a batch holds and goes with --temperature",
        ),
        (
            ("--queue", 8, "--batch-size", 4),
            "--queue says what a batch holds and goes with --temperature; got --batch-size",
        ),
        (("--queue", 8, "--dim", 4), "got --dim too (leave it out)"),
        (("--per-class", "4,4"), "--per-class needs --num-classes"),
        (("--per-class", "4", "--num-classes", 9), "--per-class must be P,K: two whole numbers; got '4'"),
        (("--per-class", "4,4", "--num-classes", 9, "--rows", 9), "got --rows too (leave it out)"),
        (("--per-class", "4,4", "--num-classes", 9, "--loss", "supcon"), "got --loss too (leave it out)"),
    ],
)
def test_contradictory_batches(options, message):
    done = command_line.run("loss", *options)
    assert done.exit_code == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
