"""Static quantisation: weights and activations in integers, their ranges taken from calibration data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from autoopt.passes.base import Pass, Refused, Retry
from autoopt.passes.base.conflicts import FLOATS, LAST, QUANTIZATIONS
from autoopt.passes.onnx_tools.graphs import drop_metadata, gained, is_large, op_counts
from autoopt.passes.onnx_tools.opsets import at_least_opset
from autoopt.passes.onnx_tools.quiet import quiet
from autoopt.passes.quantize.calibration_ranges import calibrate, ranged
from autoopt.passes.quantize.cpu_support import offer_by_isa
from autoopt.passes.quantize.ort_quantizer import INFER_MARK, INTEGER_OPS, quant_type
from autoopt.passes.quantize.ort_workarounds import repair, unquantizable
from autoopt.registry import ParameterInfo
from autoopt.space import IGNORED, INVALID, Boolean, Categorical, Conditional, ConditionalDefault
from autoopt.target import Accelerator

if TYPE_CHECKING:
    from onnx import ModelProto


Method = Literal["MinMax", "Entropy", "Percentile", "Distribution"]
CONFLICTS = (*LAST, *QUANTIZATIONS, *FLOATS)
NEEDS_OPS = ("Conv", "ConvTranspose", "Gemm", "MatMul")


class Static(Pass):
    """What all static quantisations have in common; a subclass says the types and formats."""

    target_bound = False
    family: ClassVar[str] = "quantize"
    tolerance = "lossy"
    needs_data = True
    requires: ClassVar[tuple[str, ...]] = ("quant_pre_process",)
    conflicts = CONFLICTS
    needs_ops = NEEDS_OPS
    libraries = ("onnx", "onnxruntime")
    lowest_opset: ClassVar[int] = 13

    calibrate_method: Annotated[
        Method, Categorical("MinMax", "Entropy", "Percentile"), "how ranges follow from the calibration data"
    ] = "MinMax"
    percentile: Annotated[float, "share of the values kept inside the range, in percent; only Percentile"] = 99.999
    num_bins: Annotated[int, "bins of the histogram; only Entropy, Percentile and Distribution"] = ConditionalDefault(
        "calibrate_method", {"Entropy": 512}, default=2048
    )  # type: ignore[assignment]  # resolved before the pass is made
    moving_average: Annotated[bool, "ranges follow a moving average over the data; only MinMax"] = False
    per_channel: Annotated[bool, Boolean(), "a scale for each output channel instead of one for the tensor"] = False
    activation_symmetric: Annotated[bool, "activation ranges centred on 0"] = False
    weight_symmetric: Annotated[bool | None, "weight ranges centred on 0; null: ORT's choice by type"] = None
    op_types: Annotated[
        list[str],
        Categorical([], ["Conv", "Gemm", "MatMul"]),
        "operator types to quantise; empty: all that have a quantised form",
    ] = []
    nodes_to_exclude: Annotated[list[str], "nodes left in float32, by name; layer_sensitivity ranks them"] = []
    samples: Annotated[int, "at most so many calibration items; 0: all"] = 0

    def types(self) -> tuple[str, str, str]:
        """Format, activation type and weight type."""
        raise TypeError(f"{type(self).__name__} does not define types")

    def extra_options(self) -> dict[str, Any]:
        """Further options of onnxruntime's quantiser."""
        options: dict[str, Any] = {"ActivationSymmetric": self.activation_symmetric}
        if self.weight_symmetric is not None:
            options["WeightSymmetric"] = self.weight_symmetric
        return options

    def run(self, model: ModelProto) -> ModelProto | Retry | None:
        before = op_counts(model)
        op_types = self.quantised_types()
        if not any(node.op_type in op_types for node in model.graph.node):
            return None
        self.types()
        self._check_settings()
        with quiet():
            prepared, ranges = self.calibrated(model)
            broken = unquantizable(prepared, ranged(ranges), self.nodes_to_exclude, op_types)
            if broken:
                reason = f"onnxruntime cannot quantise {len(broken)} of the operators ({', '.join(broken[:3])})"
                return Retry(reason, {"nodes_to_exclude": sorted({*self.nodes_to_exclude, *broken})})
            made = self.quantized(prepared, ranges)
        return drop_metadata(made, INFER_MARK) if gained(before, made, INTEGER_OPS) else None

    def _check_settings(self) -> None:
        if not 0 < self.percentile <= 100:
            raise Refused(f"percentile must be above 0 and at most 100, not {self.percentile}")
        if self.percentile != Static.percentile and self.calibrate_method != "Percentile":
            raise Refused(f"percentile has no effect with calibrate_method {self.calibrate_method}; leave it out")
        if self.moving_average and self.calibrate_method != "MinMax":
            raise Refused(f"moving_average has no effect with calibrate_method {self.calibrate_method}; leave it out")
        if (isinstance(self.num_bins, int) and self.num_bins < 1) or self.samples < 0:
            raise Refused("num_bins must be at least 1, and samples at least 0")

    def calibrated(self, model: ModelProto) -> tuple[ModelProto, Path]:
        """The model as it can be quantised, and the file with the ranges of its activations."""
        prepared = at_least_opset(model, self.lowest_opset)
        repair(prepared)
        op_types, settings = self.quantised_types(), self.settings()
        return prepared, calibrate(prepared, self.context, self.calibrate_method, op_types, settings, self.samples)

    def quantized(self, model: ModelProto, ranges: Path, only: Sequence[str] = ()) -> ModelProto:
        """The quantised form of what `calibrated` gave; `only`: of these nodes, by name."""
        import onnx
        from onnxruntime.quantization import CalibrationMethod, QuantFormat, quantize_static

        quant_format, activation, weight = self.types()
        target = self.context.work / "static.onnx"
        quantize_static(
            model,
            target,
            quant_format=QuantFormat[quant_format],
            op_types_to_quantize=self.quantised_types(),
            per_channel=self.per_channel,
            reduce_range=getattr(self, "reduce_range", False),
            activation_type=quant_type(activation),
            weight_type=quant_type(weight),
            nodes_to_quantize=list(only),
            nodes_to_exclude=list(self.nodes_to_exclude),
            use_external_data_format=is_large(model),
            calibrate_method=CalibrationMethod[self.calibrate_method],
            extra_options=self.extra_options(),
            calibration_cache_path=ranges,
        )
        return onnx.load(target)

    def quantised_types(self) -> list[str]:
        """The operator types that are quantised; sorted, because the library's own set has another order each time."""
        from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry

        return sorted(self.op_types or {*QDQRegistry, *QLinearOpsRegistry})

    def settings(self) -> dict[str, Any]:
        """Settings of the calibrator: those that have a meaning with the method."""
        settings: dict[str, Any] = {}
        if self.calibrate_method == "MinMax":
            settings["moving_average"] = self.moving_average
        else:
            settings["num_bins"] = self.num_bins
        if self.calibrate_method == "Percentile":
            settings["percentile"] = self.percentile
        if self.activation_symmetric:
            settings["symmetric"] = True
        return settings


class StaticQuantization(Static):
    """8-bit integer weights and activations, ranges from calibration data.

    QDQ keeps float operators between QuantizeLinear and DequantizeLinear and lets the runtime fuse them; QOperator
    writes integer operators. Good for convolutions; transformers often need `op_types: [MatMul]` or nodes left out.
    """

    accelerators = (
        "CPUExecutionProvider",
        "CUDAExecutionProvider",
        "TensorrtExecutionProvider",
        "DmlExecutionProvider",
        "OpenVINOExecutionProvider",
        "QNNExecutionProvider",
    )
    aliases: ClassVar[tuple[str, ...]] = ("static_int8", "OnnxStaticQuantization", "IncStaticQuantization")

    quant_format: Annotated[Literal["QDQ", "QOperator"], Categorical("QDQ", "QOperator"), "how it is written"] = "QDQ"
    weight_type: Annotated[Literal["QInt8", "QUInt8"], Categorical("QInt8", "QUInt8"), "type of the weights"] = "QInt8"
    activation_type: Annotated[
        Literal["QInt8", "QUInt8"],
        Conditional(
            ("quant_format", "weight_type"),
            {
                ("QDQ", "QInt8"): Categorical("QInt8", "QUInt8"),
                ("QDQ", "QUInt8"): Categorical("QUInt8"),
                ("QOperator", "QUInt8"): Categorical("QUInt8"),
            },
            default=INVALID,
        ),
        "type of the activations; QInt8 with QUInt8 weights exists in no runtime",
    ] = ConditionalDefault("weight_type", {"QUInt8": "QUInt8"}, default="QInt8")  # type: ignore[assignment]  # resolved before the pass is made
    reduce_range: Annotated[
        bool,
        Conditional("weight_type", {"QInt8": Boolean()}, default=IGNORED),
        "7-bit weights, against overflow on CPUs without VNNI, where it is searched",
    ] = False

    @classmethod
    def offer(cls, parameter: ParameterInfo, accelerator: Accelerator) -> ParameterInfo | None:
        return offer_by_isa(parameter, accelerator)

    def types(self) -> tuple[str, str, str]:
        if self.activation_type == "QInt8" and self.weight_type == "QUInt8":
            raise Refused("activation_type QInt8 with weight_type QUInt8 is not supported by onnxruntime")
        if self.calibrate_method == "Distribution":
            raise Refused("calibrate_method Distribution is for float8 (fp8_quantization); use MinMax or Percentile")
        return self.quant_format, self.activation_type, self.weight_type
