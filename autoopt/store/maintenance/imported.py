"""Rows of an exported run as they may go into another store: in the newest schema, marked, and never continued."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from sqlalchemy import Connection, MetaData, Table, insert, select

from autoopt.json_codec import JsonObject, from_json, to_json
from autoopt.model.candidate import digest_json
from autoopt.store import codec
from autoopt.store.memory import MemoryDatabase, MemoryStore
from autoopt.store.records import IMPORTED, part_documents
from autoopt.store.sql.rows import insert_if_absent
from autoopt.store.sql.schema import revisions, upgrade
from autoopt.store.sql.tables import metadata
from autoopt.target import Target

_LEFT_OUT: Final = ("event", "sweep")
"""Events and sweeps only serve to continue runs."""
_LISTS: Final = ("nodes", "pass_runs", "evaluations", "attempts")
"""JSON columns that hold lists; the others hold objects."""
_CANDIDATES: Final = (
    ("pass_run", "input_artifact", "input_options", "input_key"),
    ("pass_run", "output_artifact", "output_options", "output_key"),
    ("evaluation", "artifact", "session_options", "candidate"),
)
"""Tables with the columns of a candidate: artifact, session options and key."""
_SCRIPT: Final = "user_script"
_TIMES: Final = ("created", "finished", "time", "seconds")
_LATEST: Final = 1e11
"""The latest time that a row may have, in seconds since 1970: about the year 5000. Also the longest duration."""
Row: TypeAlias = dict[str, Any]
Rows: TypeAlias = dict[str, list[Row]]
"""Rows by table."""


def check_json(column: str, value: str) -> str:
    """Check the JSON text of a column; returns it in the store's form.

    Raises:
        ValueError: It is not JSON, or not of the kind that the column holds.
    """
    content = json.loads(value)
    expected = list if column in _LISTS else dict
    if not isinstance(content, expected):
        raise ValueError(f"{column!r} is not a JSON {'array' if expected is list else 'object'}")
    return codec.dumps(content)


def _plan_digest(plan: Row, chains: Sequence[Row]) -> str:
    """The digest of a plan and of its chains in order."""
    mine = [chain for chain in chains if chain["plan"] == plan["digest"]]
    ids = [chain["id"] for chain in sorted(mine, key=lambda chain: chain["position"])]
    return digest_json({"plan": codec.loads(plan["content"]), "chains": ids})


def check_digests(rows: Rows) -> None:
    """Check that shared rows and candidates have the digests of their content, so that they cannot pass for others.

    Raises:
        ValueError: One has another digest.
    """
    for row in rows.get("environment", []):
        if row["digest"] != digest_json(codec.loads(row["content"])):
            raise ValueError("an environment does not have its digest")
    for row in rows.get("plan", []):
        if row["digest"] != _plan_digest(row, rows.get("chain", [])):
            raise ValueError("a plan does not have its digest")
    for table, artifact, options, key in _CANDIDATES:
        for row in rows.get(table, []):
            candidate = codec.candidate(row.get(artifact), row.get(options))
            if row.get(key) != (candidate and candidate.key):
                raise ValueError(f"a candidate in table {table!r} does not have its key")


def check_runs(rows: Rows) -> None:
    """Check that all rows belong to runs of the archive, and none to a run of the store that it goes into.

    Raises:
        ValueError: One does not.
    """
    runs = {row["id"] for row in rows.get("run", [])}
    named = {row["parent"] for row in rows.get("run", [])} | {row["run"] for row in rows.get("trial", [])}
    for table in ("pass_run", "evaluation"):
        named |= {row.get("run") for row in rows.get(table, [])}
    if not named <= {*runs, None}:
        raise ValueError("it has rows of other runs")


def check_key(table: str, row: Row) -> None:
    """Check that a row has its key.

    Raises:
        ValueError: It has not.
    """
    for key in metadata.tables[table].primary_key:
        # A key that counts the rows of a database does not travel.
        if row.get(key.name) is None and key.autoincrement is not True:
            raise ValueError(f"table {table!r} lacks the field {key.name!r}")


def check_time(column: str, value: object) -> None:
    """Check that a number in a column of times is one.

    Raises:
        ValueError: It is not.
    """
    if column in _TIMES and isinstance(value, int | float) and not 0 <= value <= _LATEST:
        raise ValueError(f"{column!r} is not a time")


@dataclass(frozen=True)
class _Settings:
    """The settings of a run that its views read."""

    dag: str = ""
    model: str = ""
    search: JsonObject = field(default_factory=dict)
    target: Target = field(default_factory=Target)
    replay_environment: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class _Part:
    """The field that maintenance reads of a part in the result of a run."""

    run: str


def check_records(rows: Rows, home: Path) -> None:
    """Check that a store reads the rows as records whose fields have their types: one that has not would end lists.

    The rest of a run's result is checked by those who show it. `home` is the folder of the store that they go into.

    Raises:
        ValueError: A field has another type, or a result is unfinished. Also TypeError, KeyError and AttributeError.
    """
    store = MemoryStore(home)
    store.database.write(lambda connection: insert_rows(connection, rows))
    for record in _records(store, rows):
        from_json(type(record), to_json(record))


def _records(store: MemoryStore, rows: Rows) -> Iterator[object]:
    yield from store.artifacts.all()
    yield from store.models.all()
    for run in store.runs.all():
        yield run
        yield from_json(_Settings, run.settings)
        for part in part_documents(run.result):
            yield from_json(_Part, part)
        yield from store.runs.chains(run.id)
        for trial in store.trials.all(run.id):
            yield trial
            yield trial.result
    pass_runs, evaluations = rows.get("pass_run", []), rows.get("evaluation", [])
    results = [
        *store.results.pass_runs(row["key"] for row in pass_runs).values(),
        *store.results.evaluations(row["key"] for row in evaluations).values(),
    ]
    if len(results) < len(pass_runs) + len(evaluations):
        raise ValueError("a result is unfinished")
    yield from results


def insert_rows(connection: Connection, rows: Rows) -> None:
    """Insert the rows whose keys are new."""
    for table in metadata.sorted_tables:
        for row in rows.get(table.name, []):
            insert_if_absent(connection, table, row)


def as_imported(rows: Rows, run: str, file: str, *, reuse: bool) -> Rows:
    """Mark the runs as imported, and take out what would continue them or run a script.

    `file` names the archive in the mark. With `reuse`, the keys stay by which later runs find results; otherwise
    results get keys of their own.
    """
    result = {table: list(items) for table, items in rows.items() if table not in _LEFT_OUT}
    result["run"] = [_run(row, file, reuse) for row in rows.get("run", [])]
    for table in ("pass_run", "evaluation"):  # results of other runs that this one used came in with it, too
        result[table] = [{**row, "run": row.get("run") or run} for row in rows.get(table, [])]
    if not reuse:
        _rename_keys(result)
    return result


def _rename_keys(rows: Rows) -> None:
    """Give all results keys of their own, which no search looks up."""
    rows["trial"] = [_with_keys(row, ("pass_runs", "evaluations"), _own_keys) for row in rows.get("trial", [])]
    for table, column in (
        ("run", "identity"),
        ("pass_run", "key"),
        ("evaluation", "key"),
        ("metric_value", "evaluation"),
    ):
        rows[table] = [_with_keys(row, (column,), _own_key) for row in rows.get(table, [])]


def _run(row: Row, file: str, reuse: bool) -> Row:
    settings = codec.loads(row["settings"])
    settings.pop("request", None)
    environment = dict(settings.get("replay_environment") or {})
    environment.pop(_SCRIPT, None)
    if isinstance(environment.get("calibration"), dict):
        environment["calibration"] = {k: v for k, v in environment["calibration"].items() if k != _SCRIPT}
    settings["replay_environment"] = environment
    settings[IMPORTED] = {"file": codec.text(file), "reuse": reuse}
    marked = {**row, "settings": codec.dumps(settings), "sweep": None}
    if row["status"] not in ("finished", "failed"):
        error = codec.dumps({"error": f"it was {row['status']} when it was exported"})
        marked |= {"status": "failed", "result": error}
    return marked


def _with_keys(row: Row, columns: tuple[str, ...], change: Callable[[str], str]) -> Row:
    changed: dict[str, Any] = {column: change(row[column]) for column in columns}
    return {**row, **changed}


def _own_key(key: str) -> str:
    return hashlib.sha256(f"{IMPORTED} {key}".encode()).hexdigest()


def _own_keys(keys: str) -> str:
    return codec.dumps(list(map(_own_key, codec.loads(keys))))


def is_older(schema: str) -> bool:
    """True if this autoopt can migrate rows of that schema to its own."""
    return schema in revisions()


def migrated(rows: Rows, schema: str) -> Rows:
    """The rows of an exported run in the newest schema, made in a database in memory.

    Raises:
        sqlalchemy.exc.SQLAlchemyError: They are not rows of that schema.
        KeyError: A table that the schema does not have.
    """
    with MemoryDatabase().transaction(writing=True) as connection:
        upgrade(connection, None, schema)
        before = _tables(connection)
        if not rows.keys() <= before.keys():
            raise KeyError(min(rows.keys() - before.keys()))
        # An export leaves out the numbers of rows, owners and leases, and they stay out.
        left_out: dict[str, set[str]] = {}
        for name, table in before.items():
            left_out[name] = set(table.c.keys())
            for row in rows.get(name, []):
                check_key(name, row)
                connection.execute(insert(table).values(row))
                left_out[name] -= row.keys()
        upgrade(connection, schema)
        result: Rows = {name: [] for name in rows}
        for name, table in _tables(connection).items():
            columns = [column for column in table.c if column.name not in left_out.get(name, set())]
            if columns:
                result[name] = list(map(dict, connection.execute(select(*columns)).mappings()))
        return result


def _tables(connection: Connection) -> Mapping[str, Table]:
    """The tables of the database, in the order in which rows can be inserted."""
    metadata = MetaData()
    metadata.reflect(connection)
    return {table.name: table for table in metadata.sorted_tables if table.name != "alembic_version"}
