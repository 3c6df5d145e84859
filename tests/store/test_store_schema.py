"""Making, upgrading and refusing databases."""

from __future__ import annotations

import io
import sqlite3
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, text
from store_helpers import finish_all, pass_run, put, start_run, steps_of

from autoopt.errors import InputError
from autoopt.store import open_store
from autoopt.store.maintenance.transfer import import_run
from autoopt.store.maintenance.verify import verify
from autoopt.store.sql.database import Database, open_database
from autoopt.store.sql.schema import MIGRATIONS, prepare, upgrade
from autoopt.store.sql.tables import HEAD, metadata


def shape(connection: Connection) -> dict[str, Any]:
    """Tables with their columns, keys and indexes, without the order in which databases list them."""
    inspector = inspect(connection)

    def plain(items: Any) -> list[str]:
        return sorted(str(sorted((k, in_words(v)) for k, v in item.items() if k != "comment")) for item in items)

    def in_words(value: Any) -> str:
        """The text of a value; the conditions of indexes are objects within a dict."""
        return str({k: str(v) for k, v in value.items()} if isinstance(value, dict) else value)

    return {
        name: [
            plain(inspector.get_columns(name)),
            plain(inspector.get_indexes(name)),
            plain(inspector.get_foreign_keys(name)),
            plain(inspector.get_unique_constraints(name)),
            str(inspector.get_pk_constraint(name)),
        ]
        for name in inspector.get_table_names()
    }


def test_the_newest_revision_is_the_one_the_code_has() -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    assert ScriptDirectory.from_config(config).get_heads() == [HEAD]


def test_migrations_from_nothing_make_the_tables_of_a_new_database(url: str, tmp_path: Path) -> None:
    database = open_database(url)
    prepare(database)
    made = database.read(shape)
    database.write(lambda c: [t.drop(c) for t in reversed(metadata.sorted_tables)])
    database.write(lambda c: c.execute(text("DROP TABLE alembic_version")))
    database.write(lambda c: upgrade(c, None))
    migrated = database.read(shape)
    assert migrated == made
    assert set(metadata.tables) | {"alembic_version"} == set(made)
    with database.transaction(writing=False) as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    prepare(database)
    database.close()


def test_a_database_of_every_released_schema_opens(tmp_path: Path) -> None:
    kept = sorted((Path(__file__).parent / "kept").glob("*.sql"))
    assert [p.stem for p in kept][-1] == HEAD
    for dump in kept:
        file = tmp_path / f"{dump.stem}.db"
        connection = sqlite3.connect(file)
        connection.executescript(dump.read_text())
        connection.close()
        with open_store(f"sqlite:///{file}", tmp_path) as store:
            run = store.runs.get("latest")
            assert run.status == "finished"
            assert len(steps_of(store, run.id)) == 2
            assert store.results.evaluation(store.trials.all(run.id)[0].evaluations[0]) is not None
            assert len(store.runs.all(parent=run.id)) == (0 if dump.stem == "0001" else 1)


def test_schema_0005_has_an_index_of_unchanged_pass_runs(url: str, tmp_path: Path) -> None:
    database = open_database(url)
    database.write(lambda connection: upgrade(connection, None, "0004"))
    before = index_names(database, "pass_run")
    database.close()
    with open_store(url, tmp_path) as store:
        run = start_run(store)
        made = put(store, b"made")
        finish_all(store, pass_run(run.model, made))
        assert [step.pass_name for step in store.lineage.trace(made).steps] == ["simplify"]
    after = index_names(database, "pass_run")
    database.close()
    assert (before - after, after - before) == ({"ix_pass_run_input_key"}, {"ix_pass_run_unchanged"})


def index_names(database: Database, table: str) -> set[str | None]:
    return database.read(lambda connection: {index["name"] for index in inspect(connection).get_indexes(table)})


def test_an_export_of_every_released_schema_can_be_imported(tmp_path: Path) -> None:
    kept = sorted((Path(__file__).parent / "kept").glob("*.tar"))
    assert {p.stem for p in kept} == {p.stem for p in (Path(__file__).parent / "kept").glob("*.sql")}
    for file in kept:
        with open_store(None, tmp_path / file.stem) as store:
            run = import_run(store, file)
            assert import_run(store, file) == run
            assert store.runs.get("latest").status == "finished"
            assert len(steps_of(store, run)) == 2
            assert store.trials.all(run)[0].owner is None
            assert store.runs.get(run).parent is None
            assert verify(store).ok
            assert verify(store).checked == 3


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"schema":"0001"', '"schema":"9999"', "schema '9999'; this autoopt reads 2, up to .*upgrade autoopt"),
        ('"status":', '"statue":', "not of the schema|wrong field|Unconsumed"),
        ('"trial":', '"trail":', "trail"),
        ('"settings":"', '"settings":"{', "not a run exported"),
    ],
)
def test_a_newer_or_broken_export_is_refused_in_one_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    with (
        tarfile.open(Path(__file__).parent / "kept" / "0001.tar") as archive,
        tarfile.open(tmp_path / "bad.tar", "w") as bad,
    ):
        stream = archive.extractfile("rows.json")
        assert stream is not None
        text = stream.read().decode()
        assert old in text
        content = text.replace(old, new, 1).encode()
        entry = tarfile.TarInfo("rows.json")
        entry.size = len(content)
        bad.addfile(entry, io.BytesIO(content))
    with open_store(None, tmp_path / "home") as store, pytest.raises(InputError, match=said) as error:
        import_run(store, tmp_path / "bad.tar")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("found", ["0006", "ffff"])
def test_a_newer_database_is_refused_in_one_line(url: str, tmp_path: Path, found: str) -> None:
    database = open_database(url)
    prepare(database)
    database.write(lambda c: c.execute(text(f"UPDATE alembic_version SET version_num = '{found}'")))
    database.close()
    with pytest.raises(InputError, match=f"schema {found}.*upgrade autoopt") as error:
        open_store(url, tmp_path)
    assert "\n" not in str(error.value)


def test_somebody_elses_tables_are_left_alone(url: str, tmp_path: Path) -> None:
    database = open_database(url)
    database.write(lambda c: c.execute(text("CREATE TABLE artifact (id INTEGER)")))
    with pytest.raises(InputError, match="table 'artifact' that autoopt did not make"):
        open_store(url, tmp_path)
    assert database.read(lambda c: inspect(c).get_table_names()) == ["artifact"]
    database.close()


def test_opening_a_current_database_imports_neither_alembic_nor_another_dialect(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from autoopt.store import open_store;"
        "assert 'sqlalchemy' not in sys.modules;"
        "[open_store(None, Path(sys.argv[1])).close() for _ in range(2)];"
        "assert 'sqlalchemy' in sys.modules and 'alembic' not in sys.modules;"
        "assert 'sqlalchemy.dialects.postgresql' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)


def test_many_processes_may_create_the_tables_at_once(url: str, tmp_path: Path) -> None:
    code = "import sys, pathlib, autoopt.store as s; s.open_store(sys.argv[1], pathlib.Path(sys.argv[2]))"
    children = [subprocess.Popen([sys.executable, "-c", code, url, str(tmp_path)]) for _ in range(4)]
    assert [child.wait() for child in children] == [0] * 4
