"""A run of several parts, one for each target or for each model of a set. Each part is a run of its own.

`prepare_parts.py` resolves such a problem; `targets.py` and `model_set.py` choose among the best models of its parts.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from autoopt.dag import Plan
from autoopt.engine.parts.set_inputs import SetInputs
from autoopt.engine.run.opening import SHOWN_CHAINS, begin_run, is_complete, open_session, settings_of, stored_answer
from autoopt.engine.run.session import Session
from autoopt.engine.work.context import RunContext
from autoopt.problem.problem import Problem
from autoopt.problem.resolve import plans_json
from autoopt.problem.resources import Resources
from autoopt.problem.run_request import RunRequest
from autoopt.results import Note, RunResult, WorkCounts
from autoopt.results.run import SearchEnd
from autoopt.spec.targets import TargetSpec
from autoopt.store import RunRecord, Store
from autoopt.store.leases import finish_run, run_lease
from autoopt.store.records import part_documents

Search = Callable[[Session], RunResult]
"""Searches one part."""


@dataclass
class PoolPart:
    """A target of another machine, which executes its search as a run of its own in the same store."""

    name: str
    """Of the target, or of the model of a set."""
    target: TargetSpec
    request: RunRequest
    result: RunResult | None = field(default=None, kw_only=True)
    """The result of its search, once that has ended."""

    @property
    def searched(self) -> RunResult:
        assert self.result is not None, "the search of this part has not ended"
        return self.result


@dataclass
class Part(PoolPart):
    """A part of this machine: a run of its own with its plan and its trials."""

    problem: Problem
    share: float = 1.0
    """Share of the set's time that a model takes."""
    models: PartsProblem | None = None
    """The set that is searched on a target, whose whole is the problem; None for a single model."""
    session: Session | RunOfParts | None = None
    """Opened by `RunOfParts.session_of`; a run of several parts for a target of a model set."""

    @property
    def open_session(self) -> Session | RunOfParts:
        assert self.session is not None, "the search of this part has not started"
        return self.session

    @property
    def plans(self) -> dict[str, Plan]:
        """The plan, or those of the models of a set, by name."""
        if self.models is None:
            return {self.name: self.problem.plan}
        return {f"{self.name}, {part.name}": part.problem.plan for part in self.models.parts}

    @property
    def is_pruned(self) -> bool:
        """True if every chain is pruned, of one of the models at least."""
        return not all(plan.chain_count for plan in self.plans.values())


@dataclass(frozen=True)
class PartsProblem:
    """A problem of several parts: targets, or the models of a set on one target."""

    request: RunRequest
    kind: Literal["targets", "models"]
    parts: list[Part]
    """Those of this machine, in the order in which they run."""
    whole: Problem
    """The subject of the run's figures: the set, or the model on the first target."""
    name: str
    identity: str
    """Equal for runs that try the same."""
    settings: Mapping[str, Any]
    """Entries of the run's settings."""
    notes: Sequence[Note] = ()
    inputs: SetInputs | None = None
    """The models of the set, and what reaches each."""
    pools: Sequence[PoolPart] = ()
    """The targets of other machines; they follow those of this one."""

    def record(self, parent: RunRecord | None) -> RunRecord:
        """The record of a new run; `parent` is the run over several targets that it is a part of."""
        plans = {name: plan for part in self.parts for name, plan in part.plans.items()}
        return RunRecord(
            id="",
            name=self.name if parent is None else f"{self.name} · {self.whole.target.name}",
            identity=self.identity,
            model=self.whole.source.artifact,
            plan=plans_json(plans, SHOWN_CHAINS, self.kind),
            settings={**settings_of(self.request, self.whole), "model": self.name, **self.settings},
            sweep=self.request.sweep,
            parent=None if parent is None else parent.id,
        )


@dataclass
class RunOfParts(ABC):
    """A prepared run of several parts, with the interface of `Session`. They share workers, pass runs and store.

    The parts follow each other, because latencies on one machine cannot be measured in parallel.
    """

    problem: PartsProblem
    resources: Resources
    began: float
    """Start of the run on `time.monotonic`, earlier by what interrupted attempts took."""
    record: RunRecord
    answer: RunResult | None = None
    """The result of an identical finished run, if there is one."""
    parts: list[Part] = field(init=False)
    request: RunRequest = field(init=False)
    notes: list[Note] = field(init=False)
    closing: ExitStack = field(default_factory=ExitStack, init=False)

    def __post_init__(self) -> None:
        self.request, self.parts, self.notes = self.problem.request, self.problem.parts, list(self.problem.notes)

    @classmethod
    def open(cls, problem: PartsProblem, resources: Resources, began: float, parent: RunRecord | None = None) -> Self:
        """Begin a run of several parts, resume it, or find the finished one that answers.

        `began` is the start of the command on `time.monotonic`; `parent` is as in `PartsProblem.record`.
        """
        request, store, record = problem.request, resources.store, problem.record(parent)
        answer = None
        finished = store.runs.latest_finished(record.identity) if request.accepts_answer else None
        if finished is None or not all(map(is_complete, (finished.result, *part_documents(finished.result)))):
            record = begin_run(request, record, store)
        elif request.is_retry or is_outdated(finished, store):
            record = begin_run(replace(request, resume=finished.id), record, store)
        else:
            record, answer = finished, stored_answer(store, finished, time.monotonic() - began)
        taken = sum(part.seconds for part in store.runs.all(parent=record.id))
        return cls(problem, resources, began - taken, record, answer)

    @property
    @abstractmethod
    def ctx(self) -> RunContext:
        """The context in which the figures of `best` are measured."""

    @abstractmethod
    def choose(self) -> RunResult:
        """Choose among the best models of the searched parts."""

    @abstractmethod
    def export(self, result: RunResult, out: Path) -> RunResult:
        """Write the packages of a result to the folder `out`; the returned result has their paths."""

    def __enter__(self) -> Self:
        if self.answer is None:
            self.closing.enter_context(run_lease(self.resources.store, self.record.id, self.request.observer.on_note))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closing.__exit__(kind, error, trace)

    def execute(self, search: Search) -> RunResult:
        """Return the answer of an identical finished run, or search each part with `search` and join the results."""
        if self.answer is not None:
            return self.answer
        for note in self.notes:
            self.request.observer.on_note(str(note))
        for part in self.parts:
            self.search_part(part, search)
        result = self.choose()
        finish_run(self.resources.store, self.record.id, result.to_json())
        return result

    def export_incumbent(self, out: Path) -> bool:
        """Export the best model so far of each part whose search has begun to `out/<name>`; true if there was one."""
        is_written = False
        for part in self.parts:
            if part.session is not None:
                is_written |= part.session.export_incumbent(out / part.name)
        return is_written

    def joined(self, results: Sequence[RunResult]) -> RunResult:
        """The counts, the end and the goal of these searches together, with the notes of this run."""
        trials: Counter[str] = Counter()
        pass_runs = evaluations = WorkCounts()
        for result in results:
            trials.update(result.trial_counts)
            pass_runs += result.pass_runs
            evaluations += result.evaluations
        end, goal = SearchEnd.of(results), self.problem.whole.goal
        return RunResult(
            run=self.record.id,
            status="finished",
            trial_counts=dict(trials),
            pass_runs=pass_runs,
            evaluations=evaluations,
            seconds={"total": round(time.monotonic() - self.began, 3)},
            stopped=end.text,
            time_limit=end.limit,
            notes=tuple(map(str, self.notes)),
            objectives=goal.objectives,
            constraints=goal.constraints,
        )

    def session_of(self, part: Part) -> Session | RunOfParts:
        """The session of a part, opened at the first call."""
        if part.session is None:
            part.session = self.opened(part)
        return part.session

    def opened(self, part: Part) -> Session | RunOfParts:
        """Open the session of a part."""
        return open_session(part.request, part.problem, self.resources, time.monotonic(), parent=self.record)

    def search_part(self, part: Part, search: Search) -> None:
        """Search one part."""
        with self.session_of(part) as session:
            part.result = session.execute(search)


def is_outdated(record: RunRecord, store: Store) -> bool:
    """True if a part of a finished run changed after its parts were joined."""
    part_ids = {str(part["run"]) for part in part_documents(record.result)}
    joined = record.finished or 0.0
    return any((run.finished or 0.0) > joined for run in store.runs.all(status="finished") if run.id in part_ids)
