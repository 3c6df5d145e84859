"""Recurrent layers and loops: what is the same in every iteration is computed once, and initial zeros are left out."""

from __future__ import annotations

from typing import Final

from autoopt.model.lazy_imports import convenience, ir, ir_passes
from autoopt.model.random_nodes import RANDOM_OPS
from autoopt.passes.base import Pass
from autoopt.passes.base.contract import FUSIONS, RUNTIME_BOUND
from autoopt.passes.cleanup.graph_cleanup import remove_identities
from autoopt.passes.onnx_tools.graphs import DEFAULT_DOMAINS
from autoopt.passes.onnx_tools.libraries import apply_ir_passes
from autoopt.passes.onnx_tools.sizes import fixed_tensor

BEFORE_CARRIED: Final = 2
"""Inputs of a Loop and of its body in front of the carried values: trip count or number of the iteration, condition."""
STATES: Final = {"LSTM": (5, 6), "GRU": (5,), "RNN": (5,)}
"""Recurrent layer -> the places of its initial states among its inputs."""
KEEP_ZEROS: Final = frozenset(
    ("Cast", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Tile", "Transpose", "Unsqueeze")
)
"""Operators that return only values of their first input, or as many of them."""


class LoopInvariantCodeMotion(Pass):
    """Computes once, in front of a Loop, what is the same in every iteration.

    Values that the body returns as they came, such as weights, are no longer carried from one iteration to the next,
    which copies them. The products of one row per iteration with the same weights become one product of all rows.
    Recurrent layers converted from Keras have both.
    """

    version = 2
    depends_on = "model"
    needs_ops = ("Loop",)
    conflicts = FUSIONS
    libraries = ("onnx", "onnx-ir")
    aliases = ("licm",)

    def run(self, model: ir.Model) -> ir.Model | None:
        loops = [node for node in model.graph.all_nodes() if node.op_type == "Loop" and node.domain in DEFAULT_DOMAINS]
        is_changed = False
        for loop in reversed(loops):  # inner loops first
            shorter = _without_carried_invariants(loop)
            changes = [shorter is not loop, move_invariants(shorter), _move_products(shorter)]
            is_changed |= any(changes)
        if not is_changed:
            return None
        remove_identities(model)
        return apply_ir_passes(model, ir_passes.RemoveUnusedNodesPass())


def source_of(value: ir.Value) -> ir.Value:
    """The value that an Identity returns, or the value itself."""
    node = value.producer()
    while node is not None and node.op_type == "Identity" and node.inputs[0] is not None:
        value = node.inputs[0]
        node = value.producer()
    return value


def move_invariants(loop: ir.Node) -> bool:
    """Move nodes in front of a Loop or Scan that read nothing of its body; tell if there were any."""
    body = loop.attributes["body"].as_graph()
    is_changed = False
    for node in list(body):
        reads_body = any(value is not None and value.graph is body for value in node.inputs)
        if reads_body or loop.graph is None or not _can_leave(node):
            continue
        body.remove(node)
        for value in node.outputs:
            if value.name:  # those that are left out have none
                value.name = f"{loop.outputs[0].name}/{value.name}"  # bodies of two loops may use the same names
        loop.graph.insert_before(loop, node)
        is_changed |= bool(node.inputs)
    return is_changed


def _can_leave(node: ir.Node) -> bool:
    """Tell if a node computes the same wherever it is, and the body does not return it."""
    is_returned = any(value.is_graph_output() for value in node.outputs)
    has_body = any(attribute.type == ir.AttributeType.GRAPH for attribute in node.attributes.values())
    return not is_returned and not has_body and node.op_type not in (*RANDOM_OPS, "Dropout")


def _without_carried_invariants(loop: ir.Node) -> ir.Node:
    """Let the body read carried values that it never changes from outside; returns the Loop in its place, or itself."""
    body = loop.attributes["body"].as_graph()
    returned = [source_of(value) for value in body.outputs]
    places = []
    for place, value in enumerate(body.inputs[BEFORE_CARRIED:]):
        if returned[1 + place] is value and returned.count(value) == 1:
            places.append(place)
    if len(places) in (0, len(loop.outputs)) or loop.graph is None:  # a Loop has an output
        return loop
    inputs, outputs, identities = list(loop.inputs), list(loop.outputs), []
    results: dict[ir.Value, ir.Value] = {}
    for place in reversed(places):
        outer = inputs.pop(BEFORE_CARRIED + place)
        assert outer is not None
        identities.append(ir.node("Identity", [outer]))
        results[outputs.pop(place)] = identities[-1].outputs[0]
        body.outputs.pop(1 + place)
        body.inputs.pop(BEFORE_CARRIED + place).replace_all_uses_with(outer)
    shorter = ir.node("Loop", inputs, {"body": loop.attributes.pop("body")}, num_outputs=len(outputs), name=loop.name)
    results |= dict(zip(outputs, shorter.outputs, strict=True))
    convenience.replace_nodes_and_values(
        loop.graph, loop, [loop], [shorter, *identities], list(results), list(results.values())
    )
    return shorter


def _move_products(loop: ir.Node) -> bool:
    """Multiply all rows in front of the loop: `(x @ matrix)[i]` in place of `x[i] @ matrix`."""
    body = loop.attributes["body"].as_graph()
    is_changed = False
    for node in [each for each in body if each.op_type == "MatMul" and _is_matrix(each.inputs[1], body)]:
        rows = _rows_before(node, body)
        if rows is None or loop.graph is None:
            continue
        products = ir.node("MatMul", [rows.inputs[0], node.inputs[1]])
        loop.graph.insert_before(loop, products)
        rows.replace_input_with(0, products.outputs[0])
        rows.outputs[0].type, rows.outputs[0].shape = node.outputs[0].type, node.outputs[0].shape
        node.outputs[0].replace_all_uses_with(rows.outputs[0], replace_graph_outputs=True)
        body.remove(node, safe=True)
        is_changed = True
    return is_changed


def _rows_before(product: ir.Node, body: ir.Graph) -> ir.Node | None:
    """The node that reads a row of a value from outside for a product, and for nothing else."""
    rows = None if product.inputs[0] is None else product.inputs[0].producer()
    if rows is None or rows.graph is not body or not _reads_a_row(rows) or len(rows.outputs[0].uses()) > 1:
        return None
    everything = rows.inputs[0]
    return None if everything is None or everything.graph is body else rows


def _is_matrix(value: ir.Value | None, body: ir.Graph) -> bool:
    """Tell if a value is a fixed matrix from outside of a body."""
    tensor = fixed_tensor(value)
    return tensor is not None and value is not None and value.graph is not body and len(tensor.shape) == 2


def _reads_a_row(node: ir.Node) -> bool:
    """Tell if a node is a Gather of one row, by an input of the body such as the number of the iteration."""
    index = node.inputs[1] if node.op_type == "Gather" else None
    is_number = index is not None and index.is_graph_input() and index.shape is not None and len(index.shape) == 0
    return is_number and node.attributes.get_int("axis", 0) == 0 and not node.outputs[0].is_graph_output()


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
    fixed = fixed_tensor(value)
    if fixed is not None:
        return not fixed.numpy().any()
    node = None if value is None else value.producer()
    if node is None or node.domain not in DEFAULT_DOMAINS:
        return False
    if node.op_type == "ConstantOfShape":
        filled = node.attributes.get_tensor("value")
        return filled is None or not filled.numpy().any()
    if node.op_type == "Concat":
        return all(map(is_zero, node.inputs))
    return node.op_type in KEEP_ZEROS and is_zero(node.inputs[0])
