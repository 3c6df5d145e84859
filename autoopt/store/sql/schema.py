"""Creating and upgrading the tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy import Column, Connection, MetaData, PrimaryKeyConstraint, String, Table, inspect, select, text

from autoopt.errors import InputError
from autoopt.store.sql.database import DAMAGED, Database, without_secrets
from autoopt.store.sql.tables import HEAD, add_postgresql_options, metadata

if TYPE_CHECKING:
    from alembic.config import Config

MIGRATIONS: Final = Path(__file__).parent / "migrations"
_version: Final = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)
_LOCK: Final = 0x6175746F
"""The key of PostgreSQL's advisory lock: any number that nobody else uses."""


def prepare(database: Database, before_creation: Callable[[], None] = lambda: None) -> None:
    """Bring the database to the newest schema: create the tables if there are none, upgrade older ones.

    Alembic is imported only for an upgrade. At the newest version this is one query. `before_creation` is called before
    tables are created; it may raise to prevent it.

    Raises:
        InputError: The database is newer than this autoopt, or holds tables of something else.
    """
    if database.write_first(_version_of) == HEAD:
        return
    database.write_first(lambda connection: _create_or_upgrade(connection, before_creation))
    database.make_durable()


def missing_tables(connection: Connection) -> list[str]:
    """The tables that a database of the newest schema lacks; none if its schema is another one."""
    if _version_of(connection) != HEAD:
        return []
    return sorted(set(metadata.tables) - set(inspect(connection).get_table_names()))


def check_tables(database: Database) -> None:
    """Refuse a database of the newest schema that lacks tables.

    Raises:
        InputError: It lacks one.
    """
    missing = database.write_first(missing_tables)
    if missing:
        remedy = DAMAGED
        if not database.sqlite:
            remedy = "bring back a backup with the server's tools, or use 'autoopt store restore' on an empty database"
        raise InputError(f"the table {missing[0]!r} is missing", where=database.safe_url, remedy=remedy)


def upgrade(connection: Connection, current: str | None, target: str = HEAD) -> None:
    """Upgrade the schema from revision `current`, None for an empty database, within the open transaction.

    Raises:
        InputError: This autoopt does not know the current revision.
    """
    from alembic import command

    if current is not None and current not in revisions():
        raise InputError(
            f"the database has schema {current}, which this autoopt (schema {HEAD}) does not know",
            where=without_secrets(connection.engine.url),
            remedy="it was made by a newer version: upgrade autoopt",
        )
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, target)


def revisions() -> frozenset[str]:
    """All schemas that were ever released."""
    from alembic.script import ScriptDirectory

    return frozenset(script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions())


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    return config


def _create_or_upgrade(connection: Connection, before_creation: Callable[[], None]) -> None:
    if connection.dialect.name == "postgresql":  # SQLite's BEGIN IMMEDIATE already lets in one at a time
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        add_postgresql_options()
    current = _version_of(connection)
    if current == HEAD:  # another process was faster
        return
    if current is not None:
        upgrade(connection, current)
        return
    foreign = set(inspect(connection).get_table_names()) & set(metadata.tables)
    if foreign:
        raise InputError(
            f"the database has a table {min(foreign)!r} that autoopt did not make",
            where=without_secrets(connection.engine.url),
            remedy="give autoopt a database or schema of its own",
        )
    before_creation()
    metadata.create_all(connection, checkfirst=False)
    _version.create(connection)
    connection.execute(_version.insert().values(version_num=HEAD))


def _version_of(connection: Connection) -> str | None:
    if not inspect(connection).has_table(_version.name):
        return None
    version: str | None = connection.execute(select(_version.c.version_num)).scalar()
    return version
