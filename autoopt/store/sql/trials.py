"""The rows of `trial`."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import ColumnElement, Connection, RowMapping, and_, insert, select, update

from autoopt.errors import InputError
from autoopt.outcome import Outcome
from autoopt.store import codec
from autoopt.store.contracts import LEASE_SECONDS, TrialStore
from autoopt.store.leases import is_abandoned
from autoopt.store.owner import is_known_dead
from autoopt.store.records import TrialRecord
from autoopt.store.sql import tables
from autoopt.store.sql.database import Database
from autoopt.store.sql.rows import batches, fetch_all, insert_if_absent

_T = tables.trial.c


class SqlTrials(TrialStore):
    """See `TrialStore`."""

    def __init__(self, database: Database, owner: str) -> None:
        self._database = database
        self._owner = owner

    def add(self, records: Sequence[TrialRecord]) -> None:
        self._database.write(lambda connection: self._add(connection, records))

    def _add(self, connection: Connection, records: Sequence[TrialRecord]) -> None:
        existing = self._existing(connection, records)
        rows = []
        for record in records:
            row = _row(record, record.owner)
            if record.status == "running":
                row["lease"] = self._database.now + LEASE_SECONDS
            before = existing.get((record.run, record.number))
            if before is None:
                rows.append(row)
            elif _may_be_replaced(before, record.owner):
                connection.execute(update(tables.trial).where(_is(record)).values(row))
        if any(record.status == "running" for record in records):
            # Leases are SQL expressions, which a statement for many rows cannot hold.
            for row in rows:
                connection.execute(insert(tables.trial).values(row))
        else:
            for batch in batches(rows):
                connection.execute(insert(tables.trial), batch)

    def _existing(self, connection: Connection, records: Sequence[TrialRecord]) -> dict[tuple[str, int], RowMapping]:
        """The rows of `records` that exist, by run and number, locked until the transaction ends."""
        columns_read = (_T.run, _T.number, _T.status, _T.owner, _T.lease, self._database.now.label("now"))
        numbers: dict[str, list[int]] = {}
        for record in records:
            numbers.setdefault(record.run, []).append(record.number)
        rows: dict[tuple[str, int], RowMapping] = {}
        for run, numbers_of_run in numbers.items():
            for batch in batches(numbers_of_run):
                query = select(*columns_read).where(_T.run == run, _T.number.in_(batch)).with_for_update()
                for row in connection.execute(query).mappings():
                    rows[row["run"], row["number"]] = row
        return rows

    def claim_next(
        self, run: str, chain: str | None = None, owner: str | None = None, seconds: float = LEASE_SECONDS
    ) -> TrialRecord | None:
        claimant = owner or self._owner
        attempts: list[TrialRecord] = []

        def work(connection: Connection) -> TrialRecord | None:
            # A repeated transaction looks for its own claims first: the answer to an earlier commit may have been lost.
            for trial in attempts:
                mine = select(_T.number).where(_is(trial), _T.owner == claimant, _T.lease == trial.lease)
                if connection.execute(mine).first() is not None:
                    return trial
            number = self._next(connection, run, chain)
            if number is None:
                return None
            is_this = and_(_T.run == run, _T.number == number)
            claim = update(tables.trial).where(is_this)
            connection.execute(claim.values(status="running", owner=claimant, lease=self._database.now + seconds))
            row = connection.execute(select(tables.trial).where(is_this)).mappings().one()
            attempts.append(_record(row))
            return attempts[-1]

        return self._database.write(work)

    def _next(self, connection: Connection, run: str, chain: str | None) -> int | None:
        """The number of an abandoned trial, else of the next pending one; locked until the transaction ends."""
        scope = _T.run == run
        if chain is not None:
            scope = and_(scope, _T.chain == chain)
        owners = connection.execute(select(_T.owner).where(scope, _T.status == "running").distinct()).scalars()
        dead = [owner for owner in owners if owner is not None and is_known_dead(owner)]
        overdue = (_T.lease <= self._database.now) | _T.owner.is_(None) | _T.owner.in_(dead)
        for state in (and_(_T.status == "running", overdue), _T.status == "pending"):
            query = select(_T.number).where(scope, state).order_by(_T.number).limit(1)
            number: int | None = connection.execute(query.with_for_update(skip_locked=True)).scalar()
            if number is not None:
                return number
        return None

    def finish_all(self, records: Sequence[TrialRecord], owner: str | None = None) -> list[bool]:
        def work(connection: Connection) -> list[bool]:
            return [self._finish(connection, record, owner or record.owner or self._owner) for record in records]

        return self._database.write(work)

    def _finish(self, connection: Connection, record: TrialRecord, owner: str) -> bool:
        row = {**_row(record, owner), "status": "done", "lease": None, "finished": self._database.now}
        if insert_if_absent(connection, tables.trial, row):
            return True
        free = (_T.status == "pending") | _T.owner.is_(None) | (_T.owner == owner)
        end = update(tables.trial).where(_is(record), _T.status != "done", free).values(row)
        if connection.execute(end).rowcount == 1:
            return True
        same = (_T.status == "done", _T.owner == owner, _T.outcome == row["outcome"], _T.point == row["point"])
        return connection.execute(select(_T.number).where(_is(record), *same)).first() is not None

    def get(self, run: str, number: int) -> TrialRecord:
        rows = fetch_all(self._database, select(tables.trial).where(_T.run == run, _T.number == number))
        if not rows:
            raise InputError(f"run {run!r} has no trial {number}")
        return _record(rows[0])

    def all(self, run: str) -> tuple[TrialRecord, ...]:
        query = select(tables.trial).where(_T.run == run).order_by(_T.number)
        return tuple(_record(row) for row in fetch_all(self._database, query))


def _is(record: TrialRecord) -> ColumnElement[bool]:
    return and_(_T.run == record.run, _T.number == record.number)


def _may_be_replaced(row: RowMapping, owner: str | None) -> bool:
    if row["status"] == "running":
        is_mine = owner is not None and row["owner"] == owner
        return is_mine or is_abandoned(row["lease"], row["owner"], row["now"])
    return bool(row["status"] == "pending")


def _row(record: TrialRecord, owner: str | None) -> dict[str, object]:
    row: dict[str, object] = {
        "run": record.run,
        "number": record.number,
        "chain": record.chain,
        "point": codec.dumps(record.point),
        "status": record.status,
        "outcome": None if record.outcome is None else str(record.outcome),
        "artifact": None,
        "session_options": None,
        "metrics": codec.estimates_to_text(record.metrics),
        "ratios": codec.estimates_to_text(record.ratios),
        "details": codec.dumps(record.details),
        "violation": codec.number(record.violation),
        "message": codec.text(record.message),
        "owner": owner,
        "lease": None,
        "pass_runs": codec.dumps(list(record.pass_runs)),
        "evaluations": codec.dumps(list(record.evaluations)),
        "seconds": record.seconds,
    }
    if record.candidate is not None:
        row["artifact"] = record.candidate.artifact
        row["session_options"] = codec.dumps(record.candidate.session_options)
    return row


def _record(row: RowMapping) -> TrialRecord:
    return TrialRecord(
        run=row["run"],
        number=row["number"],
        chain=row["chain"],
        point=codec.loads(row["point"]),
        status=row["status"],
        outcome=None if row["outcome"] is None else Outcome(row["outcome"]),
        candidate=codec.candidate(row["artifact"], row["session_options"]),
        metrics=codec.estimates_from_text(row["metrics"]),
        ratios=codec.estimates_from_text(row["ratios"]),
        details=codec.loads(row["details"]),
        violation=codec.from_number(row["violation"]),
        message=row["message"],
        owner=row["owner"],
        lease=row["lease"],
        pass_runs=tuple(codec.loads(row["pass_runs"])),
        evaluations=tuple(codec.loads(row["evaluations"])),
        seconds=row["seconds"],
    )
