"""Initial states of recurrent layers that are zero anyway."""

from __future__ import annotations

from typing import Final

from autoopt.model.lazy_imports import convenience, ir, ir_passes
from autoopt.passes.base import Pass
from autoopt.passes.base.contract import RUNTIME_BOUND
from autoopt.passes.onnx_tools.graphs import DEFAULT_DOMAINS
from autoopt.passes.onnx_tools.libraries import apply_ir_passes

STATES: Final = {"LSTM": (5, 6), "GRU": (5,), "RNN": (5,)}
"""Recurrent layer -> the places of its initial states among its inputs."""
KEEP_ZEROS: Final = frozenset(
    ("Cast", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Tile", "Transpose", "Unsqueeze")
)
"""Operators that return only values of their first input, or as many of them."""


class OmitZeroStates(Pass):
    """Leaves out initial states of recurrent layers that are zero, and the nodes that compute how many zeros there are.

    Exporters of Keras and PyTorch write the zeros in the shape of the batch, with up to ten nodes for each layer. Small
    models take much of their time for them.
    """

    depends_on = "model"
    needs_ops = tuple(STATES)
    conflicts = RUNTIME_BOUND
    libraries = ("onnx", "onnx-ir")

    def run(self, model: ir.Model) -> ir.Model | None:
        changed = [_omit_zero_states(node) for node in model.graph.all_nodes()]
        if not any(changed):
            return None
        return apply_ir_passes(model, ir_passes.RemoveUnusedNodesPass())


def _omit_zero_states(node: ir.Node) -> bool:
    """Leave out the initial states of a node that are zero; tell if there were any."""
    if node.op_type not in STATES or node.domain not in DEFAULT_DOMAINS:
        return False
    places = [place for place in STATES[node.op_type] if place < len(node.inputs) and is_zero(node.inputs[place])]
    for place in places:
        node.replace_input_with(place, None)
    while places and node.inputs[-1] is None:
        node.resize_inputs(len(node.inputs) - 1)
    return bool(places)


def is_zero(value: ir.Value | None) -> bool:
    """Tell if a value is zero whatever the inputs are."""
    # A caller may replace a weight that is an input too.
    if value is None or value.is_graph_input():
        return False
    fixed = convenience.get_const_tensor(value)
    if fixed is not None:
        return not fixed.numpy().any()
    node = value.producer()
    if node is None or node.domain not in DEFAULT_DOMAINS:
        return False
    if node.op_type == "ConstantOfShape":
        filled = node.attributes.get_tensor("value")
        return filled is None or not filled.numpy().any()
    if node.op_type == "Concat":
        return all(map(is_zero, node.inputs))
    return node.op_type in KEEP_ZEROS and is_zero(node.inputs[0])
