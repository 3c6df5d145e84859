"""The Prefect server that autoopt talks to: its address, its password, and the settings autoopt gives it."""

from __future__ import annotations

import json
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from autoopt.errors import InputError

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
