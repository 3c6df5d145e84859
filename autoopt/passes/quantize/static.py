"""Static quantization: weights and activations in integers or float8, with ranges from calibration data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal

from autoopt.errors import InputError, one_line
from autoopt.model import io
from autoopt.model.lazy_imports import ir
from autoopt.passes.base import Pass, PassContext, Refused, Retry
from autoopt.passes.base.contract import FLOAT_CONVERSIONS, QUANTIZATIONS, RUNTIME_BOUND
from autoopt.passes.base.conversion import to_ir, to_proto
from autoopt.passes.onnx_tools.gemm import fold_gemm_factors
from autoopt.passes.onnx_tools.graphs import has_subgraphs, is_large, sort_nodes, walk_nodes
from autoopt.passes.onnx_tools.libraries import quiet
from autoopt.passes.onnx_tools.opsets import import_ort_domain, raised, with_inlined_functions
from autoopt.passes.onnx_tools.values import name_nodes
from autoopt.passes.onnx_tools.weights import has_bodies
from autoopt.passes.quantize.body_items import quantize_bodies
from autoopt.passes.quantize.calibration import CalibrationReader, Ranges, calibrate
from autoopt.passes.quantize.cpu_support import offer_for_cpu
from autoopt.passes.quantize.equalize import CrossLayerEqualization, SmoothQuant
from autoopt.passes.quantize.layer_errors import correct_biases, correctable, few_items
from autoopt.passes.quantize.ort_quantizer import (
    accept_quantized,
    count_integer_ops,
    find_unquantizable,
    flatten_biases,
    refuse_weights,
    rename_ambiguous_weights,
    rename_earlier_results,
    saturate_hard_sigmoids,
    separate_uses_of_weights,
)
from autoopt.registry import ParameterInfo
from autoopt.space import IGNORED, INVALID, Boolean, Categorical, Conditional, ConditionalDefault
from autoopt.target import Accelerator
from autoopt.tuning import QUANTIZATION

if TYPE_CHECKING:
    from onnx import ModelProto

FLOAT8: Final = "QFLOAT8E4M3FN"
WIDE_TYPES: Final = ("QInt16", "QUInt16", "QInt4", "QUInt4")
"""Types that QuantizeLinear of ONNX takes from opset 21 on, and onnxruntime's integer operators never."""
STATIC_CONFLICTS: Final = (*RUNTIME_BOUND, *QUANTIZATIONS, *FLOAT_CONVERSIONS)
QUANTIZABLE_OPS: Final = ("Conv", "ConvTranspose", "Gemm", "MatMul")
"""Operators with weights that have an integer kernel."""
FLOAT8_BINS: Final = 512
"""Fewest bins of a distribution that determines scales of float8."""
EQUALIZATIONS: Final[dict[str, type[Pass]]] = {"cross_layer": CrossLayerEqualization, "smooth": SmoothQuant}


class StaticQuantization(Pass):
    """Quantizes weights and activations to integers or float8, with ranges from calibration data.

    QDQ keeps float operators between QuantizeLinear and DequantizeLinear, and the runtime fuses them; QOperator uses
    integer operators directly. Good for convolutions. Transformers often need `op_types: [MatMul]` or excluded nodes.
    Local functions are inlined first; bodies of If, Loop and Scan are quantized with ranges of their own iterations.

    16-bit activations (`static_16bit`, for NPUs) and 4-bit weights (`static_w4`, small) are slow on CPUs and need opset
    21. With 8-bit weights, 16-bit activations are not always closer to the float model than 8-bit ones. float8
    (`fp8_quantization`, for GPUs) is for activations too.
    """

    version = 12
    depends_on = "model"
    tolerance = "lossy"
    needs_data = True
    requires: ClassVar[tuple[str, ...]] = ("quant_pre_process",)
    conflicts = STATIC_CONFLICTS
    needs_ops = QUANTIZABLE_OPS
    libraries = ("onnx", "onnxruntime")
    accelerators = (
        "CPUExecutionProvider",
        "CUDAExecutionProvider",
        "TensorrtExecutionProvider",
        "DmlExecutionProvider",
        "OpenVINOExecutionProvider",
        "QNNExecutionProvider",
    )
    aliases: ClassVar[tuple[str, ...]] = ("static_int8",)

    quant_format: Annotated[
        Literal["QDQ", "QOperator"], Categorical("QDQ", "QOperator"), "representation of quantized operators"
    ] = "QDQ"
    weight_type: Annotated[
        Literal["QInt8", "QUInt8", "QInt4", "QUInt4", "QFLOAT8E4M3FN"],
        Categorical("QInt8", "QUInt8"),
        "type of the weights",
    ] = "QInt8"
    activation_type: Annotated[
        Literal["QInt8", "QUInt8", "QInt16", "QUInt16"],
        Conditional(
            ("quant_format", "weight_type"),
            {
                ("QDQ", "QInt8"): Categorical("QInt8", "QUInt8"),
                ("QDQ", "QUInt8"): Categorical("QUInt8"),
                ("QOperator", "QUInt8"): Categorical("QUInt8"),
                ("QDQ", "QInt4"): Categorical("QUInt8", "QUInt16"),
                ("QDQ", "QUInt4"): Categorical("QUInt8", "QUInt16"),
                ("QDQ", FLOAT8): IGNORED,
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
    calibrate_method: Annotated[
        Literal["MinMax", "Entropy", "Percentile"],
        Categorical("MinMax", "Entropy", "Percentile"),
        "method that derives ranges from the calibration data",
    ] = "MinMax"
    percentile: Annotated[float, "percentage of values inside the range; only Percentile"] = 99.999
    num_bins: Annotated[int, "bins of the histogram; only Entropy, Percentile and float8"] = ConditionalDefault(
        "calibrate_method", {"Entropy": 512}, default=2048
    )  # type: ignore[assignment]  # resolved before the pass is built
    scenario: Annotated[
        Literal["same", "p3"],
        Conditional("weight_type", {FLOAT8: Categorical("same", "p3")}, default=IGNORED),
        "distribution that determines the scale of float8: the values (same) or their cubes (p3)",
    ] = "same"
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

    @classmethod
    def offer(cls, parameter: ParameterInfo, accelerator: Accelerator) -> ParameterInfo | None:
        return offer_for_cpu(parameter, accelerator)

    @property
    def lowest_opset(self) -> int:
        """The first opset that has the types."""
        if self._is_float8:
            return 19
        if self._is_wide:
            return 21
        return 13

    @property
    def _is_float8(self) -> bool:
        return self.weight_type == FLOAT8

    @property
    def _is_wide(self) -> bool:
        return self.activation_type in WIDE_TYPES or self.weight_type in WIDE_TYPES

    def run(self, source: ir.Model) -> ir.Model | ModelProto | Retry | None:
        model = with_inlined_functions(source)
        op_types = self.quantized_op_types()
        if not any(node.op_type in op_types for node in model.graph.all_nodes()):
            return None
        for is_wrong, reason in self._rules():
            if is_wrong:
                raise Refused(reason)
        name_nodes(model)  # those that must stay in float are excluded by name
        before = count_integer_ops(model.graph.all_nodes())
        with quiet():
            quantized = self._quantized(model)
            if isinstance(quantized, Retry):
                return quantized
            if self.dynamic_ops:
                from autoopt.passes.quantize.dynamic import DynamicQuantization

                dynamic = DynamicQuantization(op_types=list(self.dynamic_ops), per_channel=True)
                quantized = self.run_inner(dynamic, quantized)
        import_ort_domain(quantized)
        accepted = accept_quantized(before, sort_nodes(quantized))  # it adds nodes that bodies read behind those
        if accepted is None or not any(node.op_type == "HardSigmoid" for node in walk_nodes(accepted.graph)):
            return accepted
        saturating = to_ir(accepted)
        saturate_hard_sigmoids(saturating)
        return saturating

    def _quantized(self, model: ir.Model) -> ModelProto | Retry:
        """The model with its main graph and the bodies of If, Loop and Scan quantized."""
        if self.equalize != "none":
            equalization = EQUALIZATIONS[self.equalize]()
            equalization.context = self.context
            equalization.run(model)
        prepared, op_types = raised(model, self.lowest_opset), self.quantized_op_types()
        if any(node.op_type in op_types for node in prepared.graph):
            return self._quantized_graph(self.quantizable(prepared))
        proto = to_proto(prepared)
        return self._quantize_bodies(proto) or proto

    def _quantized_graph(self, model: ir.Model) -> ModelProto | Retry:
        """A model in quantizable form with its main graph and bodies quantized."""
        proto = to_proto(model)
        ranges = self.ranges(proto)
        retry = self._unquantizable(model, ranges) or self._quantize_bodies(proto)
        if retry:
            return retry
        if self.bias_correction:
            io.load_weights(proto)  # its layers run by themselves
            most, op_types = QUANTIZATION.correction_items, self.quantized_op_types()
            feeds = few_items(list(CalibrationReader(self.context, most)), most)
            nodes = [node for node in correctable(proto, self.nodes_to_exclude) if node.op_type in op_types]
            correct_biases(proto, ranges, feeds, self.context.work, nodes, self.per_channel)
        try:
            return self.quantize(proto, ranges.path)
        except ValueError:  # bodies read values that would be integers
            if self.quant_format != "QOperator" or not has_bodies(model):
                raise
            return Retry("bodies of If, Loop and Scan read quantized values", {"quant_format": "QDQ"})

    def _unquantizable(self, model: ir.Model, ranges: Ranges) -> Retry | None:
        """The request to leave further nodes as they are."""
        drops_clipping = self.quant_format == "QOperator"
        failing = find_unquantizable(
            model, ranges, self.nodes_to_exclude, self.quantized_op_types(), drops_clipping=drops_clipping
        )
        if not failing:
            return None
        reason = f"{len(failing)} of the operators stay in float, without a valid scale or an integer form"
        excluded = sorted({*self.nodes_to_exclude, *failing})
        return Retry(f"{reason} ({', '.join(failing[:3])})", {"nodes_to_exclude": excluded})

    def _quantize_bodies(self, model: ModelProto) -> Retry | None:
        """Quantize the bodies of If, Loop and Scan that hold weights, in place."""
        if not self.bodies or self._is_float8 or not has_subgraphs(model):
            return None
        layers = set(QUANTIZABLE_OPS).intersection(self.quantized_op_types())
        io.load_weights(model)  # parts of it run by themselves
        try:
            return quantize_bodies(model, layers, self.context, self.samples, self._quantized_body)
        except (Refused, InputError):  # of the data, say
            raise
        except Exception as error:  # the runtime's, the quantizer's, and others for values that are not tensors
            reason = f"the bodies of If, Loop and Scan stay in float: {one_line(str(error))}"
            return Retry(reason, {"bodies": False})

    def _quantized_body(self, body: ir.Model, context: PassContext) -> ModelProto | Retry:
        inner = type(self)(**vars(self))
        inner.context = context
        return inner._quantized(body)

    def _rules(self) -> Iterator[tuple[bool, str]]:
        """Yield what makes the settings wrong, each with the reason."""
        types = (self.activation_type, self.weight_type)
        yield types == ("QInt8", "QUInt8"), "onnxruntime does not support activation_type QInt8 with weight_type QUInt8"
        is_special = self._is_wide or self._is_float8
        no_operators = "only quant_format QDQ has types of 4 and 16 bits and float8"
        yield self.quant_format == "QOperator" and is_special, no_operators
        method = self.calibrate_method
        yield self._is_float8 and method != "MinMax", "calibrate_method has no effect with float8; omit it"
        wrong_percentile = f"percentile must be above 0 and at most 100, not {self.percentile}"
        yield not 0 < self.percentile <= 100, wrong_percentile
        has_percentile = self.percentile != StaticQuantization.percentile
        useless = f"has no effect with calibrate_method {method}; omit it"
        yield has_percentile and method != "Percentile", f"percentile {useless}"
        yield self.moving_average and method != "MinMax", f"moving_average {useless}"
        # num_bins is still a ConditionalDefault if another pass creates this one, as layer_sensitivity does.
        fewest = FLOAT8_BINS if self._is_float8 else 1
        too_few = isinstance(self.num_bins, int) and self.num_bins < fewest
        yield too_few or self.samples < 0, f"num_bins must be at least {fewest}, and samples at least 0"

    @property
    def _method(self) -> str:
        """The name of onnxruntime's CalibrationMethod."""
        if self._is_float8:
            return "Distribution"
        return self.calibrate_method

    def quantizable(self, model: ir.Model) -> ir.Model:
        """The model in the form that the quantizer reads rightly."""
        refuse_weights(model)
        prepared = raised(model, self.lowest_opset)
        rename_earlier_results(prepared)
        rename_ambiguous_weights(prepared)
        fold_gemm_factors(prepared)
        flatten_biases(prepared)
        separate_uses_of_weights(prepared, self.per_channel, self.quant_format == "QOperator")
        return prepared

    def ranges(self, model: ModelProto) -> Ranges:
        """The ranges of the activations of a model in quantizable form."""
        op_types = self.quantized_op_types()
        return calibrate(model, self.context, self._method, op_types, self.calibrator_settings(), self.samples)

    def quantize(self, model: ModelProto, ranges: Path) -> ModelProto:
        """Quantize a model in quantizable form, with its ranges in a file."""
        from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static

        from autoopt.passes.patches.ort_quantizers import lean_quantizers

        activation_type = FLOAT8 if self._is_float8 else self.activation_type
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
                quant_format=QuantFormat[self.quant_format],
                op_types_to_quantize=self.quantized_op_types(),
                per_channel=self.per_channel,
                reduce_range=self.reduce_range,
                activation_type=QuantType[activation_type],
                weight_type=QuantType[self.weight_type],
                nodes_to_exclude=list(self.nodes_to_exclude),
                use_external_data_format=large,
                calibrate_method=CalibrationMethod[self._method],
                extra_options=extra_options,
                calibration_cache_path=ranges,
            )
        return quantized.load()

    def quantized_op_types(self) -> list[str]:
        """Operator types to quantize. Sorted, because the order of the library's own set changes between processes."""
        from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry

        if self._is_float8 and not self.op_types:
            return ["Conv", "Gemm", "MatMul"]
        return sorted(self.op_types or {*QDQRegistry, *QLinearOpsRegistry})

    def calibrator_settings(self) -> dict[str, object]:
        """Options of onnxruntime's calibrator that the method uses."""
        if self._is_float8:
            return {"num_bins": self.num_bins, "scenario": self.scenario}
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
