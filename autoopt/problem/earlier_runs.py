"""The best candidate of an earlier run on the same graph, as the point that a plan begins with."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from autoopt.dag.compiler.chain import Chain
from autoopt.dag.compiler.plan import Learned, Plan
from autoopt.distributions import library_version
from autoopt.errors import SystemFailure, one_line
from autoopt.json_codec import to_json
from autoopt.metrics import MEDIAN_LATENCY, STEADY_STATE
from autoopt.model.inspection import Inspection
from autoopt.problem.environment import cpu
from autoopt.problem.problem import Problem
from autoopt.report.words.formatting import plural
from autoopt.results import RunResult
from autoopt.space import Value
from autoopt.store import EvaluationRecord, RunRecord, Store
from autoopt.target import ALL_THREADS

logger = logging.getLogger(__name__)

COMPARED_CHAINS: Final = 100
"""Chains by whose ids two plans are compared; the record of a run lists no more."""
MAX_CHAINS: Final = 2_000
"""Chains of a plan that are compared with the example."""


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
class Example:
    """A candidate that a finished run on the same graph measured as better than its source model."""

    model: str
    passes: frozenset[str]
    """Names of the passes that changed the model."""
    values: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    """Pass name -> parameter -> value that was searched."""
    ratio: float = 1.0
    """Of `metric`, candidate / source, or source / candidate where more is better: a gain is below 1."""
    metric: str = MEDIAN_LATENCY
    elsewhere: str = ""
    """CPU, runtime or threads that it was measured with, if they differ from this run's."""
    same_search: bool = False
    """The run had the same chains, constraints and budget as this one."""


def known_point(plan: Plan, example: Example) -> Learned | None:
    """The point of a plan that comes closest to an example; None if no chain fits.

    A chain fits if it has every pass that changed the example's model, and no other lossy pass.
    """
    matches: list[tuple[tuple[int, int, str], Learned]] = []
    for chain in plan.chains(MAX_CHAINS):
        lossy = {node.pass_name for node in chain.nodes if node.info.tolerance == "lossy"}
        if not example.passes <= _pass_names(chain) or not lossy <= example.passes:
            continue
        values, untried = _tried_values(example, chain)
        point = plan.first_point(chain, values)
        if point is not None:
            expected = example.ratio if example.same_search else None
            learned = Learned(chain.id, chain.passes, point, _evidence(example), expected)
            matches.append(((untried, len(_pass_names(chain) - example.passes), chain.id), learned))
    if not matches:
        return None
    return min(matches, key=lambda match: match[0])[1]


def _pass_names(chain: Chain) -> set[str]:
    return {node.pass_name for node in chain.nodes}


def _tried_values(example: Example, chain: Chain) -> tuple[dict[str, dict[str, Value]], int]:
    """The example's values by node, those that the chain searches, and the number of the others."""
    tried: dict[str, dict[str, Value]] = {}
    untried = 0
    for node in chain.nodes:
        for name, value in example.values.get(node.pass_name, {}).items():
            searched = node.space.search.get(name)
            if searched is not None and searched.offers(value):
                tried.setdefault(node.id, {})[name] = value
            else:
                untried += 1
    return tried, untried


def settings_text(passes: Sequence[str], values: Mapping[str, Mapping[str, Value]]) -> str:
    """Passes with the values that were searched: `simplify, static_quantization (per_channel=True)`."""
    texts: list[str] = []
    for name in passes:
        settings = [f"{param}={value}" for param, value in sorted(values.get(name, {}).items())]
        texts.append(f"{name} ({', '.join(settings)})" if settings else name)
    return ", ".join(texts)


def _evidence(example: Example) -> str:
    """`static_quantization gave 0.45 of the source's latency_p50 on resnet (same graph)`."""
    text = settings_text(sorted(example.passes), example.values)
    text += f" gave {example.ratio:.2f} of the source's {example.metric} on {example.model} (same graph)"
    if example.elsewhere:
        text += f", measured with {example.elsewhere}"
    return text


def taught_plan(store: Store | None, problem: Problem) -> Plan:
    """The plan of a problem with the best point of an earlier run on the same graph as the one to try first.

    Earlier runs are an aid: if one cannot be read, the log says why and the plan does without.

    Raises:
        SystemFailure: The database is damaged or gone.
    """
    plan = problem.plan
    if store is None:
        return plan
    try:
        # An example of the same search can be confirmed.
        found = sorted(examples(store, problem), key=lambda example: not example.same_search)
        points = (known_point(plan, example) for example in found)
        return plan.with_learned(list(islice(filter(None, points), 1)))
    except SystemFailure:  # nothing else could be read either
        raise
    except Exception as error:  # whatever a run has stored
        logger.warning("earlier runs are left out: %s", one_line(f"{type(error).__name__}: {error}"))
        logger.debug("the traceback", exc_info=True)
        return plan


def examples(store: Store, problem: Problem) -> list[Example]:
    """The best candidates of finished runs on the same graph with the same goal, the newest of each model."""
    inspection = problem.sources.facts.inspection
    if inspection is None:
        return []
    models = {model.artifact: model for model in store.models.all() if model.inspection}
    taught: dict[str, Example] = {}
    for run in store.runs.all(status="finished"):
        if run.model not in models or run.model in taught or not _is_same_goal(run, problem):
            continue
        model = models[run.model]
        if inspection.has_same_graph(Inspection.from_json(model.inspection)):
            example = _example(store, run, run.name.partition(" · ")[0] or model.name, problem)
            if example is not None:
                taught[run.model] = example
    return list(taught.values())


def _is_same_goal(run: RunRecord, problem: Problem) -> bool:
    """True if a run had the same first objective on the same device and execution provider.

    All measurements of a warm session count as one objective, because every run measures all of them. The record of a
    run of several parts has no goal.
    """
    objectives, target = run.settings.get("objectives"), run.settings.get("target")
    if not objectives or not target:
        return False
    metrics = {objectives[0]["metric"], problem.goal.objectives[0].metric}
    if len(metrics) > 1 and not metrics <= set(STEADY_STATE):
        return False
    asked = problem.target
    return (target["device"], target["execution_provider"]) == (asked.device, asked.execution_provider)


def _is_same_search(run: RunRecord, problem: Problem) -> bool:
    """True if a run searched the same chains of another model under the same constraints with the same settings.

    A run that searches the very same model again is to search, not to confirm.
    """
    if run.model == problem.source.artifact or run.settings.get("search") != problem.search.content:
        return False
    plan = problem.plan
    recorded = (run.plan.get("chain_count"), run.plan.get("point_count"), run.settings.get("constraints"))
    if recorded != (plan.chain_count, plan.point_count, to_json(problem.goal.constraints)):
        return False
    ids = [chain["id"] for chain in islice(run.plan.get("chains", ()), COMPARED_CHAINS)]
    return ids == [chain.id for chain in plan.chains(COMPARED_CHAINS)]


def _example(store: Store, run: RunRecord, model: str, problem: Problem) -> Example | None:
    """The example that the best candidate of a run gives; None if it gained nothing here."""
    best, objective = RunResult.from_json(run.result).best, problem.goal.objectives[0]
    metric = objective.metric
    if best is None or best.trial is None or metric not in best.ratios:
        return None
    ratio = best.ratios[metric]
    gain = (ratio.inverse() if objective.goal == "maximize" else ratio).value
    nodes: dict[str, str] = run.plan.get("nodes", {})
    passes = frozenset(map(nodes.__getitem__, nodes.keys() & set(best.steps)))
    if not passes or not 0 < gain < 1:  # a clock that stood still gives 0 or infinity
        return None
    elsewhere = ", ".join(dict.fromkeys(_differences(store, run, best.trial, problem)))
    values = {nodes[node]: dict(best.point[node]) for node in nodes.keys() & best.point.keys()}
    return Example(model, passes, values, gain, metric, elsewhere, not elsewhere and _is_same_search(run, problem))


def _differences(store: Store, run: RunRecord, trial: int, problem: Problem) -> Iterator[str]:
    """Name what differs where and how the candidate of a trial was measured."""
    here = Machine.of(problem.runtime)
    evaluations = store.results.evaluations(store.trials.get(run.id, trial).evaluations)
    for machine in map(Machine.that_measured, evaluations.values()):
        if machine.cpu != here.cpu:
            yield machine.cpu or "an unknown CPU"
        if machine.runtime != here.runtime:
            yield f"onnxruntime {machine.runtime or 'of an unknown version'}"
    threads = run.settings["target"]["threads"]
    if threads != problem.target.threads:
        yield "all threads" if threads == ALL_THREADS else plural(threads, "thread")
    if run.settings.get("constraints") != to_json(problem.goal.constraints):
        yield "other constraints"
