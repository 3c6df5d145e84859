"""The rows of `pass_run`, `evaluation`, `metric_value` and `environment`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from sqlalchemy import Connection, RowMapping, Table, and_, delete, insert, null, select, update

from autoopt.metrics import Estimate
from autoopt.model.candidate import digest_json
from autoopt.outcome import Outcome
from autoopt.store import codec
from autoopt.store.contracts import ResultStore
from autoopt.store.faults import reached
from autoopt.store.records import EvaluationRecord, Json, PassRunRecord
from autoopt.store.sql import tables
from autoopt.store.sql.claims import REPLACEABLE
from autoopt.store.sql.database import Database
from autoopt.store.sql.rows import batches, insert_if_absent, is_among

Row: TypeAlias = dict[str, object]
Metrics: TypeAlias = dict[str, dict[str, Estimate]]
"""Estimates by role and metric."""
CANDIDATE: Final = "candidate"
SOURCE: Final = "source"
RATIO: Final = "ratio"
"""The roles of metric values."""


class SqlResults(ResultStore):
    """See `ResultStore`."""

    def __init__(self, database: Database, owner: str) -> None:
        self._database = database
        self._owner = owner

    def pass_runs(self, keys: Iterable[str]) -> dict[str, PassRunRecord]:
        return self._database.read(lambda connection: read_pass_runs(connection, keys))

    def evaluations(self, keys: Iterable[str]) -> dict[str, EvaluationRecord]:
        def query(connection: Connection) -> dict[str, EvaluationRecord]:
            rows = _finished_rows(connection, tables.evaluation, keys)
            metrics = _metrics_of(connection, rows)
            return {key: _evaluation_record(row, metrics.get(key, {})) for key, row in rows.items()}

        return self._database.read(query)

    def finish_pass_runs(self, records: Sequence[PassRunRecord], owner: str | None = None) -> list[bool]:
        def work(connection: Connection) -> list[bool]:
            environments = _Environments(connection, self._database)
            accepted = []
            for record in records:
                row = _pass_run_row(record, environments.store(record.environment))
                accepted.append(self._write_once(connection, tables.pass_run, row, owner or self._owner))
            return accepted

        return self._write(work)

    def finish_evaluations(self, records: Sequence[EvaluationRecord], owner: str | None = None) -> list[bool]:
        def work(connection: Connection) -> list[bool]:
            environments = _Environments(connection, self._database)
            accepted = []
            for record in records:
                row = _evaluation_row(record, environments.store(record.environment))
                accepted.append(self._write_once(connection, tables.evaluation, row, owner or self._owner))
                if accepted[-1]:
                    _replace_metrics(connection, record)
            return accepted

        return self._write(work)

    def _write(self, work: Callable[[Connection], list[bool]]) -> list[bool]:
        def work_to_commit(connection: Connection) -> list[bool]:
            accepted = work(connection)
            reached("before commit")
            return accepted

        accepted = self._database.write(work_to_commit)
        reached("after commit")
        return accepted

    def _write_once(self, connection: Connection, table: Table, values: Mapping[str, object], owner: str) -> bool:
        """Store a finished result: a new row, or in place of the owner's claim or of a replaceable result.

        Storing the same result a second time succeeds, because the answer to the first commit may have been lost.
        """
        row = {**values, "owner": owner, "lease": null(), "finished": self._database.now}
        if insert_if_absent(connection, table, row):
            return True
        c = table.c
        mine = c.owner == owner
        unfinished = and_(c.outcome.is_(None), mine | c.owner.is_(None))
        replaceable = and_(c.outcome.in_(REPLACEABLE), c.lease.is_(None) | mine)
        replacement = update(table).where(c.key == values["key"], unfinished | replaceable).values(row)
        if connection.execute(replacement).rowcount == 1:
            return True
        same = select(c.key).where(c.key == values["key"], mine, c.outcome == values["outcome"])
        if values.get("output_key") is not None:
            same = same.where(c.output_key == values["output_key"])
        return connection.execute(same).first() is not None


class _Environments:
    """Stores environments during one transaction; many results share one."""

    def __init__(self, connection: Connection, database: Database) -> None:
        self._connection = connection
        self._database = database
        self._digests: dict[str, str] = {}

    def store(self, environment: Json) -> str | None:
        """Store an environment; returns its digest, or None for an empty one."""
        if not environment:
            return None
        content = codec.dumps(environment)
        if content not in self._digests:
            digest = digest_json(dict(environment))
            row = {"digest": digest, "content": content, "created": self._database.now}
            insert_if_absent(self._connection, tables.environment, row)
            self._digests[content] = digest
        return self._digests[content]


def read_pass_runs(connection: Connection, keys: Iterable[str]) -> dict[str, PassRunRecord]:
    """The finished pass runs among `keys`."""
    rows = _finished_rows(connection, tables.pass_run, keys)
    return {key: _pass_run_record(row) for key, row in rows.items()}


def _finished_rows(connection: Connection, table: Table, keys: Iterable[str]) -> dict[str, RowMapping]:
    """The finished rows with these keys, with the content of their environment."""
    environment = tables.environment
    joined = table.outerjoin(environment, environment.c.digest == table.c.environment)
    query = select(table, environment.c.content.label("environment_content")).select_from(joined)
    rows: dict[str, RowMapping] = {}
    for batch in batches(keys):
        finished = query.where(is_among(table.c.key, batch), table.c.outcome.is_not(None))
        for row in connection.execute(finished).mappings():
            rows[row["key"]] = row
    return rows


def _pass_run_row(record: PassRunRecord, environment: str | None) -> Row:
    row: Row = {
        "key": record.key,
        "outcome": str(record.outcome),
        "pass_name": codec.text(record.pass_name),
        "node": None if record.node is None else codec.text(record.node),
        "params": codec.dumps(record.params),
        "input_artifact": record.input.artifact,
        "input_options": codec.dumps(record.input.session_options),
        "input_key": record.input.key,
        "output_artifact": None,
        "output_options": None,
        "output_key": None,
        "seconds": record.seconds,
        "message": codec.text(record.message),
        "environment": environment,
        "attempts": codec.dumps(list(record.attempts)),
        "reports": codec.dumps(record.reports),
        "run": record.run,
    }
    if record.output is not None:
        row["output_artifact"] = record.output.artifact
        row["output_options"] = codec.dumps(record.output.session_options)
        row["output_key"] = record.output.key
    return row


def _pass_run_record(row: RowMapping) -> PassRunRecord:
    candidate = codec.candidate(row["input_artifact"], row["input_options"])
    assert candidate is not None  # finished rows have an input
    return PassRunRecord(
        key=row["key"],
        pass_name=row["pass_name"],
        params=codec.loads(row["params"]),
        input=candidate,
        outcome=Outcome(row["outcome"]),
        output=codec.candidate(row["output_artifact"], row["output_options"]),
        seconds=row["seconds"],
        message=row["message"],
        environment=codec.loads(row["environment_content"]) or {},
        attempts=tuple(codec.loads(row["attempts"])),
        reports=codec.loads(row["reports"]),
        run=row["run"],
        node=row["node"],
        finished=row["finished"],
    )


def _evaluation_row(record: EvaluationRecord, environment: str | None) -> Row:
    return {
        "key": record.key,
        "outcome": str(record.outcome),
        "artifact": record.candidate.artifact,
        "session_options": codec.dumps(record.candidate.session_options),
        "candidate": record.candidate.key,
        "meter": codec.text(record.meter),
        "details": codec.dumps(record.details),
        "seconds": record.seconds,
        "message": codec.text(record.message),
        "environment": environment,
        "run": record.run,
    }


def _evaluation_record(row: RowMapping, metrics: Metrics) -> EvaluationRecord:
    candidate = codec.candidate(row["artifact"], row["session_options"])
    assert candidate is not None  # finished rows have a candidate
    return EvaluationRecord(
        key=row["key"],
        candidate=candidate,
        meter=row["meter"],
        outcome=Outcome(row["outcome"]),
        metrics=metrics.get(CANDIDATE, {}),
        source_metrics=metrics.get(SOURCE, {}),
        ratios=metrics.get(RATIO, {}),
        details=codec.loads(row["details"]),
        seconds=row["seconds"],
        message=row["message"],
        environment=codec.loads(row["environment_content"]) or {},
        run=row["run"],
        finished=row["finished"],
    )


def _replace_metrics(connection: Connection, record: EvaluationRecord) -> None:
    table = tables.metric_value
    connection.execute(delete(table).where(table.c.evaluation == record.key))
    rows: list[Row] = []
    for role, metrics in ((CANDIDATE, record.metrics), (SOURCE, record.source_metrics), (RATIO, record.ratios)):
        for name, estimate in metrics.items():
            row: Row = {"evaluation": record.key, "role": role, "metric": name}
            row["value"] = codec.number(estimate.value)
            row["low"] = codec.number(estimate.low)
            row["high"] = codec.number(estimate.high)
            rows.append(row)
    if rows:
        connection.execute(insert(table), rows)


def _metrics_of(connection: Connection, keys: Iterable[str]) -> dict[str, Metrics]:
    """The metrics of evaluations, by key."""
    table = tables.metric_value
    metrics: dict[str, Metrics] = {}
    for batch in batches(keys):
        query = select(table).where(is_among(table.c.evaluation, batch)).order_by(table.c.metric)
        for row in connection.execute(query).mappings():
            bounds = [codec.from_number(row[part]) for part in ("value", "low", "high")]
            roles = metrics.setdefault(row["evaluation"], {})
            roles.setdefault(row["role"], {})[row["metric"]] = Estimate(*bounds)
    return metrics
