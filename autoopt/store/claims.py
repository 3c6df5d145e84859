"""Leases: who is at which piece of work. On the database's clock; the claim of a dead process is free at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, RowMapping, Table, and_, null, select, update

from autoopt.errors import InputError
from autoopt.outcome import Outcome
from autoopt.store import tables
from autoopt.store.base import LEASE_SECONDS, Claim
from autoopt.store.owner import is_gone, lives_here
from autoopt.store.part import Part
from autoopt.store.records import ClaimKind

RETRYABLE = tuple(str(o) for o in Outcome if o.retryable)
"""Outcomes that a later result may replace."""


class Claims(Part):
    """Claiming pass runs, evaluations, trials and runs by key."""

    def claim(
        self,
        kind: ClaimKind,
        key: str,
        owner: str | None = None,
        seconds: float = LEASE_SECONDS,
        *,
        redo: bool = False,
    ) -> Claim:
        who = owner or self.owner
        return self.db.write(lambda connection: self._claim(connection, kind, key, who, seconds, redo))

    def renew(self, kind: ClaimKind, key: str, owner: str | None = None, seconds: float = LEASE_SECONDS) -> bool:
        table, where = _place(kind, key)
        mine = update(table).where(where, table.c.owner == (owner or self.owner), table.c.lease.is_not(None))
        return self.db.write(lambda c: c.execute(mine.values(lease=self.db.now + seconds)).rowcount == 1)

    def release(self, kind: ClaimKind, key: str, owner: str | None = None) -> None:
        table, where = _place(kind, key)
        mine = update(table).where(where, table.c.owner == (owner or self.owner), table.c.lease.is_not(None))
        freed: dict[str, Any] = {"owner": None, "lease": None}
        if kind == "trial":
            freed["status"] = "pending"
        self.db.write(lambda c: c.execute(mine.values(freed)))

    def _claim(self, connection: Connection, kind: ClaimKind, key: str, who: str, seconds: float, redo: bool) -> Claim:
        table, where = _place(kind, key)
        lease = self.db.now + seconds
        named_by_content = kind in ("pass_run", "evaluation")
        if named_by_content and self._insert_new(connection, table, {"key": key, "owner": who, "lease": lease}):
            return Claim("mine", who)
        row = (
            connection.execute(select(table, self.db.now.label("now")).where(where).with_for_update())
            .mappings()
            .first()
        )
        if row is None:
            raise InputError(f"there is no {kind.replace('_', ' ')} {key!r} to claim", where=self.safe_url)
        if _is_done(kind, row) and not (redo and _may_be_redone(kind, row)):
            return Claim("done", row["owner"])
        if row["lease"] is not None and row["owner"] != who and row["lease"] > row["now"] and not is_gone(row["owner"]):
            return Claim("held", row["owner"])
        taken: dict[str, Any] = {"owner": who, "lease": lease}
        if kind in ("trial", "run"):
            taken["status"] = "running"
        connection.execute(update(table).where(where).values(taken))
        return Claim("mine", who)

    def _write_once(self, connection: Connection, table: Table, values: Mapping[str, Any], owner: str) -> bool:
        """Store a finished pass run or evaluation: new, or in place of one's own claim or of a retryable outcome.

        A second time with the same result is no refusal: the answer to the first may have been lost.
        """
        row = {**values, "owner": owner, "lease": null(), "finished": self.db.now}
        if self._insert_new(connection, table, row):
            return True
        c = table.c
        own = c.owner == owner
        unfinished = and_(c.outcome.is_(None), own | c.owner.is_(None))
        retryable = and_(c.outcome.in_(RETRYABLE), c.lease.is_(None) | own)
        changed = connection.execute(update(table).where(c.key == values["key"], unfinished | retryable).values(row))
        if changed.rowcount == 1:
            return True
        same = [
            c[name] == value
            for name, value in values.items()
            if value is not None and name in ("outcome", "output_key")
        ]
        return connection.execute(select(c.key).where(c.key == values["key"], own, *same)).first() is not None


def abandoned(lease: float | None, owner: str | None, now: float) -> bool:
    """Whether work under way has nobody at it any more."""
    return lease is None or owner is None or lease <= now or is_gone(owner)


def run_abandoned(lease: float | None, owner: str | None, now: float) -> bool:
    """Like `abandoned`, for what cannot be undone: a process that is seen to live counts, however late it is."""
    return abandoned(lease, owner, now) and not (owner is not None and lives_here(owner))


def _place(kind: ClaimKind, key: str) -> tuple[Table, ColumnElement[bool]]:
    if kind == "trial":
        run, _, number = key.rpartition("/")
        return tables.trial, and_(tables.trial.c.run == run, tables.trial.c.number == int(number))
    if kind == "run":
        return tables.run, tables.run.c.id == key
    table = tables.pass_run if kind == "pass_run" else tables.evaluation
    return table, table.c.key == key


def _is_done(kind: ClaimKind, row: RowMapping) -> bool:
    if kind == "trial":
        return bool(row["status"] == "done")
    if kind == "run":
        return bool(row["status"] != "running")
    return row["outcome"] is not None and row["lease"] is None


def _may_be_redone(kind: ClaimKind, row: RowMapping) -> bool:
    return kind == "run" or row["outcome"] in RETRYABLE
