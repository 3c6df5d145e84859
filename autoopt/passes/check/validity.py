"""A check with onnx's checker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from autoopt.passes.base import Pass, Refused

if TYPE_CHECKING:
    from onnx import ModelProto


class Checker(Pass):
    """Runs onnx's checker with full shape inference. Refuses an invalid model, unless `strict` is off.

    The report `checker` holds `valid` and `message`.
    """

    analysis = True
    aliases = ("final_check",)

    strict: Annotated[bool, "end the chain if the model is invalid"] = True

    def run(self, model: ModelProto) -> None:
        from autoopt.model import io
        from autoopt.passes.verification.checker import find_defect

        message = find_defect(io.save(model, self.context.work / "checked"))
        self.context.reports["checker"] = {"valid": not message, "message": message}
        if message and self.strict:
            raise Refused(f"the checker rejects the model: {message}")
