"""The trials without a usable model, grouped by reason."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from autoopt.outcome import Outcome
from autoopt.results import Trial

_NUMBERS = re.compile(r"-?\d[\d.]*(e[-+]?\d+)?")


@dataclass(frozen=True)
class FailureGroup:
    """Trials that failed in the same way."""

    outcome: str
    message: str
    """Of the first of them."""
    trials: tuple[Trial, ...]


def outcome_text(trial: Trial) -> str:
    """The outcome of a trial; `breaks a constraint` for one that succeeded and does."""
    if trial.result.outcome is Outcome.OK and not trial.feasible:
        return "breaks a constraint"
    return str(trial.result.outcome)


def failure_groups(trials: Iterable[Trial]) -> list[FailureGroup]:
    """The infeasible trials by outcome and message, the largest group first; numbers in messages do not count."""
    groups: dict[tuple[str, str], list[Trial]] = {}
    for trial in trials:
        if not trial.feasible:
            message = _NUMBERS.sub("#", trial.result.explanation)
            groups.setdefault((outcome_text(trial), message), []).append(trial)
    failures = []
    for (outcome, _), members in groups.items():
        failures.append(FailureGroup(outcome, members[0].result.explanation, tuple(members)))
    return sorted(failures, key=lambda group: -len(group.trials))
