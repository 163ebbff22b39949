"""Cases 9 to 17, 25, 26, 30, 31 and 38 of practice: classes, their geometry and its collapse.

One test a case, named by its number.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers.command_line import answer, refused, run, words
from scipy.stats import binom

import optgeom as og


def test_case_09_several_labels_a_row(tmp_path) -> None:
    np.save(tmp_path / "y.npy", np.array([[1, 0, 1], [0, 1, 1]]))
    message = refused("solve", 3, "--labels", tmp_path / "y.npy")
    assert "row 0 is [1, 0, 1] (multi-label targets have no single class" in message
    np.save(tmp_path / "y.npy", np.eye(3, dtype=int)[[0, 0, 1, 2]])
    note = run("solve", "--labels", tmp_path / "y.npy").stderr
    assert note == "labels were one-hot rows of 3 columns: converted to column numbers\n"
    assert answer("solve", "--labels", tmp_path / "y.npy")["proportions"] == [0.5, 0.25, 0.25]


def test_case_10_a_class_without_a_sample() -> None:
    counts = "310,2489,114,17,0,725"
    assert "got 0 for class 4 (drop it with" in refused("solve", 3, "--counts", counts)
    done = run("solve", "--counts", counts, "--drop-empty")
    assert done.exit_code == 0 and done.stderr.strip() == "1 class without samples left out: 4"
    solved = answer("solve", "--counts", counts, "--drop-empty")
    assert solved["proportions"] == pytest.approx([0.084815, 0.680985, 0.031190, 0.004651, 0.198358], abs=5e-7)
    assert solved["names"] == ["0", "1", "2", "3", "5"]
    classes = og.ClassDistribution.from_counts([310, 2489, 114, 17, 0, 725], drop_empty=True)
    assert classes.kept.tolist() == [0, 1, 2, 3, 5] and classes.dropped == ("4",)


def test_case_11_counts_over_two_to_the_thirty_one(tmp_path) -> None:
    (tmp_path / "n.json").write_text('{"person": 2760885855, "toaster": 132007}')
    classes = og.ClassDistribution.from_file(tmp_path / "n.json")
    assert (
        classes.counts is not None
        and classes.counts.tolist() == [2760885855, 132007]
        and classes.counts.dtype == np.int64
    )
    solved = answer("solve", "--counts-file", tmp_path / "n.json")
    assert solved["proportions"][1] == pytest.approx(132007 / 2761017862, rel=1e-14)


def test_case_12_imbalance_formula() -> None:
    assert answer("profiles", "cifar10-lt:100")["counts"] == [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]


def test_case_13_the_floor_changes_the_ratio() -> None:
    profile = answer("profiles", "cifar100-lt:200")
    assert profile["counts"][-1] == 2 and profile["counts"][0] / profile["counts"][-1] == 250
    assert "imbalance 250" in words("profiles", "cifar100-lt:200")
    assert "the most frequent 250 times as frequent as the rarest" in words("solve", "--profile", "cifar100-lt:200")


def test_case_14_odd_number_of_classes_in_a_step() -> None:
    assert answer("profiles", "step:7:100")["counts"] == [5000] * 4 + [50] * 3
    assert answer("solve", "--profile", "step:7:100")["num_classes"] == 7


def test_case_15_a_singleton_class(tmp_path) -> None:
    assert answer("solve", "--counts", "5000,1")["gram"] == [[1.0, -1.0], [-1.0, 1.0]]
    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "x.npz", X=np.concatenate([rng.normal([5, 0, 0], 1, (50, 3)), [[-1.0, 0, 0]]]), y=[0] * 50 + [1]
    )
    report = answer("validate", "--embeddings", tmp_path / "x.npz", "--counts", "5000,1")
    single = next(row for row in report["per_class"] if row["name"] == "1")
    assert single["count"] == 1 and single["rho"] is None and single["cdnv"] is None
    assert report["metrics"]["cdnv_mean"]["reason"] == "fewer than two classes have two images"
    assert "1 1 n/a n/a n/a" in words("validate", "--embeddings", tmp_path / "x.npz", "--counts", "5000,1")


def test_case_16_a_missing_label(tmp_path) -> None:
    np.save(tmp_path / "y.npy", [0, math.nan, 1, 1])
    assert "got nan in row 1" in refused("solve", 3, "--labels", tmp_path / "y.npy")
    np.save(tmp_path / "y.npy", [0, -1, 1, 1, 255])
    kept = answer("solve", "--labels", tmp_path / "y.npy")
    assert kept["names"] == ["-1", "0", "1", "255"]
    ignored = answer("solve", "--labels", tmp_path / "y.npy", "--ignore-label", -1, "--ignore-label", 255)
    assert ignored["names"] == ["0", "1"]
    assert "1 rows with label -1 left out" in ignored["notes"]


def test_case_17_all_samples_in_one_class(tmp_path) -> None:
    np.save(tmp_path / "y.npy", [0] * 10)
    assert refused("solve", 3, "--labels", tmp_path / "y.npy").startswith("no geometry with one class")


def test_case_25_more_classes_than_dimensions_plus_one() -> None:
    solved = answer("solve", "--profile", "exp:100:10", "--dim", 64, "--temperature", 0.5)
    assert solved["required_rank"] == 99 and solved["dim"] == 64 and not solved["certificate"]["certified"]
    lower, upper = solved["bracket"]
    free = answer("solve", "--profile", "exp:100:10", "--temperature", 0.5)["risk"]
    assert lower <= free <= upper and upper - free < 0.05 * abs(free)
    assert "99" in words("solve", "--profile", "exp:100:10", "--dim", 64, "--temperature", 0.5)


def test_case_26_a_simplex_in_few_dimensions() -> None:
    solved = answer("solve", "--profile", "majority:10:0.1", "--dim", 9)
    assert solved["certificate"]["certified"] and solved["rank"] == 9 and "bracket" not in solved
    assert np.array(solved["gram"]) == pytest.approx(np.where(np.eye(10) > 0, 1, -1 / 9), abs=1e-12)


def test_case_30_flat_objective() -> None:
    solved = answer("solve", "--proportions", ".9,.1", "--temperature", 0.1)
    assert solved["gram"] == [[1.0, -1.0], [-1.0, 1.0]]
    assert solved["risk"] == pytest.approx(-0.32508297133029, abs=5e-15)


@pytest.mark.parametrize(("tau", "odds"), [(1, "12.16"), (0.5, "106.3"), (0.1, "9.7e8"), (0.07, "5.1e12")])
def test_case_31_collapse_at_real_temperatures(tau: float, odds: str) -> None:
    loss = ["--loss", "infonce", "--negatives", "inf", "--alpha", 0, "--temperature", tau]
    threshold = answer("threshold", *loss)["odds"]
    assert float(f"{threshold:.{3 if tau > 0.1 else 1}e}") == float(odds)
    grid = words("scan", "--majority", ".1:.9:5", "--classes", 10, *loss[2:])
    published = {1: "12.16", 0.5: "106.3", 0.1: "9.703e+08", 0.07: "5.122e+12"}[tau]
    assert (
        f"It would take odds of {published} or more of the majority class against all others; the largest here are 9."
        in grid
    )


def test_case_38_a_batch_from_a_long_tail() -> None:
    text = words("loss", "--profile", "cifar100-lt:100", "--batch-size", 256, "--temperature", 0.1)
    counts = np.array(answer("profiles", "cifar100-lt:100")["counts"])
    shares = counts / counts.sum()
    assert binom.pmf(1, 256, shares).sum() == pytest.approx(19.0, abs=0.05)
    assert binom.pmf(0, 256, shares).sum() == pytest.approx(36.8, abs=0.05)
    assert "19.0 classes have one image in a batch and 36.8 none" in text
