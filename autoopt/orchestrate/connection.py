"""The Prefect server that autoopt talks to: PREFECT_API_URL, or the one that `autoopt serve` has started."""

from __future__ import annotations

import json
import os
import re
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from autoopt.errors import InputError
from autoopt.json_codec import JsonTypeError, from_json, to_json
from autoopt.settings import without_password
from autoopt.working_folder import replacing

FILE: Final = "prefect.json"
"""File in the home with the address and the password of the server of `autoopt serve`, readable by its user alone."""
DEFAULTS: Final[Mapping[str, str]] = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",  # autoopt shows the progress; the pages keep Prefect's logs
    "PREFECT_CLI_PROMPT": "false",
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",  # the automation in `automations` expects one within 90 s
}
"""Prefect settings of every process that uses Prefect; variables that the user has set take precedence."""
HEALTH_SECONDS: Final = 10.0
_USERINFO: Final = re.compile("//[^/@]*@")


@dataclass(frozen=True)
class Serving:
    """The server of the last `autoopt serve` of a home, as that noted it."""

    api: str
    """The API of the server that it started or used."""
    auth: str = field(default="", repr=False)
    """`user:password`; empty without one."""
    scripts: str = ""
    """The folders whose scripts its flow runs may run, separated as in PATH."""
    started: bool = True
    """True if it started the server."""

    @staticmethod
    def read(home: Path) -> Serving | None:
        """Read it; None without any."""
        try:
            return from_json(Serving, json.loads((home / FILE).read_text()))
        except (OSError, ValueError, JsonTypeError):
            return None

    def write(self, home: Path) -> None:
        """Keep it in the home."""
        with replacing(home / FILE, mode=0o600) as new:
            new.write_text(json.dumps(to_json(self)))

    def answers(self) -> bool:
        """True if it runs."""
        try:
            with urllib.request.urlopen(f"{self.api}/health", timeout=HEALTH_SECONDS):
                return True
        except (OSError, ValueError):
            return False


def set_defaults() -> None:
    """Set Prefect's environment. Call it before `prefect` is first imported, which reads its settings."""
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)


def configured_api() -> str:
    """PREFECT_API_URL, from the environment or Prefect's profile; empty if neither names a server."""
    url = os.environ.get("PREFECT_API_URL", "")
    if url and without_password(url).rpartition("://")[2] == "***":
        remedy = "write it as http://host:port/api, with other characters than letters and digits of a password as %XX"
        raise InputError("cannot be read", where="PREFECT_API_URL", remedy=remedy)
    set_defaults()
    from prefect.settings import get_current_settings

    return get_current_settings().api.url or ""


def connect(home: Path) -> str:
    """Connect this process to the server in PREFECT_API_URL, else to that of `autoopt serve`; returns its API.

    Raises:
        InputError: there is none, it does not answer, or it requires another password.
    """
    url = configured_api()
    if not url:
        server = Serving.read(home)
        if server is None or not server.answers():
            remedy = "start 'autoopt serve' in this folder, or set PREFECT_API_URL"
            raise InputError("no Prefect server is running", remedy=remedy)
        use_server(server)
        url = server.api
    check_server(url)
    return url


def use_server(server: Serving) -> None:
    """Make a server that of this process and its children."""
    from prefect.context import refresh_global_settings_context

    os.environ["PREFECT_API_URL"] = server.api
    os.environ["PREFECT_API_AUTH_STRING"] = server.auth
    os.environ.setdefault("PREFECT_UI_URL", server.api.removesuffix("/api"))
    refresh_global_settings_context()


def check_server(url: str) -> None:
    """Check that the server of this process answers and accepts the password; `url` is its API, for the error.

    Raises:
        InputError: it does not.
    """
    import httpx
    from prefect.client.orchestration import get_client

    where = without_userinfo(url)
    try:
        with get_client(sync_client=True) as client:
            client.hello().raise_for_status()
            client.read_flows(limit=1)
    except httpx.HTTPStatusError as error:
        if error.response.status_code == httpx.codes.UNAUTHORIZED:
            remedy = "set PREFECT_API_AUTH_STRING (user:password)"
            raise InputError("the Prefect server requires another password", where=where, remedy=remedy) from None
        raise InputError(f"the Prefect server answers {error.response.status_code}", where=where) from None
    except httpx.TransportError as error:
        remedy = "start it, or unset PREFECT_API_URL"
        raise InputError(f"the Prefect server does not answer ({error})", where=where, remedy=remedy) from None


def without_userinfo(url: str) -> str:
    """`url` without user and password; only its scheme where it is unclear which part is the password."""
    if not url:
        return ""
    return _USERINFO.sub("//", without_password(url))
