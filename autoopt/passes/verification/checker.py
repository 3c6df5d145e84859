"""The checks after every pass: onnx's checker, then a comparison of outputs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from autoopt.model.lazy_imports import onnx
from autoopt.passes.base.lifecycle import describe_error
from autoopt.passes.onnx_tools.graphs import ORT_DOMAIN, is_standard, walk_nodes
from autoopt.passes.onnx_tools.opsets import import_ort_domain
from autoopt.passes.verification.equivalence import Reference, compare
from autoopt.registry import form_of

if TYPE_CHECKING:
    from onnx import ModelProto

    from autoopt.passes.base import Pass

RUNTIME_OPS: Final = ("LayerNormalization", "SimplifiedLayerNormalization")
"""Operators of onnxruntime that it registers in ONNX's own domain, where ONNX has none of that name, or not yet."""


@dataclass(frozen=True)
class CheckResult:
    """The result of all checks on a new model."""

    problem: str
    """Reason to reject the model in one line; empty if it is good."""
    details: dict[str, object]
    """Findings for the report: `checker` (a complaint, if any) and the fields of `Equivalence`."""


def find_defect(path: Path) -> str:
    """Run onnx's checker with shape inference on the model at `path`; returns its first complaint in one line.

    Empty for a valid model and for ORT format, which only the runtime can check.
    """
    if path.suffix != ".onnx":
        return ""
    defect = _complaint(path)
    if any(f"No Op registered for {op} " in defect for op in RUNTIME_OPS):
        return _complaint_besides_runtime_ops(path)
    return defect


def _complaint(path: Path) -> str:
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except Exception as error:  # ValidationError, InferenceError, decode errors
        return describe_error(error)
    return ""


def _complaint_besides_runtime_ops(path: Path) -> str:
    """Check a copy in which the runtime's own operators have its domain, so that the checker does not look them up."""
    model = onnx.load(path, load_external_data=False)
    for node in walk_nodes(model.graph):
        if node.op_type in RUNTIME_OPS and is_standard(node):
            node.domain = ORT_DOMAIN
    import_ort_domain(model)
    # Beside the model, because external data are looked for there. Others may check the same model meanwhile.
    copy = path.with_name(f".{os.urandom(8).hex()}{path.suffix}")
    try:
        onnx.save(model, copy)
        return _complaint(copy)
    finally:
        copy.unlink(missing_ok=True)


def verify(
    before: Reference, after: Path, model: ModelProto | None, pass_: Pass, off_cpu: bool = False
) -> tuple[CheckResult, Reference]:
    """Check the new model of a pass; the arguments and the reference that it returns are those of `compare`.

    A complaint of the checker counts only if the input model does not give one too.
    """
    details: dict[str, object] = {}
    defect = find_defect(after)
    if defect:
        details["checker"] = defect
        if form_of(type(pass_)) == "source" or not find_defect(before.path):
            return CheckResult(f"the checker rejects the new model: {defect}", details), before
    equivalence, reference = compare(before, after, model, pass_, off_cpu)
    details.update(equivalence.to_json())
    problem = ""
    if equivalence.status == "different":
        problem = f"not equivalent to its input: {equivalence.reason}"
    return CheckResult(problem, details), reference
