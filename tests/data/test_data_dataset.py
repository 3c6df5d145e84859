"""Data sets in a worker."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoopt.data.dataset import DataSet, class_ids, plain_labels, text_array
from autoopt.errors import InputError


def test_arrays_of_different_lengths_are_named():
    with pytest.raises(InputError, match=r"x 3, labels 2"):
        DataSet({"x": np.zeros((3, 1))}, np.zeros(2))


def test_a_data_set_without_items_is_refused():
    with pytest.raises(InputError, match="mine: holds no items"):
        DataSet({"x": np.zeros((0, 2))}, name="mine")


def test_an_array_without_axes_holds_for_every_item():
    data = DataSet({"x": np.arange(3), "t": np.array(0.5)})
    feeds = [feed for feed, _ in data.feeds(2)]
    assert len(data) == 3
    assert [feed["x"].tolist() for feed in feeds] == [[0, 1], [2]]
    assert all(feed["t"] == 0.5 for feed in feeds)
    assert data.take(np.array([1])).columns["t"] == 0.5


def test_items_of_different_shapes_come_one_by_one():
    data = DataSet({}, np.array([0, 1]), {"x": [np.zeros((1, 2)), np.zeros((1, 3))]})
    assert [feed["x"].shape for feed, _ in data.feeds(8)] == [(1, 2), (1, 3)]
    assert [labels.tolist() for _, labels in data.feeds(8)] == [[0], [1]]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=20))
def test_taken_items_keep_the_given_order(indices):
    data = DataSet({"x": np.arange(10)}, np.arange(10) * 2, {"u": [np.array([i]) for i in range(10)]})
    taken = data.take(np.array(indices))
    assert taken.columns["x"].tolist() == indices
    assert taken.labels.tolist() == [2 * index for index in indices]
    assert [int(item[0]) for item in taken.uneven["u"]] == indices


@given(st.integers(1, 30), st.integers(1, 8), st.none() | st.integers(1, 40))
def test_batches_cover_the_items_up_to_the_limit(count, size, limit):
    data = DataSet({"x": np.arange(count)})
    batches = [feed["x"].tolist() for feed, _ in data.feeds(size, limit)]
    assert [item for batch in batches for item in batch] == list(range(min(count, limit or count)))
    assert all(len(batch) == size for batch in batches[:-1])


@pytest.mark.parametrize(
    ("labels", "plain"),
    [
        (np.eye(3)[[2, 0]], [2, 0]),
        (np.array([[1, 1], [0, 1]]), [[1, 1], [0, 1]]),
        (np.array([[0.5, 0.5]]), [[0.5, 0.5]]),
        (np.array([3, 4]), [3, 4]),
        (np.zeros((0, 3)), []),
        (np.array([["a", "b"]], object), [["a", "b"]]),
    ],
)
def test_only_one_hot_rows_become_class_ids(labels, plain):
    assert plain_labels(labels).tolist() == plain


@pytest.mark.parametrize(
    ("texts", "ids"), [(["3", "-1"], [3, -1]), (["dog", "cat", "dog"], [1, 0, 1]), (["1", "x"], [0, 1])]
)
def test_texts_become_class_ids(texts, ids):
    numbers, names = class_ids(texts)
    assert numbers.tolist() == ids
    assert not names or [names[index] for index in ids] == texts


def test_missing_texts_are_empty():
    assert text_array(["a", None]).tolist() == ["a", ""]
