"""`optgeom prescribe`: JSON, tables, files, and what it refuses, in one line."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest
from helpers import command_line
from helpers.wanted import balanced_gram

import optgeom as og

COUNTS = ("--counts", "5000,1500,400,100", "--temperature", 0.1)
FOUR = og.ClassDistribution.from_counts([5000, 1500, 400, 100])
run = partial(command_line.run, "prescribe")
answer = partial(command_line.answer, "prescribe")


@pytest.mark.parametrize("by", ["both", "negative-weights", "margins", "temperatures"])
def test_json(by: str) -> None:
    found = answer(*COUNTS, "--target", "simplex", "--by", by)
    assert found["by"] == by
    assert found["certificate"]["certified"]
    assert [set(record) for record in found["classes"]] == [
        {"name", "anchor_weight", "negative_weight", "margin", "temperature"}
    ] * 4
    assert (found["weights"] is not None) == (by == "negative-weights")
    assert set(found["slack_needed"]) == {"tolerance_deg", "whole", "own", "float32_share", "batch_share"}
    assert set(found["before"]) == {"slack_needed", "min_angle_deg", "max_angle_deg"}
    assert found["before"]["min_angle_deg"] == pytest.approx(100.49, abs=0.01)
    assert og.solve(FOUR, og.Loss.from_dict(found["loss"])).min_angle_deg == pytest.approx(109.4712, abs=1e-3)


def test_strength() -> None:
    golden = [0.1223240548, 0.1393933892, 0.1651557886, 0.2063898372]
    found = answer(*COUNTS, "--by", "temperatures", "--strength", 0.05)
    assert [record["temperature"] for record in found["classes"]] == pytest.approx(golden, rel=1e-8)


def test_what_is_printed() -> None:
    printed = run(*COUNTS, "--by", "margins").stdout
    assert "the target is the optimum" in printed
    assert "before within" in " ".join(printed.split())
    code = printed.split("In Python:")[1]
    assert "og.SupCon(" in code and "margin={" in code and "torch_module(classes=classes)" in code


def test_files(tmp_path) -> None:
    answer(*COUNTS, "--by", "negative-weights", "--out", tmp_path / "plan.json")
    content = json.loads((tmp_path / "plan.json").read_text())
    assert og.solve(FOUR, og.Loss.from_dict(content["loss"])).min_angle_deg == pytest.approx(109.4712, abs=1e-3)
    printed = run(*COUNTS, "--by", "negative-weights", "--out", tmp_path / "plan.json").stdout
    assert str(tmp_path / "plan.json") in printed
    answer(*COUNTS, "--by", "margins", "--out", tmp_path / "plan.csv")
    assert (
        (tmp_path / "plan.csv").read_text().startswith("name,anchor_weight,negative_weight,margin,temperature\n0,1.0")
    )


@pytest.mark.parametrize("suffix", ["npy", "csv", "npz", "geometry.npz", "geometry.json", "tree.json"])
def test_targets_from_files(tmp_path, suffix: str) -> None:
    target, path = balanced_gram(4, 3, 1), tmp_path / f"target.{suffix}"
    if suffix == "npy":
        np.save(path, target)
    elif suffix == "csv":
        path.write_text("\n".join(",".join(f"{value:.17g}" for value in row) for row in target))
    elif suffix == "npz":
        np.savez(path, gram=target)
    elif suffix == "tree.json":
        tree = {"a": ["0", "1"], "b": ["2", "3"]}
        path.write_text(json.dumps(tree))
        target = og.tree_gram(tree, FOUR)
    else:
        geometry = og.solve(FOUR, og.SupCon(0.5))
        geometry.save(path)
        target = geometry.gram
    found = answer(*COUNTS, "--temperature", 0.4, "--target", path, "--by", "negative-weights")
    assert found["certificate"]["certified"]
    assert og.solve(FOUR, og.Loss.from_dict(found["loss"])).gram == pytest.approx(target, abs=1e-7)


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--out", "plan.txt"), 2, "--out must end in .json or .csv; got 'plan.txt'"),
        (("--target", "missing.npy"), 3, "cannot read the target missing.npy: No such file or directory"),
        (("--target", "missing.txt"), 3, "a target is read from .npy, .npz, .csv or .json; got 'missing.txt'"),
        (("--by", "anchor-weights"), 3, "weights of anchors alone never give the regular simplex to four or more"),
        (("--strength", "1"), 3, "`strength` must be below 1, the largest force; got 1.0 (0.5 is usual)"),
        (("--by", "focal"), 2, "'focal' is not one of"),
    ],
)
def test_refusals(options: tuple[str, ...], code: int, message: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = run(*COUNTS, *options)
    assert found.exit_code == code
    assert message in found.stderr
    assert len(found.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "1,0\n0,x", "a target must be C rows of C numbers; got could not convert"),
        ("a.csv", "1,0\n0,1", "`target` must have shape (C, C) = (4, 4) in class order; got (2, 2)"),
        ("a.json", '{"a": ["0"]}', "`tree` must hold every class; got none for 1, 2, 3"),
        ("a.json", "{", "line 1 is not valid JSON"),
    ],
)
def test_wrong_files(name: str, content: str, message: str, tmp_path) -> None:
    (tmp_path / name).write_text(content)
    found = run(*COUNTS, "--target", tmp_path / name)
    assert found.exit_code == 3
    assert message in found.stderr
    assert len(found.stderr.strip().splitlines()) == 1


def test_an_npz_without_a_gram(tmp_path) -> None:
    np.savez(tmp_path / "a.npz", cosines=np.eye(4))
    found = run(*COUNTS, "--target", tmp_path / "a.npz")
    assert "a target must be the array `gram`; got cosines (rename it)" in found.stderr
