"""Prefect's start-up, begun early in the background so that its 3 to 16 seconds overlap with other work.

The environment is set before `prefect` is first imported; what the user has set stays.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from autoopt.errors import InputError, SystemFailure

DEFAULTS = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",  # its start-up made "database is locked" errors likely
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",  # progress is ours to show; the UI keeps Prefect's logs
    "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
    "PREFECT_CLI_PROMPT": "false",
}

SERVER = {
    "PREFECT_SERVER_FLOW_RUN_GRAPH_MAX_NODES": "300",  # a sweep's page hung for 10 s over 1,000 models
    "PREFECT_SERVER_LOGGING_LEVEL": "ERROR",  # a scheduler that fails says so nowhere but in the log
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "ERROR",
}
"""For a server that stays and has a log file."""


class PrefectStart:
    """Imports Prefect and brings up its API (the one in PREFECT_API_URL, else an ephemeral server) in a thread."""

    def __init__(self) -> None:
        for name, value in DEFAULTS.items():
            os.environ.setdefault(name, value)
        self.shared = bool(os.environ.get("PREFECT_API_URL"))
        self.seconds = 0.0
        """How long the start-up took, in all."""
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._start, name="prefect-start", daemon=True)
        self._thread.start()

    def _start(self) -> None:
        began = time.monotonic()
        # Ctrl-C reaches all processes of the terminal, and an ephemeral server has yet to hear of the end of the runs.
        # It begins in this thread, and a new process has the signal mask of its thread.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
        try:
            import asyncio

            from prefect.client.orchestration import get_client

            async def reach() -> None:
                async with get_client() as client:
                    error = await client.api_healthcheck()
                    if error is not None:
                        raise error

            asyncio.run(reach())
            if not self.shared:
                _end_with_us()
        except BaseException as error:  # handed to the thread that waits
            self._error = error
        self.seconds = time.monotonic() - began

    @property
    def ready(self) -> bool:
        """Whether the start-up has ended, well or badly."""
        return not self._thread.is_alive()

    def wait(self) -> float:
        """Wait until the API answers; returns the seconds spent waiting here.

        Raises:
            SystemFailure: the API cannot be reached.
            InputError: it wants another password.
        """
        began = time.monotonic()
        self._thread.join()
        if self._error is not None:
            where = os.environ.get("PREFECT_API_URL", "") if self.shared else ""
            reason = f"{type(self._error).__name__}: {self._error}"
            raise SystemFailure(
                f"the Prefect {'server' if self.shared else 'ephemeral server'} does not answer ({reason})",
                where=without_userinfo(where),
                remedy="start it with 'prefect server start', or run with --engine inline",
            )
        if self.shared:
            check_password(os.environ["PREFECT_API_URL"])
        return time.monotonic() - began


def _end_with_us() -> None:
    """See to it that the ephemeral server ends when this process does, even if that is killed: a shell waits for the
    end of a pipe that only this process holds open, and then ends what is still the server."""
    import psutil

    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if "prefect.server.api.server:create_app" in child.cmdline():
                script = 'read _; grep -qs prefect.server "/proc/$0/cmdline" && kill "$0"'
                command = ["sh", "-c", script, str(child.pid)]
                quiet = subprocess.DEVNULL
                _watchers.append(
                    subprocess.Popen(command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, start_new_session=True)
                )


_watchers: list[subprocess.Popen[bytes]] = []
"""Hold the pipes open."""


def check_password(url: str) -> None:
    """That the server at `url`, the one in PREFECT_API_URL, lets us in.

    Raises:
        InputError: it wants another password.
    """
    import httpx
    from prefect.client.orchestration import get_client

    try:
        with suppress(httpx.TransportError, ValueError), get_client(sync_client=True) as client:
            client.api_version()
    except httpx.HTTPStatusError as error:
        if error.response.status_code != httpx.codes.UNAUTHORIZED:
            return  # what it cannot do is found out by whoever asks for it
        remedy = "set PREFECT_API_AUTH_STRING (user:password)"
        where = without_userinfo(url)
        raise InputError("the Prefect server asks for another password", where=where, remedy=remedy) from None


def without_userinfo(url: str) -> str:
    """`url` without user and password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


NOTE = "serve.json"
"""In the home: where the server of `autoopt serve` is, while it runs."""


def noted(home: Path) -> dict[str, Any] | None:
    """What an `autoopt serve` of this machine has noted in this home: `api`, `pid`; None where there is none alive."""
    import psutil

    with suppress(OSError, ValueError, KeyError, TypeError, psutil.NoSuchProcess):
        note: dict[str, Any] = json.loads((home / NOTE).read_text())
        with suppress(psutil.AccessDenied):  # another user's
            if "serve" not in psutil.Process(note["pid"]).cmdline():
                return None  # its number has been given to another process
        return note if note["host"] == socket.gethostname() else None
    return None


def api_url(home: Path) -> str | None:
    """The API of the Prefect server at hand: PREFECT_API_URL, else that of an `autoopt serve` with this home."""
    given = os.environ.get("PREFECT_API_URL")
    if given:
        return given
    note = noted(home)
    return None if note is None else str(note["api"])
