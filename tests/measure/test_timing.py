"""Timing of one function, with a clock that moves only when the function runs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from fake_machine import Machine
from hypothesis import given
from hypothesis import strategies as st

from autoopt.measure.latency.timing import BlockTimes, ThreadUsage, outliers, time_block, warm_up


def test_a_block_times_its_calls_but_not_the_lead_in(machine: Machine) -> None:
    calls = itertools.count()

    def call() -> None:
        machine.now += 1000 * (1 + next(calls))

    block = time_block(call, count=3, lead_in=2)
    assert block.times.tolist() == [3000, 4000, 5000]
    assert block.preempted == 0.0


def test_a_block_says_how_long_others_had_the_core(machine: Machine) -> None:
    block = time_block(machine.model(100, noise=0, stolen=0.25)(0), count=8, lead_in=0)
    assert block.preempted == pytest.approx(0.25, rel=0.01)


def test_only_time_taken_away_counts_as_preempted() -> None:
    began = ThreadUsage(0, 0, 0, 0)
    assert began.preempted_share(ThreadUsage(1000, 600, 0, 1)) == pytest.approx(0.4)
    assert began.preempted_share(ThreadUsage(1000, 600, 0, 0)) == pytest.approx(0.4)  # the host had the core
    assert began.preempted_share(ThreadUsage(1000, 600, 3, 0)) == 0.0  # it waited for a device
    assert began.preempted_share(ThreadUsage(1000, 1001, 0, 0)) == 0.0
    assert began.preempted_share(began) == 0.0


def test_a_snapshot_moves_forward() -> None:
    before = ThreadUsage.now()
    after = ThreadUsage.now()
    assert after.clock >= before.clock
    assert after.cpu_time >= before.cpu_time


def test_warm_up_ends_when_times_no_longer_fall(machine: Machine) -> None:
    warm = warm_up(machine.model(5000, warm=4, noise=0)(0), limit_ns=1e12)
    assert warm.settled
    assert warm.calls > 12
    assert warm.time == pytest.approx(5e6, rel=0.1)


def test_warm_up_ends_at_its_limit_after_one_call_at_least(machine: Machine) -> None:
    warm = warm_up(machine.model(1000, noise=0)(0), limit_ns=0.0)
    assert (warm.calls, warm.settled, warm.time) == (1, False, 1e6)


def test_short_calls_are_warmed_up_in_blocks(machine: Machine) -> None:
    warm = warm_up(machine.model(1, noise=0)(0), limit_ns=1e12)
    assert warm.settled
    assert warm.calls == 1 + 2 + 4 + 8 + 16 + 32


def test_outliers_are_far_from_the_median_and_from_the_spread() -> None:
    times = np.array([100.0, 101, 99, 100, 102, 98, 100, 1000])
    assert outliers(times).tolist() == [False] * 7 + [True]
    assert not outliers(np.array([100.0, 250, 120, 90, 280, 100])).any()


@given(st.lists(st.lists(st.floats(1, 1e9), min_size=1, max_size=50), min_size=1, max_size=20))
def test_stored_blocks_are_what_was_appended(blocks: list[list[float]]) -> None:
    stored = BlockTimes()
    for block in blocks:
        stored.append(np.array(block))
    assert len(stored) == len(blocks)
    assert [times.tolist() for times in stored] == blocks
    assert [times.tolist() for times in stored[1:]] == blocks[1:]


def test_blocks_that_do_not_fit_into_a_page_begin_a_new_one() -> None:
    stored = BlockTimes()
    large = np.arange(BlockTimes.PAGE - 1, dtype=np.float64)
    stored.append(large)
    stored.append(np.ones(2))
    np.testing.assert_array_equal(stored[0], large)
    np.testing.assert_array_equal(stored[1], [1, 1])
