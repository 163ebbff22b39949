"""Losses by name: descriptions make the same loss again, and the registry agrees with the classes."""

from __future__ import annotations

import dataclasses
import json
import math
import subprocess
import sys

import numpy as np
import pytest

import optgeom as og
from optgeom.losses import Loss, registry
from optgeom.losses.base import DescribedLoss

LAW = np.array([[0.2, 0.8, 0.0], [0.5, 0.25, 0.25], [1.0, 0.0, 0.0]])
LOSSES = [
    og.SupCon(),
    og.SupCon(0.2, 64, 1, "skip"),
    og.SupConFullBatch(0.07, 2, "skip"),
    og.InfoNCE(0.5, 8, 0.5, "sum", "scl"),
    og.InfoNCE(0.5, math.inf, negatives_reduction="mean"),
    og.InfoNCE(0.5, 3, negative_law=LAW),
]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.words())
def test_a_description_makes_the_same_loss_again(loss):
    described = loss.to_dict()
    again = Loss.from_dict(json.loads(json.dumps(described, allow_nan=False)))
    assert type(again) is type(loss)
    assert again.to_dict() == described
    classes = og.ClassDistribution.from_counts([50, 30, 20])
    assert og.solve(classes, again).risk == og.solve(classes, loss).risk


def test_descriptions_of_0_1_0_make_a_loss():
    old = {"name": "supcon", "temperature": 0.1, "batch_size": "inf", "views": 2, "singletons": "zero", "note": "..."}
    assert Loss.from_dict(old).to_dict() == og.SupCon().to_dict() | {"note": og.SupCon().to_dict()["note"]}
    explicit = {"name": "infonce", "temperature": 0.1, "negatives": 3, "alpha": 1.0, "negatives_reduction": "sum"}
    assert isinstance(Loss.from_dict({**explicit, "sampling": "explicit"}), DescribedLoss)


def test_what_is_only_described_says_so():
    stored = Loss.from_dict({"name": "triplet", "psi": "Hinge", "temperature": 0.5, "negatives": 1, "sampling": "ucl"})
    assert stored.words() == "triplet, psi = Hinge, temperature 0.5, 1 negative from all classes"
    assert stored.to_dict()["psi"] == "Hinge"
    with pytest.raises(og.IncompatibleError, match="triplet is known by its description only"):
        og.solve(og.ClassDistribution.from_counts([3, 2, 1]), stored)


@pytest.mark.parametrize("name", ["supcon", "infonce", "supcon-full", "generalized"])
def test_entries_agree_with_their_classes(name):
    entry, kind = registry.find(name), registry.loss_class(name)
    assert kind.name == name
    defaults = {part.name: part.default for part in dataclasses.fields(kind)}
    for option in entry.options:
        if name == "generalized" and option.name == "negatives":
            continue  # the only default that differs: a psi of one negative is the usual one
        assert defaults[option.name] == option.default, option.name


def test_parameters_of_another_version_are_refused():
    with pytest.raises(og.InvalidInputError, match="the loss supcon has no parameter 'power'"):
        Loss.from_dict({"name": "supcon", "power": 1.0})


def test_two_psi_of_one_class_are_told_apart():
    class Sigmoid:
        is_additive = True

        def __init__(self, margin):
            self.margin = margin

        def value(self, t):
            return np.logaddexp(0, t + self.margin).sum(axis=-1)

        def derivative(self, t):
            return 1 / (1 + np.exp(-t - self.margin))

    near, far = (og.GeneralizedContrastive(Sigmoid(margin), name="sigmoid") for margin in (1.0, 3.0))
    assert near.to_dict()["psi_attributes"] == {"margin": 1.0}
    assert near.to_dict() != far.to_dict()


def test_the_registry_loads_no_numpy():
    code = "import sys; from optgeom.losses import registry, options; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr
