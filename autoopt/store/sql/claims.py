"""Claims as columns: every row that can be claimed has an `owner` and a `lease`."""

from __future__ import annotations

from typing import Final

from sqlalchemy import ColumnElement, Connection, RowMapping, Table, Update, and_, select, update

from autoopt.errors import InputError
from autoopt.outcome import Outcome
from autoopt.store.records import LEASE_SECONDS, Claim, ClaimKind, is_abandoned
from autoopt.store.sql import tables
from autoopt.store.sql.database import Database
from autoopt.store.sql.rows import insert_if_absent

REPLACEABLE = tuple(str(outcome) for outcome in Outcome if outcome.retryable)
"""Outcomes that a later result may replace."""
WORK: Final[tuple[ClaimKind, ...]] = ("pass_run", "evaluation", "release")
"""Nobody creates their rows before they are claimed: their keys say what they are."""


class SqlClaims:
    """Claims with leases on pass runs, evaluations, trials, runs, sweeps and the releases of models.

    The key of a claim is that of the pass run or evaluation, the id of the run or sweep, `Trial.claim`, or
    `zoo/model`.
    """

    def __init__(self, database: Database, owner: str) -> None:
        self._database = database
        self._owner = owner

    def acquire(self, kind: ClaimKind, key: str, seconds: float = LEASE_SECONDS, *, redo: bool = False) -> Claim:
        """Claim a piece of work. Claiming again what this owner already holds renews the lease.

        With `redo`, a finished result with a retryable outcome can be claimed too, and a run or sweep that has ended.
        """

        def work(connection: Connection) -> Claim:
            table = _table(kind)
            lease = self._database.now + seconds
            if kind in WORK and insert_if_absent(connection, table, {"key": key, "owner": self._owner, "lease": lease}):
                return Claim("mine", self._owner)
            is_this = _is(kind, key)
            query = select(table, self._database.now.label("now")).where(is_this).with_for_update()
            row = connection.execute(query).mappings().first()
            if row is None:
                what = kind.replace("_", " ")
                raise InputError(f"there is no {what} {key!r} to claim", where=self._database.safe_url)
            if _is_done(kind, row) and not (redo and _may_be_redone(kind, row)):
                return Claim("done", row["owner"])
            if row["owner"] != self._owner and not is_abandoned(row["lease"], row["owner"], row["now"]):
                return Claim("held", row["owner"])
            values: dict[str, object] = {"owner": self._owner, "lease": lease}
            if kind not in WORK:
                values["status"] = "running"
            connection.execute(update(table).where(is_this).values(values))
            return Claim("mine", self._owner)

        return self._database.write(work)

    def renew(self, kind: ClaimKind, key: str, seconds: float = LEASE_SECONDS) -> bool:
        """Extend the lease; False if this owner no longer holds the claim."""
        renewal = self._held(kind, key).values(lease=self._database.now + seconds)
        return self._database.write(lambda connection: connection.execute(renewal).rowcount == 1)

    def release(self, kind: ClaimKind, key: str) -> None:
        """Give a claim back unfinished. Does nothing if this owner does not hold it."""
        values: dict[str, object] = {"owner": None, "lease": None}
        if kind == "trial":
            values["status"] = "pending"
        release = self._held(kind, key).values(values)
        self._database.write(lambda connection: connection.execute(release))

    def _held(self, kind: ClaimKind, key: str) -> Update:
        table = _table(kind)
        return update(table).where(_is(kind, key), table.c.owner == self._owner, table.c.lease.is_not(None))


def _table(kind: ClaimKind) -> Table:
    return tables.metadata.tables[kind]


def _is(kind: ClaimKind, key: str) -> ColumnElement[bool]:
    if kind == "trial":
        run, _, number = key.rpartition("/")
        return and_(tables.trial.c.run == run, tables.trial.c.number == int(number))
    if kind in ("run", "sweep"):
        return _table(kind).c.id == key
    return _table(kind).c.key == key


def _is_done(kind: ClaimKind, row: RowMapping) -> bool:
    if kind == "trial":
        return bool(row["status"] == "done")
    if kind in ("run", "sweep"):
        return bool(row["status"] != "running")
    return kind != "release" and row["outcome"] is not None and row["lease"] is None


def _may_be_redone(kind: ClaimKind, row: RowMapping) -> bool:
    return kind in ("run", "sweep") or row["outcome"] in REPLACEABLE
