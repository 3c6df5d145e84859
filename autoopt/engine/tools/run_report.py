"""The HTML page of a finished run, with everything that the store knows about it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

from autoopt.errors import AutooptError, TimeUp
from autoopt.json_codec import from_json
from autoopt.measure.request import MeasureRequest
from autoopt.measure.settings import MeasurementSettings
from autoopt.model.candidate import Candidate
from autoopt.model.model_file import ModelFile
from autoopt.problem.earlier_runs import Machine
from autoopt.problem.environment import environment
from autoopt.problem.probe import Probe
from autoopt.report.run_facts import ModelContent, PairedMeasurement, RunFacts
from autoopt.report.run_page import html_report
from autoopt.results import RunResult, Trial
from autoopt.results.figures import first_objective, kind
from autoopt.results.model import OperatorTimes
from autoopt.store import RunRecord, Store
from autoopt.store.finished import finished_trials
from autoopt.target import Target
from autoopt.workers import Gate, WorkerPool

Json: TypeAlias = Mapping[str, Any]
PROFILE: Final = "autoopt.measure.layerwise:operator_times"
PROFILE_SECONDS: Final = 60.0
SEARCH: Final = ("strategy", "sampler", "order", "trials", "minutes", "seed")
"""Settings of the search that the page shows."""
GATE_SECONDS: Final = 10.0
"""Longest wait until nothing else of autoopt uses the machine."""


def run_report(store: Store, record: RunRecord, result: RunResult, *, profile: bool = False) -> str:
    """Render the page of a finished run. A worker counts the nodes of the best model and of those on the way to it.

    With `profile`, it also profiles source and best model, if this is the machine that measured them.
    """
    facts = run_facts(store, record, result)
    if profile:
        facts = replace(facts, operator_times=profiled_operators(store, record, result))
    return html_report(result, finished_trials(store, record.id), facts)


def run_facts(store: Store, record: RunRecord, result: RunResult) -> RunFacts:
    """Look up the circumstances of a run."""
    settings = record.settings or {}
    request = _section(settings, "request")
    lineages = _lineages(store, result)
    accelerator = _section(_section(settings, "replay_environment"), "accelerator")
    search = _section(settings, "search")
    evaluation, calibration = _data_texts(request)
    return RunFacts(
        name=record.name,
        models=_model_facts(store, lineages.values()),
        model=str(request.get("model") or settings.get("model") or ""),
        dag=str(settings.get("dag") or ""),
        evaluation=evaluation,
        calibration=calibration,
        target=", ".join(str(accelerator[name]) for name in ("device", "execution_provider") if name in accelerator),
        environment=_environment(lineages.values()),
        search={name: search[name] for name in SEARCH if search.get(name) not in (None, "")},
        created=record.created,
        lineage=lineages.pop("", {}),
        part_lineages=lineages,
        measurements=_measurements(store, result),
        sensitivity=_sensitivity(store, finished_trials(store, record.id)),
        part_trials={each.run: finished_trials(store, each.run) for each in result.part_results},
    )


def _lineages(store: Store, result: RunResult) -> dict[str, Json]:
    """The lineage documents of the chosen models of a set by name; that of a single best model has no name."""
    models = {part.name: part.model for part in result.parts}
    if result.best is not None and not models:
        models = {"": result.best}
    return {name: store.lineage.trace(model.candidate).to_json() for name, model in models.items()}


def _sensitivity(store: Store, trials: Sequence[Trial]) -> Sequence[Json]:
    """The ranking of layers that a pass of the run made; empty if none did."""
    keys = {key for trial in trials for key in trial.pass_runs}
    for record in store.results.pass_runs(sorted(keys)).values():
        ranking: Sequence[Json] = record.reports.get("layer_sensitivity", {}).get("ranking", ())
        if ranking:
            return ranking
    return ()


def _section(document: Json, name: str) -> Json:
    """A part of a document; empty if the version that wrote it did not have it."""
    section: Json = document.get(name) or {}
    return section


def _environment(lineages: Iterable[Json]) -> Json:
    """The environment that the best model was made in; this process's if nothing was made."""
    for lineage in lineages:
        for step in lineage.get("steps") or ():
            if step.get("environment"):
                return _section(step, "environment")
    return environment()


def _data_texts(request: Json) -> tuple[str, str]:
    """The evaluation and the calibration data of a request, or else of its DAG."""
    dag = request.get("dag")
    section: Json = {}
    if isinstance(dag, Mapping) and "content" in dag:
        section = json.loads(dag["content"]).get("data") or {}
    evaluation = request.get("data") or section.get("evaluation")
    calibration = request.get("calibration") or section.get("calibration")
    return _data_text(evaluation), _data_text(calibration)


def _data_text(config: object) -> str:
    """A path or a data configuration as one text; empty without data."""
    if isinstance(config, Mapping):
        path = config.get("path")
        return str(path) if path else json.dumps(config, default=str)
    return "" if config is None else str(config)


def _measurements(store: Store, result: RunResult) -> list[PairedMeasurement]:
    """The latency measurements of the best model until the run ended; later nights measure it again."""
    metric = first_objective(result).metric
    best = result.better_model
    if best is None or kind(metric) != "latency":
        return []
    measurements = []
    for evaluation in store.results.evaluations_of(best.candidate):
        ratio = evaluation.ratios.get(metric)
        if evaluation.outcome.good and ratio is not None and ratio.low > 0:
            load = _section(evaluation.details, "machine").get("load")
            measurements.append(PairedMeasurement(ratio, evaluation.disturbed, load))
    return measurements[: best.measured.rounds or None]


def profiled_operators(store: Store, record: RunRecord, result: RunResult) -> OperatorTimes:
    """Profile source and best model; no rows if another machine measured them, or this one is busy for long.

    The best model of a run of several parts has no single source or target.
    """
    target = from_json(Target, _section(record.settings, "target"))
    best = result.better_model
    if best is None or result.parts or target.python or not _measured_here(store, best.candidate):
        return OperatorTimes()
    try:
        request = MeasureRequest(
            candidate=ModelFile(str(store.artifacts.path(best.artifact)), best.session_options),
            source=ModelFile(str(store.artifacts.path(record.model))),
            target=target,
            settings=MeasurementSettings.parse(_section(record.settings, "measurement")),
        )
        with Gate().measuring(until=time.monotonic() + GATE_SECONDS), WorkerPool(size=1) as pool:
            answer = pool.call(PROFILE, request.to_json(), PROFILE_SECONDS)
    except (AutooptError, TimeUp):
        return OperatorTimes()
    if answer.value is None:
        return OperatorTimes()
    return from_json(OperatorTimes, answer.value)


def _measured_here(store: Store, candidate: Candidate) -> bool:
    """True if all latencies of a candidate were measured with this CPU and runtime."""
    evaluations = [record for record in store.results.evaluations_of(candidate) if record.meter == "latency"]
    return set(map(Machine.that_measured, evaluations)) == {Machine.of({})}


def _model_facts(store: Store, lineages: Iterable[Json]) -> dict[str, ModelContent]:
    """Size and operators of the models of lineages with a step that made a model."""
    digests: dict[str, None] = {}
    for lineage in lineages:
        steps = lineage.get("steps") or ()
        models = dict.fromkeys(str(step[name]) for step in steps for name in ("input", "output"))
        if len(models) > 1:
            digests |= models
    if not digests:
        return {}
    facts = {}
    with Probe() as probe:
        for digest in digests:
            facts[digest] = ModelContent(store.artifacts.get(digest).bytes, _op_counts(store, probe, digest))
    return facts


def _op_counts(store: Store, probe: Probe, digest: str) -> Mapping[str, int] | None:
    """Nodes by operator; None if the file is gone or unreadable."""
    model = store.models.get(digest)
    if model is not None and "op_counts" in model.inspection:
        counts: Mapping[str, int] = model.inspection["op_counts"]
        return counts
    try:
        return probe.inspect(store.artifacts.path(digest)).op_counts
    except AutooptError:
        return None
