"""Prepare a run over a model set: connect the parts, record what reaches each, plan them, open the run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from autoopt.engine.inputs.request import RunRequest
from autoopt.engine.inputs.resolve import ResolvedInputs, resolve_inputs, spec_of
from autoopt.engine.inputs.sources import data_source, describe_data
from autoopt.engine.model_sets.part import SetPart
from autoopt.engine.model_sets.set_run import ModelSetRun
from autoopt.engine.model_sets.sources import RecordedInputs, SetSources, record_inputs
from autoopt.engine.planning.goal import GoalOptions, GoalRequest, make_goal
from autoopt.engine.planning.plan import plans_json
from autoopt.engine.run.opening import begin_run, is_complete, make_attempt, settings_of
from autoopt.engine.work.context import RunContext
from autoopt.engine.work.keys import run_identity
from autoopt.engine.work.problem import DataSets, DataSource
from autoopt.engine.work.resources import Resources
from autoopt.measure.model_set import SET
from autoopt.metrics import GENERATION
from autoopt.results import RunResult
from autoopt.spec import DagSpec, load_dag
from autoopt.spec.document import Document
from autoopt.spec.proposal_options import names_model
from autoopt.store import ModelRecord, RunRecord
from autoopt.store.leases import close_dead_runs
from autoopt.store.records import Json

SEARCH_SHARE: Final = 0.7
"""Share of the run's minutes for the searches; the rest is for measuring the whole set."""
OWN_FIELDS: Final = ("model", "connections", "pipeline", "data", "objectives", "constraints")
"""Fields of a DAG that are about the set, not about each part."""
MINIMIZED: Final = {"size": "size", "peak_memory": "memory"}
"""The figure to minimize in each part, by the objective of the set; else latency."""


def prepare_model_set(
    request: RunRequest, spec: DagSpec, parts: Mapping[str, str], resources: Resources, began: float
) -> ModelSetRun:
    """Prepare a run over the models of a set.

    Args:
        request: What the user asked for.
        spec: The DAG, which each part is searched with, or that of a bare model.
        parts: Path of each part.
        resources: The run closes them.
        began: Start of the command, on `time.monotonic`.

    Raises:
        InputError: the models do not connect, or anything else is wrong with what the user gave.
    """
    sources = SetSources.read(request, spec, parts, resources)
    recorded = record_inputs(request, spec, sources, sources.data, resources)
    calibration = recorded
    if sources.calibration.digest != sources.data.digest:
        calibration = record_inputs(request, spec, sources, sources.calibration, resources)
    sources = sources.with_outputs(recorded.recording.outputs, resources)
    set_parts = []
    for name in sources.description.parts:
        part_request = replace(
            _part_request(request, spec, parts[name], (1 / len(parts) + recorded.share(name)) / 2),
            data={"path": str(recorded.file(name))},
            calibration={"path": str(calibration.file(name))},
        )
        inputs = resolve_inputs(part_request, spec_of(part_request), resources)
        set_parts.append(SetPart(name, part_request, inputs, recorded.share(name)))
    whole = _whole(request, spec, sources, recorded, set_parts[0].inputs, resources)
    content = {"set": sources.model.key, "parts": [[part.name, part.inputs.identity] for part in set_parts]}
    identity = run_identity({**content, "whole": whole.identity})
    store = resources.store
    finished = store.runs.latest_finished(identity) if request.accepts_answer else None
    if finished is not None and not _is_complete(finished.result or {}):
        finished = None
    if store.models.get(sources.model.artifact) is None:
        store.models.add(ModelRecord(sources.model.artifact, " + ".join(parts)))
    plans = {part.name: part.inputs.problem.plan for part in set_parts}
    record = finished or begin_run(
        request,
        RunRecord(
            id="",
            name=" + ".join(parts),
            identity=identity,
            model=sources.model.artifact,
            plan=plans_json(plans, limit=100),
            settings={**settings_of(request, whole), "model": " + ".join(parts), "parts": list(parts)},
            sweep=request.sweep,
        ),
        store,
    )
    ctx = RunContext(whole.problem, resources, make_attempt(request, whole, record.id, began))
    run = ModelSetRun(request, ctx, set_parts, sources.description, record, notes=list(whole.notes))
    if finished is not None and finished.result is not None:
        close_dead_runs(store, identity, finished.id)
        run.answer = RunResult.from_json(finished.result).as_reused(time.monotonic() - began)
    return run


def _is_complete(result: Json) -> bool:
    """True if the result of the set and that of every part answer an identical request."""
    return all(map(is_complete, (result, *(result.get("parts") or ()))))


def _part_request(request: RunRequest, spec: DagSpec, path: str, weight: float) -> RunRequest:
    """The request for a part: the same search in its share of the minutes, without data."""
    search = dict(request.search)
    minutes = search.get("minutes", spec.search.minutes)
    if minutes:
        search["minutes"] = round(minutes * SEARCH_SHARE * weight, 3)
    metric = spec.objectives[0].metric if spec.objectives else ""
    minimize = request.goal.minimize or MINIMIZED.get(metric, "latency")
    dag: object = path
    options = request.proposal_options
    if names_model(request.dag):
        # What never changes in one recorded step may change in the next one.
        options = replace(options, keep_signature=True)
    else:
        document = spec.document.value
        assert isinstance(document, dict), "a DAG is a mapping"
        own = {name: value for name, value in document.items() if name not in OWN_FIELDS}
        dag = load_dag(Document({**own, "model": path}, spec.source))
    return replace(
        request,
        dag=dag,
        model=None,
        parts={},
        search=search,
        goal=GoalOptions(minimize=minimize),  # type: ignore[arg-type]  # one of the three words
        proposal_options=options,
        resume=None,
        sweep=None,
    )


def _whole(
    request: RunRequest,
    spec: DagSpec,
    sources: SetSources,
    recorded: RecordedInputs,
    part: ResolvedInputs,
    resources: Resources,
) -> ResolvedInputs:
    """The set as a problem: the same target as each part's, the user's goal, and the recorded inputs of the set."""
    data = data_source({"path": str(recorded.file(SET))}, resources.store.home)
    description = describe_data(resources.pool, data, Path())
    goal_request = request.goal.apply(GoalRequest.of(spec, part.problem.goal.custom), description)
    if sources.description.generation is not None:
        goal_request = replace(goal_request, extra_metrics=(*goal_request.extra_metrics, *GENERATION))
    goal, notes = make_goal(goal_request, description)
    problem = replace(
        part.problem,
        source=sources.model,
        goal=goal,
        data=DataSets(data, data, DataSource()),
        measurement={**spec.measurement, **request.measurement},
        unverified=False,
    )
    search = spec.search.config().overridden(request.search)
    links = [f"{source} -> {target}" for target, source in sources.description.connections.items() if "." in source]
    connected = f"connected: {', '.join(links)}" if links else ""
    return ResolvedInputs(part.spec, "", problem, search, part.runtimes, [*filter(None, [connected]), *notes])
