"""Failures grouped by reason."""

from __future__ import annotations

from autoopt.outcome import Outcome
from autoopt.report.failures import failure_groups, outcome_text
from autoopt.results import Trial, TrialResult


def failed(number: int, message: str, outcome: Outcome = Outcome.FAILED) -> Trial:
    return Trial(number, "fold", TrialResult("c", {}, outcome, message=message))


def test_messages_that_differ_in_numbers_are_one_reason() -> None:
    good = Trial(3, "fold", TrialResult("c", {}, Outcome.OK))
    trials = [failed(0, "odd"), failed(1, "took 3.5 s"), failed(2, "took 4 s"), good, failed(4, "odd", Outcome.REFUSED)]
    groups = failure_groups(trials)
    assert [(group.outcome, group.message, [t.number for t in group.trials]) for group in groups] == [
        ("failed", "took 3.5 s", [1, 2]),
        ("failed", "odd", [0]),
        ("refused", "odd", [4]),
    ]


def test_a_trial_that_breaks_a_constraint_is_grouped_by_the_constraint() -> None:
    trial = Trial(0, "fold", TrialResult("c", {}, Outcome.OK, violation=0.1, reasons=("accuracy too low",)))
    assert outcome_text(trial) == "breaks a constraint"
    assert failure_groups([trial])[0].message == "accuracy too low"
