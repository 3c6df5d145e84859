"""Making and upgrading the tables."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Column, Connection, MetaData, PrimaryKeyConstraint, String, Table, inspect, select, text

from autoopt.errors import InputError
from autoopt.store.sql.database import Database, safe
from autoopt.store.sql.tables import HEAD, metadata

MIGRATIONS = Path(__file__).parent / "migrations"
_version = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)
_LOCK = 0x6175746F  # any number that nobody else locks


def prepare(database: Database) -> None:
    """Leave the database with the newest schema: made where there is none, upgraded where it is older.

    Alembic is imported only for an upgrade; at the newest version this is one query.

    Raises:
        InputError: the database is newer than this autoopt, or holds tables of something else.
    """
    if database.once(_version_of) == HEAD:
        return
    database.once(_make_or_upgrade)


def _make_or_upgrade(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":  # SQLite's BEGIN IMMEDIATE already lets in one at a time
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    found = _version_of(connection)
    if found == HEAD:
        return
    if found is not None:
        upgrade(connection, found)
        return
    strangers = set(inspect(connection).get_table_names()) & set(metadata.tables)
    if strangers:
        raise InputError(
            f"the database has a table {min(strangers)!r} that autoopt did not make",
            where=_name(connection),
            remedy="give autoopt a database or schema of its own",
        )
    metadata.create_all(connection)
    _version.create(connection)
    connection.execute(_version.insert().values(version_num=HEAD))


def _version_of(connection: Connection) -> str | None:
    if not inspect(connection).has_table(_version.name):
        return None
    found: str | None = connection.execute(select(_version.c.version_num)).scalar()
    return found


def upgrade(connection: Connection, found: str | None, to: str = HEAD) -> None:
    """Bring the schema from revision `found` (None: an empty database) to `to`, in the open transaction."""
    from alembic import command
    from alembic.config import Config

    if found is not None and found not in revisions():
        raise InputError(
            f"the database has schema {found}, which this autoopt (schema {HEAD}) does not know",
            where=_name(connection),
            remedy="it was made by a newer version: upgrade autoopt",
        )
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, to)


def revisions() -> frozenset[str]:
    """Every schema that was ever released."""
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    return frozenset(script.revision for script in ScriptDirectory.from_config(config).walk_revisions())


def _name(connection: Connection) -> str:
    return safe(connection.engine.url)
