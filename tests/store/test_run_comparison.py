"""Comparing runs without their circumstances."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from run_comparison import canonical
from store_helpers import CHAIN, evaluation, key, pass_run, put, start_run
from store_owners import by

from autoopt.metrics import Estimate
from autoopt.model.candidate import Candidate
from autoopt.outcome import Outcome
from autoopt.store import Store, TrialRecord
from autoopt.store.memory import MemoryStore


def search(store: Store, latency: float, owner: str = "a", *, seconds: float = 1.0) -> str:
    """A finished run of one trial, measured with some latency."""
    run = start_run(store)
    last = put(store, b"last")
    work = pass_run(run.model, last, run=run.id, seconds=seconds)
    metrics = {"size": Estimate.exact(5.0), "latency_p50": Estimate(latency, latency - 1, latency + 1)}
    judged = evaluation(last, metrics=metrics, seconds=seconds)
    by(store, owner).results.finish_pass_run(work)
    by(store, owner).results.finish_evaluation(judged)
    trial = TrialRecord(run.id, 0, CHAIN, {"a": {"x": 1}}, outcome=Outcome.OK, candidate=Candidate(last))
    trial = dataclasses.replace(trial, pass_runs=(work.key,), evaluations=(judged.key,), metrics=metrics)
    by(store, owner).trials.finish(trial)
    store.runs.finish(run.id, "finished", {"best": None})
    return run.id


def test_runs_of_two_stores_are_equal_whoever_did_the_work(tmp_path: Path) -> None:
    one, two = MemoryStore(tmp_path / "one"), MemoryStore(tmp_path / "two", clock=lambda: 5.0)
    assert canonical(one, search(one, 3.0)) == canonical(two, search(two, 3.0, "b", seconds=9.0))


def test_times_can_be_left_out(store: Store, tmp_path: Path) -> None:
    other = MemoryStore(tmp_path / "other")
    run, other_run = search(store, 3.0), search(other, 4.0)
    assert canonical(store, run) != canonical(other, other_run)
    assert canonical(store, run, timed=False) == canonical(other, other_run, timed=False)


def test_results_and_artifacts_are_part_of_it(store: Store) -> None:
    document = canonical(store, search(store, 3.0))
    assert document["status"] == "finished"
    assert document["trials"][0]["metrics"]["latency_p50"] == [3.0, 2.0, 4.0]  # type: ignore[index]
    assert len(document["artifacts"]) == 2  # type: ignore[arg-type]
    assert list(document["pass_runs"]) == list(store.trials.all(store.runs.get("latest").id)[0].pass_runs)  # type: ignore[call-overload]


def test_a_failed_pass_run_has_no_output(store: Store) -> None:
    run = start_run(store)
    failed = pass_run(run.model, None, key=key("failed"))
    store.results.finish_pass_run(failed)
    store.trials.finish(TrialRecord(run.id, 0, CHAIN, {}, outcome=Outcome.FAILED, pass_runs=(failed.key,)))
    work = canonical(store, run.id)["pass_runs"][failed.key]  # type: ignore[index]
    assert work[3:] == ["failed", None]


@pytest.mark.parametrize("timed", [True, False])
def test_an_interrupted_trial_is_visible(store: Store, timed: bool) -> None:
    run = start_run(store)
    store.trials.add(TrialRecord(run.id, 0, CHAIN, {}))
    (trial,) = canonical(store, run.id, timed=timed)["trials"]  # type: ignore[misc]
    assert (trial["status"], trial["outcome"], trial["candidate"]) == ("pending", None, None)
