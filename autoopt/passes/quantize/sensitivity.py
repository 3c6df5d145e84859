"""Layers ranked by their quantization error, and quantization of all but the worst."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

from autoopt.model import io
from autoopt.model.lazy_imports import ir
from autoopt.model.session import make_options
from autoopt.model.tensors import by_name
from autoopt.passes.base import Pass, Refused, Retry
from autoopt.passes.onnx_tools.libraries import quiet
from autoopt.passes.quantize.calibration import CalibrationReader
from autoopt.passes.quantize.ort_quantizer import refuse_weights
from autoopt.passes.quantize.static import QUANTIZABLE_OPS, StaticQuantization
from autoopt.registry import Minimum, Unit
from autoopt.space import Categorical

if TYPE_CHECKING:
    import numpy as np
    from onnx import ModelProto, NodeProto

FEEDS_OF_ONE: Final = 4
"""Items on which each layer of a model of many layers is run by itself."""
LITTLE_WORK: Final = 0.001
"""Share of the work below which a layer costs next to nothing in float."""


class LayerSensitivity(Pass):
    """Ranks the layers of a float model by the effect of their 8-bit quantization on the model's outputs.

    The report `layer_sensitivity` holds `ranking`: [{node, op_type, sqnr_db, work}], the worst first. `sqnr_db` is the
    signal-to-quantization-noise ratio of the outputs with only that node (Conv, Gemm or MatMul) quantized: the error of
    its own output is added to the float model. Of several outputs, each counts the same, however large its values are.
    In models of many layers it is measured for those whose own output has the lowest ratio; the others follow with that
    ratio. `work` is the node's share of the multiplications of all ranked layers.
    """

    family: ClassVar[str] = "check"
    analysis = True
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
        refuse_weights(model)
        ranking: list[dict[str, str | float]] = []
        if largest_layers(model, self.layers):
            ranking = self._ranking(model)
        self.context.reports["layer_sensitivity"] = {"ranking": ranking}

    def _ranking(self, model: ModelProto) -> list[dict[str, str | float]]:
        from autoopt.passes.quantize.layer_errors import few_items, layer_ratios, output_ratios

        # With the ranges of all items, which the quantization needs anyway.
        static = StaticQuantization(activation_type="QInt8", op_types=list(QUANTIZABLE_OPS))
        static.context = self.context
        work = self.context.work
        with quiet():
            prepared, ranges = static.calibrate(model)
            feeds = list(CalibrationReader(self.context, self.samples))
            layers = largest_layers(prepared, self.layers)
            others: dict[str, float] = {}
            if len(layers) > self.measured:
                few = few_items(feeds, FEEDS_OF_ONE)
                others = layer_ratios(prepared, layers, ranges, few, work, per_channel=self.per_channel)
                most_disturbed = sorted(others, key=lambda name: (others[name], name))[: self.measured]
                layers = [node for node in layers if node.name in most_disturbed]
            measured = output_ratios(prepared, layers, ranges, feeds, work, per_channel=self.per_channel)
        ratios = [*_worst_first(measured), *_worst_first({n: r for n, r in others.items() if n not in measured})]
        nodes = by_name(prepared.graph.node)
        shares = _shares_of_work(prepared, [nodes[name] for name, _ in ratios], feeds[0], work)
        ranking: list[dict[str, str | float]] = []
        for name, ratio in ratios:
            entry: dict[str, str | float] = {"node": name, "op_type": nodes[name].op_type, "sqnr_db": round(ratio, 2)}
            ranking.append({**entry, "work": round(shares[name], 6)})
        return ranking


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


def _noise(entry: Mapping[str, Any]) -> float:
    """Power of the noise relative to the signal."""
    return math.pow(10, -float(entry["sqnr_db"]) / 10)


def _noise_for_work(entry: Mapping[str, Any]) -> float:
    """Noise in relation to the work that is not done in integers if the layer stays in float."""
    # Shares are rounded to 6 digits, so that of a small layer may be 0.
    return _noise(entry) / max(float(entry["work"]), 1e-6)


RANKINGS: Final[Mapping[str, Callable[[Mapping[str, Any]], float]]] = {
    "noise": _noise,
    "noise_for_work": _noise_for_work,
    "work": lambda entry: -float(entry["work"]),
}
"""Value of `rank_by` -> the key of a layer; those with the highest keys stay in float."""


def layers_to_exclude(ranking: Sequence[Mapping[str, Any]], least_sqnr_db: float) -> int:
    """Count the layers, from the first one, without which the others leave at least this signal-to-noise ratio, in dB.

    The noise of the layers adds up. A ratio of 0 needs none.
    """
    if least_sqnr_db <= 0:
        return 0
    most = math.pow(10, -least_sqnr_db / 10)
    noise = 0.0
    for count in range(len(ranking), 0, -1):
        noise += _noise(ranking[count - 1])
        if noise > most:
            return count
    return 0


def largest_layers(model: ModelProto, limit: int) -> list[NodeProto]:
    """Find the named nodes that have weights and an integer kernel, at most `limit`, with the largest weights first."""
    floats = [tensor for tensor in model.graph.initializer if tensor.data_type == tensor.FLOAT]
    sizes = {tensor.name: prod(tensor.dims) for tensor in floats}

    def largest_weight(node: NodeProto) -> int:
        return max((sizes.get(name, 0) for name in node.input), default=0)

    candidates = [node for node in model.graph.node if node.op_type in QUANTIZABLE_OPS and node.name]
    layers = filter(largest_weight, candidates)
    return sorted(layers, key=lambda node: (-largest_weight(node), node.name))[:limit]


class SelectiveQuantization(StaticQuantization):
    """Static 8-bit quantization that keeps the most sensitive layers in float32.

    Reads the ranking of `layer_sensitivity`, which runs first. With `rank_by` noise_for_work, layers with less than
    0.1 % of the work stay in float too and do not count: they would come first, whatever their noise.
    """

    requires: ClassVar[tuple[str, ...]] = ("quant_pre_process", "layer_sensitivity")
    aliases: ClassVar[tuple[str, ...]] = ("node_exclusion",)

    version = 9

    exclude_worst: Annotated[
        int, Minimum(0), Categorical(1, 2, 4, 8), "number of the most sensitive layers to keep in float32"
    ] = 2
    least_sqnr_db: Annotated[
        int,
        Unit("dB"),
        "keep more layers in float32 until the outputs' expected signal-to-noise ratio reaches this; 0: none",
    ] = 0
    rank_by: Annotated[
        Literal["noise_for_work", "noise", "work"],
        "layers kept in float32: of the most noise for their share of the work, the most noise, or the least work",
    ] = "noise_for_work"
    quant_format: Annotated[Literal["QDQ", "QOperator"], "representation of quantized operators"] = "QDQ"
    weight_type: Annotated[Literal["QInt8", "QUInt8"], "type of the weights"] = "QInt8"
    op_types: Annotated[list[str], "operator types to quantize; empty: all that have a quantized form"] = []

    def run(self, source: ir.Model) -> ModelProto | Retry | None:
        report = self.context.reports.get("layer_sensitivity")
        if report is None:
            raise Refused("the report of layer_sensitivity is missing")
        worst = self._layers_in_float(report["ranking"])
        requested = list(self.nodes_to_exclude)
        self.nodes_to_exclude = sorted({*requested, *worst})
        result = super().run(source)
        self.nodes_to_exclude = requested
        if isinstance(result, Retry) and "nodes_to_exclude" in result.params:
            # The worst layers follow from the report again, so they stay out of the recorded parameters.
            nodes: list[str] = result.params["nodes_to_exclude"]  # type: ignore[assignment]  # static quantization sets it
            return Retry(result.reason, {"nodes_to_exclude": sorted(set(nodes) - set(worst))})
        return result

    def _layers_in_float(self, layers: Sequence[Mapping[str, Any]]) -> list[str]:
        """The names of the layers to keep in float: those of next to no work, then the most sensitive of the others."""
        small = [entry for entry in layers if self.rank_by == "noise_for_work" and entry["work"] < LITTLE_WORK]
        counted = [entry for entry in layers if entry not in small]
        ranking = sorted(counted, key=RANKINGS[self.rank_by], reverse=True)
        count = max(self.exclude_worst, layers_to_exclude(ranking, self.least_sqnr_db))
        if count >= len(ranking) > self.exclude_worst:
            raise Refused(f"only with all {len(ranking)} layers in float would outputs reach {self.least_sqnr_db} dB")
        if small and count >= len(ranking):
            raise Refused(f"only {len(ranking)} layers have more than {LITTLE_WORK * 100:g} % of the work")
        return [entry["node"] for entry in (*small, *ranking[:count])]


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
