"""Prefect's server with SQLite under many flow runs. The program takes the options of `prefect`.

SQLite has one writer at a time. Prefect has all others wait inside SQLite, for up to a minute and in no order, and each
keeps a connection meanwhile, until the pool has none left: under load, the whole server stood still for a minute again
and again. Here they wait before they take a connection.

With SQLite, Prefect handles at most 100 requests at once, and counts websockets as well. Flow runs keep some four open
each: 24 at once kept 97, and the server answered no request any more. Here it counts requests only.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from prefect.server.database.configurations import AioSqliteConfiguration


class WriterQueue:
    """Gives the tasks of an event loop their turns, in the order in which they ask."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._holder: asyncio.Task[object] | None = None

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for the turn and keep it; a task that has it already does not wait for itself."""
        task = asyncio.current_task()
        if task is self._holder:
            yield
            return
        async with self._lock:
            self._holder = task
            try:
                yield
            finally:
                self._holder = None


def queue_writers() -> None:
    """Have the transactions of Prefect's server in this process take turns if its database is SQLite."""
    from prefect.server.database.configurations import AioSqliteConfiguration

    begin = AioSqliteConfiguration.begin_transaction
    queues: WeakKeyDictionary[asyncio.AbstractEventLoop, WriterQueue] = WeakKeyDictionary()

    @asynccontextmanager
    async def begin_in_turn(
        self: AioSqliteConfiguration,
        session: Any,  # noqa: ANN401  SQLAlchemy's, which only the store may import
        with_for_update: bool = False,
    ) -> AsyncIterator[Any]:
        queue = queues.setdefault(asyncio.get_running_loop(), WriterQueue())
        async with queue.turn(), begin(self, session, with_for_update) as transaction:
            yield transaction

    AioSqliteConfiguration.begin_transaction = begin_in_turn  # type: ignore[method-assign]


def limit_requests_only() -> None:
    """Have the limit of concurrent requests of Prefect's server in this process exempt websockets."""
    from prefect.server.api.server import RequestLimitMiddleware

    limited = RequestLimitMiddleware.__call__

    async def call(self: RequestLimitMiddleware, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401  of ASGI
        if scope["type"] == "http":
            await limited(self, scope, receive, send)
        else:
            await self.app(scope, receive, send)

    RequestLimitMiddleware.__call__ = call  # type: ignore[method-assign]


def main() -> None:
    """Run a command of Prefect's, such as `server start`."""
    from prefect.cli import app

    queue_writers()
    limit_requests_only()
    app()


if __name__ == "__main__":
    main()
