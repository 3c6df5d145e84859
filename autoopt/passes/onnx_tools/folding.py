"""Folding of constants, and of sizes that a model reads from shapes although they never change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from autoopt.model.lazy_imports import helper, np, numpy_helper
from autoopt.passes.base.conversion import to_ir, to_proto
from autoopt.passes.onnx_tools.graphs import INTEGERS, constant_tensors, fixed_size, producers
from autoopt.passes.onnx_tools.large_models import call_on_references, inferred_graph
from autoopt.passes.onnx_tools.libraries import quiet

if TYPE_CHECKING:
    import onnx_ir as ir
    from onnx import GraphProto, ModelProto, NodeProto


INPUT_LIMIT: Final = 8192
OUTPUT_LIMIT: Final = 512 * 512
"""Default limits of onnxscript's constant folding, in elements."""


def fold_constants(
    model: ModelProto, input_size_limit: int = INPUT_LIMIT, output_size_limit: int = OUTPUT_LIMIT
) -> ModelProto:
    """Fold constants of a protobuf; see `fold_ir_constants`."""
    return to_proto(fold_ir_constants(to_ir(model), input_size_limit, output_size_limit))


def fold_ir_constants(
    model: ir.Model, input_size_limit: int = INPUT_LIMIT, output_size_limit: int = OUTPUT_LIMIT
) -> ir.Model:
    """Fold constants with onnxscript, store the results as weights, and remove the nodes that became unused."""
    from onnx_ir.passes.common import LiftConstantsToInitializersPass, RemoveUnusedNodesPass
    from onnxscript import optimizer

    def count_constants() -> int:
        return sum(node.op_type == "Constant" for node in model.graph)

    with quiet():
        before = count_constants()
        optimizer.fold_constants(model, input_size_limit=input_size_limit, output_size_limit=output_size_limit)
        RemoveUnusedNodesPass()(model)
        if count_constants() > before:
            LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
        return model


def fold_known_sizes(model: ModelProto) -> ModelProto:
    """Replace sizes taken from shapes with constants where shape inference knows them, and fold what follows.

    PyTorch's older exporter computes the factor of attention from such a size, again in each inference.
    """
    return call_on_references(_fold_known_sizes, model)


def _fold_known_sizes(model: ModelProto) -> ModelProto:
    shapes = _known_shapes(model)
    constants: dict[str, np.ndarray] = {}
    for name, tensor in constant_tensors(model.graph).items():
        if len(tensor.dims) < 2 and tensor.data_type in INTEGERS:
            constants[name] = numpy_helper.to_array(tensor)
    changed = False
    for node in model.graph.node:
        selected = _selected_sizes(node, shapes, constants)
        if selected is not None and selected.all():
            value = numpy_helper.from_array(selected)
            node.CopyFrom(helper.make_node("Constant", [], list(node.output), node.name, value=value))
            changed = True
    if not changed:
        return model
    return fold_constants(model)


def _known_shapes(model: ModelProto) -> dict[str, np.ndarray]:
    """The results of Shape as far as shape inference knows them; 0 stands for an open size."""
    sizes = value_sizes(inferred_graph(model, data_prop=True))
    shapes: dict[str, np.ndarray] = {}
    for name, node in producers(model.graph).items():
        if node.op_type == "Shape" and node.input[0] in sizes and not node.attribute:
            shapes[name] = np.array(sizes[node.input[0]], np.int64)
    return shapes


def value_sizes(graph: GraphProto) -> dict[str, list[int]]:
    """The sizes of a graph's values as far as the graph records them; 0 stands for an open size."""
    sizes: dict[str, list[int]] = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        if value.type.tensor_type.HasField("shape"):
            sizes[value.name] = [fixed_size(dim) for dim in value.type.tensor_type.shape.dim]
    return sizes


def _selected_sizes(
    node: NodeProto, shapes: Mapping[str, np.ndarray], constants: Mapping[str, np.ndarray]
) -> np.ndarray | None:
    """The sizes that a Gather or Slice takes from a shape; None for other nodes."""
    if not node.input or node.input[0] not in shapes or any(name not in constants for name in node.input[1:]):
        return None
    shape = shapes[node.input[0]]
    positions = [constants[name] for name in node.input[1:]]
    if node.op_type == "Gather":
        return np.asarray(shape[positions[0]])
    if node.op_type == "Slice" and len(positions) in (2, 3):  # start, end and the only axis
        return shape[int(positions[0].item()) : int(positions[1].item())]
    return None
