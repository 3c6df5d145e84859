"""Runs with their plans and chains, and sweeps."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, RowMapping, insert, select, update

from autoopt.errors import InputError
from autoopt.model.candidate import digest_json
from autoopt.store import codec, tables
from autoopt.store.base import LEASE_SECONDS
from autoopt.store.part import Part, batches
from autoopt.store.records import ChainRecord, RunRecord, RunStatus, SweepRecord


def new_id() -> str:
    """An id for a run or a sweep: twelve hexadecimal digits."""
    return uuid.uuid4().hex[:12]


_PLAIN = ("id", "name", "identity", "model", "status", "sweep", "parent", "owner", "created", "finished")


class Runs(Part):
    """The rows of `run`, `plan`, `chain` and `sweep`."""

    def create_run(self, record: RunRecord, chains: Sequence[ChainRecord] = ()) -> RunRecord:
        name = record.id or new_id()
        content = {"plan": codec.loads(codec.dumps(record.plan)), "chains": [c.id for c in chains]}
        plan = digest_json(content)

        def work(connection: Connection) -> bool:
            self._put_plan(connection, plan, codec.dumps(record.plan), chains)
            values = {
                "id": name,
                "name": codec.text(record.name),
                "identity": record.identity,
                "model": record.model,
                "plan": plan,
                "settings": codec.dumps(record.settings),
                "status": record.status,
                "result": None if record.result is None else codec.dumps(record.result),
                "sweep": record.sweep,
                "parent": record.parent,
                "owner": record.owner or self.owner,
                "lease": self.db.now + LEASE_SECONDS,
                "created": self.db.now,
            }
            return self._insert_new(connection, tables.run, values)

        self.db.write(work)
        stored = self.run(name)
        if stored.identity != record.identity:
            raise InputError(f"there is a run {name!r} already")
        return stored

    def _put_plan(self, connection: Connection, digest: str, content: str, chains: Sequence[ChainRecord]) -> None:
        if not self._insert_new(
            connection, tables.plan, {"digest": digest, "content": content, "created": self.db.now}
        ):
            return
        rows = [
            {
                "plan": digest,
                "id": chain.id,
                "position": position,
                "name": codec.text(chain.name),
                "nodes": codec.dumps(list(chain.nodes)),
                "points": str(chain.points),
            }
            for position, chain in enumerate(chains)
        ]
        for batch in batches(rows):
            connection.execute(insert(tables.chain), batch)

    def finish_run(
        self, run: str, status: RunStatus = "finished", result: Any = None, owner: str | None = None
    ) -> bool:
        table, who = tables.run, owner or self.owner
        values = {"status": status, "result": None if result is None else codec.dumps(result)}
        own = table.c.owner.is_(None) | (table.c.owner == who)
        change = update(table).where(table.c.id == run, table.c.status == "running", own)
        again = select(table.c.id).where(
            table.c.id == run, table.c.owner == who, *(table.c[name] == value for name, value in values.items())
        )

        def work(connection: Connection) -> bool:
            done = connection.execute(change.values(**values, owner=who, lease=None, finished=self.db.now))
            return done.rowcount == 1 or connection.execute(again).first() is not None

        ended = self.db.write(work)
        self.db.settle()
        return ended

    def run(self, name: str) -> RunRecord:
        row = self._find(tables.run, "id", name, "run", latest="number", whole=tables.run.c.parent.is_(None))
        return self.db.read(lambda connection: self._runs_from(connection, [row]))[0]

    def runs(
        self,
        *,
        status: RunStatus | None = None,
        identity: str | None = None,
        sweep: str | None = None,
        parent: str | None = None,
    ) -> tuple[RunRecord, ...]:
        wanted = {"status": status, "identity": identity, "sweep": sweep, "parent": parent}
        query = select(tables.run).order_by(tables.run.c.number.desc())
        for column, value in wanted.items():
            if value is not None:
                query = query.where(tables.run.c[column] == value)
        return self.db.read(lambda c: tuple(self._runs_from(c, c.execute(query).mappings().all())))

    def _runs_from(self, connection: Connection, rows: Sequence[RowMapping]) -> list[RunRecord]:
        plans = _plans(connection, {row["plan"] for row in rows})
        return [
            RunRecord(
                plan=codec.loads(plans[row["plan"]]),
                settings=codec.loads(row["settings"]),
                result=codec.loads(row["result"]),
                **{name: row[name] for name in _PLAIN},
            )
            for row in rows
        ]

    def chains(self, run: str) -> tuple[ChainRecord, ...]:
        table = tables.chain
        query = select(table).join(tables.run, tables.run.c.plan == table.c.plan).where(tables.run.c.id == run)
        rows = self._all(query.order_by(table.c.position))
        return tuple(
            ChainRecord(row["id"], row["name"], tuple(codec.loads(row["nodes"])), int(row["points"])) for row in rows
        )

    def create_sweep(self, record: SweepRecord) -> SweepRecord:
        record = dataclasses.replace(record, id=record.id or new_id())
        values = {
            "id": record.id,
            "name": codec.text(record.name),
            "settings": codec.dumps(record.settings),
            "status": record.status,
            "created": self.db.now,
        }
        self.db.write(lambda connection: self._insert_new(connection, tables.sweep, values))
        return self.sweep(record.id)

    def finish_sweep(self, sweep: str, status: RunStatus = "finished", result: Any = None) -> None:
        values = {"status": status, "result": None if result is None else codec.dumps(result), "finished": self.db.now}
        change = update(tables.sweep).where(tables.sweep.c.id == sweep)
        self.db.write(lambda connection: connection.execute(change.values(values)))

    def sweep(self, name: str) -> SweepRecord:
        return _sweep_from(self._find(tables.sweep, "id", name, "sweep", latest="number"))

    def sweeps(self, name: str | None = None) -> Iterator[SweepRecord]:
        query = select(tables.sweep.c.id).order_by(tables.sweep.c.number.desc())
        if name is not None:
            query = query.where(tables.sweep.c.name == codec.text(name))
        for sweep in self.db.read(lambda c: c.execute(query).scalars().all()):
            yield from map(_sweep_from, self._all(select(tables.sweep).where(tables.sweep.c.id == sweep)))


def _plans(connection: Connection, digests: Iterable[str]) -> dict[str, str]:
    table = tables.plan
    found: dict[str, str] = {}
    for batch in batches(digests):
        rows = connection.execute(select(table.c.digest, table.c.content).where(table.c.digest.in_(batch)))
        found |= {row.digest: row.content for row in rows}
    return found


def _sweep_from(row: RowMapping) -> SweepRecord:
    return SweepRecord(
        settings=codec.loads(row["settings"]),
        result=codec.loads(row["result"]),
        **{n: row[n] for n in ("id", "name", "status", "created", "finished")},
    )
