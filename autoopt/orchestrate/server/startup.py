"""Prefect's start-up, begun early in the background so that its 3 to 16 seconds overlap with other work.

The environment is set before `prefect` is first imported; what the user has set stays.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from contextlib import suppress

from autoopt.errors import SystemFailure
from autoopt.orchestrate.server.connection import DEFAULTS, check_password, without_userinfo


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
