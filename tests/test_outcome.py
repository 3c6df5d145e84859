"""Outcomes of work in workers."""

from __future__ import annotations

import errno

import pytest

from autoopt.errors import InputError
from autoopt.outcome import Cause, Outcome, cause_of
from autoopt.passes.execution.current_model import TooLarge


def test_a_chain_continues_after_success_or_no_change() -> None:
    assert {outcome for outcome in Outcome if outcome.good} == {Outcome.OK, Outcome.UNCHANGED}


def test_only_failures_that_another_attempt_may_change_are_retryable() -> None:
    retryable = {outcome for outcome in Outcome if outcome.retryable}
    assert retryable == {Outcome.FAILED, Outcome.CRASHED, Outcome.TIMEOUT, Outcome.OUT_OF_MEMORY}


def test_no_outcome_is_good_and_retryable() -> None:
    assert not any(outcome.good and outcome.retryable for outcome in Outcome)


def test_an_outcome_is_its_own_text() -> None:
    assert all(Outcome(str(outcome)) is outcome for outcome in Outcome)


@pytest.mark.parametrize(
    ("error", "outcome", "cause"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), Outcome.FAILED, Cause.FULL_DISK),
        (RuntimeError("write failed: Disk quota exceeded"), Outcome.REFUSED, Cause.FULL_DISK),
        (ModuleNotFoundError("No module named 'x'"), Outcome.FAILED, Cause.SET_UP),
        (PermissionError(errno.EACCES, "Permission denied"), Outcome.FAILED, Cause.SET_UP),
        (PermissionError(errno.EACCES, "Permission denied"), Outcome.REFUSED, Cause.WORK),
        (ConnectionResetError("reset"), Outcome.FAILED, Cause.SET_UP),
        (OSError(errno.EMFILE, "Too many open files"), Outcome.FAILED, Cause.SET_UP),
        (RuntimeError("open: Too many open files"), Outcome.FAILED, Cause.SET_UP),
        (TooLarge("a model of 9 GB"), Outcome.REFUSED, Cause.SET_UP),
        (ValueError("about PermissionError"), Outcome.FAILED, Cause.WORK),
    ],
)
def test_the_cause_of_a_failure_is_told_by_its_exception(error: Exception, outcome: Outcome, cause: Cause) -> None:
    assert cause_of(error, outcome) is cause


def test_an_error_that_names_another_one_has_its_cause() -> None:
    error = InputError("script.py:1: no module")
    error.__cause__ = ImportError("no module")
    assert cause_of(error, Outcome.FAILED) is Cause.SET_UP


def test_an_error_that_was_put_in_the_place_of_another_one_has_a_cause_of_its_own() -> None:
    def read_model() -> None:
        try:
            raise ImportError("no faster reader")
        except ImportError:
            raise ValueError("the model has no outputs") from None

    with pytest.raises(ValueError, match="no outputs") as caught:
        read_model()
    assert cause_of(caught.value, Outcome.FAILED) is Cause.WORK


def test_an_error_in_the_handling_of_another_one_has_a_cause_of_its_own() -> None:
    error = ValueError("the model has no outputs")
    error.__context__ = ImportError("no faster reader")
    assert cause_of(error, Outcome.FAILED) is Cause.WORK


def test_errors_that_were_raised_for_each_other_have_a_cause() -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    assert cause_of(first, Outcome.FAILED) is Cause.WORK
