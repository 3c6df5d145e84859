"""Prefect's server with SQLite under many flow runs. The program takes the options of `prefect`.

SQLite has one writer at a time. Prefect has all others wait inside SQLite, for up to a minute and in no order, and each
keeps a connection meanwhile, until the pool has none left: under load, the whole server stood still for a minute again
and again. Here they wait before they take a connection.

Most of its transactions read first and write later, which SQLite refuses ("database is locked") if anybody has written
in between. Here they begin as writers. Its services write without transactions; there, each statement takes a turn.

With SQLite, Prefect handles at most 100 requests at once, and counts websockets as well. Flow runs keep some four open
each: 24 at once kept 97, and the server answered no request any more. Here it counts requests only.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from weakref import WeakKeyDictionary

from aiosqlite import Cursor

if TYPE_CHECKING:
    from prefect.server.database.configurations import AioSqliteConfiguration


Execute: TypeAlias = Callable[..., Awaitable[Cursor]]
WRITING: Final = ("INSERT", "UPDATE", "DELETE", "REPLACE")
"""First words of the statements that write."""


class WriterQueue:
    """Gives the tasks of an event loop their turns, in the order in which they ask."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._holder: asyncio.Task[object] | None = None

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[bool]:
        """Wait for the turn and keep it; a task that has it already does not wait for itself.

        Yields:
            True if the task did not have it.
        """
        task = asyncio.current_task()
        if task is self._holder:
            yield False
            return
        async with self._lock:
            self._holder = task
            try:
                yield True
            finally:
                self._holder = None


_queues: WeakKeyDictionary[asyncio.AbstractEventLoop, WriterQueue] = WeakKeyDictionary()


def _queue() -> WriterQueue:
    """The queue of the writers in the current event loop."""
    return _queues.setdefault(asyncio.get_running_loop(), WriterQueue())


def queue_writers() -> None:
    """Have the transactions of Prefect's server in this process take turns if its database is SQLite."""
    from prefect.server.database.configurations import SQLITE_BEGIN_MODE, AioSqliteConfiguration

    begin = AioSqliteConfiguration.begin_transaction

    @asynccontextmanager
    async def begin_in_turn(
        self: AioSqliteConfiguration,
        session: Any,  # noqa: ANN401  SQLAlchemy's, which only the store may import
        with_for_update: bool = False,
    ) -> AsyncIterator[Any]:
        async with _queue().turn() as outermost, begin(self, session, with_for_update or outermost) as transaction:
            await session.connection()  # begins in SQLite
            # Only this connection writes. Another one of this task would wait for it if it began as a writer.
            mode = SQLITE_BEGIN_MODE.set("DEFERRED")
            try:
                yield transaction
            finally:
                SQLITE_BEGIN_MODE.reset(mode)

    AioSqliteConfiguration.begin_transaction = begin_in_turn  # type: ignore[method-assign]


def queue_statements() -> None:
    """Have the statements in this process that write to SQLite outside of transactions take turns, too."""

    def in_turn(execute: Execute) -> Any:  # noqa: ANN401  of two signatures
        async def execute_in_turn(cursor: Cursor, statement: str, *parameters: Any) -> Cursor:  # noqa: ANN401
            reads = not statement.lstrip().upper().startswith(WRITING)
            if reads or cursor.connection.in_transaction:
                return await execute(cursor, statement, *parameters)
            async with _queue().turn():
                return await execute(cursor, statement, *parameters)

        return execute_in_turn

    Cursor.execute = in_turn(Cursor.execute)  # type: ignore[method-assign]
    Cursor.executemany = in_turn(Cursor.executemany)  # type: ignore[method-assign]


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
    queue_statements()
    limit_requests_only()
    app()


if __name__ == "__main__":
    main()
