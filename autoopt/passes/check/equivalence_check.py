"""A comparison of the runtime with a second opinion."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from autoopt.passes.base import Pass, Refused
from autoopt.registry import Param
from autoopt.space import Categorical

if TYPE_CHECKING:
    from onnx import ModelProto


class EquivalenceCheck(Pass):
    """Runs the model on synthetic feeds and compares it with a second opinion.

    `origin` (another model of the same signature) or, without it, the runtime without graph optimisation
    (`oracle: runtime`) or onnx's reference implementation (`oracle: reference`, slow). The report `equivalence` holds
    `same`, `reason`, `max_abs_error` and `max_relative_error`.
    """

    family: ClassVar[str] = "check"
    analysis = True
    libraries = ("onnx", "onnxruntime")
    aliases = ("check_with_fake_data", "OnnxDiscrepancyCheck")

    origin: Annotated[str | None, Param("path"), "the model to compare with"] = None
    oracle: Annotated[
        Literal["runtime", "reference"], Categorical("runtime", "reference"), "who computes the second opinion"
    ] = "runtime"
    tolerance_level: Annotated[Literal["lossless", "equal"], "same bits, or equal up to rounding"] = "equal"
    strict: Annotated[bool, "end the chain where they differ"] = False

    def run(self, model: ModelProto) -> None:
        from autoopt.model import io
        from autoopt.model.session import make_session
        from autoopt.passes.verification.equivalence import Reference, judge

        path = io.save(model, self.context.work / "compared")
        other = io.load(Path(self.origin)) if self.origin else model
        reference = Reference(Path(self.origin) if self.origin else path, other)
        reference.run(model)
        if reference.feeds is None:
            self._report({"same": None, "reason": f"could not be run: {reference.failure}"})
            return
        expected: Any = reference.outputs
        if self.oracle == "reference":
            expected = _by_reference(other, reference.feeds)
        found = make_session(path, self.context.session_options).run(None, reference.feeds)
        verdict = judge(expected, found, self.tolerance_level)
        self._report(
            {
                "same": verdict.status == "same",
                "reason": verdict.reason,
                "max_abs_error": verdict.max_abs_error,
                "max_relative_error": verdict.max_relative_error,
            }
        )

    def _report(self, report: dict[str, Any]) -> None:
        self.context.reports["equivalence"] = report
        if self.strict and report["same"] is False:
            raise Refused(f"not equivalent: {report['reason']}")


def _by_reference(model: ModelProto, feeds: dict[str, Any]) -> Any:
    from onnx.reference import ReferenceEvaluator

    try:
        return ReferenceEvaluator(model).run(None, feeds)
    except Exception as error:  # NotImplementedError and others for operators it does not know
        raise Refused(f"onnx's reference implementation cannot run the model: {error}") from error
