"""Conversions of the operator set and the IR version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from autoopt.passes.base import Pass, Refused, Retry
from autoopt.passes.base.conflicts import LAST
from autoopt.passes.onnx_tools.opsets import ir_version_for, opset
from autoopt.passes.onnx_tools.quiet import quiet
from autoopt.passes.onnx_tools.rewriting import apply_ir
from autoopt.space import Categorical

if TYPE_CHECKING:
    from onnx import ModelProto


NEWEST_OPSETS = (23, 21, 19, 17, 13)


class OpsetConversion(Pass):
    """Converts the model to a newer version of the ai.onnx operators.

    Never downwards, which loses operators. Where the converter fails, the next lower version is tried.
    """

    target_bound = False
    conflicts = LAST
    libraries = ("onnx", "onnxscript")
    aliases = ("opset_convert", "OnnxOpVersionConversion")

    target_opset: Annotated[int, Categorical(17, 19, 21, 23), "version of the ai.onnx operators"] = 21
    converter: Annotated[Literal["onnxscript", "onnx"], Categorical("onnxscript", "onnx"), "library that converts"] = (
        "onnxscript"
    )

    def run(self, model: ModelProto) -> ModelProto | Retry | None:
        current = opset(model)
        if current == 0 or current == self.target_opset:
            return None
        if current > self.target_opset:
            raise Refused(f"the model is at opset {current}; converting down to {self.target_opset} loses operators")
        try:
            made = self._convert(model)
        except Exception as error:  # the converters raise several kinds
            lower = [version for version in NEWEST_OPSETS if current < version < self.target_opset]
            if not lower:
                raise Refused(f"no converter takes it from opset {current} to {self.target_opset}: {error}") from error
            return Retry(f"cannot convert to opset {self.target_opset}: {error}", {"target_opset": lower[0]})
        made.ir_version = max(made.ir_version, model.ir_version, ir_version_for(self.target_opset))
        return made

    def _convert(self, model: ModelProto) -> ModelProto:
        with quiet():
            if self.converter == "onnx":
                import onnx

                made: ModelProto = onnx.version_converter.convert_version(model, self.target_opset)
            else:
                import onnx_ir
                from onnxscript.version_converter import convert_version

                form = onnx_ir.from_proto(model)
                convert_version(form, self.target_opset, fallback=True)
                made = onnx_ir.to_proto(form)
        if opset(made) != self.target_opset:
            raise ValueError(f"the converter stopped at opset {opset(made)}")
        return made


class IrUpgrade(Pass):
    """Raises the IR version and takes weights out of the inputs, as old exporters left them.

    Models of IR version 3 give invalid ones when the runtime optimises them offline.
    """

    target_bound = False
    tolerance = "lossless"
    conflicts = LAST
    libraries = ("onnx", "onnx-ir")

    ir_version: Annotated[int, "lowest IR version to leave"] = 8

    def run(self, model: ModelProto) -> ModelProto | None:
        from onnx_ir.passes.common import RemoveInitializersFromInputsPass

        wanted = max(model.ir_version, self.ir_version, ir_version_for(opset(model) or 1))
        model.ir_version = wanted
        return apply_ir(model, RemoveInitializersFromInputsPass())
