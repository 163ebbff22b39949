"""Scans of any loss and any classes, and the tables of 0.1.0."""

from __future__ import annotations

import math

import numpy as np
import pytest

import optgeom as og
from optgeom.collapse.scan import Scan, scan


class Steep:
    """psi = sum exp(t): additive, with a closed form for two classes."""

    is_additive = True

    def __init__(self, power=1.0):
        self.power = power

    def value(self, t):
        return np.exp(self.power * t).sum(axis=-1)

    def derivative(self, t):
        return self.power * np.exp(self.power * t)


def test_your_own_psi_has_rows_and_is_told_apart(tmp_path):
    file = tmp_path / "scan.csv"
    for power in (1.0, 2.0):
        loss = og.GeneralizedContrastive(Steep(power), name="steep")
        found = scan(3, loss, axes={"majority": [0.4, 0.6], "temperature": [0.5, 1.0]}, out=file)
        assert found.new == 4, "another psi is another cell"
        for row in found.rows:
            classes = og.ClassDistribution.from_groups([row["imbalance"], 1.0], [1, 2])
            own = og.GeneralizedContrastive(Steep(power), row["temperature"])
            assert row["risk"] == pytest.approx(og.solve(classes, own).risk, rel=1e-12)
    assert len(Scan.load(file)) == 8 and scan(3, loss, axes={"majority": 0.4, "temperature": 1.0}, out=file).new == 0


def test_given_classes_and_a_loss_of_counts():
    classes = og.ClassDistribution.from_counts([60, 30, 10])
    found = scan(classes, og.SupConFullBatch(), axes={"temperature": [0.1, 0.5], "views": [1, 2]})
    assert len(found) == 4 and found.uncertified == 0
    for row in found.rows:
        loss = og.SupConFullBatch(row["temperature"], row["views"])
        assert row["risk"] == og.solve(classes, loss).risk
        assert row["imbalance"] == 6 and row["majority"] == 0.6 and row["profile"].startswith("given:")
    assert found.column("singletons").tolist() == ["zero"] * 4
    with pytest.raises(og.IncompatibleError, match="the full batch depends on counts"):
        scan(3, og.SupConFullBatch(), axes={"majority": 0.5})
    with pytest.raises(og.InvalidInputError, match="`majority` varies classes, but they were given"):
        scan(classes, axes={"majority": 0.5})


def test_an_explicit_law_of_negatives():
    law = np.array([[0.2, 0.8, 0.0], [0.5, 0.25, 0.25], [0.5, 0.5, 0.0]])
    loss = og.InfoNCE(0.5, 3, negative_law=law)
    row = scan(3, loss, axes={"majority": 0.5}).rows[0]
    classes = og.ClassDistribution.from_proportions([0.5, 0.25, 0.25])
    assert row["risk"] == pytest.approx(og.solve(classes, loss).risk, rel=1e-12) and row["sampling"] == "explicit"


def test_tables_of_0_1_0_are_read_and_added_to(tmp_path):
    new = scan(3, axes={"majority": [0.5, 0.9], "batch_size": [64, math.inf]})
    infonce = scan(3, og.InfoNCE(), axes={"majority": [0.5, 0.9], "negatives": [8, math.inf]})
    Scan(new.rows + infonce.rows).save(tmp_path / "scan.csv")
    lines = (tmp_path / "scan.csv").read_text().splitlines()
    assert lines[0].endswith(",seconds,error,parameters")
    old = [lines[0].removesuffix(",parameters"), *(line[: line.index(',"{""name')] for line in lines[1:])]
    (tmp_path / "scan.csv").write_text("\n".join(old) + "\n")
    again = scan(3, axes={"majority": [0.5, 0.9], "batch_size": [64, math.inf]}, out=tmp_path / "scan.csv")
    assert again.new == 0 and again.rows == new.rows
    more = scan(
        3, og.InfoNCE(), axes={"majority": [0.5, 0.9], "negatives": [8, 16, math.inf]}, out=tmp_path / "scan.csv"
    )
    assert more.new == 2 and len(Scan.load(tmp_path / "scan.csv")) == 10
