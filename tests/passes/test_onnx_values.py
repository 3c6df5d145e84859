"""Other types at the inputs and outputs of a model."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
from micro_models import made
from onnx.reference import ReferenceEvaluator

from autoopt.passes.onnx_tools.values import give_types


def test_callers_use_another_type_and_the_nodes_compute_in_their_own() -> None:
    model = ir.from_proto(
        made(
            """
            g (float[2] x, bool c) => (float[2] y) {
                y = If (c) <then_branch = t () => (float[2] a) { a = Add (x, x) },
                            else_branch = e () => (float[2] b) { b = Neg (x) }>
            }
            """
        )
    )
    assert give_types(model, {"x": ir.DataType.FLOAT16, "y": ir.DataType.DOUBLE})
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto, full_check=True)
    (result,) = ReferenceEvaluator(proto).run(None, {"x": np.float16([1, 2]), "c": np.array(True)})
    assert result.dtype == np.float64
    assert result.tolist() == [2, 4]
