"""The arithmetic of an execution provider, other than that of the model, as a pass."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

from autoopt.model.session_options import PRECISION_OPTIONS, with_provider_options
from autoopt.passes.base import Pass, Refused
from autoopt.registry import ParameterInfo
from autoopt.space import Categorical
from autoopt.target import Accelerator

if TYPE_CHECKING:
    from onnx import ModelProto


class ProviderPrecision(Pass):
    """Has the execution provider compute in half precision where it has kernels for that. The graph stays as it is."""

    session_only = True
    tolerance = "lossy"
    conflicts = ("provider_precision",)
    accelerators = tuple(PRECISION_OPTIONS)
    libraries = ("onnxruntime",)

    precision: Annotated[Literal["bf16", "f16"], "type of the arithmetic; f16 is bf16 on CPUs that have only that"] = (
        "bf16"
    )

    @classmethod
    def offer(cls, parameter: ParameterInfo, accelerator: Accelerator) -> ParameterInfo | None:
        values = list(PRECISION_OPTIONS.get(accelerator.execution_provider, {}))
        if accelerator.device == "cpu" and not {"avx512_fp16", "amx_fp16"} & accelerator.isa:
            return parameter
        return replace(parameter, search=Categorical(values)) if values else parameter

    def run(self, model: ModelProto) -> None:
        provider, options = self.context.accelerator.execution_provider, self.context.session_options
        more = PRECISION_OPTIONS.get(provider, {}).get(self.precision)
        if more is None:
            raise Refused(f"{provider} has no option for {self.precision}")
        options["provider_options"] = with_provider_options(options.get("provider_options", {}), more)
