"""Rows of an archive as they may go into another store; `test_store_transfer.py` has the whole way."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
from sqlalchemy.exc import SQLAlchemyError

from autoopt.model.candidate import digest_json
from autoopt.store.maintenance.imported import (
    Rows,
    as_imported,
    check_digests,
    check_json,
    check_runs,
    is_older,
    migrated,
)
from autoopt.store.sql.tables import HEAD

KEPT = Path(__file__).parent / "kept"


@pytest.mark.parametrize(
    ("column", "text", "stored"),
    [("result", '{"b": 1, "a": 2}', '{"a":2,"b":1}'), ("pass_runs", '[ "k" ]', '["k"]')],
)
def test_json_is_stored_in_one_form(column: str, text: str, stored: str) -> None:
    assert check_json(column, text) == stored


@pytest.mark.parametrize(("column", "text"), [("result", "7"), ("settings", "[]"), ("pass_runs", "{}"), ("point", "{")])
def test_json_of_another_kind_is_refused(column: str, text: str) -> None:
    with pytest.raises(ValueError):
        check_json(column, text)


def test_shared_rows_have_the_digest_of_their_content() -> None:
    plan = {"digest": digest_json({"plan": {}, "chains": ["a", "b"]}), "content": "{}"}
    chains = [{"plan": plan["digest"], "id": name, "position": place} for place, name in ((1, "b"), (0, "a"))]
    environment = {"digest": digest_json({"cpu": "x"}), "content": '{"cpu":"x"}'}
    check_digests({"plan": [plan], "chain": chains, "environment": [environment]})
    with pytest.raises(ValueError, match="a plan"):
        check_digests({"plan": [{**plan, "content": '{"edited":1}'}], "chain": chains})
    with pytest.raises(ValueError, match="an environment"):
        check_digests({"environment": [{**environment, "content": '{"cpu":"y"}'}]})


def test_rows_belong_to_runs_of_the_archive() -> None:
    own = {
        "run": [{"id": "r", "parent": None}],
        "trial": [{"run": "r"}],
        "pass_run": [{"run": None}],
        "evaluation": [{}],
    }
    check_runs(own)
    for table, row in (("trial", {"run": "x"}), ("pass_run", {"run": "x"}), ("run", {"id": "y", "parent": "x"})):
        with pytest.raises(ValueError, match="rows of other runs"):
            check_runs({**own, table: [row]})


def test_keys_change_alike_wherever_they_stand() -> None:
    run = {"id": "r", "identity": "i", "settings": "{}", "status": "finished"}
    trial = {"pass_runs": '["p"]', "evaluations": '["e"]'}
    rows = {"run": [run], "trial": [trial], "pass_run": [{"key": "p", "run": None}], "evaluation": [{"key": "e"}]}
    rows |= {"metric_value": [{"evaluation": "e"}], "event": [{"id": "x"}], "sweep": [{"id": "x"}]}
    made = as_imported(rows, "r", "run.tar", reuse=False)
    assert {"event", "sweep"}.isdisjoint(made)
    key, judged = made["pass_run"][0]["key"], made["evaluation"][0]["key"]
    assert made["trial"] == [{"pass_runs": f'["{key}"]', "evaluations": f'["{judged}"]'}]
    assert made["metric_value"] == [{"evaluation": judged}]
    assert len({"p", "e", "i", key, judged, made["run"][0]["identity"]}) == 6
    assert made["pass_run"][0]["run"] == "r"
    kept = as_imported(rows, "r", "run.tar", reuse=True)
    assert (kept["trial"], kept["run"][0]["identity"]) == ([trial], "i")


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
