"""Trials: rows that are added by who asks and claimed by who carries them out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, RowMapping, and_, insert, select, update

from autoopt.outcome import Outcome
from autoopt.store import codec, tables
from autoopt.store.base import LEASE_SECONDS
from autoopt.store.claims import abandoned
from autoopt.store.owner import is_gone
from autoopt.store.part import Part, batches
from autoopt.store.records import TrialRecord

_T = tables.trial.c


class Trials(Part):
    """The rows of `trial`."""

    def add_trials(self, records: Sequence[TrialRecord]) -> None:
        self.db.write(lambda connection: self._add(connection, records))

    def _add(self, connection: Connection, records: Sequence[TrialRecord]) -> None:
        there: dict[tuple[str, int], RowMapping] = {}
        for run in {r.run for r in records}:
            for batch in batches(r.number for r in records if r.run == run):
                query = select(_T.run, _T.number, _T.status, _T.owner, _T.lease, self.db.now.label("now"))
                found = connection.execute(query.where(_T.run == run, _T.number.in_(batch)).with_for_update())
                there |= {(row["run"], row["number"]): row for row in found.mappings()}
        new = []
        for record in records:
            row = there.get((record.run, record.number))
            values = self._columns(record, record.owner)
            if record.status == "running":
                values["lease"] = self.db.now + LEASE_SECONDS
            if row is None:
                new.append(values)
            elif _replaceable(row, record.owner):
                connection.execute(update(tables.trial).where(_is(record)).values(values))
        if any(r.status == "running" for r in records):
            for values in new:
                connection.execute(insert(tables.trial).values(values))
        else:
            for rows in batches(new):
                connection.execute(insert(tables.trial), rows)

    def claim_trial(
        self, run: str, chain: str | None = None, owner: str | None = None, seconds: float = LEASE_SECONDS
    ) -> TrialRecord | None:
        who = owner or self.owner
        tried: list[TrialRecord] = []

        def work(connection: Connection) -> TrialRecord | None:
            for trial in tried:  # the answer to the commit was lost; was it done?
                mine = select(_T.number).where(_is(trial), _T.owner == who, _T.lease == trial.lease)
                if connection.execute(mine).first() is not None:
                    return trial
            row = self._next(connection, run, chain)
            if row is None:
                return None
            claimed = update(tables.trial).where(_T.run == run, _T.number == row["number"])
            connection.execute(claimed.values(status="running", owner=who, lease=self.db.now + seconds))
            taken = connection.execute(select(tables.trial).where(_T.run == run, _T.number == row["number"]))
            tried.append(trial_from(taken.mappings().one()))
            return tried[-1]

        return self.db.write(work)

    def _next(self, connection: Connection, run: str, chain: str | None) -> RowMapping | None:
        """An abandoned trial, else the next pending one; locked until the transaction ends."""
        here = and_(_T.run == run, _T.chain == chain) if chain is not None else _T.run == run
        owners = connection.execute(select(_T.owner).where(here, _T.status == "running").distinct()).scalars()
        gone = [owner for owner in owners if owner is not None and is_gone(owner)]
        left = and_(_T.status == "running", (_T.lease <= self.db.now) | _T.owner.is_(None) | _T.owner.in_(gone))
        for wanted in (left, _T.status == "pending"):
            query = select(tables.trial).where(here, wanted).order_by(_T.number).limit(1)
            row = connection.execute(query.with_for_update(skip_locked=True)).mappings().first()
            if row is not None:
                return row
        return None

    def finish_trials(self, records: Sequence[TrialRecord], owner: str | None = None) -> list[bool]:
        return self.db.write(lambda c: [self._finish_trial(c, r, owner or r.owner or self.owner) for r in records])

    def _finish_trial(self, connection: Connection, record: TrialRecord, who: str) -> bool:
        values = {**self._columns(record, who), "status": "done", "lease": None, "finished": self.db.now}
        if self._insert_new(connection, tables.trial, values):
            return True
        free = (_T.status == "pending") | _T.owner.is_(None) | (_T.owner == who)
        changed = connection.execute(update(tables.trial).where(_is(record), _T.status != "done", free).values(values))
        if changed.rowcount == 1:
            return True
        same = (_T.status == "done", _T.owner == who, _T.outcome == values["outcome"], _T.point == values["point"])
        return connection.execute(select(_T.number).where(_is(record), *same)).first() is not None

    def trials(self, run: str) -> tuple[TrialRecord, ...]:
        query = select(tables.trial).where(_T.run == run).order_by(_T.number)
        return tuple(trial_from(row) for row in self._all(query))

    def _columns(self, record: TrialRecord, owner: str | None) -> dict[str, Any]:
        return {
            "run": record.run,
            "number": record.number,
            "chain": record.chain,
            "point": codec.dumps(record.point),
            "status": record.status,
            "outcome": None if record.outcome is None else str(record.outcome),
            **codec.candidate_columns(record.candidate, "artifact", "session_options"),
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


def _is(record: TrialRecord) -> Any:
    return and_(_T.run == record.run, _T.number == record.number)


def _replaceable(row: RowMapping, owner: str | None) -> bool:
    if row["status"] == "running":
        return abandoned(row["lease"], row["owner"], row["now"]) or (owner is not None and row["owner"] == owner)
    return bool(row["status"] == "pending")


def trial_from(row: RowMapping) -> TrialRecord:
    """The record of a row."""
    return TrialRecord(
        run=row["run"],
        number=row["number"],
        chain=row["chain"],
        point=codec.loads(row["point"]),
        status=row["status"],
        outcome=None if row["outcome"] is None else Outcome(row["outcome"]),
        candidate=codec.candidate_from(row["artifact"], row["session_options"]),
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
