"""Layers that onnxruntime fused when it saved the model, split into the operators that other passes know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from autoopt.model.lazy_imports import helper, np, numpy_helper
from autoopt.model.plain_forms import FUSED_LAYERS
from autoopt.model.tensors import op_name, walk_graphs
from autoopt.passes.base import Pass, Retry
from autoopt.passes.base.conflicts import RUNTIME_BOUND
from autoopt.passes.fusion.blocked_layout import is_blocked, may_have_blocks_of, to_plain_layout
from autoopt.passes.onnx_tools.graphs import (
    attribute_values,
    constant_tensors,
    new_name,
    replace_items,
    value_names,
)
from autoopt.passes.onnx_tools.large_models import inferred_graph

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TypeProto

# As its MlasNchwcGetBlockSize gives them: 8 on x86 CPUs without AVX-512, else 16.
BLOCK_SIZES: Final = frozenset((8, 16))
"""Channels of a block in onnxruntime's layout for CPUs."""
ACTIVATION_PARAMETERS: Final[Mapping[str, tuple[str, ...]]] = {
    "LeakyRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "Elu": ("alpha",),
    "Relu": (),
    "Sigmoid": (),
    "Tanh": (),
}
"""Attributes of activations, in the order of the fused layer's parameters. The bounds of Clip are inputs."""


class SplitFusedLayers(Pass):
    """Splits FusedConv, FusedGemm and FusedMatMul, as onnxruntime saves optimized models, into operators of ONNX.

    Layers in onnxruntime's layout for CPUs, which it saves by default, get the layout of ONNX first. Quantizers and
    simplifiers know only these operators. onnxruntime fuses them again when it loads the model.
    """

    conflicts = RUNTIME_BOUND
    needs_ops = tuple(FUSED_LAYERS)
    libraries = ("onnx",)

    block_size: Annotated[
        Literal[0, 8, 16], "channels of a block in onnxruntime's layout for CPUs; 0: as this CPU has them"
    ] = 0

    def run(self, model: ModelProto) -> ModelProto | None:
        self._was_blocked = is_blocked(model)
        if self._was_blocked:
            to_plain_layout(model, self.block_size or self._likely_block(model))
        names = value_names(model)
        types = _types(model)
        split = [_Splitter(graph, names, types).split() for graph in walk_graphs(model.graph)]
        return model if any(split) else None

    def after_rejection(self, problem: str) -> Retry | None:
        if self.block_size or not self._was_blocked:
            return None
        other = BLOCK_SIZES.difference((self._block,))
        return Retry(f"blocks of {self._block} channels: {problem}", {"block_size": min(other)})

    def _likely_block(self, model: ModelProto) -> int:
        """The channels of a block on this CPU, or the other number if the weights do not fit them."""
        isa = self.context.accelerator.isa
        is_narrow = any(feature.startswith("sse") for feature in isa) and "avx512f" not in isa
        self._block = max(BLOCK_SIZES)
        if is_narrow or not may_have_blocks_of(model, self._block):
            self._block = min(BLOCK_SIZES)
        return self._block


def _types(model: ModelProto) -> dict[str, TypeProto.Tensor]:
    """Types of the values of the main graph whose rank is known."""
    graph = inferred_graph(model)
    types = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        if value.type.tensor_type.HasField("shape"):
            types[value.name] = value.type.tensor_type
    return types


class _Splitter:
    """Splits the fused layers of one graph. `names` are those of all values of the model; new ones are added."""

    def __init__(self, graph: GraphProto, names: set[str], types: Mapping[str, TypeProto.Tensor]) -> None:
        self._graph = graph
        self._names = names
        self._types = types
        self._constants = constant_tensors(graph)
        self._nodes: list[NodeProto] = []

    def split(self) -> bool:
        """Split all layers that can be; return False if there are none."""
        changed = False
        for node in self._graph.node:
            if self._split_node(node):
                changed = True
            else:
                self._nodes.append(node)
        if changed:
            replace_items(self._graph.node, self._nodes)
        return changed

    def _split_node(self, node: NodeProto) -> bool:
        """Write the parts of a fused layer; return False for any other node, and for layers that stay as they are."""
        attributes = attribute_values(node)
        match op_name(node):
            case "com.microsoft::FusedMatMul":
                return self._split_matmul(node, attributes)
            case "com.microsoft::FusedConv":
                parameters = attributes.pop("activation_params", [])
                return self._split_layer(node, "Conv", attributes, parameters)
            case "com.microsoft::FusedGemm":
                order = ("activation_alpha", "activation_beta", "activation_gamma")
                parameters = [attributes.pop(name) for name in order if name in attributes]
                return self._split_layer(node, "Gemm", attributes, parameters)
        return False

    def _split_layer(self, node: NodeProto, op: str, attributes: dict[str, Any], parameters: Sequence[float]) -> bool:
        """Write a layer, its sum with a fourth input and its activation; return False for an unknown activation."""
        activation = attributes.pop("activation", b"").decode()
        if activation not in ("", "Clip", *ACTIVATION_PARAMETERS):
            return False
        added = [name for name in node.input[3:] if name]
        value = self._write(node, op, node.input[:3], attributes, last=not (added or activation))
        if added:
            value = self._write(node, "Add", [value, *added], last=not activation)
        if activation == "Clip":
            bounds = [self._constant(node, np.array(bound, np.float32)) for bound in parameters]
            self._write(node, "Clip", [value, *bounds], last=True)
        elif activation:
            stated = dict(zip(ACTIVATION_PARAMETERS[activation], parameters, strict=False))
            self._write(node, activation, [value], stated, last=True)
        return True

    def _split_matmul(self, node: NodeProto, attributes: Mapping[str, Any]) -> bool:
        """Write a product with its transpositions and its factor; return False if a rank or type is unknown."""
        if attributes.get("transBatchA") or attributes.get("transBatchB"):
            return False
        turned = [attributes.get("transA", 0), attributes.get("transB", 0)]
        factor = attributes.get("alpha", 1.0)
        known = self._types.keys() | self._constants.keys()
        if any(turn and name not in known for name, turn in zip(node.input, turned, strict=True)):
            return False
        if factor != 1.0 and node.input[0] not in self._types:
            return False
        inputs = [self._turned(node, name) if turn else name for name, turn in zip(node.input, turned, strict=True)]
        value = self._write(node, "MatMul", inputs, last=factor == 1.0)
        if factor != 1.0:
            kind = helper.tensor_dtype_to_np_dtype(self._types[node.input[0]].elem_type)
            self._write(node, "Mul", [value, self._constant(node, np.asarray(factor, kind))], last=True)
        return True

    def _turned(self, node: NodeProto, name: str) -> str:
        """A value with its last two axes exchanged."""
        if name in self._constants:
            array = numpy_helper.to_array(self._constants[name])
            return self._constant(node, np.ascontiguousarray(np.swapaxes(array, -1, -2)))
        axes = list(range(len(self._types[name].shape.dim)))
        return self._write(node, "Transpose", [name], {"perm": [*axes[:-2], axes[-1], axes[-2]]})

    def _write(
        self,
        node: NodeProto,
        op: str,
        inputs: Sequence[str],
        attributes: Mapping[str, Any] | None = None,
        *,
        last: bool = False,
    ) -> str:
        """Append a part of a fused layer; return the name of its result, which is the layer's for the last one."""
        output = node.output[0] if last else self._new_name(node)
        name = node.name if last else output
        self._nodes.append(helper.make_node(op, list(inputs), [output], name, **(attributes or {})))
        return output

    def _constant(self, node: NodeProto, array: np.ndarray) -> str:
        name = self._new_name(node)
        self._graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def _new_name(self, node: NodeProto) -> str:
        return new_name(f"{node.output[0]}_part", self._names)
