"""The queries of lineage as SQL; ancestry is one recursive query."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, func, literal, select

from autoopt.model.candidate import Candidate
from autoopt.outcome import Outcome
from autoopt.store import codec
from autoopt.store.contracts import Store
from autoopt.store.lineage import MAX_STEPS, Ancestry, LineageTracer
from autoopt.store.records import PassRunRecord
from autoopt.store.sql import tables
from autoopt.store.sql.database import Database
from autoopt.store.sql.results import read_pass_runs
from autoopt.store.sql.rows import fetch_all

_T = tables.pass_run.c


class SqlLineage(LineageTracer):
    """See `LineageStore`."""

    def __init__(self, store: Store, database: Database) -> None:
        super().__init__(store)
        self._database = database

    def _outputs(self, artifact: str) -> set[Candidate]:
        query = select(_T.output_options).where(_T.output_artifact == artifact).distinct()
        rows = fetch_all(self._database, query)
        return {Candidate(artifact, codec.loads(row["output_options"])) for row in rows}

    def _ancestry(self, key: str) -> Ancestry:
        changed = _T.outcome == str(Outcome.OK)
        back = select(literal(key).label("key"), literal(0).label("distance")).cte("back", recursive=True)
        earlier = select(_T.input_key, back.c.distance + 1).where(
            _T.output_key == back.c.key, changed, _T.input_key != key, back.c.distance < MAX_STEPS
        )
        back = back.union(earlier)
        shortest = select(back.c.key, func.min(back.c.distance).label("distance")).group_by(back.c.key)

        def work(connection: Connection) -> Ancestry:
            distances: dict[str, int] = {row.key: row.distance for row in connection.execute(shortest)}
            between = select(_T.key).where(_T.output_key.in_(list(distances)), changed)
            pass_runs = read_pass_runs(connection, connection.execute(between).scalars().all())
            return Ancestry(distances, list(pass_runs.values()))

        return self._database.read(work)

    def _analyses(self, keys: Sequence[str]) -> list[PassRunRecord]:
        unchanged = _T.outcome == str(Outcome.UNCHANGED)
        query = select(_T.key).where(_T.input_key.in_(list(keys)), unchanged, _T.reports != "{}")

        def work(connection: Connection) -> list[PassRunRecord]:
            return list(read_pass_runs(connection, connection.execute(query).scalars().all()).values())

        return self._database.read(work)
