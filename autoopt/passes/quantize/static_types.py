"""Static quantisation to other types than 8-bit integers: 16-bit activations, 4-bit weights, float8."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from autoopt.passes.base import Pass, Refused, Retry
from autoopt.passes.quantize.static import CONFLICTS, Static
from autoopt.space import Boolean, Categorical

if TYPE_CHECKING:
    from onnx import ModelProto


class Static16Bit(Static):
    """16-bit activations with 8-bit weights in QDQ format: nearly lossless, for NPUs; slow on CPUs. Needs opset 21."""

    lowest_opset: ClassVar[int] = 21
    aliases = ("static_int16",)

    activation_type: Annotated[
        Literal["QUInt16", "QInt16"], Categorical("QUInt16", "QInt16"), "type of the activations"
    ] = "QUInt16"
    weight_type: Annotated[Literal["QInt8", "QUInt8"], Categorical("QInt8", "QUInt8"), "type of the weights"] = "QInt8"

    op_types: Annotated[list[str], "operator types to quantise; empty: all that have a quantised form"] = []

    def types(self) -> tuple[str, str, str]:
        return "QDQ", self.activation_type, self.weight_type


class StaticW4(Static):
    """4-bit weights with 8- or 16-bit activations in QDQ format: small; slow on CPUs. Needs opset 21."""

    lowest_opset: ClassVar[int] = 21
    aliases = ("static_int4",)

    weight_type: Annotated[Literal["QInt4", "QUInt4"], Categorical("QInt4", "QUInt4"), "type of the weights"] = "QInt4"
    activation_type: Annotated[
        Literal["QUInt8", "QInt8", "QUInt16", "QInt16"], Categorical("QUInt8", "QUInt16"), "type of the activations"
    ] = "QUInt8"

    op_types: Annotated[list[str], "operator types to quantise; empty: all that have a quantised form"] = []

    def types(self) -> tuple[str, str, str]:
        return "QDQ", self.activation_type, self.weight_type


class Fp8Quantization(Pass):
    """float8 (E4M3FN) weights and activations in QDQ format, ranges from calibration data. Needs opset 19.

    For GPUs. The CPU provider computes it right only without graph optimisation, so on the CPU the candidate's session
    is pinned to `graph_optimization_level: disable`; passes that would raise it again conflict with this one.
    """

    family: ClassVar[str] = "quantize"
    tolerance = "lossy"
    needs_data = True
    requires = ("quant_pre_process",)
    conflicts = (*CONFLICTS, "session_tuning")
    accelerators = ("CPUExecutionProvider", "CUDAExecutionProvider", "TensorrtExecutionProvider")
    needs_ops = ("Conv", "Gemm", "MatMul")
    libraries = ("onnx", "onnxruntime")
    aliases = ("fp8_qdq", "float_to_fp8")

    op_types: Annotated[
        list[str],
        Categorical(["Conv", "Gemm", "MatMul"], ["Gemm", "MatMul"]),
        "operator types to quantise",
    ] = ["Conv", "Gemm", "MatMul"]
    scenario: Annotated[
        Literal["same", "p3"], Categorical("same", "p3"), "how the scale follows from the values: as they are, or cubed"
    ] = "same"
    per_channel: Annotated[bool, Boolean(), "a scale for each output channel instead of one for the tensor"] = False
    num_bins: Annotated[int, "bins of the histogram; at least 512"] = 2048
    nodes_to_exclude: Annotated[list[str], "nodes left in float32, by name"] = []
    samples: Annotated[int, "at most so many calibration items; 0: all"] = 0

    def run(self, model: ModelProto) -> ModelProto | Retry | None:
        if self.num_bins < 512:
            raise Refused(f"num_bins must be at least 512, not {self.num_bins}")
        static = _Float8(
            calibrate_method="Distribution",
            scenario=self.scenario,
            num_bins=self.num_bins,
            per_channel=self.per_channel,
            op_types=self.op_types,
            nodes_to_exclude=self.nodes_to_exclude,
            samples=self.samples,
        )
        static.context = self.context
        made = static.run(model)
        if made is not None and not isinstance(made, Retry) and self.context.accelerator.device == "cpu":
            self.context.session_options["graph_optimization_level"] = "disable"
        return made


class _Float8(Static):
    lowest_opset: ClassVar[int] = 19
    scenario: str = "same"

    def types(self) -> tuple[str, str, str]:
        return "QDQ", "QFLOAT8E4M3FN", "QFLOAT8E4M3FN"

    def settings(self) -> dict[str, Any]:
        return {"num_bins": self.num_bins, "scenario": self.scenario}
