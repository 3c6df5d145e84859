"""Static quantization: weights and activations in integers, with ranges from calibration data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal

from autoopt.errors import InputError, one_line
from autoopt.model import io
from autoopt.passes.base import Pass, PassContext, Refused, Retry
from autoopt.passes.base.conflicts import FLOAT_CONVERSIONS, QUANTIZATIONS, RUNTIME_BOUND
from autoopt.passes.onnx_tools.functions import inline_functions
from autoopt.passes.onnx_tools.gemm import fold_gemm_factors
from autoopt.passes.onnx_tools.graphs import has_subgraphs, is_large, op_counts, sort_nodes, walk_nodes
from autoopt.passes.onnx_tools.libraries import quiet
from autoopt.passes.onnx_tools.opsets import at_least_opset, import_ort_domain
from autoopt.passes.quantize.calibration import CalibrationReader, Ranges
from autoopt.passes.quantize.cpu_support import offer_for_cpu
from autoopt.passes.quantize.hard_sigmoid import saturate_hard_sigmoids
from autoopt.passes.quantize.ort_quantizer import (
    accept_quantized,
    find_unquantizable,
    flatten_biases,
    rename_ambiguous_weights,
    rename_earlier_results,
    separate_uses_of_weights,
)
from autoopt.registry import ParameterInfo
from autoopt.space import IGNORED, INVALID, Boolean, Categorical, Conditional, ConditionalDefault
from autoopt.target import Accelerator

if TYPE_CHECKING:
    from onnx import ModelProto

Method = Literal["MinMax", "Entropy", "Percentile", "Distribution"]
STATIC_CONFLICTS: Final = (*RUNTIME_BOUND, *QUANTIZATIONS, *FLOAT_CONVERSIONS)
QUANTIZABLE_OPS: Final = ("Conv", "ConvTranspose", "Gemm", "MatMul")
"""Operators with weights that have an integer kernel."""

CORRECTION_ITEMS: Final = 16
"""Calibration items that the mean errors for `bias_correction` are taken from; fewer of large ones."""


@dataclass(frozen=True)
class QuantizedTypes:
    """Names of onnxruntime's QuantFormat and QuantType."""

    quant_format: str
    activation: str
    weight: str


class Static(Pass):
    """The common part of all static quantizations; subclasses choose types and formats."""

    version = 10
    takes = "outline"
    target_bound = False
    tolerance = "lossy"
    needs_data = True
    requires: ClassVar[tuple[str, ...]] = ("quant_pre_process",)
    conflicts = STATIC_CONFLICTS
    needs_ops = QUANTIZABLE_OPS
    libraries = ("onnx", "onnxruntime")
    lowest_opset: ClassVar[int] = 13

    calibrate_method: Annotated[
        Method, Categorical("MinMax", "Entropy", "Percentile"), "method that derives ranges from the calibration data"
    ] = "MinMax"
    percentile: Annotated[float, "percentage of values inside the range; only Percentile"] = 99.999
    num_bins: Annotated[int, "bins of the histogram; only Entropy, Percentile and Distribution"] = ConditionalDefault(
        "calibrate_method", {"Entropy": 512}, default=2048
    )  # type: ignore[assignment]  # resolved before the pass is built
    moving_average: Annotated[bool, "use a moving average of the ranges over the data; only MinMax"] = False
    per_channel: Annotated[bool, Boolean(), "one scale per output channel instead of one per tensor"] = False
    activation_symmetric: Annotated[bool, "activation ranges symmetric around 0"] = False
    weight_symmetric: Annotated[
        bool | None, "weight ranges symmetric around 0; null: onnxruntime's default by type"
    ] = None
    op_types: Annotated[
        list[str],
        Categorical([], ["Conv", "Gemm", "MatMul"]),
        "operator types to quantize; empty: all that have a quantized form",
    ] = []
    nodes_to_exclude: Annotated[list[str], "nodes to keep in float32, by name; layer_sensitivity ranks them"] = []
    samples: Annotated[int, "maximum number of calibration items; 0: as many as ranges need"] = 0
    equalize: Annotated[
        Literal["none", "cross_layer", "smooth"],
        "even out the ranges of channels first: weights between layers (cross_layer_equalization), or activations and "
        "weights (smooth_quant)",
    ] = "none"
    bias_correction: Annotated[bool, "take the mean rounding error of each channel off the biases of Conv and Gemm"] = (
        False
    )
    dynamic_ops: Annotated[
        list[Literal["LSTM", "Attention", "MatMul"]],
        "operator types to quantize at run time where they have no static form yet; only for the CPU provider",
    ] = []
    bodies: Annotated[bool, "also quantize the bodies of If, Loop and Scan"] = True

    def types(self) -> QuantizedTypes:
        """Format and types of the result."""
        raise TypeError(f"{type(self).__name__} does not define types")

    def run(self, model: ModelProto) -> ModelProto | Retry | None:
        model = inline_functions(model)
        before = op_counts(model)
        op_types = self.quantized_op_types()
        if not any(node.op_type in op_types for node in walk_nodes(model.graph)):
            return None
        self.types()
        self._check_settings()
        with quiet():
            quantized = self._quantized(model)
            if isinstance(quantized, Retry):
                return quantized
            if self.dynamic_ops:
                from autoopt.passes.quantize.dynamic import DynamicQuantization

                dynamic = DynamicQuantization(op_types=list(self.dynamic_ops), per_channel=True)
                quantized = self.run_inner(dynamic, quantized)
        import_ort_domain(quantized)
        return accept_quantized(before, sort_nodes(quantized))  # it adds nodes that bodies read behind those

    def _quantized(self, model: ModelProto) -> ModelProto | Retry:
        """The model with its main graph and the bodies of If, Loop and Scan quantized."""
        op_types = self.quantized_op_types()
        with_bodies = self.bodies and has_subgraphs(model)
        if with_bodies or self.bias_correction or self.equalize != "none":
            io.load_weights(model)  # these run parts of the model
        prepared = at_least_opset(self._equalized(model), self.lowest_opset)
        ranges = None
        if any(node.op_type in op_types for node in prepared.graph.node):
            prepared, ranges = self.calibrate(prepared)
            failing = find_unquantizable(prepared, ranges, self.nodes_to_exclude, op_types)
            if failing:
                return self._without_nodes(failing)
        if with_bodies:
            retry = self._quantize_bodies(prepared)
            if retry:
                return retry
        if ranges is None:
            return prepared
        if self.bias_correction:
            self._correct_biases(prepared, ranges)
        quantized = self.quantize(prepared, ranges.path)
        saturate_hard_sigmoids(quantized)
        return quantized

    def _without_nodes(self, failing: Sequence[str]) -> Retry:
        """The request to leave further nodes as they are."""
        reason = f"{len(failing)} of the operators stay in float, without a valid scale or an integer form"
        excluded = sorted({*self.nodes_to_exclude, *failing})
        return Retry(f"{reason} ({', '.join(failing[:3])})", {"nodes_to_exclude": excluded})

    def _quantize_bodies(self, model: ModelProto) -> Retry | None:
        """Quantize the bodies of If, Loop and Scan that hold weights, in place."""
        from autoopt.passes.quantize.body_items import quantize_bodies

        layers = set(QUANTIZABLE_OPS).intersection(self.quantized_op_types())
        try:
            return quantize_bodies(model, layers, self.context, self.samples, self._quantized_body)
        except (Refused, InputError):  # of the data, say
            raise
        except Exception as error:  # the runtime's, the quantizer's, and others for values that are not tensors
            reason = f"the bodies of If, Loop and Scan stay in float: {one_line(str(error))}"
            return Retry(reason, {"bodies": False})

    def _quantized_body(self, body: ModelProto, context: PassContext) -> ModelProto | Retry:
        inner = type(self)(**vars(self))
        inner.context = context
        return inner._quantized(body)

    def _equalized(self, model: ModelProto) -> ModelProto:
        """The float model with its channels evened out, as `equalize` says."""
        from autoopt.passes.quantize.equalize import CrossLayerEqualization
        from autoopt.passes.quantize.smooth import SmoothQuant

        if self.equalize == "none":
            return model
        if self.equalize == "cross_layer":
            return self.run_inner(CrossLayerEqualization(), model)
        return self.run_inner(SmoothQuant(), model)

    def _check_settings(self) -> None:
        if not 0 < self.percentile <= 100:
            raise Refused(f"percentile must be above 0 and at most 100, not {self.percentile}")
        if self.percentile != Static.percentile and self.calibrate_method != "Percentile":
            raise Refused(f"percentile has no effect with calibrate_method {self.calibrate_method}; omit it")
        if self.moving_average and self.calibrate_method != "MinMax":
            raise Refused(f"moving_average has no effect with calibrate_method {self.calibrate_method}; omit it")
        # num_bins is still a ConditionalDefault if another pass creates this one, as layer_sensitivity does.
        if (isinstance(self.num_bins, int) and self.num_bins < 1) or self.samples < 0:
            raise Refused("num_bins must be at least 1, and samples at least 0")

    def calibrate(self, model: ModelProto) -> tuple[ModelProto, Ranges]:
        """Return the model in quantizable form, and the ranges of its activations."""
        from autoopt.passes.quantize.activation_ranges import calibrate

        prepared = at_least_opset(model, self.lowest_opset)
        rename_earlier_results(prepared)
        rename_ambiguous_weights(prepared)
        fold_gemm_factors(prepared)
        flatten_biases(prepared)
        separate_uses_of_weights(prepared, self.per_channel, self.types().quant_format == "QOperator")
        ranges = calibrate(
            prepared,
            self.context,
            self.calibrate_method,
            self.quantized_op_types(),
            self.calibrator_settings(),
            self.samples,
        )
        return prepared, ranges

    def quantize(self, model: ModelProto, ranges: Path) -> ModelProto:
        """Quantize what `calibrate` returned."""
        from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static

        from autoopt.passes.patches.ort_quantizers import lean_quantizers

        types = self.types()
        target = self.context.work / "static.onnx"
        large = is_large(model)
        source: ModelProto | Path = model
        if large and not any(io.external_tensors(model)):  # onnxruntime would copy it twice
            source = io.save(model, self.context.work / "source", external=True)
        extra_options = {"ActivationSymmetric": self.activation_symmetric}
        if self.weight_symmetric is not None:
            extra_options["WeightSymmetric"] = self.weight_symmetric
        with lean_quantizers(target) as quantized:
            quantize_static(
                source,
                target,
                quant_format=QuantFormat[types.quant_format],
                op_types_to_quantize=self.quantized_op_types(),
                per_channel=self.per_channel,
                reduce_range=getattr(self, "reduce_range", False),
                activation_type=QuantType[types.activation],
                weight_type=QuantType[types.weight],
                nodes_to_exclude=list(self.nodes_to_exclude),
                use_external_data_format=large,
                calibrate_method=CalibrationMethod[self.calibrate_method],
                extra_options=extra_options,
                calibration_cache_path=ranges,
            )
        return quantized.load()

    def _correct_biases(self, model: ModelProto, ranges: Ranges) -> None:
        from autoopt.passes.quantize.bias_correction import correct_biases, correctable
        from autoopt.passes.quantize.layer_errors import few_items

        feeds = few_items(list(CalibrationReader(self.context, CORRECTION_ITEMS)), CORRECTION_ITEMS)
        op_types = self.quantized_op_types()
        nodes = [node for node in correctable(model, self.nodes_to_exclude) if node.op_type in op_types]
        correct_biases(model, ranges, feeds, self.context.work, nodes, self.per_channel)

    def quantized_op_types(self) -> list[str]:
        """Operator types to quantize. Sorted, because the order of the library's own set changes between processes."""
        from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry

        return sorted(self.op_types or {*QDQRegistry, *QLinearOpsRegistry})

    def calibrator_settings(self) -> dict[str, object]:
        """Options of onnxruntime's calibrator that the method uses."""
        settings: dict[str, object] = {}
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
    """Quantizes weights and activations to 8-bit integers, with ranges from calibration data.

    QDQ keeps float operators between QuantizeLinear and DequantizeLinear, and the runtime fuses them; QOperator uses
    integer operators directly. Good for convolutions. Transformers often need `op_types: [MatMul]` or excluded nodes.
    Local functions are inlined first; bodies of If, Loop and Scan are quantized with ranges of their own iterations.
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

    quant_format: Annotated[
        Literal["QDQ", "QOperator"], Categorical("QDQ", "QOperator"), "representation of quantized operators"
    ] = "QDQ"
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
        "type of the activations; no runtime supports QInt8 with QUInt8 weights",
    ] = "QUInt8"
    reduce_range: Annotated[
        bool,
        Conditional("weight_type", {"QInt8": Boolean()}, default=IGNORED),
        "7-bit weights, which prevent overflow on x86 CPUs without VNNI; searched, and the default, only there",
    ] = False

    @classmethod
    def offer(cls, parameter: ParameterInfo, accelerator: Accelerator) -> ParameterInfo | None:
        return offer_for_cpu(parameter, accelerator)

    def types(self) -> QuantizedTypes:
        if self.activation_type == "QInt8" and self.weight_type == "QUInt8":
            raise Refused("onnxruntime does not support activation_type QInt8 with weight_type QUInt8")
        if self.calibrate_method == "Distribution":
            raise Refused("calibrate_method Distribution is for float8 (fp8_quantization); use MinMax or Percentile")
        return QuantizedTypes(self.quant_format, self.activation_type, self.weight_type)
