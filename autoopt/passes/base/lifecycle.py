"""One run of one pass: `initialize`, `run`, `finalize`, each exactly once."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from autoopt.errors import InputError, allocation_text, one_line
from autoopt.model.io import load, save
from autoopt.model.lazy_imports import ir
from autoopt.model.random_nodes import distinct_seeds
from autoopt.outcome import Cause, Outcome, cause_of
from autoopt.passes.base.contract import PassContext, Refused, Retry, SessionOptions, Touch
from autoopt.passes.base.conversion import keep_apart, to_ir, to_proto
from autoopt.registry import form_of
from autoopt.script import script_line
from autoopt.target import Accelerator

if TYPE_CHECKING:
    from onnx import ModelProto

_SEVERITY = (Outcome.UNCHANGED, Outcome.OK, Outcome.RETRY, Outcome.REFUSED, Outcome.FAILED, Outcome.OUT_OF_MEMORY)
"""Outcomes of a phase from the weakest to the strongest; the strongest of the three counts."""


class LifecyclePass(Protocol):
    """The part of `Pass` that its lifecycle uses."""

    touches: ClassVar[tuple[Touch, ...]]
    context: PassContext

    def initialize(self) -> Retry | None: ...

    def run(self, model: Any) -> Any: ...  # noqa: ANN401  as its annotation says

    def finalize(self) -> Retry | None: ...


@dataclass(frozen=True)
class LifecycleResult:
    """The end of one run of a pass."""

    outcome: Outcome
    model: ModelProto | Path | None = None
    """The new model, or the file or folder in which it is; set where the outcome is `ok`."""
    message: str = ""
    cause: Cause = Cause.WORK
    """Of a failure."""
    retry: Retry | None = None
    """The adjusted parameters; set where the outcome is `retry`."""


def run_lifecycle(pass_: LifecyclePass, model: ModelProto | Path | SessionOptions) -> LifecycleResult:
    """Run `pass_` once on `model`, a protobuf for a pass that takes a model in memory.

    Skips `run` if `initialize` fails or asks for a retry. Always calls `finalize`.
    """
    phases = [_run_phase(pass_.initialize, makes_model=False)]
    if phases[0].outcome.good:
        phases.append(_run_phase(lambda: _run_protected(pass_, model), makes_model=True))
    phases.append(_run_phase(pass_.finalize, makes_model=False))
    return max(phases, key=lambda phase: _SEVERITY.index(phase.outcome))


def _run_protected(pass_: LifecyclePass, model: ModelProto | Path | SessionOptions) -> ModelProto | Path | Retry | None:
    """Call `run` on a form of the model that libraries read rightly.

    No two random nodes are alike, so that no library joins them, and what libraries cannot hold is kept apart.
    """
    if isinstance(model, Path) or not hasattr(model, "graph"):
        return run_on_form(pass_, model)
    kept = keep_apart(model, with_outputs="outputs" not in pass_.touches)
    with distinct_seeds(model) as seeds:
        result = run_on_form(pass_, model)
        if hasattr(result, "graph"):
            seeds.restore(result)
    if hasattr(result, "graph"):
        kept.put_back(result)
    return result


def run_on_form(pass_: LifecyclePass, model: ModelProto | Path | SessionOptions) -> ModelProto | Path | Retry | None:
    """Call `run` on the form that the pass takes, and return a protobuf for a model of onnx-ir."""
    taken: ir.Model | ModelProto | Path | SessionOptions = model
    if form_of(type(pass_)) == "ir":
        taken = to_ir(model)
    result: ir.Model | ModelProto | Path | Retry | None = pass_.run(taken)
    if hasattr(result, "opset_imports"):
        return to_proto(result)
    return result


def _run_phase(phase: Callable[[], ModelProto | Path | Retry | None], makes_model: bool) -> LifecycleResult:
    try:
        result = phase()
    except Exception as error:  # a pass is third-party code: its failure is a value
        return failure_of(error)
    if isinstance(result, Retry):
        return LifecycleResult(Outcome.RETRY, message=result.reason, retry=result)
    if result is None or not makes_model:
        return LifecycleResult(Outcome.UNCHANGED)
    if not isinstance(result, Path) and not hasattr(result, "graph"):
        text = f"returned {type(result).__name__}, not a model, a path or None"
        return LifecycleResult(Outcome.FAILED, message=text)
    return LifecycleResult(Outcome.OK, result)


def failure_of(error: Exception) -> LifecycleResult:
    """The end of a pass that raised an exception."""
    outcome = _outcome_of(error)
    return LifecycleResult(outcome, message=_text_of(error), cause=cause_of(error, outcome))


def _outcome_of(error: Exception) -> Outcome:
    if isinstance(error, MemoryError) or "bad_alloc" in str(error):
        return Outcome.OUT_OF_MEMORY
    if isinstance(error, (ModuleNotFoundError, InputError)):
        return Outcome.REFUSED
    declared = getattr(error, "outcome", None)
    if isinstance(declared, Outcome):
        return declared
    return Outcome.FAILED


def describe_error(error: Exception) -> str:
    """One line of at most 500 characters: the text of a refusal, otherwise `Type: text`.

    An error for a full disk is raised again, because it says nothing about a model.
    """
    if cause_of(error, Outcome.FAILED) is Cause.FULL_DISK:
        raise error
    return _text_of(error)


def _text_of(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name:
        return one_line(f"{error.name} is not installed; pip install {error.name.partition('.')[0]}")
    place = script_line(error)
    kind = type(error).__name__
    if place:
        kind = f"{kind} at {place}"
    text = f"{kind}: {allocation_text(error) or error}"
    if isinstance(error, (Refused, InputError)):
        text = str(error)
    return one_line(text)[:500]


def run_on_proto(pass_: LifecyclePass, model: ModelProto, context: PassContext) -> LifecycleResult:
    """Run `pass_` on a ModelProto, whichever form it takes. The result holds a ModelProto too."""
    pass_.context = context
    form = form_of(type(pass_))
    if form == "options":
        return run_lifecycle(pass_, context.session_options)
    if form in ("ir", "proto"):
        return run_lifecycle(pass_, model)

    with tempfile.TemporaryDirectory(dir=context.work) as folder:
        path = save(model, Path(folder) / "input")
        pass_.context = replace(context, model_path=path, work=Path(tempfile.mkdtemp(dir=folder)))
        result = run_lifecycle(pass_, path)
        if isinstance(result.model, Path):
            # The folder is about to be removed.
            return replace(result, model=load(model_file(result.model)))
        return result


def model_file(path: Path) -> Path:
    """The file of a model that a pass returned: the file itself, or the one in the folder."""
    if not path.is_dir():
        return path
    return next(path / name for name in ("model.onnx", "model.ort") if (path / name).exists())


def run_in_process(pass_: LifecyclePass, model: ModelProto) -> ModelProto:
    """Run `pass_` on a copy of `model` in this process.

    Raises:
        Refused: the pass refuses, fails, or asks for other parameters. The text says why.
        TypeError: `model` is something else, such as a path.
    """
    from onnx import ModelProto

    name = type(pass_).__name__
    if not isinstance(model, ModelProto):
        raise TypeError(f"{name} takes a ModelProto, not {type(model).__name__}; read a file with onnx.load()")
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        context = PassContext(model_path=save(model, work / "source"), work=work, accelerator=Accelerator())
        result = run_on_proto(pass_, deepcopy(model), context)
    if not result.outcome.good:
        raise Refused(f"{name} {result.outcome}: {result.message}")
    if result.outcome is Outcome.UNCHANGED:
        return model
    return result.model
