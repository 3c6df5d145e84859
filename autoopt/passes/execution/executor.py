"""A model taken through passes, one at a time, with a check after each."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from autoopt.json_codec import JsonObject, JsonValue
from autoopt.memory import return_unused
from autoopt.model import io
from autoopt.model.files import bytes_in, digest_folder
from autoopt.model.model_file import artifact_digest
from autoopt.model.repairs import allow_constants
from autoopt.model.roles import Kind
from autoopt.model.session_options import session_config
from autoopt.model.split import digest_files, remove, sizes_of
from autoopt.model.splitting import publish, save_split
from autoopt.outcome import Cause, Outcome
from autoopt.passes.base import Pass, PassContext, Refused, SessionOptions
from autoopt.passes.base.build import build_pass, full_config
from autoopt.passes.base.lifecycle import LifecycleResult, failure_of, model_file, run_lifecycle
from autoopt.passes.execution.current_model import CurrentModel, refuse_too_large
from autoopt.passes.execution.user_code import UserCode
from autoopt.passes.request import FailedAttempt, PassStep, StepReply
from autoopt.passes.verification.equivalence import Reference, verify
from autoopt.passes.verification.fingerprint import strip_notes
from autoopt.registry import PassInfo, form_of
from autoopt.target import Accelerator

if TYPE_CHECKING:
    import numpy as np
    from onnx import ModelProto


MAX_RETRIES: Final = 3
"""Number of times a pass may ask for other parameters in one step."""
CHECKED_ITEMS: Final = 2
"""Items of the user's data that every new model is checked on. Their digest is not part of the key of a pass run: a
result that passed on other items is the same model, and its quality is measured on these."""


@dataclass(frozen=True)
class _PassRun:
    """One run of a pass, retries included."""

    pass_: Pass
    context: PassContext
    result: LifecycleResult
    params: JsonObject
    attempts: tuple[FailedAttempt, ...]


@dataclass
class PassExecutor:
    """Executes passes on a current model, which each successful step replaces."""

    current: CurrentModel
    session_options: JsonObject
    accelerator: Accelerator
    script: UserCode
    data: object
    """Configuration of the calibration data, or None."""
    work: Path
    """Folder for temporary files."""
    check: bool = True
    data_root: str = ""
    reports: dict[str, JsonValue] = field(default_factory=dict)
    """Reports on the current model. A new model starts without any."""
    roles: Mapping[str, Kind] = field(default_factory=dict)
    """Kinds of inputs that the user gives."""
    split_folder: Path | None = None
    """The folder for split models; None if only whole ones can be read."""
    _reply: StepReply = field(init=False)
    """The reply to the current step, completed as it proceeds."""

    def execute(self, step: PassStep, folder: Path) -> StepReply:
        """Run one pass. A new model is written to `folder`; without one, `folder` does not exist afterwards.

        Raises:
            InputError: the pass is unknown.
        """
        started = time.monotonic()
        info = self.script.info(step.pass_name, self.accelerator)
        self._reply = StepReply(
            info.name, Outcome.UNCHANGED, step.params, step.node, session_options=dict(self.session_options)
        )
        try:
            config = full_config(info, step.params)
            self._update_reply(params=config)
            self._check_usable(info)
            self._run_required_analyses(info)
            self._run_and_accept(info, config, folder)
            if self._reply.outcome is Outcome.FAILED and self.check and self.current.path.suffix == ".onnx":
                self._examine_input(info, config, folder)
        except Exception as error:  # raised by libraries that load, save or check: a value like any other failure
            failure = failure_of(error)
            self._update_reply(outcome=failure.outcome, message=failure.message, cause=failure.cause)
        if self._reply.path is None:
            shutil.rmtree(folder, ignore_errors=True)
        return replace(self._reply, seconds=time.monotonic() - started)

    def _examine_input(self, info: PassInfo, config: JsonObject, folder: Path) -> None:
        """Look for the cause of a failure in the input model.

        Runs the pass again if the model declares wrong output shapes, and refuses a model that the runtime cannot run.
        """
        reference = self._input_reference()
        reference.run()
        if reference.outputs is None:
            message = f"the runtime cannot run the input model: {reference.failure}"
            self._update_reply(outcome=Outcome.REFUSED, message=message, cause=Cause.WORK)
        elif self.current.open_wrong_output_shapes(reference.outputs):
            shutil.rmtree(folder, ignore_errors=True)
            self._run_and_accept(info, config, folder)

    def _run_and_accept(self, info: PassInfo, config: JsonObject, folder: Path) -> None:
        attempts: tuple[FailedAttempt, ...] = ()
        while True:
            run = self._run_with_retries(info, config, attempts)
            result = run.result
            self._update_reply(
                params=run.params,
                attempts=run.attempts,
                outcome=result.outcome,
                message=result.message,
                cause=result.cause,
            )
            if run.result.outcome.good:
                self._accept(run, info, folder)
            if self._reply.outcome is not Outcome.FAILED or len(run.attempts) == MAX_RETRIES:
                return
            retry = run.pass_.after_rejection(self._reply.message)
            if retry is None:
                return
            shutil.rmtree(folder, ignore_errors=True)
            attempts = (*run.attempts, FailedAttempt(run.params, retry.reason))
            config = full_config(info, {**run.params, **retry.params})

    def _update_reply(self, **changes: object) -> None:
        self._reply = replace(self._reply, **changes)  # type: ignore[arg-type]  # fields of StepReply

    def _input_reference(self) -> Reference:
        if self.current.reference is None:
            self.current.reference = Reference(
                self.current.path, self.current.outlined, self._user_items(), roles=self.roles
            )
        return self.current.reference

    def _user_items(self) -> tuple[dict[str, np.ndarray], ...]:
        """The first items of the user's data that this model takes, for the check; none if the data cannot be read."""
        source = self._calibration_source()
        if source is None:
            return ()
        try:
            return tuple(islice(source(), CHECKED_ITEMS))
        except Exception:  # raised by any reader of data: a pass that needs the data reports it
            return ()

    def _check_usable(self, info: PassInfo) -> None:
        if info.missing:
            raise Refused(info.missing)
        if info.accelerators and self.accelerator.execution_provider not in info.accelerators:
            raise Refused(f"pass {info.name!r} supports only {', '.join(info.accelerators)}")
        if info.needs_data and self.data is None:
            raise Refused(f"pass {info.name!r} needs calibration data")

    def _run_required_analyses(self, info: PassInfo) -> None:
        """Run the analyses that the pass requires and whose reports on the current model are missing."""
        for name in info.requires:
            required = self.script.info(name, self.accelerator)
            if not required.analysis or required.name in self.reports:
                continue
            run = self._run_with_retries(required, full_config(required, {}))
            if not run.result.outcome.good:
                raise Refused(f"analysis {required.name!r} {run.result.outcome}: {run.result.message}")
            self.reports.update(run.context.reports)

    def _run_with_retries(
        self, info: PassInfo, params: JsonObject, earlier_attempts: Sequence[FailedAttempt] = ()
    ) -> _PassRun:
        """Run a pass, again with other parameters each time it asks for them."""
        attempts = list(earlier_attempts)
        while True:
            pass_ = build_pass(info, params, self.script.objects, self.data_root)
            refuse_too_large(pass_, self.current)
            context = PassContext(
                model_path=self.current.path.absolute(),
                work=Path(tempfile.mkdtemp(dir=self.work)),
                accelerator=self.accelerator,
                session_options=SessionOptions(dict(self.session_options)),
                reports=dict(self.reports),
                calibration=self._calibration_source(),
                objects=self.script.objects,
            )
            pass_.context = context
            result = self._run_on_its_form(pass_, info)
            if result.retry is None:
                return _PassRun(pass_, context, result, params, tuple(attempts))
            attempts.append(FailedAttempt(params, result.retry.reason))
            params = full_config(info, {**params, **result.retry.params})
            failure = ""
            if any(params == attempt.params for attempt in attempts):
                failure = f"asks for parameters that it gave up before: {result.message}"
            elif len(attempts) > MAX_RETRIES:
                failure = f"gave up after {MAX_RETRIES} retries: {result.message}"
            if failure:
                failed = LifecycleResult(Outcome.FAILED, message=failure)
                return _PassRun(pass_, context, failed, params, tuple(attempts))

    def _run_on_its_form(self, pass_: Pass, info: PassInfo) -> LifecycleResult:
        """Run a pass once, on the form of the current model that it takes, in the working directory that suits it."""
        context, form = pass_.context, form_of(type(pass_))
        model: ModelProto | Path | SessionOptions = context.model_path
        if form == "options":
            model = context.session_options
        elif form in ("ir", "proto"):
            model = self.current.copy(lazy=form == "ir")
        folder = Path.cwd()  # the user's code may read files relative to it
        if form == "ir":
            folder = context.model_path.parent  # where the weights are
        elif info.origin == "built-in" and not info.user_script and not info.makes_model:
            folder = context.work  # libraries take names without a folder for files of the working directory
        with chdir(folder):
            return run_lifecycle(pass_, model)

    def _calibration_source(self) -> Callable[[], Iterator[dict[str, np.ndarray]]] | None:
        if self.data is None:
            return None

        usual = Path.cwd()

        def feeds() -> Iterator[dict[str, np.ndarray]]:
            # Late: most passes never read the data, and opening it reads the model.
            from autoopt.passes.execution.calibration import calibration_source

            with chdir(usual):  # the user's code may read files relative to it
                items = calibration_source(self.data, self.current.signature, self.current.path, self.roles)()
                item = next(items, None)
            while item is not None:
                yield item
                with chdir(usual):
                    item = next(items, None)

        return feeds

    def _accept(self, run: _PassRun, info: PassInfo, folder: Path) -> None:
        """Take over what a good run left: reports, session options and the new model."""
        context = run.context
        earlier = self.reports.keys() - {info.name}
        new_reports = {name: report for name, report in context.reports.items() if name not in earlier}
        self._update_reply(reports=new_reports)
        outcome = Outcome.UNCHANGED
        if context.session_options != self.session_options:
            session_config(context.session_options, self.accelerator.execution_provider)
            outcome = Outcome.OK
        replaced = False
        if run.result.model is not None:
            replaced = self._replace_model(run.result.model, run.pass_, folder)
        if not self._reply.outcome.good:
            return
        self.session_options = dict(context.session_options)
        if replaced:
            outcome = Outcome.OK
        else:
            self.reports.update(context.reports)
        self._update_reply(outcome=outcome, session_options=dict(context.session_options))

    def _replace_model(self, result: ModelProto | Path, pass_: Pass, folder: Path) -> bool:
        """Make `result` the current model; False if it equals the current one or fails the checks."""
        model = self._loaded(result)
        if isinstance(result, Path) and (model is None or result.is_dir()):
            path = _move_model(model_file(result), folder)
            if digest_folder(folder) == artifact_digest(self.current.path):
                return False
        else:
            if form_of(type(pass_)) != "source" and self._is_unchanged(model, pass_):
                return False
            if self.split_folder is not None:
                split = save_split(model, self.split_folder)
                if split is not None:
                    return self._take_over_split(split, model, pass_)
                io.load_weights(model, self.split_folder)
            path = io.save(model, folder)
        reference = self._verify(path, model, pass_)
        if not self._reply.outcome.good:
            return False
        self._update_reply(path=folder, digest=digest_folder(folder), bytes=bytes_in(folder))
        self._advance(path, model, reference)
        return True

    def _loaded(self, result: ModelProto | Path) -> ModelProto | None:
        """The model that a pass returned, with the weights that are in no split model; None in ORT format."""
        if isinstance(result, Path):
            file = model_file(result)
            return io.load(file) if file.suffix == ".onnx" else None
        if self.current.path.parent.absolute() != self.split_folder:
            io.load_weights(result, self.current.path.parent)
        return result

    def _take_over_split(self, graph: Path, model: ModelProto, pass_: Pass) -> bool:
        """Make a split model the current one if it passes the checks; else remove it."""
        reference = None
        try:
            reference = self._verify(graph, model, pass_)
        finally:
            if (reference is None and self.check) or not self._reply.outcome.good:
                remove(graph)
        if not self._reply.outcome.good:
            return False
        digest = digest_files(graph)
        path = publish(graph, digest)
        if reference is not None:
            reference.path = path
        self._update_reply(path=path, digest=digest, bytes=sum(sizes_of(path).values()))
        self._advance(path, model, reference)
        return True

    def _advance(self, path: Path, model: ModelProto | None, reference: Reference | None) -> None:
        self.current.release()
        if model is not None and any(io.external_tensors(model)):
            model = None
        if reference is not None and not self.current.is_small:
            reference.close_noise()
        self.current = CurrentModel(path, model, reference, self.current.is_small)
        self.reports = {}

    def _is_unchanged(self, model: ModelProto, pass_: Pass) -> bool:
        """Compare `model` with the current one; strips producer notes from `model`, in place."""
        strip_notes(model, self.current.outlined)
        allow_constants(model)
        return self.current.computes_like(model, pass_.touches)

    def _verify(self, path: Path, model: ModelProto | None, pass_: Pass) -> Reference | None:
        """Check the new model and note the findings in the reply. Returns the reference for the next step."""
        if not self.check:
            return None

        if not self.current.is_small:
            return_unused()
        if form_of(type(pass_)) == "source":
            before = Reference(self.current.path, model, failure="it is not an ONNX model", roles=self.roles)
        else:
            before = self._input_reference()
        off_cpu = self.accelerator.execution_provider != "CPUExecutionProvider"
        verdict, after = verify(before, path, model, pass_, off_cpu)
        self._update_reply(equivalence=verdict.details)
        if verdict.problem:
            self._update_reply(outcome=Outcome.FAILED, message=verdict.problem)
        return after


def _move_model(model: Path, folder: Path) -> Path:
    """Move a model file that a pass wrote, and the files next to it, to `folder`."""
    folder.mkdir(parents=True)
    moved = folder / f"model{model.suffix}"
    for file in model.parent.iterdir():
        if file == model:
            shutil.move(file, moved)
        elif file.is_file():
            shutil.move(file, folder / file.name)
    return moved
