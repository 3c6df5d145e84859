"""Intervals of deployments that are timed in turns, where processes of one deployment differ."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from autoopt.engine.parts.targets import fastest_target, time_in_sittings
from autoopt.errors import InputError, TimeUp
from autoopt.measure.intervals.replicas import FEW, over_stretches
from autoopt.measure.latency.timer import Block, Replica, Subject, WarmUp
from autoopt.measure.settings import MeasurementSettings
from autoopt.metrics import Estimate
from autoopt.results import ModelResult

SETTINGS = MeasurementSettings(seconds=60.0, max_pairs=6)


class Process(Subject):
    """A model in a process that keeps its own pace."""

    def __init__(self, ms: float, rng: np.random.Generator) -> None:
        super().__init__(lambda _: lambda: None)
        self.pace, self.rng = ms * 1e6, rng

    def add_replica(self, limit_ns: float) -> Replica:
        self.replicas.append(Replica(lambda: None, 1e5, 1e5, WarmUp(calls=1, time=self.pace, settled=True)))
        return self.replicas[-1]

    def time_block(self, index: int) -> Block:
        wall = self.pace * np.exp(self.rng.normal(0, 0.03, 3))
        return Block(wall, wall, waited=True)


@pytest.mark.parametrize("correlation", [0.0, 0.3])
@pytest.mark.parametrize("spread", [0.02, 0.3])
def test_an_interval_covers_the_ratio_of_deployments_whose_processes_differ(spread: float, correlation: float) -> None:
    rng, covered, trials = np.random.default_rng(1), 0, 200
    state = 0.0  # of the machine and both processes

    @contextmanager
    def opened() -> Iterator[list[Subject]]:
        nonlocal state
        new = float(rng.normal(0, spread * np.sqrt(1 - correlation**2)))
        state = correlation * state + new
        yield [Process(1.0, rng), Process(0.8 * float(np.exp(state)), rng)]

    for _ in range(trials):
        [comparison] = time_in_sittings(opened, SETTINGS, float("inf"))
        estimate = over_stretches(comparison.estimate(), comparison.unit_logs())
        covered += estimate.low <= 0.8 <= estimate.high
    assert covered >= 0.93 * trials


def test_too_few_sittings_give_no_interval() -> None:
    @contextmanager
    def opened() -> Iterator[list[Subject]]:
        raise AssertionError("nothing opens after the time")
        yield []

    with pytest.raises(TimeUp):
        time_in_sittings(opened, SETTINGS, 0.0)


@pytest.mark.parametrize("sound", [FEW - 1, FEW, FEW + 1])
def test_sittings_before_a_failure_count_if_they_are_enough(sound: int) -> None:
    rng, sittings = np.random.default_rng(1), 0

    @contextmanager
    def opened() -> Iterator[list[Subject]]:
        nonlocal sittings
        sittings += 1
        if sittings > sound:
            raise InputError("crashed: the process ended")
        yield [Process(1.0, rng), Process(0.8, rng)]

    if sound < FEW:
        with pytest.raises(InputError, match="the process ended"):
            time_in_sittings(opened, SETTINGS, float("inf"))
        return
    [comparison] = time_in_sittings(opened, SETTINGS, float("inf"))
    assert comparison.replicas == sound


def test_another_target_is_the_answer_only_with_room() -> None:
    """These wide intervals exclude 1, but the next run of the same two programs said the contrary."""
    for wide in (Estimate(0.627, 0.476, 0.917), Estimate(0.781, 0.621, 0.980)):
        name, [note] = fastest_target("cpu", {"openvino": ModelResult(ratios={"latency_p50": wide})}, {})
        assert name == "cpu"
        assert note.startswith("openvino is not certainly faster")
    narrow = ModelResult(ratios={"latency_p50": Estimate(0.8, 0.75, 0.85)})
    assert fastest_target("cpu", {"openvino": narrow}, {}) == ("openvino", [])
