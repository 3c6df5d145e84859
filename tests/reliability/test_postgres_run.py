"""Whole runs with the database on a PostgreSQL server that goes down in the middle, and a store that moves there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import postgres
import pytest
from builders import mlp, write
from children import HANG_SECONDS
from commands import RUN, Command, fill, finish, left, start, until
from postgres import Server

from autoopt.store import open_store
from autoopt.store.maintenance.verify import verify

pytestmark = pytest.mark.service


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def test_a_run_outlives_the_restarts_of_its_server_and_is_the_same_as_on_sqlite(
    server: Server, command: Command, tmp_path: Path
) -> None:
    fill(tmp_path)
    running, said = start(tmp_path, *RUN, AUTOOPT_DB_URL=server.url), ""
    for moment in ("trial 0:", "trial 2:"):
        said += until(running, moment)
        server.crash()
        server.start()
    document = finish(running, said=said)
    assert document["trials"] == {"total": 4, "ok": 4, "infeasible": 4}
    found = left(tmp_path / "home", server.url)
    with open_store(server.url, tmp_path / "home") as store:
        assert verify(store).ok
        assert [run.status for run in store.runs.all()] == ["finished"]
    assert command(fill(tmp_path / "sqlite"), *RUN).code == 0
    assert found == left(tmp_path / "sqlite" / "home")


def test_a_run_killed_beside_postgresql_is_continued(
    server: Server, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path, width=48)  # the server's database holds the other model's results
    killed = start(tmp_path, *RUN, AUTOOPT_DB_URL=server.url, AUTOOPT_FAULT="between ask and tell:2")
    killed.communicate(timeout=HANG_SECONDS)
    assert killed.returncode == -9
    with monkeypatch.context() as patch:
        patch.setenv("AUTOOPT_DB_URL", server.url)
        (document,) = json.loads(command(tmp_path, "resume", "--engine", "inline", "--json").out)
    assert document["pass_runs"]["reused"] > 0
    found = left(tmp_path / "home", server.url)
    assert command(fill(tmp_path / "sqlite", width=48), *RUN).code == 0
    assert found == left(tmp_path / "sqlite" / "home")


def test_a_store_of_sqlite_goes_on_in_postgresql(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through a backup, with all that it has: a finished run answers, an interrupted one is resumed."""
    fill(tmp_path)
    finished = json.loads(command(tmp_path, *RUN).out)
    write(mlp(width=48), tmp_path / "other")
    killed = start(tmp_path, *RUN[:2], "--model", "other/model.onnx", *RUN[4:], AUTOOPT_FAULT="between ask and tell:2")
    killed.communicate(timeout=HANG_SECONDS)
    assert killed.returncode == -9
    documents = {name: command(tmp_path, name, finished["run"], "--json").out for name in ("best", "lineage")}
    assert command(tmp_path, "store", "backup", "backup").code == 0
    with postgres.empty_schema() as url, monkeypatch.context() as patch:
        (tmp_path / "home").rename(tmp_path / "away")
        patch.setenv("AUTOOPT_DB_URL", url)
        code, _, err = command(tmp_path, "store", "restore", "backup")
        assert (code, err) == (0, "")
        assert {name: command(tmp_path, name, finished["run"], "--json").out for name in documents} == documents
        assert command(tmp_path, "store", "verify").code == 0
        again = json.loads(command(tmp_path, *RUN).out)
        assert (again["run"], again["reused"]) == (finished["run"], True)
        (resumed,) = json.loads(command(tmp_path, "resume", "--engine", "inline", "--json").out)
        assert resumed["pass_runs"]["reused"] > 0
        code, _, err = command(tmp_path, "store", "restore", "backup")
        assert (code, err.count("\n")) == (2, 1)
        assert "a backup is restored into an empty store" in err
