"""The promises of the store, in every implementation."""

from __future__ import annotations

import dataclasses
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy.exc import IntegrityError
from store_helpers import CHAIN, ENVIRONMENT, evaluation, key, pass_run, put, start_run, write_model

from autoopt.errors import InputError
from autoopt.metrics import Estimate
from autoopt.model.candidate import Candidate
from autoopt.outcome import Outcome
from autoopt.store import ChainRecord, EventRecord, ModelRecord, RunRecord, Store, SweepRecord, TrialRecord, open_store
from autoopt.store.leases import renewed_claim
from autoopt.store.owner import is_known_dead
from autoopt.store.sql.store import SqlStore


def trial(run: str, number: int, **changes: object) -> TrialRecord:
    return dataclasses.replace(TrialRecord(run, number, CHAIN, {"simplify": {"level": number}}), **changes)  # type: ignore[arg-type]


@pytest.fixture
def dead_owner() -> str:
    """The owner id of a process of this machine that was killed."""
    code = "from autoopt.store.owner import this_process; print(this_process(), flush=True); input()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    owner = child.stdout.readline().strip()
    assert not is_known_dead(owner)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    return owner


# Results


def test_a_finished_result_comes_back_as_it_was(store: Store) -> None:
    source, made = put(store, b"source"), put(store, b"made")
    done = pass_run(source, made, message="two lines\nand \x00", attempts=({"params": {}, "reason": "x"},))
    judged = evaluation(made, details={"samples": [1.5, math.inf]}, ratios={"psnr": Estimate(math.inf, 1.0, math.inf)})
    assert store.results.finish_pass_run(done)
    assert store.results.finish_evaluation(judged)
    found, measured = store.results.pass_run(done.key), store.results.evaluation(judged.key)
    assert found is not None
    assert dataclasses.replace(found, finished=0.0, message="") == dataclasses.replace(done, message="")
    assert found.message == "two lines and \\x00"
    assert measured is not None
    assert dataclasses.replace(measured, finished=0.0) == judged


def test_lookups_in_batches_give_only_what_is_finished(store: Store) -> None:
    source = put(store, b"source")
    records = [pass_run(source, None, f"pass{i}", outcome=Outcome.REFUSED) for i in range(1200)]
    assert all(store.results.finish_pass_runs(records))
    store.claims.acquire("pass_run", key("claimed"))
    found = store.results.pass_runs([r.key for r in records] + [key("claimed"), key("unknown")])
    assert set(found) == {r.key for r in records}
    assert store.results.pass_runs([]) == {}


def test_another_process_finds_a_finished_result(database_store: SqlStore, url: str) -> None:
    record = pass_run(put(database_store, b"source"), None, outcome=Outcome.REFUSED)
    database_store.results.finish_pass_run(record)
    with open_store(url, database_store.home) as other:
        assert other.results.pass_run(record.key) == database_store.results.pass_run(record.key)


def test_the_first_good_result_stays(store: Store) -> None:
    source, first, second = put(store, b"source"), put(store, b"1"), put(store, b"2")
    record = pass_run(source, first)
    assert store.results.finish_pass_run(record, "a")
    assert store.results.finish_pass_run(record, "a"), "the answer to the first commit may be lost"
    assert not store.results.finish_pass_run(dataclasses.replace(record, output=Candidate(second)), "a")
    assert not store.results.finish_pass_run(dataclasses.replace(record, outcome=Outcome.FAILED, output=None), "b")
    kept = store.results.pass_run(record.key)
    assert kept is not None
    assert kept.output == Candidate(first)


@pytest.mark.parametrize("outcome", list(Outcome))
def test_lacking_results_and_only_those_may_be_replaced(store: Store, outcome: Outcome) -> None:
    artifact = put(store, b"model")
    before = evaluation(artifact, outcome=outcome, metrics={}, source_metrics={}, ratios={})
    assert store.results.finish_evaluation(before, "a")
    assert store.results.finish_evaluation(evaluation(artifact, 5.0), "b") is outcome.retryable
    found = store.results.evaluation(before.key)
    assert found is not None
    assert (found.outcome, bool(found.metrics)) == ((Outcome.OK, True) if outcome.retryable else (outcome, False))


def test_a_result_cannot_name_an_artifact_that_is_not_stored(store: Store) -> None:
    with pytest.raises((IntegrityError, LookupError)):
        store.results.finish_pass_run(pass_run(put(store, b"source"), key("never stored")))


# Claims


def test_a_claim_is_held_by_one_owner(store: Store) -> None:
    work = key("work")
    assert store.claims.acquire("pass_run", work, "a")
    assert store.claims.acquire("pass_run", work, "a"), "one's own is renewed"
    held = store.claims.acquire("pass_run", work, "b")
    assert not held
    assert (held.state, held.owner) == ("held", "a")
    assert store.results.pass_run(work) is None


def test_who_lost_the_lease_is_refused(store: Store) -> None:
    record = pass_run(put(store, b"source"), put(store, b"made"))
    assert store.claims.acquire("pass_run", record.key, "slow", seconds=-1.0)
    assert store.claims.acquire("pass_run", record.key, "quick")
    assert not store.claims.renew("pass_run", record.key, "slow")
    assert not store.results.finish_pass_run(record, "slow")
    assert store.results.pass_run(record.key) is None
    assert store.results.finish_pass_run(record, "quick")
    assert store.claims.acquire("pass_run", record.key, "slow").state == "done"


def test_an_overdue_owner_whom_nobody_replaced_may_finish(store: Store) -> None:
    record = evaluation(put(store, b"model"))
    assert store.claims.acquire("evaluation", record.key, "slow", seconds=-1.0)
    assert store.results.finish_evaluation(record, "slow")


def test_a_renewed_or_released_claim(store: Store) -> None:
    work = key("work")
    store.claims.acquire("evaluation", work, "a", seconds=-1.0)
    assert store.claims.renew("evaluation", work, "a", seconds=60.0)
    assert store.claims.acquire("evaluation", work, "b").state == "held"
    store.claims.release("evaluation", work, "b")
    assert store.claims.acquire("evaluation", work, "b").state == "held", "not b's to release"
    store.claims.release("evaluation", work, "a")
    assert store.claims.acquire("evaluation", work, "b")


def test_the_claim_of_a_dead_process_is_free_at_once(store: Store, dead_owner: str) -> None:
    assert store.claims.acquire("pass_run", key("work"), f"{dead_owner}/thread 1", seconds=3600.0)
    assert store.claims.acquire("pass_run", key("work"))


def test_a_lacking_result_is_done_again_by_one_owner(store: Store) -> None:
    source = put(store, b"source")
    failed = pass_run(source, None, outcome=Outcome.CRASHED)
    store.results.finish_pass_run(failed, "a")
    assert store.claims.acquire("pass_run", failed.key, "b").state == "done"
    assert store.claims.acquire("pass_run", failed.key, "b", redo=True)
    assert store.claims.acquire("pass_run", failed.key, "c", redo=True).state == "held"
    better = dataclasses.replace(failed, outcome=Outcome.UNCHANGED, output=Candidate(source))
    assert not store.results.finish_pass_run(better, "c")
    assert store.results.finish_pass_run(better, "b")
    assert store.claims.acquire("pass_run", failed.key, "c", redo=True).state == "done", "good ones are not done again"


def test_a_claim_is_kept_while_the_work_goes_on(store: Store) -> None:
    work = key("work")
    store.claims.acquire("pass_run", work, "a", seconds=-1.0)
    with renewed_claim(store, "pass_run", work, "a") as lost:
        assert store.claims.acquire("pass_run", work, "b").state == "held", "renewed at once"
        assert not lost.is_set()
    with renewed_claim(store, "pass_run", work, "a", seconds=0.03) as lost:
        store.claims.release("pass_run", work, "a")
        assert store.claims.acquire("pass_run", work, "b")
        assert lost.wait(30.0), "noticed at the next renewal"
    with renewed_claim(store, "pass_run", work, "a") as lost:
        assert lost.is_set()


# Runs


def test_a_run_is_found_by_id_beginning_and_as_the_latest(store: Store) -> None:
    first = start_run(store, id="abc1", plan={"chains": 2}, settings={"seed": 0})
    second = start_run(store, id="abd2")
    assert store.runs.get("abc") == first == store.runs.get("abc1")
    assert store.runs.get("latest") == second
    assert [r.id for r in store.runs.all()] == ["abd2", "abc1"]
    with pytest.raises(InputError, match="ambiguous"):
        store.runs.get("ab")
    for unknown in ("xyz", "%", "", "_bc1"):
        with pytest.raises(InputError, match="no run"):
            store.runs.get(unknown)


def test_the_end_of_a_run_is_written_once(store: Store) -> None:
    run = start_run(store)
    assert store.runs.latest_finished(run.identity) is None
    assert not store.runs.finish(run.id, "failed", {}, owner="somebody else")
    assert store.runs.finish(run.id, "finished", {"best": None})
    assert store.runs.finish(run.id, "finished", {"best": None}), "the same again is no refusal"
    assert not store.runs.finish(run.id, "cancelled")
    found = store.runs.latest_finished(run.identity)
    assert found is not None
    assert (found.id, found.result, found.status) == (run.id, {"best": None}, "finished")
    assert found.finished is not None
    assert found.finished >= found.created


def test_an_abandoned_run_is_taken_over_and_an_ended_one_reopened(store: Store, dead_owner: str) -> None:
    run = start_run(store, owner=dead_owner)
    assert store.claims.acquire("run", run.id)
    assert store.runs.finish(run.id, "failed")
    assert store.claims.acquire("run", run.id, "b").state == "done"
    assert store.claims.acquire("run", run.id, "b", redo=True)
    assert store.runs.get(run.id).status == "running"


def test_chains_are_kept_in_order_with_their_exact_sizes(store: Store) -> None:
    source = start_run(store).model
    chains = [ChainRecord(key(i), f"a -> b{i}", ({"id": "a"}, {"id": f"b{i}"}), 10**30 + i) for i in range(3)]
    run = RunRecord("", "net", key("x"), source, plan={"same": "plan"})
    one, two = store.runs.create(run, chains), store.runs.create(run, chains[:1])
    assert store.runs.chains(one.id) == tuple(chains)
    assert store.runs.chains(two.id) == tuple(chains[:1])


def test_sweeps_and_their_runs(store: Store) -> None:
    sweep = store.sweeps.create(SweepRecord("", "zoo", {"models": 2}))
    run = start_run(store, sweep=sweep.id)
    store.sweeps.finish(sweep.id, "finished", {"better": 1})
    assert store.sweeps.get("latest").result == {"better": 1}
    assert [r.id for r in store.runs.all(sweep=sweep.id)] == [run.id]
    other = store.sweeps.create(SweepRecord("", "other"))
    assert [s.id for s in store.sweeps.all()] == [other.id, sweep.id]
    assert [s.result for s in store.sweeps.all("zoo")] == [{"better": 1}]


def test_parts_of_a_run_over_several_targets_go_with_the_whole(store: Store) -> None:
    whole = start_run(store)
    parts = [start_run(store, parent=whole.id), start_run(store, parent=whole.id)]
    assert store.runs.get("latest").id == whole.id
    assert [r.id for r in store.runs.all(parent=whole.id)] == [r.id for r in reversed(parts)]
    assert store.runs.get(parts[0].id).parent == whole.id
    for run in (*parts, whole):
        store.runs.finish(run.id)
    store.runs.delete(whole.id)
    assert store.runs.all() == ()


def test_a_forgotten_run_takes_only_what_is_its_own(store: Store) -> None:
    old, new = start_run(store), start_run(store)
    made = put(store, b"made")
    shared, own = pass_run(old.model, made, run=old.id), pass_run(old.model, made, "other", run=old.id)
    store.results.finish_pass_runs([shared, own])
    for run, keys in ((old, (shared.key, own.key)), (new, (shared.key,))):
        store.trials.finish(trial(run.id, 0, outcome=Outcome.OK, candidate=Candidate(made), pass_runs=keys))
    with pytest.raises(InputError, match="still running"):
        store.runs.delete(old.id)
    store.runs.finish(old.id)
    store.runs.delete(old.id)
    assert [r.id for r in store.runs.all()] == [new.id]
    assert store.results.pass_run(shared.key) is not None
    assert store.results.pass_run(own.key) is None
    assert store.trials.all(old.id) == ()


# Trials


def test_trials_are_claimed_once_each_by_number_and_chain(store: Store) -> None:
    run = start_run(store).id
    store.trials.add([trial(run, n, chain=key("other") if n == 1 else CHAIN) for n in (2, 1, 0)])
    claimed = [store.trials.claim_next(run, CHAIN, owner) for owner in ("a", "b", "c")]
    assert [t.number for t in claimed if t] == [0, 2]
    assert claimed[2] is None
    assert {t.owner for t in claimed if t} == {"a", "b"}
    other = store.trials.claim_next(run, None, "c")
    assert other is not None
    assert other.number == 1


def test_a_trial_is_finished_by_who_holds_it(store: Store) -> None:
    run = start_run(store).id
    store.trials.add([trial(run, 0)])
    assert store.trials.claim_next(run, CHAIN, "a")
    made = put(store, b"made")
    end = trial(run, 0, outcome=Outcome.OK, candidate=Candidate(made, {"threads": 2}), violation=-math.inf)
    end = dataclasses.replace(end, metrics={"size": Estimate(1.0, 0.5, 2.0)}, evaluations=(key("e"),), seconds=1.5)
    assert not store.trials.finish(end, "b")
    assert store.trials.finish(end, "a")
    assert store.trials.finish(end, "a"), "the same again is no refusal"
    assert not store.trials.finish(dataclasses.replace(end, outcome=Outcome.FAILED), "b")
    assert store.trials.all(run) == (dataclasses.replace(end, status="done", owner="a"),)


def test_trials_of_dead_and_overdue_owners_are_done_by_others(store: Store, dead_owner: str) -> None:
    run = start_run(store).id
    store.trials.add([trial(run, n) for n in range(3)])
    assert store.trials.claim_next(run, CHAIN, dead_owner, seconds=3600.0)
    assert store.trials.claim_next(run, CHAIN, "overdue", seconds=-1.0)
    again = [store.trials.claim_next(run, CHAIN, "me") for _ in range(4)]
    assert sorted(t.number for t in again if t) == [0, 1, 2]


def test_adding_trials_again_changes_only_what_nobody_works_on(store: Store, dead_owner: str) -> None:
    run = start_run(store).id
    store.trials.add([trial(run, n) for n in range(4)])
    store.trials.finish(trial(run, 0, outcome=Outcome.FAILED))
    assert store.trials.claim_next(run, CHAIN, "alive")
    assert store.trials.claim_next(run, CHAIN, dead_owner)
    store.trials.add([trial(run, n, point={"simplify": {"level": 9}}) for n in range(5)])
    found = store.trials.all(run)
    assert [t.status for t in found] == ["done", "running", "pending", "pending", "pending"]
    assert [t.point["simplify"]["level"] for t in found] == [0, 1, 9, 9, 9]


# Artifacts and models


def test_equal_bytes_are_one_artifact(store: Store, tmp_path: Path) -> None:
    first = store.artifacts.put(write_model(tmp_path / "a", b"graph", weights=b"w"))
    assert store.artifacts.put(write_model(tmp_path / "b", b"graph", weights=b"w"), first) == first
    assert store.artifacts.put(write_model(tmp_path / "c", b"graph", weights=b"W")) != first
    record = store.artifacts.get(first[:9])
    assert (record.bytes, record.files) == (6, {"model.onnx": 5, "weights.data": 1})
    assert len(store.artifacts.all()) == 2
    path = store.artifacts.path(first)
    assert path.name == "model.onnx"
    assert (path.parent / "weights.data").read_bytes() == b"w"
    assert (tmp_path / "a" / "model.onnx").exists(), "copied, not moved"


def test_models_are_noted_once(store: Store) -> None:
    artifact = put(store, b"source")
    assert store.models.get(artifact) is None
    store.models.add(ModelRecord(artifact, "net"))
    store.models.add(ModelRecord(artifact, "net \x1b[31m", {"inputs": 1}))
    found = store.models.get(artifact)
    assert found is not None
    assert (found.name, found.inspection) == ("net \\x1b[31m", {"inputs": 1})
    assert len(store.models.all()) == 1


# Lineage


def test_lineage_leads_from_the_source_in_order(store: Store) -> None:
    run = start_run(store)
    middle, last = put(store, b"middle"), put(store, b"last")
    tuned = Candidate(last, {"intra_op_num_threads": 1})
    first = pass_run(run.model, middle)
    second = pass_run(middle, last, "float16")
    third = pass_run(last, last, "session_tuning", output=tuned)
    store.results.finish_pass_runs([third, second, first])
    found = store.lineage.trace(tuned).to_json()
    assert (found["artifact"], found["source"]) == (last, run.model)
    assert [s["pass"] for s in found["steps"]] == ["simplify", "float16", "session_tuning"]
    assert found["steps"][0] == {
        "pass": "simplify",
        "params": {"level": 2},
        "input": run.model,
        "output": middle,
        "session_options": {},
        "outcome": "ok",
        "seconds": 0.5,
        "environment": ENVIRONMENT,
    }
    assert found["steps"][2]["session_options"] == {"intra_op_num_threads": 1}
    assert [s.pass_name for s in store.lineage.trace(last[:12]).steps] == ["simplify", "float16"]
    assert store.lineage.trace(run.model).steps == ()


def test_lineage_takes_the_shortest_way_and_survives_circles(store: Store) -> None:
    run = start_run(store)
    one, two = put(store, b"one"), put(store, b"two")
    there, back = pass_run(run.model, one), pass_run(one, run.model, "undo")
    on, direct = pass_run(one, two, "on"), pass_run(run.model, two, "direct")
    store.results.finish_pass_runs([there, back, on])
    assert [s.pass_name for s in store.lineage.trace(two).steps] == ["simplify", "on"]
    store.results.finish_pass_run(direct)
    assert [s.pass_name for s in store.lineage.trace(two).steps] == ["direct"]
    assert store.lineage.trace(run.model).steps == ()


def test_lineage_knows_what_the_source_was_converted_from_and_what_was_said_of_it(store: Store) -> None:
    run = start_run(store)
    program, made = put(store, b"program"), put(store, b"made")
    attempts = ({"params": {"level": 3}, "reason": "too high"},)
    converted = pass_run(program, run.model, "torch_export")
    counted = pass_run(
        run.model, run.model, "operator_counts", outcome=Outcome.UNCHANGED, reports={"counts": {"Conv": 1}}
    )
    store.results.finish_pass_runs([converted, counted, pass_run(run.model, made, attempts=attempts)])
    found = store.lineage.trace(made).to_json()
    assert (found["source"], found["converted"]["input"]) == (run.model, program)
    assert found["steps"][0]["attempts"] == list(attempts)
    assert [(a["pass"], a["reports"]) for a in found["analyses"]] == [("operator_counts", {"counts": {"Conv": 1}})]
    assert store.lineage.trace(run.model).converted is not None


def test_lineage_of_a_trial_has_every_step(store: Store) -> None:
    run = start_run(store)
    made = put(store, b"made")
    same = pass_run(run.model, run.model, "name_fix", outcome=Outcome.UNCHANGED)
    changed, failed = pass_run(run.model, made), pass_run(made, None, "float16", message="no")
    store.results.finish_pass_runs([same, changed, failed])
    keys = (same.key, changed.key, failed.key)
    store.trials.finish(trial(run.id, 7, outcome=Outcome.FAILED, pass_runs=keys))
    steps = store.lineage.trace_trial(run.id, 7).steps
    assert [(s.pass_name, str(s.outcome)) for s in steps] == [
        ("name_fix", "unchanged"),
        ("simplify", "ok"),
        ("float16", "failed"),
    ]
    with pytest.raises(InputError, match="no trial 8"):
        store.lineage.trace_trial(run.id, 8)


def test_lineage_of_the_unknown(store: Store) -> None:
    with pytest.raises(InputError, match="no artifact 'feed'"):
        store.lineage.trace("feed")


# Events


def test_events_are_found_by_run_kind_and_subject(store: Store) -> None:
    run = start_run(store).id
    store.events.add(EventRecord("death", run, "abc", {"signal": 6}))
    store.events.add(EventRecord("death", None, "def"))
    store.events.add(EventRecord("note", run))
    for subject in ("ab_/x", "abc/x", "abc/y"):
        store.events.add(EventRecord("model", None, subject))
    assert [e.subject for e in store.events.all(under="abc")] == ["abc/x", "abc/y"]
    assert [e.subject for e in store.events.all(under="ab_")] == ["ab_/x"]
    assert [e.subject for e in store.events.all(kind="death")] == ["abc", "def"]
    assert [e.kind for e in store.events.all(run=run)] == ["death", "note"]
    (only,) = store.events.all(kind="death", subject="abc")
    assert only.data == {"signal": 6}
    assert only.time > 0


# Processes


def test_a_store_is_usable_after_a_fork(database_store: SqlStore) -> None:
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
