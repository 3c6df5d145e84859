"""What is checked after every pass: onnx's checker, then the quick equivalence check."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoopt.passes.base.lifecycle import describe_error
from autoopt.passes.verification.equivalence import Reference, compare

if TYPE_CHECKING:
    from onnx import ModelProto

    from autoopt.passes.base import Pass


@dataclass(frozen=True)
class Verdict:
    """`problem` is empty where the new model may be used."""

    problem: str
    details: dict[str, Any]


def check(path: Path) -> str:
    """What onnx's checker (full, with shape inference) says against the model at `path`; empty if nothing.

    ORT-format files are left to the runtime.
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
    """Check the new model at `after`; also the reference for the pass that follows. `elsewhere`: see `compare`.

    What the checker holds against it counts only where it does not hold it against the input model too.
    """
    details: dict[str, Any] = {}
    complaint = check(after)
    if complaint:
        details["checker"] = complaint
        if pass_.makes_model or not check(before.path):
            return Verdict(f"the checker rejects the new model: {complaint}", details), before
    found, reference = compare(before, after, model, pass_, elsewhere)
    details.update(found.to_json())
    problem = f"not equivalent to its input: {found.reason}" if found.status == "different" else ""
    return Verdict(problem, details), reference
