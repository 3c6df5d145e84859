"""Two ratios of one candidate as one."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoopt import json_codec
from autoopt.measure.two_ratios import DETAIL, TwoRatios, on_several_threads
from autoopt.metrics import Estimate
from autoopt.tuning import TIMING


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
    expected = on_several_threads(both.on_one_thread).value
    assert min(clock, expected) * 0.999 <= combined.value <= max(clock, expected) * 1.001
    by_clock, on_one_thread = (
        math.hypot(clock_width, 1.96 * TIMING.disturbance),
        math.hypot(thread_width, 1.96 * TIMING.difference),
    )
    assert half_width(combined) <= max(by_clock, on_one_thread) * 1.001


def test_the_more_precise_ratio_counts_more() -> None:
    unsure_thread = TwoRatios(estimate(0.5, 0.02), estimate(0.8, 1.5)).combined()
    assert unsure_thread.value == pytest.approx(0.5, rel=0.05)
    unsure_clock = TwoRatios(estimate(0.5, 1.5), estimate(0.8, 0.02)).combined()
    assert unsure_clock.value == pytest.approx(0.8**TIMING.shared_gain, rel=0.02)
    assert half_width(unsure_clock) == pytest.approx(1.96 * TIMING.difference, rel=0.05)


def test_candidates_that_differ_on_one_thread_differ_by_about_that_however_noisy_the_clock_is() -> None:
    faster = TwoRatios(estimate(0.57, 0.1), estimate(0.5, 0.02)).combined()
    slower = TwoRatios(estimate(0.53, 0.1), estimate(0.55, 0.02)).combined()
    assert slower.value / faster.value == pytest.approx(1.1**TIMING.shared_gain, abs=0.03)
    assert half_width(faster) > 1.9 * 0.07  # the difference from several threads is still in the ratio to the source


MEASURED = (
    *((0.566, 0.744), (0.567, 0.740), (0.525, 0.739)),  # a CNN of 0.24 ms
    *((0.701, 0.817), (0.791, 0.930), (1.082, 1.057), (0.914, 1.024)),  # LSTMs of 0.06 and 0.09 ms
    *((0.440, 0.524), (0.396, 0.451), (0.439, 0.532)),  # 8 ms
    *((0.487, 0.688), (0.744, 1.111), (0.755, 1.072), (0.609, 0.676)),  # a transformer of 1.3 ms
    *((0.363, 0.376), (0.361, 0.365)),  # a CNN of 58 ms
    *((0.641, 0.935), (0.638, 0.786), (0.724, 1.144), (0.721, 0.953)),  # a CNN of 0.12 ms, in two states of the host
    *((0.693, 0.782), (0.691, 0.847), (0.846, 0.920), (0.828, 0.996), (0.887, 0.939)),  # LSTMs of 0.04 and 0.06 ms
    *((0.962, 0.959), (0.529, 0.644), (0.492, 0.542)),  # 4 ms
    *((0.801, 0.930), (0.677, 0.723), (0.670, 0.922)),  # a transformer of 0.7 ms
    *((0.430, 0.494), (0.516, 0.647)),  # a CNN of 26 ms
    *((0.58, 0.58), (0.59, 0.58), (0.60, 0.55), (0.61, 0.55), (0.79, 0.80), (0.85, 0.80)),  # another machine
)
"""Ratios of candidates on one thread, and on two without other programs (benchmarks/measurement/README.md)."""


def test_intervals_hold_nine_of_ten_ratios_on_two_threads_of_idle_machines() -> None:
    inside = []
    for on_one_thread, on_two_threads in MEASURED:
        unknown = Estimate(1.0, 0.001, 1000.0)
        combined = TwoRatios(unknown, estimate(on_one_thread, 0.0)).combined()
        inside.append(combined.low <= on_two_threads <= combined.high)
    assert sum(inside) >= 0.89 * len(MEASURED)


def test_a_ratio_with_free_cores_reaches_to_that_on_one_thread() -> None:
    half_widths = []
    for on_one_thread, on_two_threads in MEASURED:
        both = TwoRatios(estimate(on_two_threads, 0.02), estimate(on_one_thread, 0.02), 0.0, has_free_cores=True)
        combined = both.combined()
        assert combined.low < min(on_one_thread, on_two_threads) <= max(on_one_thread, on_two_threads) < combined.high
        assert both.inverse().combined().value == pytest.approx(1 / combined.value)
        half_widths.append(half_width(combined))
    assert sorted(half_widths)[len(MEASURED) // 2] < 0.1


@pytest.mark.parametrize(("factor", "low", "high"), [(2.0, 0.46, 0.48), (0.5, 0.51, 0.53)])
def test_threads_without_a_core_of_their_own_cost_time(factor: float, low: float, high: float) -> None:
    both = TwoRatios(estimate(0.5, 0.02), estimate(0.49, 0.02), 0.0, thread_factor=factor, has_free_cores=True)
    assert low < both.expected.value < high
    assert both.inverse().expected.value == pytest.approx(1 / both.expected.value)


def test_a_rate_gains_as_much_as_its_time() -> None:
    times = TwoRatios(estimate(0.5, 0.2), estimate(0.6, 0.1))
    assert times.inverse().combined().value == pytest.approx(1 / times.combined().value)


def test_fewer_threads_may_be_as_fast_or_not() -> None:
    both = TwoRatios(Estimate(0.5, 0.01, 10), estimate(0.6, 0.01), thread_factor=2.0)
    assert both.expected.value == pytest.approx(0.6 * math.sqrt(2))
    ratio = both.combined()
    assert ratio.low < 0.6 < ratio.value < 1.2 < ratio.high


def test_both_are_read_from_the_details_of_a_measurement() -> None:
    both = TwoRatios(estimate(0.5, 0.2), estimate(0.6, 0.1))
    assert TwoRatios.of({DETAIL: json_codec.to_json(both)}) == both
    assert TwoRatios.of({}) is None
