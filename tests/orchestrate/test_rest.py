"""Requests to a Prefect server, answered by a small server that behaves like one."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from autoopt.errors import InputError, SystemFailure
from autoopt.orchestrate.server.rest import PrefectApi


class Handler(BaseHTTPRequestHandler):
    """Asks for the password `me:secret`, and for a token in requests that change something."""

    def do_GET(self) -> None:
        if self.path.startswith("/api/csrf-token?client="):
            self._answer(200, {"token": "t1"})
        elif self._is_allowed():
            self._answer(200, {"version": "3"})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if not self._is_allowed():
            return
        if self.headers.get("Prefect-Csrf-Token") != "t1":
            self._answer(403, {"detail": "Missing CSRF token."})
        elif self.path == "/api/empty":
            self.send_response(204)
            self.end_headers()
        else:
            self._answer(201, {"id": json.loads(body)["name"]})

    def _is_allowed(self) -> bool:
        expected = base64.b64encode(b"me:secret").decode()
        if self.headers.get("Authorization") == f"Basic {expected}":
            return True
        self._answer(401, {})
        return False

    def _answer(self, code: int, document: object) -> None:
        content = json.dumps(document).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name in ("PREFECT_API_AUTH_STRING", "PREFECT_API_KEY", "PREFECT_CLIENT_CUSTOM_HEADERS"):
        monkeypatch.delenv(name, raising=False)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}/api"
    server.shutdown()
    server.server_close()


def test_the_password_is_that_of_the_environment(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "me:secret")
    PrefectApi(f"http://{address}").check()


def test_the_password_may_be_in_the_address_and_is_not_in_its_url(address: str) -> None:
    api = PrefectApi(f"http://me:secret@{address}")
    api.check()
    assert api.url == f"http://{address}"


def test_a_wrong_password_is_an_error_of_the_user(address: str) -> None:
    with pytest.raises(InputError, match="requires another password") as error:
        PrefectApi(f"http://me:canary@{address}").check()
    assert "canary" not in str(error.value)


def test_a_token_is_fetched_where_the_server_asks_for_one(address: str) -> None:
    api = PrefectApi(f"http://me:secret@{address}")
    assert api.post("/flows/", {"name": "f"}) == {"id": "f"}
    assert api.post("/empty", []) == {}


def test_a_server_that_does_not_answer_is_one_line_without_its_password() -> None:
    with pytest.raises(SystemFailure) as error:
        PrefectApi("http://me:canary@127.0.0.1:9/api").check()
    assert "127.0.0.1:9/api: the Prefect server does not answer" in str(error.value)
    assert "prefect server start" in str(error.value)
    assert "canary" not in str(error.value)
