"""Conversions of the operator set and the IR version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

from autoopt.passes.base import Pass, Refused, Retry
from autoopt.passes.base.conflicts import RUNTIME_BOUND
from autoopt.passes.onnx_tools.opsets import ir_version_for, opset
from autoopt.passes.onnx_tools.quiet import quiet
from autoopt.passes.onnx_tools.rewriting import apply_ir_passes
from autoopt.space import Categorical

if TYPE_CHECKING:
    from onnx import ModelProto

FALLBACK_OPSETS: Final = (23, 21, 19, 17, 13)
"""Opsets tried in order if the converter fails at the requested one."""


class OpsetConversion(Pass):
    """Converts the model to a newer version of the ai.onnx operators.

    Never converts down, because that loses operators. If the converter fails, the next lower version is tried.
    """

    target_bound = False
    conflicts = RUNTIME_BOUND
    libraries = ("onnx", "onnxscript")
    aliases = ("opset_convert", "OnnxOpVersionConversion")

    target_opset: Annotated[int, Categorical(17, 19, 21, 23), "version of the ai.onnx operators"] = 21
    converter: Annotated[
        Literal["onnxscript", "onnx"], Categorical("onnxscript", "onnx"), "library that does the conversion"
    ] = "onnxscript"

    def run(self, model: ModelProto) -> ModelProto | Retry | None:
        current = opset(model)
        if current in (0, self.target_opset):
            return None
        if current > self.target_opset:
            raise Refused(f"the model is at opset {current}; converting down to {self.target_opset} loses operators")
        try:
            converted = self._convert(model)
        except Exception as error:  # the converters raise several kinds
            for version in FALLBACK_OPSETS:
                if current < version < self.target_opset:
                    return Retry(f"cannot convert to opset {self.target_opset}: {error}", {"target_opset": version})
            raise Refused(f"cannot convert from opset {current} to {self.target_opset}: {error}") from error
        converted.ir_version = max(converted.ir_version, model.ir_version, ir_version_for(self.target_opset))
        return converted

    def _convert(self, model: ModelProto) -> ModelProto:
        with quiet():
            if self.converter == "onnx":
                import onnx

                converted = onnx.version_converter.convert_version(model, self.target_opset)
            else:
                import onnx_ir
                from onnxscript.version_converter import convert_version

                ir_model = onnx_ir.from_proto(model)
                convert_version(ir_model, self.target_opset, fallback=True)
                converted = onnx_ir.to_proto(ir_model)
        # onnxscript stops at an operator that it cannot convert and reports nothing
        if opset(converted) != self.target_opset:
            raise ValueError(f"the converter stopped at opset {opset(converted)}")
        return converted


class IrUpgrade(Pass):
    """Raises the IR version and removes weights from the inputs, where old exporters list them.

    The runtime turns models of IR version 3 into invalid ones when it optimizes them offline.
    """

    target_bound = False
    tolerance = "lossless"
    conflicts = RUNTIME_BOUND
    libraries = ("onnx", "onnx-ir")

    ir_version: Annotated[int, "lowest IR version of the result"] = 8

    def run(self, model: ModelProto) -> ModelProto | None:
        from onnx_ir.passes.common import RemoveInitializersFromInputsPass

        model.ir_version = max(model.ir_version, self.ir_version, ir_version_for(opset(model) or 1))
        return apply_ir_passes(model, RemoveInitializersFromInputsPass())
