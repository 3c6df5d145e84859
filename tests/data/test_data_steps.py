"""Built-in steps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from steps_data import X, opened, step

from autoopt.data import DataConfig, steps
from autoopt.data.dataset import DataSet
from autoopt.data.opening import post_processor


def test_pre_processing_changes_only_its_columns(path):
    assert opened(path, pre_process=step("cast", dtype="int64", columns=["x"])).columns["x"].dtype == np.int64
    scaled = opened(path, pre_process=step("normalize", mean=[1, 2, 3], std=2.0, columns=["x"])).columns["x"]
    np.testing.assert_allclose(scaled, (X - [1, 2, 3]) / 2)
    assert opened(path, pre_process=step("reshape", shape=[1, 3])).columns["x"].shape == (20, 1, 3)


def test_post_processing_makes_predictions(path):
    outputs = [np.array([[0.0, 2.0], [3.0, 1.0]])]
    made = {
        n: post_processor(DataConfig.parse({"path": path, "post_process": n})) for n in ("argmax", "softmax", "sigmoid")
    }
    assert made["argmax"](outputs).tolist() == [1, 0]
    assert made["softmax"](outputs).sum(axis=1) == pytest.approx([1, 1])
    assert made["sigmoid"](outputs)[0, 0] == 0.5
    assert post_processor(DataConfig.parse(path)) is None


def data():
    return DataSet({"x": np.arange(6.0).reshape(2, 3), "t": np.array(2.0)}, np.array([0, 1]))


def test_steps_leave_values_for_all_items_alone():
    assert steps.cast(data(), "int32").columns["t"].dtype == np.float64
    assert steps.cast(data(), "int32", ["t"]).columns["t"].dtype == np.int32


def test_normalizing_with_lists_works_along_an_axis():
    pictures = DataSet({"x": np.ones((2, 3, 4, 4))})
    scaled = steps.normalize(pictures, mean=[1.0, 2.0, 3.0], std=0.5).columns["x"]
    assert scaled.dtype == np.float32
    assert scaled[0, :, 0, 0].tolist() == [0.0, -2.0, -4.0]
    last = steps.normalize(DataSet({"x": np.ones((2, 3))}), mean=[0.0, 1.0, 2.0], axis=1).columns["x"]
    assert last[0].tolist() == [1.0, 0.0, -1.0]


@given(st.integers(1, 30), st.integers(0, 5))
def test_shuffling_permutes_the_items_in_the_same_way_for_a_seed(count, seed):
    items = DataSet({"x": np.arange(count)})
    once, twice = steps.shuffle(items, seed), steps.shuffle(items, seed)
    assert sorted(once.columns["x"]) == list(range(count))
    assert once.columns["x"].tolist() == twice.columns["x"].tolist()


@given(st.lists(st.floats(-1000, 1000), min_size=2, max_size=6))
def test_probabilities_are_finite_sum_to_one_and_keep_the_order(scores):
    probabilities = steps.softmax([np.array([scores])])[0]
    assert np.isfinite(probabilities).all()
    assert probabilities.sum() == pytest.approx(1.0)
    assert probabilities[np.argmax(scores)] == probabilities.max()


def test_outputs_are_chosen_by_index():
    outputs = [np.zeros(2), np.array([0.2, 0.5, 0.9])]
    assert steps.output(outputs, 1) is outputs[1]
    assert steps.threshold(outputs, 1).tolist() == [0, 1, 1]
    assert steps.threshold(outputs, 1, at=0.6).tolist() == [0, 0, 1]
    assert steps.argmax([np.eye(3)], axis=0).tolist() == [0, 1, 2]
