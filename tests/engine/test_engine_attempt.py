"""Attempts: clock, deadline, counts and retry policy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from simulation import Clock, Simulation

from autoopt.engine.work.attempt import GRACE_SECONDS, Attempt, Counts, RetryPolicy, SourceLatencies
from autoopt.model.candidate import Candidate
from autoopt.outcome import Outcome
from autoopt.results import WorkCounts
from autoopt.store import PassRunRecord


def record(outcome: Outcome, *, run: str = "earlier", finished: float = 10.0) -> PassRunRecord:
    return PassRunRecord("key", "pass", {}, Candidate("a"), outcome, run=run, finished=finished)


def test_time_is_read_from_the_attempts_clock() -> None:
    clock = Clock(100.0)
    attempt = Attempt("run", began=90.0, deadline=130.0, clock=clock)
    assert (attempt.elapsed(), attempt.remaining()) == (10.0, 30.0)
    clock.now = 140.0
    assert (attempt.elapsed(), attempt.remaining()) == (50.0, -10.0)


def test_a_call_gets_its_limit_while_there_is_time() -> None:
    attempt = Attempt("run", deadline=100.0, clock=Clock(0.0))
    assert attempt.call_seconds(60.0) == 60.0
    assert attempt.call_seconds(600.0) == 100.0 + GRACE_SECONDS


def test_a_part_of_a_run_leaves_most_of_the_rest_to_the_next_part(tmp_path: Path) -> None:
    ctx = Simulation(tmp_path).context(deadline=100.0, clock=Clock(0.0))
    assert ctx.until(80.0).attempt.call_seconds(600.0) == 85.0
    assert ctx.until(20.0).attempt.call_seconds(600.0) == 20.0 + GRACE_SECONDS
    assert ctx.until(120.0).attempt.call_seconds(600.0) == 120.0 + GRACE_SECONDS


def test_a_call_after_the_deadline_gets_a_second() -> None:
    assert Attempt("run", deadline=0.0, clock=Clock(1000.0)).call_seconds(60.0) == 1.0


def test_without_a_retry_every_record_is_reused() -> None:
    attempt = Attempt("run")
    for outcome in (Outcome.OK, Outcome.FAILED, Outcome.TIMEOUT):
        assert attempt.reusable(record(outcome)) is not None
    assert attempt.reusable(None) is None


@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.UNCHANGED, Outcome.REFUSED])
def test_what_is_no_retryable_failure_is_never_done_again(outcome: Outcome) -> None:
    attempt = Attempt("run", retry=RetryPolicy(earlier_runs=True, before=100.0))
    assert attempt.reusable(record(outcome)) is not None


def test_a_retry_of_earlier_runs_keeps_the_runs_own_failures() -> None:
    attempt = Attempt("run", retry=RetryPolicy(earlier_runs=True))
    assert attempt.reusable(record(Outcome.FAILED)) is None
    assert attempt.reusable(record(Outcome.FAILED, run="run")) is not None


def test_a_retry_from_a_time_on_keeps_later_failures() -> None:
    attempt = Attempt("run", retry=RetryPolicy(before=20.0))
    assert attempt.reusable(record(Outcome.CRASHED, run="run", finished=10.0)) is None
    assert attempt.reusable(record(Outcome.CRASHED, run="run", finished=30.0)) is not None


@pytest.mark.parametrize(
    ("outcome", "had", "is_reused"),
    [
        (Outcome.OUT_OF_MEMORY, {}, False),
        (Outcome.OUT_OF_MEMORY, {"memory": 99}, False),
        (Outcome.OUT_OF_MEMORY, {"memory": 100}, True),
        (Outcome.OUT_OF_MEMORY, {"memory": 101}, True),
        (Outcome.CRASHED, {"memory": 99}, True),
    ],
)
def test_what_ran_out_of_memory_is_tried_again_with_more(
    outcome: Outcome, had: dict[str, int], is_reused: bool
) -> None:
    attempt = Attempt("run", retry=RetryPolicy(memory=100))
    failure = replace(record(outcome), environment=had)
    assert (attempt.reusable(failure) is not None) is is_reused
    assert attempt.reusable(replace(failure, run="run")) is not None, "not twice in one run"


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.REFUSED])
def test_what_the_set_up_caused_is_tried_again_by_later_runs(outcome: Outcome) -> None:
    """Such as a model that was refused for want of memory."""
    failure = replace(record(outcome), reports={"transient": True})
    assert Attempt("run").reusable(failure) is None
    assert Attempt("run").reusable(replace(failure, run="run")) is not None


@pytest.mark.parametrize(
    ("policy", "active"),
    [(RetryPolicy(), False), (RetryPolicy(earlier_runs=True), True), (RetryPolicy(before=1.0), True)],
)
def test_a_policy_is_active_if_it_retries_anything(policy: RetryPolicy, active: bool) -> None:
    assert policy.active is active


def test_counts_are_kept_by_kind_of_work() -> None:
    counts = Counts()
    counts.add_executed("pass_runs")
    counts.add_reused("evaluations")
    counts.add_reused("evaluations")
    assert counts.of("pass_runs") == WorkCounts(executed=1, reused=0)
    assert counts.of("evaluations") == WorkCounts(executed=0, reused=2)


def test_seconds_add_up_by_phase() -> None:
    counts = Counts()
    counts.add_seconds("passes", 1.5)
    counts.add_seconds("passes", 2.0)
    with counts.timing("search"):
        pass
    assert counts.seconds()["passes"] == 3.5
    assert counts.seconds()["search"] >= 0.0


def test_the_typical_source_latency_is_the_lower_quartile() -> None:
    latencies = SourceLatencies()
    assert latencies.typical() is None
    for value in (9.0, 10.0, 11.0, 30.0):
        latencies.add(value)
    assert latencies.typical() == 10.0
