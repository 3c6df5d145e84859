"""The live view of a terminal, drawn with rich several times a second: bar, best model, best chains, workers."""

from __future__ import annotations

import textwrap
import threading
from collections.abc import Callable
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from autoopt.errors import one_line
from autoopt.outcome import Outcome
from autoopt.report.search_progress import SPINNER, LiveState, SearchProgress, failure_line, line_of
from autoopt.report.words.formatting import clock_text, plural
from autoopt.report.words.steps import tail
from autoopt.results import Trial

DRAWINGS_PER_SECOND = 4
BAR_WIDTH = 20
TIME_WIDTH = len("[   4.1 s] ")
SHOWN_CHAINS = 5
"""Chains listed in the view; a terminal has 24 lines."""


class LiveView:
    """A display that redraws itself. The lines above it stay when it is closed, the view does not."""

    def __init__(
        self, stream: TextIO, state: LiveState, clock: Callable[[], float], console: Console | None = None
    ) -> None:
        """Start drawing on a terminal, or on another `console`."""
        self._state, self._clock = state, clock
        self._console = console or Console(file=stream, markup=False, highlight=False, emoji=False)
        # rich's own thread would draw while another one prints, and count the lines of the view wrong.
        self._live = Live(console=self._console, get_renderable=self.render, auto_refresh=False, transient=True)
        self._drawing = threading.Lock()
        self._closed = threading.Event()
        self._clockwork = threading.Thread(target=self._draw_until_closed, name="live view", daemon=True)
        self._live.start(refresh=True)
        self._clockwork.start()

    def write_line(self, text: str) -> None:
        with self._drawing:
            self._console.print(wrapped(text, self._console.width), soft_wrap=True)

    def write_trial(self, time: str, trial: Trial, *, gains: bool) -> None:
        search = self._state.search
        if trial.outcome is not Outcome.OK:
            self.write_line(f"{time} {failure_line(trial, search.first_failure_like(trial))}")
            return
        style = "green" if gains else "dim"
        line = line_of(trial, search, self._console.width - len(time) - 1)
        with self._drawing:
            self._console.print(Text(f"{time} {line}", style=style), no_wrap=True, overflow="ellipsis")

    def update(self) -> None:
        """The clock draws."""

    def close(self) -> None:
        self._closed.set()
        self._clockwork.join()
        self._live.stop()

    def _draw_until_closed(self) -> None:
        while not self._closed.wait(1 / DRAWINGS_PER_SECOND):
            with self._drawing:
                self._live.refresh()

    def render(self) -> RenderableType:
        """Build the view of this moment."""
        now, width = self._clock(), self._console.width
        spinner = SPINNER[int(now * DRAWINGS_PER_SECOND) % len(SPINNER)]
        with self._state.lock:
            if self._state.opening:
                return Text(f"{spinner} {one_line(self._state.opening)}", no_wrap=True, overflow="ellipsis")
            parts: list[RenderableType] = [Text()]
            if self._state.model:
                parts.append(Text(one_line(self._state.model), no_wrap=True, overflow="ellipsis"))
            parts += _search_lines(self._state.search, now, width)
            if self._state.stage:
                parts.append(Text(one_line(self._state.stage), no_wrap=True, overflow="ellipsis"))
            table = Table.grid(padding=(0, 2))
            for number, work in sorted(self._state.works.items()):
                text = Text(work.text, no_wrap=True, overflow="ellipsis")
                table.add_row(f"{spinner} worker {number}", text, clock_text(now - work.since))
            parts.append(table)
        return Group(*parts)


def _search_lines(search: SearchProgress, now: float, width: int) -> list[RenderableType]:
    bar = Table.grid(padding=(0, 2))
    total = max(search.planned, search.trials, 1)
    texts = [search.count_text(), search.time_text(now), search.pace_text(now)]
    bar.add_row(ProgressBar(total=total, completed=search.trials, width=BAR_WIDTH), *filter(None, texts))
    lines: list[RenderableType] = [bar]
    best = search.best_text()
    if best:
        lines.append(Text(f"best so far: {best}", style="bold", no_wrap=True, overflow="ellipsis"))
    chains = search.best_chains()
    if len(search.chains) < 2 or not chains:
        return lines
    # The best chains, each with its number of trials and its best value.
    table = Table.grid(padding=(0, 2))
    values = [search.value_text(chain.best) for chain in chains[:SHOWN_CHAINS] if chain.best is not None]
    space = width - max(map(len, values)) - len("99 trials") - 6
    for chain, value in zip(chains, values, strict=False):
        table.add_row(f"  {tail(one_line(chain.name), space)}", plural(chain.trials, "trial"), value)
    others = len(search.chains) - len(values)
    if others:
        table.add_row(Text(f"  and {plural(others, 'other chain')}", style="dim"))
    return [*lines, table]


def wrapped(text: str, width: int) -> str:
    """A line of any length, broken between words; later lines begin below the text behind the time."""
    return textwrap.fill(
        text,
        width,
        subsequent_indent=" " * TIME_WIDTH,
        break_long_words=False,  # paths and commands can be copied
        break_on_hyphens=False,
    )
