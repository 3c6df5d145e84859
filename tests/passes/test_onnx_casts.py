"""Casts at the inputs and outputs of a model."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from micro_models import made
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

from autoopt.passes.base import Refused
from autoopt.passes.onnx_tools.casts import cast_input, cast_output


def test_callers_use_another_type_and_the_nodes_compute_in_their_own() -> None:
    model = made(
        """
        g (float[2] x, bool c) => (float[2] y) {
            y = If (c) <then_branch = t () => (float[2] a) { a = Add (x, x) },
                        else_branch = e () => (float[2] b) { b = Neg (x) }>
        }
        """
    )
    cast_input(model, model.graph.input[0], TensorProto.FLOAT16)
    cast_output(model, model.graph.output[0], TensorProto.DOUBLE)
    onnx.checker.check_model(model, full_check=True)
    (result,) = ReferenceEvaluator(model).run(None, {"x": np.float16([1, 2]), "c": np.array(True)})
    assert result.dtype == np.float64
    assert result.tolist() == [2, 4]


def test_an_output_that_is_an_input_is_refused() -> None:
    model = made("g (float[2] x) => (float[2] x) { y = Neg (x) }")
    with pytest.raises(Refused, match="'x' is an input, too"):
        cast_output(model, model.graph.output[0], TensorProto.DOUBLE)
