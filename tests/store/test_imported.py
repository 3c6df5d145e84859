"""Rows of an archive as they may go into another store; `test_store_transfer.py` has the whole way."""

from __future__ import annotations

import pytest

from autoopt.model.candidate import digest_json
from autoopt.store.maintenance.imported import as_imported, check_digests, check_json, check_runs


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
