"""Recurrent state that items of data show: outputs of the model for one item that are inputs of the next."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from builders import model as make_model
from builders import tensor, write
from onnx import helper

from autoopt.data.dataset import DataSet
from autoopt.data.worker import Recurrence, find_recurrence

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
