"""Creating the tables, and refusing databases of another schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sqlalchemy import Connection, inspect, select, text

from autoopt.errors import InputError
from autoopt.store.sql.database import DAMAGED, Database, without_secrets
from autoopt.store.sql.tables import SCHEMA, metadata, schema_version

_LOCK: Final = 0x6175746F
"""The key of PostgreSQL's advisory lock: any number that nobody else uses."""


def prepare(database: Database, before_creation: Callable[[], None] = lambda: None) -> None:
    """Create the tables in an empty database; in one that has them, this is one query.

    The query does not wait for a process that writes. `before_creation` is called before tables are created; it may
    raise to prevent it.

    Raises:
        InputError: The database has another schema, or holds tables of something else.
    """
    if database.run_first(_is_prepared, writing=False):
        return
    database.run_first(lambda connection: _create(connection, before_creation), writing=True)
    database.make_durable()


def missing_tables(connection: Connection) -> list[str]:
    """The tables that a database of this schema lacks; none if it has no schema yet."""
    if not _is_prepared(connection):
        return []
    return sorted(set(metadata.tables) - set(inspect(connection).get_table_names()))


def check_tables(database: Database) -> None:
    """Refuse a database of this schema that lacks tables.

    Raises:
        InputError: It lacks one.
    """
    missing = database.run_first(missing_tables, writing=False)
    if missing:
        remedy = DAMAGED
        if not database.sqlite:
            remedy = "bring back a backup with the server's tools, or use 'autoopt store restore' on an empty database"
        raise InputError(f"the table {missing[0]!r} is missing", where=database.safe_url, remedy=remedy)


def _create(connection: Connection, before_creation: Callable[[], None]) -> None:
    if connection.dialect.name == "postgresql":  # SQLite's BEGIN IMMEDIATE already lets in one at a time
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    if _is_prepared(connection):  # another process was faster
        return
    present = set(inspect(connection).get_table_names()) & set(metadata.tables)
    if present:
        raise InputError(
            f"the database has a table {min(present)!r} of another program, or of a version before 0.2.0",
            where=without_secrets(connection.engine.url),
            remedy="give autoopt a new AUTOOPT_HOME, or an empty database or schema",
        )
    before_creation()
    metadata.create_all(connection, checkfirst=False)
    schema_version.create(connection)
    connection.execute(schema_version.insert().values(version=SCHEMA))


def _is_prepared(connection: Connection) -> bool:
    """True for a database with this schema, false for one without any.

    Raises:
        InputError: It has another one.
    """
    if not inspect(connection).has_table(schema_version.name):
        return False
    version = connection.execute(select(schema_version.c.version)).scalar()
    if version == SCHEMA:
        return True
    remedy = "give autoopt a new AUTOOPT_HOME, or an empty database"
    if version is not None and version > SCHEMA:
        remedy = "it was made by a newer version: upgrade autoopt"
    raise InputError(
        f"the database has schema {version}; this autoopt needs schema {SCHEMA}",
        where=without_secrets(connection.engine.url),
        remedy=remedy,
    )
