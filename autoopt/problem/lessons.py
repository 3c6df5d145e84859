"""Lessons: what the runs of this store, and those whose lessons autoopt ships, measured about configurations."""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Final, TypeAlias

from autoopt.json_codec import JsonValue, from_json
from autoopt.metrics import MEDIAN_LATENCY, known_metric
from autoopt.model.files import digest_file
from autoopt.model.inspection import Inspection
from autoopt.outcome import Outcome
from autoopt.problem.best_candidate import Machine, RunGoal, goal_of
from autoopt.registry import BUILT_IN as BUILT_IN_PASSES
from autoopt.results import Trial
from autoopt.space import Value
from autoopt.store import ModelRecord, PassRunRecord, RunRecord, Store

logger = logging.getLogger(__name__)

Configuration: TypeAlias = Mapping[str, Mapping[str, Value]]
"""Pass -> parameter -> value."""

BUILT_IN_FILE: Final = Path(__file__).with_name("built_in_lessons.json")
"""The lessons that autoopt ships; `python -m benchmarks.search lessons` makes the file."""
MAX_OWN: Final = 24
"""Newest lessons of the store that a plan learns from; each of them reads the trials of a run."""
MAX_TRIALS: Final = 200
"""Trials of a run that configurations are learned from: the first ones."""
MAX_CONFIGURATIONS: Final = 60
"""Configurations of one lesson."""
OWN: Final = "this store"
BUILT_IN: Final = "built in"
"""Origins of lessons."""
_INSTRUCTION_SETS: Final = re.compile(r"(?:avx|amx|asimd|sve)\w*|fma|f16c|i8mm|bf16|sme2?")


@dataclass(frozen=True)
class Tried:
    """A configuration that was tried on a model."""

    configuration: Configuration
    """The built-in passes that changed the model, with the values that were searched."""
    ratio: float | None = None
    """candidate / source of the median latency; None if it was not measured."""
    rejected: bool = False
    """It failed or broke a limit."""


@dataclass(frozen=True)
class Lesson:
    """The measurements of one run on one model."""

    model: str
    """Name of the model."""
    inspection: Inspection
    machine: Machine
    isa: tuple[str, ...]
    """Instruction sets of the machine that matter for inference."""
    goal: RunGoal
    tried: tuple[Tried, ...]
    origin: str = OWN


def own_lessons(store: Store) -> Iterator[Lesson]:
    """The lessons of the finished runs of this store, newest first: one for each model and goal."""
    models = {model.artifact: model for model in store.models.all() if model.inspection}
    taught: set[tuple[object, ...]] = set()
    for run in store.runs.all(status="finished"):
        model, goal = models.get(run.model), goal_of(run)
        if model is None or goal is None or (run.model, goal) in taught:
            continue
        if known_metric(goal.metric) is None:
            continue
        taught.add((run.model, goal))
        try:
            lesson = _lesson(store, run, model, goal)
        except Exception:  # whatever a run has stored; the others still teach
            logger.warning("the lesson of run %s is left out", run.id, exc_info=True)
            continue
        yield lesson


def _lesson(store: Store, run: RunRecord, model: ModelRecord, goal: RunGoal) -> Lesson:
    trials = [trial for trial in store.trials.all(run.id) if trial.status == "done"][:MAX_TRIALS]
    accelerator = (run.settings.get("replay_environment") or {}).get("accelerator") or {}
    return Lesson(
        model=run.name.partition(" · ")[0] or model.name,
        inspection=Inspection.from_json(model.inspection),
        machine=_machine(store, trials),
        isa=tuple(sorted(instruction_sets(accelerator.get("isa") or ()))),
        goal=goal,
        tried=_tried(store, run, trials),
    )


@lru_cache
def built_in_lessons() -> tuple[Lesson, ...]:
    """The lessons that autoopt ships."""
    return from_json(tuple[Lesson, ...], json.loads(BUILT_IN_FILE.read_bytes()))


def all_lessons(store: Store | None, *, built_in: bool = True, own: int | None = None) -> Iterator[Lesson]:
    """The `own` newest lessons of this store, then the built-in ones."""
    if store is not None:
        yield from islice(own_lessons(store), own)
    if built_in:
        yield from built_in_lessons()


def lessons_key(store: Store | None, *, built_in: bool) -> JsonValue:
    """Identify the lessons that `all_lessons` yields, without reading runs or trials."""
    finished = () if store is None else store.runs.finished_ids()
    return [*finished, "built in", digest_file(BUILT_IN_FILE) if built_in else None]


def _machine(store: Store, trials: Sequence[Trial]) -> Machine:
    """The machine of the first trial that was measured."""
    for trial in trials:
        for evaluation in store.results.evaluations(trial.evaluations).values():
            return Machine.that_measured(evaluation)
    return Machine("", "")


def instruction_sets(flags: Iterable[str]) -> list[str]:
    """The flags of a CPU that matter for inference."""
    return [flag for flag in flags if _INSTRUCTION_SETS.fullmatch(flag)]


def _tried(store: Store, run: RunRecord, trials: Sequence[Trial]) -> tuple[Tried, ...]:
    """The configurations of the first trials, each once, without trials of no built-in pass."""
    pass_runs = store.results.pass_runs({key for trial in trials for key in trial.pass_runs})
    measured: dict[str, Tried] = {}
    for trial in trials:
        configuration = _configuration(run, trial, pass_runs)
        if configuration:
            tried = Tried(configuration, _ratio(trial), not trial.feasible)
            measured.setdefault(json.dumps(configuration, sort_keys=True), tried)
    return tuple(measured.values())[:MAX_CONFIGURATIONS]


def _configuration(run: RunRecord, trial: Trial, pass_runs: Mapping[str, PassRunRecord]) -> Configuration:
    """The built-in passes that changed the model or failed on it, and the values of their parameters."""
    nodes: Mapping[str, str] = run.plan.get("nodes", {})
    usable = set(nodes.values()) & set(BUILT_IN_PASSES)
    configuration: dict[str, dict[str, Value]] = {}
    for key in trial.pass_runs:
        record = pass_runs.get(key)
        if record is not None and record.outcome is not Outcome.UNCHANGED and record.pass_name in usable:
            configuration[record.pass_name] = {}
    for node, params in trial.point.items():
        if nodes.get(node) in configuration:
            configuration[nodes[node]].update(params)
    return configuration


def _ratio(trial: Trial) -> float | None:
    """The ratio of the median latencies; None if it was not measured."""
    ratio = trial.ratios.get(MEDIAN_LATENCY)
    if ratio is None or not is_measured(ratio.value):
        return None
    return ratio.value


def is_measured(ratio: float) -> bool:
    """True if a ratio can be learned from; a clock that stood still gives 0 or infinity."""
    return 0 < ratio < math.inf
