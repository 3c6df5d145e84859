"""Models prepared for quantization: shapes inferred, constants folded, batch normalization merged."""

from __future__ import annotations

from contextlib import chdir
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal

from autoopt.model import io
from autoopt.passes.base import Pass, Retry
from autoopt.passes.base.conflicts import RUNTIME_BOUND
from autoopt.passes.onnx_tools.graphs import drop_metadata, is_large
from autoopt.passes.onnx_tools.libraries import quiet
from autoopt.passes.onnx_tools.opsets import at_least_opset, opset
from autoopt.space import Boolean

LOWEST_OPSET: Final = 13
"""Quantization per channel needs this one."""
_MARKS: Final = ("onnx.infer", "onnx.quant.pre_process")
"""Metadata keys that the tool leaves behind."""


class QuantPreProcess(Pass):
    """Prepares a model for the quantizers: symbolic shape inference, basic graph optimization, ONNX shape inference.

    Models of old operator sets are upgraded first. Symbolic shape inference fails on most transformer exports; the pass
    then runs again without it.
    """

    target_bound = False
    requires = ("name_fix", "ir_upgrade")
    conflicts = RUNTIME_BOUND
    takes: ClassVar[Literal["proto", "path"]] = "path"
    libraries = ("onnx", "onnxruntime", "sympy")

    skip_symbolic_shape: Annotated[bool, "skip symbolic shape inference"] = False
    skip_optimization: Annotated[bool, Boolean(), "skip graph optimization"] = False

    def run(self, model: Path) -> Path | Retry:
        import onnx
        from onnxruntime.quantization.shape_inference import quant_pre_process

        target = self.context.work / "model.onnx"
        source = io.load(model)
        large = is_large(source)
        if 0 < opset(source) < LOWEST_OPSET:
            # onnxruntime's optimizer turns old operators into ones that no converter knows at their opset.
            model = io.save(at_least_opset(source, LOWEST_OPSET), self.context.work / "converted")
        external_data = None
        if large:
            external_data = "model.onnx.data"
        try:
            # Symbolic shape inference writes a file into the working directory if it fails.
            with quiet(), chdir(self.context.work):
                quant_pre_process(
                    str(model.absolute()),
                    str(target.absolute()),
                    skip_optimization=self.skip_optimization,
                    skip_symbolic_shape=self.skip_symbolic_shape,
                    auto_merge=True,
                    save_as_external_data=large,
                    all_tensors_to_one_file=large,
                    external_data_location=external_data,
                )
        except Exception as error:  # symbolic shape inference raises bare exceptions
            if self.skip_symbolic_shape:
                raise
            return Retry(f"symbolic shape inference failed: {error}", {"skip_symbolic_shape": True})
        prepared = onnx.load(target, load_external_data=False)
        onnx.save(drop_metadata(prepared, *_MARKS), target)
        return target
