"""Initial states of recurrent layers that are zero."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from bench import ops, saved, step
from micro_models import made, normal, recurrent_from_zeros

PASS = "omit_zero_states"
WEIGHTS = {"w": normal(1, 24, 4), "r": normal(1, 24, 6), "zero": np.zeros(1, np.float32), "sizes": np.array([1, 2, 6])}


def test_zeros_in_the_shape_of_the_batch_are_left_out(tmp_path: Path) -> None:
    result = step(tmp_path, recurrent_from_zeros(), PASS)
    assert result["outcome"] == "ok", result["message"]
    assert result["equivalence"]["status"] == "same"
    after = saved(result)
    assert ops(after) == ["LSTM"]
    assert list(after.graph.node[0].input) == ["x", "w", "r"]


@pytest.mark.parametrize(
    ("before", "states", "left"),
    [
        ("z = Expand (zero, sizes)", "z, s", ["", "s"]),
        ("f = Reshape (zero, minus)\n e = Expand (f, sizes)\n z = Identity (e)", "s, z", ["s"]),
        ("a = Expand (zero, half)\n z = Concat <axis = 1> (a, a)", "z, z", []),
    ],
)
def test_each_state_is_left_out_by_itself(tmp_path: Path, before: str, states: str, left: list[str]) -> None:
    model = made(
        f"g (float[5, 2, 4] x, float[1, 2, 6] s) => (float[5, 1, 2, 6] y) {{ {before}\n"
        f" y = LSTM <hidden_size = 6> (x, w, r, , , {states}) }}",
        **WEIGHTS,
        minus=np.array([-1]),
        half=np.array([1, 1, 6]),
    )
    result = step(tmp_path, model, PASS)
    assert result["outcome"] == "ok", result["message"]
    assert result["equivalence"]["status"] == "same"
    layer = next(node for node in saved(result).graph.node if node.op_type == "LSTM")
    assert list(layer.input)[5:] == left


@pytest.mark.parametrize(
    ("before", "inputs"),
    [
        ("z = Identity (s)", ""),
        ("z = Expand (tiny, sizes)", ""),
        ("z = ConstantOfShape <value = float[1] {0.5}> (sizes)", ""),
        ("z = Expand (zero, sizes)", ", float[1] zero"),
    ],
)
def test_other_states_stay(tmp_path: Path, before: str, inputs: str) -> None:
    """A weight that is also an input can be replaced by the caller."""
    model = made(
        f"g (float[5, 2, 4] x, float[1, 2, 6] s{inputs}) => (float[5, 1, 2, 6] y) {{ {before}\n"
        " y = LSTM <hidden_size = 6> (x, w, r, , , z, z) }",
        **WEIGHTS,
        tiny=np.array([1e-30], np.float32),
    )
    assert step(tmp_path, model, PASS)["outcome"] == "unchanged"
