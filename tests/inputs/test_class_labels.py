"""Classes from labels: order, what is refused, what is left out."""

from __future__ import annotations

import collections
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optgeom.errors import InvalidInputError
from optgeom.inputs.classes import ClassDistribution

# ----------------------------------------------------------------------------------------------------------------------
# labels


@pytest.mark.parametrize(
    ("labels", "names", "counts"),
    [
        ([2, 0, 2, 5], ("0", "2", "5"), [1, 2, 1]),
        (np.array([2.0, 0.0, 2.0], dtype=np.float32), ("0", "2"), [1, 2]),
        ([-1, 255, 255], ("-1", "255"), [1, 2]),
        (np.array([-128, 127], dtype=np.int8), ("-128", "127"), [1, 1]),
        (np.array([2**63 + 1, 2**63, 2**63], dtype=np.uint64), (str(2**63), str(2**63 + 1)), [2, 1]),
        ([10**12, 3, 3], ("3", "1000000000000"), [2, 1]),
        ([True, False, True], ("False", "True"), [1, 2]),
        (["dog", "cat", "dog"], ("cat", "dog"), [1, 2]),
        (np.array([b"\xc3\xa9", b"a"]), ("a", "é"), [1, 1]),
        (["10", "9", "10"], ("9", "10"), [1, 2]),
        (["7", "07", "-1", "10"], ("-1", "07", "7", "10"), [1, 1, 1, 1]),
        (["10", "9", "x"], ("10", "9", "x"), [1, 1, 1]),
        (["nan", "cat"], ("cat", "nan"), [1, 1]),
        (np.array(["b", "a"], dtype=object), ("a", "b"), [1, 1]),
        (np.array([b"b", "a"], dtype=object), ("a", "b"), [1, 1]),
        (np.array([3, 1], dtype=object), ("1", "3"), [1, 1]),
    ],
)
def test_class_order_of_labels(labels, names, counts):
    classes = ClassDistribution.from_labels(labels)
    assert classes.names == names and classes.counts.tolist() == counts and classes.notes == ()


@given(st.lists(st.integers(-50, 50), min_size=2, max_size=60).filter(lambda labels: len(set(labels)) > 1))
def test_labels_agree_with_a_count_by_hand(labels):
    expected = sorted(collections.Counter(labels).items())
    for given_labels in (
        labels,
        [str(label) for label in labels],
        [label * 1.0 for label in labels],
        [label * 10**9 for label in labels],
    ):
        classes = ClassDistribution.from_labels(given_labels)
        assert classes.counts.tolist() == [times for _, times in expected]
    assert ClassDistribution.from_labels(labels).names == tuple(str(label) for label, _ in expected)


def test_tensors_are_labels_and_proportions():
    torch = pytest.importorskip("torch")
    assert ClassDistribution.from_labels(torch.tensor([1, 0, 1])).counts.tolist() == [1, 2]
    assert ClassDistribution.from_proportions(torch.softmax(torch.arange(300.0) / 30, 0)).num_classes == 300


def test_case_9_several_labels_per_row_are_refused():
    message = (
        r"^`labels` must be one integer or string per row; got a table of shape \(2, 3\) whose row 0 is \[1, 0, 1\] "
        r"\(multi-label"
    )
    with pytest.raises(InvalidInputError, match=message):
        ClassDistribution.from_labels([[1, 0, 1], [0, 1, 1]])


@pytest.mark.parametrize("dtype", [bool, np.int64, np.float32])
def test_case_9_one_hot_rows_are_converted_and_said_so(dtype):
    classes = ClassDistribution.from_labels(np.array([[0, 0, 0, 1], [1, 0, 0, 0], [0, 0, 0, 1]], dtype=dtype))
    assert classes.names == ("0", "3") and classes.counts.tolist() == [1, 2]
    assert classes.notes == (
        "labels were one-hot rows of 4 columns: converted to column numbers",
        "one-hot columns without samples are not classes: 1, 2",
    )


def test_a_column_is_flattened_and_said_so():
    classes = ClassDistribution.from_labels([["a"], ["b"]])
    assert classes.names == ("a", "b") and classes.notes == ("labels were a column of shape (n, 1): flattened",)


@pytest.mark.parametrize(
    "labels",
    [[0, math.nan, 1, 1], ["0", "nan", "1", "1"], ["a", math.nan, "b"], [0, None, 1], ["a", "", "b"], ["a", " ", "b"]],
)
def test_case_16_missing_label_is_named(labels):
    with pytest.raises(
        InvalidInputError, match=r"^`labels` must not be missing; got .* in row 1 \(drop the row, or give it a label\)$"
    ):
        ClassDistribution.from_labels(labels)


def test_case_16_ignored_labels_only_by_option():
    labels = [0, -1, 1, 255, 1, -1]
    assert ClassDistribution.from_labels(labels).names == ("-1", "0", "1", "255")
    classes = ClassDistribution.from_labels(labels, ignore=[-1, 255, 7])
    assert classes.names == ("0", "1") and classes.counts.tolist() == [1, 2]
    assert classes.notes == ("2 rows with label -1 left out", "1 rows with label 255 left out")
    assert ClassDistribution.from_labels(list(map(str, labels)), ignore=["-1"]).counts.tolist() == [1, 2, 1]


def test_case_17_all_samples_in_one_class():
    with pytest.raises(
        InvalidInputError, match=r"^no geometry with one class: all 10 rows of `labels` have the label '0' \(at least 2"
    ):
        ClassDistribution.from_labels([0] * 10)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([1, 0.5], r"`labels` must be whole numbers; got 0.5 in row 1 \(real-valued"),
        ([1.0, math.inf], r"`labels` must be whole numbers; got inf in row 1 "),
        ([1.0, 2.0**60], r"`labels` must be whole numbers; got 1.152921504606847e\+18 in row 1 "),
        ([], r"`labels` must have at least one row; got none"),
        (
            [[0], [1, 2]],
            r"`labels` must be one integer or string per row; got rows of different lengths \(multi-label",
        ),
        ([[[0]]], r"`labels` must be one integer or string per row; got shape \(1, 1, 1\)"),
        (3, r"`labels` must be one integer or string per row; got shape \(\)"),
        ([["a", "b"]], r"`labels` must be one integer or string per row; got shape \(1, 2\) \(give the column"),
        ([[0.0, 0.5], [1.0, 0.0]], r"`labels` must be .* got a table of shape \(2, 2\) whose row 0 is \[0.0, 0.5\]"),
        (
            [[0.0, math.nan], [1.0, 0.0]],
            r"`labels` must be .* got a table of shape \(2, 2\) whose row 0 is \[0.0, nan\]",
        ),
        ([[1, 1] + [0] * 8], r"`labels` must be .* whose row 0 is \[1, 1, 0, 0, 0, 0, 0, 0, ...\]"),
        (["a", 1], r"`labels` must be all numbers or all text; got 'a' in row 0 and 1 in row 1"),
        (np.array([{}, {}]), r"`labels` must be .* got \{\} in row 0 \(convert"),
        ([2**70, 1], r"`labels` must be whole numbers of at most 64 bits"),
        ([1j, 2], r"`labels` must be .* got values of type complex128"),
        (np.array([b"\xff", b"a"]), r"`labels` must be UTF-8 text; got other bytes"),
    ],
)
def test_wrong_labels_are_named(labels, message):
    with pytest.raises(InvalidInputError, match="^" + message):
        ClassDistribution.from_labels(labels)


def test_ignoring_everything():
    with pytest.raises(InvalidInputError, match=r"^`labels` must have a label that is not ignored; got only 0, 1 "):
        ClassDistribution.from_labels([0, 1], ignore=[0, 1])
