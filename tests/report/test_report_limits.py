"""Figures beside their limits."""

from __future__ import annotations

import pytest

from autoopt.measure.constraints import Observation, judge
from autoopt.metrics import METRICS, Constraint, Estimate
from autoopt.outcome import Outcome
from autoopt.report.words.change import trial_change
from autoopt.report.words.limits import figure_text, limits_of
from autoopt.results import Trial


@pytest.mark.parametrize(
    ("metric", "value", "limit", "text"),
    [
        ("agreement", 0.9796, 0.98, "97.96 %"),
        ("agreement", 0.98004, 0.98, "98.004 %"),
        ("agreement", 0.98, 0.98, "98.0 %"),
        ("agreement", 0.975, 0.98, "97.5 %"),
        ("accuracy", 0.56, 0.57 - 0.01, "56.0 %"),
        ("psnr", 29.33, 29.3, "29.33 dB"),
        ("psnr", 29.3, 28.0, "29.3 dB"),
        ("size", 843_210, 843_000, "843210 bytes"),
        ("cosine", 0.99996, 1.0, "0.99996"),
    ],
)
def test_a_value_that_looks_like_its_limit_gets_the_digit_that_decides(
    metric: str, value: float, limit: float, text: str
) -> None:
    assert figure_text(metric, value, limits=[limit]) == text


def test_without_a_limit_figures_stay_short() -> None:
    assert figure_text("agreement", 0.9796) == "98.0 %"
    assert figure_text("accuracy", None, limits=[0.9]) == "-"


def test_limits_are_values_of_the_metric() -> None:
    constraints = [
        Constraint("accuracy", max_drop=0.01),
        Constraint("accuracy", min=0.9),
        Constraint("mse", max_drop=0.5),
        Constraint("size", max_ratio=0.5),
    ]
    source = {"accuracy": 0.95, "mse": 2.0, "size": 1000.0}
    assert limits_of("accuracy", constraints, source) == pytest.approx([0.94, 0.9])
    assert limits_of("mse", constraints, source) == [2.5]
    assert limits_of("size", constraints, source) == [500.0]
    assert limits_of("accuracy", constraints, {}) == [0.9]


def trial(agreement: float, violation: float) -> Trial:
    metrics = {"agreement": Estimate.exact(agreement)}
    return Trial("run", 0, "c", {}, outcome=Outcome.OK, metrics=metrics, violation=violation)


def test_a_trial_shows_on_which_side_of_the_limit_it_is() -> None:
    assert trial_change("agreement", trial(0.9798, 0.0002)) == "agreement 97.98 %"
    assert trial_change("agreement", trial(0.9802, -0.0002)) == "agreement 98.02 %"
    assert trial_change("agreement", trial(0.99, -0.01)) == "agreement 99.0 %"


def test_the_reason_of_a_verdict_shows_it_too() -> None:
    constraint = Constraint("agreement", min=0.98)
    reason = judge(constraint, METRICS["agreement"], Observation(Estimate.exact(0.979998))).reason
    assert reason == "agreement of at least 0.98 does not hold: 0.979998"
    drop = Observation(Estimate.exact(0.939), Estimate.exact(0.95), drop=Estimate.exact(0.010002))
    assert judge(Constraint("accuracy", max_drop=0.01), METRICS["accuracy"], drop).reason.endswith("worse by 0.010002")
