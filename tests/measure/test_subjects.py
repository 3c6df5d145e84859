"""Replicas of a model and the blocks that are timed in them."""

from __future__ import annotations

import pytest
from fake_machine import Machine

from autoopt.measure.latency.subjects import (
    BLOCK,
    LARGEST_BLOCK,
    LEAD,
    LEAD_ON_SEVERAL_THREADS,
    Subject,
    lead_of,
)


def timed(machine: Machine, microseconds: float, threads: int = 1) -> tuple[int, int]:
    """Time a block. Returns the number of its inferences, and of those before them."""
    calls = 0
    make = machine.model(microseconds, noise=0)

    def counting(number: int):
        call = make(number)

        def count() -> None:
            nonlocal calls
            calls += 1
            call()

        return count

    subject = Subject(counting, lead_of(threads))
    subject.add_replica(limit_ns=1e9)
    before = calls
    count = len(subject.time_block(0).wall)
    return count, calls - before - count


def test_a_replica_knows_what_its_start_cost(machine: Machine) -> None:
    subject = Subject(machine.model(500, noise=0))
    replica = subject.add_replica(limit_ns=1e9)
    assert replica.cold_start == 1_000_000
    assert replica.first_inference == 500_000
    assert replica.warm.time == 500_000
    assert subject.replicas == [replica]


def test_the_first_inference_is_part_of_the_warm_up_limit(machine: Machine) -> None:
    replica = Subject(machine.model(5000, noise=0)).add_replica(limit_ns=1e6)
    assert replica.warm.calls == 1


@pytest.mark.parametrize(
    ("microseconds", "count"),
    [(0.5, LARGEST_BLOCK), (1, 2500), (100, 25), (1000, 2), (5000, 2), (10_000, 2), (15_000, 1), (2_000_000, 1)],
)
def test_a_block_is_short_but_has_two_inferences_where_they_are(
    machine: Machine, microseconds: float, count: int
) -> None:
    assert timed(machine, microseconds)[0] == count


def test_a_block_starts_with_a_lead_in(machine: Machine) -> None:
    assert timed(machine, 100) == (BLOCK // 100_000, LEAD // 100_000 + 1)
    assert timed(machine, 100, threads=2) == (BLOCK // 100_000, LEAD_ON_SEVERAL_THREADS // 100_000 + 1)


@pytest.mark.parametrize(("microseconds", "lead_in"), [(1000, 2), (20_000, 2), (30_000, 1), (300_000, 0)])
def test_long_inferences_need_few_before_them(machine: Machine, microseconds: float, lead_in: int) -> None:
    assert timed(machine, microseconds)[1] == lead_in


def test_each_replica_keeps_its_own_blocks(machine: Machine) -> None:
    subject = Subject(machine.model(1000, noise=0))
    for _ in range(2):
        subject.add_replica(limit_ns=1e9)
    subject.store(1, subject.time_block(1).on_core)
    assert [len(replica.blocks) for replica in subject.replicas] == [0, 1]
    assert subject.repeats == len(subject.replicas[1].blocks[0])


def test_outliers_are_counted_and_are_part_of_their_mean(machine: Machine) -> None:
    subject = Subject(machine.occasionally_slow(0.1, factor=100))
    subject.add_replica(limit_ns=0.0)
    times = subject.time_block(0).wall
    subject.store(0, times)
    details = subject.outlier_details()
    assert details["outliers"] == (times > 1e6).sum() > 0
    assert details["mean_with_outliers"] == pytest.approx(times.mean() / 1e6)


def test_a_subject_without_blocks_has_no_outliers(machine: Machine) -> None:
    assert Subject(machine.model(1)).outlier_details() == {"outliers": 0, "mean_with_outliers": None}
