"""Records of the store and the JSON that users see of them."""

from __future__ import annotations

import dataclasses
import json

import pytest

from autoopt.model.candidate import Candidate
from autoopt.outcome import Outcome
from autoopt.owner import this_process
from autoopt.store import EventRecord, Lineage, PassRunRecord, RunRecord, TrialRecord
from autoopt.store.records import new_id

STEP = PassRunRecord(
    pass_name="simplify",
    params={"level": 2},
    input=Candidate("a" * 64),
    output=Candidate("b" * 64, {"intra_op_num_threads": 1}),
    outcome=Outcome.OK,
    seconds=0.5,
    environment={"host": "h"},
    key="k",
)


def test_ids_are_twelve_hexadecimal_digits_and_differ() -> None:
    ids = {new_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(len(name) == 12 and int(name, 16) >= 0 for name in ids)


def test_records_cannot_be_changed() -> None:
    record = RunRecord("r", "net", "identity", "model")
    with pytest.raises(dataclasses.FrozenInstanceError):
        record.status = "finished"  # type: ignore[misc]


def test_the_key_of_a_trial_names_its_run_and_number() -> None:
    assert TrialRecord("run1", 7, "chain", {}).key == "run1/7"


def test_a_step_as_json_has_its_digests_and_options() -> None:
    document = STEP.to_json()
    assert document["input"] == "a" * 64
    assert document["output"] == "b" * 64
    assert document["session_options"] == {"intra_op_num_threads": 1}
    assert document["outcome"] == "ok"
    assert json.loads(json.dumps(document)) == document


def test_attempts_and_reports_are_shown_only_if_there_are_any() -> None:
    assert {"attempts", "reports"} & set(STEP.to_json()) == set()
    step = dataclasses.replace(STEP, attempts=({"reason": "too high"},), reports={"nodes": 3})
    assert step.to_json()["attempts"] == [{"reason": "too high"}]
    assert step.to_json()["reports"] == {"nodes": 3}


def test_a_lineage_as_json_has_its_steps_in_order() -> None:
    back = dataclasses.replace(STEP, pass_name="float16", input=STEP.output, output=STEP.input)
    document = Lineage(STEP.input, "a" * 64, (STEP, back)).to_json()
    assert [step["pass"] for step in document["steps"]] == ["simplify", "float16"]
    assert {"converted", "analyses"} & set(document) == set()


def test_a_conversion_and_analyses_are_shown_only_if_there_are_any() -> None:
    document = Lineage(STEP.output, "a" * 64, (), converted=STEP, analyses=(STEP,)).to_json()
    assert document["converted"] == STEP.to_json()
    assert document["analyses"] == [STEP.to_json()]


def test_an_unfinished_trial_counts_as_failed_in_results() -> None:
    assert TrialRecord("r", 0, "c", {}).result.outcome is Outcome.FAILED


def test_the_result_of_a_trial_has_the_reasons_of_its_details() -> None:
    details = {"reasons": ["accuracy fell"], "said": "the full message", "executed": 2}
    result = TrialRecord("r", 0, "c", {"a": {"x": 1}}, outcome=Outcome.OK, message="short", details=details).result
    assert result.reasons == ("accuracy fell",)
    assert (result.message, result.executed) == ("the full message", 2)
    assert result.point == {"a": {"x": 1}}


def test_an_event_needs_only_a_kind() -> None:
    assert EventRecord("note") == EventRecord("note", None, "", {}, 0.0)


def test_a_running_run_whose_process_has_ended_is_shown_as_interrupted() -> None:
    run = RunRecord("r", "net", "identity", "m", owner=this_process())
    assert run.shown_status == "running"
    dead = dataclasses.replace(run, owner=this_process().rpartition("/")[0] + "/1")
    assert dead.shown_status == "interrupted"
    assert dataclasses.replace(dead, status="finished").shown_status == "finished"
