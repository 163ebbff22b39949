"""Labels in batches against the whole column: `labels.encode` is the reference."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import optgeom as og
from optgeom.inputs import labels
from optgeom.inputs.labels import ClassNames

COLUMNS = st.one_of(
    st.lists(st.integers(-3, 12), min_size=1, max_size=40).map(np.array),
    st.lists(st.integers(0, 2**62), min_size=1, max_size=10).map(lambda values: np.array(values, dtype=np.int64)),
    st.lists(st.integers(0, 9).map(float), min_size=1, max_size=40).map(np.array),
    st.lists(st.booleans(), min_size=1, max_size=10).map(np.array),
    st.lists(st.sampled_from(["a", "B", "10", "9", "nan", "é", "07", "+7"]), min_size=1, max_size=30).map(np.array),
    st.lists(st.sampled_from(["7", "10", "9", "07", "-1"]), min_size=1, max_size=30).map(np.array),
    st.lists(st.sampled_from(["cat", "dog", "255"]), min_size=1, max_size=30).map(
        lambda values: np.array(values, dtype=object)
    ),
    st.lists(st.sampled_from([b"cat", b"dog", b"9"]), min_size=1, max_size=30).map(np.array),
    st.lists(st.integers(0, 4), min_size=1, max_size=30).map(lambda values: np.eye(5)[values]),
)
IGNORE = st.sampled_from([(), (-1,), ("cat", 255), (0, "nan")])


def in_batches(column, cuts, ignore, merged):
    """Codes in class order and names; every batch goes into a state of its own where `merged`."""
    states = [ClassNames(ignore)]
    codes = []
    for part in np.split(np.arange(len(column)), cuts):
        if merged:
            states.append(ClassNames(ignore))
        codes.append(states[-1].encode(column[part], int(part[0]) if len(part) else 0))
    if merged:
        maps = [states[0].merge(pickle.loads(pickle.dumps(state))) for state in states[1:]]
        codes = [np.where(part >= 0, np.append(own, -1)[part], -1) for part, own in zip(codes, maps, strict=True)]
    names, place, notes = states[0].finish()
    running = np.concatenate(codes)
    return names, np.where(running >= 0, np.append(place, -1)[running], -1), notes


@given(column=COLUMNS, ignore=IGNORE, cuts=st.lists(st.integers(0, 40), max_size=4), merged=st.booleans())
def test_any_split_gives_the_names_the_codes_and_the_refusals_of_the_whole(column, ignore, cuts, merged):
    cuts = sorted(min(cut, len(column)) for cut in cuts)
    try:
        whole = labels.encode(column, ignore=ignore)
    except og.InvalidInputError as error:
        with pytest.raises(og.InvalidInputError) as caught:
            in_batches(column, cuts, ignore, merged)
        assert str(caught.value) == str(error)
        return
    names, codes, notes = in_batches(column, cuts, ignore, merged)
    assert names == whole.names
    np.testing.assert_array_equal(codes, whole.codes)
    assert [note for note in notes if "left out" in note] == [note for note in whole.notes if "left out" in note]
    assert any("no classes" in note for note in notes) == any("no classes" in note for note in whole.notes)


def test_numbers_in_one_shard_and_their_text_in_another_are_the_same_classes():
    names = ClassNames()
    assert names.encode(np.array([10, 9])).tolist() == [1, 0]
    other = ClassNames()
    assert other.encode(np.array(["2", "10"])).tolist() == [1, 0]
    assert other.encode(np.array([9.0, 2.0])).tolist() == [2, 1]
    assert other.running == ["10", "2", "9"] and names.merge(other).tolist() == [1, 2, 0]
    assert names.finish()[0] == ("2", "9", "10")


def test_a_class_that_comes_late_gets_its_place():
    names = ClassNames()
    names.encode(np.array([5, 5, 3]))
    assert names.encode(np.array([3, 1])).tolist() == [0, 2]
    in_order, place, _ = names.finish()
    assert in_order == ("1", "3", "5") and place.tolist() == [1, 2, 0]


def test_a_nan_label_is_named_by_its_row_in_the_source():
    names = ClassNames(source="shard-1.npy")
    names.encode(np.array([0.0, 1.0]))
    with pytest.raises(
        og.InvalidInputError, match=r"`labels` must not be missing; got nan in row 3 of shard-1.npy \(drop the row"
    ):
        names.encode(np.array([0, np.nan, 1, 1]), 2)


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([np.array(["7", "nan"]), np.array([3])], r"must not be missing; got 'nan' in row 1 of s \("),
        (
            [np.array([3]), np.array(["x", "7"])],
            r"all numbers or all text; got 3 in row 0 of s and 'x' in row 1 of s \(convert one",
        ),
        ([np.array(["a"]), np.array(["b", " "])], r"must not be missing; got ' ' in row 2 of s"),
        ([np.array([1, 2]), np.array([1.5])], r"must be whole numbers; got 1.5 in row 2 of s \(real-valued"),
        ([np.array([1, 2]), np.array([1, None], dtype=object)], r"must not be missing; got None in row 3 of s"),
        ([np.eye(3), np.array([[1, 1, 0]])], r"whose row 3 of s is \[1, 1, 0\]"),
        ([np.eye(3), np.eye(2)], r"must be one-hot rows of one length; got 3 columns and 2 of s"),
        ([np.array(["a"]), np.array([b"\xff"])], r"must be UTF-8 text; got other bytes"),
        ([np.array([1j])], r"got values of type complex128"),
        ([None], r"must have one entry per row; got none of s"),
        ([np.array([])], r"must have at least one row"),
    ],
)
def test_refusals_name_the_row_in_the_source(batches, message):
    def read():
        names, start = ClassNames(source="s"), 0
        for batch in batches:
            names.encode(batch, start)
            start += 0 if batch is None else len(batch)
        names.finish()

    with pytest.raises(og.InvalidInputError, match=message):
        read()


def test_ignored_labels_are_counted_and_only_they_is_an_error():
    names = ClassNames(ignore=(-1, "x"))
    assert names.encode(np.array([-1, 4, -1])).tolist() == [-1, 0, -1]
    assert names.left_out == {"-1": 2}
    assert names.finish()[2] == ("2 rows with label -1 left out",)
    alone = ClassNames(ignore=(-1,))
    alone.encode(np.array([-1]))
    with pytest.raises(og.InvalidInputError, match="must have a label that is not ignored; got only -1"):
        alone.finish()


def test_a_column_is_flattened_with_a_note():
    names = ClassNames()
    assert names.encode(np.array([[4], [2]])).tolist() == [1, 0]
    assert names.finish()[2] == ("labels were a column of shape (n, 1): flattened",)
