"""A run as OpenLineage events: the run itself, and a run for each pass run, from model to model."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from autoopt.engine.tools.exports.content import ExportedRun, parts_of
from autoopt.errors import InputError, one_line, writing
from autoopt.model.fetch import shown_source
from autoopt.outcome import Outcome
from autoopt.settings import redacted
from autoopt.store import PassRunRecord, RunRecord, Store

if TYPE_CHECKING:
    from openlineage.client.event_v2 import RunEvent, RunState

PRODUCER: Final = "urn:autoopt"
"""The URI of the program that made the events."""
NAMESPACE: Final = "autoopt"
_IDS: Final = uuid.UUID("6e6f2f0e-0d0a-5a8e-9d43-9f1d3c1f0c55")
"""Namespace of run ids: the same run has the same id in every export."""


@dataclass(frozen=True)
class _Span:
    """A run of a job: its id, its job, the models before and after it, and its times."""

    key: str
    job: str
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    start: float
    end: float
    message: str = ""
    """Of a failure."""


def lineage_events(store: Store, record: RunRecord, namespace: str = NAMESPACE) -> list[RunEvent]:
    """Make the events of a run in the order of their times.

    Raises:
        InputError: the client library is not installed, or the run has no trial yet.
    """
    parts = parts_of(store, record)
    try:
        import openlineage.client.event_v2  # noqa: F401  says now whether it is there
    except ImportError:
        remedy = "pip install 'autoopt[openlineage]'"
        raise InputError("the client of OpenLineage is not installed", remedy=remedy) from None
    events: list[RunEvent] = []
    for part in parts:
        whole = _whole(part)
        events += _events(whole, namespace, None)
        for piece in _pieces(store, part):
            events += _events(piece, namespace, whole)
    return sorted(events, key=lambda event: str(event.eventTime))


def write_events(events: list[RunEvent], file: Path) -> None:
    """Write events as JSON lines.

    Raises:
        InputError: the file cannot be written.
    """
    from openlineage.client.serde import Serde

    lines = [json.dumps(Serde.to_dict(event), sort_keys=True) for event in events]
    with writing(file):
        file.write_text("\n".join([*lines, ""]), encoding="utf-8")


def send_events(events: list[RunEvent], url: str) -> None:
    """Send events to a server's API at `url`.

    Raises:
        InputError: the server does not accept them.
    """
    from openlineage.client import OpenLineageClient
    from openlineage.client.transport.http import HttpConfig, HttpTransport

    try:
        with closing(OpenLineageClient(transport=HttpTransport(HttpConfig(url=url)))) as client:
            for event in events:
                client.emit(event)
    except Exception as error:  # the transports of the client raise errors of several libraries
        reason = one_line(redacted(str(error), url))[:200]
        raise InputError(f"the events were not accepted ({reason})", where=shown_source(url)) from None


def _whole(part: ExportedRun) -> _Span:
    record, best = part.record, part.result.best
    outputs: tuple[str, ...] = (best.artifact,) if best is not None else ()
    end = record.finished or max((trial.end for trial in part.trials), default=record.created)
    return _Span(record.id, part.name, "RUN", (record.model,), outputs, record.created, end)


def _pieces(store: Store, part: ExportedRun) -> Iterator[_Span]:
    """The pass runs that the trials of a run used, each once, including pass runs of earlier runs."""
    keys = dict.fromkeys(key for trial in part.trials for key in trial.trial.result.pass_runs)
    for piece in store.results.pass_runs(keys).values():
        outputs: tuple[str, ...] = ()
        if piece.output is not None and piece.output.artifact != piece.input.artifact:
            outputs = (piece.output.artifact,)
        yield _Span(
            key=piece.key,
            job=f"{part.name}.{piece.node or piece.pass_name}",
            kind="PASS",
            inputs=(piece.input.artifact,),
            outputs=outputs,
            start=piece.finished - piece.seconds,
            end=piece.finished,
            message=_failure(piece),
        )


def _failure(piece: PassRunRecord) -> str:
    if piece.outcome in (Outcome.OK, Outcome.UNCHANGED):
        return ""
    return piece.message or str(piece.outcome)


def _events(span: _Span, namespace: str, parent: _Span | None) -> list[RunEvent]:
    from openlineage.client.event_v2 import RunState

    end = RunState.FAIL if span.message else RunState.COMPLETE
    return [
        _event(span, namespace, parent, RunState.START, span.start),
        _event(span, namespace, parent, end, span.end),
    ]


def _event(span: _Span, namespace: str, parent: _Span | None, state: RunState, time: float) -> RunEvent:
    from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
    from openlineage.client.facet_v2 import error_message_run, job_type_job, parent_run, processing_engine_run

    facets = {"processing_engine": processing_engine_run.ProcessingEngineRunFacet(version("autoopt"), "autoopt")}
    if parent is not None:
        facets["parent"] = parent_run.ParentRunFacet(
            parent_run.Run(_run_id(parent)), parent_run.Job(namespace, parent.job)
        )
    if state is RunState.FAIL:
        facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(span.message, "python")
    for facet in facets.values():
        facet._producer = PRODUCER
    kind = job_type_job.JobTypeJobFacet("BATCH", "AUTOOPT", span.kind)
    kind._producer = PRODUCER
    outputs = []
    if state is RunState.COMPLETE:
        outputs = [OutputDataset(namespace, digest) for digest in span.outputs]
    return RunEvent(
        eventTime=datetime.fromtimestamp(time, UTC).isoformat(),
        run=Run(_run_id(span), facets),
        job=Job(namespace, span.job, {"jobType": kind}),
        eventType=state,
        inputs=[InputDataset(namespace, digest) for digest in span.inputs],
        outputs=outputs,
        producer=PRODUCER,
    )


def _run_id(span: _Span) -> str:
    return str(uuid.uuid5(_IDS, span.key))
