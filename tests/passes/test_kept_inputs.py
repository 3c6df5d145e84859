"""Passes that leave the computation as it is leave what callers pass as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench import outputs
from micro_models import made, normal
from onnx import ModelProto

from autoopt.passes.base import Pass
from autoopt.passes.cleanup.simplifiers import OnnxOptimizer, Simplify
from autoopt.passes.fusion.transformer import TransformerFusion
from autoopt.passes.shape.inference import SymbolicShapeInference

SIMPLIFIERS = [OnnxOptimizer(), *(Simplify(engine=engine) for engine in ("onnxslim", "onnxsim", "onnxscript"))]


def names(pass_: Pass) -> str:
    return f"{type(pass_).__name__} {getattr(pass_, 'engine', '')}".strip()


def inputs(model: ModelProto) -> list[bytes]:
    return [value.SerializeToString() for value in model.graph.input]


@pytest.mark.parametrize("pass_", SIMPLIFIERS, ids=names)
def test_an_input_that_nothing_reads_stays_in_its_place(pass_: Pass) -> None:
    nodes = "i = Identity (a)\n j = Identity (i)\n y = Add (j, b)"
    model = made(f"g (float[2] a, float[N] unused, float[2] b) => (float[2] y) {{ {nodes} }}")
    after = pass_(model)
    assert len(after.graph.node) == 1
    assert inputs(after) == inputs(model)


def test_fusion_keeps_an_input_that_nothing_reads() -> None:
    text = (
        "g (float[N, 6, 16] x, float[N] unused) => (float[N, 6, 16] y) { m = MatMul (x, w)\n q = Div (m, root)\n"
        " e = Erf (q)\n p = Add (e, one)\n t = Mul (m, p)\n y = Mul (t, half) }"
    )
    numbers = {"root": np.float32(2**0.5), "one": np.float32(1), "half": np.float32(0.5)}
    model = made(text, w=normal(16, 16), **numbers)
    after = TransformerFusion(engine="onnxruntime")(model)
    assert any(node.op_type == "Gelu" for node in after.graph.node)
    assert inputs(after) == inputs(model)


@pytest.mark.parametrize("pass_", [Simplify(), SymbolicShapeInference()], ids=names)
def test_an_open_dimension_that_broadcasts_stays_open(pass_: Pass, tmp_path: Any) -> None:
    """It may be 1, although the weight has 2 rows."""
    model = made(
        "g (float[B, S, 4] x) => (float[R, S, 1] y) { i = Identity (x)\n y = MatMul (i, w) }", w=normal(2, 4, 1)
    )
    assert inputs(pass_(model)) == inputs(model)


def test_a_row_that_broadcasts_runs_after_the_pass(tmp_path: Path) -> None:
    """Recorded sizes of inner values that hold for 4 rows only would break inferences of 1 row."""
    text = "w = Where (c, x, one)\n r = Relu (w)\n n = Neg (x)\n e = Exp (n)\n i = Identity (e)\n z = Add (i, one)"
    weights = {"c": np.ones((4, 6), bool), "one": np.float32(1)}
    model = made(f"g (float[A, B] x) => (float[C, D] r, float[E, F] z) {{ {text} }}", **weights)
    after = Simplify()(model)
    feeds = {"x": normal(1, 6)}
    for one, other in zip(outputs(model, tmp_path, feeds), outputs(after, tmp_path, feeds), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("pass_", SIMPLIFIERS, ids=names)
def test_an_input_that_is_an_output_keeps_its_name(pass_: Pass) -> None:
    model = made("g (float[2] x) => (float[2] x, float[2] y) { i = Identity (x)\n j = Neg (i)\n y = Relu (j) }")
    after = pass_(model)
    assert inputs(after) == inputs(model)
    assert [value.name for value in after.graph.output] == ["x", "y"]


@pytest.mark.parametrize("pass_", SIMPLIFIERS, ids=names)
def test_nodes_may_come_in_any_order(pass_: Pass) -> None:
    model = made("g (float[2] x) => (float[2] y) { i = Identity (x)\n j = Neg (i)\n y = Relu (j) }")
    model.graph.node.reverse()
    assert [node.op_type for node in pass_(model).graph.node] == ["Neg", "Relu"]
