"""Pass runs and evaluations: work that is done once for everyone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias, TypeVar

from sqlalchemy import Connection, RowMapping, Table, delete, insert, select

from autoopt.metrics import Estimate
from autoopt.outcome import Outcome
from autoopt.store import codec, tables
from autoopt.store.claims import Claims
from autoopt.store.faults import reached
from autoopt.store.part import batches
from autoopt.store.records import EvaluationRecord, PassRunRecord

_Record = TypeVar("_Record", PassRunRecord, EvaluationRecord)
_Finish: TypeAlias = Callable[[Connection, _Record, str | None, str], bool]
ROLES = ("candidate", "source", "ratio")


class Results(Claims):
    """Finished work, and finishing it."""

    def pass_runs(self, keys: Iterable[str]) -> dict[str, PassRunRecord]:
        return self.db.read(lambda c: {k: pass_run_from(r) for k, r in self._rows(c, tables.pass_run, keys).items()})

    def evaluations(self, keys: Iterable[str]) -> dict[str, EvaluationRecord]:
        def query(connection: Connection) -> dict[str, EvaluationRecord]:
            rows = self._rows(connection, tables.evaluation, keys)
            values = _values_of(connection, rows)
            return {key: _evaluation_from(row, values.get(key, {})) for key, row in rows.items()}

        return self.db.read(query)

    def finish_pass_runs(self, records: Sequence[PassRunRecord], owner: str | None = None) -> list[bool]:
        return self._finish(lambda c: self._finish_all(c, records, owner, self._finish_pass_run))

    def finish_evaluations(self, records: Sequence[EvaluationRecord], owner: str | None = None) -> list[bool]:
        return self._finish(lambda c: self._finish_all(c, records, owner, self._finish_evaluation))

    def _finish(self, work: Callable[[Connection], list[bool]]) -> list[bool]:
        def all_of_it(connection: Connection) -> list[bool]:
            done = work(connection)
            reached("before commit")
            return done

        written = self.db.write(all_of_it)
        reached("after commit")
        return written

    def _finish_all(
        self, connection: Connection, records: Sequence[_Record], owner: str | None, finish: _Finish[_Record]
    ) -> list[bool]:
        environments: dict[str, str | None] = {}  # many results, mostly one environment
        done = []
        for record in records:
            content = codec.dumps(record.environment)
            if content not in environments:
                environments[content] = self._environment(connection, record.environment)
            done.append(finish(connection, record, environments[content], owner or self.owner))
        return done

    def _finish_pass_run(
        self, connection: Connection, record: PassRunRecord, environment: str | None, owner: str
    ) -> bool:
        values = {
            "key": record.key,
            "outcome": str(record.outcome),
            "pass_name": codec.text(record.pass_name),
            "node": None if record.node is None else codec.text(record.node),
            "params": codec.dumps(record.params),
            **codec.candidate_columns(record.input, "input_artifact", "input_options", "input_key"),
            **codec.candidate_columns(record.output, "output_artifact", "output_options", "output_key"),
            "seconds": record.seconds,
            "message": codec.text(record.message),
            "environment": environment,
            "attempts": codec.dumps(list(record.attempts)),
            "reports": codec.dumps(record.reports),
            "run": record.run,
        }
        return self._write_once(connection, tables.pass_run, values, owner)

    def _finish_evaluation(
        self, connection: Connection, record: EvaluationRecord, environment: str | None, owner: str
    ) -> bool:
        values = {
            "key": record.key,
            "outcome": str(record.outcome),
            **codec.candidate_columns(record.candidate, "artifact", "session_options", "candidate"),
            "meter": codec.text(record.meter),
            "details": codec.dumps(record.details),
            "seconds": record.seconds,
            "message": codec.text(record.message),
            "environment": environment,
            "run": record.run,
        }
        if not self._write_once(connection, tables.evaluation, values, owner):
            return False
        table = tables.metric_value
        connection.execute(delete(table).where(table.c.evaluation == record.key))
        rows = _metric_rows(record)
        if rows:
            connection.execute(insert(table), rows)
        return True

    @staticmethod
    def _rows(connection: Connection, table: Table, keys: Iterable[str]) -> dict[str, RowMapping]:
        """The finished rows of those keys, with the content of their environment."""
        env = tables.environment
        joined = table.outerjoin(env, env.c.digest == table.c.environment)
        found: dict[str, RowMapping] = {}
        for batch in batches(keys):
            wanted = table.c.key == batch[0] if len(batch) == 1 else table.c.key.in_(batch)
            query = select(table, env.c.content.label("environment_content")).select_from(joined)
            rows = connection.execute(query.where(wanted, table.c.outcome.is_not(None)))
            found |= {row["key"]: row for row in rows.mappings()}
        return found


def pass_run_from(row: RowMapping) -> PassRunRecord:
    """The record of a finished row."""
    given = codec.candidate_from(row["input_artifact"], row["input_options"])
    assert given is not None  # finished rows have their input
    return PassRunRecord(
        key=row["key"],
        pass_name=row["pass_name"],
        params=codec.loads(row["params"]),
        input=given,
        outcome=Outcome(row["outcome"]),
        output=codec.candidate_from(row["output_artifact"], row["output_options"]),
        seconds=row["seconds"],
        message=row["message"],
        environment=codec.loads(row["environment_content"]) or {},
        attempts=tuple(codec.loads(row["attempts"])),
        reports=codec.loads(row["reports"]),
        run=row["run"],
        node=row["node"],
        finished=row["finished"],
    )


def _evaluation_from(row: RowMapping, values: dict[str, dict[str, Estimate]]) -> EvaluationRecord:
    candidate = codec.candidate_from(row["artifact"], row["session_options"])
    assert candidate is not None  # finished rows have their candidate
    return EvaluationRecord(
        key=row["key"],
        candidate=candidate,
        meter=row["meter"],
        outcome=Outcome(row["outcome"]),
        metrics=values.get("candidate", {}),
        source_metrics=values.get("source", {}),
        ratios=values.get("ratio", {}),
        details=codec.loads(row["details"]),
        seconds=row["seconds"],
        message=row["message"],
        environment=codec.loads(row["environment_content"]) or {},
        run=row["run"],
        finished=row["finished"],
    )


def _metric_rows(record: EvaluationRecord) -> list[dict[str, Any]]:
    groups = zip(ROLES, (record.metrics, record.source_metrics, record.ratios), strict=True)
    return [
        {
            "evaluation": record.key,
            "role": role,
            "metric": name,
            **{part: codec.number(getattr(estimate, part)) for part in ("value", "low", "high")},
        }
        for role, estimates in groups
        for name, estimate in estimates.items()
    ]


def _values_of(connection: Connection, keys: Iterable[str]) -> dict[str, dict[str, dict[str, Estimate]]]:
    """Estimates by evaluation, role and metric."""
    table = tables.metric_value
    found: dict[str, dict[str, dict[str, Estimate]]] = {}
    for batch in batches(keys):
        wanted = table.c.evaluation == batch[0] if len(batch) == 1 else table.c.evaluation.in_(batch)
        for row in connection.execute(select(table).where(wanted).order_by(table.c.metric)).mappings():
            estimate = Estimate(*(codec.from_number(row[part]) for part in ("value", "low", "high")))
            found.setdefault(row["evaluation"], {}).setdefault(row["role"], {})[row["metric"]] = estimate
    return found
