"""Numbers, settings, counts and figures beside their limits."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoopt.measure.constraints import Observation, judge
from autoopt.metrics import METRICS, WORST, Constraint, Estimate
from autoopt.outcome import Outcome
from autoopt.report.words.change import trial_change
from autoopt.report.words.formatting import (
    bytes_text,
    counts_text,
    figure_text,
    first_names,
    limits_of,
    metric_text,
    number_text,
    params_text,
    seconds_text,
    short,
    value_text,
)
from autoopt.results import Trial


def test_control_characters_cannot_reach_a_terminal() -> None:
    assert "\x1b" not in params_text({"n\x1b[31m": {"p": "\x1b]0;title\x07"}})


def test_stages_add_up_to_the_total_although_the_search_measures_the_source() -> None:
    seconds = {"total": 41.8, "baseline": 10.3, "search": 32.8, "confirm": 2.8}
    assert seconds_text(seconds) == "41.8 s (baseline 10.3, search 22.5, deciding 2.8, other 6.2)"
    assert seconds_text({"total": 5.0, "search": 5.0}) == "5.0 s (search 5.0)"


def test_the_time_of_workers_is_separate_because_it_overlaps() -> None:
    seconds = {"total": 50.0, "search": 30.0, "passes": 12.0, "measuring": 40.0}
    assert seconds_text(seconds) == "50.0 s (search 30.0, other 20.0; in workers: measuring 40.0, passes 12.0)"


def test_what_stands_for_an_infinite_error_is_told_in_words() -> None:
    assert metric_text("max_abs_error", WORST) == "infinite"
    assert metric_text("relative_l2", WORST) == "infinite"
    assert metric_text("max_abs_error", 2e6) == "2e+06"
    observed = Observation(Estimate.exact(WORST))
    assert judge(Constraint("max_abs_error", max=1.0), METRICS["max_abs_error"], observed).reason.endswith(": infinite")


def test_short_ids_have_no_control_characters() -> None:
    assert short("0123456789abcdef") == "0123456789ab"
    assert "\x1b" not in short("\x1b[31m")


@given(st.floats(-1e12, 1e12))
def test_a_number_is_shown_within_a_percent(value: float) -> None:
    assert float(number_text(value)) == pytest.approx(value, rel=0.01, abs=1e-300)


@given(st.floats(0, 1e15))
def test_bytes_are_shown_within_a_percent(value: float) -> None:
    number, unit = bytes_text(value).split()
    factor = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}[unit]
    assert float(number) * factor == pytest.approx(value, rel=0.01, abs=0.5)


@given(st.dictionaries(st.sampled_from(["ok", "failed", "refused", "timeout"]), st.integers(0, 9)))
def test_counts_add_up_to_their_total(counts: dict[str, int]) -> None:
    text = counts_text(counts)
    total, _, rest = text.partition(": ")
    assert int(total) == sum(counts.values())
    assert sum(map(int, re.findall(r"\d+", rest))) == int(total)
    assert " 0 " not in f" {rest}"


@settings(max_examples=30)
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3)))
def test_any_value_is_one_printable_line(value: object) -> None:
    assert value_text(value).isprintable()


def test_a_long_list_of_names_is_cut_off_and_counted() -> None:
    assert first_names(["a", "b"]) == "a, b"
    assert first_names([str(number) for number in range(7)]) == "0, 1, 2, 3, 4 and 2 more"


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
