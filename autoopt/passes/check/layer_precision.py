"""Quantization error of every value of a QDQ model."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from autoopt.model import io
from autoopt.model.session import make_options
from autoopt.passes.base import Pass, Refused
from autoopt.passes.onnx_tools.graphs import op_counts
from autoopt.passes.onnx_tools.libraries import quiet
from autoopt.passes.quantize.calibration import CalibrationReader
from autoopt.registry import Minimum, Param, Unit

if TYPE_CHECKING:
    import numpy as np
    from onnx import ModelProto


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
