"""SQL stores that several processes share."""

from __future__ import annotations

import os

from store_helpers import pass_run, put

from autoopt.outcome import Outcome
from autoopt.store import Store, open_store


def test_another_process_finds_a_finished_result(database_store: Store, url: str) -> None:
    record = pass_run(put(database_store, b"source"), None, outcome=Outcome.REFUSED)
    database_store.results.finish_pass_run(record)
    with open_store(url, database_store.home) as other:
        assert other.results.pass_run(record.key) == database_store.results.pass_run(record.key)


def test_a_store_is_usable_after_a_fork(database_store: Store) -> None:
    store = database_store
    put(store, b"parent")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            put(store, b"child")
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert len(store.artifacts.all()) == 2
