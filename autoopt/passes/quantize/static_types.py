"""Static quantization to types other than 8-bit integers: 16-bit activations, 4-bit weights, float8."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from autoopt.passes.base import Pass, Refused, Retry
from autoopt.passes.quantize.static import STATIC_CONFLICTS, QuantizedTypes, Static
from autoopt.registry import Minimum
from autoopt.space import Boolean, Categorical

if TYPE_CHECKING:
    from onnx import ModelProto


class Static16Bit(Static):
    """16-bit activations with 8-bit weights in QDQ format, for NPUs; slow on CPUs. Needs opset 21.

    The 8-bit weights limit the accuracy: results are not always closer to the float model than with 8-bit activations.
    """

    lowest_opset: ClassVar[int] = 21
    aliases = ("static_int16",)

    activation_type: Annotated[
        Literal["QUInt16", "QInt16"], Categorical("QUInt16", "QInt16"), "type of the activations"
    ] = "QUInt16"
    weight_type: Annotated[Literal["QInt8", "QUInt8"], Categorical("QInt8", "QUInt8"), "type of the weights"] = "QInt8"

    op_types: Annotated[list[str], "operator types to quantize; empty: all that have a quantized form"] = []

    def types(self) -> QuantizedTypes:
        return QuantizedTypes("QDQ", self.activation_type, self.weight_type)


class StaticW4(Static):
    """4-bit weights with 8- or 16-bit activations in QDQ format: small, but slow on CPUs. Needs opset 21."""

    lowest_opset: ClassVar[int] = 21
    aliases = ("static_int4",)

    weight_type: Annotated[Literal["QInt4", "QUInt4"], Categorical("QInt4", "QUInt4"), "type of the weights"] = "QInt4"
    activation_type: Annotated[
        Literal["QUInt8", "QInt8", "QUInt16", "QInt16"], Categorical("QUInt8", "QUInt16"), "type of the activations"
    ] = "QUInt8"

    op_types: Annotated[list[str], "operator types to quantize; empty: all that have a quantized form"] = []

    def types(self) -> QuantizedTypes:
        return QuantizedTypes("QDQ", self.activation_type, self.weight_type)


class Fp8Quantization(Pass):
    """float8 (E4M3FN) weights and activations in QDQ format, with ranges from calibration data. Needs opset 19.

    For GPUs. The CPU provider computes it correctly only without graph optimization, so on the CPU the candidate's
    session options get `graph_optimization_level: disable`. Passes that would raise the level conflict with this one.
    """

    version = 2
    tolerance = "lossy"
    needs_data = True
    requires = ("quant_pre_process",)
    conflicts = (*STATIC_CONFLICTS, "session_tuning")
    accelerators = ("CPUExecutionProvider", "CUDAExecutionProvider", "TensorrtExecutionProvider")
    needs_ops = ("Conv", "Gemm", "MatMul")
    libraries = ("onnx", "onnxruntime")
    aliases = ("fp8_qdq", "float_to_fp8")

    op_types: Annotated[
        list[str],
        Categorical(["Conv", "Gemm", "MatMul"], ["Gemm", "MatMul"]),
        "operator types to quantize",
    ] = ["Conv", "Gemm", "MatMul"]
    scenario: Annotated[
        Literal["same", "p3"],
        Categorical("same", "p3"),
        "distribution that determines the scale: the values (same) or their cubes (p3)",
    ] = "same"
    per_channel: Annotated[bool, Boolean(), "one scale per output channel instead of one per tensor"] = False
    num_bins: Annotated[int, Minimum(512), "bins of the histogram; at least 512"] = 2048
    nodes_to_exclude: Annotated[list[str], "nodes to keep in float32, by name"] = []
    samples: Annotated[int, Minimum(0), "maximum number of calibration items; 0: as many as ranges need"] = 0

    def run(self, model: ModelProto) -> ModelProto | Retry | None:
        if self.num_bins < 512:
            raise Refused(f"num_bins must be at least 512, not {self.num_bins}")
        static = _StaticFloat8(
            calibrate_method="Distribution",
            scenario=self.scenario,
            num_bins=self.num_bins,
            per_channel=self.per_channel,
            op_types=self.op_types,
            nodes_to_exclude=self.nodes_to_exclude,
            samples=self.samples,
            bodies=False,
        )
        static.context = self.context
        quantized = static.run(model)
        changed = quantized is not None and not isinstance(quantized, Retry)
        if changed and self.context.accelerator.device == "cpu":
            self.context.session_options["graph_optimization_level"] = "disable"
        return quantized


class _StaticFloat8(Static):
    lowest_opset: ClassVar[int] = 19
    scenario: str = "same"

    def types(self) -> QuantizedTypes:
        return QuantizedTypes("QDQ", "QFLOAT8E4M3FN", "QFLOAT8E4M3FN")

    def calibrator_settings(self) -> dict[str, object]:
        return {"num_bins": self.num_bins, "scenario": self.scenario}
