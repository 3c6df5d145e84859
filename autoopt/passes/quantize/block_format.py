"""Products with weights in blocks, written with standard operators."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated, Any, Final

from autoopt.model.lazy_imports import helper, ir, np, numpy_helper, onnx
from autoopt.model.tensors import by_name, walk_graphs
from autoopt.passes.base import Pass
from autoopt.passes.base.conflicts import RUNTIME_BOUND
from autoopt.passes.base.conversion import to_proto
from autoopt.passes.onnx_tools.graphs import attribute_values, new_name, read_names, replace_items, value_names
from autoopt.passes.onnx_tools.opsets import at_least_opset
from autoopt.passes.quantize.stored_weights import block_levels, block_zeros
from autoopt.space import Boolean

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto

BLOCK_OPSET: Final = 21
"""The first opset with 4-bit types and with blocks in DequantizeLinear."""


class MatMulNBitsToQdq(Pass):
    """Turns MatMulNBits into DequantizeLinear and MatMul, which other runtimes and providers read.

    Levels, scales and zero points stay. Weights of 2 and 4 bits become uint4, those of 8 bits uint8. onnxruntime makes
    MatMulNBits of it again when it loads the model, and rounds activations to int8 then, whatever `accuracy_level` was
    (session option `session.qdq_matmulnbits_accuracy_level`). Products with zero points in float, or with groups, stay;
    for OpenVINO, which does not take them, those with a last block that is not full, too.
    """

    depends_on = "model"
    tolerance = "lossy"
    conflicts = RUNTIME_BOUND
    needs_ops = ("com.microsoft::MatMulNBits",)
    libraries = ("onnx",)

    signed: Annotated[bool, Boolean(), "int4 and int8 in place of uint4 and uint8"] = False
    nodes_to_exclude: Annotated[list[str], "nodes to leave as they are, by name"] = []

    def run(self, source: ir.Model) -> ModelProto | None:
        model = to_proto(source)
        takes_parts = self.context.accelerator.execution_provider != "OpenVINOExecutionProvider"
        writer = _QdqWriter(model, signed=self.signed, takes_parts=takes_parts)
        for graph in walk_graphs(model.graph):
            writer.rewrite(graph, self.nodes_to_exclude)
        if not writer.is_changed:
            return None
        unread = writer.replaced - read_names(model.graph)
        for graph in walk_graphs(model.graph):
            replace_items(graph.initializer, [tensor for tensor in graph.initializer if tensor.name not in unread])
        return at_least_opset(model, BLOCK_OPSET)


class _QdqWriter:
    """Writes DequantizeLinear and MatMul in place of MatMulNBits; products that share a weight share its new form."""

    def __init__(self, model: ModelProto, *, signed: bool, takes_parts: bool) -> None:
        """Prepare for a model. The target `takes_parts` of blocks."""
        self._signed, self._takes_parts = signed, takes_parts
        self._names = value_names(model)
        self._weights: dict[str, TensorProto] = {}
        self.replaced: set[str] = set()
        """Weights of the nodes that are gone."""
        self.is_changed = False

    def rewrite(self, graph: GraphProto, excluded: Collection[str]) -> None:
        """Rewrite a graph, after the one around it."""
        self._weights |= by_name(graph.initializer)
        made: dict[str, str] = {}
        nodes: list[NodeProto] = []
        for node in graph.node:
            if node.op_type != "MatMulNBits" or node.name in excluded or not self._is_readable(node):
                nodes.append(node)
                continue
            if node.input[1] not in made:
                made[node.input[1]] = self._write_weight(node, graph, nodes)
            nodes += self._product(node, made[node.input[1]])
            self.replaced.update(node.input[1:4])
            self.is_changed = True
        replace_items(graph.node, nodes)

    def _is_readable(self, node: NodeProto) -> bool:
        """Tell if all weights of a node are fixed, its zero points are levels, its blocks fit, and it has no groups."""
        levels, scales, zeros, groups = [*node.input[1:], "", "", ""][:4]
        if groups or levels not in self._weights or scales not in self._weights:
            return False
        settings = attribute_values(node)
        if not self._takes_parts and settings["K"] % settings["block_size"]:
            return False
        if not zeros:
            return True
        return zeros in self._weights and self._weights[zeros].data_type == onnx.TensorProto.UINT8

    def _write_weight(self, node: NodeProto, graph: GraphProto, nodes: list[NodeProto]) -> str:
        """Append the node that dequantizes a weight (inner, columns) in blocks along axis 0; return its result."""
        name, settings = node.input[1], attribute_values(node)
        levels, scales = (numpy_helper.to_array(self._weights[weight]) for weight in node.input[1:3])
        zeros = numpy_helper.to_array(self._weights[node.input[3]]) if any(node.input[3:4]) else None
        offsets = block_zeros(zeros, settings)
        arrays = {
            "levels": self._integers(block_levels(levels, settings), settings),
            "scales": scales.reshape(offsets.shape),
            "zero_points": self._integers(offsets, settings),
        }
        names = []
        for kind, array in arrays.items():
            names.append(new_name(f"{name}_{kind}", self._names))
            graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(array.T), names[-1]))
        weight = new_name(f"{name}_dequantized", self._names)
        block_size = settings["block_size"]
        nodes.append(helper.make_node("DequantizeLinear", names, [weight], weight, axis=0, block_size=block_size))
        return weight

    def _integers(self, levels: np.ndarray, settings: dict[str, Any]) -> np.ndarray:
        """Levels or zero points, from 0 up, in the type of the result."""
        import ml_dtypes

        unsigned, signed, middle = ml_dtypes.uint4, ml_dtypes.int4, 8
        if settings.get("bits", 4) == 8:
            unsigned, signed, middle = np.uint8, np.int8, 128
        if self._signed:
            return (levels.astype(np.int16) - middle).astype(signed)
        return levels.astype(unsigned)

    def _product(self, node: NodeProto, weight: str) -> list[NodeProto]:
        """MatMul, and Add if there is a bias."""
        bias = "".join(node.input[5:6])
        if not bias:
            return [helper.make_node("MatMul", [node.input[0], weight], list(node.output), node.name)]
        product = new_name(f"{node.output[0]}_product", self._names)
        add_name = f"{node.name}_Add" if node.name else ""
        return [
            helper.make_node("MatMul", [node.input[0], weight], [product], node.name),
            helper.make_node("Add", [product, bias], list(node.output), add_name),
        ]
