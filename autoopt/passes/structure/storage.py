"""The form in which a model is stored: weights next to the graph, or ONNX Runtime's own format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

from autoopt.model import io
from autoopt.model.lazy_imports import onnx
from autoopt.model.session import write_optimized
from autoopt.passes.base import Pass, Refused
from autoopt.registry import Minimum
from autoopt.space import Categorical

LARGEST_ORT_MODEL: Final = (1 << 31) - 1
"""Bytes of the largest FlatBuffer."""


class ExternalData(Pass):
    """Stores large weights in a file next to the graph, which allows memory mapping and models above 2 GiB."""

    tolerance = "lossless"
    conflicts = ("ort_format",)

    size_threshold: Annotated[
        int, Minimum(0), Categorical(1024, 1_000_000), "smaller tensors (in bytes) stay in the graph"
    ] = 1024

    def run(self, model: Path) -> Path | None:
        loaded = io.load(model)  # a separate copy, because onnx.save_model empties the tensors that it moves out
        target = self.context.work / "model.onnx"
        onnx.save_model(
            loaded,
            target,
            save_as_external_data=True,
            all_tensors_to_one_file=True,
            location="model.onnx.data",
            size_threshold=self.size_threshold,
            convert_attribute=False,
        )
        if not (self.context.work / "model.onnx.data").exists():
            return None
        return self.context.work


class OrtFormat(Pass):
    """Stores the model in ONNX Runtime's own format, optimized to `level`. Must be the last pass.

    Loads faster and needs no graph optimizer. The result of level `all` depends on this machine's CPU.
    """

    depends_on = "host"
    conflicts = ("ort_format",)
    requires = ("name_fix",)
    accelerators = ("CPUExecutionProvider",)
    libraries = ("onnx", "onnxruntime")

    level: Annotated[
        Literal["disable", "basic", "extended", "all"],
        Categorical("basic", "extended", "all"),
        "level of graph optimization before storing",
    ] = "extended"

    def run(self, model: Path) -> Path:
        locations = io.external_locations(io.parse(model))
        size = sum(file.stat().st_size for file in (model, *(model.parent / location for location in locations)))
        if size > LARGEST_ORT_MODEL:
            raise Refused(f"the ORT format holds at most 2 GiB, the model has {size / (1 << 30):.1f} GiB")
        target = self.context.work / "model.ort"
        options = {"graph_optimization_level": self.level}
        try:
            write_optimized(model, target, options, {"session.save_model_format": "ORT"})
        except Exception as error:  # onnxruntime's exceptions share no class
            raise Refused(f"onnxruntime cannot store the model: {error}") from error
        return self.context.work
