"""Reading and writing rows."""

from __future__ import annotations

import pytest
from store_helpers import put

from autoopt.errors import InputError
from autoopt.store import Store
from autoopt.store.sql import tables
from autoopt.store.sql.rows import Lookup, insert_if_absent

DIGESTS = Lookup(tables.artifact, "digest", "artifact", newest_by="created")


def test_a_row_is_found_by_its_id_or_a_beginning(database_store: Store) -> None:
    digest = put(database_store, b"model")
    for name in (digest, digest[:12]):
        assert DIGESTS.find(database_store.database, name)["digest"] == digest
    assert DIGESTS.find(database_store.database, "latest")["digest"] == digest


@pytest.mark.parametrize("name", ["", "%", "_", "\\", "zz", 100_000 * "z"])
def test_wildcards_of_sql_match_nothing(database_store: Store, name: str) -> None:
    put(database_store, b"model")
    with pytest.raises(InputError, match="no artifact"):
        DIGESTS.find(database_store.database, name)


def test_an_ambiguous_name_is_refused_with_longer_beginnings(database_store: Store) -> None:
    for digest in ("abc1" * 16, "abd2" * 16):
        row = {"digest": digest, "bytes": 0, "files": "{}", "created": 1.0}
        database_store.database.write(lambda c, row=row: insert_if_absent(c, tables.artifact, row))  # type: ignore[misc]
    with pytest.raises(InputError, match=r"artifact 'ab' is ambiguous; give more of it: abc1ab, abd2ab$"):
        DIGESTS.find(database_store.database, "ab")
