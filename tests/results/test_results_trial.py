"""The result of a trial."""

from __future__ import annotations

import pytest

from autoopt.metrics import Estimate
from autoopt.outcome import Outcome
from autoopt.results import Trial, TrialResult
from autoopt.results.trial import flat_params, flat_ratios


@pytest.mark.parametrize(
    ("outcome", "violation", "feasible"),
    [(Outcome.OK, 0.0, True), (Outcome.OK, -1.0, True), (Outcome.OK, 0.1, False), (Outcome.FAILED, -1.0, False)],
)
def test_a_trial_is_feasible_if_it_succeeded_within_the_constraints(
    outcome: Outcome, violation: float, feasible: bool
) -> None:
    result = TrialResult("c", {}, outcome, violation=violation)
    assert result.feasible == feasible
    assert Trial(0, "c", result).feasible == feasible


def test_the_explanation_is_the_message_or_the_reasons() -> None:
    broken = TrialResult("c", {}, Outcome.OK, reasons=("accuracy fell", "size grew"))
    assert broken.explanation == "accuracy fell; size grew"
    assert TrialResult("c", {}, Outcome.FAILED, message="no", reasons=("x",)).explanation == "no"


def test_figures_for_tables_are_flat() -> None:
    assert flat_params({"q": {"bits": 8}, "s": {"bits": 4}}) == {"q.bits": 8, "s.bits": 4}
    ratios = {"size": Estimate(0.5, 0.4, 0.6)}
    assert flat_ratios(ratios) == {"size_ratio": 0.5, "size_ratio_low": 0.4, "size_ratio_high": 0.6}
