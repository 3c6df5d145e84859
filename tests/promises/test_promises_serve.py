"""`autoopt serve` is open to nobody without its password, to no foreign page, and leaves nothing behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import httpx
import psutil
import pytest
from outside import HANG_SECONDS, Place, wait_for, write_model
from ports import free_port

pytestmark = pytest.mark.service


class Served(NamedTuple):
    """A running server."""

    place: Place
    process: subprocess.Popen[bytes]
    url: str

    def ask(self, auth: tuple[str, str] | None = None, **more: str) -> httpx.Response:
        return httpx.post(f"{self.url}/api/flow_runs/filter", json={}, auth=auth, headers=more, timeout=HANG_SECONDS)

    @property
    def note(self) -> Path:
        """The file with the address and the password."""
        return self.place.home / "prefect.json"

    @property
    def password(self) -> tuple[str, str]:
        user, _, password = json.loads(self.note.read_text())["auth"].partition(":")
        return user, password


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Ends with SIGTERM to its first process, after which nothing is left."""
    place, port = Place(tmp_path_factory.mktemp("served") / "user"), free_port()
    write_model(place / "model.onnx")
    with (place / "said").open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "autoopt", "serve", "--port", str(port)],
            cwd=place.folder,
            env=place.environment,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
    wait_for(lambda: b"ready" in (place / "said").read_bytes() or process.poll() is not None, "it is not ready")
    assert process.poll() is None, (place / "said").read_text()
    yield Served(place, process, f"http://127.0.0.1:{port}")
    process.send_signal(signal.SIGTERM)
    assert process.wait(HANG_SECONDS) in (0, 130)
    wait_for(lambda: not place.processes(), "processes are left")


def test_it_asks_for_its_password(served: Served) -> None:
    assert served.ask().status_code == httpx.codes.UNAUTHORIZED
    assert served.ask(("autoopt", "guess")).status_code == httpx.codes.UNAUTHORIZED
    assert served.ask(served.password).status_code == httpx.codes.OK


def test_only_its_user_can_read_the_password(served: Served) -> None:
    assert served.note.stat().st_mode & 0o777 == 0o600
    assert served.url in served.note.read_text()


def test_no_argument_of_a_process_is_the_password(served: Served) -> None:
    _, password = served.password
    assert not [one for one in served.place.processes() if password in " ".join(one.cmdline())]


def test_it_listens_on_the_loopback_only(served: Served) -> None:
    addresses = set()
    for process in served.place.processes():
        with suppress(psutil.Error):
            connections = process.net_connections(kind="inet")
            addresses |= {c.laddr.ip for c in connections if c.status == psutil.CONN_LISTEN}
    assert addresses <= {"127.0.0.1", "::1"}
    assert addresses


def test_no_page_of_another_origin_may_ask(served: Served) -> None:
    for origin in ("http://evil.example", "null", "http://127.0.0.1:1"):
        asked = {"Origin": origin, "Access-Control-Request-Method": "POST"}
        preflight = httpx.options(f"{served.url}/api/flow_runs/filter", headers=asked, timeout=HANG_SECONDS)
        assert preflight.headers.get("access-control-allow-origin") not in ("*", origin)
        assert served.ask(Origin=origin).headers.get("access-control-allow-origin") not in ("*", origin)


def test_a_second_one_is_refused_in_one_line(served: Served) -> None:
    said = served.place.call("serve", "--port", served.url.rpartition(":")[2], codes=(2,))
    assert said.err.count("\n") == 1
