"""A machine for tests of measuring: its clock moves only when a model runs on it."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

from autoopt.measure.latency.busy import Load
from autoopt.measure.latency.timer import ThreadUsage

MakeSession = Callable[[int], Callable[[], None]]


class Machine:
    """A clock in ns, with noise from a seed of its own."""

    def __init__(self, seed: int = 0) -> None:
        self.now = 0
        self.stolen = 0
        """Time in which others had the core."""
        self.waiting = 0
        """Time in which the thread waited for a device."""
        self.preemptions = 0
        self.waits = 0
        self.slowdown = 1.0
        """Factor by which all models are slower now, because of something outside the machine."""
        self.load = Load(0.0)
        """The load by other programs."""
        self.rng = np.random.default_rng(seed)

    def clock(self) -> int:
        return self.now

    def thread_time(self) -> int:
        return self.now - self.stolen - self.waiting

    def usage(self) -> ThreadUsage:
        return ThreadUsage(self.now, self.thread_time(), self.waits, self.preemptions)

    def run(self, milliseconds: float) -> None:
        """Run on the core."""
        self.now += int(1e6 * milliseconds * self.slowdown)

    def preempt(self, milliseconds: float) -> None:
        """Give the core to others."""
        self.now += int(1e6 * milliseconds)
        self.stolen += int(1e6 * milliseconds)
        self.preemptions += 1

    def wait(self, milliseconds: float) -> None:
        """Wait for a device."""
        self.now += int(1e6 * milliseconds)
        self.waiting += int(1e6 * milliseconds)
        self.waits += 1

    def model(
        self,
        microseconds: float,
        *,
        session_spread: float = 0.0,
        warm: int = 0,
        noise: float = 0.02,
        stolen: float = 0.0,
    ) -> MakeSession:
        """Make sessions of a model.

        `warm` is the number of calls in which it comes 2.7 times nearer to full speed, `stolen` the time that the host
        takes from each call, relative to the call.
        """

        def make(number: int) -> Callable[[], None]:
            bias = float(np.exp(self.rng.normal(0, session_spread))) if session_spread else 1.0
            calls = itertools.count()

            def call() -> None:
                slow = 1 + 2 * np.exp(-next(calls) / warm) if warm else 1.0
                began = self.now
                self.run(microseconds / 1000 * bias * slow * np.exp(self.rng.normal(0, noise)))
                lost = int(stolen * (self.now - began))
                self.now += lost
                self.stolen += lost

            self.now += 1_000_000
            return call

        return make

    def occasionally(self, milliseconds: float, event: Callable[[], None], every: int = 10) -> MakeSession:
        """Make sessions of a model in which something happens during every tenth inference."""

        def make(number: int) -> Callable[[], None]:
            calls = itertools.count(1)

            def call() -> None:
                self.run(milliseconds)
                if next(calls) % every == 0:
                    event()

            self.now += 1_000_000
            return call

        return make

    def occasionally_slow(self, milliseconds: float, factor: float) -> MakeSession:
        """Make sessions of a model of which every tenth inference is slower by itself."""
        return self.occasionally(milliseconds, lambda: self.run(milliseconds * (factor - 1)))
