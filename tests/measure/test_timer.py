"""Timing of one function, with a clock that moves only when the function runs."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

import numpy as np
import pytest
from fake_machine import Machine
from hypothesis import given
from hypothesis import strategies as st

from autoopt.measure.latency import timer
from autoopt.measure.latency.timer import BlockTimes, ThreadUsage, outliers, time_block, warm_up
from autoopt.tuning import TIMING


def test_a_block_times_its_calls_but_not_the_lead_in(machine: Machine) -> None:
    calls = itertools.count()

    def call() -> None:
        machine.now += 1000 * (1 + next(calls))

    block = time_block(call, count=3, lead_in=2)
    assert block.wall.tolist() == block.on_core.tolist() == [3000, 4000, 5000]
    assert (block.preempted, block.switches, block.waited) == (0.0, 0, False)


def test_a_block_reports_how_long_others_had_the_core(machine: Machine) -> None:
    block = time_block(machine.model(100, noise=0, stolen=1 / 3)(0), count=8, lead_in=0)
    assert block.preempted == pytest.approx(0.25, rel=0.01)


def test_time_on_the_core_lacks_the_time_that_others_had_it(machine: Machine) -> None:
    call = machine.occasionally(1.0, lambda: machine.preempt(4.0), every=2)(0)
    block = time_block(call, count=4, lead_in=0)
    assert block.wall.tolist() == [1e6, 5e6, 1e6, 5e6]
    assert block.on_core.tolist() == [1e6] * 4
    assert block.has_core_times
    assert (block.switches, block.waited) == (2, False)


def test_preemptions_in_the_lead_in_are_not_the_blocks(machine: Machine) -> None:
    call = machine.occasionally(1.0, lambda: machine.preempt(4.0), every=2)(0)
    block = time_block(call, count=1, lead_in=2)
    assert (block.preempted, block.switches) == (0.0, 0)


def test_a_block_reports_that_the_thread_waited(machine: Machine) -> None:
    call = machine.occasionally(1.0, lambda: machine.wait(2.0), every=1)(0)
    block = time_block(call, count=4, lead_in=0)
    assert block.waited
    assert block.wall.tolist() == [3e6] * 4
    assert block.preempted == 0.0


def test_many_short_calls_are_timed_by_the_clock_alone(machine: Machine) -> None:
    call = machine.occasionally(0.01, lambda: machine.preempt(4.0), every=50)(0)
    block = time_block(call, count=TIMING.many_calls + 1, lead_in=0)
    assert not block.has_core_times
    assert block.on_core.max() == pytest.approx(4.01e6)
    assert time_block(call, count=TIMING.many_calls, lead_in=0).has_core_times


def test_a_system_that_cannot_tell_waiting_from_working_has_no_time_on_the_core(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timer, "can_time_on_core", lambda: False)
    block = time_block(machine.model(1000, noise=0, stolen=0.5)(0), count=4, lead_in=0)
    assert not block.has_core_times
    assert block.wall.tolist() == [1.5e6] * 4


def test_a_clock_of_coarse_steps_does_not_time_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_fine(monkeypatch, lambda reading: 1000 * reading, True)
    assert_fine(monkeypatch, lambda reading: 15_625_000 * (reading // 150), False)


def assert_fine(monkeypatch: pytest.MonkeyPatch, clock: Callable[[int], int], fine: bool) -> None:
    readings = itertools.count()
    with monkeypatch.context() as patch:
        patch.setattr("time.thread_time_ns", lambda: clock(next(readings)))
        assert timer._has_fine_core_clock.__wrapped__() is fine


@pytest.mark.skipif(not timer.can_time_on_core(), reason="the system cannot time a thread on its core")
def test_a_real_computation_is_on_the_core_and_a_real_wait_is_not() -> None:
    matrix = np.ones((200, 200))
    busy = time_block(lambda: np.sort(matrix, axis=None), count=5, lead_in=1)
    assert 0 < np.median(busy.on_core) <= 1.2 * np.median(busy.wall)
    waiting = time_block(lambda: threading.Event().wait(0.002), count=3, lead_in=0)
    assert waiting.waited
    assert waiting.on_core.max() < waiting.wall.min()


def test_only_time_taken_away_counts_as_preempted(machine: Machine) -> None:
    began = ThreadUsage(0, 0, 0, 0)
    assert began.preempted_share(ThreadUsage(1000, 600, 0, 1)) == pytest.approx(0.4)
    assert began.preempted_share(ThreadUsage(1000, 600, 0, 0)) == pytest.approx(0.4)  # the host had the core
    assert began.preempted_share(ThreadUsage(1000, 600, 3, 0)) == 0.0  # it waited for a device
    assert began.preempted_share(ThreadUsage(1000, 1001, 0, 0)) == 0.0
    assert began.preempted_share(began) == 0.0


def test_a_coarse_clock_says_nothing_of_preemption(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timer, "_has_fine_core_clock", lambda: False)
    assert ThreadUsage(0, 0, 0, 0).preempted_share(ThreadUsage(1000, 0, 0, 0)) == 0.0


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
