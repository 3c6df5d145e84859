"""Changes in words."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoopt.metrics import Estimate
from autoopt.outcome import Outcome
from autoopt.report.words.change import (
    EQUAL,
    change_text,
    estimate_text,
    quality_change,
    ratio_change,
    trial_change,
)
from autoopt.results import ModelResult, Trial
from autoopt.results.figures import improvement

NUMBER = re.compile(r"\d+(\.\d+)?")


@pytest.mark.parametrize(
    ("metric", "ratio", "text"),
    [
        ("latency_p50", Estimate(0.63, 0.61, 0.66), "1.6x faster (1.5 to 1.6)"),
        ("latency_p50", Estimate(0.785, 0.775, 0.795), "1.27x faster (1.26 to 1.29)"),
        ("latency_p50", Estimate(0.95, 0.93, 0.98), "1.05x faster (1.02 to 1.08)"),
        ("latency_p50", Estimate(0.98, 0.965, 0.998), "1.020x faster (1.002 to 1.036)"),
        ("latency_p50", Estimate(0.05, 0.04, 0.06), "20x faster (17 to 25)"),
        ("latency_p50", Estimate(2.0, 1.8, 2.2), "2.0x slower (1.8 to 2.2)"),
        ("latency_p50", Estimate(0.98, 0.96, 1.01), "same speed (0.99x to 1.04x)"),
        ("latency_p50", Estimate(0.9, 0.5, 1.1), "speed undecided"),
        ("latency_p50", Estimate(0.95, 0.8, 1.05), "speed undecided (0.95x to 1.25x)"),
        ("latency_p50", Estimate(0.4, 0.2, 0.9), "faster by an undecided factor"),
        ("latency_p50", Estimate(1.5, 1.0001, 2.25), "slower by an undecided factor"),
        ("throughput", Estimate(1.6, 1.5, 1.7), "1.6x higher throughput (1.5 to 1.7)"),
        ("throughput", Estimate(0.5, 0.45, 0.55), "2.0x lower throughput (1.8 to 2.2)"),
        ("tokens_per_second", Estimate(1.6, 1.5, 1.7), "1.6x more tokens per second (1.5 to 1.7)"),
        ("size", Estimate.exact(0.288), "3.5x smaller"),
        ("size", Estimate.exact(0.96), "4 % smaller"),
        ("size", Estimate.exact(1.05), "5 % larger"),
        ("size", Estimate.exact(1.004), "same size"),
        ("peak_memory", Estimate(0.5, 0.4, 0.6), "2.0x less memory (1.7 to 2.5)"),
    ],
)
def test_ratios_become_factors_and_percentages(metric: str, ratio: Estimate, text: str) -> None:
    assert ratio_change(metric, ratio) == text


@pytest.mark.parametrize(
    ("metric", "before", "after", "text"),
    [
        ("accuracy", 0.751, 0.752, "accuracy 75.2 % (was 75.1 %)"),
        ("accuracy", 0.7511, 0.7514, "accuracy 75.14 % (was 75.11 %)"),
        ("mse", 0.125, 0.123, "mse 0.1230 (was 0.1250)"),
        ("top1_agreement", 1.0, 0.992, "top1 agreement with your model 99.2 %"),
        ("accuracy", None, 0.5, "accuracy 50.0 %"),
    ],
)
def test_quality_is_shown_before_and_after(metric: str, before: float | None, after: float, text: str) -> None:
    assert quality_change(metric, before, after) == text


def test_only_what_was_measured_is_said() -> None:
    model = ModelResult(ratios={"latency_p90": Estimate(0.5, 0.45, 0.55)}, metrics={"accuracy": 0.5})
    assert change_text("latency_p90", model, {}) == "latency_p90 2.0x faster (1.8 to 2.2)"
    assert change_text("accuracy", model, {"accuracy": 0.5}) == "accuracy 50.0 % (was 50.0 %)"
    assert change_text("size", model, {}) == change_text("f1", model, {}) == ""


def test_the_time_of_a_prompt_is_named() -> None:
    ratios = {"time_to_first_token": Estimate(0.63, 0.61, 0.66)}
    model = ModelResult("a", "a", metrics={"time_to_first_token": 1.0}, ratios=ratios)
    assert change_text("time_to_first_token", model, {}) == "first token 1.6x faster (1.5 to 1.6)"


def test_an_estimate_is_a_change_a_value_or_unmeasured() -> None:
    assert estimate_text("latency_p50", Estimate(0.5, 0.4, 0.6)) == "2.0x faster (1.7 to 2.5)"
    assert estimate_text("accuracy", Estimate.exact(0.75)) == "75.00 %"
    assert estimate_text("accuracy", None) == "-"


@st.composite
def intervals(draw: st.DrawFn) -> Estimate:
    """A ratio with an interval of any width."""
    value = draw(st.floats(0.02, 50))
    return Estimate(value, value / draw(st.floats(1.0001, 5)), value * draw(st.floats(1.0001, 5)))


@given(intervals())
def test_an_interval_that_holds_one_is_no_change(ratio: Estimate) -> None:
    text = ratio_change("latency_p50", ratio)
    claims_change = "faster" in text or "slower" in text
    assert claims_change == (ratio.low > 1 or ratio.high < 1)


@given(intervals())
def test_the_range_of_a_change_does_not_seem_to_hold_one(ratio: Estimate) -> None:
    text = ratio_change("latency_p50", ratio)
    bounds = re.search(r"\((\d+\.?\d*) to (\d+\.?\d*)\)$", text)
    if bounds is None:
        return
    low, high = float(bounds[1]), float(bounds[2])
    assert low <= high
    exact = max(ratio.low, 1 / ratio.high)
    if exact > 1.001:  # below, three decimals do not tell it from 1
        assert low > 1


@given(intervals())
def test_a_higher_rate_and_a_shorter_time_are_the_same_change(ratio: Estimate) -> None:
    of_rate = NUMBER.sub("#", ratio_change("throughput", ratio))
    of_time = NUMBER.sub("#", ratio_change("latency_p50", ratio.inverse()))
    words = {"higher throughput": "faster", "lower throughput": "slower", "throughput": "speed"}
    for rate, time in words.items():
        of_rate = of_rate.replace(rate, time)
    assert of_rate == of_time


@given(intervals())
def test_improvements_turn_times_around_and_keep_rates(ratio: Estimate) -> None:
    assert improvement("throughput", ratio) == ratio
    twice = improvement("size", improvement("size", ratio))
    assert (twice.low, twice.value, twice.high) == pytest.approx((ratio.low, ratio.value, ratio.high))


def test_a_ratio_that_may_be_zero_has_an_unbounded_factor() -> None:
    assert improvement("latency_p50", Estimate(0.5, 0.0, 1.0)) == Estimate(2.0, 1.0, float("inf"))
    assert improvement("latency_p50", Estimate.exact(0.0)) == Estimate.exact(0.0)


@given(st.floats(0.01, 100))
def test_exact_sizes_are_smaller_larger_or_the_same(ratio: float) -> None:
    text = ratio_change("size", Estimate.exact(ratio))
    if text == "same size":
        assert abs(1 / ratio - 1) <= EQUAL
    else:
        assert text.endswith("smaller" if ratio < 1 else "larger")


def test_a_trial_says_its_change_in_fewer_words() -> None:
    ratios = {"latency_p50": Estimate(0.98, 0.8, 1.3), "latency_p99": Estimate(0.5, 0.45, 0.55)}
    result = Trial("run", 0, "c", {}, outcome=Outcome.OK, metrics={"accuracy": Estimate.exact(0.752)}, ratios=ratios)
    assert trial_change("latency_p50", result) == "undecided (0.77x to 1.25x)"
    assert trial_change("latency_p99", result) == "latency_p99 2.0x faster (1.8 to 2.2)"
    assert trial_change("accuracy", result) == "accuracy 75.2 %"
    assert trial_change("size", result) == trial_change("f1", result) == ""
