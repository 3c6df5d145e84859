"""The arithmetic of an execution provider, other than that of the model, as a pass."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

from autoopt.model.session_options import with_openvino_property
from autoopt.passes.base import Pass
from autoopt.registry import ParameterInfo
from autoopt.space import Categorical
from autoopt.target import Accelerator

if TYPE_CHECKING:
    from onnx import ModelProto


class ProviderPrecision(Pass):
    """Has OpenVINO compute in half precision where it has kernels for that. The graph stays as it is."""

    session_only = True
    tolerance = "lossy"
    memory_factor = 0.0
    conflicts = ("provider_precision",)
    accelerators = ("OpenVINOExecutionProvider",)
    libraries = ("onnxruntime",)

    precision: Annotated[Literal["bf16", "f16"], "type of the arithmetic; f16 is bf16 on CPUs that have only that"] = (
        "bf16"
    )

    @classmethod
    def offer(cls, parameter: ParameterInfo, accelerator: Accelerator) -> ParameterInfo | None:
        if {"avx512_fp16", "amx_fp16"} & accelerator.isa:
            return replace(parameter, search=Categorical("bf16", "f16"))
        return parameter

    def run(self, model: ModelProto) -> None:
        options = self.context.session_options
        own = options.get("provider_options", {})
        config = with_openvino_property(own, "INFERENCE_PRECISION_HINT", self.precision)
        options["provider_options"] = {**own, "load_config": config}
