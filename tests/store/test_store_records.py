"""Records of the store and the JSON that users see of them."""

from __future__ import annotations

import dataclasses
import json

from autoopt.model.candidate import Candidate
from autoopt.outcome import Outcome
from autoopt.owner import this_process
from autoopt.store import Lineage, PassRunRecord, RunRecord

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


def test_a_running_run_whose_process_has_ended_is_shown_as_interrupted() -> None:
    run = RunRecord("r", "net", "identity", "m", owner=this_process())
    assert run.shown_status == "running"
    dead = dataclasses.replace(run, owner=this_process().rpartition("/")[0] + "/1")
    assert dead.shown_status == "interrupted"
    assert dataclasses.replace(dead, status="finished").shown_status == "finished"
