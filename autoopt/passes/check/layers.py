"""Layers ranked by their quantization error, and the errors of all values of a QDQ model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from autoopt.model import io
from autoopt.model.session import make_options
from autoopt.model.tensors import by_name
from autoopt.passes.base import Pass, Refused
from autoopt.passes.base.conversion import to_ir, to_proto
from autoopt.passes.onnx_tools.graphs import op_counts
from autoopt.passes.onnx_tools.libraries import quiet
from autoopt.passes.quantize.calibration import CalibrationReader
from autoopt.passes.quantize.ort_quantizer import refuse_weights
from autoopt.passes.quantize.static import QUANTIZABLE_OPS, StaticQuantization
from autoopt.registry import Minimum, Param, Unit

if TYPE_CHECKING:
    import numpy as np
    from onnx import ModelProto, NodeProto

FEEDS_OF_ONE: Final = 4
"""Items on which each layer of a model of many layers is run by itself."""


class LayerSensitivity(Pass):
    """Ranks the layers of a float model by the effect of their 8-bit quantization on the model's outputs.

    The report `layer_sensitivity` holds `ranking`: [{node, op_type, sqnr_db, work}], the worst first. `sqnr_db` is the
    signal-to-quantization-noise ratio of the outputs with only that node (Conv, Gemm or MatMul) quantized: the error of
    its own output is added to the float model. Of several outputs, each counts the same, however large its values are.
    In models of many layers it is measured for those whose own output has the lowest ratio; the others follow with that
    ratio. `work` is the node's share of the multiplications of all ranked layers.
    """

    needs_data = True
    needs_ops = QUANTIZABLE_OPS
    libraries = ("onnx", "onnxruntime")
    aliases = ("sensitivity",)

    version = 11

    samples: Annotated[int, Minimum(1), Unit("items"), "maximum number of calibration items to compare"] = 16
    layers: Annotated[int, Minimum(1), "maximum number of layers, those with the largest weights first"] = 128
    measured: Annotated[int, Minimum(0), "maximum number of layers whose effect on the outputs is measured"] = 16
    per_channel: Annotated[bool, "round weights with one scale per output channel instead of one per tensor"] = True

    def run(self, model: ModelProto) -> None:
        from autoopt.passes.quantize.layer_errors import few_items, noise_ratio, output_ratios, run_alone

        refuse_weights(to_ir(model))
        ranking: list[dict[str, str | float]] = []
        self.context.reports["layer_sensitivity"] = {"ranking": ranking}
        if not largest_layers(model, self.layers):
            return
        # With the ranges of all items, which the quantization needs anyway.
        static = StaticQuantization(activation_type="QInt8", op_types=list(QUANTIZABLE_OPS))
        static.context = self.context
        work = self.context.work
        with quiet():
            prepared = to_proto(static.quantizable(to_ir(model)))
            ranges = static.ranges(prepared)
            feeds = list(CalibrationReader(self.context, self.samples))
            layers = largest_layers(prepared, self.layers)
            others: dict[str, float] = {}
            if len(layers) > self.measured:
                alone = run_alone(
                    prepared, layers, ranges, few_items(feeds, FEEDS_OF_ONE), work, per_channel=self.per_channel
                )
                others = {node.name: noise_ratio(*values) for node, *values in alone}
                most_disturbed = sorted(others, key=lambda name: (others[name], name))[: self.measured]
                layers = [node for node in layers if node.name in most_disturbed]
            measured = output_ratios(prepared, layers, ranges, feeds, work, per_channel=self.per_channel)
        ratios = [*_worst_first(measured), *_worst_first({n: r for n, r in others.items() if n not in measured})]
        nodes = by_name(prepared.graph.node)
        shares = _shares_of_work(prepared, [nodes[name] for name, _ in ratios], feeds[0], work)
        for name, ratio in ratios:
            entry: dict[str, str | float] = {"node": name, "op_type": nodes[name].op_type, "sqnr_db": round(ratio, 2)}
            ranking.append({**entry, "work": round(shares[name], 6)})


def _worst_first(ratios: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(ratios.items(), key=lambda entry: (entry[1], entry[0]))


def _shares_of_work(
    model: ModelProto, nodes: list[NodeProto], feed: dict[str, np.ndarray], folder: Path
) -> dict[str, float]:
    """Share of the multiplications of all these layers by name, from the sizes of their outputs for one item."""
    from autoopt.passes.quantize.layer_errors import run_values

    sizes = {tensor.name: tensor.dims for tensor in model.graph.initializer}
    outputs = [node.output[0] for node in nodes]
    values = next(run_values(model, outputs, [feed], folder / "work"))
    work: dict[str, int] = {}
    for node in nodes:
        weight = next(sizes[name] for name in node.input if name in sizes)
        value = values[node.output[0]]
        # Each element of the output takes the products of one row of the weights: of one output channel.
        channels = value.shape[1] if "Conv" in node.op_type else (1, *value.shape)[-1]
        work[node.name] = value.size * prod(weight) // max(1, channels)
    total = max(1, sum(work.values()))
    return {name: count / total for name, count in work.items()}


def largest_layers(model: ModelProto, limit: int) -> list[NodeProto]:
    """Find the named nodes that have weights and an integer kernel, at most `limit`, with the largest weights first."""
    floats = [tensor for tensor in model.graph.initializer if tensor.data_type == tensor.FLOAT]
    sizes = {tensor.name: prod(tensor.dims) for tensor in floats}

    def largest_weight(node: NodeProto) -> int:
        return max((sizes.get(name, 0) for name in node.input), default=0)

    candidates = [node for node in model.graph.node if node.op_type in QUANTIZABLE_OPS and node.name]
    layers = filter(largest_weight, candidates)
    return sorted(layers, key=lambda node: (-largest_weight(node), node.name))[:limit]


class LayerPrecisionCompare(Pass):
    """Compares every quantized value of a QDQ model with its float value; report `layer_precision_compare`.

    The report holds signal-to-quantization-noise ratios in dB, the worst first: `qdq_err` over the value's own QDQ
    pair and, with the float model `origin`, `xmodel_err` against that model; `weights` then holds those of the
    weights.
    """

    needs_data = True
    libraries = ("onnx", "onnxruntime")
    version = 2

    origin: Annotated[str | None, Param("path"), "the float model before quantization"] = None
    samples: Annotated[int, Minimum(1), Unit("items"), "number of calibration items to compare"] = 16

    def run(self, model: ModelProto) -> None:
        if not op_counts(model)["DequantizeLinear"]:
            raise Refused("the model has no QDQ pairs to compare")
        work = self.context.work
        origin, ranked_by = None, "qdq_err"
        if self.origin:
            origin, ranked_by = io.load(Path(self.origin)), "xmodel_err"
        errors = activation_errors(model, CalibrationReader(self.context, self.samples), work, against=origin)
        activations: list[dict[str, str | float]] = []
        for name, ratios in sorted(errors.items(), key=lambda item: (item[1].get(ranked_by, float("inf")), item[0])):
            rounded = {kind: round(ratio, 3) for kind, ratio in ratios.items()}
            activations.append({"name": name, **rounded})
        report = {"activations": activations}
        if self.origin:
            report["weights"] = _weight_errors(self.origin, str(io.save(model, work / "weights")))
        self.context.reports["layer_precision_compare"] = report


def _weight_errors(origin: str, quantized: str) -> list[dict[str, str | float]]:
    from onnxruntime.quantization.qdq_loss_debug import compute_weight_error, create_weight_matching

    with quiet():
        errors = compute_weight_error(create_weight_matching(origin, quantized), _weight_noise_ratio)
    ranked = sorted(errors.items(), key=lambda item: (item[1], item[0]))
    return [{"name": name, "sqnr_db": round(float(error), 3)} for name, error in ranked]


def _weight_noise_ratio(before: np.ndarray, after: np.ndarray) -> float:
    from autoopt.passes.quantize.layer_errors import noise_ratio

    return noise_ratio([before.reshape(-1)], [after.reshape(-1)])  # the library's own function fails on scalars


def activation_errors(
    quantized: ModelProto, reader: CalibrationReader, folder: Path, against: ModelProto | None = None
) -> dict[str, dict[str, float]]:
    """Compute signal-to-quantization-noise ratios, in dB, of every activation of a QDQ model.

    Returns:
        Per activation, `qdq_err` (before and after its own QDQ pair) and, with `against`, `xmodel_err` (against the
        value in that float model). Finite numbers only.
    """
    from onnxruntime.quantization import qdq_loss_debug as library

    from autoopt.passes.quantize.layer_errors import noise_ratio

    with quiet():
        activations = _collect_activations(quantized, reader, folder / "quantized")
        float_activations = None
        if against is not None:
            reader.rewind()
            float_activations = _collect_activations(against, reader, folder / "float")
        errors: dict[str, dict[str, float]] = {}
        for name, match in library.create_activation_matching(activations, float_activations).items():
            ratios = {"qdq_err": noise_ratio(match["pre_qdq"], match["post_qdq"])}
            if match.get("float") is not None:
                ratios["xmodel_err"] = noise_ratio(match["float"], match["post_qdq"])
            errors[name] = {kind: ratio for kind, ratio in ratios.items() if math.isfinite(ratio)}
        return errors


def _collect_activations(model: ModelProto, reader: CalibrationReader, folder: Path) -> dict[str, list[np.ndarray]]:
    """Run the model on all feeds and return every inner value."""
    from onnxruntime.quantization import qdq_loss_debug as library

    source = io.save(model, folder)
    target = folder / "augmented.onnx"
    library.modify_model_output_intermediate_tensors(str(source), str(target))
    options = make_options({"graph_optimization_level": "disable"})
    activations: dict[str, list[np.ndarray]] = library.collect_activations(str(target), reader, session_options=options)
    return activations
