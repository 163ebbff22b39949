"""Level and power of the verdict at tolerance 0 over families of classes that have a structure of their own.

Level: samples whose true directions are exactly the optimum that is tested, rejected by the intervals of single pairs
or by the bootstrap. Power: the smallest class turned by 10 degrees towards its nearest class. Each table is printed
(`pytest -s`).
"""

from __future__ import annotations

import numpy as np
import pytest
from helpers.families import NAMES, families, turned_family
from helpers.simulated import long_tail, moments_of, optimum, within_of

from optgeom.embeddings.moments.directions import class_directions
from optgeom.embeddings.statistics.bootstrap import null_intervals
from optgeom.embeddings.statistics.class_noise import class_noise
from optgeom.embeddings.statistics.pair_intervals import beyond, pair_intervals

LAYOUTS = {"3000..20": (3000, 20), "60..10": (60, 10), "8..3": (8, 3)}
DIM = 32
RUNS = 150
# Turned classes found among 40 in the families of section 25 of the theory; others are compared with the least of them.
POWER = {
    "isotropic": 39,
    "one axis": 37,
    "radial": 36,
    "mislabelled": 29,
    "power law": 22,
    "two modes": 22,
    "lognormal": 22,
}


def rejected(family, counts, optimal, runs, seed):
    """Samples rejected by single pairs, by the bootstrap, and samples in which a pair was decidable at all."""
    found = np.zeros(3, dtype=int)
    for run in range(runs):
        rows = family.sample(counts, np.random.default_rng([seed, run]))
        directions = class_directions(moments_of(rows))
        noise = class_noise(directions, within_of(rows, directions))
        intervals = pair_intervals(directions, noise, optimal)
        null = null_intervals(directions, noise, intervals, optimal, seed=run)
        found += [beyond(intervals, optimal, 0.0).any(), beyond(null, optimal, 0.0).any(), intervals.num_decidable > 0]
    return found


@pytest.mark.parametrize("layout", LAYOUTS)
def test_true_optimum_is_hardly_ever_rejected(layout):
    counts = long_tail(*LAYOUTS[layout], 6)
    for name, family in families(optimum(counts), DIM, ("isotropic", "one axis", "two modes", "radial")).items():
        single, together, able = rejected(family, counts, family.gram, 10, 71)
        assert single <= 1 and together <= 1, name
        assert able == (0 if layout == "8..3" else 10)


@pytest.mark.slow
@pytest.mark.parametrize("classes", [6, 20])
def test_level_over_all_families(classes, capsys):
    """At most 18 of 150 in any cell, and 6 % of all."""
    lines, total = [f"| family, {classes} classes | " + " | ".join(LAYOUTS) + " |"], np.zeros((2, 0))
    every = {layout: families(optimum(long_tail(*ends, classes)), DIM) for layout, ends in LAYOUTS.items()}
    for name in NAMES:
        cells = []
        for layout, ends in LAYOUTS.items():
            family, counts = every[layout][name], long_tail(*ends, classes)
            single, together, able = rejected(family, counts, family.gram, RUNS, 72)
            # Pairs are decided between classes of at least 8 images.
            assert able == (RUNS if sum(count >= 8 for count in counts) > 1 else 0)
            cells.append((single, together))
        total = np.hstack([total, np.array(cells[: 2 if classes == 6 else 3]).T])
        lines.append(f"| {name} | " + " | ".join(f"{single}, {together}" for single, together in cells) + " |")
    with capsys.disabled():
        print("\n" + "\n".join(lines))
    assert total.max() <= 18 and total.mean(axis=1).max() <= 0.06 * RUNS


def test_turned_class_is_mostly_found():
    found = powers(("isotropic", "radial"), 10)
    assert min(found.values()) >= 7, found


@pytest.mark.slow
def test_power_over_all_families(capsys):
    found = powers(NAMES, 40)
    with capsys.disabled():
        print("\n| family | found of 40 |\n" + "\n".join(f"| {name} | {number} |" for name, number in found.items()))
    assert all(number >= POWER.get(name, min(POWER.values())) for name, number in found.items()), found


def powers(names, runs):
    """Samples in which the bootstrap rejects, the class of 20 images being turned by 10 degrees."""
    counts = long_tail(3000, 20, 6)
    found = {}
    for name, family in families(optimum(counts), DIM, names).items():
        cosines = family.gram - 2 * np.eye(6)
        moved = turned_family(family, 5, int(cosines[5].argmax()), 10.0)
        found[name] = int(rejected(moved, counts, family.gram, runs, 73)[1])
    return found
