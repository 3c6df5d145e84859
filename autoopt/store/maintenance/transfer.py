"""One run with its artifacts as one file, for another machine: a tar of JSON rows and model files, nothing that runs.

rows.json                      {"format": 1, "schema": …, "run": id, "tables": {table: [row, …]}}
artifacts/<digest>/<file>      every present artifact that the rows point to
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, String, Table, select
from sqlalchemy.exc import IntegrityError, SQLAlchemyError, StatementError

from autoopt.errors import InputError
from autoopt.model.files import digest_folder
from autoopt.store import codec
from autoopt.store.contracts import Store
from autoopt.store.maintenance.older_exports import is_older, migrated
from autoopt.store.sql import tables
from autoopt.store.sql.rows import batches, insert_if_absent
from autoopt.store.sql.store import SqlStore, require_sql
from autoopt.store.sql.tables import HEAD, metadata

FORMAT: Final = 1
MAX_ROWS_BYTES: Final = 1 << 30
_MEMBER = re.compile(r"artifacts/([0-9a-f]{64})/([^/\x00]+(?:/[^/\x00]+)*)")
_PRIVATE = frozenset({"number", "owner", "lease"})
"""Columns that mean something only where they were written (`number` in tables that count their own rows)."""


def export_run(store: Store, run: str, file: Path) -> None:
    """Write a run (by id, beginning of it, or `latest`) and everything it points to into `file`.

    Raises:
        InputError: no such run, or `file` is a folder or lies in none.
        ArtifactLost: an artifact is damaged.
    """
    if file.is_dir() or not file.absolute().parent.is_dir():
        raise InputError("must be a file in a folder that exists", where=str(file))
    sql = require_sql(store)
    name = sql.runs.get(run).id
    rows = sql.database.read(lambda connection: _rows_of(connection, name))
    document = {"format": FORMAT, "schema": HEAD, "run": name, "tables": rows}
    temporary = Path(f"{file}.{os.getpid()}.tmp")
    try:
        with tarfile.open(temporary, "w") as archive:
            _add_bytes(archive, "rows.json", codec.dumps(document).encode())
            for row in rows["artifact"]:
                if row["present"]:
                    folder = sql.artifacts.path(row["digest"]).parent
                    for part in sorted(p for p in folder.rglob("*") if p.is_file()):
                        _add_file(archive, f"artifacts/{row['digest']}/{part.relative_to(folder).as_posix()}", part)
        os.replace(temporary, file)
    finally:
        temporary.unlink(missing_ok=True)


def import_run(store: Store, file: Path) -> str:
    """Take over a run written by `export_run`; returns its id. What is there already stays as it is.

    Raises:
        InputError: not such a file, of another version, or its artifacts are not what they claim to be.
    """
    sql = require_sql(store)
    try:
        with tarfile.open(file, "r:") as archive:
            document = _document(archive, file)
            rows = {t: [_checked(t, row, file) for row in items] for t, items in document["tables"].items()}
            with _unpacked(sql, archive, file) as folders:
                for digest, folder in folders.items():
                    if digest_folder(folder) != digest:
                        raise InputError(f"artifact {digest} is damaged", where=str(file))
                    sql.artifacts.put(folder, digest, consume=True)
    except (tarfile.TarError, OSError, ValueError, TypeError, AttributeError, KeyError) as error:
        raise InputError(f"not a run exported by autoopt: {error}", where=str(file)) from None
    except SQLAlchemyError:
        raise InputError("its rows are not of the schema that it names", where=str(file)) from None
    have = {a.digest for a in sql.artifacts.all()}
    for row in rows["artifact"]:
        row["present"] = int(row["digest"] in have)
    try:
        sql.database.write(lambda connection: _insert(sql, connection, rows))
    except (IntegrityError, StatementError):
        raise InputError("its rows do not fit together", where=str(file)) from None
    return sql.runs.get(str(document["run"])).id


def _rows_of(connection: Connection, run: str) -> dict[str, list[dict[str, Any]]]:
    """All rows that belong to a run, by table, in the order in which they can be inserted."""

    def rows(table: Table, column: str, values: set[str]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for batch in batches(sorted(values)):
            query = select(table).where(table.c[column].in_(batch))
            found += [dict(row) for row in connection.execute(query).mappings()]
        return found

    def named(table: list[dict[str, Any]], *columns: str) -> set[str]:
        return {row[column] for row in table for column in columns if row[column] is not None}

    runs = rows(tables.run, "id", {run}) + rows(tables.run, "parent", {run})  # the whole before its parts
    ids = {row["id"] for row in runs}
    if runs[0]["parent"] is not None:
        runs[0]["parent"] = None  # a part travels alone
    trials = rows(tables.trial, "run", ids)
    keys = {c: {k for t in trials for k in codec.loads(t[c])} for c in ("pass_runs", "evaluations")}
    own = {t: set(connection.execute(select(t.c.key).where(t.c.run.in_(ids))).scalars()) for t in _WORK}
    passes = _finished(rows(tables.pass_run, "key", keys["pass_runs"] | own[tables.pass_run]))
    judged = _finished(rows(tables.evaluation, "key", keys["evaluations"] | own[tables.evaluation]))
    digests = named(runs, "model") | named(trials, "artifact") | named(judged, "artifact")
    digests |= named(passes, "input_artifact", "output_artifact")
    found = {
        "artifact": rows(tables.artifact, "digest", digests),
        "model": rows(tables.model, "artifact", digests),
        "environment": rows(tables.environment, "digest", named(passes + judged, "environment")),
        "plan": rows(tables.plan, "digest", named(runs, "plan")),
        "chain": rows(tables.chain, "plan", named(runs, "plan")),
        "sweep": rows(tables.sweep, "id", named(runs, "sweep")),
        "run": runs,
        "trial": trials,
        "pass_run": passes,
        "evaluation": judged,
        "metric_value": rows(tables.metric_value, "evaluation", named(judged, "key")),
        "event": rows(tables.event, "run", ids),
    }
    return {table: [_public(table, row, ids) for row in items] for table, items in found.items()}


_WORK = (tables.pass_run, tables.evaluation)


def _finished(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["outcome"] is not None]


def _public(table: str, row: dict[str, Any], runs: Set[str]) -> dict[str, Any]:
    """A row without what is private; pass runs that another run executed come without that run."""
    private = _PRIVATE - ({"number"} if table == "trial" else set())
    kept = {name: value for name, value in row.items() if name not in private}
    if table in ("pass_run", "evaluation") and row["run"] not in runs:
        kept["run"] = None
    return kept


def _checked(table: str, row: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """A row from a file as it may go into the database: known columns, right types, clean text."""
    schema = metadata.tables[table].c
    clean: dict[str, Any] = {}
    for name, value in row.items():
        column = schema.get(name)
        kinds = (str,) if column is not None and isinstance(column.type, String) else (int, float)
        if column is None or isinstance(value, bool) or (value is not None and not isinstance(value, kinds)):
            raise InputError(f"table {table!r} has a wrong field {name!r}", where=str(file))
        if isinstance(value, str):
            value = codec.dumps(json.loads(value)) if column.info.get("json") else codec.text(value)
        clean[name] = value
    return clean


def _insert(sql: SqlStore, connection: Connection, rows: Mapping[str, list[dict[str, Any]]]) -> None:
    for table in metadata.sorted_tables:
        for row in rows.get(table.name, []):
            if table.name != "event" or row.get("id"):
                insert_if_absent(connection, table, row)


def _document(archive: tarfile.TarFile, file: Path) -> dict[str, Any]:
    member = archive.next()
    if member is None or member.name != "rows.json" or not member.isreg() or member.size > MAX_ROWS_BYTES:
        raise ValueError("it does not begin with rows.json")
    stream = archive.extractfile(member)
    assert stream is not None  # it is a regular file
    document: dict[str, Any] = json.load(stream)
    schema = document["schema"]
    if document["format"] != FORMAT or (schema != HEAD and not is_older(schema)):
        raise InputError(
            f"has format {document['format']!r}, schema {schema!r}; this autoopt reads {FORMAT}, up to {HEAD}",
            where=str(file),
            remedy="it was made by a newer version: upgrade autoopt",
        )
    if schema != HEAD:
        document["tables"] = migrated(document["tables"], schema)
    if set(document["tables"]) - set(metadata.tables) or "artifact" not in document["tables"]:
        raise ValueError("unknown tables")
    return document


@contextmanager
def _unpacked(sql: SqlStore, archive: tarfile.TarFile, file: Path) -> Iterator[dict[str, Path]]:
    """The artifacts of an archive as folders, written by us: regular files with plain names, nothing else is taken."""
    root = Path(tempfile.mkdtemp(dir=sql.home))
    try:
        folders: dict[str, Path] = {}
        while (member := archive.next()) is not None:
            match = _MEMBER.fullmatch(member.name)
            if match is None or not member.isreg() or set(match[2].split("/")) & {".", ".."}:
                raise InputError(f"has an entry that does not belong there: {member.name!r}", where=str(file))
            target = root / match[1] / match[2]
            target.parent.mkdir(parents=True, exist_ok=True)
            stream = archive.extractfile(member)
            assert stream is not None  # it is a regular file
            with open(target, "xb") as out:
                shutil.copyfileobj(stream, out)
            folders[match[1]] = root / match[1]
        yield folders
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _add_bytes(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))


def _add_file(archive: tarfile.TarFile, name: str, path: Path) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = path.stat().st_size
    with open(path, "rb") as stream:
        archive.addfile(entry, stream)
