"""The processes of `autoopt serve`: Prefect's own server and runner.

The server is a child that ends with this process, also if this process is killed. The runner executes each flow run in
a process of its own, which ends with this one, too (`flows`).
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from autoopt.errors import InputError, SystemFailure
from autoopt.orchestrate.connection import Serving, check_server, configured_api, use_server, without_userinfo
from autoopt.owner import end_with_parent
from autoopt.script import SCRIPT_FOLDERS

if TYPE_CHECKING:
    from prefect.deployments.runner import RunnerDeployment

USER: Final = "autoopt"
START_SECONDS: Final = 120.0
END_SECONDS: Final = 20.0
POLL_SECONDS: Final = 2
"""Interval in which the runner asks for flow runs that are due; Prefect's default is 10 s."""
_ANY_ADDRESS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}


@contextmanager
def server(home: Path, host: str, port: int, say: Callable[[str], None]) -> Iterator[None]:
    """Use the Prefect server in PREFECT_API_URL, or start one that listens on `host` until the context ends.

    Raises:
        InputError: the port is taken, or the server in PREFECT_API_URL does not answer or wants another password.
        SystemFailure: the server does not start.
    """
    scripts = os.environ.get(SCRIPT_FOLDERS, "")
    url = configured_api()
    if url:
        check_server(url)
        say(f"Prefect server: {without_userinfo(url)} (from PREFECT_API_URL)")
        Serving(url, os.environ.get("PREFECT_API_AUTH_STRING", ""), scripts, started=False).write(home)
        yield
        return
    own = Serving.read(home)
    if own is not None and own.started and own.answers():  # both would use one database of Prefect
        remedy = "stop it, or set another AUTOOPT_HOME"
        raise InputError(f"another autoopt serve is running at {own.api}", where=str(home), remedy=remedy)
    _check_port(host, port)
    chosen = os.environ.pop("PREFECT_SERVER_API_AUTH_STRING", "")
    auth = chosen or (own.auth if own is not None and own.started else f"{USER}:{secrets.token_urlsafe(24)}")
    pages = _local_url(host, port)
    own = Serving(f"{pages}/api", auth, scripts)
    own.write(home)
    log = home / "logs" / "server.log"
    log.parent.mkdir(exist_ok=True)
    with log.open("ab") as output:
        child = subprocess.Popen(
            [sys.executable, "-m", "prefect", "server", "start", "--host", host, "--port", str(port)],
            env={**_server_settings(home, pages), **os.environ, **_fixed_settings(own)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C reaches only this process, whose flow runs need the server to their end
            preexec_fn=partial(end_with_parent, os.getpid()),
        )
    stopping = threading.Event()
    try:
        _wait(own, child, log)
        use_server(own)
        check_server(own.api)
        say(f"Prefect server: {pages}, user and password in {home / 'prefect.json'}")
        threading.Thread(target=_end_with, args=(child, stopping), daemon=True).start()
        yield
        if child.poll() is not None:
            raise SystemFailure(f"the Prefect server has ended with exit code {child.returncode}", where=str(log))
    finally:
        stopping.set()
        child.terminate()
        with suppress(subprocess.TimeoutExpired):
            child.wait(END_SECONDS)
        child.kill()
        child.wait()


def execute(deployments: Sequence[RunnerDeployment], limit: int) -> None:
    """Execute the flow runs of these deployments, at most `limit` at once, until a signal ends the process."""
    from prefect import serve

    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: signal.raise_signal(signal.SIGTERM))  # the runner handles this one
    serve(*deployments, limit=limit, query_seconds=POLL_SECONDS, print_starting_message=False)


def _server_settings(home: Path, pages: str) -> dict[str, str]:
    """Prefect's settings of the server; variables that the user has set take precedence."""
    return {
        "PREFECT_HOME": str(home / "prefect"),
        "PREFECT_SERVER_LOGGING_LEVEL": "ERROR",
        "PREFECT_SERVER_UI_API_URL": f"{pages}/api",
        "PREFECT_UI_URL": pages,  # of links in notifications
        "PREFECT_SERVER_UI_STATIC_DIRECTORY": str(home / "prefect" / "ui"),  # installed files may be another user's
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": pages,
        # Beside SQLite, this service alone caused "database is locked".
        "PREFECT_SERVER_SERVICES_LATE_RUNS_ENABLED": "false",
        # Limits of deployments survive a restart.
        "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
        "PREFECT_SERVER_FLOW_RUN_GRAPH_MAX_NODES": "300",  # with 1,000 models, a sweep's page hung for 10 s
        "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",  # otherwise the database grows without limit
        "PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD": "15552000",  # 180 days
    }


def _fixed_settings(own: Serving) -> dict[str, str]:
    console = "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL"  # of all other processes, it is CRITICAL
    return {"PREFECT_SERVER_API_AUTH_STRING": own.auth, "PREFECT_API_URL": "", console: "ERROR"}


def _wait(own: Serving, child: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the server answers."""
    deadline = time.monotonic() + START_SECONDS
    while not own.answers():
        if child.poll() is not None or time.monotonic() > deadline:
            raise SystemFailure("the Prefect server does not start", where=str(log))
        time.sleep(0.2)


def _end_with(child: subprocess.Popen[bytes], stopping: threading.Event) -> None:
    """End this process in order once the server has ended by itself."""
    child.wait()
    if not stopping.is_set():
        os.kill(os.getpid(), signal.SIGTERM)


def _check_port(host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            remedy = "choose another port, or set PREFECT_API_URL to the running server"
            raise InputError(f"cannot listen on port {port} ({error.strerror})", remedy=remedy) from None


def _local_url(host: str, port: int) -> str:
    """URL of the pages of a server that listens on `host`, for this machine."""
    local = _ANY_ADDRESS.get(host, host)
    if ":" in local:
        local = f"[{local}]"
    return f"http://{local}:{port}"
