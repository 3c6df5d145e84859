"""Lessons: what each run of this store measured about passes and values, without anything that names its origin."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Final

from autoopt.dag.proposal.propose import LSTM_AT_RUN_TIME, PRODUCTS_AT_RUN_TIME
from autoopt.dag.proposal.templates import TEMPLATES
from autoopt.engine.planning.best_candidate import BestCandidate, Machine, best_candidate, goal_of
from autoopt.engine.planning.imported_knowledge import imported_digests, imported_lessons, lesson_id
from autoopt.json_codec import JsonValue
from autoopt.metrics import MEDIAN_LATENCY, known_metric
from autoopt.model.files import digest_file
from autoopt.model.inspection import Inspection
from autoopt.outcome import Outcome
from autoopt.registry import BUILT_IN as BUILT_IN_PASSES
from autoopt.registry import registry
from autoopt.results.knowledge import (
    BUILT_IN_FILE,
    MAX_CONFIGURATIONS,
    MAX_EFFECTS,
    Configuration,
    GoalFacts,
    Lesson,
    MachineFacts,
    MeasuredConfiguration,
    ModelFacts,
    PassEffect,
    Spread,
    built_in_knowledge,
)
from autoopt.search.surrogates.effects import Effect, Factor, Scale, estimated_effects
from autoopt.store import PassRunRecord, RunRecord, Store, TrialRecord
from autoopt.target import Accelerator

MAX_OWN: Final = 24
"""Newest lessons of the store that a plan learns from; each of them reads the trials of a run."""
MAX_TRIALS: Final = 200
"""Trials of a run that effects are learned from: the first ones."""
OWN: Final = "this store"
IMPORTED: Final = "imported"
BUILT_IN: Final = "built in"
"""Origins of lessons."""
CUSTOM: Final = "custom"
"""Stands for operators of other domains and metrics of scripts."""
LATENCY: Final = Scale()
QUALITY: Final = Scale(of_pass=0.05, of_value=0.03, noise=0.005)
"""For metrics between 0 and 1."""
_WORD: Final = re.compile(r"[A-Za-z0-9_.:+@() -]{1,64}")
_OPERATOR: Final = re.compile(r"(?:(?:ai\.onnx\.ml|com\.microsoft(?:\.[a-z]+)?)::)?[A-Z][A-Za-z0-9]{0,40}")
_INSTRUCTION_SETS: Final = re.compile(r"(?:avx|amx|asimd|sve)\w*|fma|f16c|i8mm|bf16|sme2?")


@dataclass(frozen=True)
class NamedLesson:
    """A lesson and the name of its model, which knowledge for other stores leaves out."""

    model: str
    """Name of the model."""
    lesson: Lesson
    origin: str = OWN


def own_lessons(store: Store) -> Iterator[NamedLesson]:
    """The lessons of the finished runs of this store, newest first: one for each model and goal."""
    models = {model.artifact: model for model in store.models.all() if model.inspection}
    taught: set[tuple[object, ...]] = set()
    for run in store.runs.all(status="finished"):
        model, goal = models.get(run.model), goal_of(run)
        if model is None or goal is None or run.imported or (run.model, goal) in taught:
            continue
        if known_metric(goal.metric) is None:
            continue
        taught.add((run.model, goal))
        name = run.name.partition(" · ")[0] or model.name
        yield NamedLesson(name, _lesson(store, run, Inspection.from_json(model.inspection)))


def all_lessons(store: Store | None, *, built_in: bool = True, own: int | None = None) -> Iterator[NamedLesson]:
    """The `own` newest lessons of this store, then imported and built-in ones, whose models are called by their ids."""
    if store is not None:
        yield from islice(own_lessons(store), own)
        for lesson in imported_lessons(store):
            yield NamedLesson(f"{lesson.name} ({IMPORTED})", lesson, IMPORTED)
    if built_in:
        for lesson in built_in_knowledge().lessons:
            yield NamedLesson(f"{lesson.name} ({BUILT_IN})", lesson, BUILT_IN)


def lessons_key(store: Store | None, *, built_in: bool) -> JsonValue:
    """Identify the lessons that `all_lessons` yields, without reading runs or trials."""
    finished: tuple[str, ...] = ()
    imported: list[str] = []
    if store is not None:
        finished, imported = store.runs.finished_ids(), imported_digests(store)
    return [*finished, "imported", *imported, "built in", digest_file(BUILT_IN_FILE) if built_in else None]


def _lesson(store: Store, run: RunRecord, inspection: Inspection) -> Lesson:
    goal = goal_of(run)
    assert goal is not None, "the caller has checked it"
    trials = [trial for trial in store.trials.all(run.id) if trial.status == "done"][:MAX_TRIALS]
    quality = _quality_metric(trials)
    best = best_candidate(store, run)
    rows = _rows(store, run, trials, quality)
    limits = {}
    for name, bounds in goal.limits.items():
        limits[name if known_metric(name) else CUSTOM] = dict(bounds)
    return Lesson(
        id=lesson_id(run.id),
        model=_model_facts(inspection),
        machine=_machine_facts(store, run, trials),
        goal=GoalFacts(
            metric=goal.metric,
            device=goal.device,
            execution_provider=goal.execution_provider,
            threads=goal.threads,
            limits=limits,
        ),
        trials=len(trials),
        quality_metric=quality,
        best=_configuration(best),
        effects=_effects(rows),
        configurations=_configurations(rows),
    )


def _model_facts(inspection: Inspection) -> ModelFacts:
    op_counts: dict[str, int] = {}
    for op, count in inspection.op_counts.items():
        name = op if _OPERATOR.fullmatch(op) else CUSTOM
        op_counts[name] = op_counts.get(name, 0) + count
    layers = {op: count for op, count in inspection.layer_parameters.items() if _OPERATOR.fullmatch(op)}
    work = {op: count for op, count in inspection.layer_work.items() if _OPERATOR.fullmatch(op)}
    return ModelFacts(
        op_counts=op_counts,
        layer_parameters=layers,
        layer_work=work,
        weight_dtypes=dict(inspection.weight_dtypes),
        parameters=inspection.parameters,
        bytes=inspection.bytes,
        opset=inspection.opsets.get("", 0),
    )


def _machine_facts(store: Store, run: RunRecord, trials: Sequence[TrialRecord]) -> MachineFacts:
    """The machine of the first trial that was measured."""
    accelerator = (run.settings.get("replay_environment") or {}).get("accelerator") or {}
    isa = sorted(instruction_sets(accelerator.get("isa") or ()))
    for trial in trials:
        for evaluation in store.results.evaluations(trial.evaluations).values():
            machine = Machine.that_measured(evaluation)
            cores = (evaluation.environment.get("cpu") or {}).get("cores")
            return MachineFacts(cpu=_word(machine.cpu), cores=cores, isa=tuple(isa), runtime=_word(machine.runtime))
    return MachineFacts(isa=tuple(isa))


def instruction_sets(flags: Iterable[str]) -> list[str]:
    """The flags of a CPU that matter for inference."""
    return [flag for flag in flags if _INSTRUCTION_SETS.fullmatch(flag)]


def _word(text: str) -> str | None:
    """A text as the file may hold it; None if it may not."""
    return text if _WORD.fullmatch(text) else None


def _configuration(best: BestCandidate | None) -> Configuration | None:
    """The best candidate, if its passes are built in and all its values are public."""
    if best is None or not best.passes <= set(BUILT_IN_PASSES):
        return None
    values: dict[str, dict[str, JsonValue]] = {}
    for name, params in best.values.items():
        if name in best.passes:
            if not all(is_public(name, value) for value in params.values()):
                return None
            values[name] = dict(params)
    ratios = {name: round(ratio, 5) for name, ratio in best.ratios.items() if known_metric(name) and ratio > 0}
    return Configuration.model_validate({"passes": sorted(best.passes), "values": values, "ratios": ratios})


def is_public(pass_name: str, value: JsonValue) -> bool:
    """True if a value says nothing about its model: a number, or a text that the pass itself or a proposal names.

    Other texts may be names of nodes, or paths.
    """
    if value is None or isinstance(value, bool | int | float):
        return True
    if isinstance(value, str):
        return value in public_texts(pass_name)
    return isinstance(value, list) and all(item in public_texts(pass_name) for item in value)


@lru_cache(maxsize=256)
def public_texts(pass_name: str) -> frozenset[str]:
    """The texts among the values that a built-in pass searches or takes by default, or that proposals search."""
    # Proposals add the values of `dynamic_ops` to templates where the model has such operators.
    values: list[object] = [value for value, _ in (*LSTM_AT_RUN_TIME, *PRODUCTS_AT_RUN_TIME)]
    for parameter in registry().info(pass_name, Accelerator()).parameters:
        values.append(parameter.default)
        if parameter.search is not None:
            values += parameter.search.all_values()
    for template in TEMPLATES.values():
        if template.pass_name == pass_name:
            for choices in template.search.values():
                values += [value for value, _ in choices]
    return frozenset(_texts(values))


def _texts(values: Iterable[object]) -> Iterator[str]:
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, list | tuple):
            yield from _texts(value)


@dataclass(frozen=True)
class _Row:
    """A trial as the regression takes it."""

    factors: frozenset[Factor]
    latency: float | None
    """Log ratio."""
    quality: float | None
    rejected: bool


def _configurations(rows: Sequence[_Row]) -> tuple[MeasuredConfiguration, ...]:
    """The configurations of the first trials, each once, without trials of no built-in pass."""
    measured: dict[frozenset[Factor], MeasuredConfiguration] = {}
    for row in rows:
        passes: dict[str, dict[str, JsonValue]] = {}
        for factor in sorted(row.factors):
            values = passes.setdefault(factor.pass_name, {})
            if factor.parameter:
                values[factor.parameter] = json.loads(factor.value)
        if passes:
            ratio = None if row.latency is None else round(math.exp(row.latency), 5)
            tried = MeasuredConfiguration.model_validate({"passes": passes, "ratio": ratio, "rejected": row.rejected})
            measured.setdefault(row.factors, tried)
    return tuple(measured.values())[:MAX_CONFIGURATIONS]


def _effects(rows: Sequence[_Row]) -> tuple[PassEffect, ...]:
    """The effects of the built-in passes and their values, those with the most trials first."""
    measured = [(row.factors, row.latency) for row in rows if row.latency is not None]
    judged = [(row.factors, row.quality) for row in rows if row.quality is not None]
    latency, loss = estimated_effects(measured, LATENCY), estimated_effects(judged, QUALITY)
    effects: list[PassEffect] = []
    for factor, mine in _by_factor(rows).items():
        effects.append(
            PassEffect(
                pass_name=factor.pass_name,
                parameter=factor.parameter or None,
                value=json.loads(factor.value or "null"),
                latency=_spread(latency.get(factor)),
                quality=_spread(loss.get(factor)),
                trials=sum(row.latency is not None for row in mine),
                rejected=sum(row.rejected for row in mine),
            )
        )
    effects.sort(key=lambda effect: -effect.trials - effect.rejected)
    return tuple(effects[:MAX_EFFECTS])


def _by_factor(rows: Iterable[_Row]) -> dict[Factor, list[_Row]]:
    """The trials with each factor."""
    by_factor: dict[Factor, list[_Row]] = {}
    for row in rows:
        for factor in sorted(row.factors):
            by_factor.setdefault(factor, []).append(row)
    return by_factor


def _rows(store: Store, run: RunRecord, trials: Sequence[TrialRecord], quality: str | None) -> list[_Row]:
    pass_runs = store.results.pass_runs({key for trial in trials for key in trial.pass_runs})
    baseline = run.result.get("baseline") or {}
    source_quality = (baseline.get("metrics") or {}).get(quality, 1.0)
    rows: list[_Row] = []
    for trial in trials:
        change = None
        if quality is not None and quality in trial.metrics:
            change = trial.metrics[quality].value - float(source_quality)
        factors = _factors(run, trial, pass_runs)
        rows.append(_Row(factors, _log_ratio(trial), change, not trial.result.feasible))
    return rows


def _log_ratio(trial: TrialRecord) -> float | None:
    """Logarithm of the ratio of the median latencies; None if it was not measured."""
    ratio = trial.ratios.get(MEDIAN_LATENCY)
    if ratio is None or ratio.value <= 0:
        return None
    return math.log(ratio.value)


def _factors(run: RunRecord, trial: TrialRecord, pass_runs: Mapping[str, PassRunRecord]) -> frozenset[Factor]:
    """The built-in passes that changed the model or failed on it, and the values of their parameters."""
    nodes: Mapping[str, str] = run.plan.get("nodes", {})
    usable = set(nodes.values()) & set(BUILT_IN_PASSES)
    factors: set[Factor] = set()
    for key in trial.pass_runs:
        record = pass_runs.get(key)
        if record is not None and record.outcome is not Outcome.UNCHANGED and record.pass_name in usable:
            factors.add(Factor(record.pass_name))
    for node, params in trial.point.items():
        name = nodes.get(node, "")
        if Factor(name) in factors:
            factors |= {Factor(name, key, json.dumps(value)) for key, value in params.items() if is_public(name, value)}
    return frozenset(factors)


def _quality_metric(trials: Sequence[TrialRecord]) -> str | None:
    """The first metric of the trials that judges the outputs, if it is a share: other units cannot be compared."""
    for trial in trials:
        for name in trial.metrics:
            metric = known_metric(name)
            if metric is not None and metric.kind in ("task", "fidelity") and metric.unit == "fraction":
                return name
    return None


def _spread(effect: Effect | None) -> Spread | None:
    if effect is None:
        return None
    mean = round(effect.mean, 4) or 0.0  # without a sign
    return Spread(mean=mean, deviation=round(effect.deviation, 4))
