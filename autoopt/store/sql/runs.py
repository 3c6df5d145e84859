"""The rows of `run`, `plan` and `chain`."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, RowMapping, insert, select, update

from autoopt.errors import InputError
from autoopt.model.candidate import digest_json
from autoopt.store import codec
from autoopt.store.contracts import LEASE_SECONDS, RunStore
from autoopt.store.records import ChainRecord, Json, RunRecord, RunStatus, new_id
from autoopt.store.sql import tables
from autoopt.store.sql.database import Database
from autoopt.store.sql.deletion import delete_ended_run
from autoopt.store.sql.rows import Lookup, batches, fetch_all, insert_if_absent, is_among

_T = tables.run.c
_LOOKUP = Lookup(tables.run, "id", "run", newest_by="number", newest_among=_T.parent.is_(None))


class SqlRuns(RunStore):
    """See `RunStore`."""

    def __init__(self, database: Database, owner: str) -> None:
        self._database = database
        self._owner = owner

    def create(self, record: RunRecord, chains: Sequence[ChainRecord] = ()) -> RunRecord:
        run = record.id or new_id()
        plan = codec.dumps(record.plan)
        plan_digest = digest_json({"plan": codec.loads(plan), "chains": [chain.id for chain in chains]})
        row = {
            "id": run,
            "name": codec.text(record.name),
            "identity": record.identity,
            "model": record.model,
            "plan": plan_digest,
            "settings": codec.dumps(record.settings),
            "status": record.status,
            "result": codec.dumps_optional(record.result),
            "sweep": record.sweep,
            "parent": record.parent,
            "owner": record.owner or self._owner,
            "lease": self._database.now + LEASE_SECONDS,
            "created": self._database.now,
        }

        def work(connection: Connection) -> None:
            plan_row = {"digest": plan_digest, "content": plan, "created": self._database.now}
            if insert_if_absent(connection, tables.plan, plan_row):
                _insert_chains(connection, plan_digest, chains)
            insert_if_absent(connection, tables.run, row)

        self._database.write(work)
        stored = self.get(run)
        if stored.identity != record.identity:
            raise InputError(f"there is a run {run!r} already")
        return stored

    def finish(
        self, run: str, status: RunStatus = "finished", result: Json | None = None, owner: str | None = None
    ) -> bool:
        claimant = owner or self._owner
        content = codec.dumps_optional(result)
        mine = _T.owner.is_(None) | (_T.owner == claimant)
        end = update(tables.run).where(_T.id == run, _T.status == "running", mine)
        end = end.values(status=status, result=content, owner=claimant, lease=None, finished=self._database.now)
        # The answer to the first commit may have been lost: the same end again is no refusal.
        same = select(_T.id).where(_T.id == run, _T.owner == claimant, _T.status == status, _T.result == content)

        def work(connection: Connection) -> bool:
            return connection.execute(end).rowcount == 1 or connection.execute(same).first() is not None

        ended = self._database.write(work)
        self._database.make_durable()
        return ended

    def get(self, name: str) -> RunRecord:
        row = _LOOKUP.find(self._database, name)
        return self._database.read(lambda connection: _records(connection, [row]))[0]

    def all(
        self,
        *,
        status: RunStatus | None = None,
        identity: str | None = None,
        sweep: str | None = None,
        parent: str | None = None,
    ) -> tuple[RunRecord, ...]:
        query = select(tables.run).order_by(_T.number.desc())
        for column, value in ((_T.status, status), (_T.identity, identity), (_T.sweep, sweep), (_T.parent, parent)):
            if value is not None:
                query = query.where(column == value)

        def work(connection: Connection) -> tuple[RunRecord, ...]:
            return tuple(_records(connection, connection.execute(query).mappings().all()))

        return self._database.read(work)

    def chains(self, run: str) -> tuple[ChainRecord, ...]:
        chain = tables.chain.c
        query = select(tables.chain).join(tables.run, _T.plan == chain.plan).where(_T.id == run)
        rows = fetch_all(self._database, query.order_by(chain.position))
        return tuple(
            ChainRecord(row["id"], row["name"], tuple(codec.loads(row["nodes"])), int(row["points"])) for row in rows
        )

    def delete(self, run: str) -> None:
        self._database.write(lambda connection: delete_ended_run(connection, self._database, run))


def _insert_chains(connection: Connection, plan: str, chains: Sequence[ChainRecord]) -> None:
    rows = []
    for position, chain in enumerate(chains):
        row: dict[str, object] = {"plan": plan, "id": chain.id, "position": position}
        row["name"] = codec.text(chain.name)
        row["nodes"] = codec.dumps(list(chain.nodes))
        row["points"] = str(chain.points)  # more than an integer column holds
        rows.append(row)
    for batch in batches(rows):
        connection.execute(insert(tables.chain), batch)


def _records(connection: Connection, rows: Sequence[RowMapping]) -> list[RunRecord]:
    plans = _plans(connection, {row["plan"] for row in rows})
    return [_record(row, plans[row["plan"]]) for row in rows]


def _plans(connection: Connection, digests: set[str]) -> dict[str, str]:
    """The plans with these digests as JSON text."""
    table = tables.plan
    plans: dict[str, str] = {}
    for batch in batches(digests):
        for row in connection.execute(select(table).where(is_among(table.c.digest, batch))):
            plans[row.digest] = row.content
    return plans


def _record(row: RowMapping, plan: str) -> RunRecord:
    return RunRecord(
        id=row["id"],
        name=row["name"],
        identity=row["identity"],
        model=row["model"],
        plan=codec.loads(plan),
        settings=codec.loads(row["settings"]),
        status=row["status"],
        result=codec.loads(row["result"]),
        sweep=row["sweep"],
        parent=row["parent"],
        owner=row["owner"],
        created=row["created"],
        finished=row["finished"],
    )
