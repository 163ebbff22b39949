"""The `solve` command: JSON for programs, a table for people, files, exit codes."""

from __future__ import annotations

import json
import math
from functools import partial

import numpy as np
import pytest
from helpers import command_line, reference
from optgeom_cli import loss_input, solve_report
from optgeom_cli.output import UsageError

import optgeom as og
from optgeom import profiles

KEYS = command_line.SOLVE_KEYS
COLLAPSED = ("--counts", "950,20,20", "--temperature", 1)
LIMIT = ("--loss", "infonce", "--negatives", "inf", "--alpha", 0, "--temperature", 1, "--sampling", "scl")
SQUEEZED = ("--profile", "zipf:20:2", *LIMIT)

run = partial(command_line.run, "solve")
solved = partial(command_line.answer, "solve")
shown = partial(command_line.shown, "solve")
words = command_line.plain


def arguments_of(case, folder):
    given = ["--loss", case["loss"], "--temperature", case["temperature"]]
    if case["loss"] == "supcon":
        given += ["--batch-size", case["batch_size"], "--views", case["views"]]
    else:
        given += ["--negatives", case["negatives"], "--alpha", case["alpha"], "--sampling", case["sampling"]]
        given += ["--negatives-reduction", case["negatives_reduction"]]
    path = folder / "counts.json"
    path.write_text(json.dumps(case["counts"]))
    return ["--counts-file", path, *given]


# ----------------------------------------------------------------------------------------------------------------------
# JSON


@pytest.mark.parametrize("case", reference.geometry_cases(), ids=lambda case: case["name"])
def test_reference_cases(case, tmp_path):
    found = solved(*arguments_of(case, tmp_path), "--full")
    assert set(found) >= KEYS
    assert found["risk"] == pytest.approx(case["risk"], rel=1e-9, abs=1e-12)
    for (i, j), value in reference.gram_entries(case).items():
        assert found["gram"][i][j] == pytest.approx(value, abs=1e-6 if case["name"].startswith("partial") else 1e-8)
    assert found["certificate"]["certified"] is True
    assert found["certificate"]["gap"] <= 1e-10 * (1 + abs(found["risk"]))
    if "rank" in case:
        assert found["rank"] == case["rank"]


def test_json_names_and_regimes():
    found = solved(*COLLAPSED)
    assert found["regime"] == "minority-collapse" and found["rank"] == 1 and found["coincident_classes"] == [[1, 2]]
    assert found["names"] == ["0", "1", "2"] and found["proportions"] == pytest.approx([95 / 99, 2 / 99, 2 / 99])
    assert found["gram"][0] == pytest.approx([1, -1, -1])
    assert solved("--counts", "5,1")["regime"] == "spread"
    partial = solved(*SQUEEZED)
    assert (
        partial["regime"] == "partial-collapse" and partial["rank"] == 2 and len(partial["near_coincident_pairs"]) > 100
    )


def test_case_15_and_30_two_classes():
    found = solved("--proportions", ".9,.1")
    assert found["gram"][0][1] == pytest.approx(-1, abs=1e-9) and found["risk"] == pytest.approx(
        -0.32508297133029, rel=1e-12
    )
    assert solved("--counts", "5000,1")["gram"][0][1] == pytest.approx(-1, abs=1e-14)


def test_gram_up_to_64_classes_or_in_full():
    assert "gram" in solved("--profile", "exp:64:10")
    assert "gram" not in solved("--profile", "exp:65:10")
    assert np.shape(solved("--profile", "exp:65:10", "--full")["gram"]) == (65, 65)


def test_groups_above_1000_classes():
    found = solved("--profile", "lvis-v1")
    assert found["names"] is None and "proportions" not in found and "gram" not in found
    counts = profiles.load("lvis-v1").counts
    sizes = [group["size"] for group in found["groups"]]
    assert sum(sizes) == 1203 and sizes == np.unique(counts, return_counts=True)[1][::-1].tolist()
    total = sum(group["size"] * group["proportion"] for group in found["groups"])
    assert total == pytest.approx(1, rel=1e-12)
    assert all((group["within_cosine"] is None) == (group["size"] == 1) for group in found["groups"])


def test_case_25_bracket():
    found = solved("--profile", "exp:20:50", "--dim", 8)
    low, high = found["bracket"]
    assert low < high == found["risk"]
    assert found["certificate"]["certified"] is False and found["required_rank"] == 19 and found["dim"] == 8
    text = words(shown("--profile", "exp:20:50", "--dim", 8))
    assert "dimension limited: 20 classes in 8 dimensions" in text and "has rank 19: it needs --dim 19" in text
    assert "not certified: in 8 dimensions the lowest risk lies in the bracket from" in text


def test_case_26_simplex_in_few_dimensions():
    found = solved("--profile", "exp:10:1", "--dim", 9)
    assert found["certificate"]["certified"] is True and "bracket" not in found
    assert found["gram"][0][1] == pytest.approx(-1 / 9, abs=1e-12)


def test_zero_counts_are_dropped_with_notice():
    done = run("--counts", "310,2489,114,17,0,725", "--drop-empty", "--json")
    found = json.loads(done.stdout)
    assert found["names"] == ["0", "1", "2", "3", "5"] and done.stderr == "1 class without samples left out: 4\n"
    assert found["notes"] == ["1 class without samples left out: 4"]


# ----------------------------------------------------------------------------------------------------------------------
# loss


@pytest.mark.parametrize(
    ("given", "loss"),
    [
        ({}, og.SupCon(0.1, math.inf, 2, "zero")),
        ({"batch_size": "256", "views": 1, "singletons": "skip"}, og.SupCon(0.1, 256, 1, "skip")),
        ({"loss": "supcon-full"}, og.SupConFullBatch(0.1, 1, "zero")),
        ({"loss": "supcon-full", "views": 2}, og.SupConFullBatch(0.1, 2, "zero")),
        ({"loss": "infonce"}, og.InfoNCE(0.1, 256, 1.0, "sum", "ucl")),
        ({"loss": "infonce", "negatives": "inf"}, og.InfoNCE(0.1, math.inf, 1.0, "mean", "ucl")),
        ({"loss": "infonce", "negatives": "8", "alpha": 0.0, "sampling": "scl"}, og.InfoNCE(0.1, 8, 0.0, "sum", "scl")),
    ],
)
def test_defaults_of_each_loss(given, loss):
    read = loss_input.LossOptions.gathered({"loss": None, **given}).read()
    assert read.to_dict() == loss.to_dict()


@pytest.mark.parametrize(
    ("loss", "option", "value", "owner"),
    [
        ("supcon", "--negatives", "8", "--loss infonce"),
        ("supcon", "--alpha", "0", "--loss infonce"),
        ("supcon", "--negatives-reduction", "mean", "--loss infonce"),
        ("supcon", "--sampling", "scl", "--loss infonce"),
        ("infonce", "--batch-size", "8", "--loss supcon"),
        ("infonce", "--views", "2", "--loss supcon or --loss supcon-full"),
        ("infonce", "--singletons", "zero", "--loss supcon or --loss supcon-full"),
        ("supcon-full", "--batch-size", "8", "--loss supcon"),
    ],
)
def test_options_of_another_loss(loss, option, value, owner):
    done = run("--counts", "5,5", "--loss", loss, option, value)
    assert done.exit_code == 2 and done.stdout == ""
    assert done.stderr == f"{option} goes with {owner}; got --loss {loss} (change --loss, or leave {option} out)\n"


def test_numbers_that_are_none():
    with pytest.raises(UsageError, match=r"^--negatives must be a whole number or inf; got 'many'$"):
        loss_input.LossOptions("infonce", {"negatives": "many"}).read()
    assert loss_input.number_or_inf("--x", "Infinity") == math.inf and loss_input.number_or_inf("--x", "2.5") == 2.5


# ----------------------------------------------------------------------------------------------------------------------
# table


def test_table_says_it_in_words():
    text = words(shown("--profile", "cifar10-lt:100", "--loss", "supcon", "--batch-size", 256))
    for part in (
        "10 of cifar10-lt:100, 12406 samples, the most frequent 100 times as frequent as the rarest",
        "SupCon, temperature 0.1, batches of 256 images, 2 views each",
        "4.59362654346",
        "spread: every class keeps its own direction",
        "96.38 degrees for every pair if all classes were equally frequent",
        "9 of at most 9: the class means fit in 9 dimensions",
        "certified: the risk is within",
        "no other geometry attains it",
        "Closest pairs",
        "Classes by frequency",
    ):
        assert part in text
    assert max(map(len, shown("--profile", "cifar10-lt:100").splitlines())) <= 100


def test_table_without_colour_or_blanks_when_piped():
    text = shown(*COLLAPSED)
    assert "\x1b" not in text and all(line == line.rstrip() for line in text.splitlines())


def test_table_of_a_collapse():
    text = words(shown(*COLLAPSED))
    for part in (
        "minority collapse: all minority classes share one direction, opposite to class 0",
        "Same direction 2 classes: 1, 2",
    ):
        assert part in text
    assert (
        "Smallest angle 0 degrees (classes 1 and 2)" in text and "Near pairs 1 pair is less than 1 degree apart" in text
    )
    assert "partial collapse: 20 classes squeezed into 2 dimensions" in words(shown(*SQUEEZED))


def test_table_of_many_classes_shows_head_and_tail():
    text = shown("--profile", "imagenet100-lt")
    assert "Most and least frequent classes (100 in all)" in text and len(text.splitlines()) < 45


def test_pairs_that_tie_are_counted():
    # Two majority classes and four minority ones: 1 pair within the former, 6 within the latter, 8 between.
    text = words(shown("--counts", "90,90,10,10,10,10", "--temperature", "0.5"))
    found = solved("--counts", "90,90,10,10,10,10", "--temperature", "0.5")
    cosines = np.array(found["gram"])[np.triu_indices(6, 1)]
    assert sorted(np.unique(np.round(cosines, 9), return_counts=True)[1]) == [1, 6, 8]
    assert "(classes 2 and 3, and 5 more pairs)" in text
    assert "(classes 0 and 1)" in text
    assert "more pair" not in words(shown("--counts", "90,50,10", "--temperature", "0.5"))


def test_table_of_the_balanced_simplex():
    text = words(shown("--counts", "5,5,5,5"))
    assert "all pairs of classes 109.47 degrees apart (the balanced simplex)" in text and "all equally frequent" in text
    assert "0 5 25 % 1 (+2 more) 109.47" in text
    assert "180.00 degrees between the two classes" in words(shown("--counts", "5,1"))


def test_long_and_hostile_names(tmp_path):
    names = ["[bold]red[/bold]", "a name that is much longer than any column of the table", "two\nlines", "$x$"]
    (tmp_path / "c.json").write_text(json.dumps(dict(zip(names, [900, 300, 50, 20], strict=True))))
    text = shown("--counts-file", tmp_path / "c.json")
    assert "[bold]red[/bold]" in text and "two lines" in text and "a name that..f the table" in text
    assert max(map(len, text.splitlines())) <= 100


def test_other_losses_in_words():
    text = words(shown("--counts", "5,3", "--loss", "infonce", "--negatives", 1, "--alpha", ".5", "--sampling", "scl"))
    assert (
        "InfoNCE, temperature 0.1, 1 negative from the other classes only, positive in the denominator with weight 0.5"
        in text
    )
    text = words(shown("--counts", "5,3,1", "--loss", "supcon-full", "--singletons", "skip"))
    assert "SupCon, temperature 0.1, the whole data set as one batch, anchors without a positive left out" in text
    assert "(a large batch of N images adds log(2 (N - 1)))" in words(shown("--counts", "5,3"))
    assert "(sampler: n^0.5)" in words(shown("--counts", "8,2", "--sampler", "sqrt"))


def test_nearest_class_counts_ties():
    geometry = og.solve(og.ClassDistribution.from_counts([10, 4, 4, 4]), og.SupCon(1.0))
    nearest, others, angle = solve_report.nearest_class(geometry, 2)
    assert (nearest, others) == (1, 1) and angle == pytest.approx(math.degrees(math.acos(geometry.gram[1, 2])))
    assert solve_report.nearest_class(geometry, 0)[:2] == (1, 2)
