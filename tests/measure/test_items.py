"""Confidence intervals: known values, and that they cover what they say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoopt.measure.intervals.items import bootstrap, mean_interval, paired_share, wilson


def test_wilson_is_the_published_interval():
    found = wilson(150, 152)
    assert found.value == pytest.approx(0.98684, abs=1e-5)
    assert (found.low, found.high) == pytest.approx((0.95334, 0.99638), abs=1e-4)


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_lies_around_the_share_and_within_0_and_1(case):
    found = wilson(*case)
    assert 0 <= found.low <= found.value <= found.high <= 1
    assert found.high > found.low


def test_a_share_of_nothing_is_an_error():
    with pytest.raises(ValueError):
        wilson(0, 0)
    with pytest.raises(ValueError):
        paired_share(0, 0, 0)


@pytest.mark.parametrize(("lost", "won"), [(0.10, 0.05), (0.02, 0.02), (0.01, 0.0)])
def test_paired_shares_cover_the_true_difference_at_their_rate(lost, won):
    rng = np.random.default_rng(0)
    drawn = rng.multinomial(200, [lost, won, 1 - lost - won], 400)
    found = [paired_share(int(b), int(c), 200) for b, c, _ in drawn]
    assert 0.92 <= np.mean([e.low <= lost - won <= e.high for e in found]) <= 1.0


@given(st.integers(1, 300), st.data())
@settings(max_examples=60)
def test_paired_share_is_antisymmetric_and_contains_its_value(count, data):
    lost = data.draw(st.integers(0, count))
    won = data.draw(st.integers(0, count - lost))
    one, other = paired_share(lost, won, count), paired_share(won, lost, count)
    assert -1 <= one.low <= one.value <= one.high <= 1
    assert (other.low, other.high) == pytest.approx((-one.high, -one.low), abs=1e-6)


def test_more_items_tell_more_of_a_drop():
    widths = [(e := paired_share(n // 50, 0, n)).high - e.low for n in (100, 1000, 10000)]
    assert widths[0] > widths[1] > widths[2]


def test_mean_intervals_cover_the_mean_at_their_rate():
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(300):
        found = mean_interval(rng.normal(3.0, 1.0, 60))
        covered += found.low <= 3.0 <= found.high
    assert 0.90 <= covered / 300 <= 0.98


def test_equal_values_have_an_exact_mean():
    found = mean_interval([2.0, 2.0, 2.0])
    assert found.low == found.value == found.high == 2.0


def test_resamples_without_a_value_are_left_out():
    values = np.array([0.0] * 10 + [1.0] * 10)

    def needs_both(chosen):
        if len(set(values[chosen])) < 2:
            raise ValueError("one class")
        return float(values[chosen].mean())

    found = bootstrap(needs_both, 20)
    assert found.low < 0.5 < found.high
