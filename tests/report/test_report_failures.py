"""Messages of libraries in words."""

from __future__ import annotations

import pytest

from autoopt.report.words.failures import plain_reason


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (
            "onnxruntime rejects the model: [ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Could not find an implementation"
            " for Conv(22) node with name 'c1'",
            "float32",
        ),
        (
            "InvalidGraph: [ONNXRuntimeError] : 10 : INVALID_GRAPH : This is an invalid model. Type Error: Type "
            "'tensor(bfloat16)' of input parameter (x) of operator (Conv) in node () is invalid.",
            "onnxruntime has no Conv for this element type; 'autoopt apply float32'",
        ),
        (
            "PassError: An error occurred when running the '<onnx_ir.InlinePass at 0x7f>' pass after the following"
            " passes: []",
            "inline_functions",
        ),
        ("symbolic shape inference fails: Exception Incomplete symbolic shape inference", "shape_inference may do"),
        ("pass 'simplify' ended failed: SerdeError: Error calling _deserialize_graph with: g", "inline_functions"),
        ("The proto size is larger than... exceeds maximum protobuf size of 2GB: 2415919104", "external_data"),
        (
            "fidelity: Exception during initialization: /onnxruntime/core/basic_backend.cc:136 onnxruntime::B("
            "std::unique_ptr<onnx::M>&) [OpenVINO-EP] Exception while Loading Network for graph s_1: Exception from "
            "src/inference/src/cpp/core.cpp:154: Exception from src/core/graph_cache.cpp:27: t node not found in graph",
            "fidelity: OpenVINO does not take the model: t node not found in graph",
        ),
        ("Load model from /tmp/autoopt-x1/tmp2/model.onnx failed:No such file: /tmp/autoopt-x1/w.bin", "file: w.bin"),
    ],
)
def test_messages_say_what_helps_and_nothing_of_the_library(message: str, words: str) -> None:
    plain = plain_reason(message)
    assert words in plain
    assert not any(text in plain for text in ("ONNXRuntimeError", "/tmp/", "Error", "protobuf", "Invalid", "<"))


def test_the_pass_and_its_outcome_stay() -> None:
    message = "pass 'p' ended refused: NotImplemented: Could not find an implementation for Conv(22) node with name ''"
    assert plain_reason(message).startswith("pass 'p' ended refused: onnxruntime has no Conv")
