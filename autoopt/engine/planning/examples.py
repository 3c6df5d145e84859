"""Examples from the store: what finished runs measured on similar models, and how their case differed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from autoopt.dag.compiler.plan import Plan
from autoopt.dag.warm_start import MIN_SIMILARITY, Example, same_graph, similarity, warm_started
from autoopt.engine.planning.best_candidate import (
    BestCandidate,
    Machine,
    RunGoal,
    best_candidate,
    goal_of,
    limits_of,
)
from autoopt.engine.planning.imported_knowledge import imported_lessons
from autoopt.json_codec import to_json
from autoopt.metrics import STEADY_STATE, Constraint, Objective
from autoopt.model.inspection import Inspection
from autoopt.spec.search import SearchConfig
from autoopt.store import ModelRecord, RunRecord, Store
from autoopt.target import ALL_THREADS, Target

COMPARED_CHAINS: Final = 100
"""Chains by whose ids two plans are compared; the record of a run lists no more."""


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
    """The best candidates of finished runs with the same goal on the same kind of target, the newest of each model.

    Those of this store come first, then those of imported knowledge.
    """
    models = {model.artifact: model for model in store.models.all() if model.inspection}
    taught: dict[str, Example] = {}
    for run in store.runs.all(status="finished"):
        model = models.get(run.model)
        if model is None or run.model in taught or not run.teaches:
            continue
        example = _own_example(store, run, model, plan, case)
        if example is not None:
            taught[run.model] = example
    return [*taught.values(), *_imported_examples(store, case)]


def _own_example(store: Store, run: RunRecord, model: ModelRecord, plan: Plan, case: Case) -> Example | None:
    """The example of a run of this store; None if its goal or its model differs too much, or it gained nothing."""
    goal = goal_of(run)
    if goal is None or not _is_same_goal(goal, case):
        return None
    inspection = Inspection.from_json(model.inspection)
    alike = similarity(case.inspection, inspection)
    is_same_search = same_graph(case.inspection, inspection) and _is_same_search(run, plan, case)
    if alike < MIN_SIMILARITY and not is_same_search:
        return None
    name = run.name.partition(" · ")[0] or model.name
    example = Example(name, alike, frozenset(), same_search=is_same_search)
    return _example(best_candidate(store, run), example, case)


def _imported_examples(store: Store, case: Case) -> Iterator[Example]:
    """Those of imported knowledge; its models have no names."""
    for lesson in imported_lessons(store):
        facts = lesson.goal
        goal = RunGoal(facts.metric, facts.device, facts.execution_provider, facts.threads, facts.limits)
        alike = similarity(case.inspection, lesson.model.inspection)
        if lesson.best is None or alike < MIN_SIMILARITY or not _is_same_goal(goal, case):
            continue
        machine = Machine(lesson.machine.cpu or "", lesson.machine.runtime or "")
        values = {name: dict(params) for name, params in lesson.best.values.items()}
        best = BestCandidate(frozenset(lesson.best.passes), values, lesson.best.ratios, (machine,), goal)
        example = _example(best, Example(f"{lesson.name} (imported)", alike, frozenset()), case)
        if example is not None:
            yield example


def _is_same_goal(goal: RunGoal, case: Case) -> bool:
    """True if a run had the same first objective on the same device and execution provider.

    All measurements of a warm session count as one objective, because every run measures all of them.
    """
    is_latency = goal.metric in STEADY_STATE and case.objective.metric in STEADY_STATE
    if goal.metric != case.objective.metric and not is_latency:
        return False
    return (goal.device, goal.execution_provider) == (case.target.device, case.target.execution_provider)


def _is_same_search(run: RunRecord, plan: Plan, case: Case) -> bool:
    """True if a run searched the same chains of another model under the same constraints with the same settings."""
    if run.model == case.artifact or case.search is None or run.settings.get("search") != case.search.model_dump():
        return False
    recorded = (run.plan.get("chain_count"), run.plan.get("point_count"), run.settings.get("constraints"))
    if recorded != (plan.chain_count, plan.point_count, to_json(tuple(case.constraints))):
        return False
    ids = [chain["id"] for chain in islice(run.plan.get("chains", ()), COMPARED_CHAINS)]
    return ids == [chain.id for chain in plan.chains(COMPARED_CHAINS)]


def _example(best: BestCandidate | None, example: Example, case: Case) -> Example | None:
    """Complete an example by the best candidate of its run; None if there is none, or it gained nothing here."""
    ratio = _ratio(best.ratios, case.objective) if best is not None else None
    if best is None or ratio is None or ratio >= 1:
        return None
    elsewhere = _elsewhere(best, case)
    return replace(
        example,
        passes=best.passes,
        values=best.values,
        ratio=ratio,
        metric=case.objective.metric,
        elsewhere=elsewhere,
        same_search=example.same_search and not elsewhere,
    )


def _ratio(ratios: Mapping[str, float], objective: Objective) -> float | None:
    """The best model's ratio in an objective, a gain below 1; None if it was not measured."""
    ratio = ratios.get(objective.metric)
    if ratio is None or ratio <= 0:
        return None
    if objective.goal == "maximize":
        return 1 / ratio
    return ratio


def _elsewhere(best: BestCandidate, case: Case) -> str:
    """Name what differs between the measurement of a candidate and this case; empty if nothing does."""
    differences: list[str] = []
    for machine in best.machines:
        if machine.cpu != case.machine.cpu:
            differences.append(machine.cpu or "an unknown CPU")
        if machine.runtime != case.machine.runtime:
            differences.append(f"onnxruntime {machine.runtime or 'of an unknown version'}")
    threads = best.goal.threads
    if threads != case.target.threads:
        differences.append("all threads" if threads == ALL_THREADS else f"threads: {threads}")
    if case.search is not None and best.goal.limits != limits_of(to_json(tuple(case.constraints))):
        differences.append("other constraints")
    return ", ".join(dict.fromkeys(differences))
