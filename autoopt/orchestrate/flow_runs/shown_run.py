"""A run of `autoopt run` in Prefect: a flow run for the model, below it one for each chain, with trials as task runs.

All of it is read from the store, so that the run itself neither waits for Prefect nor imports it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias
from uuid import NAMESPACE_URL, uuid5

from autoopt.orchestrate.flow_runs import naming
from autoopt.orchestrate.flow_runs.artifacts import Artifact, chain_artifacts, result_artifacts
from autoopt.orchestrate.flow_runs.naming import chain_end, chain_run_name, trial_message
from autoopt.orchestrate.flow_runs.run_log import RunLog, log_result, log_trial
from autoopt.orchestrate.server.rest import PrefectApi
from autoopt.owner import is_known_dead
from autoopt.results import RunResult, Trial, TrialResult
from autoopt.store import RunRecord, Store

Document: TypeAlias = dict[str, Any]
LOGGER: Final = "prefect.flow_runs"
_BATCH = 200
"""Events or log lines in one request."""


@dataclass(frozen=True)
class Showing:
    """The display of a run that the process that executes it asks for."""

    owner: str
    """The process that executes the run."""
    server: str
    """Digest of the server's address; empty for the user's own server."""
    name: str
    tags: tuple[str, ...]
    metrics: tuple[str, ...]
    """The metrics of the run's objectives and constraints."""
    trials: int
    """Largest number of trials."""
    parent: str = ""
    """Id of the flow run of the sweep."""
    earlier: tuple[int, ...] = ()
    """Trials that were done before."""


@dataclass
class _ChainFlow:
    """The flow runs of a chain, one for each `MAX_TRIALS` trials, and what their trials came to."""

    name: str
    flow_runs: list[str] = field(default_factory=list)
    trials: int = 0
    results: list[TrialResult] = field(default_factory=list)


class ShownRun:
    """Brings what a Prefect server shows of a run up to date with the store. Not thread-safe.

    Requests raise what `PrefectApi` raises. `update` can then be called again: it repeats what has not been sent.
    """

    def __init__(self, store: Store, run: str, key: str, showing: Showing) -> None:
        """`key` identifies this showing of the run among all others."""
        self._store, self._run, self._key, self._showing = store, run, key, showing
        self._flow_run = ""
        self._chains: dict[str, _ChainFlow] = {}
        self._flow_of: dict[int, str] = {}
        self._begun: dict[int, datetime] = {}
        self._done = set(showing.earlier)
        self._log: RunLog | None = None
        self._events: list[Document] = []
        self._lines: list[Document] = []

    def update(self, api: PrefectApi) -> bool:
        """Show what is new; returns True once the run has ended and everything is shown."""
        record = self._store.runs.get(self._run)
        over = record.status != "running" or is_known_dead(self._showing.owner)
        if not self._flow_run:
            self._flow_run = self._create(api, "optimize_model", self._showing.name, self._key, self._showing.parent)
        self._begin_log(record)
        self._show_trials(api)
        _send(api, "/events", self._events)
        _send(api, "/logs/", self._lines)
        if over:
            self._end(api, record)
        return over

    def _begin_log(self, record: RunRecord) -> None:
        """Begin the log of the run, once its source model was measured."""
        if self._log is None and "baseline" in record.result:
            result = RunResult.from_json(record.result)
            self._log = RunLog(self._logger(self._flow_run))
            self._log.on_search_start(result.objectives, result.constraints, self._showing.trials, float("inf"))
            self._log.on_baseline(result.baseline.intervals)

    def _show_trials(self, api: PrefectApi) -> None:
        for row in self._store.trials.all(self._run):
            if row.number in self._done:
                continue
            now = datetime.now(UTC)
            if row.number not in self._begun:
                self._flow_of[row.number] = self._flow_run_of(api, row.chain)
                self._begun[row.number] = now - timedelta(seconds=row.seconds)
                self._add_event(row.number, "RUNNING", "", self._begun[row.number], None)
            if row.status == "done":
                chain = self._chains[row.chain]
                chain.results.append(row.result)
                message = trial_message(row.result, self._showing.metrics)
                state = "COMPLETED" if row.result.outcome.good else "FAILED"
                self._add_event(row.number, state, message, self._begun[row.number], now)
                trial = Trial(row.number, chain.name, row.result)
                logger = self._logger(self._flow_of[row.number], self._task_run(row.number))
                log_trial(logger, trial, self._showing.metrics)
                if self._log is not None:
                    self._log.on_trial_end(trial, None)
                self._done.add(row.number)

    def _flow_run_of(self, api: PrefectApi, chain: str) -> str:
        """The flow run for the next trial of a chain."""
        flow = self._chains.get(chain)
        if flow is None:
            names = {one.id: one.name for one in self._store.runs.chains(self._run)}
            flow = self._chains[chain] = _ChainFlow(names[chain])
        if flow.trials >= naming.MAX_TRIALS * len(flow.flow_runs):
            round_ = len(flow.flow_runs) + 1
            name, key = chain_run_name(flow.name, round_), f"{self._key}/{chain}/{round_}"
            tag = naming.flow_run_name(f"chain:{chain}")
            flow.flow_runs.append(self._create(api, "tune_chain", name, key, self._flow_run, tag))
        flow.trials += 1
        return flow.flow_runs[-1]

    def _create(self, api: PrefectApi, flow: str, name: str, key: str, parent: str, *tags: str) -> str:
        """Create a flow run below another one, unless it exists; returns its id."""
        document: Document = {
            "flow_id": api.post("/flows/", {"name": flow})["id"],
            "name": name,
            "tags": [*self._showing.tags, *tags],
            "idempotency_key": key,
            "parameters": {"run": self._run, "name": name},
            "state": _state("RUNNING"),
        }
        if parent:
            link = {
                "name": name,
                "flow_run_id": parent,
                "task_key": flow,
                "dynamic_key": key,
                "state": _state("PENDING"),
            }
            document["parent_task_run_id"] = api.post("/task_runs/", link)["id"]
        return str(api.post("/flow_runs/", document)["id"])

    def _task_run(self, number: int) -> str:
        return str(uuid5(NAMESPACE_URL, f"{self._key}/{number}"))

    def _add_event(self, number: int, state: str, message: str, begun: datetime, ended: datetime | None) -> None:
        """Add the event from which the server derives the state of a trial's task run."""
        task_run, flow_run = self._task_run(number), self._flow_of[number]
        name = f"trial {number}"
        row: Document = {
            "name": name,
            "task_key": "trial",
            "dynamic_key": str(number),
            "run_count": 1,
            "flow_run_run_count": 1,
            "expected_start_time": begun.isoformat(),
            "start_time": begun.isoformat(),
        }
        if ended is not None:
            row |= {"end_time": ended.isoformat(), "total_run_time": (ended - begun).total_seconds()}
        event = {
            "id": str(uuid5(NAMESPACE_URL, f"{self._key}/{number}/{state}")),
            "occurred": (ended or begun).isoformat(),
            "event": f"prefect.task-run.{state.capitalize()}",
            "resource": {
                "prefect.resource.id": f"prefect.task-run.{task_run}",
                "prefect.resource.name": name,
                "prefect.state-type": state,
                "prefect.orchestration": "client",
            },
            "related": [
                {"prefect.resource.id": f"prefect.flow-run.{flow_run}", "prefect.resource.role": "flow-run"},
            ],
            "payload": {"validated_state": _state(state, message), "task_run": row},
        }
        self._events.append(event)

    def _logger(self, flow_run: str, task_run: str | None = None) -> logging.Logger:
        """A logger whose records become lines in the log of a flow run or task run."""
        logger = logging.Logger(LOGGER)
        logger.addHandler(_LineHandler(self._lines, {"flow_run_id": flow_run, "task_run_id": task_run}))
        return logger

    def _end(self, api: PrefectApi, record: RunRecord) -> None:
        """Show artifacts and final states."""
        end = _final_state(record)
        name = self._showing.name
        for chain, flow in self._chains.items():
            _create_artifacts(api, flow.flow_runs[-1], chain_artifacts(self._store, self._run, chain, name, flow.name))
            state = end
            if record.status == "finished":
                success, message = chain_end(flow.results, len(flow.results))
                state = _state("COMPLETED" if success else "FAILED", message)
            for flow_run in flow.flow_runs:
                _set_state(api, flow_run, state)
        if record.status == "finished":
            result = RunResult.from_json(record.result)
            log_result(self._logger(self._flow_run), result)
            _send(api, "/logs/", self._lines)
            page = f"{api.url.removesuffix('/api')}/runs/flow-run/{self._flow_run}"
            _create_artifacts(api, self._flow_run, result_artifacts(self._store, result, name, page))
        _set_state(api, self._flow_run, end)


class _LineHandler(logging.Handler):
    def __init__(self, lines: list[Document], ids: Mapping[str, str | None]) -> None:
        super().__init__()
        self._lines, self._ids = lines, ids

    def emit(self, record: logging.LogRecord) -> None:
        time = datetime.fromtimestamp(record.created, UTC).isoformat()
        line = {"name": LOGGER, "level": record.levelno, "message": record.getMessage(), "timestamp": time}
        self._lines.append({**line, **self._ids})


def _final_state(record: RunRecord) -> Document:
    """The state of the flow run of a run that has ended, or whose process has."""
    result = record.result
    if record.status == "finished":
        return _state("COMPLETED", str(result.get("status", "finished")))
    if record.status == "running":
        return _state("CRASHED", "its process died; the store has its finished work")
    type_ = "FAILED" if record.status == "failed" else "CANCELLED"
    return _state(type_, str(result.get("error") or record.status))


def _state(type_: str, message: str = "") -> Document:
    return {"type": type_, "name": type_.capitalize(), "message": message or None}


def _set_state(api: PrefectApi, flow_run: str, state: Document) -> None:
    api.post(f"/flow_runs/{flow_run}/set_state", {"state": state, "force": True})


def _create_artifacts(api: PrefectApi, flow_run: str, artifacts: Iterable[Artifact]) -> None:
    for artifact in artifacts:
        api.post("/artifacts/", {**asdict(artifact), "flow_run_id": flow_run})


def _send(api: PrefectApi, path: str, documents: list[Document]) -> None:
    """Send documents in batches; those that are sent leave the list."""
    while documents:
        api.post(path, documents[:_BATCH])
        del documents[:_BATCH]
