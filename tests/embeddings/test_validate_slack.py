"""Verdict `within-slack`: the same angles at a temperature that determines them, and at one that does not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.command_line import parsed, run
from helpers.reference import simplex

import optgeom as og

ROOT = Path(__file__).resolve().parents[2]
COUNTS = [5000, 1500, 400, 100]


def rows_near_the_simplex(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Simplex directions in 64 dimensions, moved by N(0, .035^2), and 7000 rows with noise of length .1."""
    rng = np.random.default_rng(seed)
    values, axes = np.linalg.eigh(simplex(4))
    means = np.zeros((4, 64))
    means[:, :3] = axes[:, 1:] * np.sqrt(values[1:])
    means += 0.035 * rng.standard_normal(means.shape)
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    labels = np.repeat(np.arange(4), COUNTS)
    noise = rng.standard_normal((labels.size, 64))
    noise *= 0.1 / np.linalg.norm(noise, axis=1, keepdims=True)
    return means[labels] + noise, labels


def test_a_low_temperature_hardly_asks_for_these_angles_and_a_high_one_does():
    rows, labels = rows_near_the_simplex()
    classes = og.ClassDistribution.from_counts(COUNTS)
    cold = og.validate(rows, labels, og.solve(classes, og.SupCon(temperature=0.1)))
    assert cold.verdict == "within-slack"
    assert "the loss hardly asks for their angles" in cold.sentence
    assert cold.judgement.pairs == () and cold.judgement.classes == ()
    warm = og.validate(rows, labels, og.solve(classes, og.SupCon(temperature=0.5)))
    assert warm.verdict == "differs"
    assert warm.judgement.num_pairs >= 1
    # Without slack every pair that is off counts, as before.
    strict = og.validate(rows, labels, og.solve(classes, og.SupCon(temperature=0.1)), slack=0.0)
    assert strict.verdict == "differs"
    assert strict.own_excess is None


def test_costs_are_those_of_the_angle_next_to_the_optimum():
    rows, labels = rows_near_the_simplex()
    geometry = og.solve(og.ClassDistribution.from_counts(COUNTS), og.SupCon(temperature=0.5))
    found = og.validate(rows, labels, geometry)
    pair = found.worst_pairs(1)[0]
    low, high = pair.ci_deg
    nearest = min(max(pair.optimal_deg, low), high)
    near = og.ranges(
        geometry, slack=float(found.own_excess[pair.first, pair.second]), pairs=[(pair.first, pair.second)]
    )
    ends = (near.pairs[0].closest_deg, near.pairs[0].farthest_deg)
    assert min(abs(end - nearest) for end in ends) == pytest.approx(0.0, abs=1e-3)
    assert found.as_dict()["pairs"][0]["own_excess"] == found.own_excess[pair.first, pair.second]


@pytest.mark.parametrize("tau", [0.07, 0.1, 0.5])
def test_two_merged_rare_classes_are_named_at_every_temperature(tau):
    """They cost the mean risk nothing, and their own images everything."""
    classes = og.ClassDistribution.from_profile("cifar100-lt:100")
    geometry = og.solve(classes, og.SupCon(temperature=tau))
    means = geometry.prototypes(128).copy()
    means[99] = means[98]
    rng = np.random.default_rng(1)
    labels = np.repeat(np.arange(100), np.maximum(classes.counts, 40))
    noise = rng.standard_normal((labels.size, 128))
    noise *= 0.1 / np.linalg.norm(noise, axis=1, keepdims=True)
    found = og.validate(means[labels] + noise, labels, geometry)
    assert found.verdict in ("collapsed", "differs")
    named = {frozenset((geometry.names[pair.first], geometry.names[pair.second])) for pair in found.judgement.pairs}
    assert frozenset(("98", "99")) in named


@pytest.mark.parametrize("tau", [0.07, 0.1, 0.2, 0.5])
def test_costs_on_the_page_that_argues_the_default(tau):
    """docs/validate.md, first profile: each cost is that of the range that ends at this angle."""
    page = (ROOT / "docs/validate.md").read_text(encoding="utf-8")
    table = page[page.index("| cifar10-lt:100, .07 |") :].splitlines()[:4]
    row = next(row.split("|") for row in table if float(row.split("|")[1].split(",")[-1]) == tau)
    geometry = og.solve(og.ClassDistribution.from_profile("cifar10-lt:100"), og.SupCon(temperature=tau))
    for pair, cells in (((8, 9), row[2:7]), ((0, 1), row[7:12])):
        optimum = np.degrees(np.arccos(geometry.cosine(*pair)))
        assert float(cells[0].strip().rstrip("°")) == pytest.approx(optimum, abs=0.06)
        for less, cost in zip((2, 5, 10), cells[1:4], strict=True):
            near = og.ranges(geometry, slack=float(cost), pairs=[pair]).pairs[0]
            assert near.closest_deg == pytest.approx(optimum - less, rel=0, abs=0.06 * less)
        merged = og.ranges(geometry, slack=1.05 * float(cells[4]), pairs=[pair]).pairs[0]
        apart = og.ranges(geometry, slack=0.95 * float(cells[4]), pairs=[pair]).pairs[0]
        assert merged.closest_deg == 0 < apart.closest_deg


def test_command_line(tmp_path):
    rows, labels = rows_near_the_simplex()
    np.savez(tmp_path / "rows.npz", embeddings=rows, labels=labels)
    arguments = [
        "--embeddings",
        tmp_path / "rows.npz",
        "--counts",
        "5000,1500,400,100",
        "--temperature",
        "0.1",
        "--json",
    ]
    found = parsed(run("validate", *arguments))
    assert (found["verdict_kind"], found["slack"]) == ("within-slack", 1e-3)
    assert found["pairs"][0]["own_excess"] < 1e-3
    assert parsed(run("validate", *arguments, "--slack", "0"))["verdict_kind"] == "differs"
    assert run("validate", *arguments, "--slack", "-1").exit_code == 3


def test_wrong_slack():
    rows, labels = rows_near_the_simplex()
    with pytest.raises(og.InvalidInputError, match="`slack` must be >= 0"):
        og.validate(rows, labels, og.solve(og.ClassDistribution.from_counts(COUNTS), og.SupCon()), slack=-0.1)
