"""The address and the settings of the Prefect server."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from autoopt.errors import InputError
from autoopt.orchestrate.server import connection
from autoopt.orchestrate.server.access import make_password
from autoopt.orchestrate.server.connection import (
    DEFAULTS,
    NOTE,
    SERVER,
    api_url,
    external_api,
    read_note,
    set_defaults,
    use_made_password,
    use_server,
    without_userinfo,
    write_note,
)

API = "http://127.0.0.1:4200/api"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PREFECT_API_URL", "PREFECT_API_AUTH_STRING", *DEFAULTS):
        monkeypatch.setenv(name, "")  # registered for removal
        monkeypatch.delenv(name)


@pytest.fixture
def serving() -> Iterator[int]:
    """A process that looks like an `autoopt serve`; its id."""
    process = subprocess.Popen([sys.executable, "-c", "input()", "serve"], stdin=subprocess.PIPE)
    yield process.pid
    process.communicate()


def note(home: Path, pid: int, host: str) -> None:
    (home / NOTE).write_text(json.dumps({"api": API, "pid": pid, "host": host}))


def test_the_variable_takes_precedence_over_a_note(
    tmp_path: Path, serving: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    note(tmp_path, serving, socket.gethostname())
    assert api_url(tmp_path) == API
    monkeypatch.setenv("PREFECT_API_URL", "http://other/api")
    assert api_url(tmp_path) == "http://other/api"


def test_a_note_counts_only_while_its_process_serves_on_this_machine(tmp_path: Path, serving: int) -> None:
    assert read_note(tmp_path) is None
    note(tmp_path, serving, "another-machine")
    assert read_note(tmp_path) is None
    note(tmp_path, os.getppid(), socket.gethostname())  # another process has the number now
    assert read_note(tmp_path) is None
    note(tmp_path, 2**22 + 1, socket.gethostname())
    assert read_note(tmp_path) is None
    note(tmp_path, serving, socket.gethostname())
    found = read_note(tmp_path)
    assert found is not None
    assert (found.api, found.pid) == (API, serving)


@pytest.mark.parametrize("text", ["", "{}", "[]", "not json", '{"api": 1, "pid": "x", "host": null}'])
def test_a_broken_note_is_ignored(tmp_path: Path, text: str) -> None:
    (tmp_path / NOTE).write_text(text)
    assert read_note(tmp_path) is None


def test_a_note_is_readable_by_its_user_alone(tmp_path: Path) -> None:
    write_note(tmp_path, "http://user:canary@host/api", made_password=True)
    assert (tmp_path / NOTE).stat().st_mode & 0o777 == 0o600
    document = json.loads((tmp_path / NOTE).read_text())
    own = {"pid": os.getpid(), "host": socket.gethostname()}
    assert document == {"api": "http://user:canary@host/api", **own, "made_password": True}
    assert [path.name for path in tmp_path.iterdir()] == [NOTE]


def test_what_needs_a_server_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a schedule needs a permanent Prefect server; start 'autoopt serve'"):
        use_server(tmp_path, "a schedule")


def test_the_environment_is_set_before_prefect_is_imported(
    tmp_path: Path, serving: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[str] = []
    monkeypatch.setattr(connection, "check_password", checked.append)
    monkeypatch.setenv("PREFECT_API_URL", "")
    note(tmp_path, serving, socket.gethostname())
    assert use_server(tmp_path, "a schedule") == API
    assert (os.environ["PREFECT_API_URL"], checked) == (API, [API])
    assert {name: os.environ[name] for name in DEFAULTS} == dict(DEFAULTS)
    for name in DEFAULTS:
        monkeypatch.setenv(name, "")  # registered for removal


def test_the_password_that_serve_made_is_used_for_its_server_alone(
    tmp_path: Path, serving: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_password(tmp_path)
    written = {"api": API, "pid": serving, "host": socket.gethostname()}
    for document, url, expected in (
        (written, API, None),  # its password is the operator's own
        ({**written, "made_password": True}, "http://other/api", None),
        ({**written, "made_password": True}, API, made),
    ):
        (tmp_path / NOTE).write_text(json.dumps(document))
        monkeypatch.setenv("PREFECT_API_URL", url)
        use_made_password(tmp_path)
        assert os.environ.get("PREFECT_API_AUTH_STRING") == expected
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "mine")
    use_made_password(tmp_path)
    assert os.environ["PREFECT_API_AUTH_STRING"] == "mine"


def test_what_the_user_has_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in DEFAULTS:
        monkeypatch.setenv(name, "mine")
    set_defaults()
    assert {os.environ[name] for name in DEFAULTS} == {"mine"}


def test_a_permanent_server_logs_its_errors() -> None:
    assert DEFAULTS["PREFECT_SERVER_LOGGING_LEVEL"] == "CRITICAL"
    assert SERVER["PREFECT_SERVER_LOGGING_LEVEL"] == "ERROR"


@pytest.mark.parametrize("password", ["can?ary", "can#ary", "can@ary/x", "12/canary"])
def test_an_address_whose_password_is_unclear_is_refused(password: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", f"http://user:{password}@host:4200/api")
    with pytest.raises(InputError, match=r"^PREFECT_API_URL: cannot be read; .*%XX$") as error:
        external_api()
    assert "can" not in str(error.value).replace("cannot", "")


@pytest.mark.parametrize("url", ["", API, "http://user:can%3Fary@host:4200/api", "http://[::1]:4200/api"])
def test_other_addresses_are_taken(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", url)
    assert external_api() == url


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://user:canary@host:4200/api", "http://host:4200/api"),
        ("http://user:p@ss@host/api", "http://host/api"),
        ("http://user:p@ss/w:rd#1@host:4200/api", "http://***"),
        ("http://token@host/api", "http://host/api"),
        (API, API),
        ("", ""),
    ],
)
def test_an_address_is_shown_without_user_and_password(url: str, expected: str) -> None:
    assert without_userinfo(url) == expected
