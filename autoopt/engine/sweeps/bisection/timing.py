"""Measure the models of several combinations in turns, each in a process of its own, and profile their operators."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from autoopt.data import DataConfig
from autoopt.engine.sweeps.bisection.variants import VariantModel
from autoopt.errors import SystemFailure
from autoopt.json_codec import JsonObject, JsonValue, from_json
from autoopt.measure.latency.in_turns import CallWorker, RemoteSubject, Round, measure_round, pooled_ratios
from autoopt.measure.request import MeasureRequest
from autoopt.measure.settings import MeasurementSettings
from autoopt.metrics import Estimate
from autoopt.model.model_file import ModelFile
from autoopt.passes.request import PassRequest, PassStep
from autoopt.results.bisection import OperatorDifference
from autoopt.store import RunRecord
from autoopt.target import ALL_THREADS, Accelerator, Target
from autoopt.workers import Gate
from autoopt.workers.gate import report_waiting
from autoopt.workers.hosts import CallLimits, PoolHost, open_host

ROUNDS: Final = 3
"""Most measurements of all models, each in processes of its own: processes differ by more than their blocks show."""
NARROW: Final = 0.02
"""Relative width of an interval that is narrow enough."""
CALL_SECONDS: Final = 60.0
"""Time limit of a call beside the measurement itself, as for a run's measuring calls."""
PROFILES: Final = 3
PROFILED_RUNS: Final = 20
"""Profiles of each model, in turns, and inferences of each."""
REFERENCE: Final = "reference"


class _Failed(Exception):
    """A model cannot be run; `name` says which."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


@dataclass(frozen=True)
class Timed:
    """The outcome of one measurement."""

    ratios: Mapping[str, Estimate]
    """Relative to the reference, by the model's name."""
    failures: Mapping[str, str]
    """The reason why a model does not run, by its name."""
    busy: bool


@dataclass(frozen=True)
class Stopwatch:
    """Measures under the conditions of a run: its target, its data and its settings."""

    target: Target
    data: JsonObject | None
    settings: MeasurementSettings
    scratch: Path
    """Folder for profiles."""

    @staticmethod
    def of(run: RunRecord, scratch: Path) -> Stopwatch:
        """The conditions of a recorded run."""
        settings = MeasurementSettings.parse(run.settings.get("measurement") or {})
        target = from_json(Target, run.settings.get("target") or {})
        return Stopwatch(target, run.settings.get("latency_data"), settings, scratch)

    def compare(self, reference: VariantModel, others: Mapping[str, VariantModel], until: float) -> Timed:
        """Measure models in turns with the reference, in several rounds, while nothing else of autoopt runs here.

        `until` is the end of the budget on `time.monotonic`; the first round takes place even so.

        Raises:
            SystemFailure: The reference does not run.
        """
        models = {REFERENCE: reference, **others}
        most_rounds = max(1, min(ROUNDS, self.settings.rounds))
        failures: dict[str, str] = {}
        rounds: list[Round] = []
        while len(rounds) < most_rounds and len(models) > 1 and not (rounds and time.monotonic() > until):
            try:
                rounds.append(self._round(models, len(rounds), until))
            except _Failed as failure:
                if failure.name == REFERENCE:
                    remedy = "its onnxruntime may need an earlier numpy or Python than it was recorded with"
                    reason = f"the earlier night's model does not run here ({failure})"
                    raise SystemFailure(reason, remedy=remedy) from None
                failures[failure.name] = str(failure)
                del models[failure.name]
        if not rounds:
            return Timed({}, failures, False)
        ratios = {name: ratio for name, ratio in pooled_ratios(rounds).items() if name in models}
        return Timed(ratios, failures, any(one.disturbed for one in rounds))

    def _round(self, models: Mapping[str, VariantModel], number: int, until: float) -> Round:
        seconds_left = max(0.0, until - time.monotonic()) / (ROUNDS - number)
        seconds = min(self.settings.seconds * len(models), max(seconds_left, self.settings.seconds))
        settings = replace(
            self.settings,
            seconds=seconds,
            target_width=min(self.settings.target_width, NARROW),
            seed=self.settings.seed + number,
        )
        with ExitStack() as stack:
            stack.enter_context(Gate(waiting=report_waiting).measuring())
            subjects = {}
            for name, model in models.items():
                host = stack.enter_context(_host(model))
                data = DataConfig.parse(self.data) if self.data is not None else None
                subjects[name] = RemoteSubject(
                    _caller(host, name),
                    MeasureRequest(model.file, data=data, target=self.target, settings=self.settings),
                )
            reference = subjects.pop(REFERENCE)
            return measure_round(reference, subjects, settings, number)

    def profiles(self, before: VariantModel, after: VariantModel) -> tuple[OperatorDifference, ...]:
        """Profile two models in turns; empty if one cannot be profiled, for example not on a CPU."""
        if self.target.device != "cpu":
            return ()
        old: list[dict[str, float]] = []
        new: list[dict[str, float]] = []
        with ExitStack() as stack:
            stack.enter_context(Gate(waiting=report_waiting).measuring())
            hosts = [(model, stack.enter_context(_host(model))) for model in (before, after)]
            for turn in range(PROFILES):
                for profiles, (model, host) in zip((old, new), hosts, strict=True):
                    profiles.append(self._operators(model, host, self.scratch / f"profile{turn}"))
        if not all(old) or not all(new):
            return ()
        names = dict.fromkeys((*old[0], *new[0]))
        rows = [OperatorDifference(name, _lowest(old, name), _lowest(new, name)) for name in names]
        return tuple(sorted(rows, key=lambda row: -abs(row.after - row.before)))

    def _operators(self, model: VariantModel, host: PoolHost, folder: Path) -> dict[str, float]:
        """Microseconds of one inference by type of operator; empty if the profile failed."""
        options = dict(model.file.session_options)
        if self.target.threads != ALL_THREADS:
            options.setdefault("intra_op_num_threads", self.target.threads)
        request = PassRequest(
            model=ModelFile(model.file.path, options),
            steps=(PassStep("profile", {"runs": PROFILED_RUNS}),),
            output=folder,
            accelerator=Accelerator(),
            data=self.data,
        )
        reply = host.run_pass(request, CallLimits(CALL_SECONDS)).reply
        if reply is None or not reply.steps[-1].outcome.good:
            return {}
        report: Any = reply.steps[-1].reports["profile"]  # what the pass `profile` documents
        return {row["op_type"]: row["us"] for row in report["operators"]}


def _lowest(profiles: Sequence[Mapping[str, float]], name: str) -> float:
    """The lowest time of an operator: other programs only add to it."""
    return min(profile.get(name, 0.0) for profile in profiles)


@contextmanager
def _host(model: VariantModel) -> Iterator[PoolHost]:
    """A single process of the model's interpreter."""
    kind: Any = "local" if model.python == sys.executable else "isolated_ort"
    with open_host(kind, model.python) as host:
        assert isinstance(host, PoolHost)
        yield host


def _caller(host: PoolHost, name: str) -> CallWorker:
    """Call functions in the process of one model; without a memory limit, which would replace the process."""

    def call(function: str, payload: dict[str, JsonValue]) -> JsonObject:
        result = host.call(function, dict(payload), CallLimits(CALL_SECONDS, memory=0))
        if result.value is None:
            raise _Failed(name, result.message or str(result.outcome))
        value: JsonObject = result.value
        return value

    return call
