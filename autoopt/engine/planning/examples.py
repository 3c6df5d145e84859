"""Examples from the store: what finished runs measured on similar models, and how their case differed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from autoopt.dag.compiler.plan import Plan
from autoopt.dag.warm_start import MIN_SIMILARITY, Example, same_graph, similarity, warm_started
from autoopt.engine.work.environment import cpu, library_version
from autoopt.json_codec import JsonValue, to_json
from autoopt.metrics import STEADY_STATE, Constraint, Objective
from autoopt.model.inspection import Inspection
from autoopt.outcome import Outcome
from autoopt.spec.search import SearchConfig
from autoopt.store import RunRecord, Store, TrialRecord
from autoopt.target import ALL_THREADS, Target

COMPARED_CHAINS: Final = 100
"""Chains by whose ids two plans are compared; the record of a run lists no more."""


@dataclass(frozen=True)
class Machine:
    """The CPU and the runtime that measure."""

    cpu: str
    runtime: str
    """Version of onnxruntime."""

    @staticmethod
    def of(runtime: Mapping[str, Any]) -> Machine:
        """The machine of a host; of this interpreter if `runtime` is empty."""
        model = (runtime.get("cpu") or cpu())["model"]
        return Machine(str(model), str(runtime.get("onnxruntime") or library_version("onnxruntime")))


@dataclass(frozen=True)
class Case:
    """The question that a run answers: results of other cases teach less, or nothing."""

    inspection: Inspection
    objective: Objective
    target: Target
    machine: Machine
    constraints: Sequence[Constraint] = ()
    search: SearchConfig | None = None
    """None for a plan without a run."""
    artifact: str = ""
    """Digest of the source model. A run that searches the very same model again is to search, not to confirm."""


def taught_plan(store: Store | None, plan: Plan, case: Case) -> Plan:
    """The plan with a preference for what finished runs measured on the same or similar models."""
    if store is None:
        return plan
    return warm_started(plan, examples(store, plan, case))


def examples(store: Store, plan: Plan, case: Case) -> list[Example]:
    """The best candidates of finished runs with the same goal on the same kind of target, the newest of each model."""
    models = {model.artifact: model for model in store.models.all() if model.inspection}
    taught: dict[str, Example] = {}
    for run in store.runs.all(status="finished"):
        model = models.get(run.model)
        if model is None or run.model in taught or not run.teaches or not _is_same_goal(run, case):
            continue
        inspection = Inspection.from_json(model.inspection)
        alike = similarity(case.inspection, inspection)
        is_same_search = same_graph(case.inspection, inspection) and _is_same_search(run, plan, case)
        if alike < MIN_SIMILARITY and not is_same_search:
            continue
        name = run.name.partition(" · ")[0] or model.name
        example = _example(store, run, Example(name, alike, frozenset(), same_search=is_same_search), case)
        if example is not None:
            taught[run.model] = example
    return list(taught.values())


def _is_same_goal(run: RunRecord, case: Case) -> bool:
    """True if a run had the same first objective on the same device and execution provider.

    All measurements of a warm session count as one objective, because every run measures all of them.
    """
    objectives = run.settings.get("objectives")
    target = run.settings.get("target")
    if not objectives or not target:
        return False
    metric = objectives[0]["metric"]
    is_latency = metric in STEADY_STATE and case.objective.metric in STEADY_STATE
    if metric != case.objective.metric and not is_latency:
        return False
    place = (case.target.device, case.target.execution_provider)
    return (target.get("device", "cpu"), target.get("execution_provider")) == place


def _is_same_search(run: RunRecord, plan: Plan, case: Case) -> bool:
    """True if a run searched the same chains of another model under the same constraints with the same settings."""
    if run.model == case.artifact or case.search is None or run.settings.get("search") != case.search.model_dump():
        return False
    recorded = (run.plan.get("chain_count"), run.plan.get("point_count"), run.settings.get("constraints"))
    if recorded != (plan.chain_count, plan.point_count, to_json(tuple(case.constraints))):
        return False
    ids = [chain["id"] for chain in islice(run.plan.get("chains", ()), COMPARED_CHAINS)]
    return ids == [chain.id for chain in plan.chains(COMPARED_CHAINS)]


def _example(store: Store, run: RunRecord, example: Example, case: Case) -> Example | None:
    """Complete an example by the best model of its run; None if that is the source, or was not measured in a trial."""
    best: Mapping[str, Any] = (run.result or {}).get("best") or {}
    ratio = _ratio(best, case.objective)
    trial = _trial_of(store, run, best)
    if ratio is None or ratio >= 1 or trial is None:
        return None
    nodes: Mapping[str, str] = run.plan.get("nodes", {})
    passes: set[str] = set()
    for record in store.results.pass_runs(trial.pass_runs).values():
        if record.outcome is Outcome.OK and record.pass_name in nodes.values():
            passes.add(record.pass_name)
    values = {}
    for node, params in trial.point.items():
        if node in nodes:
            values[nodes[node]] = dict(params)
    if not passes:
        return None
    elsewhere = _elsewhere(store, run, trial, case)
    return Example(
        model=example.model,
        similarity=example.similarity,
        passes=frozenset(passes),
        values=values,
        ratio=ratio,
        metric=case.objective.metric,
        elsewhere=elsewhere,
        same_search=example.same_search and not elsewhere,
    )


def _ratio(best: Mapping[str, Any], objective: Objective) -> float | None:
    """The best model's ratio in an objective, a gain below 1; None if it was not measured."""
    estimate = (best.get("ratios") or {}).get(objective.metric)
    if estimate is None or estimate["value"] <= 0:
        return None
    ratio = float(estimate["value"])
    if objective.goal == "maximize":
        return 1 / ratio
    return ratio


def _trial_of(store: Store, run: RunRecord, best: Mapping[str, Any]) -> TrialRecord | None:
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


def _elsewhere(store: Store, run: RunRecord, trial: TrialRecord, case: Case) -> str:
    """Name what differs between the measurement of a trial and this case; empty if nothing does."""
    differences: list[str] = []
    for record in store.results.evaluations(trial.evaluations).values():
        recorded = {**record.environment, **(record.environment.get("measured by") or {})}
        model = str((record.environment.get("cpu") or {}).get("model", ""))
        version = str(recorded.get("onnxruntime") or (recorded.get("libraries") or {}).get("onnxruntime", ""))
        if model != case.machine.cpu:
            differences.append(model or "an unknown CPU")
        if version != case.machine.runtime:
            differences.append(f"onnxruntime {version or 'of an unknown version'}")
    threads = (run.settings.get("target") or {}).get("threads", 1)
    if threads != case.target.threads:
        count = "all threads" if threads == ALL_THREADS else f"threads: {threads}"
        differences.append(count)
    return ", ".join(dict.fromkeys(differences))
