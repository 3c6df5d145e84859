"""Prefect's start-up, begun early in the background so that its 3 to 16 seconds overlap with other work."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
import time
from contextlib import suppress

from autoopt.errors import SystemFailure
from autoopt.orchestrate.server.access import new_password
from autoopt.orchestrate.server.connection import check_password, set_defaults, use_made_password, without_userinfo
from autoopt.settings import settings

logger = logging.getLogger(__name__)
_END_WITH_PIPE = 'read _; grep -qs prefect.server "/proc/$0/cmdline" && kill "$0"'
"""Shell script: wait for the end of standard input, then end process `$0` if that still is a Prefect server."""
_watchers: list[subprocess.Popen[bytes]] = []
"""Hold the pipes open."""


class PrefectStart:
    """Imports Prefect and starts its API (the one in PREFECT_API_URL, else an ephemeral server) in a thread."""

    def __init__(self) -> None:
        set_defaults()
        self.shared = bool(os.environ.get("PREFECT_API_URL"))
        if self.shared:
            use_made_password(settings().home)
        else:
            password = os.environ.setdefault("PREFECT_SERVER_API_AUTH_STRING", new_password())
            os.environ["PREFECT_API_AUTH_STRING"] = password
        self.seconds = 0.0
        """Duration of the whole start-up."""
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._start, name="prefect-start", daemon=True)
        self._thread.start()

    def _start(self) -> None:
        started = time.monotonic()
        # Ctrl-C reaches all processes of the terminal, but an ephemeral server still has to record the end of the runs.
        # It is started by this thread, and a new process inherits the signal mask of its thread.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
        try:
            import asyncio

            from prefect.client.orchestration import get_client
            from prefect.context import refresh_global_settings_context

            # The program may have imported Prefect before the address and the password were set.
            refresh_global_settings_context()

            async def reach() -> None:
                async with get_client() as client:
                    error = await client.api_healthcheck()
                    if error is not None:
                        raise error

            asyncio.run(reach())
            if not self.shared:
                _end_server_with_us()
        except BaseException as error:  # raised by `wait`
            self._error = error
        self.seconds = time.monotonic() - started
        logger.info("Prefect start-up took %.1f s", self.seconds)

    @property
    def ready(self) -> bool:
        """True when the start-up has ended, even by an error."""
        return not self._thread.is_alive()

    def wait(self) -> float:
        """Wait until the API answers; returns the seconds spent waiting.

        Raises:
            SystemFailure: the API does not answer.
            InputError: it rejects the password.
        """
        started = time.monotonic()
        self._thread.join()
        if self._error is not None:
            server = "ephemeral server"
            where = ""
            if self.shared:
                server = "server"
                where = without_userinfo(os.environ.get("PREFECT_API_URL", ""))
            raise SystemFailure(
                f"the Prefect {server} does not answer ({type(self._error).__name__}: {self._error})",
                where=where,
                remedy="start it with 'prefect server start', or run with --engine inline",
            )
        if self.shared:
            check_password(os.environ["PREFECT_API_URL"])
        return time.monotonic() - started


def _end_server_with_us() -> None:
    """Have the ephemeral server end when this process does, even if this one is killed.

    A shell waits for the end of a pipe that only this process holds open.
    """
    import psutil

    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if "prefect.server.api.server:create_app" in child.cmdline():
                command = ["sh", "-c", _END_WITH_PIPE, str(child.pid)]
                quiet = subprocess.DEVNULL
                _watchers.append(
                    subprocess.Popen(command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, start_new_session=True)
                )
