"""The time of a run: its work by phase and name, as a table and as a timeline of its threads."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from autoopt.observer import Observer, WorkSpan
from autoopt.report.elements.drawing import BEST, FEASIBLE, FRONT, GRID, INFEASIBLE, require_altair
from autoopt.report.elements.table import Table

if TYPE_CHECKING:
    import altair as alt

ROWS: Final = 30
"""Maximum number of rows of the table; the last one sums up the others."""
LANE: Final = 28
"""Height of a thread in the timeline, in pixels."""
COLOURS: Final = {
    "passes": FEASIBLE,
    "quality": BEST,
    "measuring": FRONT,
    "sampler": INFEASIBLE,
    "waiting": GRID,
}


class Profile(Observer):
    """Collects the work of a run. Thread-safe."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._spans: list[WorkSpan] = []

    def on_work(self, span: WorkSpan) -> None:
        with self._lock:
            self._spans.append(span)

    def spans(self) -> list[WorkSpan]:
        """The work so far, by its begin; times count from the making of this profile."""
        with self._lock:
            spans = sorted(self._spans, key=lambda span: span.began)
        began = self._began
        return [WorkSpan(span.phase, span.name, span.thread, span.began - began, span.ended - began) for span in spans]

    def elapsed(self) -> float:
        """Seconds since the making of this profile."""
        return time.monotonic() - self._began


def profile_table(spans: Sequence[WorkSpan], elapsed: float) -> Table:
    """The work by phase and name, the most seconds first, and the time in which nothing ran; `elapsed`: of the run."""
    durations: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for span in spans:
        durations[span.phase, span.name].append(span.seconds)
    groups = sorted(durations, key=lambda group: -sum(durations[group]))
    rows = [_row(*group, durations[group], elapsed) for group in groups[:ROWS]]
    others = [seconds for group in groups[ROWS:] for seconds in durations[group]]
    if others:
        rows.append(_row("others", "", others, elapsed))
    idle = elapsed - busy_seconds(span for span in spans if span.phase != "waiting")
    rows.append(("nothing", "between calls, imports, store", "", f"{idle:.2f}", _share(idle, elapsed), ""))
    columns = ("phase", "work", "calls", "seconds", "of the run", "longest")
    return Table(columns, tuple(rows), title=f"profile of {elapsed:.1f} s", right=frozenset((2, 3, 4, 5)))


def _row(phase: str, name: str, durations: Sequence[float], elapsed: float) -> tuple[str, ...]:
    total = sum(durations)
    return phase, name, str(len(durations)), f"{total:.2f}", _share(total, elapsed), f"{max(durations):.2f}"


def _share(seconds: float, elapsed: float) -> str:
    return f"{seconds / max(elapsed, 1e-9):.0%}"


def busy_seconds(spans: Iterable[WorkSpan]) -> float:
    """Seconds in which at least one of the spans was under way."""
    total, end = 0.0, float("-inf")
    for span in sorted(spans, key=lambda span: span.began):
        total += max(0.0, span.ended - max(span.began, end))
        end = max(end, span.ended)
    return total


def timeline(spans: Sequence[WorkSpan]) -> alt.LayerChart:
    """A bar for each span, in the lane of its thread and the colour of its phase.

    Raises:
        InputError: Altair is not installed.
    """
    require_altair()
    import altair as alt

    rows = list(map(asdict, spans))
    colours = alt.Scale(domain=list(COLOURS), range=list(COLOURS.values()))
    bars = alt.Chart(alt.Data(values=rows)).mark_bar()
    return alt.layer(
        bars.encode(
            x=alt.X("began:Q", title="seconds since the start"),
            x2="ended:Q",
            y=alt.Y("thread:N", title=None),
            color=alt.Color("phase:N", scale=colours, title=None),
            tooltip=["phase:N", "name:N", "began:Q", "ended:Q"],
        )
    )


def timeline_height(spans: Sequence[WorkSpan]) -> int:
    """Height of the timeline with its axis and legend, in pixels."""
    return LANE * len({span.thread for span in spans}) + 90
