"""The result of a trial."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

from autoopt.outcome import Outcome
from autoopt.results import Trial


@pytest.mark.parametrize(
    ("outcome", "violation", "feasible"),
    [(Outcome.OK, 0.0, True), (Outcome.OK, -1.0, True), (Outcome.OK, 0.1, False), (Outcome.FAILED, -1.0, False)],
)
def test_a_trial_is_feasible_if_it_succeeded_within_the_constraints(
    outcome: Outcome, violation: float, feasible: bool
) -> None:
    trial = Trial("run", 0, "c", {}, outcome=outcome, violation=violation)
    assert trial.feasible == feasible


NAMES = st.text("abc", min_size=1, max_size=3)
