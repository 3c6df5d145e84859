"""The rows of `pass_run`, `evaluation` and `environment`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from sqlalchemy import Connection, RowMapping, Table, and_, select, update

from autoopt.model.candidate import Candidate, digest_json
from autoopt.outcome import Outcome
from autoopt.store.faults import reached
from autoopt.store.records import EvaluationRecord, Json, PassRunRecord
from autoopt.store.sql import tables
from autoopt.store.sql.claims import REPLACEABLE
from autoopt.store.sql.database import Database
from autoopt.store.sql.rows import (
    batches,
    dumps,
    fetch_all,
    from_row,
    insert_if_absent,
    loads,
    to_row,
)

Record = TypeVar("Record", PassRunRecord, EvaluationRecord)


class SqlResults:
    """Finished pass runs and evaluations: work that is done once for everyone."""

    def __init__(self, database: Database, owner: str) -> None:
        self._database = database
        self._owner = owner

    def evaluation(self, key: str) -> EvaluationRecord | None:
        """The finished evaluation with this key, whatever its outcome."""
        return self.evaluations([key]).get(key)

    def pass_run(self, key: str) -> PassRunRecord | None:
        """The finished pass run with this key, whatever its outcome."""
        return self.pass_runs([key]).get(key)

    def pass_runs(self, keys: Iterable[str]) -> dict[str, PassRunRecord]:
        """The finished pass runs among `keys`."""
        return self._database.read(lambda connection: read_pass_runs(connection, keys))

    def evaluations(self, keys: Iterable[str]) -> dict[str, EvaluationRecord]:
        """The finished evaluations among `keys`."""

        def query(connection: Connection) -> dict[str, EvaluationRecord]:
            rows = _finished_rows(connection, tables.evaluation, keys)
            return {key: _record(EvaluationRecord, tables.evaluation, row) for key, row in rows.items()}

        return self._database.read(query)

    def evaluations_of(self, candidate: Candidate) -> tuple[EvaluationRecord, ...]:
        """All finished evaluations of a candidate, oldest first."""
        c = tables.evaluation.c
        query = select(c.key).where(c.candidate == candidate.key, c.outcome.is_not(None))
        keys = self._database.read(lambda connection: connection.execute(query).scalars().all())
        return tuple(sorted(self.evaluations(keys).values(), key=lambda record: (record.finished, record.key)))

    def evaluation_of_graph(self, graph: str) -> EvaluationRecord | None:
        """The newest good evaluation with this `graph`."""
        c = tables.evaluation.c
        query = select(c.key).where(c.graph == graph, c.outcome == str(Outcome.OK)).order_by(c.finished.desc()).limit(1)
        rows = fetch_all(self._database, query)
        return self.evaluation(rows[0]["key"]) if rows else None

    def finish_pass_run(self, record: PassRunRecord) -> bool:
        """Store a result, claimed before or not.

        Returns:
            False if the store refused it, because another result exists or is under way.
        """
        row = to_row(tables.pass_run, record)
        row |= {"input_key": record.input.key, "output_key": record.output and record.output.key}

        def work(connection: Connection) -> bool:
            row["environment"] = self._store_environment(connection, record.environment)
            return self._write_once(connection, tables.pass_run, row)

        return self._write(work)

    def finish_evaluation(self, record: EvaluationRecord) -> bool:
        """Store a result like `finish_pass_run`."""
        row = {**to_row(tables.evaluation, record), "candidate": record.candidate.key}

        def work(connection: Connection) -> bool:
            row["environment"] = self._store_environment(connection, record.environment)
            return self._write_once(connection, tables.evaluation, row)

        return self._write(work)

    def _write(self, work: Callable[[Connection], bool]) -> bool:
        def work_to_commit(connection: Connection) -> bool:
            accepted = work(connection)
            reached("before commit")
            return accepted

        accepted = self._database.write(work_to_commit)
        reached("after commit")
        return accepted

    def _write_once(self, connection: Connection, table: Table, values: Mapping[str, object]) -> bool:
        """Store a finished result: a new row, or in place of the owner's claim or of a replaceable result.

        Storing the same result a second time succeeds, because the answer to the first commit may have been lost.
        """
        row = {**values, "owner": self._owner, "lease": None, "finished": self._database.now}
        if insert_if_absent(connection, table, row):
            return True
        c = table.c
        is_own = c.owner == self._owner
        unfinished = and_(c.outcome.is_(None), is_own | c.owner.is_(None))
        replaceable = and_(c.outcome.in_(REPLACEABLE), c.lease.is_(None) | is_own)
        replacement = update(table).where(c.key == values["key"], unfinished | replaceable).values(row)
        if connection.execute(replacement).rowcount == 1:
            return True
        same = select(c.key).where(c.key == values["key"], is_own, c.outcome == values["outcome"])
        if values.get("output_key") is not None:
            same = same.where(c.output_key == values["output_key"])
        return connection.execute(same).first() is not None

    def _store_environment(self, connection: Connection, environment: Json) -> str | None:
        """Store an environment, which many results share; returns its digest, or None for an empty one."""
        if not environment:
            return None
        digest = digest_json(dict(environment))
        row = {"digest": digest, "content": dumps(environment), "created": self._database.now}
        insert_if_absent(connection, tables.environment, row)
        return digest


def read_pass_runs(connection: Connection, keys: Iterable[str]) -> dict[str, PassRunRecord]:
    """The finished pass runs among `keys`."""
    rows = _finished_rows(connection, tables.pass_run, keys)
    return {key: _record(PassRunRecord, tables.pass_run, row) for key, row in rows.items()}


def _finished_rows(connection: Connection, table: Table, keys: Iterable[str]) -> dict[str, RowMapping]:
    """The finished rows with these keys, with the content of their environment."""
    environment = tables.environment
    joined = table.outerjoin(environment, environment.c.digest == table.c.environment)
    query = select(table, environment.c.content.label("environment_content")).select_from(joined)
    rows: dict[str, RowMapping] = {}
    for batch in batches(keys):
        finished = query.where(table.c.outcome.is_not(None), table.c.key.in_(batch))
        rows.update({row["key"]: row for row in connection.execute(finished).mappings()})
    return rows


def _record(kind: type[Record], table: Table, row: RowMapping) -> Record:
    return from_row(kind, table, row, environment=loads(row["environment_content"]) or {})
