"""The arithmetic of an execution provider, other than that of the model, as a pass."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Literal

from autoopt.passes.base import Pass

if TYPE_CHECKING:
    from onnx import ModelProto


class ProviderPrecision(Pass):
    """Has OpenVINO compute in bfloat16 where it has kernels for that. The graph stays as it is."""

    session_only = True
    tolerance = "lossy"
    memory_factor = 0.0
    conflicts = ("provider_precision",)
    accelerators = ("OpenVINOExecutionProvider",)
    libraries = ("onnxruntime",)

    precision: Annotated[Literal["bf16"], "type of the arithmetic"] = "bf16"

    def run(self, model: ModelProto) -> None:
        options = self.context.session_options
        config = json.dumps({"CPU": {"INFERENCE_PRECISION_HINT": self.precision}})
        options["provider_options"] = {**options.get("provider_options", {}), "load_config": config}
