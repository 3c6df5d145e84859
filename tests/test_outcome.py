"""Outcomes of work in workers."""

from __future__ import annotations

from autoopt.outcome import Outcome


def test_a_chain_continues_after_success_or_no_change() -> None:
    assert {outcome for outcome in Outcome if outcome.good} == {Outcome.OK, Outcome.UNCHANGED}


def test_only_failures_that_another_attempt_may_change_are_retryable() -> None:
    retryable = {outcome for outcome in Outcome if outcome.retryable}
    assert retryable == {Outcome.FAILED, Outcome.CRASHED, Outcome.TIMEOUT, Outcome.OUT_OF_MEMORY}


def test_no_outcome_is_good_and_retryable() -> None:
    assert not any(outcome.good and outcome.retryable for outcome in Outcome)


def test_an_outcome_is_its_own_text() -> None:
    assert all(Outcome(str(outcome)) is outcome for outcome in Outcome)
