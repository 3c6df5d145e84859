"""The Prefect server that autoopt talks to: its address, its password, and the settings autoopt gives it."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from autoopt.errors import InputError
from autoopt.json_codec import JsonTypeError, from_json, to_json
from autoopt.orchestrate.server.access import read_password
from autoopt.settings import without_password
from autoopt.working_folder import replacing

DEFAULTS: Final[Mapping[str, str]] = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",  # its start-up made "database is locked" errors likely
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",  # autoopt shows the progress; the UI keeps Prefect's logs
    "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
    "PREFECT_CLI_PROMPT": "false",
}
"""Prefect settings of every process that uses Prefect; variables that the user has set take precedence."""

SERVER: Final[Mapping[str, str]] = {
    "PREFECT_SERVER_FLOW_RUN_GRAPH_MAX_NODES": "300",  # with 1,000 models, a sweep's page hung for 10 s
    "PREFECT_SERVER_LOGGING_LEVEL": "ERROR",  # a scheduler that fails reports it nowhere but in the log
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "ERROR",
    "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",  # otherwise the database grows without limit
    "PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD": "15552000",  # 180 days
}
"""Settings of a permanent server, which has a log file."""
_USERINFO: Final = re.compile("//[^/@]*@")
NOTE = "serve.json"
"""File in the home that says where the server of `autoopt serve` is, while it runs."""


@dataclass(frozen=True)
class ServeNote:
    """An `autoopt serve` that runs with this home."""

    api: str
    """URL of the API that it started or uses."""
    pid: int
    host: str
    made_password: bool = False
    """True if the server asks for the password that was made for this home."""


def write_note(home: Path, api: str, *, made_password: bool = False) -> None:
    """Note that this process serves this home."""
    note = ServeNote(api, os.getpid(), socket.gethostname(), made_password)
    with replacing(home / NOTE, mode=0o600) as new:  # the URL may hold a password
        new.write_text(json.dumps(to_json(note)))


def read_note(home: Path) -> ServeNote | None:
    """The `autoopt serve` that runs on this machine with this home; None if there is none."""
    import psutil

    try:
        note = from_json(ServeNote, json.loads((home / NOTE).read_text()))
        if note.host != socket.gethostname():
            return None
        with suppress(psutil.AccessDenied):  # of another user
            if "serve" not in psutil.Process(note.pid).cmdline():
                return None  # another process has its number now
        return note
    except (OSError, ValueError, JsonTypeError, psutil.NoSuchProcess):
        return None


def api_url(home: Path) -> str | None:
    """The API of the permanent Prefect server: PREFECT_API_URL, else that of an `autoopt serve` with this home."""
    url = external_api()
    if url:
        return url
    note = read_note(home)
    if note is None:
        return None
    return note.api


def external_api() -> str:
    """PREFECT_API_URL; empty if it is not set.

    Raises:
        InputError: It is unclear which part of it is a password.
    """
    url = os.environ.get("PREFECT_API_URL", "")
    if url and without_password(url).rpartition("://")[2] == "***":
        remedy = "write it as http://host:port/api, with other characters than letters and digits of a password as %XX"
        raise InputError("cannot be read", where="PREFECT_API_URL", remedy=remedy)
    return url


def set_defaults() -> None:
    """Set Prefect's environment. Call it before `prefect` is first imported, which reads its settings."""
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)


def use_server(home: Path, purpose: str) -> str:
    """Connect this process to the permanent Prefect server; returns the URL of its API.

    Call it before `prefect` is first imported. `purpose` names in the error what needs the server.

    Raises:
        InputError: no server is known, or it rejects the password.
    """
    url = api_url(home)
    if url is None:
        remedy = "start 'autoopt serve' in this folder, or set PREFECT_API_URL"
        raise InputError(f"{purpose} needs a permanent Prefect server", remedy=remedy)
    os.environ["PREFECT_API_URL"] = url
    set_defaults()
    use_made_password(home)
    check_password(url)
    return url


def use_made_password(home: Path) -> None:
    """Use the password that `autoopt serve` made for its server, if PREFECT_API_URL is that and the user set none."""
    note = read_note(home)
    if note is None or not note.made_password or note.api != os.environ.get("PREFECT_API_URL"):
        return
    password = read_password(home)
    if password is not None:
        os.environ.setdefault("PREFECT_API_AUTH_STRING", password)


def check_password(url: str) -> None:
    """Check that the server in PREFECT_API_URL accepts the password; `url` is its API, for the error.

    Raises:
        InputError: it does not.
    """
    import httpx
    from prefect.client.orchestration import get_client

    try:
        with suppress(httpx.TransportError, ValueError), get_client(sync_client=True) as client:
            client.api_version()
    except httpx.HTTPStatusError as error:
        # Any other problem is reported by the request that meets it.
        if error.response.status_code == httpx.codes.UNAUTHORIZED:
            remedy = "set PREFECT_API_AUTH_STRING (user:password)"
            message = "the Prefect server requires another password"
            raise InputError(message, where=without_userinfo(url), remedy=remedy) from None


def without_userinfo(url: str) -> str:
    """`url` without user and password; only its scheme where it is unclear which part is the password."""
    if not url:
        return ""
    return _USERINFO.sub("//", without_password(url))
