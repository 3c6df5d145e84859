"""Lessons of earlier measurements for a plan: the best of a run on the same graph, then the first points in order."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, Final

import autoopt.search.surrogates
from autoopt.dag.compiler.plan import Learned, Plan
from autoopt.dag.warm_start import MAX_CHAINS, Example, known_point
from autoopt.errors import one_line
from autoopt.json_codec import to_json
from autoopt.metrics import STEADY_STATE, Constraint, Objective
from autoopt.model.inspection import Inspection
from autoopt.model.similarity import same_graph
from autoopt.problem.best_candidate import BestCandidate, Machine, RunGoal, best_candidate, goal_of, limits_of
from autoopt.problem.first_points import Question, learned_points, machine_differences, sources_for, threads_text
from autoopt.problem.lessons import MAX_OWN, all_lessons, is_measured, lessons_key
from autoopt.problem.readings import code_digest, read_once
from autoopt.spec.search import SearchConfig
from autoopt.store import RunRecord, Store
from autoopt.target import Target

logger = logging.getLogger(__name__)

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
    isa: Collection[str] = ()
    """Instruction sets of the machine; empty if unknown."""


def taught_plan(store: Store | None, plan: Plan, case: Case, home: Path | None = None) -> Plan:
    """The plan with the points to try first, by what was measured on the same graph and on other models.

    What other models teach is stored below `home`, if there is one, and looked up the next time. Lessons are an aid: if
    they cannot be used, the log says why and the plan does without.
    """
    try:
        learned: list[Learned] = []
        if store is not None:
            learned = _point_of_same_graph(store, plan, case)
        search = case.search or plan.spec.search.config()
        if case.objective.metric not in STEADY_STATE or search.sampler_name != "surrogate":
            return plan.with_learned(learned)
        points, knowledge = _points_of_other_models(store, plan, case, home, built_in=search.built_in_knowledge)
        known_points = [(known.chain_id, known.point) for known in learned]
        learned += [point for point in points if (point.chain_id, point.point) not in known_points]
        return plan.with_learned(learned, knowledge)
    except Exception as error:  # whatever a stored measurement or the mathematics on it does
        logger.debug("the lessons of earlier runs are left out", exc_info=True)
        return plan.with_learned([], f"lessons of earlier runs are left out: {one_line(str(error))}")


def _points_of_other_models(
    store: Store | None, plan: Plan, case: Case, home: Path | None, *, built_in: bool
) -> tuple[list[Learned], str]:
    """The first points that other models teach, and the lessons that they follow from in words."""
    question = Question(case.inspection, case.target, case.machine, case.isa)

    def learn(_: Path | None = None) -> dict[str, Any]:
        sources = sources_for(question, all_lessons(store, built_in=built_in, own=MAX_OWN))
        points = learned_points(plan, question, sources)
        knowledge = sources.text if points or not sources.used else ""
        return {"points": [point.to_json() for point in points], "knowledge": knowledge}

    reply: Mapping[str, Any] = {}
    if home is not None and home.is_dir():
        chains = [[c.id, c.weight, to_json(c.prior), to_json(c.cuts)] for c in plan.chains(MAX_CHAINS)]
        asked = [to_json(case.inspection), to_json(case.target), to_json(case.machine), sorted(case.isa)]
        content = [_code(), chains, asked, lessons_key(store, built_in=built_in)]
        with suppress(OSError):  # a full or read-only disk costs time, not the plan
            _, reply = read_once(home, content, learn)
    reply = reply or learn()
    return list(map(Learned.from_json, reply["points"])), reply["knowledge"]


@lru_cache(maxsize=1)
def _code() -> str:
    """Digest of the code that learns."""
    return code_digest(str(Path(__file__).parent), *autoopt.search.surrogates.__path__)


def _point_of_same_graph(store: Store, plan: Plan, case: Case) -> list[Learned]:
    """The best point of one earlier run on the same graph, of the same search if there is one: it can be confirmed."""
    for example in sorted(examples(store, plan, case), key=lambda example: not example.same_search):
        known = known_point(plan, example)
        if known is not None:
            return [known]
    return []


def examples(store: Store, plan: Plan, case: Case) -> list[Example]:
    """The best candidates of finished runs on the same graph with the same goal, the newest of each model."""
    models = {model.artifact: model for model in store.models.all() if model.inspection}
    taught: dict[str, Example] = {}
    for run in store.runs.all(status="finished"):
        model, goal = models.get(run.model), goal_of(run)
        if model is None or goal is None or run.model in taught:
            continue
        if not _is_same_goal(goal, case) or not same_graph(case.inspection, Inspection.from_json(model.inspection)):
            continue
        name = run.name.partition(" · ")[0] or model.name
        example = _example(best_candidate(store, run), name, case, is_same_search=_is_same_search(run, plan, case))
        if example is not None:
            taught[run.model] = example
    return list(taught.values())


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
    if run.model == case.artifact or case.search is None or run.settings.get("search") != case.search.content:
        return False
    recorded = (run.plan.get("chain_count"), run.plan.get("point_count"), run.settings.get("constraints"))
    if recorded != (plan.chain_count, plan.point_count, to_json(tuple(case.constraints))):
        return False
    ids = [chain["id"] for chain in islice(run.plan.get("chains", ()), COMPARED_CHAINS)]
    return ids == [chain.id for chain in plan.chains(COMPARED_CHAINS)]


def _example(best: BestCandidate | None, model: str, case: Case, *, is_same_search: bool) -> Example | None:
    """The example that the best candidate of a run gives; None if there is none, or it gained nothing here."""
    ratio = None if best is None else best.ratios.get(case.objective.metric)
    if best is None or ratio is None or not is_measured(ratio):
        return None
    if case.objective.goal == "maximize":
        ratio = 1 / ratio
    if ratio >= 1:
        return None
    differences: list[str] = []
    for machine in best.machines:
        differences += machine_differences(machine, case.machine)
    if best.goal.threads != case.target.threads:
        differences.append(threads_text(best.goal.threads))
    if case.search is not None and best.goal.limits != limits_of(to_json(tuple(case.constraints))):
        differences.append("other constraints")
    elsewhere = ", ".join(dict.fromkeys(differences))
    same_search = is_same_search and not elsewhere
    return Example(model, best.passes, best.values, ratio, case.objective.metric, elsewhere, same_search)
