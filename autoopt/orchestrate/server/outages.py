"""A Prefect server that is away for a while, as it is restarted, renewed or out of reach: what to do meanwhile."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import ParamSpec, TypeVar

from autoopt.errors import SystemFailure, one_line
from autoopt.orchestrate.server.connection import without_userinfo
from autoopt.settings import redacted

OUTAGE_SECONDS = 300.0
"""How long a server may be away before what needs it gives up."""
ASK_SECONDS = 2.0
"""How often it is asked meanwhile."""
REQUEST_SECONDS = 20.0
"""How long one answer may take."""

P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def asking(retries: int = 0) -> Iterator[None]:
    """Within, Prefect's clients repeat a request so often and no more, and wait not long for an answer."""
    from prefect.settings import PREFECT_API_REQUEST_TIMEOUT, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

    with temporary_settings({PREFECT_CLIENT_MAX_RETRIES: retries, PREFECT_API_REQUEST_TIMEOUT: REQUEST_SECONDS}):
        yield


class Outage:
    """Around requests to the server that are made again and again: `with outage:` has those fail that it is away for.

    Raises:
        SystemFailure: it has been away for OUTAGE_SECONDS, or it refuses a request.
    """

    def __init__(self) -> None:
        self._since: float | None = None
        self._said = False
        self.seen = False
        """Whether it has ever been away."""

    @property
    def going_on(self) -> bool:
        """Whether it is away for longer than a moment, as one is whose database is busy."""
        return self._since is not None and time.monotonic() - self._since > ASK_SECONDS

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        import httpx
        from prefect.exceptions import PrefectException

        if error is None:
            if self._since is not None and self._said:
                _say(f"the Prefect server is back after {time.monotonic() - self._since:.0f} s")
            self._since, self._said = None, False
            return False
        if not isinstance(error, (httpx.HTTPError, PrefectException)):
            return False
        if not _away(error):
            raise SystemFailure(f"the Prefect server refuses a request ({_short(error)})", where=_where()) from None
        now = time.monotonic()
        if self._since is None:
            self._since, self.seen = now, True
        elif not self._said and self.going_on:
            self._said = True
            _say(f"the Prefect server does not answer ({_short(error)}); waiting for it")
        elif now - self._since > OUTAGE_SECONDS:
            remedy = "start it again, then start the run again: it goes on where it was"
            said = f"the Prefect server has not answered for {now - self._since:.0f} s ({_short(error)})"
            raise SystemFailure(said, where=_where(), remedy=remedy) from None
        return True


def waiting_out(work: Callable[[], T]) -> T:
    """What `work` returns, done again until the server is there for it.

    Raises:
        SystemFailure: as `Outage`.
    """
    outage, found = Outage(), list[T]()
    with asking():
        while True:
            with outage:
                found.append(work())
            if found:
                return found[0]
            time.sleep(ASK_SECONDS)


def only_shown(show: Callable[P, None]) -> Callable[P, None]:
    """For functions that make what is only looked at: a server that is away ends nothing, and is waited for half a
    minute at most."""

    @functools.wraps(show)
    def tried(*args: P.args, **kwargs: P.kwargs) -> None:
        import httpx
        from prefect.exceptions import PrefectException

        try:
            with asking(retries=4):
                show(*args, **kwargs)
        except (httpx.HTTPError, PrefectException) as error:
            _say(f"the Prefect server does not show everything ({_short(error)}); the store has it")

    return tried


def _away(error: Exception) -> bool:
    import httpx

    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code >= 500 or error.response.status_code in (408, 429)
    return isinstance(error, httpx.TransportError)


def _short(error: Exception) -> str:
    return one_line(redacted(str(error), _url()))[:200] or type(error).__name__


def _where() -> str:
    return without_userinfo(_url())


def _url() -> str:
    from prefect.settings import PREFECT_API_URL

    return PREFECT_API_URL.value() or ""


def _say(text: str) -> None:
    """For the log of who started this process."""
    sys.stderr.write(one_line(text) + "\n")
    sys.stderr.flush()
