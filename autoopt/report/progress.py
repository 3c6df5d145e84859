"""Live progress, fed by the engine's events: one line for each trial, and on a terminal a line of what goes on now."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from autoopt.errors import one_line
from autoopt.observer import Observer
from autoopt.outcome import Outcome
from autoopt.report.document import kind
from autoopt.report.words import metric_text, params_text, ratio_text, value_text
from autoopt.results import TrialResult
from autoopt.space import Point

SPINNER = "|/-\\"


class Progress(Observer):
    """Writes what happens to `stream`, which is standard error.

    On a terminal the last line shows the work under way; elsewhere only whole lines are written.
    """

    def __init__(self, stream: TextIO, *, clock: Callable[[], float] = time.monotonic, quiet: bool = False) -> None:
        self._stream, self._clock, self._quiet = stream, clock, quiet
        self._live = stream.isatty() and not quiet
        self._lock = threading.Lock()
        self._began = clock()
        self._doing: dict[tuple[int, str], str] = {}
        self._done = 0
        self._best: float | None = None
        self._shown = 0

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._doing.clear()
            self._wipe()

    def on_note(self, text: str) -> None:
        with self._changing():
            self._line(text)

    def on_phase(self, name: str) -> None:
        with self._changing():
            self._line(name)

    def on_trial_start(self, number: int, chain: str, point: Point) -> None:
        with self._changing():
            self._doing[0, "trial"] = f"trial {number} {chain}"

    def on_trial_end(self, number: int, chain: str, point: Point, result: TrialResult, best: float | None) -> None:
        with self._changing():
            self._done += 1
            if best is not None:
                self._best = best
            self._line(trial_line(number, chain, point, result))

    def on_pass_start(self, nodes: Sequence[str]) -> None:
        with self._changing():
            self._doing[threading.get_ident(), "pass"] = " -> ".join(nodes)

    def on_pass_end(self, node: str, outcome: Outcome, seconds: float, message: str) -> None:
        with self._changing():
            self._doing.pop((threading.get_ident(), "pass"), None)

    def on_measure_start(self, meter: str) -> None:
        with self._changing():
            self._doing[threading.get_ident(), "measure"] = f"measuring {meter}"

    def on_measure_end(self, meter: str, outcome: Outcome, seconds: float) -> None:
        with self._changing():
            self._doing.pop((threading.get_ident(), "measure"), None)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold the lock, then redraw the live line."""
        with self._lock:
            yield
            self._show()

    def _line(self, text: str) -> None:
        if self._quiet:
            return
        self._wipe()
        self._stream.write(f"[{self._clock() - self._began:6.1f} s] {one_line(text)}\n")
        self._stream.flush()

    def _show(self) -> None:
        if not self._live:
            return
        self._wipe()
        doing = ", ".join(self._doing.values()) or "waiting"
        best = f", best {self._best:.3f}x" if self._best is not None else ""
        turn = SPINNER[int(self._clock() * 4) % len(SPINNER)]
        text = one_line(f"{turn} {self._done} trials done{best}; {doing}")[: self._width()]
        self._stream.write(text)
        self._stream.flush()
        self._shown = len(text)

    def _wipe(self) -> None:
        if self._shown:
            self._stream.write("\r" + " " * self._shown + "\r")
            self._shown = 0

    @staticmethod
    def _width() -> int:
        import shutil

        return max(20, shutil.get_terminal_size().columns - 1)


def trial_line(number: int, chain: str, point: Point, result: TrialResult) -> str:
    """A trial in one line: `trial 3: fold -> static [static: per_channel=true]: latency_p50 0.301x (...)`."""
    params = params_text(point)
    text = f"trial {number}: {chain}" + (f" [{params}]" if params else "")
    shown = _figures(result) if result.outcome is Outcome.OK else [value_text(str(result.outcome))]
    if result.message:
        shown.append(result.message)
    broken = result.violation > 0
    shown += [f"breaks: {r}" if broken else r.partition(":")[0] for r in result.reasons]
    if result.outcome is Outcome.OK and result.executed == 0:
        shown.append("reused")
    return f"{text}: {', '.join(shown)}"


def _figures(result: TrialResult) -> list[str]:
    ratios, metrics = result.ratios, result.metrics
    shown = [f"{name} {ratio_text(ratios[name])}" for name in ("latency_p50", "size") if name in ratios]
    quality = [name for name in metrics if kind(name) in ("task", "fidelity", "custom")]
    return shown + [f"{name} {metric_text(name, metrics[name].value)}" for name in quality[:2]]
