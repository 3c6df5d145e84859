"""The tables, their creation, and the refusal of databases of another schema.

JSON is canonical JSON in a text column; times are seconds since 1970.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    inspect,
    select,
    text,
)

from autoopt.errors import InputError
from autoopt.store.sql.database import DAMAGED, Database, without_secrets

SCHEMA: Final = 6
"""The version of the tables, and of what rows and split models hold. Raise it with every change of theirs: a database
of another version is refused."""

NAMES = {
    "ix": "ix_%(column_0_N_label)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "pk": "pk_%(table_name)s",
}
metadata = MetaData(naming_convention=NAMES)


def _digest(name: str, *, null: bool = False) -> Column[str]:
    return Column(name, String(64), nullable=null)


def _artifact(name: str, *, null: bool = False) -> Column[str]:
    return Column(name, String(64), ForeignKey("artifact.digest"), nullable=null, index=True)


def _candidate(field: str, artifact: str, options: str) -> tuple[Column[str], Column[str]]:
    """The two columns of a record's field that is a candidate."""
    column = _artifact(artifact, null=True)
    column.info = {"candidate": field, "options": options}
    return column, _text(options, null=True)


def _text(name: str, *, null: bool = False) -> Column[str]:
    """A text column, empty by default: rows that are only claimed have no values yet."""
    return Column(name, Text, nullable=null, default=None if null else "")


def _json(name: str, *, null: bool = False) -> Column[str]:
    return Column(name, Text, nullable=null, default=None if null else "", info={"json": True})


def _time(name: str, *, null: bool = False) -> Column[float]:
    return Column(name, Double, nullable=null, default=None if null else 0.0)


def _environment() -> Column[str]:
    return Column("environment", String(64), ForeignKey("environment.digest"), nullable=True)


schema_version = Table("schema_version", MetaData(), Column("version", Integer, nullable=False))
"""One row, with `SCHEMA`; not one of the tables that `metadata` lists."""

artifact = Table(
    "artifact",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("bytes", BigInteger, nullable=False),
    _json("files"),
    _time("created"),
)

model = Table(
    "model",
    metadata,
    Column("artifact", String(64), ForeignKey("artifact.digest"), primary_key=True),
    _text("name"),
    _json("inspection"),
    _time("created"),
)

environment = Table(
    "environment", metadata, Column("digest", String(64), primary_key=True), _json("content"), _time("created")
)

plan = Table("plan", metadata, Column("digest", String(64), primary_key=True), _json("content"), _time("created"))

sweep = Table(
    "sweep",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("id", String(64), nullable=False, unique=True),
    _text("name"),
    _json("settings"),
    Column("status", String(16), nullable=False),
    _json("result", null=True),
    _text("owner", null=True),
    _time("lease", null=True),
    _time("created"),
    _time("finished", null=True),
)

sweep_entry = Table(
    "sweep_entry",
    metadata,
    Column("sweep", String(64), ForeignKey("sweep.id", ondelete="CASCADE"), primary_key=True),
    Column("model", Text, primary_key=True),
    _json("entry"),
)
"""The entries of the models that an unfinished sweep has finished."""

run = Table(
    "run",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("id", String(64), nullable=False, unique=True),
    _text("name"),
    Column("identity", String(64), nullable=False, index=True),
    _artifact("model"),
    Column("plan", String(64), ForeignKey("plan.digest"), nullable=False),
    _json("settings"),
    Column("status", String(16), nullable=False),
    _json("result", null=True),
    Column("sweep", String(64), ForeignKey("sweep.id"), nullable=True, index=True),
    _text("owner", null=True),
    _time("lease", null=True),
    _time("seconds"),
    _time("created"),
    _time("finished", null=True),
    Column("parent", String(64), nullable=True, index=True),
    Column("is_check", Boolean, nullable=False),
)
"""`parent` names a run, which is deleted with its parts or hands them on."""

trial = Table(
    "trial",
    metadata,
    Column("run", String(64), ForeignKey("run.id", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True),
    _digest("chain_id"),
    _json("point"),
    _text("chain"),
    Column("status", String(16), nullable=False),
    _text("upto", null=True),
    _time("incumbent", null=True),
    Column("drops_slow", Boolean, nullable=False),
    Column("parallel", Integer, nullable=True),
    Column("outcome", String(16), nullable=True),
    *_candidate("candidate", "artifact", "session_options"),
    _json("metrics"),
    _json("ratios"),
    _time("violation", null=True),
    _json("reasons"),
    _json("unsure"),
    _text("message"),
    _text("note"),
    _json("pass_runs"),
    _json("evaluations"),
    Column("executed", Integer, nullable=False),
    _time("seconds"),
    Column("transient", Boolean, nullable=False),
    _json("intermediate"),
    _json("steps"),
    _json("path"),
    _text("twin", null=True),
    _text("owner", null=True),
    _time("lease", null=True),
    _time("finished", null=True),
    Index("ix_trial_run_chain_id_status", "run", "chain_id", "status"),
)

pass_run = Table(
    "pass_run",
    metadata,
    Column("key", String(64), primary_key=True),
    Column("outcome", String(16), nullable=True),
    _text("pass_name"),
    _text("node", null=True),
    _json("params"),
    *_candidate("input", "input_artifact", "input_options"),
    Column("input_key", String(64), nullable=True),
    *_candidate("output", "output_artifact", "output_options"),
    Column("output_key", String(64), nullable=True, index=True),
    _time("seconds"),
    _text("message"),
    _environment(),
    _json("attempts"),
    _json("reports"),
    Column("run", String(64), ForeignKey("run.id", ondelete="SET NULL"), nullable=True, index=True),
    _text("owner", null=True),
    _time("lease", null=True),
    _time("finished", null=True),
    Index("ix_pass_run_input_key_outcome", "input_key", "outcome"),
)

evaluation = Table(
    "evaluation",
    metadata,
    Column("key", String(64), primary_key=True),
    Column("outcome", String(16), nullable=True),
    *_candidate("candidate", "artifact", "session_options"),
    Column("candidate", String(64), nullable=True, index=True),
    _text("meter"),
    Column("graph", String(64), nullable=True, index=True),
    _json("metrics"),
    _json("source_metrics"),
    _json("ratios"),
    _json("details"),
    _time("seconds"),
    _text("message"),
    _environment(),
    Column("run", String(64), ForeignKey("run.id", ondelete="SET NULL"), nullable=True, index=True),
    _text("owner", null=True),
    _time("lease", null=True),
    _time("finished", null=True),
)

release = Table(
    "release",
    metadata,
    Column("key", Text, primary_key=True),
    _text("owner", null=True),
    _time("lease", null=True),
)
"""Models that are being promoted or rolled back; `key` is `zoo/model`."""

release_step = Table(
    "release_step",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("id", String(64), nullable=False, unique=True),
    _text("zoo"),
    _text("model"),
    Column("run", String(64), ForeignKey("run.id"), nullable=True, index=True),
    _json("release"),
    Column("rolled_back", Boolean, nullable=False),
    _text("by"),
    _time("time"),
    Index("ix_release_step_zoo", "zoo"),
)

worker_death = Table(
    "worker_death",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("id", String(64), nullable=False, unique=True),
    _text("subject"),
    _text("name"),
    _text("message"),
    _json("libraries"),
    _time("time"),
)


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
