"""Writers of Prefect's SQLite database take turns; whole servers run in `test_orchestrate_serve.py`."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa
from aiosqlite import Cursor
from children import HANG_SECONDS

from autoopt.orchestrate.server.sqlite_writers import (
    WriterQueue,
    limit_requests_only,
    queue_statements,
    queue_writers,
)

if TYPE_CHECKING:  # Prefect's server takes 1.4 s to import, in each process that collects tests
    from prefect.server.database.configurations import AioSqliteConfiguration

WRITERS = 40
"""More than the pool of the server has connections."""


@pytest.fixture
def queued(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prefect's own methods afterwards."""
    from prefect.server.database.configurations import AioSqliteConfiguration

    monkeypatch.setattr(AioSqliteConfiguration, "begin_transaction", AioSqliteConfiguration.begin_transaction)
    monkeypatch.setattr(Cursor, "execute", Cursor.execute)
    monkeypatch.setattr(Cursor, "executemany", Cursor.executemany)
    queue_writers()
    queue_statements()


async def write(database: AioSqliteConfiguration, number: int) -> None:
    """Insert a row, and read with a second connection before the transaction ends."""
    engine = await database.engine()
    async with await database.session(engine) as session, database.begin_transaction(session):
        await session.execute(sa.text("INSERT INTO item VALUES (:number)"), {"number": number})
        async with await database.session(engine) as other:
            await other.execute(sa.text("SELECT count(*) FROM item"))


async def new_database(file: Path) -> AioSqliteConfiguration:
    """A database with an empty table."""
    from prefect.server.database.configurations import AioSqliteConfiguration

    database = AioSqliteConfiguration(connection_url=f"sqlite+aiosqlite:///{file}")
    engine = await database.engine()
    async with engine.begin() as connection:
        await connection.execute(sa.text("CREATE TABLE item (number INTEGER)"))
    return database


async def rows(database: AioSqliteConfiguration) -> list[int]:
    """The rows in the order in which they were written."""
    engine = await database.engine()
    async with engine.connect() as connection:
        result = await connection.execute(sa.text("SELECT number FROM item ORDER BY rowid"))
        return [row[0] for row in result]


async def written(file: Path) -> list[int]:
    """The rows of many writers at once."""
    database = await new_database(file)
    await asyncio.gather(*(write(database, number) for number in range(WRITERS)))
    return await rows(database)


@pytest.mark.usefixtures("queued")
def test_many_writers_finish_in_the_order_in_which_they_began(tmp_path: Path) -> None:
    async def within_the_limit() -> list[int]:
        return await asyncio.wait_for(written(tmp_path / "prefect.db"), HANG_SECONDS)

    assert asyncio.run(within_the_limit()) == list(range(WRITERS))


@pytest.mark.usefixtures("queued")
def test_nobody_can_write_between_what_a_transaction_reads_and_writes(tmp_path: Path) -> None:
    file = tmp_path / "prefect.db"

    async def read_then_write() -> list[int]:
        database = await new_database(file)
        engine = await database.engine()
        async with await database.session(engine) as session, database.begin_transaction(session):
            await session.execute(sa.text("SELECT count(*) FROM item"))
            with sqlite3.connect(file, timeout=0) as other, pytest.raises(sqlite3.OperationalError, match="locked"):
                other.execute("INSERT INTO item VALUES (1)")
            await session.execute(sa.text("INSERT INTO item VALUES (2)"))
        return await rows(database)

    assert asyncio.run(read_then_write()) == [2]


@pytest.mark.usefixtures("queued")
@pytest.mark.parametrize("parameters", [{"number": 2}, [{"number": 2}, {"number": 3}]])
def test_a_statement_outside_of_a_transaction_waits_for_its_turn_and_not_in_sqlite(
    tmp_path: Path, parameters: dict[str, int] | list[dict[str, int]]
) -> None:
    async def write_beside_a_transaction() -> list[int]:
        database = await new_database(tmp_path / "prefect.db")
        engine = await database.engine()
        begun = asyncio.Event()

        async def write_alone() -> None:
            await begun.wait()
            async with await database.session(engine) as session:
                await session.execute(sa.text("PRAGMA busy_timeout = 0"))  # so that SQLite refuses what has to wait
                await session.execute(sa.text("INSERT INTO item VALUES (:number)"), parameters)

        alone = asyncio.create_task(write_alone())
        async with await database.session(engine) as session, database.begin_transaction(session):
            await session.execute(sa.text("INSERT INTO item VALUES (1)"))
            begun.set()
            for _ in range(10_000):
                await asyncio.sleep(0)
                if alone.done():
                    break
        await alone
        return await rows(database)

    assert asyncio.run(write_beside_a_transaction())[:2] == [1, 2]


def test_a_task_does_not_wait_for_itself_and_leaves_its_turn_after_an_exception() -> None:
    async def take_turns() -> list[str]:
        queue, order = WriterQueue(), []

        async def fail() -> None:
            async with queue.turn(), queue.turn():
                order.append("first")
                await asyncio.sleep(0)
                order.append("first again")
                raise ValueError

        async def wait() -> None:
            async with queue.turn():
                order.append("second")

        await asyncio.gather(fail(), wait(), return_exceptions=True)
        return order

    assert asyncio.run(take_turns()) == ["first", "first again", "second"]


def test_open_websockets_leave_requests_their_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    from prefect.server.api.server import RequestLimitMiddleware

    monkeypatch.setattr(RequestLimitMiddleware, "__call__", RequestLimitMiddleware.__call__)  # restored afterwards
    limit_requests_only()

    async def answered() -> list[str]:
        begun: list[str] = []
        closing = asyncio.Event()

        async def app(scope: dict[str, str], receive: object, send: object) -> None:
            begun.append(scope["type"])
            await closing.wait()

        server = RequestLimitMiddleware(app, limit=1)
        kinds = ("websocket", "websocket", "http", "http")
        calls = [asyncio.create_task(server({"type": kind}, None, None)) for kind in kinds]
        while len(begun) < 3:
            await asyncio.sleep(0)
        before = list(begun)
        closing.set()
        await asyncio.gather(*calls)
        return before

    assert asyncio.run(answered()) == ["websocket", "websocket", "http"]
