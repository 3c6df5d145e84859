"""Runs of several parts, one for each target or for each model of a set. Each part is a run of its own."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from autoopt.engine.run.opening import begin_run, is_complete, open_session, stored_answer
from autoopt.engine.run.session import Session
from autoopt.engine.work.context import RunContext
from autoopt.problem.problem import Problem
from autoopt.problem.resources import Resources
from autoopt.problem.run_request import RunRequest
from autoopt.results import RunResult, WorkCounts
from autoopt.results.run import SearchEnd
from autoopt.store import RunRecord, Store
from autoopt.store.leases import finish_run, run_lease
from autoopt.store.records import part_documents

Search = Callable[[Session], RunResult]
"""Searches one part."""


@dataclass
class RunPart:
    """One part of a run: a run of its own with its plan and its trials."""

    name: str
    request: RunRequest
    problem: Problem
    session: Session | RunOfParts[Any] | None = None
    """Opened by `RunOfParts.session_of`; a run of several parts for a target of a model set."""
    result: RunResult | None = None
    """The result of its search, once it has ended."""

    @property
    def open_session(self) -> Session | RunOfParts[Any]:
        assert self.session is not None, "the search of this part has not started"
        return self.session

    @property
    def searched(self) -> RunResult:
        assert self.result is not None, "the search of this part has not ended"
        return self.result


PartT = TypeVar("PartT", bound=RunPart)


@dataclass
class RunOfParts(ABC, Generic[PartT]):
    """A prepared run of several parts, with the interface of `Session`. They share workers, pass runs and store."""

    request: RunRequest
    resources: Resources
    parts: list[PartT]
    """In the order in which they run."""
    began: float
    """Start of the run, on `time.monotonic`."""
    record: RunRecord
    answer: RunResult | None = None
    """The result of an identical finished run, if there is one."""
    closing: ExitStack = field(default_factory=ExitStack, init=False)

    @property
    @abstractmethod
    def ctx(self) -> RunContext:
        """The context in which the figures of `best` are measured."""

    @abstractmethod
    def search(self, search: Search) -> RunResult:
        """Search all parts and join their results."""

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
        result = self.search(search)
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
        """The counts and the end of these searches together."""
        trials: Counter[str] = Counter()
        pass_runs = evaluations = WorkCounts()
        for result in results:
            trials.update(result.trial_counts)
            pass_runs += result.pass_runs
            evaluations += result.evaluations
        end = SearchEnd.of(results)
        return RunResult(
            run=self.record.id,
            status="",
            trial_counts=dict(trials),
            pass_runs=pass_runs,
            evaluations=evaluations,
            stopped=end.text,
            time_limit=end.limit,
        )

    def session_of(self, part: PartT) -> Session | RunOfParts[Any]:
        """The session of a part, opened at the first call."""
        if part.session is None:
            part.session = self.opened(part)
        return part.session

    def opened(self, part: PartT) -> Session | RunOfParts[Any]:
        """Open the session of a part."""
        return open_session(part.request, part.problem, self.resources, time.monotonic(), parent=self.record)

    def search_part(self, part: PartT, search: Search) -> None:
        """Search one part."""
        with self.session_of(part) as session:
            part.result = session.execute(search)


def open_run_of_parts(
    request: RunRequest, record: RunRecord, store: Store, began: float
) -> tuple[RunRecord, RunResult | None]:
    """Begin a run of several parts, resume it, or find the finished one that answers.

    `began` is the start of the command on `time.monotonic`.

    Returns:
        The run's record, and the answer of an identical finished run if there is one.
    """
    finished = store.runs.latest_finished(record.identity) if request.accepts_answer else None
    if finished is None or not all(map(is_complete, (finished.result, *part_documents(finished.result)))):
        return begin_run(request, record, store), None
    if request.is_retry or is_outdated(finished, store):
        return begin_run(replace(request, resume=finished.id), record, store), None
    return finished, stored_answer(store, finished, time.monotonic() - began)


def time_of_parts(store: Store, run: str) -> float:
    """Seconds that the parts of a run had taken when it was interrupted; 0 for a new one."""
    return sum(part.seconds for part in store.runs.all(parent=run))


def is_outdated(record: RunRecord, store: Store) -> bool:
    """True if a part of a finished run changed after its parts were joined."""
    part_ids = {str(part["run"]) for part in part_documents(record.result)}
    joined = record.finished or 0.0
    return any((run.finished or 0.0) > joined for run in store.runs.all(status="finished") if run.id in part_ids)
