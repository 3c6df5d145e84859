"""Artifacts that must stay, and those that nobody uses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from sqlalchemy import Connection
from store_helpers import age, evaluation, finished_run, put, start_run, steps_of

from autoopt.store import Store, SweepRecord
from autoopt.store.gc import GRACE, idle, referenced, shared_copies
from autoopt.store.sql.database import open_database

Result = TypeVar("Result")


def read(store: Store, query: Callable[[Connection], Result]) -> Result:
    return store.database.read(query)


def idle_artifacts(store: Store, *digests: str, shared: dict[str, float] | None = None) -> set[str]:
    return set(read(store, lambda connection: idle(store, connection, set(digests), shared or {})))


def test_everything_that_rows_point_to_is_referenced(sqlite_store: Store) -> None:
    run = finished_run(sqlite_store)
    unused = put(sqlite_store, b"unused")
    outputs = {step.output.artifact for step in steps_of(sqlite_store, run) if step.output}
    assert read(sqlite_store, referenced) == {sqlite_store.runs.get(run).model} | outputs
    sqlite_store.results.finish_evaluation(evaluation(unused))
    assert unused in read(sqlite_store, referenced)


def test_digests_in_results_are_referenced(sqlite_store: Store) -> None:
    run, best, kept = start_run(sqlite_store), put(sqlite_store, b"best"), put(sqlite_store, b"kept")
    sweep = sqlite_store.sweeps.create(SweepRecord("", "zoo"))
    before = read(sqlite_store, referenced)
    sqlite_store.runs.finish(run.id, "finished", {"pareto": [{"artifact": best}], "text": "f" * 63})
    sqlite_store.sweeps.finish(sweep.id, "finished", {"best": kept})
    assert read(sqlite_store, referenced) - before == {best, kept}


def test_an_artifact_is_idle_after_the_grace(sqlite_store: Store) -> None:
    digest = put(sqlite_store, b"model")
    assert idle_artifacts(sqlite_store, digest) == set()
    age(sqlite_store, GRACE + 10.0)
    assert idle_artifacts(sqlite_store, digest) == {digest}


def test_a_request_of_another_machine_counts_as_use(sqlite_store: Store) -> None:
    digest = put(sqlite_store, b"model")
    age(sqlite_store, GRACE + 10.0)
    now = sqlite_store.clock()
    assert idle_artifacts(sqlite_store, digest, shared={digest: now - 5.0}) == set()
    assert idle_artifacts(sqlite_store, digest, shared={digest: now - 2 * GRACE}) == {digest}


def test_a_run_under_way_extends_the_grace(sqlite_store: Store) -> None:
    run = start_run(sqlite_store)
    digest = put(sqlite_store, b"model")
    age(sqlite_store, GRACE + 10.0)
    sqlite_store.database.write(lambda c: c.exec_driver_sql(f"UPDATE run SET created = created - {2 * GRACE}"))
    assert idle_artifacts(sqlite_store, digest) == set()
    sqlite_store.runs.finish(run.id)
    assert idle_artifacts(sqlite_store, digest) == {digest}


def test_without_a_shared_place_there_are_no_copies(sqlite_store: Store, tmp_path: Path) -> None:
    assert shared_copies(sqlite_store) == {}
    url = f"sqlite:///{tmp_path}/other.db"
    store = Store(open_database(url), tmp_path / "other", artifacts_url=f"file://{tmp_path}/shared")
    digest = put(store, b"model")
    assert shared_copies(store)[digest] == pytest.approx(store.clock(), abs=60.0)
    store.close()
