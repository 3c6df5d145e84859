"""Which layers suffer from quantisation, and quantising all but those."""

from __future__ import annotations

import math
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from autoopt.passes.base import Pass, Refused, Retry
from autoopt.passes.onnx_tools.quiet import quiet
from autoopt.passes.quantize.calibration_reader import Feeds
from autoopt.passes.quantize.static import NEEDS_OPS, Static, StaticQuantization
from autoopt.registry import Unit
from autoopt.space import Categorical

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto


class LayerSensitivity(Pass):
    """Ranks the layers of a float model by what their 8-bit quantisation alone does to the model's outputs.

    The report `layer_sensitivity` holds `ranking`: [{node, op_type, sqnr_db}], the worst first: the signal to
    quantisation noise ratio of the outputs where only that node (Conv, Gemm or MatMul) is quantised.
    """

    family: ClassVar[str] = "check"
    analysis = True
    needs_data = True
    needs_ops = NEEDS_OPS
    libraries = ("onnx", "onnxruntime")
    aliases = ("sensitivity",)

    samples: Annotated[int, Unit("items"), "calibration items compared"] = 16
    layers: Annotated[int, "at most so many layers, those with the largest weights"] = 128

    def run(self, model: ModelProto) -> None:
        layers = heavy_layers(model, self.layers)
        self.context.reports["layer_sensitivity"] = {"ranking": self._rank(model, layers) if layers else []}

    def _rank(self, model: ModelProto, layers: list[NodeProto]) -> list[dict[str, Any]]:
        static = StaticQuantization(samples=self.samples, activation_type="QInt8", op_types=list(NEEDS_OPS))
        static.context = self.context
        ranking = []
        with quiet():
            prepared, ranges = static.calibrated(model)
            feeds = list(Feeds(self.context, self.samples))
            expected = _outputs(prepared, feeds, self.context.work)
            for node in layers:
                made = static.quantized(prepared, ranges, only=[node.name])
                ratio = _ratio(expected, _outputs(made, feeds, self.context.work))
                ranking.append({"node": node.name, "op_type": node.op_type, "sqnr_db": round(ratio, 2)})
        return sorted(ranking, key=lambda entry: (entry["sqnr_db"], entry["node"]))


def heavy_layers(model: ModelProto, most: int) -> list[NodeProto]:
    """The named nodes that have weights and an integer kernel, at most `most` of them: those with most weights."""
    sizes = {tensor.name: prod(tensor.dims) for tensor in model.graph.initializer}
    named = [node for node in model.graph.node if node.op_type in NEEDS_OPS and node.name]
    weighted = [(max((sizes.get(name, 0) for name in node.input), default=0), node) for node in named]
    weighted.sort(key=lambda pair: (-pair[0], pair[1].name))
    return [node for size, node in weighted[:most] if size]


def _outputs(model: ModelProto, feeds: list[dict[str, Any]], folder: Path) -> list[Any]:
    """All outputs on all feeds, one array after the other, as float32."""
    import numpy as np

    from autoopt.model import io
    from autoopt.model.session import make_session

    session = make_session(io.save(model, folder / "compared"), {"graph_optimization_level": "disable"})
    found = [output for feed in feeds for output in session.run(None, feed)]
    return [np.asarray(output, np.float32).ravel() for output in found if isinstance(output, np.ndarray)]


class SelectiveQuantization(StaticQuantization):
    """Static 8-bit quantisation that leaves the layers that suffer most in float32.

    Reads the ranking of `layer_sensitivity`, which is run before.
    """

    requires: ClassVar[tuple[str, ...]] = ("quant_pre_process", "layer_sensitivity")
    aliases: ClassVar[tuple[str, ...]] = ("node_exclusion",)

    exclude_worst: Annotated[int, Categorical(1, 2, 4, 8), "how many of the most sensitive layers stay float32"] = 2
    quant_format: Annotated[Literal["QDQ", "QOperator"], "how it is written"] = "QDQ"
    weight_type: Annotated[Literal["QInt8", "QUInt8"], "type of the weights"] = "QInt8"
    op_types: Annotated[list[str], "operator types to quantise; empty: all that have a quantised form"] = []

    def run(self, model: ModelProto) -> ModelProto | Retry | None:
        report = self.context.reports.get("layer_sensitivity")
        if report is None:
            raise Refused("the report of layer_sensitivity is missing")
        worst = [entry["node"] for entry in report["ranking"][: self.exclude_worst]]
        own = list(self.nodes_to_exclude)
        self.nodes_to_exclude = sorted({*own, *worst})
        made = Static.run(self, model)
        self.nodes_to_exclude = own
        if isinstance(made, Retry):
            more = set(made.params["nodes_to_exclude"]) - set(worst)
            return Retry(made.reason, {"nodes_to_exclude": sorted(more)})
        return made


def activation_errors(
    quantized: ModelProto, feeds: Feeds, folder: Path, against: ModelProto | None = None
) -> dict[str, dict[str, float]]:
    """Signal to quantisation noise ratios in dB of every quantised activation: `qdq_err` before and after its own QDQ
    pair and, where the float model `against` is given, `xmodel_err` against the float value. Finite numbers only."""
    from onnxruntime.quantization import qdq_loss_debug as library

    with quiet():
        values = _activations(quantized, feeds, folder / "quantized")
        reference = None
        if against is not None:
            feeds.rewind()
            reference = _activations(against, feeds, folder / "float")
        errors: dict[str, dict[str, float]] = {}
        for name, match in library.create_activation_matching(values, reference).items():
            found = {"qdq_err": _ratio(match["pre_qdq"], match["post_qdq"])}
            if match.get("float") is not None:
                found["xmodel_err"] = _ratio(match["float"], match["post_qdq"])
            errors[name] = {kind: error for kind, error in found.items() if math.isfinite(error)}
    return errors


def _ratio(before: Any, after: Any) -> float:
    from onnxruntime.quantization.qdq_loss_debug import compute_signal_to_quantization_noice_ratio

    return float(compute_signal_to_quantization_noice_ratio(before, after))


def _activations(model: ModelProto, feeds: Feeds, folder: Path) -> Any:
    from onnxruntime.quantization import qdq_loss_debug as library

    from autoopt.model import io
    from autoopt.model.session import make_options

    source = io.save(model, folder)
    target = folder / "augmented.onnx"
    library.modify_model_output_intermediate_tensors(str(source), str(target))
    options = make_options({"graph_optimization_level": "disable"})
    return library.collect_activations(str(target), feeds, session_options=options)
