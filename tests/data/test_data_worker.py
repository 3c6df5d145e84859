"""Descriptions of data sets."""

from __future__ import annotations

from pathlib import Path

import builders
import numpy as np
import pytest
from builders import model as make_model
from builders import tensor, write
from onnx import helper

from autoopt.data.dataset import DataSet
from autoopt.data.worker import Recurrence, _label_text, _open_axes, describe, find_recurrence
from autoopt.model import io

X = np.arange(24, dtype=np.float32).reshape(6, 4)


Y = np.array([0, 1, 0, 1, 2, 2])


@pytest.mark.parametrize(
    ("kind", "labels"),
    [
        ("class", Y),
        ("class", np.eye(3)[Y]),
        ("class", np.stack([Y, Y], 1)),
        ("value", Y.astype(np.float32)),
        ("tensor", X),
        ("tensor", X.astype(np.uint8)),
        (None, None),
    ],
)
def test_a_description_has_the_kind_of_labels(tmp_path, kind, labels):
    np.savez(tmp_path / "d.npz", x=X, **({} if labels is None else {"labels": labels}))
    found = describe({"data": str(tmp_path / "d.npz")})
    assert (found["items"], found["label_kind"], found["labels"]) == (6, kind, labels is not None)
    assert (
        found["columns"]["x"].items() >= {"dtype": "float32", "shape": [6, 4], "finite": True, "stacked": True}.items()
    )


@pytest.mark.parametrize(("labels", "kind"), [(Y + 1.0, "class"), (Y + 2.0, "value"), (Y + 0.5, "value")])
def test_whole_numbers_are_classes_where_the_model_has_a_score_for_each(tmp_path, labels, kind):
    np.savez(tmp_path / "d.npz", x=np.ones((6, 8), np.float32), labels=labels)
    model = str(io.save(builders.mlp(classes=4), tmp_path))
    assert describe({"data": str(tmp_path / "d.npz"), "model": model})["label_kind"] == kind


@pytest.mark.parametrize(
    ("labels", "text"), [(["3", "x7"], "x7"), (["1", "2.5"], None), ([1, 2], None), ([None, "cat"], "None")]
)
def test_a_label_that_is_text_is_shown(labels, text):
    assert _label_text(np.array(labels, object) if not isinstance(labels[0], int) else np.array(labels)) == text


def test_labels_in_words_are_listed_once_and_sorted(tmp_path):
    (tmp_path / "d.csv").write_text("x,label\n1,dog\n2,cat\n3,dog\n")
    assert describe({"data": str(tmp_path / "d.csv")})["class_names"] == ["cat", "dog"]
    assert describe({"data": str(tmp_path / "d.csv")})["classes"] == 2


def test_values_that_are_not_finite_are_reported(tmp_path):
    np.savez(tmp_path / "d.npz", x=np.array([1.0, np.nan]), n=np.array([1, 2]))
    columns = describe({"data": str(tmp_path / "d.npz")})["columns"]
    assert (columns["x"]["finite"], columns["n"]["finite"]) == (False, True)


def test_items_of_different_shapes_are_described_by_the_first(tmp_path):
    path = str(io.save(builders.mlp(), tmp_path))
    found = describe({"data": {"load_dataset": {"type": "synthetic", "params": {"items": 3}}}, "model": path})
    column = {"dtype": "float32", "shape": [1, 8], "finite": None, "stacked": False, "open_axes": []}
    column |= {"span": None, "constant": None, "range": found["columns"]["x"]["range"]}
    column |= {"first": found["columns"]["x"]["first"]}
    labels = {"labels": False, "label_kind": None, "label_text": None, "class_names": [], "broken_labels": 0}
    labels |= {"classes": 0, "smallest_class": 0, "labelled": 0, "first_label": ""}
    rest = {**labels, "loader": "synthetic", "reading": "", "made_up": True, "assumed": []}
    rest |= {"state": {}, "reset_every": None, "starts": []}
    assert found == {"items": 3, "columns": {"x": column}, **rest}


@pytest.mark.parametrize(
    "labels", [np.array([0] * 9 + [1] * 3), np.array([[0] * 5 + [1], [1, 1, 0, 0, 0, 0], [-1] * 6])]
)
def test_rare_classes_of_items_and_of_places_are_counted(tmp_path, labels):
    np.savez(tmp_path / "d.npz", x=np.zeros((len(labels), 2)), labels=labels)
    found = describe({"data": str(tmp_path / "d.npz")})
    assert (found["classes"], found["smallest_class"], found["labelled"]) == (2, 3, 12)


@pytest.mark.parametrize(
    ("array", "constant"),
    [
        (np.full(8, 16000), 16000),
        (np.full((8, 2), 0.5, np.float32), [0.5, 0.5]),
        (np.array("en"), "en"),
        (np.full(7, 16000), None),
        (np.array([1] * 7 + [2]), None),
        (np.zeros((8, 2), np.float32), None),
        (np.full((8, 2), np.nan, np.float32), None),
        (np.ones((8, 2000), np.int8), None),
    ],
    ids=["scalar", "vector", "one for all", "few items", "changing", "zeros", "not finite", "large"],
)
def test_inputs_that_never_change_are_described(tmp_path, array, constant):
    np.savez(tmp_path / "d.npz", x=array, z=np.arange(array.shape[0] if array.ndim else 8))
    found = describe({"data": str(tmp_path / "d.npz")})["columns"]
    assert (found["x"]["constant"], found["z"]["constant"]) == (constant, None)


def test_axes_along_which_items_differ_are_described():
    arrays = [np.ones((1, 4, 2)), np.ones((1, 5, 2))]
    assert (_open_axes(arrays), _open_axes([*arrays, np.ones(3)]), _open_axes(arrays[:1])) == ((1,), (0, 1, 2), ())


ITEMS = 24


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """`sum` = x + h, `next_h` = (x + h) / 2, `next_c` = c - x."""
    nodes = [
        helper.make_node("Add", ["x", "h"], ["sum"]),
        helper.make_node("Constant", [], ["half"], value_float=0.5),
        helper.make_node("Mul", ["sum", "half"], ["next_h"]),
        helper.make_node("Sub", ["c", "x"], ["next_c"]),
    ]
    inputs = [tensor(name, [1, 3]) for name in ("x", "h", "c")]
    outputs = [tensor(name, [1, 3]) for name in ("sum", "next_h", "next_c")]
    return str(write(make_model(nodes, inputs, outputs, {}), tmp_path_factory.mktemp("model")))


def recorded(resets: set[int], *, silence: int = 0) -> DataSet:
    """Items as a program records them: the states of the model, zero at `resets`."""
    x = np.random.default_rng(1).normal(size=(ITEMS, 3)).astype(np.float32)
    x[:silence] = 0
    h, c = np.zeros((2, ITEMS, 3), np.float32)
    for index in range(ITEMS - 1):
        if index + 1 not in resets:
            h[index + 1] = (x[index] + h[index]) / 2
            c[index + 1] = c[index] - x[index]
    return DataSet({"x": x, "h": h, "c": c})


STATE = {"next_h": "h", "next_c": "c"}


@pytest.mark.parametrize(("resets", "reset_every"), [(set(), None), ({8, 16}, 8), ({10, 20}, 10)])
def test_states_of_items_that_follow_each_other_are_found(
    model: str, resets: set[int], reset_every: int | None
) -> None:
    assert find_recurrence(model, recorded(resets)) == Recurrence(STATE, reset_every)


@pytest.mark.parametrize("resets", [{4, 11}, {6}])
def test_sequences_of_unequal_lengths_are_listed(model: str, resets: set[int]) -> None:
    assert find_recurrence(model, recorded(resets)) == Recurrence(STATE, starts=(0, *sorted(resets)))


def test_items_in_another_order_show_no_state(model: str) -> None:
    data = recorded(set())
    order = np.r_[0, np.random.default_rng(2).permutation(np.arange(1, ITEMS))]
    assert find_recurrence(model, data.take(order)) is None


def test_states_that_begin_with_other_values_are_taken_from_the_data_where_a_sequence_starts(model: str) -> None:
    later = recorded(set()).take(np.arange(5, ITEMS))
    assert find_recurrence(model, later) == Recurrence(STATE, starts=(0,))
    cut = recorded(set()).take(np.r_[3:10, 12:ITEMS])
    assert find_recurrence(model, cut) == Recurrence(STATE, starts=(0, 7))


def test_single_items_are_no_sequences(model: str) -> None:
    pairs = recorded(set()).take(np.r_[1:3, 5, 9, 13, 17, 21, 23])
    assert find_recurrence(model, pairs) is None


def test_only_the_states_that_the_data_hold_are_named(model: str) -> None:
    data = recorded(set())
    data.columns["c"][:] = np.random.default_rng(3).normal(size=(ITEMS, 3))
    assert find_recurrence(model, data) == Recurrence({"next_h": "h"}, None)


def test_signals_that_begin_with_silence_are_no_state(model: str) -> None:
    data = recorded(set(), silence=1)
    assert not data.columns["x"][0].any()
    data.columns["h"][1] = data.columns["c"][1] = 0
    found = find_recurrence(model, data)
    assert found is None or "x" not in found.state.values()


def test_a_model_that_does_not_load_shows_nothing(tmp_path: Path) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(b"no model")
    assert find_recurrence(str(path), recorded(set())) is None
