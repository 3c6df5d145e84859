"""Signals at any moment: the command ends with its own exit code, leaves nothing, and its run can be resumed."""

from __future__ import annotations

import os
import pty
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from outside import WAITING_DAG, WAITING_SCRIPT, Place, Said, answer, filled, kill_group, wait_for, wait_for_file
from ports import free_port
from prefect_server import prepared, running_server

pytestmark = pytest.mark.service

RUN = ("run", "dag.yaml", "--model", "model.onnx", "--engine", "inline")
ENDING = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


def fill(place: Place) -> Place:
    filled(place.folder, WAITING_DAG, width=512)
    place.write("script.py", WAITING_SCRIPT)
    return place


@pytest.fixture
def waiting(place: Place) -> Place:
    """A run there waits in its second trial until there is a file `go`."""
    return fill(place)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The answer of a run that nobody interrupts."""
    place = fill(Place(tmp_path_factory.mktemp("undisturbed") / "user"))
    place.write("go", "")
    return answer(place.call(*RUN, "--json").document)


@pytest.fixture(scope="module")
def prefect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Prefect server of these tests' own."""
    place = Place(tmp_path_factory.mktemp("server") / "user")
    prepared(place / ".prefect")
    with running_server(place.environment, free_port(), place / "said.txt") as url:
        yield url


def ended(place: Place, number: signal.Signals, group: bool, *run: str, **more: str) -> Said:
    """What a run says that is told to end in its second trial."""
    process = place.start(*run, **more)
    wait_for_file(place / "waits", process)
    kill_group(process, number) if group else process.send_signal(number)
    return place.finish(process, 130)


@pytest.mark.parametrize("group", [False, True], ids=["process", "group"])
@pytest.mark.parametrize(
    ("engine", "number"), [*(("inline", number) for number in ENDING), ("prefect", signal.SIGTERM)]
)
def test_a_run_that_is_told_to_end_does_and_goes_on_later(
    engine: str, number: signal.Signals, group: bool, waiting: Place, undisturbed: Any, request: pytest.FixtureRequest
) -> None:
    """`group`: all processes hear of it, as from a terminal or a service manager; else the one that was started."""
    more = {"PREFECT_API_URL": request.getfixturevalue("prefect")} if engine == "prefect" else {}
    said = ended(waiting, number, group, *RUN[:-1], engine, "--json", **more)
    assert said.out == ""
    run = said.err.rpartition("autoopt resume ")[2].strip()
    waiting.nothing_left()
    waiting.write("go", "")
    (resumed,) = waiting.call("resume", run, "--engine", "inline", "--json").document
    assert (resumed["run"], resumed["trials"]["ok"]) == (run, 2)
    assert answer(resumed) == undisturbed
    assert [one["status"] for one in waiting.call("runs", "--json").document] == ["finished"]


@pytest.mark.parametrize("number", ENDING)
def test_a_run_that_is_told_to_end_before_its_search_says_so(number: signal.Signals, waiting: Place) -> None:
    waiting.write("script.py", WAITING_SCRIPT + "\n(HERE / 'waits').touch()\ntime.sleep(600)\n")
    said = ended(waiting, number, False, *RUN)
    assert said.err.endswith("interrupted before the search began; the same command starts it again\n")


def test_a_run_under_nohup_outlives_its_terminal(waiting: Place) -> None:
    process = waiting.start(*RUN, "--json", wrap=("nohup",))
    wait_for_file(waiting / "waits", process)
    kill_group(process, signal.SIGHUP)
    waiting.write("go", "")
    assert waiting.finish(process).document["trials"]["ok"] == 2


def test_a_run_that_is_stopped_and_continued_goes_on(waiting: Place) -> None:
    process = waiting.start(*RUN, "--json")
    wait_for_file(waiting / "waits", process)
    kill_group(process, signal.SIGSTOP)
    waiting.write("go", "")
    assert [one["status"] for one in waiting.call("runs", "--json").document] == ["running"]
    kill_group(process, signal.SIGCONT)
    assert waiting.finish(process).document["trials"]["ok"] == 2


def test_a_second_interrupt_is_not_a_traceback(waiting: Place) -> None:
    process = waiting.start(*RUN)
    wait_for_file(waiting / "waits", process)
    for _ in range(20):
        kill_group(process, signal.SIGINT)
    waiting.finish(process, 130)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    "command",
    [
        ("apply", "waits", "model.onnx", "--user-script", "script.py", "--out", "made.onnx"),
        ("sweep", "zoo.yaml", "--engine", "inline"),
    ],
    ids=["apply", "sweep"],
)
def test_other_commands_end_too(command: tuple[str, ...], number: signal.Signals, waiting: Place) -> None:
    waiting.write("zoo.yaml", "name: z\ndag: dag.yaml\nmodels: [model.onnx]\n")
    waiting.write("first", "")  # the first model waits, too
    ended(waiting, number, False, *command)
    assert not (waiting / "made.onnx").exists()


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_reader_that_goes_away_ends_nothing_in_a_traceback(stream: str, waiting: Place) -> None:
    """As in `autoopt runs | head -1`."""
    process = waiting.start(*RUN)
    wait_for_file(waiting / "waits", process)
    getattr(process, stream).close()
    waiting.write("go", "")
    other = process.stderr if stream == "stdout" else process.stdout
    assert "Traceback" not in other.read()
    wait_for(lambda: process.poll() is not None, "it has not ended")
    assert [one["status"] for one in waiting.call("runs", "--json").document] == ["finished"]


def test_a_run_whose_terminal_closes_ends_and_leaves_nothing_behind(waiting: Place) -> None:
    """Even what it would write to the terminal about its end finds none."""
    program = [sys.executable, "-m", "autoopt", *RUN]
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(waiting.folder)
        os.execvpe(program[0], program, {**waiting.environment, "TERM": "xterm"})
    wait_for((waiting / "waits").exists, "the run does not begin")
    os.close(terminal)
    os.waitpid(pid, 0)
    waiting.nothing_left()
    assert [one["status"] for one in waiting.call("runs", "--json").document] == ["cancelled"]
