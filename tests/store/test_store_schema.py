"""Making and refusing databases."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import inspect, text

from autoopt.errors import InputError
from autoopt.store import open_store
from autoopt.store.sql.database import open_database
from autoopt.store.sql.tables import SCHEMA, metadata, prepare


def test_a_new_database_has_all_tables_and_their_indexes(url: str) -> None:
    database = open_database(url)
    for _ in range(2):
        prepare(database)
    made = database.read(lambda c: {name: inspect(c).get_indexes(name) for name in inspect(c).get_table_names()})
    database.close()
    assert set(made) == {*metadata.tables, "schema_version"}
    assert "ix_pass_run_input_key_outcome" in {index["name"] for index in made["pass_run"]}


@pytest.mark.parametrize(("version", "remedy"), [(SCHEMA + 1, "upgrade autoopt"), (0, "a new AUTOOPT_HOME")])
def test_a_database_of_another_schema_is_refused_in_one_line(
    url: str, tmp_path: Path, version: int, remedy: str
) -> None:
    database = open_database(url)
    prepare(database)
    database.write(lambda c: c.execute(text(f"UPDATE schema_version SET version = {version}")))
    database.close()
    said = f"has schema {version}; this autoopt needs schema {SCHEMA}.*{remedy}"
    with pytest.raises(InputError, match=said) as error:
        open_store(url, tmp_path)
    assert "\n" not in str(error.value)


def test_somebody_elses_tables_are_left_alone(url: str, tmp_path: Path) -> None:
    database = open_database(url)
    database.write(lambda c: c.execute(text("CREATE TABLE artifact (id INTEGER)")))
    with pytest.raises(InputError, match=r"table 'artifact' of another program.*give autoopt a new AUTOOPT_HOME"):
        open_store(url, tmp_path)
    assert database.read(lambda c: inspect(c).get_table_names()) == ["artifact"]
    database.close()


def test_importing_the_store_does_not_import_sqlalchemy() -> None:
    code = "import sys, autoopt.store; assert 'sqlalchemy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_many_processes_may_create_the_tables_at_once(url: str, tmp_path: Path) -> None:
    code = "import sys, pathlib, autoopt.store as s; s.open_store(sys.argv[1], pathlib.Path(sys.argv[2]))"
    children = [subprocess.Popen([sys.executable, "-c", code, url, str(tmp_path)]) for _ in range(4)]
    assert [child.wait() for child in children] == [0] * 4
