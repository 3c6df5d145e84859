"""The Prefect server of a user: started by the first run that needs it, used by later ones, and ended when idle.

    python -m autoopt.orchestrate.server.personal SOCKET SECONDS

It listens on the loopback address, asks for a password, and keeps its database in PREFECT_HOME.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from autoopt.errors import SystemFailure
from autoopt.json_codec import JsonTypeError, from_json, to_json
from autoopt.orchestrate.server.access import local_url, make_password, page_settings, read_password, web_settings
from autoopt.orchestrate.server.connection import DEFAULTS, SERVER, external_api, read_note, use_made_password
from autoopt.orchestrate.server.rest import PrefectApi
from autoopt.orchestrate.server.sqlite_writers import limit_requests_only, queue_writers
from autoopt.owner import is_known_alive, this_process
from autoopt.working_folder import replacing

IDLE_SECONDS = 600.0
"""The server ends after this time without a request. An open page of it sends requests."""
START_SECONDS = 120.0
PORT = 4200
"""Its port, unless another program listens there."""
NOTE, LOCK, LOG = "autoopt-server.json", "autoopt-server.lock", "autoopt-server.log"
NICENESS = 10
"""The server works while models are measured."""
LEAN: Final[Mapping[str, str]] = {
    "PREFECT_SERVER_SERVICES_SCHEDULER_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_LATE_RUNS_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_PAUSE_EXPIRATIONS_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_CANCELLATION_CLEANUP_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_FOREMAN_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_REPOSSESSOR_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_TRIGGERS_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events",  # the database may hold other flow runs of the user
}
"""No services that only deployments and automations need, for which there is `autoopt serve`."""
Scope: TypeAlias = dict[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Any]]
Send: TypeAlias = Callable[[Any], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass(frozen=True)
class PersonalServer:
    """A running server."""

    api: str
    owner: str
    """Its process, see `autoopt.owner`."""

    @property
    def pages(self) -> str:
        """The address of its pages."""
        return self.api.removesuffix("/api")


def prefect_home() -> Path:
    """The folder of Prefect's own files."""
    return Path(os.environ.get("PREFECT_HOME") or "~/.prefect").expanduser()


def running_server() -> PersonalServer | None:
    """The server of this user that runs on this machine, if any."""
    try:
        server = from_json(PersonalServer, json.loads((prefect_home() / NOTE).read_text()))
    except (OSError, ValueError, JsonTypeError):
        return None
    return server if is_known_alive(server.owner) else None


def connect(home: Path) -> str:
    """Find the server for runs of this home, or start the user's own; returns the URL of its API.

    The environment of this process then has the URL and the password, for Prefect too.

    Raises:
        InputError: PREFECT_API_URL cannot be read.
        SystemFailure: the server does not start.
    """
    note = read_note(home)
    if not external_api():
        os.environ["PREFECT_API_URL"] = note.api if note is not None else _personal_api()
    use_made_password(home)
    return os.environ["PREFECT_API_URL"]


def _personal_api() -> str:
    """The API of the user's own server, which is started if it does not run."""
    home = prefect_home()
    home.mkdir(parents=True, exist_ok=True)
    password = os.environ.get("PREFECT_SERVER_API_AUTH_STRING") or read_password(home) or make_password(home)
    os.environ["PREFECT_API_AUTH_STRING"] = password
    # Runs that begin at the same time must not start two servers.
    with (home / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        server = running_server() or _start(home, password)
    return server.api


def _start(home: Path, password: str) -> PersonalServer:
    listening = _listen()
    pages = local_url(*listening.getsockname())
    own = page_settings(home / "prefect-ui")
    settings = {**DEFAULTS, **SERVER, **LEAN, **own, **web_settings(pages, has_password=True)}
    forced = {
        "PREFECT_SERVER_API_AUTH_STRING": password,
        "PREFECT_SERVER_UI_API_URL": f"{pages}/api",
        "PREFECT_UI_URL": pages,
        "PREFECT_API_URL": "",
    }
    with listening, (home / LOG).open("wb") as log:
        subprocess.Popen(
            [sys.executable, "-m", __name__, str(listening.fileno()), str(IDLE_SECONDS)],
            env={**settings, **os.environ, **forced},
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=[listening.fileno()],
        )
    try:
        # The connection waits until the server takes it, and ends with the server.
        PrefectApi(f"{pages}/api").get("/health", START_SECONDS)
        return from_json(PersonalServer, json.loads((home / NOTE).read_text()))
    except OSError as error:
        raise SystemFailure(f"the Prefect server does not start ({error})", where=str(home / LOG)) from None


def _listen() -> socket.socket:
    """A socket that listens on the usual port, or on another one if that is taken."""
    try:
        return socket.create_server(("127.0.0.1", PORT))
    except OSError:
        return socket.create_server(("127.0.0.1", 0))


class IdleWatch:
    """Passes requests on to a web application and notes when the last one came."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._last = time.monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._last = time.monotonic()
        try:
            await self._app(scope, receive, send)
        finally:
            self._last = time.monotonic()

    def idle_seconds(self) -> float:
        """Time since the last request."""
        return time.monotonic() - self._last


async def _serve(listening: socket.socket, idle_limit: float) -> None:
    import uvicorn
    from prefect.server.api.server import create_app

    queue_writers()
    limit_requests_only()
    watch = IdleWatch(create_app(final=True))
    server = uvicorn.Server(uvicorn.Config(watch, log_level="error", lifespan="on"))
    serving = asyncio.create_task(server.serve([listening]))
    while not serving.done():
        await asyncio.wait([serving], timeout=min(5.0, idle_limit))
        if server.started and watch.idle_seconds() > idle_limit:
            server.should_exit = True
    await serving


def main() -> None:
    """Serve on a socket that the parent has opened, until nobody has sent a request for some seconds."""
    os.nice(NICENESS)
    listening, idle_limit = socket.socket(fileno=int(sys.argv[1])), float(sys.argv[2])
    note = PersonalServer(f"{local_url(*listening.getsockname())}/api", this_process())
    with replacing(prefect_home() / NOTE, mode=0o600) as new:
        new.write_text(json.dumps(to_json(note)))
    asyncio.run(_serve(listening, idle_limit))


if __name__ == "__main__":
    main()
