"""Factors moved from the input channels of MatMul and Gemm into their weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autoopt.model.lazy_imports import helper, np, numpy_helper
from autoopt.passes.onnx_tools.graphs import new_name
from autoopt.passes.quantize.channel_scales import Layers

if TYPE_CHECKING:
    from onnx import NodeProto

SCALE_INPUTS: Final = {
    "LayerNormalization": (1, 2),
    "RMSNormalization": (1,),
    "SimplifiedLayerNormalization": (1,),
    "SkipLayerNormalization": (2, 3),
    "SkipSimplifiedLayerNormalization": (2,),
    "Mul": (0, 1),
}
"""Operator -> the inputs that scale the channels of its first output: all of them together; for Mul, either one."""


class InputScales:
    """Moves factors into weights. The node that computes the input, or a new Mul with `insert`, takes their inverse."""

    def __init__(self, layers: Layers, insert: bool) -> None:
        self._layers = layers
        self._insert = insert
        self._inserted: dict[int, list[NodeProto]] = {}
        self._index = {output: index for index, node in enumerate(layers.graph.node) for output in node.output}
        self._names = {*self._index, *layers.consumers}

    def move(self, value: str, consumers: list[NodeProto], factors: np.ndarray) -> bool:
        """Scale the weights of these layers by input channel and divide the value; False if that is impossible."""
        if not self._absorb(value, consumers, 1 / factors):
            if not self._insert:
                return False
            self._multiply(value, consumers, 1 / factors)
        for node in consumers:
            self._layers.scale_inputs(node, factors)
        return True

    def _absorb(self, value: str, consumers: list[NodeProto], factors: np.ndarray) -> bool:
        """Scale the weights of the node that computes a value; False if it has none or others read the value."""
        layers = self._layers
        node = layers.producers.get(value)
        has_other_readers = not layers.is_local(value) or len(layers.consumers[value]) != len(consumers)
        if node is None or node.output[0] != value or has_other_readers:
            return False
        names = _scale_names(node)
        if node.op_type == "Mul":
            return any(self._scale_channels(name, factors) for name in names)
        # Nothing may change unless all of them can.
        are_vectors = bool(names) and all(self._is_vector(name, factors) for name in names)
        if are_vectors:
            for name in names:
                self._scale_channels(name, factors)
        return are_vectors

    def _is_vector(self, name: str, factors: np.ndarray) -> bool:
        array = self._layers.weight(name)
        return array is not None and array.shape == factors.shape

    def _scale_channels(self, name: str, factors: np.ndarray) -> bool:
        """Multiply a weight with one element for each channel, or the weights of the MatMul that computes a value."""
        layers = self._layers
        if self._is_vector(name, factors):
            layers.scale(name, factors)
            return True
        node = layers.producers.get(name)
        if node is None or node.op_type != "MatMul" or layers.only_consumer(name) is None:
            return False
        ranges = layers.output_ranges(node)
        if ranges is None or ranges.shape != factors.shape:
            return False
        layers.scale_outputs(node, factors)
        return True

    def _multiply(self, value: str, consumers: list[NodeProto], factors: np.ndarray) -> None:
        scaled = new_name(f"{value}_scaled", self._names)
        name = new_name(f"{value}_factors", self._names)
        self._layers.graph.initializer.append(numpy_helper.from_array(factors.astype(np.float32), name))
        node = helper.make_node("Mul", [value, name], [scaled], name=scaled)
        self._inserted.setdefault(self._index.get(value, -1), []).append(node)
        for consumer in consumers:
            consumer.input[0] = scaled

    def insert_multiplications(self) -> None:
        """Add the multiplications to the graph."""
        self._layers.insert(self._inserted)


def _scale_names(node: NodeProto) -> list[str]:
    """The inputs that scale the channels of a node's first output; optional ones may be absent."""
    inputs = dict(enumerate(node.input))
    return [inputs[index] for index in SCALE_INPUTS.get(node.op_type, ()) if inputs.get(index)]
