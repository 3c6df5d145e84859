"""One candidate taken through passes, one step at a time."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from autoopt.errors import InputError
from autoopt.outcome import Outcome
from autoopt.passes.base import Pass, PassContext, Refused, Touch
from autoopt.passes.base.build import build_pass
from autoopt.passes.base.config import full_config
from autoopt.passes.base.lifecycle import LifecycleResult, describe_error, outcome_of, run_lifecycle
from autoopt.passes.execution.user_code import UserCode
from autoopt.registry import PassInfo
from autoopt.target import Accelerator

if TYPE_CHECKING:
    import numpy as np
    from onnx import ModelProto

    from autoopt.passes.verification.equivalence import Reference


RETRIES: Final = 3
"""How often a pass that asks for other parameters is tried again."""


@dataclass
class StepResult:
    """What became of one step; JSON values only. See `runner.run`."""

    params: dict[str, Any]
    outcome: Outcome = Outcome.UNCHANGED
    message: str = ""
    path: str | None = None
    digest: str | None = None
    bytes: int | None = None
    session_options: dict[str, Any] = field(default_factory=dict)
    reports: dict[str, Any] = field(default_factory=dict)
    attempts: list[dict[str, Any]] = field(default_factory=list)
    equivalence: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    node: str = ""
    name: str = ""


@dataclass
class Stepper:
    """The candidate at hand and what passes may use. `step` moves it on; it stays where a step is not good."""

    path: Path
    session_options: dict[str, Any]
    accelerator: Accelerator
    script: UserCode
    data: Any
    """Configuration of the calibration data, or None."""
    work: Path
    check: bool = True
    data_root: str = ""
    reports: dict[str, Any] = field(default_factory=dict)
    """Reports on the model at hand; those of its predecessors are gone."""
    _model: ModelProto | None = None
    _fingerprints: dict[tuple[Touch, ...], str] = field(default_factory=dict)
    _reference: Reference | None = None

    @property
    def model(self) -> ModelProto:
        """The model at hand, loaded once; never handed to a pass itself, only copies of it."""
        if self._model is None:
            from autoopt.model import io

            if self.path.suffix == ".ort":
                raise Refused("the model is in ORT format, which no graph pass takes")
            self._model = io.load(self.path)
        return self._model

    def step(self, name: str, params: Mapping[str, Any], folder: Path) -> StepResult:
        """Run one pass; a new model goes to `folder`.

        Raises:
            InputError: unknown pass.
        """
        info = self.script.info(name, self.accelerator)
        result = StepResult(dict(params), session_options=dict(self.session_options), name=info.name)
        try:
            result.params = full_config(info, params)
            self._refuse_early(info)
            self._analyse(info)
            ended, pass_, context = self._try(info, result)
            result.outcome, result.message = ended.outcome, ended.message
            if ended.outcome is Outcome.FAILED:
                self._excuse(result)
            if ended.outcome.good:
                self._accept(ended, info, pass_, context, folder, result)
        except InputError as error:
            result.outcome, result.message = Outcome.REFUSED, str(error)
        except Exception as error:  # of the libraries that load, save and check: a value like any other failure
            result.outcome, result.message = outcome_of(error), describe_error(error)
        if result.outcome is not Outcome.OK or result.path is None:
            shutil.rmtree(folder, ignore_errors=True)
            result.path = result.digest = result.bytes = None
        return result

    def _excuse(self, result: StepResult) -> None:
        """A pass that fails on a model which the runtime does not take either has refused it."""
        if not self.check or self.path.suffix != ".onnx":
            return
        from autoopt.passes.verification.equivalence import Reference

        before = self._reference or Reference(self.path, self.model)
        before.run()
        if before.outputs is None:
            result.outcome = Outcome.REFUSED
            result.message = f"the runtime does not run the model: {before.failure}; the pass says: {result.message}"

    def _refuse_early(self, info: PassInfo) -> None:
        if info.missing:
            raise Refused(info.missing)
        if info.accelerators and self.accelerator.execution_provider not in info.accelerators:
            raise Refused(f"pass {info.name!r} is for {', '.join(info.accelerators)}")
        if info.needs_data and self.data is None:
            raise Refused(f"pass {info.name!r} needs calibration data, and none is given")

    def _analyse(self, info: PassInfo) -> None:
        """Run the analyses that the pass requires and that the model at hand does not have yet."""
        for name in info.requires:
            needed = self.script.info(name, self.accelerator)
            if needed.analysis and needed.name not in self.reports:
                ended, _, context = self._try(needed, StepResult(full_config(needed, {})))
                if not ended.outcome.good:
                    raise Refused(f"the analysis {needed.name!r} ended {ended.outcome}: {ended.message}")
                self.reports.update(context.reports)

    def _try(self, info: PassInfo, result: StepResult) -> tuple[LifecycleResult, Pass, PassContext]:
        """Run the pass, again with other parameters where it asks for that; `result` keeps parameters and attempts."""
        while True:
            pass_ = build_pass(info, result.params, self.script.objects, self.data_root)
            context = PassContext(
                model_path=self.path,
                work=Path(tempfile.mkdtemp(dir=self.work)),
                accelerator=self.accelerator,
                session_options=dict(self.session_options),
                reports=dict(self.reports),
                calibration=self._feeds,
                objects=self.script.objects,
            )
            pass_.context = context
            ended = run_lifecycle(pass_, self._input(pass_))
            if ended.retry is None:
                return ended, pass_, context
            result.attempts.append({"params": result.params, "reason": ended.retry.reason})
            result.params = full_config(info, {**result.params, **ended.retry.params})
            if any(result.params == attempt["params"] for attempt in result.attempts):
                return (
                    LifecycleResult(Outcome.FAILED, message=f"asks for parameters it had before: {ended.message}"),
                    pass_,
                    context,
                )
            if len(result.attempts) > RETRIES:
                return (
                    LifecycleResult(Outcome.FAILED, message=f"gave up after {RETRIES} retries: {ended.message}"),
                    pass_,
                    context,
                )

    @property
    def _feeds(self) -> Callable[[], Iterator[dict[str, np.ndarray]]] | None:
        if self.data is None:
            return None

        def feeds() -> Iterator[dict[str, np.ndarray]]:
            from autoopt.passes.execution.calibration import calibration_of

            return calibration_of(self.data, self.model, self.path)()

        return feeds

    def _input(self, pass_: Pass) -> Any:
        if pass_.takes == "path":
            return self.path
        copy = type(self.model)()
        copy.CopyFrom(self.model)
        return copy

    def _accept(
        self,
        ended: LifecycleResult,
        info: PassInfo,
        pass_: Pass,
        context: PassContext,
        folder: Path,
        result: StepResult,
    ) -> None:
        result.reports = {k: v for k, v in context.reports.items() if k not in self.reports or k == info.name}
        options_changed = context.session_options != self.session_options
        if options_changed:
            from autoopt.model.session import check_session_options

            check_session_options(context.session_options, self.accelerator.execution_provider)
        moved = False
        if ended.model is not None and not info.analysis and not info.session_only:
            moved = self._take(ended.model, pass_, folder, result)
        if not result.outcome.good:
            return
        self.session_options = dict(context.session_options)
        result.session_options = dict(context.session_options)
        result.outcome = Outcome.OK if moved or options_changed else Outcome.UNCHANGED
        if not moved:
            self.reports.update(context.reports)

    def _take(self, made: Any, pass_: Pass, folder: Path, result: StepResult) -> bool:
        """Make `made` the model at hand if it differs and passes the checks; whether it did."""
        from autoopt.model import io
        from autoopt.model.files import bytes_in, digest_folder

        model = made
        if isinstance(made, Path):
            model = io.load(made) if made.suffix == ".onnx" else None
        if model is None or pass_.layout:
            path = _keep_files(made, folder)
            if digest_folder(folder) == digest_folder(self.path.parent):
                return False
        elif not pass_.makes_model and self._same(model, pass_):
            return False
        else:
            path = io.save(model, folder)
        reference = self._checked(path, model, pass_, result)
        if not result.outcome.good:
            return False
        result.path, result.digest, result.bytes = str(folder), digest_folder(folder), bytes_in(folder)
        self.path, self._model, self._reference = path, model, reference
        self._fingerprints, self.reports = {}, {}
        return True

    def _same(self, model: ModelProto, pass_: Pass) -> bool:
        """Whether `model` is the model at hand, but for what the pass does not touch; notes are stripped from it."""
        from autoopt.passes.verification.fingerprint import allow_constants, fingerprint, strip_notes

        strip_notes(model, self.model)
        allow_constants(model)
        kinds = pass_.touches
        if kinds not in self._fingerprints:
            self._fingerprints[kinds] = fingerprint(self.model, kinds)
        return fingerprint(model, kinds) == self._fingerprints[kinds]

    def _checked(self, path: Path, model: ModelProto | None, pass_: Pass, result: StepResult) -> Reference | None:
        if not self.check:
            return None
        from autoopt.passes.verification.checker import verify
        from autoopt.passes.verification.equivalence import Reference

        if pass_.makes_model:
            before = Reference(self.path, model, failure="it is no ONNX model")
        else:
            before = self._reference or Reference(self.path, self.model)
        elsewhere = self.accelerator.execution_provider != "CPUExecutionProvider"
        verdict, after = verify(before, path, model, pass_, elsewhere)
        result.equivalence = verdict.details
        if verdict.problem:
            result.outcome, result.message = Outcome.FAILED, verdict.problem
        return after


def _keep_files(made: Path, folder: Path) -> Path:
    """Move the model file a pass wrote, and what lies beside it, to `folder`."""
    folder.mkdir(parents=True)
    for file in made.parent.iterdir():
        if file.is_file():
            shutil.move(file, folder / (f"model{made.suffix}" if file == made else file.name))
    return folder / f"model{made.suffix}"
