"""Lineage, in every kind of store."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Connection, event, insert, select
from store_helpers import ENVIRONMENT, finish_all, pass_run, put, start_run

from autoopt.errors import InputError
from autoopt.model.candidate import Candidate
from autoopt.outcome import Outcome
from autoopt.store import Store
from autoopt.store.sql import tables
from autoopt.store.sql.store import SqlStore


def test_lineage_has_the_steps_from_the_source_in_order(store: Store) -> None:
    run = start_run(store)
    middle, last = put(store, b"middle"), put(store, b"last")
    tuned = Candidate(last, {"intra_op_num_threads": 1})
    first = pass_run(run.model, middle)
    second = pass_run(middle, last, "float16")
    third = pass_run(last, last, "session_tuning", output=tuned)
    finish_all(store, third, second, first)
    found = store.lineage.trace(tuned).to_json()
    assert (found["artifact"], found["source"]) == (last, run.model)
    assert [s["pass"] for s in found["steps"]] == ["simplify", "float16", "session_tuning"]
    assert found["steps"][0] == {
        "pass": "simplify",
        "params": {"level": 2},
        "input": run.model,
        "output": middle,
        "session_options": {},
        "outcome": "ok",
        "seconds": 0.5,
        "environment": ENVIRONMENT,
    }
    assert found["steps"][2]["session_options"] == {"intra_op_num_threads": 1}
    assert [s.pass_name for s in store.lineage.trace(last[:12]).steps] == ["simplify", "float16"]
    assert store.lineage.trace(run.model).steps == ()


def test_lineage_takes_the_shortest_way_through_circles(store: Store) -> None:
    run = start_run(store)
    one, two = put(store, b"one"), put(store, b"two")
    there, back = pass_run(run.model, one), pass_run(one, run.model, "undo")
    on, direct = pass_run(one, two, "on"), pass_run(run.model, two, "direct")
    finish_all(store, there, back, on)
    assert [s.pass_name for s in store.lineage.trace(two).steps] == ["simplify", "on"]
    store.results.finish_pass_run(direct)
    assert [s.pass_name for s in store.lineage.trace(two).steps] == ["direct"]
    assert store.lineage.trace(run.model).steps == ()


def test_lineage_includes_the_conversion_and_analyses_of_the_source(store: Store) -> None:
    run = start_run(store)
    program, made = put(store, b"program"), put(store, b"made")
    attempts = ({"params": {"level": 3}, "reason": "too high"},)
    converted = pass_run(program, run.model, "torch_export")
    counted = pass_run(
        run.model, run.model, "operator_counts", outcome=Outcome.UNCHANGED, reports={"counts": {"Conv": 1}}
    )
    finish_all(store, converted, counted, pass_run(run.model, made, attempts=attempts))
    found = store.lineage.trace(made).to_json()
    assert (found["source"], found["converted"]["input"]) == (run.model, program)
    assert found["steps"][0]["attempts"] == list(attempts)
    assert [(a["pass"], a["reports"]) for a in found["analyses"]] == [("operator_counts", {"counts": {"Conv": 1}})]
    assert store.lineage.trace(run.model).converted is not None


def test_an_unknown_artifact_has_no_lineage(store: Store) -> None:
    with pytest.raises(InputError, match="no artifact 'feed'"):
        store.lineage.trace("feed")


def test_lineage_finds_analyses_by_index_among_the_pass_runs_of_one_model(database_store: SqlStore) -> None:
    run = start_run(database_store)
    made = put(database_store, b"made")
    counted = pass_run(
        run.model, run.model, "operator_counts", outcome=Outcome.UNCHANGED, reports={"counts": {"Conv": 1}}
    )
    finish_all(database_store, counted, pass_run(run.model, made))
    database_store.database.write(lambda connection: _copy_pass_run(connection, 5000))
    engine = database_store.database._engine
    queries: list[tuple[str, Any]] = []

    def observe(_: object, __: object, statement: str, parameters: object, ___: object, ____: bool) -> None:
        queries.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", observe)
    analyses = database_store.lineage.trace(made).analyses
    event.remove(engine, "before_cursor_execute", observe)
    assert [analysis.pass_name for analysis in analyses] == ["operator_counts"]
    (query,) = [query for query in queries if "reports" in query[0].partition("WHERE")[2]]
    assert "ix_pass_run_unchanged" in database_store.database.read(lambda c: _query_plan(c, *query))


def _copy_pass_run(connection: Connection, copies: int) -> None:
    """Copy a pass run that changed the model."""
    row = connection.execute(select(tables.pass_run).where(tables.pass_run.c.outcome == "ok")).mappings().one()
    rows = [{**row, "key": f"copy {number}", "output_key": f"other {number}"} for number in range(copies)]
    connection.execute(insert(tables.pass_run), rows)
    connection.exec_driver_sql("ANALYZE")


def _query_plan(connection: Connection, statement: str, parameters: Any) -> str:
    command = "EXPLAIN QUERY PLAN" if connection.dialect.name == "sqlite" else "EXPLAIN"
    return str(connection.exec_driver_sql(f"{command} {statement}", parameters).all())


def test_an_artifact_exists_by_the_beginning_of_its_digest(store: Store) -> None:
    digest = put(store, b"model")
    assert store.artifacts.exists(digest)
    assert store.artifacts.exists(digest[:8])
    assert not store.artifacts.exists(f"{digest[:8]}x")
    assert not store.artifacts.exists("%")
