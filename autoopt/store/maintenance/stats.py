"""How much is in the store."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, func, select

from autoopt.store.contracts import Store
from autoopt.store.sql import tables
from autoopt.store.sql.store import require_sql
from autoopt.store.sql.tables import HEAD, metadata


@dataclass(frozen=True)
class Stats:
    """Rows by table, outcomes of pass runs and evaluations, bytes of artifacts (present ones) and of the database."""

    database: str
    schema: str
    rows: dict[str, int]
    pass_runs: dict[str, int]
    evaluations: dict[str, int]
    artifact_bytes: int
    evicted: int
    database_bytes: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def stats(store: Store) -> Stats:
    """Count everything."""
    sql = require_sql(store)

    def query(connection: Connection) -> Stats:
        rows = {
            t.name: connection.execute(select(func.count()).select_from(t)).scalar_one() for t in metadata.sorted_tables
        }
        artifact = tables.artifact.c
        size = connection.execute(select(func.sum(artifact.bytes)).where(artifact.present == 1)).scalar()
        evicted = connection.execute(select(func.count()).where(artifact.present == 0)).scalar_one()
        if sql.database.sqlite:
            pages, page = (connection.exec_driver_sql(f"PRAGMA {p}").scalar_one() for p in ("page_count", "page_size"))
            taken = pages * page
        else:
            taken = connection.exec_driver_sql("SELECT pg_database_size(current_database())").scalar_one()
        outcomes = []
        for table in (tables.pass_run, tables.evaluation):
            name = func.coalesce(table.c.outcome, "claimed")
            outcomes.append({r[0]: r[1] for r in connection.execute(select(name, func.count()).group_by(name))})
        return Stats(sql.safe_url, HEAD, rows, outcomes[0], outcomes[1], int(size or 0), evicted, int(taken))

    return sql.database.read(query)
