"""A database that restarts, or is not there: runs go on, other commands wait and end in one line."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
from collections.abc import Iterator

import pytest
from outside import RUN, WAITING_DAG, WAITING_SCRIPT, Place, answer, kill_group, read_until, wait_for_file
from ports import free_port
from postgres import Server

pytestmark = pytest.mark.service


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@pytest.fixture
def database(server: Server, request: pytest.FixtureRequest) -> str:
    """The address of an empty database."""
    name = f"d{abs(hash(request.node.name))}"
    server.sql(f"CREATE DATABASE {name}")
    return server.url.replace("/postgres", f"/{name}")


@pytest.fixture
def waiting(place: Place) -> Place:
    """A run and a sweep there wait in their second trial."""
    place.write("dag.yaml", WAITING_DAG)
    place.write("script.py", WAITING_SCRIPT)
    place.write("zoo.yaml", "name: z\ndag: dag.yaml\nmodels: [model.onnx]\n")
    return place


def test_a_run_outlives_the_restarts_of_its_server_and_is_the_same_as_on_sqlite(
    server: Server, database: str, place: Place
) -> None:
    process, said = place.start(*RUN, AUTOOPT_DB_URL=database), ""
    for moment in ("trial 0:", "trial 2:"):
        said += read_until(process, moment)
        server.crash()
        server.start()
    document = place.finish(process, before=said).document
    assert document["trials"]["ok"] == 4
    assert place.call("store", "verify", "--json", AUTOOPT_DB_URL=database).document["ok"]
    assert answer(document) == answer(place.call(*RUN, AUTOOPT_HOME=str(place / "sqlite")).document)


def test_a_run_killed_beside_postgresql_is_continued(database: str, place: Place) -> None:
    process = place.start(*RUN, AUTOOPT_DB_URL=database)
    read_until(process, "trial 1:")
    kill_group(process)
    process.communicate()
    (document,) = place.call("resume", "--engine", "inline", "--json", AUTOOPT_DB_URL=database).document
    assert document["pass_runs"]["reused"] > 0
    assert answer(document) == answer(place.call(*RUN, AUTOOPT_HOME=str(place / "sqlite")).document)


@pytest.mark.parametrize("words", [("runs",), RUN], ids=["runs", "run"])
def test_waiting_for_a_database_is_said_and_can_be_interrupted(words: tuple[str, ...], place: Place) -> None:
    process = place.start(*words, AUTOOPT_DB_URL=f"postgresql://nobody:secret@127.0.0.1:{free_port()}/none")
    assert "secret" not in read_until(process, "waits for the database")
    process.send_signal(signal.SIGINT)
    place.finish(process, 130)


def interrupted(process: subprocess.Popen[str], place: Place) -> None:
    """Interrupt a command that waits in its second trial: it ends, and says how to go on."""
    process.send_signal(signal.SIGINT)
    assert "continue with: autoopt" in place.finish(process, 130).err


@pytest.mark.parametrize("words", [RUN, ("sweep", "zoo.yaml", "--engine", "inline")], ids=["run", "sweep"])
def test_an_interrupt_does_not_wait_for_a_database_that_is_gone(
    words: tuple[str, ...], server: Server, database: str, waiting: Place
) -> None:
    process = waiting.start(*words, AUTOOPT_DB_URL=database, AUTOOPT_PATIENCE="1e6")
    wait_for_file(waiting / "waits", process)
    server.crash()
    try:
        interrupted(process, waiting)
    finally:
        server.start()
    assert [one["status"] for one in waiting.call("runs", "--json", AUTOOPT_DB_URL=database).document] == [
        "interrupted"
    ]


def test_an_interrupt_does_not_wait_for_a_process_that_was_stopped_while_it_wrote(waiting: Place) -> None:
    process = waiting.start(*RUN, AUTOOPT_PATIENCE="1e6")
    wait_for_file(waiting / "waits", process)
    with sqlite3.connect(waiting.home / "autoopt.db") as other:
        other.execute("BEGIN IMMEDIATE")
        assert [one["status"] for one in waiting.call("runs", "--json").document] == ["running"]
        interrupted(process, waiting)


@pytest.mark.soak
@pytest.mark.parametrize("words", [("runs",), ("runs", "latest"), ("resume",), ("store", "verify"), RUN], ids=str)
def test_a_database_that_is_not_there_is_a_notice_and_one_line(words: tuple[str, ...], place: Place) -> None:
    url = f"postgresql://nobody:secret@127.0.0.1:{free_port()}/none"
    said = place.call(*words, codes=(2, 3), AUTOOPT_DB_URL=url)
    notice, error = said.err.splitlines()
    assert "waits for the database" in notice
    assert "127.0.0.1" in error
    assert "secret" not in said.err
