"""Layers ranked by their quantization error, and quantization of all but the worst."""

from __future__ import annotations

import math
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from autoopt.passes.base import Pass, Refused, Retry
from autoopt.passes.onnx_tools.libraries import quiet
from autoopt.passes.quantize.calibration import CalibrationReader
from autoopt.passes.quantize.static import QUANTIZABLE_OPS, Static, StaticQuantization
from autoopt.registry import Unit
from autoopt.space import Categorical

if TYPE_CHECKING:
    import numpy as np
    from onnx import ModelProto, NodeProto


class LayerSensitivity(Pass):
    """Ranks the layers of a float model by the effect of their 8-bit quantization on the model's outputs.

    The report `layer_sensitivity` holds `ranking`: [{node, op_type, sqnr_db}], the worst first. `sqnr_db` is the
    signal-to-quantization-noise ratio of the outputs with only that node (Conv, Gemm or MatMul) quantized.
    """

    family: ClassVar[str] = "check"
    analysis = True
    needs_data = True
    needs_ops = QUANTIZABLE_OPS
    libraries = ("onnx", "onnxruntime")
    aliases = ("sensitivity",)

    samples: Annotated[int, Unit("items"), "number of calibration items to compare"] = 16
    layers: Annotated[int, "maximum number of layers, those with the largest weights first"] = 128

    def run(self, model: ModelProto) -> None:
        ranking = []
        layers = largest_layers(model, self.layers)
        if layers:
            ranking = sorted(self._measure(model, layers), key=lambda entry: (entry["sqnr_db"], entry["node"]))
        self.context.reports["layer_sensitivity"] = {"ranking": ranking}

    def _measure(self, model: ModelProto, layers: list[NodeProto]) -> Iterator[dict[str, str | float]]:
        static = StaticQuantization(samples=self.samples, activation_type="QInt8", op_types=list(QUANTIZABLE_OPS))
        static.context = self.context
        with quiet():
            prepared, ranges = static.calibrate(model)
            feeds = list(CalibrationReader(self.context, self.samples))
            expected = _run_all(prepared, feeds, self.context.work)
            for node in layers:
                quantized = static.quantize(prepared, ranges, only=[node.name])
                ratio = _noise_ratio(expected, _run_all(quantized, feeds, self.context.work))
                yield {"node": node.name, "op_type": node.op_type, "sqnr_db": round(ratio, 2)}


def largest_layers(model: ModelProto, limit: int) -> list[NodeProto]:
    """Find the named nodes that have weights and an integer kernel, at most `limit`, with the largest weights first."""
    sizes = {tensor.name: prod(tensor.dims) for tensor in model.graph.initializer}

    def largest_weight(node: NodeProto) -> int:
        return max((sizes.get(name, 0) for name in node.input), default=0)

    layers = [node for node in model.graph.node if node.op_type in QUANTIZABLE_OPS and node.name]
    layers = [node for node in layers if largest_weight(node)]
    return sorted(layers, key=lambda node: (-largest_weight(node), node.name))[:limit]


def _run_all(model: ModelProto, feeds: list[dict[str, np.ndarray]], folder: Path) -> list[np.ndarray]:
    """Flattened float32 outputs on all feeds."""
    import numpy as np

    from autoopt.model import io
    from autoopt.model.session import make_session

    session = make_session(io.save(model, folder / "compared"), {"graph_optimization_level": "disable"})
    outputs = [output for feed in feeds for output in session.run(None, feed)]
    return [np.asarray(output, np.float32).ravel() for output in outputs if isinstance(output, np.ndarray)]


class SelectiveQuantization(StaticQuantization):
    """Static 8-bit quantization that keeps the most sensitive layers in float32.

    Reads the ranking of `layer_sensitivity`, which runs first.
    """

    requires: ClassVar[tuple[str, ...]] = ("quant_pre_process", "layer_sensitivity")
    aliases: ClassVar[tuple[str, ...]] = ("node_exclusion",)

    exclude_worst: Annotated[int, Categorical(1, 2, 4, 8), "number of the most sensitive layers to keep in float32"] = 2
    quant_format: Annotated[Literal["QDQ", "QOperator"], "representation of quantized operators"] = "QDQ"
    weight_type: Annotated[Literal["QInt8", "QUInt8"], "type of the weights"] = "QInt8"
    op_types: Annotated[list[str], "operator types to quantize; empty: all that have a quantized form"] = []

    def run(self, model: ModelProto) -> ModelProto | Retry | None:
        report = self.context.reports.get("layer_sensitivity")
        if report is None:
            raise Refused("the report of layer_sensitivity is missing")
        worst = [entry["node"] for entry in report["ranking"][: self.exclude_worst]]
        requested = list(self.nodes_to_exclude)
        self.nodes_to_exclude = sorted({*requested, *worst})
        result = Static.run(self, model)
        self.nodes_to_exclude = requested
        if isinstance(result, Retry):
            # The worst layers follow from the report again, so they stay out of the recorded parameters.
            nodes: list[str] = result.params["nodes_to_exclude"]  # type: ignore[assignment]  # Static sets it
            return Retry(result.reason, {"nodes_to_exclude": sorted(set(nodes) - set(worst))})
        return result


def activation_errors(
    quantized: ModelProto, reader: CalibrationReader, folder: Path, against: ModelProto | None = None
) -> dict[str, dict[str, float]]:
    """Compute signal-to-quantization-noise ratios, in dB, of every quantized activation.

    Args:
        quantized: a QDQ model.
        reader: the calibration data.
        folder: folder for temporary files.
        against: the float model to compare with, if any.

    Returns:
        Per activation, `qdq_err` (before and after its own QDQ pair) and, with `against`, `xmodel_err` (against the
        value in the float model). Finite numbers only.
    """
    from onnxruntime.quantization import qdq_loss_debug as library

    with quiet():
        activations = _collect_activations(quantized, reader, folder / "quantized")
        float_activations = None
        if against is not None:
            reader.rewind()
            float_activations = _collect_activations(against, reader, folder / "float")
        errors: dict[str, dict[str, float]] = {}
        for name, match in library.create_activation_matching(activations, float_activations).items():
            ratios = {"qdq_err": _noise_ratio(match["pre_qdq"], match["post_qdq"])}
            if match.get("float") is not None:
                ratios["xmodel_err"] = _noise_ratio(match["float"], match["post_qdq"])
            errors[name] = {kind: ratio for kind, ratio in ratios.items() if math.isfinite(ratio)}
        return errors


def _noise_ratio(before: list[np.ndarray], after: list[np.ndarray]) -> float:
    from onnxruntime.quantization.qdq_loss_debug import compute_signal_to_quantization_noice_ratio

    return float(compute_signal_to_quantization_noice_ratio(before, after))


def _collect_activations(model: ModelProto, reader: CalibrationReader, folder: Path) -> dict[str, list[np.ndarray]]:
    """Run the model on all feeds and return every inner value."""
    from onnxruntime.quantization import qdq_loss_debug as library

    from autoopt.model import io
    from autoopt.model.session import make_options

    source = io.save(model, folder)
    target = folder / "augmented.onnx"
    library.modify_model_output_intermediate_tensors(str(source), str(target))
    options = make_options({"graph_optimization_level": "disable"})
    activations: dict[str, list[np.ndarray]] = library.collect_activations(str(target), reader, session_options=options)
    return activations
