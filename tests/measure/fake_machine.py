"""A machine for tests of measuring: its clock moves only when a model runs on it."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

from autoopt.measure.latency.timing import ThreadUsage

MakeSession = Callable[[int], Callable[[], None]]


class Machine:
    """A clock in ns, with noise from a seed of its own."""

    def __init__(self, seed: int = 0) -> None:
        self.now = 0
        self.stolen = 0
        """Time in which others had the core."""
        self.rng = np.random.default_rng(seed)

    def clock(self) -> int:
        return self.now

    def usage(self) -> ThreadUsage:
        return ThreadUsage(self.now, self.now - self.stolen, 0, 0)

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

        `warm` is the number of calls in which it comes 2.7 times nearer to full speed, `stolen` the share of its time
        in which others have the core.
        """

        def make(number: int) -> Callable[[], None]:
            bias = float(np.exp(self.rng.normal(0, session_spread))) if session_spread else 1.0
            calls = itertools.count()

            def call() -> None:
                slow = 1 + 2 * np.exp(-next(calls) / warm) if warm else 1.0
                spent = int(1000 * microseconds * bias * slow * np.exp(self.rng.normal(0, noise)))
                self.now += spent
                self.stolen += int(stolen * spent)

            self.now += 1_000_000
            return call

        return make

    def occasionally_slow(self, milliseconds: float, factor: float, *, stolen: bool = False) -> MakeSession:
        """Make sessions of a model of which every tenth inference is slower: by itself, or because others run."""

        def make(number: int) -> Callable[[], None]:
            calls = itertools.count()

            def call() -> None:
                slow = next(calls) % 10 == 9
                self.now += int(1e6 * milliseconds * (factor if slow else 1))
                if slow and stolen:
                    self.stolen += int(1e6 * milliseconds * (factor - 1))

            self.now += 1_000_000
            return call

        return make
