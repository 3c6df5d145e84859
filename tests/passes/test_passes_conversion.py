"""Parts that libraries cannot hold: maps of scikit-learn's exporter (ZipMap, DictVectorizer), and training info."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from bench import saved, step
from micro_models import MODELS
from onnx import TensorProto, helper

from autoopt.model import io
from autoopt.model.session import make_plain_session

MAP = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
INPUT = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])
LABEL = helper.make_tensor_value_info("label", TensorProto.INT64, ["n"])


def classifier(*more: onnx.ValueInfoProto) -> onnx.ModelProto:
    """A linear classifier with probabilities by class, in front of further outputs."""
    settings = {"coefficients": [-0.5, 0.2, 0.5, -0.2], "intercepts": [0.1, -0.1], "post_transform": "SOFTMAX"}
    nodes = [
        helper.make_node("Identity", ["x"], ["x0"]),
        helper.make_node(
            "LinearClassifier", ["x0"], ["label", "p"], domain="ai.onnx.ml", classlabels_ints=[0, 1], **settings
        ),
        helper.make_node("ZipMap", ["p"], ["by_class"], domain="ai.onnx.ml", classlabels_int64s=[0, 1]),
    ]
    outputs = [helper.make_value_info("by_class", helper.make_sequence_type_proto(MAP)), LABEL, *more]
    graph = helper.make_graph(nodes, "g", [INPUT], outputs)
    imports = [helper.make_opsetid("", 15), helper.make_opsetid("ai.onnx.ml", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


@pytest.mark.parametrize(
    "name",
    [
        *("identity_elimination", "common_subexpression_elimination", "onnxslim", "onnxsim", "onnxoptimizer"),
        *("remove_unused", "opset_conversion", "onnxscript_optimize", "name_fix", "ort_graph_optimization", "checker"),
    ],
)
def test_passes_change_what_is_in_front_of_the_maps(tmp_path: Path, name: str) -> None:
    model = classifier()
    result = step(tmp_path, model, name)
    assert result["outcome"] in ("ok", "unchanged"), result["message"]
    if result["outcome"] == "ok":
        assert result["equivalence"]["status"] == "same"
        changed = saved(result)
        assert changed.graph.output == model.graph.output
        assert [node.op_type for node in changed.graph.node][-1] == "ZipMap"


def test_what_the_maps_are_made_of_may_be_an_output_too(tmp_path: Path) -> None:
    model = classifier(helper.make_tensor_value_info("p", TensorProto.FLOAT, ["n", 2]))
    result = step(tmp_path, model, "identity_elimination")
    assert (result["outcome"], result["equivalence"]["status"]) == ("ok", "same")
    assert [value.name for value in saved(result).graph.output] == ["by_class", "label", "p"]


def test_an_output_of_maps_can_be_removed(tmp_path: Path) -> None:
    result = step(tmp_path, classifier(), "remove_outputs", outputs=["by_class"])
    assert result["outcome"] == "ok", result["message"]
    assert [value.name for value in saved(result).graph.output] == ["label"]


@pytest.mark.parametrize(
    ("name", "params"), [("split_stages", {"stage": 1, "cuts": [["x0"]]}), ("append_postprocessing", {"output": "p"})]
)
def test_passes_that_change_outputs_leave_maps_as_they_are(tmp_path: Path, name: str, params: dict[str, Any]) -> None:
    model = classifier(helper.make_tensor_value_info("p", TensorProto.FLOAT, ["n", 2]))
    model.graph.value_info.append(helper.make_tensor_value_info("x0", TensorProto.FLOAT, ["n", 2]))
    result = step(tmp_path, model, name, **params)
    assert result["outcome"] == "ok", result["message"]
    outputs = {value.name: value.type for value in saved(result).graph.output}
    assert outputs["by_class"] == model.graph.output[0].type


@pytest.mark.parametrize(
    "name", ["identity_elimination", "onnxslim", "onnxsim", "onnxscript_optimize", "opset_conversion"]
)
def test_passes_change_what_is_behind_an_input_of_maps(tmp_path: Path, name: str) -> None:
    kind = helper.make_map_type_proto(TensorProto.STRING, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    node = helper.make_node("DictVectorizer", ["d"], ["v"], domain="ai.onnx.ml", string_vocabulary=["a", "b"])
    graph = helper.make_graph(
        [node, helper.make_node("Identity", ["v"], ["w"]), helper.make_node("Relu", ["w"], ["y"])],
        "g",
        [helper.make_value_info("d", kind)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2])],
    )
    imports = [helper.make_opsetid("", 15), helper.make_opsetid("ai.onnx.ml", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8)
    result = step(tmp_path, model, name)
    assert result["outcome"] == "ok", result["message"]
    changed = saved(result)
    assert changed.graph.input == model.graph.input
    session = make_plain_session(io.save(changed, tmp_path / "changed"))
    assert session.run(None, {"d": {"a": 2.0, "b": -1.0}})[0].tolist() == [[2.0, 0.0]]


@pytest.mark.parametrize("name", ["identity_elimination", "onnxslim", "dynamic_quantization", "ir_upgrade"])
def test_information_for_training_stays(tmp_path: Path, name: str) -> None:
    model = MODELS["mlp"]()
    model.graph.node.add(op_type="Identity", input=[model.graph.output[0].name], output=["same"])
    model.graph.output[0].name = "same"
    model.training_info.add().initialization_binding.add(key="w", value="zeros")
    result = step(tmp_path, model, name)
    assert result["outcome"] in ("ok", "unchanged"), result["message"]
    if result["outcome"] == "ok":
        (kept,) = saved(result).training_info
        assert kept.initialization_binding == model.training_info[0].initialization_binding
