"""Rows of exports of earlier schemas."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
from sqlalchemy.exc import SQLAlchemyError

from autoopt.store.maintenance.older_exports import Rows, is_older, migrated
from autoopt.store.sql.tables import HEAD

KEPT = Path(__file__).parent / "kept"


def exported(schema: str) -> Rows:
    with tarfile.open(KEPT / f"{schema}.tar") as archive:
        stream = archive.extractfile("rows.json")
        assert stream is not None
        rows: Rows = json.load(stream)["tables"]
        return rows


def test_only_released_schemas_can_be_migrated() -> None:
    assert is_older("0001")
    assert is_older(HEAD)
    assert not is_older("9999")


def test_rows_gain_the_columns_of_later_schemas() -> None:
    before = exported("0001")
    after = migrated(before, "0001")
    assert "parent" not in before["run"][0]
    assert after["run"][0]["parent"] is None
    assert after["trial"] == before["trial"]


def test_local_values_that_were_not_exported_stay_out() -> None:
    for table, rows in migrated(exported("0002"), "0002").items():
        for row in rows:
            assert not {"owner", "lease"} & set(row)
            assert ("number" in row) == (table == "trial")


def test_settings_of_schema_0002_get_the_new_key() -> None:
    rows = exported("0002")
    rows["run"][0]["settings"] = '{"kitchen":{"data_root":"/d"},"dag":"kitchen"}'
    (run, *_) = migrated(rows, "0002")["run"]
    assert json.loads(run["settings"]) == {"replay_environment": {"data_root": "/d"}, "dag": "kitchen"}


def test_a_word_elsewhere_in_the_settings_is_left_alone() -> None:
    rows = exported("0002")
    rows["run"][0]["settings"] = '{"dag": {"kitchen": 1}}'
    assert migrated(rows, "0002")["run"][0]["settings"] == '{"dag": {"kitchen": 1}}'


def test_an_unknown_table_is_named() -> None:
    with pytest.raises(KeyError, match="trail"):
        migrated({"trail": []}, "0001")


def test_an_unknown_column_is_refused() -> None:
    rows = exported("0001")
    rows["run"][0]["colour"] = "red"
    with pytest.raises(SQLAlchemyError, match="colour"):
        migrated(rows, "0001")
