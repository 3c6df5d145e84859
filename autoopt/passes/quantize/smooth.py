"""SmoothQuant: outliers of activations moved into weights, before static quantization."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from autoopt.model.io import load_weights
from autoopt.model.lazy_imports import ir, np
from autoopt.passes.base import Pass, Refused
from autoopt.passes.base.contract import FUSIONS
from autoopt.passes.base.conversion import to_proto
from autoopt.passes.onnx_tools.graphs import name_nodes
from autoopt.passes.quantize.calibration import CalibrationReader
from autoopt.passes.quantize.channel_scales import input_ranges, powers_of_two
from autoopt.passes.quantize.input_scales import InputScales, find_groups
from autoopt.registry import Minimum
from autoopt.space import Categorical

if TYPE_CHECKING:
    from onnx import ModelProto

ITEMS: Final = 32
"""Calibration items that the ranges of channels are taken from."""


class SmoothQuant(Pass):
    """Moves outliers of activations into the weights of MatMul and Gemm, which helps static quantization.

    G. Xiao, J. Lin, M. Seznec, H. Wu, J. Demouth, S. Han: SmoothQuant, 2023. Each input channel of a layer is divided
    by a factor and its weights are multiplied by it. The layer normalization before takes the division where it can;
    elsewhere the pass inserts a multiplication. The factors are powers of two, so the float model computes the same.
    """

    depends_on = "model"
    needs_data = True
    conflicts = FUSIONS
    needs_ops = ("MatMul", "Gemm")
    libraries = ("onnx", "onnx-ir", "onnxruntime")
    aliases = ("smoothquant",)
    version = 2

    alpha: Annotated[float, Categorical(0.5, 0.7, 0.3), "share of the difficulty that moves into the weights"] = 0.5
    insert: Annotated[bool, "insert a multiplication where no layer normalization takes the factors"] = True
    samples: Annotated[int, Minimum(0), "maximum number of calibration items; 0: all"] = ITEMS

    def run(self, model: ir.Model) -> ir.Model | None:
        if not 0 <= self.alpha <= 1:
            raise Refused(f"alpha must be between 0 and 1, not {self.alpha}")
        groups = find_groups(model.graph)
        ranges = self._channel_ranges(model, [str(value.name) for value in groups])
        scales = InputScales(model, self.insert)
        changed = False
        for value, consumers in groups.items():
            if str(value.name) in ranges:
                factors = smoothing_factors(consumers, ranges[str(value.name)], self.alpha)
                changed |= factors is not None and scales.move(value, consumers, factors)
        return model if changed else None

    def _channel_ranges(self, model: ir.Model, values: list[str]) -> dict[str, np.ndarray]:
        """The largest absolute value of each channel, the last axis, over the calibration data."""
        from autoopt.passes.quantize.layer_errors import run_values

        ranges: dict[str, np.ndarray] = {}
        reader = CalibrationReader(self.context, self.samples)
        for arrays in run_values(_loaded(model), values, reader, self.context.work):
            for name in arrays.keys() & values:
                array = arrays[name]
                largest = np.abs(array).reshape(-1, array.shape[-1]).max(axis=0, initial=0)
                if name in ranges:
                    largest = np.maximum(ranges[name], largest)
                ranges[name] = largest
        return ranges


def _loaded(model: ir.Model) -> ModelProto:
    """The model as a protobuf with its weights, which the runtime takes."""
    proto = to_proto(model)
    name_nodes(proto)
    load_weights(proto)
    return proto


def smoothing_factors(consumers: list[ir.Node], activations: np.ndarray, alpha: float) -> np.ndarray | None:
    """Factors for the input channels of these layers, from the ranges of their input; None if they all are 1."""
    weights = np.zeros_like(activations)
    for node in consumers:
        ranges = input_ranges(node)
        if ranges is None or ranges.shape != weights.shape:
            return None
        weights = np.maximum(weights, ranges)
    usable = (weights > 0) & (activations > 0)
    ratio = np.power(activations, alpha, where=usable, out=np.ones_like(weights))
    ratio /= np.power(weights, 1 - alpha, where=usable, out=np.ones_like(weights))
    factors = powers_of_two(ratio / np.exp(np.mean(np.log(ratio))))
    if (factors == 1).all():
        return None
    return factors
