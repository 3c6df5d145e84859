"""Live progress, fed by the engine's events: one line for each trial, and on a terminal a line of what goes on now."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from autoopt.errors import one_line
from autoopt.metrics import Estimate
from autoopt.report.document import kind
from autoopt.report.words import metric_text, params_text, ratio_text, value_text

SPINNER = "|/-\\"


class Progress:
    """Writes what happens to `stream`, which is standard error.

    `event` is called by the engine, from several threads, and returns at once. Events it does not know are ignored.
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

    def event(self, event: str, **values: Any) -> None:
        """One event of the engine."""
        if self._quiet:
            return
        handler: Callable[[Mapping[str, Any]], None] | None = getattr(self, f"_on_{event}", None)
        if handler is None:
            return
        with self._lock:
            handler(values)
            self._show()

    def note(self, text: str) -> None:
        """A line of its own."""
        if not self._quiet:
            with self._lock:
                self._line(text)
                self._show()

    def _on_note(self, values: Mapping[str, Any]) -> None:
        self._line(str(values.get("text", "")))

    def _on_phase(self, values: Mapping[str, Any]) -> None:
        self._line(str(values.get("name", "")))

    def _on_trial_begins(self, values: Mapping[str, Any]) -> None:
        self._doing[0, "trial"] = f"trial {values.get('number', '')} {values.get('chain', '')}"

    def _on_trial_ends(self, values: Mapping[str, Any]) -> None:
        self._done += 1
        best = values.get("best")
        self._best = float(best) if best is not None else self._best
        self._line(trial_line(values))

    def _on_pass_begins(self, values: Mapping[str, Any]) -> None:
        passes = values.get("passes") or ()
        self._doing[threading.get_ident(), "pass"] = " -> ".join(str(p) for p in passes)

    def _on_pass_ends(self, values: Mapping[str, Any]) -> None:
        self._doing.pop((threading.get_ident(), "pass"), None)

    def _on_measure_begins(self, values: Mapping[str, Any]) -> None:
        self._doing[threading.get_ident(), "measure"] = f"measuring {values.get('meter', '')}"

    def _on_measure_ends(self, values: Mapping[str, Any]) -> None:
        self._doing.pop((threading.get_ident(), "measure"), None)

    def _line(self, text: str) -> None:
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


def trial_line(values: Mapping[str, Any]) -> str:
    """What became of a trial: `trial 3: fold -> static [static: per_channel=true]: latency_p50 0.301x (...)`.

    `values["result"]` has `outcome`, `metrics` and `ratios` (estimates by name), `reasons`, `message`, `executed`.
    """
    result = values.get("result")
    params = params_text(values.get("point") or {})
    text = f"trial {values.get('number', '')}: {values.get('chain', '')}" + (f" [{params}]" if params else "")
    outcome = value_text(str(getattr(result, "outcome", "")))
    shown = [outcome] if outcome != "ok" else _figures(result)
    if message := str(getattr(result, "message", "")):
        shown.append(message)
    broken = float(getattr(result, "violation", 0.0)) > 0
    shown += [f"breaks: {r}" if broken else str(r).partition(":")[0] for r in getattr(result, "reasons", ())]
    if outcome == "ok" and getattr(result, "executed", 1) == 0:
        shown.append("reused")
    return f"{text}: {', '.join(shown)}"


def _figures(result: Any) -> list[str]:
    ratios: Mapping[str, Estimate] = getattr(result, "ratios", {})
    metrics: Mapping[str, Estimate] = getattr(result, "metrics", {})
    shown = [f"{name} {ratio_text(ratios[name])}" for name in ("latency_p50", "size") if name in ratios]
    quality = [name for name in metrics if kind(name) in ("task", "fidelity", "custom")]
    return shown + [f"{name} {metric_text(name, metrics[name].value)}" for name in quality[:2]]
