"""The commands that look at results find their rows by index, however many runs and trials a store has."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import postgres
import pytest
from sqlalchemy import Connection, Engine, event

from autoopt.settings import settings
from autoopt.store import open_store

Call = Callable[..., Any]
COMMANDS = ["runs latest", "runs {run}", "runs", "lineage latest", "compare {run} latest", "report latest"]
GROWING = {"artifact", "model", "run", "chain", "trial", "pass_run", "evaluation"}
"""Tables with rows of every run."""


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.service)])
def run(request: pytest.FixtureRequest, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The first of two finished runs in each kind of database."""
    with ExitStack() as stack:
        if request.param == "postgresql":
            monkeypatch.setenv("AUTOOPT_DB_URL", stack.enter_context(postgres.empty_schema()))
            settings.cache_clear()
        first = request.getfixturevalue("filled")
        with open_store() as store:
            record = store.runs.get(first["run"])
            second = store.runs.create(dataclasses.replace(record, id="", identity="second", status="running"))
            store.runs.finish(second.id, "finished", {**first, "run": second.id})
        yield first["run"]


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_reads_a_growing_table_whole(command: str, run: str, call: Call) -> None:
    queries: list[tuple[str, Any]] = []

    def observe(_: object, __: object, statement: str, parameters: object, ___: object, ____: bool) -> None:
        if statement.lstrip().upper().startswith(("SELECT", "WITH")):
            queries.append((statement, parameters))

    event.listen(Engine, "before_cursor_execute", observe)
    try:
        said = call(*command.format(run=run[:11]).split())
    finally:
        event.remove(Engine, "before_cursor_execute", observe)
    assert said.code == 0, said.err
    assert queries, "it asks the database"
    with open_store() as store:
        assert store.database.read(lambda connection: scanned(connection, queries)) & GROWING == set()


def scanned(connection: Connection, queries: list[tuple[str, Any]]) -> set[str]:
    """The tables that a query reads whole, by the database's own plan."""
    sqlite = connection.dialect.name == "sqlite"
    explain, word = ("EXPLAIN QUERY PLAN", "SCAN ") if sqlite else ("EXPLAIN", "Seq Scan on ")
    if not sqlite:  # it prefers to read small tables whole, if it may
        connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
    tables = set()
    for statement, parameters in queries:
        for row in connection.exec_driver_sql(f"{explain} {statement}", parameters):
            _, found, rest = str(row[-1]).partition(word)
            if found and "USING" not in rest:
                tables.add(rest.split()[0])
    return tables


def test_a_table_that_is_read_whole_is_noticed(run: str) -> None:
    with open_store() as store:
        query = ("SELECT number FROM trial WHERE message = 'odd'", ())
        assert store.database.read(lambda connection: scanned(connection, [query])) == {"trial"}
