"""Shipped and formula profiles against numbers written out from their definitions and sources."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optgeom import profiles
from optgeom.errors import InvalidInputError
from optgeom.inputs.classes import ClassDistribution

SHIPPED = {  # classes, largest, smallest, sum, first
    "ade20k-images": (150, 11588, 41, 165120, 11588),
    "cityscapes-pixels": (19, 2036416525, 5449152, 5523279889, 2036416525),
    "cocostuff164k-pixels": (171, 2760885855, 1056718, 30627322816, 2760885855),
    "imagenet100-lt": (100, 1280, 6, 12205, 30),
    "inaturalist2017-supercategories": (13, 214295, 308, 579184, 158407),
    "inaturalist2018-supercategories": (14, 143950, 16, 437513, 118800),
    "lvis-v1": (1203, 1977, 1, 360952, 64),
    "places-lt": (365, 4980, 5, 62500, 219),
}


def test_all_shipped_profiles_are_listed():
    assert profiles.list_profiles() == tuple(SHIPPED)


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_profiles(name):
    classes, largest, smallest, total, first = SHIPPED[name]
    profile = profiles.load(name)
    assert (
        profile.num_classes,
        profile.counts.max(),
        profile.counts.min(),
        profile.counts.sum(),
        profile.counts[0],
    ) == SHIPPED[name]
    assert profile.source.startswith("github.com/") and profile.name == name
    assert profiles.describe(name) == {
        "name": name,
        "source": profile.source,
        "note": profile.note,
        "num_classes": classes,
        "max_count": largest,
        "min_count": smallest,
        "imbalance_factor": largest / smallest,
    }
    distribution = ClassDistribution.from_profile(name)
    assert distribution.counts.tolist() == profile.counts.tolist() and distribution.proportions[0] == first / total
    with pytest.raises(ValueError, match="read-only"):
        profile.counts[0] = 1


CIFAR10 = [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]


def test_case_12_cifar10_lt():
    assert profiles.load("cifar10-lt:100").counts.tolist() == CIFAR10
    assert profiles.load("exp:10:100").counts.tolist() == CIFAR10
    assert profiles.load(" exp:10:1e2:5000 ").counts.tolist() == CIFAR10
    assert ClassDistribution.from_profile("cifar10-lt:100").imbalance_factor == 100


def test_case_13_floor_changes_the_ratio():
    profile = profiles.load("cifar100-lt:200")
    assert profile.counts[-1] == 2 and profile.imbalance_factor == 250
    assert profiles.describe("cifar100-lt:200")["imbalance_factor"] == 250


def test_cifar100_lt():
    counts = profiles.load("cifar100-lt:100").counts
    assert counts[:6].tolist() == [500, 477, 455, 434, 415, 396] and counts[-1] == 5 and counts.size == 100


def test_case_14_odd_number_of_classes_in_a_step():
    assert profiles.load("step:7:100").counts.tolist() == [5000, 5000, 5000, 5000, 50, 50, 50]
    assert profiles.load("step:2:3:10").counts.tolist() == [10, 3]


@given(st.integers(1, 10**6), st.integers(1, 10**4))
def test_floor_is_robust_to_rounding(smallest, imbalance):
    # n_max / IF is a whole number on paper: rounding must not take one off.
    n_max = smallest * imbalance
    for name in (f"exp:3:{imbalance}:{n_max}", f"step:3:{imbalance}:{n_max}"):
        assert profiles.load(name).counts[[0, -1]].tolist() == [n_max, smallest]


def test_powers_that_are_whole_on_paper():
    assert profiles.load("exp:4:1000:8000").counts.tolist() == [8000, 800, 80, 8]
    assert profiles.load("exp:6:32:3125000").counts.tolist() == [3125000, 1562500, 781250, 390625, 195312, 97656]


def test_zipf_and_majority_are_proportions():
    zipf = profiles.load("zipf:4:1")
    assert zipf.counts is None and zipf.proportions.tolist() == pytest.approx(
        [12 / 25, 6 / 25, 4 / 25, 3 / 25], rel=1e-15
    )
    assert profiles.load("zipf:3:0").proportions.tolist() == [1 / 3] * 3
    majority = ClassDistribution.from_profile("majority:5:0.6")
    assert majority.counts is None and majority.groups.sizes.tolist() == [1, 4]
    assert majority.proportions.tolist() == pytest.approx([0.6, 0.1, 0.1, 0.1, 0.1], rel=1e-15)
    described = profiles.describe("zipf:4:1")
    assert described["max_count"] is None and described["min_count"] is None
    assert described["imbalance_factor"] == pytest.approx(4, rel=1e-15)


def test_formulas_are_listed():
    assert list(profiles.formula_usages()) == [
        "cifar10-lt:IF",
        "cifar100-lt:IF",
        "exp:C:IF[:n_max]",
        "step:C:IF[:n_max]",
        "zipf:C:s",
        "majority:C:lambda",
    ]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("places", r"`profile` must be a known name; got 'places'; close: places-lt \(`optgeom profiles` lists all\)"),
        (
            "CIFAR10_LT:100",
            r"`profile` must be a known name; got 'CIFAR10_LT:100'; close: cifar10-lt:IF, cifar100-lt:IF",
        ),
        ("no-such", r"`profile` must be a known name; got 'no-such'"),
        ("", r"`profile` must be a known name; got ''"),
        ("../../../etc/passwd", r"`profile` must be a known name"),
        (3, r"`profile` must be a name; got 3"),
        ("cifar10-lt", r"profile `cifar10-lt` must be written cifar10-lt:IF; got 0 values after 'cifar10-lt'"),
        ("exp:10", r"profile `exp:10` must be written exp:C:IF\[:n_max\]; got 1 values"),
        ("zipf:10:1:5", r"profile `zipf:10:1:5` must be written zipf:C:s; got 3 values"),
        ("exp:x:10", r"profile `exp:x:10`: C must be a whole number >= 2; got 'x'"),
        ("exp:1:10", r"profile `exp:1:10`: no geometry with one class: C must be a whole number >= 2; got '1'"),
        ("exp:10:0.5", r"profile `exp:10:0.5`: the imbalance factor IF must be a number >= 1; got '0.5'"),
        ("exp:10:nan", r"profile `exp:10:nan`: the imbalance factor IF must be a number >= 1; got 'nan'"),
        ("cifar10-lt:inf", r"profile `cifar10-lt:inf`: the imbalance factor IF must be a number >= 1; got 'inf'"),
        ("cifar10-lt:x", r"profile `cifar10-lt:x`: the imbalance factor IF must be a number >= 1; got 'x'"),
        ("exp:10:10:0", r"profile `exp:10:10:0`: n_max must be a whole number >= 1 below 2\^53; got '0'"),
        (
            "cifar100-lt:1000",
            r"profile `cifar100-lt:1000` must leave a sample in every class; got 0 for class 90 \(lower IF",
        ),
        ("step:4:100:50", r"profile `step:4:100:50` must leave a sample in every class; got 0 for class 2 "),
        ("zipf:10:-1", r"profile `zipf:10:-1`: s must be a number >= 0; got '-1'"),
        (
            "zipf:10:400",
            r"profile `zipf:10:400`: the rarest class is below the range of floats; got s = 400 \(lower s\)",
        ),
        ("majority:3:1", r"profile `majority:3:1`: lambda must be a number strictly between 0 and 1; got '1'"),
        ("majority:3:0", r"profile `majority:3:0`: lambda must be a number strictly between 0 and 1; got '0'"),
    ],
)
def test_wrong_names(name, message):
    with pytest.raises(InvalidInputError, match="^" + message):
        profiles.load(name)
