"""Outages of the Prefect server, which may be restarted, upgraded or unreachable for a while."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from autoopt.errors import SystemFailure, one_line
from autoopt.orchestrate.server.connection import without_userinfo
from autoopt.settings import redacted, settings

OUTAGE_SECONDS = 300.0
"""The server may be away for this long before an operation that needs it gives up, unless AUTOOPT_PATIENCE is set."""
RETRY_SECONDS = 2.0
"""Interval of requests during an outage. A shorter absence is no outage: the server's database may be busy."""
REQUEST_SECONDS = 20.0
"""Time limit of one request."""
SHOW_RETRIES = 4
"""Retries of requests that only show something: half a minute at most."""
LONGEST_WAIT_SECONDS = 10.0
"""Longest time between two requests of Prefect's own clients, see `bound_waits`."""

P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def client_retries(retries: int) -> Iterator[None]:
    """Have Prefect's clients repeat a failed request at most `retries` times, with a short time limit."""
    from prefect.context import SettingsContext, get_settings_context

    context = get_settings_context()
    # Idle chains do this each second, and Prefect's `temporary_settings` takes 60 ms of CPU to validate all settings.
    client = context.settings.client.model_copy(update={"max_retries": retries})
    api = context.settings.api.model_copy(update={"request_timeout": REQUEST_SECONDS})
    settings = context.settings.model_copy(update={"client": client, "api": api})
    with SettingsContext(profile=context.profile, settings=settings):
        yield


def bound_waits() -> None:
    """Have Prefect's clients in this process ask an absent server again every `LONGEST_WAIT_SECONDS` at the latest.

    They double the time between two requests and have no setting that limits it: after an outage of ten minutes, a flow
    run would continue only minutes after the server.
    """
    from prefect.client import base as module

    base: Any = module  # the function is not among those that it exports
    with_jitter: Callable[[float, float], float] = base.clamped_poisson_interval
    if with_jitter.__module__ == __name__:  # has been done
        return

    def bounded(average_interval: float, clamping_factor: float = 0.3) -> float:
        return with_jitter(min(average_interval, LONGEST_WAIT_SECONDS), clamping_factor)

    base.clamped_poisson_interval = bounded


def keep_events() -> None:
    """Have the events of this process wait for an absent server, as its requests do.

    Prefect's client gives up after ten seconds, and what it then has left is lost when the process ends: the pages
    lacked the trials of an outage.
    """
    from prefect.events.clients import PrefectEventsClient
    from prefect.events.worker import EventsWorker, emit_events_to_cloud, should_emit_events_to_running_server

    if should_emit_events_to_running_server() and not emit_events_to_cloud():
        attempts = int(settings().patience or OUTAGE_SECONDS)  # one a second
        EventsWorker.set_client_override(PrefectEventsClient, reconnection_attempts=attempts)


class Outage:
    """A context for requests that are repeated anyway: it suppresses their failure while the server is away.

    Raises:
        SystemFailure: the server has been away for too long, or it refuses a request.
    """

    def __init__(self) -> None:
        self._since: float | None = None
        self._reported = False
        self.occurred = False
        """True once the server has been away."""

    @property
    def ongoing(self) -> bool:
        """True while the server has been away for longer than a moment."""
        return self._since is not None and time.monotonic() - self._since > RETRY_SECONDS

    def poll_seconds(self, usual: float) -> float:
        """Time until the next request."""
        if self.ongoing:
            return RETRY_SECONDS
        return usual

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        import httpx
        from prefect.exceptions import PrefectException

        if isinstance(error, (httpx.HTTPError, PrefectException)):
            self._handle(error)
            return True
        if error is None:
            if self._since is not None and self._reported:
                _report(f"the Prefect server is back after {time.monotonic() - self._since:.0f} s")
            self._since = None
            self._reported = False
        return False

    def _handle(self, error: Exception) -> None:
        reason = _reason(error)
        where = without_userinfo(_url())
        if not _is_outage(error):
            raise SystemFailure(f"the Prefect server refuses a request ({reason})", where=where) from None
        now = time.monotonic()
        if self._since is None:
            self._since = now
            self.occurred = True
        elif not self._reported and self.ongoing:
            self._reported = True
            _report(f"the Prefect server does not answer ({reason}); waiting for it")
        elif now - self._since > (settings().patience or OUTAGE_SECONDS):
            message = f"the Prefect server has not answered for {now - self._since:.0f} s ({reason})"
            remedy = "start it again, then start the run again: it continues where it stopped"
            raise SystemFailure(message, where=where, remedy=remedy) from None


def wait_out(work: Callable[[], T]) -> T:
    """Repeat `work` until the server answers; returns its result.

    Raises:
        SystemFailure: as `Outage`.
    """
    outage = Outage()
    with client_retries(0):
        while True:
            with outage:
                return work()
            time.sleep(RETRY_SECONDS)


def best_effort(show: Callable[P, None]) -> Callable[P, None]:
    """Decorate a function that only shows something: an absent server ends nothing and is waited for only briefly."""

    @functools.wraps(show)
    def attempt(*args: P.args, **kwargs: P.kwargs) -> None:
        import httpx
        from prefect.exceptions import PrefectException

        try:
            with client_retries(SHOW_RETRIES):
                show(*args, **kwargs)
        except (httpx.HTTPError, PrefectException) as error:
            _report(f"the Prefect server does not show everything ({_reason(error)}); the store has it")

    return attempt


def _is_outage(error: Exception) -> bool:
    import httpx

    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code >= 500 or error.response.status_code in (408, 429)
    return isinstance(error, httpx.TransportError)


def _reason(error: Exception) -> str:
    return one_line(redacted(str(error), _url()))[:200] or type(error).__name__


def _url() -> str:
    from prefect.settings import PREFECT_API_URL

    return PREFECT_API_URL.value() or ""


def _report(text: str) -> None:
    """Write a line for the log of whoever started this process."""
    sys.stderr.write(one_line(text) + "\n")
    sys.stderr.flush()
