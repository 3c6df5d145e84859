"""Nodes found from the end of a pattern back."""

from __future__ import annotations

from onnx import NodeProto, parser

from autoopt.passes.onnx_tools.producing_nodes import ProducingNodes

MODEL = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[2] x, float[2] y) => (float[2] z) {
    negative = Neg (x)
    sum = Add (y, negative)
    z = Relu (sum)
}
"""


def output(node: NodeProto | None) -> str | None:
    return None if node is None else node.output[0]


def test_a_pattern_is_followed_from_its_last_node() -> None:
    nodes = ProducingNodes(parser.parse_model(MODEL).graph)
    last = nodes.of_type("z", "Relu")
    added = nodes.before(last, 0, "Add")
    assert output(added) == "sum"
    assert output(nodes.before(added, 1, "Neg")) == "negative"
    assert output(nodes.get("negative")) == "negative"


def test_nothing_is_found_behind_other_nodes_inputs_or_nothing() -> None:
    nodes = ProducingNodes(parser.parse_model(MODEL).graph)
    added = nodes.get("sum")
    assert nodes.of_type("z", "Add") is None
    assert nodes.get("x") is None
    assert nodes.before(added, 0, "Neg") is None, "an input of the model"
    assert nodes.before(added, 2, "Neg") is None, "no such input"
    assert nodes.before(None, 0, "Neg") is None
