"""Preparing a model for quantisation: shapes known, constants folded, batch normalisation merged."""

from __future__ import annotations

from contextlib import chdir
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from autoopt.passes.base import Pass, Retry
from autoopt.passes.base.conflicts import LAST
from autoopt.passes.onnx_tools.graphs import drop_metadata, is_large
from autoopt.passes.onnx_tools.quiet import quiet
from autoopt.space import Boolean

_MARKS = ("onnx.infer", "onnx.quant.pre_process")


class QuantPreProcess(Pass):
    """Symbolic shape inference, basic graph optimisation and ONNX shape inference, as the quantisers like it.

    Symbolic shape inference gives up on most transformer exports: then the pass is tried again without it.
    """

    target_bound = False
    family: ClassVar[str] = "quantize"
    requires = ("name_fix", "ir_upgrade")
    conflicts = LAST
    takes: ClassVar[Literal["proto", "path"]] = "path"
    libraries = ("onnx", "onnxruntime", "sympy")

    skip_symbolic_shape: Annotated[bool, "leave symbolic shape inference out"] = False
    skip_optimization: Annotated[bool, Boolean(), "leave the graph optimisation out"] = False

    def run(self, model: Path) -> Path | Retry:
        import onnx
        from onnxruntime.quantization.shape_inference import quant_pre_process

        target = self.context.work / "model.onnx"
        large = is_large(onnx.load(model))
        try:
            with quiet(), chdir(self.context.work):  # it leaves a file where it stands
                quant_pre_process(
                    str(model.absolute()),
                    str(target.absolute()),
                    skip_optimization=self.skip_optimization,
                    skip_symbolic_shape=self.skip_symbolic_shape,
                    auto_merge=True,
                    save_as_external_data=large,
                    all_tensors_to_one_file=large,
                    external_data_location="model.onnx.data" if large else None,
                )
        except Exception as error:  # symbolic shape inference raises bare exceptions
            if self.skip_symbolic_shape:
                raise
            return Retry(f"symbolic shape inference failed: {error}", {"skip_symbolic_shape": True})
        made = onnx.load(target, load_external_data=False)
        onnx.save(drop_metadata(made, *_MARKS), target)
        return target
