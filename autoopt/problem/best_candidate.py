"""The goal of a finished run, its best candidate, and the machines that measured that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from autoopt.distributions import library_version
from autoopt.json_codec import JsonObject, JsonValue
from autoopt.outcome import Outcome
from autoopt.problem.environment import cpu
from autoopt.results import Trial
from autoopt.space import Value
from autoopt.store import EvaluationRecord, RunRecord, Store


@dataclass(frozen=True)
class Machine:
    """The CPU and the runtime that measure."""

    cpu: str
    runtime: str
    """Version of onnxruntime."""

    @staticmethod
    def of(runtime: Mapping[str, Any]) -> Machine:
        """This machine with the runtime of a host; with that of this interpreter if `runtime` is empty."""
        return Machine(cpu()["model"], str(runtime.get("onnxruntime") or library_version("onnxruntime")))

    @staticmethod
    def that_measured(evaluation: EvaluationRecord) -> Machine:
        """The machine of an evaluation; with empty fields where it is not recorded."""
        environment = evaluation.environment
        recorded = {**environment, **(environment.get("measured by") or {})}
        version = recorded.get("onnxruntime") or (recorded.get("libraries") or {}).get("onnxruntime", "")
        return Machine(str((environment.get("cpu") or {}).get("model", "")), str(version))


@dataclass(frozen=True)
class RunGoal:
    """The first objective of a run, and where it was measured."""

    metric: str
    device: str
    execution_provider: str
    threads: int = 1
    limits: Mapping[str, Mapping[str, float]] = field(default_factory=dict, hash=False)
    """Constraints: metric -> bound -> value."""


def limits_of(constraints: Iterable[JsonObject]) -> dict[str, dict[str, float]]:
    """The bounds of constraints, as runs record them, by metric."""
    limits: dict[str, dict[str, float]] = {}
    for constraint in constraints:
        bounds = {name: float(value) for name, value in constraint.items() if isinstance(value, int | float)}
        limits[str(constraint["metric"])] = bounds
    return limits


def goal_of(run: RunRecord) -> RunGoal | None:
    """The goal of a run; None for the record of a run over several targets."""
    objectives = run.settings.get("objectives")
    target = run.settings.get("target")
    if not objectives or not target:
        return None
    provider = str(target.get("execution_provider") or "")
    device, threads = str(target.get("device", "cpu")), int(target.get("threads", 1))
    limits = limits_of(run.settings.get("constraints") or ())
    return RunGoal(str(objectives[0]["metric"]), device, provider, threads, limits)


@dataclass(frozen=True)
class BestCandidate:
    """The chain and point of a candidate, and its measurements."""

    passes: frozenset[str]
    """Names of the passes that changed the model."""
    values: Mapping[str, Mapping[str, Value]]
    """Pass -> parameter -> value that was searched."""
    ratios: Mapping[str, float]
    """candidate / source by metric."""
    machines: tuple[Machine, ...]
    """Every machine that measured it."""
    goal: RunGoal


def best_candidate(store: Store, run: RunRecord) -> BestCandidate | None:
    """The best candidate of a finished run; None if that is the source, or was not measured in a trial."""
    best: Mapping[str, Any] = run.result.get("best") or {}
    trial, goal = _trial_of(store, run, best), goal_of(run)
    if trial is None or goal is None:
        return None
    passes = changing_passes(store, run, trial)
    if not passes:
        return None
    nodes: Mapping[str, str] = run.plan.get("nodes", {})
    values = {nodes[node]: dict(params) for node, params in trial.point.items() if node in nodes}
    ratios = {name: float(estimate["value"]) for name, estimate in (best.get("ratios") or {}).items()}
    machines = map(Machine.that_measured, store.results.evaluations(trial.evaluations).values())
    return BestCandidate(passes, values, ratios, tuple(dict.fromkeys(machines)), goal)


def changing_passes(store: Store, run: RunRecord, trial: Trial) -> frozenset[str]:
    """Names of the passes of the plan that changed the model in a trial; inserted ones are left out."""
    planned = set(run.plan.get("nodes", {}).values())
    passes: set[str] = set()
    for record in store.results.pass_runs(trial.pass_runs).values():
        if record.outcome is Outcome.OK and record.pass_name in planned:
            passes.add(record.pass_name)
    return frozenset(passes)


def _trial_of(store: Store, run: RunRecord, best: Mapping[str, Any]) -> Trial | None:
    """The trial that measured the best model of a run; None for the source, or if the trial is gone."""
    options: Mapping[str, JsonValue] = best.get("session_options") or {}
    for trial in store.trials.all(run.id):
        candidate = trial.candidate
        if candidate is None or trial.outcome is not Outcome.OK or trial.violation > 0:
            continue
        is_same = candidate.artifact == best.get("artifact") and dict(candidate.session_options) == dict(options)
        if is_same and dict(trial.point) == best.get("point", {}):
            return trial
    return None
