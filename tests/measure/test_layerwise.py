"""Two models compared layer by layer."""

from __future__ import annotations

import os
from pathlib import Path

import builders
import onnx
import pytest
from builders import mlp, write
from onnx import helper

from autoopt.errors import InputError
from autoopt.json_codec import from_json
from autoopt.measure.layerwise import MIN_INFERENCES, by_operator, compare_models, operator_times
from autoopt.measure.request import MeasureRequest
from autoopt.model import io
from autoopt.model.admit import NotAdmitted
from autoopt.model.model_file import ModelFile
from autoopt.results.model import OperatorTimes


def test_the_first_layer_that_differs_is_named(tmp_path):
    source, changed = builders.mlp(), builders.mlp()
    weights = onnx.numpy_helper.to_array(changed.graph.initializer[2]).copy()
    changed.graph.initializer[2].CopyFrom(onnx.numpy_helper.from_array(-weights, "w2"))
    paths = [str(io.save(m, tmp_path / n)) for m, n in ((source, "a"), (changed, "b"))]
    found = compare_models({"source": {"path": paths[0]}, "candidate": {"path": paths[1]}})
    assert [t["name"] for t in found["tensors"]] == ["h", "r", "s", "y"]
    assert found["first_different"] == "s"
    assert found["tensors"][0]["max_abs_error"] == 0
    same = compare_models({"source": {"path": paths[0]}, "candidate": {"path": paths[0]}})
    assert same["first_different"] is None
    assert same["outputs"][0]["cosine"] == pytest.approx(1.0)


def test_outputs_of_every_kind_are_compared(tmp_path):
    def labelled(word: str, parts: int) -> str:
        nodes = [
            helper.make_node(
                "LabelEncoder", ["n"], ["label"], domain="ai.onnx.ml", keys_int64s=[0], values_strings=[word],
                default_string=word,
            ),
            helper.make_node("SplitToSequence", ["x"], ["parts"], axis=1),
            helper.make_node("Concat", ["x"] * parts, ["wide"], axis=1),
        ]  # fmt: skip
        outputs = [
            helper.make_tensor_value_info("label", onnx.TensorProto.STRING, [1]),
            helper.make_tensor_sequence_value_info("parts", onnx.TensorProto.FLOAT, None),
            helper.make_tensor_value_info("wide", onnx.TensorProto.FLOAT, [1, 4 * parts]),
        ]
        inputs = [
            helper.make_tensor_value_info("n", onnx.TensorProto.INT64, [1]),
            helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 4]),
        ]
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
        graph = helper.make_graph(nodes, "g", inputs, outputs)
        return str(io.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / f"{word}{parts}"))

    found = compare_models({"source": {"path": labelled("a", 2)}, "candidate": {"path": labelled("b", 3)}})
    label, parts, wide = found["outputs"]
    assert (label["note"], label["top1_agreement"], label["cosine"]) == ("not numbers", 0.0, None)
    assert (parts["note"], parts["shape"], parts["max_abs_error"]) == ("", [4], 0.0)
    assert wide["note"] == "1x8 and 1x12"


def test_a_file_that_is_no_model_is_refused(tmp_path):
    path = str(io.save(builders.mlp(), tmp_path))
    (tmp_path / "broken.onnx").write_bytes(b"no model at all")
    with pytest.raises(io.Unreadable, match="not an ONNX model"):
        compare_models({"source": {"path": path}, "candidate": {"path": str(tmp_path / "broken.onnx")}})


def test_external_data_that_never_ends_is_not_opened(tmp_path: Path) -> None:
    path = str(io.save(builders.mlp(), tmp_path / "good"))
    (tmp_path / "bad").mkdir()
    onnx.save(builders.mlp(), tmp_path / "bad" / "m.onnx", save_as_external_data=True, location="w", size_threshold=0)
    (tmp_path / "bad" / "w").unlink()
    os.mkfifo(tmp_path / "bad" / "w")
    bad = str(tmp_path / "bad" / "m.onnx")
    for first, second in ((path, bad), (bad, path)):
        with pytest.raises(NotAdmitted, match=r"m.onnx: external data .* is not a regular file"):
            compare_models({"source": {"path": first}, "candidate": {"path": second}})


def test_a_model_in_the_ort_format_is_refused(tmp_path: Path) -> None:
    path = str(io.save(builders.mlp(), tmp_path))
    (tmp_path / "model.ort").write_bytes(b"....ORTM")
    with pytest.raises(InputError, match=r"model.ort: is in the ORT format"):
        compare_models({"source": {"path": path}, "candidate": {"path": str(tmp_path / "model.ort")}})


def event(name: str, op_type: str, duration: int) -> dict[str, object]:
    return {"cat": "Node", "name": f"{name}_kernel_time", "dur": duration, "args": {"op_name": op_type}}


def test_a_node_counts_with_its_median_as_often_as_it_runs_without_the_first_inference() -> None:
    events = [event("a", "Conv", duration) for duration in (9000, 1000, 3000, 2000)]
    events += [event("b", "Conv", 500)] * 4
    events += [event("in a loop", "Add", duration) for duration in (800, 900, 100, 100, 100, 100, 100, 100)]
    events.append({"cat": "Session", "name": "model_run", "dur": 99999})
    assert by_operator(events, inferences=4) == {"Conv": 2.5, "Add": 0.2}


def test_both_models_are_profiled_with_their_own_session_options(tmp_path: Path) -> None:
    model = str(write(mlp(), tmp_path))
    unoptimized = ModelFile(model, {"graph_optimization_level": "disable"})
    request = MeasureRequest(candidate=ModelFile(model), source=unoptimized)
    times = from_json(OperatorTimes, operator_times(request.to_json()))
    rows = {row.op_type: row for row in times.rows}
    assert times.inferences >= MIN_INFERENCES
    assert all((row.source or 0) >= 0 and (row.candidate or 0) >= 0 for row in times.rows)
    assert any(row.source is None or row.candidate is None for row in times.rows)
    assert set(rows) & {"Gemm", "FusedGemm", "MatMul"}
    assert [abs(row.change) for row in times.rows] == sorted((abs(row.change) for row in times.rows), reverse=True)


def test_one_model_is_not_enough(tmp_path: Path) -> None:
    request = MeasureRequest(candidate=ModelFile(str(write(mlp(), tmp_path))))
    with pytest.raises(InputError, match="two models are needed"):
        operator_times(request.to_json())
