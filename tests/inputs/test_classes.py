"""`ClassDistribution` and its groups. Expected values are written out, or counted by other means."""

from __future__ import annotations

import collections
import fractions
import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optgeom.errors import InvalidInputError
from optgeom.inputs.classes import ClassDistribution, ClassGroups

small_counts = st.lists(st.integers(1, 12), min_size=2, max_size=30)


# ----------------------------------------------------------------------------------------------------------------------
# counts and proportions


def test_counts_keep_their_numbers_and_give_proportions():
    classes = ClassDistribution.from_counts([5000, 500, 50])
    assert classes.num_classes == 3
    assert classes.counts.tolist() == [5000, 500, 50] and classes.counts.dtype == np.int64
    assert classes.proportions.tolist() == [5000 / 5550, 500 / 5550, 50 / 5550]
    assert (
        classes.names == ("0", "1", "2")
        and classes.dropped == ()
        and classes.notes == ()
        and classes.kept.tolist() == [0, 1, 2]
    )
    assert classes.imbalance_factor == 100 and classes.sampler_power == 1
    assert repr(classes) == "ClassDistribution(num_classes=3, groups=3, imbalance_factor=100)"


@pytest.mark.parametrize(
    "counts",
    [
        (3, 1),
        np.array([3.0, 1.0], dtype=np.float32),
        np.array([3, 1], dtype=np.uint8),
        (n for n in (3, 1)),
        [np.int64(3), 1.0],
        {3: 0, 1: 0}.keys(),
    ],
    ids=["tuple", "float32", "uint8", "generator", "mixed", "keys"],
)
def test_counts_of_any_numeric_type(counts):
    assert ClassDistribution.from_counts(counts).counts.tolist() == [3, 1]


def test_counts_from_a_mapping_take_its_names():
    classes = ClassDistribution.from_counts(collections.Counter({"cat": 3, "dog": 4}))
    assert classes.names == ("cat", "dog") and classes.counts.tolist() == [3, 4]


def test_fractional_counts_are_weights():
    classes = ClassDistribution.from_counts([1, 0.25, 0.75])
    assert classes.counts is None and classes.groups.counts is None
    assert classes.proportions.tolist() == [0.5, 0.125, 0.375]
    assert classes.imbalance_factor == 4


def test_fractions_are_numbers():
    assert ClassDistribution.from_counts([fractions.Fraction(1, 2), fractions.Fraction(3, 2)]).proportions.tolist() == [
        0.25,
        0.75,
    ]


def test_case_11_counts_over_2_to_the_31():
    classes = ClassDistribution.from_counts([2760885855, 48359390])
    assert classes.counts.tolist() == [2760885855, 48359390]
    assert ClassDistribution.from_profile("cocostuff164k-pixels").counts.max() == 2760885855


@pytest.mark.parametrize(
    "counts", [[2**63, 2**63], [2**80, 2**80], np.array([2**63, 2**63], dtype=np.uint64), [1e308, 1e308]]
)
def test_counts_too_large_for_64_bits_are_weights(counts):
    classes = ClassDistribution.from_counts(counts)
    assert classes.counts is None and classes.proportions.tolist() == [0.5, 0.5]


def test_case_15_singleton_class():
    assert ClassDistribution.from_counts([5000, 1]).imbalance_factor == 5000


def test_proportions_are_normalised_and_have_no_counts():
    classes = ClassDistribution.from_proportions([0.9, 0.05, 0.05], names=["a", "b", "c"])
    assert classes.counts is None and classes.names == ("a", "b", "c")
    assert classes.proportions.tolist() == pytest.approx([0.9, 0.05, 0.05], rel=1e-15)
    assert classes.groups.sizes.tolist() == [1, 2]
    nearly = ClassDistribution.from_proportions([0.5, 0.5 + 4e-10])
    assert math.fsum(nearly.proportions) == pytest.approx(1, abs=1e-15)


def test_proportions_in_float32_sum_to_one_in_float32():
    narrow = (np.random.default_rng(0).dirichlet(np.ones(1000)) * (1 + 3e-8)).astype(np.float32)
    assert abs(float(narrow.sum(dtype=np.float64)) - 1) > 1e-9
    classes = ClassDistribution.from_proportions(narrow)
    assert classes.proportions.dtype == np.float64 and math.fsum(classes.proportions) == pytest.approx(1, abs=1e-14)


def test_case_10_empty_class_is_refused():
    with pytest.raises(
        InvalidInputError,
        match=r"^`counts` must be positive; got 0 for class 4 "
        r"\(drop it with drop_empty=True, on the command line --drop-empty\)$",
    ):
        ClassDistribution.from_counts([310, 2489, 114, 17, 0, 725])


def test_case_10_empty_class_is_dropped_with_notice():
    classes = ClassDistribution.from_counts([310, 2489, 114, 17, 0, 725], drop_empty=True)
    assert classes.proportions.tolist() == pytest.approx([0.084815, 0.680985, 0.031190, 0.004651, 0.198358], abs=5e-7)
    assert classes.kept.tolist() == [0, 1, 2, 3, 5] and classes.names == ("0", "1", "2", "3", "5")
    assert classes.dropped == ("4",) and classes.notes == ("1 class without samples left out: 4",)


def test_dropped_classes_have_names():
    classes = ClassDistribution.from_proportions([0, 0.5, 0, 0.5], names=["a", "b", "c", "d"], drop_empty=True)
    assert classes.names == ("b", "d") and classes.dropped == ("a", "c") and classes.kept.tolist() == [1, 3]
    assert classes.notes == ("2 classes without samples left out: a, c",)
    many = ClassDistribution.from_counts([1, 1] + [0] * 7, drop_empty=True)
    assert many.notes == ("7 classes without samples left out: 2, 3, 4, 5, 6 and 2 more",)


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ([10, -3], r"`counts` must be positive; got -3 for class 1 \(correct it, or leave it out\)"),
        ([0, 0, 5, 5], r"`counts` must be positive; got 0 for class 0 and 1 more \(drop it"),
        ([1, math.nan, 3], r"`counts` must be finite; got nan for class 1 \("),
        ([1, 2, math.inf], r"`counts` must be finite; got inf for class 2 \("),
        ([-math.inf, 2], r"`counts` must be finite; got -inf for class 0 \("),
        ([5], r"no geometry with one class: `counts` has one entry, 5 \(at least 2 classes are needed\)"),
        ([], r"`counts` must have at least 2 entries; got none"),
        ([[1, 2], [3, 4]], r"`counts` must be one number per class; got shape \(2, 2\)"),
        ([1, [2]], r"`counts` must be one number per class; got a nested list"),
        (7, r"`counts` must be one number per class; got shape \(\)"),
        ("5,5", r"`counts` must be one number per class; got shape \(\)"),
        ([1, "a"], r"`counts` must be numbers; got 'a' for class 1 \("),
        (["1", "2"], r"`counts` must be numbers; got '1' for class 0 \("),
        ([True, True], r"`counts` must be numbers; got True for class 0 \("),
        ([1, None], r"`counts` must be numbers; got None for class 1 \("),
        ([1, 2j], r"`counts` must be numbers; got 2j for class 1 \("),
        ([1, 10**400], r"`counts` must be below 1.8e308; got a larger number"),
        ([1e308, 1e-8], r"the rarest class must have a proportion above 2.23e-308; got 1e-316 \(lower the imbalance"),
    ],
)
def test_wrong_counts_are_named(counts, message):
    with pytest.raises(InvalidInputError, match="^" + message):
        ClassDistribution.from_counts(counts)


def test_wrong_counts_are_named_by_their_class():
    with pytest.raises(InvalidInputError, match="got 0 for class dog "):
        ClassDistribution.from_counts([3, 0], names=["cat", "dog"])
    with pytest.raises(InvalidInputError, match="got -1 for class 2 "):
        ClassDistribution.from_counts([5, 0, -1], drop_empty=True)
    with pytest.raises(InvalidInputError, match=r"^no geometry with one class: `counts` has one entry, 5"):
        ClassDistribution.from_counts([5, 0], drop_empty=True)


class Unreadable:
    def __array__(self, dtype=None, copy=None):
        raise TypeError("it lies on another device")


def test_an_array_that_cannot_be_had():
    with pytest.raises(
        InvalidInputError, match=r"^`counts` must be one number per class; got Unreadable: it lies on another device"
    ):
        ClassDistribution.from_counts(Unreadable())
    with pytest.raises(InvalidInputError, match=r"^`labels` must be .*; got Unreadable: it lies on another device"):
        ClassDistribution.from_labels(Unreadable())


@pytest.mark.parametrize(
    ("proportions", "message"),
    [
        (
            [0.333, 0.333, 0.333, 0.2],
            r"`proportions` must sum to 1; got a sum of 1.199, off by 0.199 \(if these are counts, give",
        ),
        ([5000, 50], r"`proportions` must sum to 1; got a sum of 5050, off by 5.05e\+03 "),
        ([0.5, 0.5 + 1e-8], r"`proportions` must sum to 1; got a sum of 1.00000001, off by 1e-08 "),
        ([1.0, 0.0], r"`proportions` must be positive; got 0 for class 1 "),
        ([0.5, math.nan], r"`proportions` must be finite; got nan for class 1 "),
        ([1.0], r"no geometry with one class: `proportions` has one entry, 1 "),
    ],
)
def test_wrong_proportions_are_named(proportions, message):
    with pytest.raises(InvalidInputError, match="^" + message):
        ClassDistribution.from_proportions(proportions)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a"], r"`names` must have one name for each of the 2 classes; got 1 "),
        (["a", "a"], r"`names` must be all different; got 'a' twice "),
        ("ab", r"`names` must be a list with one name per class; got the text 'ab' "),
    ],
)
def test_wrong_names(names, message):
    with pytest.raises(InvalidInputError, match="^" + message):
        ClassDistribution.from_counts([1, 2], names=names)


# ----------------------------------------------------------------------------------------------------------------------
# groups


def test_groups_of_equal_counts():
    groups = ClassDistribution.from_counts([7, 3, 7, 1, 3, 7]).groups
    assert groups.num_groups == 3
    assert groups.counts.tolist() == [7, 3, 1] and groups.sizes.tolist() == [3, 2, 1]
    assert groups.index.tolist() == [0, 1, 0, 2, 1, 0]
    assert groups.proportions.tolist() == [7 / 28, 3 / 28, 1 / 28]
    assert [groups.members(g).tolist() for g in range(3)] == [[0, 2, 5], [1, 4], [3]]
    assert repr(groups) == "ClassGroups(groups=3, classes=6)"
    for wrong in (-1, 3):
        with pytest.raises(InvalidInputError, match=rf"^`group` must be a group index from 0 to 2; got {wrong} "):
            groups.members(wrong)


def test_groups_are_exact_and_never_by_tolerance():
    assert ClassDistribution.from_counts([10**15, 10**15 + 1, 10**15]).groups.sizes.tolist() == [1, 2]
    assert ClassDistribution.from_proportions([0.5, np.nextafter(0.25, 1), 0.25]).groups.num_groups == 3


@given(small_counts, st.randoms(use_true_random=False))
def test_groups_do_not_depend_on_the_class_order(counts, random):
    shuffled = random.sample(counts, len(counts))
    first, second = ClassDistribution.from_counts(counts).groups, ClassDistribution.from_counts(shuffled).groups
    assert first.counts.tolist() == second.counts.tolist() and first.sizes.tolist() == second.sizes.tolist()
    assert first.proportions.tolist() == second.proportions.tolist()


@given(small_counts, st.sampled_from([1, 10**6]))
def test_groups_agree_with_a_count_by_hand(counts, scale):
    # With the scale the counts are too large for a table, so that both ways of grouping are met.
    classes = ClassDistribution.from_counts([n * scale for n in counts])
    expected = sorted(collections.Counter(counts).items(), reverse=True)
    assert list(zip(classes.groups.counts // scale, classes.groups.sizes, strict=True)) == expected
    assert (classes.counts // scale).tolist() == counts
    total = sum(counts)
    assert classes.proportions.tolist() == [n / total for n in counts]
    assert sorted(c for g in range(len(expected)) for c in classes.groups.members(g)) == list(range(len(counts)))


@given(small_counts)
def test_frequency_order_breaks_ties_by_index(counts):
    order = ClassDistribution.from_counts(counts).frequency_order()
    assert order.tolist() == sorted(range(len(counts)), key=lambda c: (-counts[c], c))


def test_frequency_order_with_more_groups_than_16_bits():
    assert ClassDistribution.from_counts(np.arange(1, 2**16 + 6)).frequency_order()[[0, 1, -1]].tolist() == [
        2**16 + 4,
        2**16 + 3,
        0,
    ]


def test_from_groups():
    classes = ClassDistribution.from_groups(counts=[2, 50, 2], sizes=[3, 1, 2])
    assert classes.counts.tolist() == [2, 2, 2, 50, 2, 2]
    assert classes.groups.sizes.tolist() == [1, 5] and classes.groups.counts.tolist() == [50, 2]
    assert classes.proportions.tolist() == pytest.approx([2 / 60] * 3 + [50 / 60] + [2 / 60] * 2, rel=1e-15)
    assert ClassDistribution.from_groups([1.5, 0.5], [1, 3]).proportions.tolist() == [0.5, 1 / 6, 1 / 6, 1 / 6]


def test_millions_of_classes_stay_in_group_form():
    classes = ClassDistribution.from_groups([650, 1], [1, 2_000_000])
    assert classes.num_classes == 2_000_001 and classes.groups.sizes.tolist() == [1, 2_000_000]
    assert not {"names", "proportions", "counts", "kept"} & set(vars(classes))


@pytest.mark.parametrize(
    ("counts", "sizes", "message"),
    [
        ([1, 2], [1, 0], r"`sizes` must be positive; got 0 for block 1 \(leave the block out\)"),
        ([1, 0], [1, 1], r"`counts` must be positive; got 0 for block 1 \(leave the block out\)"),
        ([1, 2], [1, 1.5], r"`sizes` must be whole numbers of classes; got \[1.0, 1.5\]"),
        ([1, 2], [1], r"`sizes` must have one entry for each of 2 counts; got 1"),
        ([1], [1], r"no geometry with one class: `sizes` sum to 1"),
        ([], [], r"`counts` must have at least 1 entries; got none \(give one number per block\)"),
    ],
)
def test_wrong_groups(counts, sizes, message):
    with pytest.raises(InvalidInputError, match="^" + message):
        ClassDistribution.from_groups(counts, sizes)


# ----------------------------------------------------------------------------------------------------------------------
# samplers


def test_samplers():
    classes = ClassDistribution.from_counts([16, 4, 4, 1], names=["a", "b", "c", "d"])
    assert classes.resample(1) is classes
    root = classes.resample(0.5)
    assert root.proportions.tolist() == pytest.approx([4 / 9, 2 / 9, 2 / 9, 1 / 9], rel=1e-15)
    assert root.counts is None and root.sampler_power == 0.5 and root.names == classes.names
    assert root.groups.sizes.tolist() == [1, 2, 1] and root.imbalance_factor == pytest.approx(4, rel=1e-15)
    balanced = classes.resample(0)
    assert (
        balanced.proportions.tolist() == [0.25] * 4
        and balanced.groups.sizes.tolist() == [4]
        and balanced.imbalance_factor == 1
    )
    assert root.resample(2).proportions.tolist() == pytest.approx(classes.proportions.tolist(), rel=1e-14)
    assert root.resample(2).sampler_power == 1


def test_negative_powers_turn_the_order_around():
    classes = ClassDistribution.from_counts([4, 1, 4]).resample(-1)
    assert classes.proportions.tolist() == pytest.approx([1 / 6, 4 / 6, 1 / 6], rel=1e-14)
    assert classes.groups.index.tolist() == [1, 0, 1] and classes.frequency_order().tolist() == [1, 0, 2]


@given(small_counts, st.floats(-3, 3))
def test_resampling_keeps_equal_classes_exactly_equal(counts, power):
    resampled = ClassDistribution.from_counts(counts).resample(power)
    for count in set(counts):
        assert len({resampled.proportions[c] for c in range(len(counts)) if counts[c] == count}) == 1
    weights = [n**power for n in counts]
    assert resampled.proportions.tolist() == pytest.approx([w / math.fsum(weights) for w in weights], rel=1e-13)


def test_powers_that_would_overflow():
    assert ClassDistribution.from_counts([10**18, 10**17]).resample(20).proportions[1] == pytest.approx(
        1e-20, rel=1e-13
    )


@pytest.mark.parametrize(
    ("power", "message"),
    [
        (math.nan, r"`power` must be .*got nan \(1 is instance sampling, 0 balanced, 0.5 square root\)"),
        (math.inf, r"`power` must be .*got inf"),
        ("sqrt", r"`power` must be .*got 'sqrt'"),
        (1e6, r"the rarest class must have a proportion above 2.23e-308; got 0 \(lower the imbalance or the power\)"),
        (1e308, r"the rarest class must have a proportion"),
        (-1e308, r"the rarest class must have a proportion"),
    ],
)
def test_wrong_powers(power, message):
    with pytest.raises(InvalidInputError, match="^" + message):
        ClassDistribution.from_counts([5, 1]).resample(power)


# ----------------------------------------------------------------------------------------------------------------------
# frozen


def test_nothing_can_be_changed_even_after_pickling():
    given_counts = np.array([3, 0, 5])
    classes = ClassDistribution.from_counts(given_counts, drop_empty=True)
    given_counts[:] = 9
    for copy in (classes, pickle.loads(pickle.dumps(classes))):
        assert (
            copy.counts.tolist() == [3, 5]
            and copy.kept.tolist() == [0, 2]
            and copy.dropped == ("1",)
            and copy.notes == classes.notes
        )
        groups = copy.groups
        of_groups = [groups.index, groups.sizes, groups.proportions, groups.counts, groups.members(0)]
        for array in (copy.proportions, copy.counts, copy.kept, copy.frequency_order(), *of_groups):
            assert array.dtype in (np.float64, np.int64, np.intp)
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 1
        with pytest.raises(AttributeError):
            copy.notes = ()
    assert isinstance(classes.groups, ClassGroups) and classes.proportions is classes.proportions
    resampled = pickle.loads(pickle.dumps(classes.resample(0)))
    assert resampled.sampler_power == 0 and resampled.counts is None and resampled.names == ("0", "2")
