"""Two ratios of one candidate as one."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoopt import json_codec
from autoopt.measure.two_ratios import DETAIL, DIFFERENCE, DISTURBANCE, TwoRatios, on_several_threads
from autoopt.metrics import Estimate


def estimate(value: float, half_width: float) -> Estimate:
    return Estimate(value, value * math.exp(-half_width), value * math.exp(half_width))


def half_width(ratio: Estimate) -> float:
    return math.log(ratio.high / ratio.low) / 2


@given(st.floats(0.1, 4), st.floats(0.1, 4), st.floats(0.01, 2), st.floats(0.01, 2))
def test_the_combined_ratio_lies_between_both_and_is_no_wider(
    clock: float, thread: float, clock_width: float, thread_width: float
) -> None:
    both = TwoRatios(estimate(clock, clock_width), estimate(thread, thread_width))
    combined = both.combined()
    assert min(clock, thread) * 0.999 <= combined.value <= max(clock, thread) * 1.001
    by_clock, on_one_thread = math.hypot(clock_width, 1.96 * DISTURBANCE), math.hypot(thread_width, 1.96 * DIFFERENCE)
    assert half_width(combined) <= max(by_clock, on_one_thread) * 1.001


def test_the_more_precise_ratio_counts_more() -> None:
    unsure_thread = TwoRatios(estimate(0.5, 0.02), estimate(0.8, 1.5)).combined()
    assert unsure_thread.value == pytest.approx(0.5, rel=0.02)
    unsure_clock = TwoRatios(estimate(0.5, 1.5), estimate(0.8, 0.02)).combined()
    assert unsure_clock.value == pytest.approx(0.8, rel=0.02)
    assert half_width(unsure_clock) == pytest.approx(1.96 * DIFFERENCE, rel=0.05)


def test_candidates_that_differ_on_one_thread_differ_by_about_that_however_noisy_the_clock_is() -> None:
    faster = TwoRatios(estimate(0.57, 0.1), estimate(0.5, 0.02)).combined()
    slower = TwoRatios(estimate(0.53, 0.1), estimate(0.55, 0.02)).combined()
    assert slower.value / faster.value == pytest.approx(1.1, abs=0.03)
    assert half_width(faster) > 1.9 * 0.07  # the difference from several threads is still in the ratio to the source


@pytest.mark.parametrize(
    ("on_one_thread", "on_two_threads"),
    [(0.57, 0.74), (0.79, 0.93), (0.40, 0.45), (0.49, 0.69), (0.36, 0.37), (0.58, 0.58), (1.54, 1.54)],
)
def test_intervals_hold_the_ratios_on_two_threads_of_idle_machines(on_one_thread: float, on_two_threads: float) -> None:
    expected = on_several_threads(estimate(on_one_thread, 0.02))
    combined = TwoRatios(estimate(on_two_threads, 2.0), expected).combined()
    assert combined.low <= on_two_threads <= combined.high


def test_both_are_read_from_the_details_of_a_measurement() -> None:
    both = TwoRatios(estimate(0.5, 0.2), estimate(0.6, 0.1))
    assert TwoRatios.of({DETAIL: json_codec.to_json(both)}) == both
    assert TwoRatios.of({}) is None
