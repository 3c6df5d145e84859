"""Products with weights in blocks, written with standard operators."""

from __future__ import annotations

from typing import Annotated, Any, Final

from autoopt.model.lazy_imports import convenience, ir, np
from autoopt.passes.base import Pass
from autoopt.passes.base.contract import RUNTIME_BOUND
from autoopt.passes.onnx_tools.gemm import is_weight
from autoopt.passes.onnx_tools.graphs import new_name
from autoopt.passes.onnx_tools.opsets import raised
from autoopt.passes.onnx_tools.values import taken_names
from autoopt.passes.quantize.stored_weights import block_levels, block_zeros
from autoopt.space import Boolean

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
    libraries = ("onnx", "onnx-ir")

    signed: Annotated[bool, Boolean(), "int4 and int8 in place of uint4 and uint8"] = False
    nodes_to_exclude: Annotated[list[str], "nodes to leave as they are, by name"] = []

    def run(self, model: ir.Model) -> ir.Model | None:
        taken = taken_names(model)
        made: dict[tuple[ir.Graph, ir.Value], ir.Value] = {}
        """Weights in float, by graph: products that share one share its new form."""
        replaced: set[ir.Value] = set()
        for graph in (model.graph, *model.graph.subgraphs()):
            for node in list(graph):
                levels = node.inputs[1] if self._is_replaceable(node) else None
                if levels is None:
                    continue
                nodes: list[ir.Node] = []
                if (graph, levels) not in made:
                    nodes.append(self._weight(node, graph, taken))
                    made[graph, levels] = nodes[0].outputs[0]
                nodes.append(ir.node("MatMul", [node.inputs[0], made[graph, levels]], name=node.name))
                bias = [*node.inputs, None, None, None][5]
                if bias is not None:
                    name = f"{node.name}_Add" if node.name else None
                    nodes.append(ir.node("Add", [nodes[-1].outputs[0], bias], name=name))
                replaced.update(value for value in node.inputs[1:4] if value is not None)
                convenience.replace_nodes_and_values(graph, node, [node], nodes, node.outputs, nodes[-1].outputs)
        if not replaced:
            return None
        for value in replaced:
            if value.graph is not None and not value.uses():
                value.graph.initializers.pop(str(value.name), None)
        return raised(model, BLOCK_OPSET)

    def _is_replaceable(self, node: ir.Node) -> bool:
        """Tell if a product has fixed weights, levels as zero points, blocks that fit, and no groups."""
        if node.op_type != "MatMulNBits" or node.name in self.nodes_to_exclude:
            return False
        levels, scales, zeros, groups = [*node.inputs[1:], None, None][:4]
        if groups is not None or not is_weight(levels) or not is_weight(scales):
            return False
        takes_parts = self.context.accelerator.execution_provider != "OpenVINOExecutionProvider"
        if not takes_parts and node.attributes.get_int("K") % node.attributes.get_int("block_size"):
            return False
        return zeros is None or (is_weight(zeros) and zeros.dtype == ir.DataType.UINT8)

    def _weight(self, node: ir.Node, graph: ir.Graph, taken: set[str]) -> ir.Node:
        """The node that dequantizes the weight of a product (inner, columns) in blocks along axis 0."""
        settings = {name: each.value for name, each in node.attributes.items()}
        levels, scales, zeros = (_array(value) for value in [*node.inputs[1:4], None][:3])
        assert levels is not None
        assert scales is not None
        offsets = block_zeros(zeros, settings)
        arrays = {
            "levels": self._integers(block_levels(levels, settings), settings),
            "scales": scales.reshape(offsets.shape),
            "zero_points": self._integers(offsets, settings),
        }
        name, weights = str(node.inputs[1] and node.inputs[1].name), []
        for kind, array in arrays.items():
            tensor = ir.tensor(np.ascontiguousarray(array.T), name=new_name(f"{name}_{kind}", taken))
            weights.append(ir.Value(name=tensor.name, const_value=tensor))
            graph.register_initializer(weights[-1])
        result = new_name(f"{name}_dequantized", taken)
        attributes = {"axis": 0, "block_size": settings["block_size"]}
        made = ir.node("DequantizeLinear", weights, attributes, name=result)
        made.outputs[0].name = result
        return made

    def _integers(self, levels: np.ndarray, settings: dict[str, Any]) -> np.ndarray:
        """Levels or zero points, from 0 up, in the type of the result."""
        import ml_dtypes

        unsigned, signed, middle = ml_dtypes.uint4, ml_dtypes.int4, 8
        if settings.get("bits", 4) == 8:
            unsigned, signed, middle = np.uint8, np.int8, 128
        if self.signed:
            return (levels.astype(np.int16) - middle).astype(signed)
        return levels.astype(unsigned)


def _array(value: ir.Value | None) -> np.ndarray | None:
    if value is None or value.const_value is None:
        return None
    return np.asarray(value.const_value.numpy())
