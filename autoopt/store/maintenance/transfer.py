"""Export and import: one run with its artifacts as one file, for another machine. Nothing in it is executed.

The file is a tar archive:

rows.json                      {"format": 2, "schema": …, "run": id, "tables": {table: [row, …]}, "digest": …}
artifacts/<digest>/<file>      all present artifacts that the rows point to

`digest` is the SHA-256 of the other fields, so that an edit is noticed. Format 1 had none.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import re
import shutil
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, String, Table, select
from sqlalchemy.exc import IntegrityError, SQLAlchemyError, StatementError

from autoopt.errors import InputError, SystemFailure, refuse_url, writing
from autoopt.model.files import digest_folder, files_in
from autoopt.store import codec
from autoopt.store.contracts import Store
from autoopt.store.maintenance.imported import (
    Row,
    Rows,
    as_imported,
    check_digests,
    check_json,
    check_key,
    check_records,
    check_runs,
    check_time,
    insert_rows,
    is_older,
    migrated,
)
from autoopt.store.records import part_documents
from autoopt.store.sql import tables
from autoopt.store.sql.rows import batches
from autoopt.store.sql.store import SqlStore, require_sql
from autoopt.store.sql.tables import HEAD, metadata
from autoopt.working_folder import STORE_WORK, replacing, working_folder

FORMAT: Final = 2
_FORMATS: Final = (1, FORMAT)
MAX_ROWS_BYTES: Final = 1 << 30
_ARTIFACT_FILE: Final = re.compile(r"artifacts/([0-9a-f]{64})/([^/\x00]+(?:/[^/\x00]+)*)")
_LOCAL_COLUMNS: Final = ("number", "owner", "lease")
"""Columns that mean something only in the database that they were written to."""


_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class _Document(NamedTuple):
    """The content of `rows.json`, in the newest schema."""

    run: str
    rows: Rows


def export_run(store: Store, run: str, file: Path) -> None:
    """Write a run, named as for `RunStore.get`, and everything it points to into a file.

    Raises:
        InputError: There is no such run, `file` is a folder or a URL, its folder does not exist, or it cannot be
            written.
        ArtifactLost: An artifact is damaged.
    """
    refuse_url(file)
    if file.is_dir() or not file.absolute().parent.is_dir():
        raise InputError("must be a file in a folder that exists", where=str(file))
    sql = require_sql(store)
    name = sql.runs.get(run).id
    rows = sql.database.read(lambda connection: _rows_of(connection, name))
    content = codec.dumps(with_digest({"format": FORMAT, "schema": HEAD, "run": name, "tables": rows})).encode()
    with writing(file), replacing(file) as new, tarfile.open(new, "w") as archive:
        _add(archive, "rows.json", io.BytesIO(content), len(content))
        for row in rows["artifact"]:
            if row["present"]:
                digest = row["digest"]
                sql.artifacts.readable(digest)
                with sql.files.unpacked(digest) as folder:
                    for path_in_model, path in files_in(folder).items():
                        with open(path, "rb") as stream:
                            _add(archive, f"artifacts/{digest}/{path_in_model}", stream, path.stat().st_size)


def with_digest(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document of an archive with the digest of its content."""
    content = {name: value for name, value in document.items() if name != "digest"}
    return {**content, "digest": hashlib.sha256(codec.dumps(content).encode()).hexdigest()}


def import_run(store: Store, file: Path, *, reuse: bool = False) -> str:
    """Import a run written by `export_run`. Existing rows and artifacts stay as they are, and so do runs made here.

    An imported run is marked and cannot be continued. With `reuse`, later runs use its results as if made here.

    Returns:
        The id of the run.

    Raises:
        InputError: The file is not an export, was edited or has a newer format, or its artifacts do not have their
            digests.
    """
    sql = require_sql(store)
    run, rows = _read_archive(sql, file, reuse)
    local_runs = {record.id for record in sql.runs.all() if not record.imported}
    if local_runs.intersection(row["id"] for row in rows["run"]):
        return sql.runs.get(run).id  # it is from here: only lost artifacts come back
    existing = {record.digest for record in sql.artifacts.all()}
    for row in rows["artifact"]:
        row["present"] = int(row["digest"] in existing)
    try:
        sql.database.write(lambda connection: insert_rows(connection, rows))
    except (IntegrityError, StatementError):
        raise InputError("its rows do not fit together", where=str(file)) from None
    return sql.runs.get(run).id


def _read_archive(store: SqlStore, file: Path, reuse: bool) -> tuple[str, Rows]:
    """Check an archive and put its artifacts into the store.

    Returns:
        The id of the run and the rows to insert.
    """
    try:
        with tarfile.open(file, "r:") as archive:
            run, exported = _read_document(archive, file)
            checked = {table: [_checked(table, row, file) for row in items] for table, items in exported.items()}
            check_digests(checked)
            check_runs(checked)
            _remove_local_values(checked)  # an archive that autoopt wrote has none
            rows = as_imported(checked, run, file.name, reuse=reuse)
            check_records(rows, store.home)
            with _unpacked(store, archive, file) as folders:
                for digest, folder in folders.items():
                    if digest_folder(folder) != digest:
                        raise InputError(f"artifact {digest} is damaged", where=str(file))
                    store.artifacts.put(folder, digest, consume=True)
    except (tarfile.TarError, OSError, ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
        if isinstance(error, OSError) and error.errno in _NO_SPACE:
            what = f"cannot be unpacked ({error.strerror})"
            raise SystemFailure(what, where=str(file), remedy="free some space, or move AUTOOPT_HOME") from None
        raise InputError(f"not a run exported by autoopt: {error}", where=str(file)) from None
    except (SQLAlchemyError, OverflowError):  # the last is SQLite's for an integer of more than 8 bytes
        raise InputError("its rows are not of the schema that it names", where=str(file)) from None
    return run, rows


def _rows_of(connection: Connection, run: str) -> Rows:
    """All rows that belong to a run, by table, as they travel."""
    runs = _select(connection, tables.run, "id", {run})
    runs[0]["parent"] = None  # a part of a run over several targets travels alone
    runs += _select(connection, tables.run, "parent", {run})
    taken_over = {part["run"] for part in part_documents(codec.loads(runs[0]["result"]) or {})}
    taken_over -= _values(runs, "id")
    runs += [{**row, "parent": run} for row in _select(connection, tables.run, "id", taken_over)]
    ids = _values(runs, "id")
    trials = _select(connection, tables.trial, "run", ids)
    pass_runs = _results(connection, tables.pass_run, ids, _keys(trials, "pass_runs"))
    evaluations = _results(connection, tables.evaluation, ids, _keys(trials, "evaluations"))
    digests = _values(runs, "model") | _values(trials, "artifact") | _values(evaluations, "artifact")
    digests |= _values(pass_runs, "input_artifact", "output_artifact")
    environments = _values(pass_runs + evaluations, "environment")
    plans = _values(runs, "plan")
    rows = {
        "artifact": _select(connection, tables.artifact, "digest", digests),
        "model": _select(connection, tables.model, "artifact", digests),
        "environment": _select(connection, tables.environment, "digest", environments),
        "plan": _select(connection, tables.plan, "digest", plans),
        "chain": _select(connection, tables.chain, "plan", plans),
        "sweep": _select(connection, tables.sweep, "id", _values(runs, "sweep")),
        "run": runs,
        "trial": trials,
        "pass_run": pass_runs,
        "evaluation": evaluations,
        "metric_value": _select(connection, tables.metric_value, "evaluation", _values(evaluations, "key")),
        "event": _select(connection, tables.event, "run", ids),
    }
    _remove_local_values(rows)
    return rows


def _select(connection: Connection, table: Table, column: str, values: Set[str]) -> list[Row]:
    rows: list[Row] = []
    for batch in batches(sorted(values)):
        query = select(table).where(table.c[column].in_(batch))
        rows += map(dict, connection.execute(query).mappings())
    return rows


def _values(rows: Iterable[Row], *columns: str) -> set[str]:
    values = {row[column] for row in rows for column in columns}
    return values - {None}


def _keys(trials: Iterable[Row], column: str) -> set[str]:
    keys: set[str] = set()
    for trial in trials:
        keys.update(codec.loads(trial[column]))
    return keys


def _results(connection: Connection, table: Table, runs: Set[str], keys: Set[str]) -> list[Row]:
    """The finished results of runs, and the results of other runs that their trials used."""
    keys_of_runs = connection.execute(select(table.c.key).where(table.c.run.in_(runs))).scalars()
    rows = _select(connection, table, "key", keys | set(keys_of_runs))
    return [row for row in rows if row["outcome"] is not None]


def _remove_local_values(rows: Rows) -> None:
    """Remove the values that mean something only in one database."""
    runs = _values(rows.get("run", []), "id")
    for table, items in rows.items():
        for row in items:
            for column in _LOCAL_COLUMNS:
                # The number of a trial counts within its run; in other tables it counts the rows of the database.
                if (table, column) != ("trial", "number"):
                    row.pop(column, None)
            if table in ("pass_run", "evaluation") and row.get("run") not in runs:
                row["run"] = None


def _read_document(archive: tarfile.TarFile, file: Path) -> _Document:
    document = _read_first_member(archive)
    version, schema, rows = document["format"], document["schema"], document["tables"]
    if version not in _FORMATS or (schema != HEAD and not is_older(schema)):
        raise InputError(
            f"has format {version!r}, schema {schema!r}; this autoopt reads {FORMAT}, up to {HEAD}",
            where=str(file),
            remedy="it was made by a newer version: upgrade autoopt",
        )
    if version == FORMAT and document != with_digest(document):
        raise InputError("was edited after autoopt wrote it", where=str(file), remedy="export the run again")
    if schema != HEAD:
        rows = migrated(rows, schema)
    if set(rows) - set(metadata.tables) or "artifact" not in rows:
        raise ValueError("unknown tables")
    return _Document(str(document["run"]), rows)


def _read_first_member(archive: tarfile.TarFile) -> dict[str, Any]:
    member = archive.next()
    if member is None or member.name != "rows.json" or not member.isreg() or member.issparse():
        raise ValueError("it does not begin with rows.json")
    if member.size > MAX_ROWS_BYTES:
        raise ValueError("rows.json is too large")
    stream = archive.extractfile(member)
    assert stream is not None  # it is a regular file
    document: dict[str, Any] = json.load(stream)
    return document


def _checked(table: str, row: Row, file: Path) -> Row:
    """A row from a file as it may go into the database: its key, known columns, right types, clean text."""
    check_key(table, row)
    checked: Row = {}
    for name, value in row.items():
        column = metadata.tables[table].c.get(name)
        types = (str,) if column is not None and isinstance(column.type, String) else (int, float)
        if column is None or isinstance(value, bool) or not isinstance(value, (*types, type(None))):
            raise InputError(f"table {table!r} has a wrong field {name!r}", where=str(file))
        check_time(name, value)
        if isinstance(value, str):
            value = check_json(name, value) if column.info.get("json") else codec.text(value)
        checked[name] = value
    return checked


def _artifact_files(archive: tarfile.TarFile, file: Path) -> list[tuple[tarfile.TarInfo, re.Match[str]]]:
    """The files of artifacts with their parsed names: regular files without holes, no larger than the archive."""
    files = []
    size = 0
    while (member := archive.next()) is not None:
        match = _ARTIFACT_FILE.fullmatch(member.name)
        if match is None or not member.isreg() or {".", ".."} & set(match[2].split("/")):
            raise InputError(f"has an entry that does not belong there: {member.name!r}", where=str(file))
        size += member.size
        if member.issparse() or size > file.stat().st_size:
            raise InputError(f"has an entry that is larger than the file: {member.name!r}", where=str(file))
        files.append((member, match))
    return files


@contextmanager
def _unpacked(store: SqlStore, archive: tarfile.TarFile, file: Path) -> Iterator[dict[str, Path]]:
    """The artifacts of an archive as folders by digest. Only regular files with plain names are unpacked."""
    members = _artifact_files(archive, file)
    with working_folder(store.home / STORE_WORK) as root:
        folders: dict[str, Path] = {}
        for member, match in members:
            folder = folders.setdefault(match[1], root / match[1])
            target = folder / match[2]
            target.parent.mkdir(parents=True, exist_ok=True)
            stream = archive.extractfile(member)
            assert stream is not None  # it is a regular file
            with open(target, "xb") as out:
                shutil.copyfileobj(stream, out)
        yield folders


def _add(archive: tarfile.TarFile, name: str, stream: io.BufferedIOBase, size: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = size
    archive.addfile(entry, stream)
