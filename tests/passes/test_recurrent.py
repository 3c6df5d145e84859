"""Loop-invariant code motion, and initial states of recurrent layers that are zero."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from bench import ops, saved, step
from micro_models import loop_with_carried_weights, made, normal, recurrent_from_zeros
from onnx import ModelProto, checker

from autoopt.model.tensors import bodies

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


MOTION = "loop_invariant_code_motion"


def loop_of(model: ModelProto) -> tuple[list[str], int]:
    """The operators in the body of the model's loop, and the number of its inputs."""
    loop = next(node for node in model.graph.node if node.op_type == "Loop")
    body = next(bodies(loop))
    return [node.op_type for node in body.node], len(body.input)


def test_weights_are_not_carried_and_rows_are_multiplied_at_once(tmp_path: Path) -> None:
    result = step(tmp_path, loop_with_carried_weights(), MOTION)
    assert result["outcome"] == "ok", result["message"]
    assert result["equivalence"]["status"] == "same"
    after = saved(result)
    assert ops(after) == ["MatMul", "Loop"]
    body, inputs = loop_of(after)
    assert body.count("MatMul") == 1
    assert inputs == 3


def test_a_value_that_is_also_returned_by_iteration_stays_carried(tmp_path: Path) -> None:
    text = """g (float[3] x) => (float[s, 3] all) {
        same, all = Loop (count, yes, x) <body =
            body (int64 i, bool c, float[3] v) => (bool c_out, float[3] v_out, float[3] step) {
                c_out = Identity (c)
                v_out = Identity (v)
                step = Identity (v)
            }>
    }"""
    assert step(tmp_path, made(text, count=np.int64(4), yes=np.True_), MOTION)["outcome"] == "unchanged"


INVARIANT = """g (float[3] x) => (float[3] y) {
    y = Loop (count, yes, x) <body =
        body (int64 i, bool c, float[3] v) => (bool c_out, float[3] v_out) {
            c_out = Identity (c)
            squared = OPERATOR
            v_out = Add (v, squared)
        }>
}"""


@pytest.mark.parametrize(
    ("operator", "outside"),
    [("Mul (x, x)", ["Mul", "Loop"]), ("Mul (v, x)", ["Loop"]), ("RandomNormalLike (x)", ["Loop"])],
)
def test_only_what_is_the_same_in_each_iteration_moves(tmp_path: Path, operator: str, outside: list[str]) -> None:
    model = made(INVARIANT.replace("OPERATOR", operator), count=np.int64(4), yes=np.True_)
    result = step(tmp_path, model, MOTION)
    assert ops(saved(result)) == outside if len(outside) > 1 else result["outcome"] == "unchanged"


@pytest.mark.parametrize("condition", ["c", "yes"])
def test_two_loops_with_equal_names_and_one_condition_stay_apart(tmp_path: Path, condition: str) -> None:
    loop = INVARIANT.partition("{")[2].rpartition("}")[0].replace("OPERATOR", "Mul (x, x)")
    loop = loop.replace("Identity (c)", f"Identity ({condition})")
    second = loop.replace("y = Loop (count, yes, x)", "z = Loop (count, yes, y)").replace("Mul (x, x)", "Mul (y, y)")
    text = f"g (float[3] x) => (float[3] z) {{ {loop} {second} }}"
    result = step(tmp_path, made(text, count=np.int64(2), yes=np.True_), MOTION)
    assert result["equivalence"]["status"] == "same"
    assert ops(saved(result)) == ["Mul", "Loop", "Mul", "Loop"]


def test_a_carried_result_of_the_model_keeps_its_name(tmp_path: Path) -> None:
    text = """g (float[3] x) => (float[3] y, float[3] z) {
        y, z = Loop (count, yes, x, x) <body =
            body (int64 i, bool c, float[3] v, float[3] w) => (bool c_out, float[3] v_out, float[3] w_out) {
                c_out = Identity (c)
                v_out = Add (v, w)
                w_out = Identity (w)
            }>
    }"""
    result = step(tmp_path, made(text, count=np.int64(4), yes=np.True_), MOTION)
    assert result["equivalence"]["status"] == "same"
    assert [value.name for value in saved(result).graph.output] == ["y", "z"]
    assert loop_of(saved(result))[1] == 3


def test_rows_of_products_have_the_width_of_the_products(tmp_path: Path) -> None:
    text = """g (float[5, 2, 3] x) => (float[5, 2, 4] y) {
        y = Loop (count, yes) <body =
            body (int64 i, bool c) => (bool c_out, float[2, 4] each) <float[2, 3] row> {
                c_out = Identity (c)
                row = Gather (x, i)
                each = MatMul (row, w)
            }>
    }"""
    model = made(text, count=np.int64(5), yes=np.True_, w=normal(3, 4))
    result = step(tmp_path, model, MOTION)
    assert result["outcome"] == "ok", result["message"]
    checker.check_model(saved(result), full_check=True)


def test_products_with_weights_of_the_body_stay_in_it(tmp_path: Path) -> None:
    model = made(
        """g (float[5, 2, 3] x) => (float[5, 2, 4] y) {
        y = Loop (count, yes) <body = body (int64 number, bool go) => (bool on, float[2, 4] z) {
        on = Identity (go) row = Gather (x, number) z = MatMul (row, w) }> }""",
        count=np.int64(5),
        yes=np.True_,
        w=normal(3, 4),
    )
    (body,) = bodies(model.graph.node[0])
    body.initializer.append(model.graph.initializer.pop())
    assert step(tmp_path, model, MOTION)["outcome"] == "unchanged"
