"""The checks after every pass: onnx's checker, then a comparison of outputs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autoopt.passes.base.lifecycle import describe_error
from autoopt.passes.verification.equivalence import Reference, compare

if TYPE_CHECKING:
    from onnx import ModelProto

    from autoopt.passes.base import Pass


@dataclass(frozen=True)
class Verdict:
    """The result of all checks on a new model."""

    problem: str
    """Reason to reject the model in one line; empty if it is good."""
    details: dict[str, object]
    """Findings for the report: `checker` (a complaint, if any) and the fields of `Equivalence`."""


def find_defect(path: Path) -> str:
    """Run onnx's checker, shape inference included, on the model at `path`.

    Returns:
        The first complaint in one line; empty for a valid model and for ORT format, which only the runtime can check.
    """
    import onnx

    if path.suffix != ".onnx":
        return ""
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except Exception as error:  # ValidationError, InferenceError, decode errors
        return describe_error(error)
    return ""


def verify(
    before: Reference, after: Path, model: ModelProto | None, pass_: Pass, elsewhere: bool = False
) -> tuple[Verdict, Reference]:
    """Check the new model of a pass.

    A complaint of the checker counts only if the input model does not give one too.

    Args:
        before: the input model.
        after: the new model as a file.
        model: the new model parsed; None in ORT format.
        pass_: the pass that made it.
        elsewhere: the target is not the CPU; see `compare`.

    Returns:
        The verdict, and the reference that the next pass is compared with.
    """
    details: dict[str, object] = {}
    defect = find_defect(after)
    if defect:
        details["checker"] = defect
        if pass_.makes_model or not find_defect(before.path):
            return Verdict(f"the checker rejects the new model: {defect}", details), before
    equivalence, reference = compare(before, after, model, pass_, elsewhere)
    details.update(equivalence.to_json())
    problem = ""
    if equivalence.status == "different":
        problem = f"not equivalent to its input: {equivalence.reason}"
    return Verdict(problem, details), reference
