"""onnxruntime's own graph optimization, saved as a model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from autoopt.model.model_file import size_of
from autoopt.model.session import OPTIMIZED_WEIGHTS, write_optimized
from autoopt.model.session_options import session_config
from autoopt.passes.base import Pass, Refused
from autoopt.registry import ParameterInfo
from autoopt.space import Categorical
from autoopt.target import Accelerator


class OrtGraphOptimization(Pass):
    """Saves the graph as onnxruntime optimizes it, so that sessions load the optimized form.

    Must be the last pass: fused and layout-bound operators exist only in this runtime, with level `all` only for this
    CPU.
    """

    depends_on = "host"
    requires = ("name_fix",)
    conflicts = ("ort_format",)
    libraries = ("onnx", "onnxruntime")
    aliases = ("ort_offline", "OrtOptimize")

    level: Annotated[
        Literal["basic", "extended", "all"],
        Categorical("basic", "extended", "all"),
        "basic: portable rewrites; extended: fused operators; all: also memory layouts of this CPU",
    ] = "extended"
    disabled_optimizers: Annotated[list[str], "optimizers to skip, by onnxruntime's names"] = []

    @classmethod
    def offer(cls, parameter: ParameterInfo, accelerator: Accelerator) -> ParameterInfo | None:
        if parameter.name == "level" and accelerator.device != "cpu":
            # Level `all` would add layouts of the CPU that autoopt runs on.
            return replace(parameter, search=Categorical("basic", "extended"))
        return parameter

    def run(self, model: Path) -> Path | None:
        import onnxruntime as ort

        provider = self.context.accelerator.execution_provider
        if provider not in ort.get_available_providers():
            raise Refused(f"{provider} is not in the installed onnxruntime")
        options = {"graph_optimization_level": self.level, "disabled_optimizers": self.disabled_optimizers}
        session_config(options)
        target = self.context.work / "model.onnx"
        entries: dict[str, str] = {}
        if size_of(str(model))["external"]:
            entries[OPTIMIZED_WEIGHTS] = "weights.data"
        try:
            write_optimized(model, target, options, entries, provider)
        except Exception as error:  # onnxruntime's exceptions share no class
            raise Refused(f"onnxruntime rejects the model: {error}") from error
        return target
