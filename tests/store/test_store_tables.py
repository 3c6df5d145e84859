"""The tables as a schema."""

from __future__ import annotations

from autoopt.store.sql.tables import metadata


def test_every_column_of_json_holds_text() -> None:
    columns = [column for table in metadata.sorted_tables for column in table.c if column.info.get("json")]
    assert len(columns) > 10
    assert {type(column.type).__name__ for column in columns} == {"Text"}


def test_every_row_that_can_be_claimed_has_an_owner_and_a_lease() -> None:
    for name in ("pass_run", "evaluation", "trial", "run"):
        assert metadata.tables[name].c.owner.nullable
        assert metadata.tables[name].c.lease.nullable


def test_tables_come_after_those_that_they_point_to() -> None:
    order = [table.name for table in metadata.sorted_tables]
    for table in metadata.sorted_tables:
        for key in table.foreign_keys:
            assert order.index(key.column.table.name) <= order.index(table.name)
