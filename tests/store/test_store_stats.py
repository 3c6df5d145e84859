"""Statistics."""

from __future__ import annotations

from store_helpers import finished_run, key

from autoopt.store import Store
from autoopt.store.maintenance.stats import stats


def test_stats_count_rows_outcomes_and_bytes(database_store: Store) -> None:
    finished_run(database_store)
    database_store.claims.acquire("pass_run", key("claimed"))
    found = stats(database_store)
    assert found.rows["artifact"] == 3
    assert (found.pass_runs, found.evaluations) == ({"ok": 2, "claimed": 1}, {"ok": 1})
    assert found.artifact_bytes == sum(a.bytes for a in database_store.artifacts.all())
    assert found.disk_bytes == found.artifact_bytes, "small models share nothing"
    assert found.database_bytes > 0
