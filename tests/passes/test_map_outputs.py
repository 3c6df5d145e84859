"""scikit-learn's exporter ends classifiers with a ZipMap by default: a sequence of maps."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from bench import saved, step
from onnx import TensorProto, helper

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


def test_maps_as_inputs_are_refused_in_words(tmp_path: Path) -> None:
    kind = helper.make_map_type_proto(TensorProto.STRING, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    node = helper.make_node("DictVectorizer", ["d"], ["v"], domain="ai.onnx.ml", string_vocabulary=["a", "b"])
    graph = helper.make_graph(
        [node, helper.make_node("Identity", ["v"], ["y"])],
        "g",
        [helper.make_value_info("d", kind)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2])],
    )
    imports = [helper.make_opsetid("", 15), helper.make_opsetid("ai.onnx.ml", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8)
    result = step(tmp_path, model, "identity_elimination")
    assert result["outcome"] == "refused"
    assert "zipmap" in result["message"]
