"""A check with onnx's checker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from autoopt.passes.base import Pass, Refused

if TYPE_CHECKING:
    from onnx import ModelProto


class Checker(Pass):
    """onnx's own checker with full shape inference; an invalid model is refused, the report says why.

    The report `checker` holds `valid` and `message`.
    """

    family: ClassVar[str] = "check"
    analysis = True
    aliases = ("final_check",)

    strict: Annotated[bool, "end the chain where the model is invalid"] = True

    def run(self, model: ModelProto) -> None:
        from autoopt.model import io
        from autoopt.passes.verification.checker import check

        message = check(io.save(model, self.context.work / "checked"))
        self.context.reports["checker"] = {"valid": not message, "message": message}
        if message and self.strict:
            raise Refused(f"the checker rejects the model: {message}")
