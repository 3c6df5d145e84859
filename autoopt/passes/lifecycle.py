"""One run of one pass: initialise, run, finalise, each exactly once; the outcomes of all three combine."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoopt.errors import InputError, one_line
from autoopt.outcome import Outcome
from autoopt.passes.base import Pass, PassContext, Refused, Retry
from autoopt.target import Accelerator

if TYPE_CHECKING:
    from onnx import ModelProto

_ORDER = (Outcome.UNCHANGED, Outcome.OK, Outcome.RETRY, Outcome.REFUSED, Outcome.FAILED, Outcome.OUT_OF_MEMORY)
"""From the weakest to the strongest: the strongest of the three phases is the run's."""


@dataclass(frozen=True)
class Ended:
    """How a run of a pass ended. `model`: a ModelProto or Path where the outcome is ok; `retry` where it is retry."""

    outcome: Outcome
    model: Any = None
    message: str = ""
    retry: Retry | None = None


def drive(pass_: Pass, model: Any) -> Ended:
    """Run the lifecycle of `pass_` once on `model` (a ModelProto or a path, whichever it takes).

    `run` is left out where `initialize` failed or asks for a retry; `finalize` is always called.
    """
    phases = [_phase(pass_.initialize, makes_model=False)]
    if phases[0].outcome.good:
        phases.append(_phase(lambda: pass_.run(model), makes_model=True))
    phases.append(_phase(pass_.finalize, makes_model=False))
    return max(phases, key=lambda ended: _ORDER.index(ended.outcome))


def _phase(call: Callable[[], Any], makes_model: bool) -> Ended:
    try:
        result = call()
    except Exception as error:  # a pass is third-party work: its failure is a value
        return Ended(outcome_of(error), message=describe_error(error))
    if isinstance(result, Retry):
        return Ended(Outcome.RETRY, message=result.reason, retry=result)
    return Ended(Outcome.OK, result) if makes_model and result is not None else Ended(Outcome.UNCHANGED)


def outcome_of(error: Exception) -> Outcome:
    """The outcome that an exception of a pass stands for."""
    if isinstance(error, MemoryError) or "bad_alloc" in str(error):
        return Outcome.OUT_OF_MEMORY
    if isinstance(error, (ModuleNotFoundError, InputError)):
        return Outcome.REFUSED
    declared = getattr(error, "outcome", None)
    return declared if isinstance(declared, Outcome) else Outcome.FAILED


def describe_error(error: Exception) -> str:
    """One line: the text of a refusal, else `Type: text`, at most 500 characters."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        return one_line(f"{error.name} is not installed; pip install {error.name.partition('.')[0]}")
    text = str(error) if isinstance(error, (Refused, InputError)) else f"{type(error).__name__}: {error}"
    return one_line(text)[:500]


def on_proto(pass_: Pass, model: ModelProto, context: PassContext) -> Ended:
    """Run `pass_` on a ModelProto whatever it takes; the result holds a ModelProto too."""
    pass_.context = context
    if pass_.takes == "proto":
        return drive(pass_, model)
    from autoopt.model.io import load, save

    with tempfile.TemporaryDirectory(dir=context.work) as folder:
        pass_.context = PassContext(
            model_path=save(model, Path(folder) / "input"),
            work=Path(tempfile.mkdtemp(dir=folder)),
            accelerator=context.accelerator,
            session_options=context.session_options,
            reports=context.reports,
            calibration=context.calibration,
            objects=context.objects,
        )
        ended = drive(pass_, pass_.context.model_path)
        if ended.outcome is Outcome.OK:
            return Ended(ended.outcome, load(ended.model), ended.message)
        return ended


def call_here(pass_: Pass, model: ModelProto) -> ModelProto:
    """Run `pass_` on a copy of `model` in this process.

    Raises:
        Refused: the pass refuses, fails, or asks for other parameters; the text says why.
    """
    from autoopt.model.io import save

    copy = type(model)()
    copy.CopyFrom(model)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        context = PassContext(model_path=save(model, work / "source"), work=work, accelerator=Accelerator())
        ended = on_proto(pass_, copy, context)
    if not ended.outcome.good:
        raise Refused(f"{type(pass_).__name__} {ended.outcome}: {ended.message}")
    return ended.model if ended.outcome is Outcome.OK else model
