"""onnx's checker, and a comparison of the runtime with a second opinion."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from autoopt.model import io
from autoopt.model.session import make_session
from autoopt.passes.base import Pass, Refused
from autoopt.passes.verification.checker import find_defect
from autoopt.passes.verification.equivalence import Reference
from autoopt.passes.verification.output_comparison import compare_outputs
from autoopt.registry import Param
from autoopt.space import Categorical

if TYPE_CHECKING:
    import numpy as np
    from onnx import ModelProto


class Checker(Pass):
    """Runs onnx's checker with full shape inference. Refuses an invalid model, unless `strict` is off.

    The report `checker` holds `valid` and `message`.
    """

    strict: Annotated[bool, "end the chain if the model is invalid"] = True

    def run(self, model: ModelProto) -> None:
        message = find_defect(io.save(model, self.context.work / "checked"))
        self.context.reports["checker"] = {"valid": not message, "message": message}
        if message and self.strict:
            raise Refused(f"the checker rejects the model: {message}")


class EquivalenceCheck(Pass):
    """Runs the model on synthetic inputs and compares the outputs with a second opinion.

    The second opinion is `origin` (another model of the same signature) or, without it, the runtime without graph
    optimization (`oracle: runtime`) or onnx's reference implementation (`oracle: reference`, slow). The report
    `equivalence` holds `same`, `reason`, `max_abs_error` and `max_relative_error`.
    """

    libraries = ("onnx", "onnxruntime")

    origin: Annotated[str | None, Param("path"), "the model to compare with"] = None
    oracle: Annotated[
        Literal["runtime", "reference"], Categorical("runtime", "reference"), "source of the second opinion"
    ] = "runtime"
    tolerance_level: Annotated[Literal["lossless", "equal"], "same bits, or equal up to rounding"] = "equal"
    strict: Annotated[bool, "end the chain if the outputs differ"] = False

    def run(self, model: ModelProto) -> None:
        path = io.save(model, self.context.work / "compared")
        reference = Reference(path, model)
        if self.origin:
            reference = Reference(Path(self.origin), io.load(Path(self.origin)))
        reference.run(model)
        if reference.feeds is None or reference.outputs is None:
            reason = f"cannot be run: {reference.failure}"
            self.context.reports["equivalence"] = {"same": None, "reason": reason}
            return
        expected = reference.outputs
        if self.oracle == "reference":
            expected = _run_reference_implementation(reference.model, reference.feeds)
        outputs = make_session(path, self.context.session_options).run(None, reference.feeds)
        result = compare_outputs(expected, outputs, self.tolerance_level, reference.spread_meter(0).spreads)
        self.context.reports["equivalence"] = {
            "same": result.status == "same",
            "reason": result.reason,
            "max_abs_error": result.max_abs_error,
            "max_relative_error": result.max_relative_error,
        }
        if self.strict and result.status != "same":
            raise Refused(f"not equivalent: {result.reason}")


def _run_reference_implementation(model: ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    from onnx.reference import ReferenceEvaluator

    try:
        return list(ReferenceEvaluator(model).run(None, feeds))
    except Exception as error:  # NotImplementedError and others for operators that it does not know
        raise Refused(f"onnx's reference implementation cannot run the model: {error}") from error
