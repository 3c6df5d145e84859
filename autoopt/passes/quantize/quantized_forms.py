"""Other forms of quantized models: weights in blocks in standard operators, and unsigned activations."""

from __future__ import annotations

from typing import Annotated, Any, Final

from autoopt.model.lazy_imports import convenience, ir, np
from autoopt.passes.base import Pass
from autoopt.passes.base.contract import RUNTIME_BOUND
from autoopt.passes.onnx_tools.gemm import is_weight
from autoopt.passes.onnx_tools.graphs import DEFAULT_DOMAINS, new_name
from autoopt.passes.onnx_tools.opsets import raised
from autoopt.passes.onnx_tools.sizes import fixed_tensor
from autoopt.passes.onnx_tools.values import taken_names
from autoopt.passes.quantize.block_weights import block_levels, block_zeros
from autoopt.space import Boolean

BLOCK_OPSET: Final = 21
"""The first opset with 4-bit types and with blocks in DequantizeLinear."""
SHIFT: Final = 128
"""Difference of an unsigned value to the signed one that stands for the same number."""


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
        for node in list(model.graph.all_nodes()):
            if not self._is_replaceable(node):
                continue
            graph, levels, bias = node.graph, node.inputs[1], [*node.inputs, None, None, None][5]
            assert isinstance(graph, ir.Graph)
            assert levels is not None
            nodes: list[ir.Node] = []
            if (graph, levels) not in made:
                nodes.append(self._weight(node, graph, taken))
                made[graph, levels] = nodes[0].outputs[0]
            nodes.append(ir.node("MatMul", [node.inputs[0], made[graph, levels]], name=node.name))
            if bias is not None:
                name = f"{node.name}_Add" if node.name else None
                nodes.append(ir.node("Add", [nodes[-1].outputs[0], bias], name=name))
            replaced.update(filter(None, node.inputs[1:4]))
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


class UnsignedActivations(Pass):
    """Turns signed 8-bit activations between QuantizeLinear and DequantizeLinear into unsigned ones.

    Values and zero points move by 128 together, so that the same numbers are represented; only the runtime's kernels
    round differently. The integer products of x86 CPUs take unsigned activations. With signed ones, the default of
    onnxruntime's quantize_static, cifar10_resnet8 takes 2.5 times as long. Activations stay signed where their integers
    go anywhere but into DequantizeLinear.
    """

    version = 2
    tolerance = "lossy"
    conflicts = RUNTIME_BOUND
    needs_ops = ("QuantizeLinear",)
    libraries = ("onnx", "onnx-ir")

    def run(self, model: ir.Model) -> ir.Model | None:
        quantizers = [node for node in model.graph if node.op_type == "QuantizeLinear"]
        changed = [_make_unsigned(node, model.graph) for node in quantizers if node.domain in DEFAULT_DOMAINS]
        return model if any(changed) else None


def _make_unsigned(quantizer: ir.Node, graph: ir.Graph) -> bool:
    """Make a signed activation unsigned, in place, if all that reads it is dequantizers; tell if it was."""
    value = quantizer.outputs[0]
    readers = [use.node for use in value.uses()]
    if value.is_graph_output() or {node.op_type for node in readers} != {"DequantizeLinear"}:
        return False
    points = [(node, _signed_zero_point(node)) for node in (quantizer, *readers)]
    if any(point is None for _, point in points):
        return False
    for node, point in points:
        assert point is not None
        name = f"{node.inputs[2] and node.inputs[2].name}_unsigned"
        if name not in graph.initializers:
            unsigned = ir.tensor((point.numpy().astype(np.int16) + SHIFT).astype(np.uint8), name=name)
            graph.register_initializer(ir.Value(name=name, const_value=unsigned))
        node.replace_input_with(2, graph.initializers[name])
    value.dtype = ir.DataType.UINT8
    return True


def _signed_zero_point(node: ir.Node) -> ir.TensorProtocol | None:
    """The zero point of a node if it is a fixed int8 one."""
    point = fixed_tensor([*node.inputs, None][2])
    return point if point is not None and point.dtype == ir.DataType.INT8 else None
