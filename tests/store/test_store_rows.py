"""Reading and writing rows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import event, select
from store_helpers import put, start_run, trial

from autoopt.errors import InputError
from autoopt.outcome import Outcome
from autoopt.store import SweepRecord
from autoopt.store.sql import tables
from autoopt.store.sql.rows import BATCH, Lookup, batches, fetch_all, insert_if_absent, to_row
from autoopt.store.sql.store import SqlStore

DIGESTS = Lookup(tables.artifact, "digest", "artifact", newest_by="created")


@given(st.integers(0, 3 * BATCH))
def test_batches_keep_the_order_and_are_full_but_for_the_last(count: int) -> None:
    parts = list(batches(range(count)))
    assert [item for part in parts for item in part] == list(range(count))
    assert all(len(part) == BATCH for part in parts[:-1])
    assert all(1 <= len(part) <= BATCH for part in parts)


def test_a_row_is_inserted_only_once(database_store: SqlStore) -> None:
    row = {"digest": "d" * 64, "content": "{}", "created": 1.0}
    database = database_store.database
    assert database.write(lambda c: insert_if_absent(c, tables.plan, row))
    assert not database.write(lambda c: insert_if_absent(c, tables.plan, {**row, "content": "[]"}))
    assert [stored["content"] for stored in fetch_all(database, select(tables.plan))] == ["{}"]


def test_a_row_is_found_by_its_id_or_a_beginning(database_store: SqlStore) -> None:
    digest = put(database_store, b"model")
    for name in (digest, digest[:12]):
        assert DIGESTS.find(database_store.database, name)["digest"] == digest
    assert DIGESTS.find(database_store.database, "latest")["digest"] == digest


@pytest.mark.parametrize("name", ["", "%", "_", "\\", "zz", 100_000 * "z"])
def test_wildcards_of_sql_match_nothing(database_store: SqlStore, name: str) -> None:
    put(database_store, b"model")
    with pytest.raises(InputError, match="no artifact"):
        DIGESTS.find(database_store.database, name)


def test_an_ambiguous_name_is_refused_with_longer_beginnings(database_store: SqlStore) -> None:
    for digest in ("abc1" * 16, "abd2" * 16):
        row = {"digest": digest, "bytes": 0, "files": "{}", "created": 1.0}
        database_store.database.write(lambda c, row=row: insert_if_absent(c, tables.artifact, row))  # type: ignore[misc]
    with pytest.raises(InputError, match=r"artifact 'ab' is ambiguous; give more of it: abc1ab, abd2ab$"):
        DIGESTS.find(database_store.database, "ab")


def test_a_record_is_written_and_read_by_the_names_of_its_fields() -> None:
    record = SweepRecord("s", "two\nlines", {"x": (1, 2)}, "finished", owner="a/b", created=1.5)
    row = to_row(tables.sweep, record)
    assert row == {
        "id": "s",
        "name": "two lines",
        "settings": '{"x":[1,2]}',
        "status": "finished",
        "result": None,
        "owner": "a/b",
        "created": 1.5,
        "finished": None,
    }


@pytest.mark.parametrize("is_added", [True, False])
def test_a_trial_is_finished_by_one_statement(is_added: bool, database_store: SqlStore) -> None:
    run = start_run(database_store).id
    if is_added:
        database_store.trials.add(trial(run, 0))
    statements: list[str] = []

    def before(_: object, __: object, statement: str, *rest: object) -> None:
        statements.append(statement.split()[0])

    event.listen(database_store.database._engine, "before_cursor_execute", before)
    try:
        assert database_store.trials.finish(trial(run, 0, outcome=Outcome.OK))
    finally:
        event.remove(database_store.database._engine, "before_cursor_execute", before)
    assert [statement for statement in statements if statement != "BEGIN"] == ["INSERT"]
    assert [record.status for record in database_store.trials.all(run)] == ["done"]
