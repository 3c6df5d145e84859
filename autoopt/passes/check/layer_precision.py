"""Quantization error of every value of a QDQ model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from autoopt.passes.base import Pass, Refused
from autoopt.passes.onnx_tools.graphs import op_counts
from autoopt.registry import Param, Unit

if TYPE_CHECKING:
    from onnx import ModelProto


class LayerPrecisionCompare(Pass):
    """How far every quantised value of a QDQ model is from the float value; report `layer_precision_compare`.

    Signal to quantisation noise ratios in dB, the worst first: `qdq_err` over its own QDQ pair and, where the float
    model `origin` is given, `xmodel_err` against that model; `weights` then holds those of the weights.
    """

    family: ClassVar[str] = "check"
    analysis = True
    needs_data = True
    libraries = ("onnx", "onnxruntime")

    origin: Annotated[str | None, Param("path"), "the float model it was made from"] = None
    samples: Annotated[int, Unit("items"), "calibration items compared"] = 16

    def run(self, model: ModelProto) -> None:
        from autoopt.model import io
        from autoopt.passes.quantize.calibration_reader import Feeds
        from autoopt.passes.quantize.sensitivity import activation_errors

        if not op_counts(model)["DequantizeLinear"]:
            raise Refused("the model has no QDQ pairs to compare")
        work = self.context.work
        origin = io.load(Path(self.origin)) if self.origin else None
        errors = activation_errors(model, Feeds(self.context, self.samples), work, against=origin)
        kind = "xmodel_err" if origin is not None else "qdq_err"
        worst = sorted(errors.items(), key=lambda item: (item[1].get(kind, float("inf")), item[0]))
        report: dict[str, Any] = {
            "activations": [{"name": n, **{k: round(v, 3) for k, v in found.items()}} for n, found in worst]
        }
        if self.origin:
            report["weights"] = _weight_errors(self.origin, str(io.save(model, work / "weights")))
        self.context.reports["layer_precision_compare"] = report


def _ratio(before: Any, after: Any) -> float:
    """Signal to quantisation noise in dB; the library's own does not take single numbers."""
    import numpy as np
    from onnxruntime.quantization.qdq_loss_debug import compute_signal_to_quantization_noice_ratio

    return float(compute_signal_to_quantization_noice_ratio(np.atleast_1d(before), np.atleast_1d(after)))


def _weight_errors(origin: str, quantized: str) -> list[dict[str, Any]]:
    from onnxruntime.quantization.qdq_loss_debug import compute_weight_error, create_weight_matching

    from autoopt.passes.onnx_tools.quiet import quiet

    with quiet():
        errors = compute_weight_error(create_weight_matching(origin, quantized), _ratio)
    return [
        {"name": name, "sqnr_db": round(float(error), 3)}
        for name, error in sorted(errors.items(), key=lambda item: (item[1], item[0]))
    ]
