"""What users add to a validation: a loss of their own, a metric of their own."""

from __future__ import annotations

import importlib.resources
import json
import re

import jsonschema
import numpy as np
import pytest
from optgeom_cli.validate_report import report

import optgeom as og
from optgeom.embeddings import measures, validate
from optgeom.embeddings.metrics.metric import Definition, Metric
from optgeom.formatting import to_json
from optgeom.plotting.validation_report import render_report


class LogSum:
    """psi of InfoNCE with alpha 1, as a user would write it."""

    is_additive = False

    def value(self, t):
        return np.logaddexp(0.0, np.logaddexp.reduce(t, axis=-1))

    def derivative(self, t):
        return np.exp(t) / (1 + np.exp(t).sum(axis=-1, keepdims=True))


def test_a_users_own_psi_has_the_excess_risk_of_the_same_loss_by_name():
    classes = og.ClassDistribution.from_counts([60, 30, 15])
    codes = np.repeat(np.arange(3), [60, 30, 15])
    rows = np.eye(4)[codes] + 0.3 * np.random.default_rng(0).normal(size=(105, 4))
    own, named = (
        og.validate(rows, codes, og.solve(classes, loss))
        for loss in (og.GeneralizedContrastive(LogSum(), 0.5, 2), og.InfoNCE(0.5, 2))
    )
    for term in ("direction", "shrink", "within", "within_error", "total", "unit"):
        assert getattr(own.excess_risk, term) == pytest.approx(getattr(named.excess_risk, term), rel=1e-6), term
    assert own.metrics["empirical_loss"].value == pytest.approx(named.metrics["empirical_loss"].value, rel=1e-9)


def test_a_new_metric_is_one_definition(monkeypatch, capsys):
    """One entry is in the result, the JSON object (valid by the schema), the page and the summary of the terminal."""
    largest = Definition(
        name="largest_class",
        words="images of the largest class; no value is best",
        heading="Largest class",
        measure=lambda embedding: Metric(float(embedding.moments.counts.max())),
    )
    monkeypatch.setattr(validate, "METRICS", (*measures.METRICS, largest))
    codes = np.repeat(np.arange(3), [60, 30, 15])
    rows = np.eye(4)[codes] + 0.3 * np.random.default_rng(0).normal(size=(105, 4))
    found = og.validate(rows, codes)
    content = json.loads(json.dumps(to_json(found.as_dict()), allow_nan=False))
    schema = importlib.resources.files("optgeom.embeddings").joinpath("validation.schema.json")
    jsonschema.Draft202012Validator(json.loads(schema.read_text(encoding="utf-8"))).validate(content)
    assert content["metrics"]["largest_class"]["value"] == 60
    assert "images of the largest class; no value is best" in render_report(found)
    report(found, {})
    assert re.search(r"Largest class +60\n", capsys.readouterr().out)
