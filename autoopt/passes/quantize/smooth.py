"""SmoothQuant: outliers of activations moved into weights, before static quantization."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from autoopt.model import io
from autoopt.model.session import make_session
from autoopt.passes.base import Pass, Refused
from autoopt.passes.fusion.weight_folding import FUSION_CONFLICTS
from autoopt.passes.onnx_tools.graphs import is_standard, name_nodes, unused_name
from autoopt.passes.quantize.calibration import CalibrationReader
from autoopt.passes.quantize.channel_scales import Layers, powers_of_two
from autoopt.passes.quantize.equalize import input_ranges, scale_inputs
from autoopt.space import Categorical

if TYPE_CHECKING:
    import numpy as np
    from onnx import ModelProto, NodeProto

ITEMS: Final = 32
"""Calibration items that the ranges of channels are taken from."""


class SmoothQuant(Pass):
    """Moves outliers of activations into the weights of MatMul and Gemm, which helps static quantization.

    G. Xiao, J. Lin, M. Seznec, H. Wu, J. Demouth, S. Han: SmoothQuant, 2023. Each input channel of a layer is divided
    by a factor and its weights are multiplied by it. The layer normalization before takes the division where it can;
    elsewhere the pass inserts a multiplication. The factors are powers of two, so the float model computes the same.
    """

    target_bound = False
    needs_data = True
    conflicts = FUSION_CONFLICTS
    needs_ops = ("MatMul", "Gemm")
    libraries = ("onnx", "onnxruntime")
    aliases = ("smoothquant",)
    version = 2

    alpha: Annotated[float, Categorical(0.5, 0.7, 0.3), "share of the difficulty that moves into the weights"] = 0.5
    insert: Annotated[bool, "insert a multiplication where no layer normalization takes the factors"] = True
    samples: Annotated[int, "maximum number of calibration items; 0: all"] = ITEMS

    def run(self, model: ModelProto) -> ModelProto | None:
        if not 0 <= self.alpha <= 1:
            raise Refused(f"alpha must be between 0 and 1, not {self.alpha}")
        name_nodes(model)
        layers = Layers(model)
        groups = find_groups(layers)
        ranges = self._channel_ranges(model, list(groups))
        smoother = _Smoother(layers, self.insert)
        changed = False
        for value, consumers in groups.items():
            if value in ranges:
                changed |= smoother.smooth(value, consumers, ranges[value], self.alpha)
        smoother.finish()
        if not changed:
            return None
        return model

    def _channel_ranges(self, model: ModelProto, values: list[str]) -> dict[str, np.ndarray]:
        """The largest absolute value of each channel, the last axis, over the calibration data."""
        import numpy as np

        from autoopt.passes.quantize.layer_errors import expose

        exposed, names = expose(model, values)
        session = make_session(io.save(exposed, self.context.work / "exposed"), {"graph_optimization_level": "disable"})
        ranges: dict[str, np.ndarray] = {}
        for feed in CalibrationReader(self.context, self.samples):
            arrays = {name: feed[name] for name in values if name in feed}
            if names:
                arrays.update(zip(names, session.run(names, feed), strict=True))
            for name, array in arrays.items():
                largest = np.abs(array).reshape(-1, array.shape[-1]).max(axis=0, initial=0)
                if name in ranges:
                    largest = np.maximum(ranges[name], largest)
                ranges[name] = largest
        return ranges


def find_groups(layers: Layers) -> dict[str, list[NodeProto]]:
    """Find the values that MatMul and Gemm with weights of their own read, each with those nodes."""
    groups: dict[str, list[NodeProto]] = {}
    for node in layers.graph.node:
        if node.op_type in ("MatMul", "Gemm") and input_ranges(layers, node) is not None:
            groups.setdefault(node.input[0], []).append(node)
    return groups


class _Smoother:
    """Applies factors to groups of layers; `finish` adds the multiplications that it needs."""

    def __init__(self, layers: Layers, insert: bool) -> None:
        self._layers = layers
        self._insert = insert
        self._inserted: dict[int, list[NodeProto]] = {}
        self._index = {output: index for index, node in enumerate(layers.graph.node) for output in node.output}
        self._names = {*self._index, *layers.consumers}

    def smooth(self, value: str, consumers: list[NodeProto], activations: np.ndarray, alpha: float) -> bool:
        """Move outliers of a value into the weights of its consumers; tell if anything changed."""
        import numpy as np

        weights = np.zeros_like(activations)
        for node in consumers:
            ranges = input_ranges(self._layers, node)
            if ranges is None or ranges.shape != weights.shape:
                return False
            weights = np.maximum(weights, ranges)
        usable = (weights > 0) & (activations > 0)
        ratio = np.power(activations, alpha, where=usable, out=np.ones_like(weights))
        ratio /= np.power(weights, 1 - alpha, where=usable, out=np.ones_like(weights))
        factors = powers_of_two(ratio / np.exp(np.mean(np.log(ratio))))
        if (factors == 1).all():
            return False
        if not self._absorb(value, consumers, 1 / factors):
            if not self._insert:
                return False
            self._multiply(value, consumers, 1 / factors)
        for node in consumers:
            scale_inputs(self._layers, node, factors)
        return True

    def _absorb(self, value: str, consumers: list[NodeProto], factors: np.ndarray) -> bool:
        """Multiply the scale and shift of a layer normalization; False if there is none or others read its result."""
        layers = self._layers
        node = layers.producers.get(value)
        is_normalization = node is not None and node.op_type == "LayerNormalization" and is_standard(node)
        if node is None or not is_normalization or not layers.is_local(value):
            return False
        if len(layers.consumers[value]) != len(consumers) or len(node.output) > 1:
            return False
        arrays: dict[str, np.ndarray] = {}
        for name in filter(None, node.input[1:]):
            array = layers.weight(name)
            if array is None or array.shape != factors.shape:
                return False
            arrays[name] = array
        for name, array in arrays.items():
            layers.store(name, array * factors)
        return True

    def _multiply(self, value: str, consumers: list[NodeProto], factors: np.ndarray) -> None:
        import numpy as np
        from onnx import helper, numpy_helper

        scaled = self._new_name(f"{value}_smooth")
        name = self._new_name(f"{value}_factors")
        self._layers.graph.initializer.append(numpy_helper.from_array(factors.astype(np.float32), name))
        node = helper.make_node("Mul", [value, name], [scaled], name=scaled)
        self._inserted.setdefault(self._index.get(value, -1), []).append(node)
        for consumer in consumers:
            consumer.input[0] = scaled

    def _new_name(self, name: str) -> str:
        name = unused_name(name, self._names)
        self._names.add(name)
        return name

    def finish(self) -> None:
        """Add the multiplications to the graph."""
        self._layers.insert(self._inserted)
