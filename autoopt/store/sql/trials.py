"""The rows of `trial`."""

from __future__ import annotations

import math

from sqlalchemy import ColumnElement, Connection, RowMapping, and_, func, or_, select, update

from autoopt.errors import InputError
from autoopt.owner import is_known_dead
from autoopt.results import Trial
from autoopt.store.records import LEASE_SECONDS, is_abandoned
from autoopt.store.sql import tables
from autoopt.store.sql.database import Database
from autoopt.store.sql.rows import (
    LARGEST,
    Row,
    fetch_all,
    from_row,
    insert_if_absent,
    insert_into,
    is_written,
    loads,
    to_row,
)

_T = tables.trial.c


class SqlTrials:
    """The trials of runs."""

    def __init__(self, database: Database, owner: str) -> None:
        self._database = database
        self._owner = owner

    def add(self, record: Trial) -> None:
        """Add a trial to do. An existing one stays if it is done or runs under a living owner, else it is replaced.

        One of another point is replaced when it is done: a search that asks differently after a resume does it anew.
        """
        row = _row(record, record.owner)
        if record.status == "running":
            row["lease"] = self._database.now + LEASE_SECONDS
        columns_read = (_T.status, _T.owner, _T.lease, _T.chain_id, _T.point, self._database.now.label("now"))

        def work(connection: Connection) -> None:
            if insert_if_absent(connection, tables.trial, row):
                return
            before = connection.execute(select(*columns_read).where(_is(record)).with_for_update()).mappings().one()
            is_same = (before["chain_id"], loads(before["point"])) == (record.chain_id, record.point)
            is_other = before["status"] == "done" and not is_same
            if is_other or _may_be_replaced(before, record.owner):
                connection.execute(update(tables.trial).where(_is(record)).values(row))

        self._database.write(work)

    def claim_next(self, run: str, chain: str | None = None, seconds: float = LEASE_SECONDS) -> Trial | None:
        """Claim the next trial: an abandoned one, else the pending one with the lowest number.

        None without either, or if the trial has to wait for earlier ones (`Trial.parallel`).
        """
        attempts: list[Trial] = []

        def work(connection: Connection) -> Trial | None:
            # A repeated transaction looks for its own claims first: the answer to an earlier commit may have been lost.
            for trial in attempts:
                claimed = select(_T.number).where(_is(trial), _T.owner == self._owner, _T.lease == trial.lease)
                if connection.execute(claimed).first() is not None:
                    return trial
            number = self._next(connection, run, chain)
            if number is None:
                return None
            is_this = and_(_T.run == run, _T.number == number)
            claim = update(tables.trial).where(is_this)
            connection.execute(claim.values(status="running", owner=self._owner, lease=self._database.now + seconds))
            row = connection.execute(select(tables.trial).where(is_this)).mappings().one()
            attempts.append(_record(row))
            return attempts[-1]

        return self._database.write(work)

    def _next(self, connection: Connection, run: str, chain: str | None) -> int | None:
        """The number of an abandoned trial, else of the next pending one; locked until the transaction ends."""
        scope = _T.run == run
        if chain is not None:
            scope = and_(scope, _T.chain_id == chain)
        owners = connection.execute(select(_T.owner).where(scope, _T.status == "running").distinct()).scalars()
        dead = [owner for owner in owners if owner is not None and is_known_dead(owner)]
        overdue = (_T.lease <= self._database.now) | _T.owner.is_(None) | _T.owner.in_(dead)
        for state in (and_(_T.status == "running", overdue), _T.status == "pending"):
            query = select(_T.number, _T.parallel).where(scope, state).order_by(_T.number).limit(1)
            row = connection.execute(query.with_for_update(skip_locked=True)).mappings().first()
            if row is None:
                continue
            # The number of those left only falls: processes that ask at the same time never begin more than `parallel`.
            earlier = and_(_T.run == run, _T.number < row["number"], _T.status != "done")
            left = connection.execute(select(func.count()).select_from(tables.trial).where(earlier)).scalar_one()
            if row["parallel"] is None or left < row["parallel"]:
                return int(row["number"])
        return None

    def finish(self, record: Trial) -> bool:
        """Store the end of a trial; False if it is already done or claimed by another owner."""
        row = {**_row(record, self._owner), "status": "done", "finished": self._database.now}
        if self._database.write(lambda connection: _end(connection, row)):
            return True
        # The answer to the first commit may have been lost: the same end again is no refusal.
        same = (_T.status == "done", _T.owner == self._owner, _T.outcome == row["outcome"], _T.point == row["point"])
        return bool(fetch_all(self._database, select(_T.number).where(_is(record), *same)))

    def get(self, run: str, number: int) -> Trial:
        """The trial of a run with this number."""
        rows = fetch_all(self._database, select(tables.trial).where(_T.run == run, _T.number == min(number, LARGEST)))
        if not rows:
            raise InputError(f"run {run!r} has no trial {number}", remedy="'autoopt report' lists its trials")
        return _record(rows[0])

    def all(self, run: str) -> tuple[Trial, ...]:
        """The trials of a run by number."""
        query = select(tables.trial).where(_T.run == run).order_by(_T.number)
        return tuple(map(_record, fetch_all(self._database, query)))


def _end(connection: Connection, row: Row) -> bool:
    """Write the row of a trial that has ended, unless another process has its claim; True if it was written."""
    statement = insert_into(connection, tables.trial).values(row)
    new = statement.excluded
    is_free = or_(_T.status == "pending", _T.owner.is_(None), _T.owner == new.owner)
    statement = statement.on_conflict_do_update(
        index_elements=[_T.run, _T.number],
        set_={column.name: new[column.name] for column in _T if not column.primary_key},
        where=and_(_T.status != "done", is_free),
    )
    return is_written(connection, statement)


def _is(record: Trial) -> ColumnElement[bool]:
    return and_(_T.run == record.run, _T.number == record.number)


def _may_be_replaced(row: RowMapping, owner: str | None) -> bool:
    if row["status"] == "running":
        is_mine = owner is not None and row["owner"] == owner
        return is_mine or is_abandoned(row["lease"], row["owner"], row["now"])
    return bool(row["status"] == "pending")


def _row(record: Trial, owner: str | None) -> Row:
    row = to_row(tables.trial, record)
    return {
        **row,
        "violation": None if math.isnan(record.violation) else record.violation,
        "owner": owner,
        "lease": None,
    }


def _record(row: RowMapping) -> Trial:
    return from_row(Trial, tables.trial, row, violation=math.nan if row["violation"] is None else row["violation"])
