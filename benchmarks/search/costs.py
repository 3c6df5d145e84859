"""The time that a candidate takes in a run: its short looks, its quality and its latency, as recorded in a table."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import psutil

from autoopt.json_codec import JsonValue

DIGITS: Final = 4
"""Significant digits in a table."""


@dataclass(frozen=True)
class Look:
    """A short measurement of the latency as a ratio to the source's, with its 95 % interval and its seconds of CPU."""

    ratio: float
    low: float
    high: float
    seconds: float

    def row(self) -> list[JsonValue]:
        """Return the fields in order."""
        return list(map(_rounded, (self.ratio, self.low, self.high, self.seconds)))


@dataclass(frozen=True)
class Measuring:
    """Seconds of CPU in which one candidate is measured, by part."""

    quality: float
    latency: float = 0.0
    """Mean of the recordings; 0 if none was made."""
    looks: tuple[Look, ...] = ()

    def row(self) -> list[JsonValue]:
        """Return the fields in order."""
        return [_rounded(self.quality), _rounded(self.latency), [look.row() for look in self.looks]]

    @staticmethod
    def from_row(row: list[JsonValue]) -> Measuring:
        """Reverse `row`."""
        quality, latency, looks = row
        return Measuring(quality, latency, tuple(Look(*look) for look in looks))  # type: ignore[arg-type, union-attr]


class CpuClock:
    """The CPU time of this process and of all that it started, which other programs do not lengthen."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._began = self._read()

    def lap(self) -> float:
        """Return the seconds of CPU since the last call."""
        now = self._read()
        seconds, self._began = max(0.0, now - self._began), now
        return seconds

    def _read(self) -> float:
        return sum(_seconds([self._process, *self._process.children(recursive=True)]))


def _seconds(processes: Iterable[psutil.Process]) -> Iterable[float]:
    for process in processes:
        with suppress(psutil.Error):
            yield sum(process.cpu_times()[:4])  # user, system, and both of processes that ended


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
