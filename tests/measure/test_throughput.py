"""Throughput of parallel inferences."""

from __future__ import annotations

import threading

import pytest
from children import HANG_SECONDS

from autoopt.measure.latency import throughput
from autoopt.measure.latency.throughput import compare_throughput, inference_rate
from autoopt.measure.settings import ThroughputCase
from autoopt.tuning import TIMING


def test_all_threads_run_at_the_same_time() -> None:
    running: set[int] = set()
    everybody = threading.Event()

    def call() -> None:
        running.add(threading.get_ident())
        if len(running) == 3:
            everybody.set()
        everybody.wait(HANG_SECONDS)  # ends only if all three are in a call

    assert inference_rate(call, concurrency=3, seconds=0.5) > 0
    assert len(running) == 3


def test_the_failure_of_a_thread_is_raised() -> None:
    def fail() -> None:
        raise RuntimeError("no memory")

    with pytest.raises(RuntimeError, match="no memory"):
        inference_rate(fail, concurrency=2, seconds=0.01)


@pytest.fixture
def rates(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Replace the measurement: a call is its own rate. Returns the order of the calls."""
    order: list[object] = []

    def rate(call: object, concurrency: int, seconds: float) -> float:
        order.append(call)
        return float(call)  # type: ignore[arg-type]

    monkeypatch.setattr(throughput, "inference_rate", rate)
    return order


def test_items_per_second_follow_from_the_batch(rates: list[object]) -> None:
    result = compare_throughput([100.0], [50.0], ThroughputCase(4, 1), seconds=1.0)  # type: ignore[list-item]
    assert result.candidate.value == pytest.approx(400)
    assert result.source.value == pytest.approx(200)
    assert result.ratio.value == pytest.approx(2.0)
    assert len(rates) == 2 * TIMING.throughput_rounds


def test_sessions_take_turns(rates: list[object]) -> None:
    compare_throughput([1.0, 2.0], [], ThroughputCase(1, 1), seconds=1.0)  # type: ignore[list-item]
    assert rates == [1.0, 2.0] * (TIMING.throughput_rounds // 2)


def test_without_a_source_there_is_no_ratio(rates: list[object]) -> None:
    result = compare_throughput([10.0], [], ThroughputCase(1, 2), seconds=1.0)  # type: ignore[list-item]
    assert result.source is None
    assert result.ratio is None


def test_the_order_of_a_round_is_random_but_seeded(rates: list[object]) -> None:
    compare_throughput([1.0], [2.0], ThroughputCase(1, 1), seconds=1.0, seed=3)  # type: ignore[list-item]
    first = list(rates)
    rates.clear()
    compare_throughput([1.0], [2.0], ThroughputCase(1, 1), seconds=1.0, seed=3)  # type: ignore[list-item]
    assert rates == first
    assert first not in ([1.0, 2.0] * TIMING.throughput_rounds, [2.0, 1.0] * TIMING.throughput_rounds)
