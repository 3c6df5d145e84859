"""The live view, drawn on a terminal of 80 columns."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
from progress_cases import latency, trial
from rich.console import Console

from autoopt.report.live_view import LiveView, wrapped
from autoopt.report.search_progress import LiveState, SearchProgress, Work


class Screen:
    """A view on a terminal in memory."""

    def __init__(self, planned: int = 40) -> None:
        self.state = LiveState(SearchProgress(("latency_p50",), "minimize", planned, began=0.0))
        self.stream = io.StringIO()
        console = Console(file=self.stream, width=80, height=24, force_terminal=True, markup=False, highlight=False)
        self.view = LiveView(self.stream, self.state, lambda: 12.0, console)

    def lines(self) -> list[str]:
        plain = Console(file=io.StringIO(), width=80, no_color=True)
        with plain.capture() as capture:
            plain.print(self.view.render())
        return [line.rstrip() for line in capture.get().splitlines()]


@pytest.fixture
def screen() -> Iterator[Screen]:
    screen = Screen()
    yield screen
    screen.view.close()


def test_before_the_search_the_view_says_what_is_read(screen: Screen) -> None:
    screen.state.opening = "reading model.onnx"
    assert screen.lines() == ["| reading model.onnx"]


def test_the_view_shows_trials_best_chains_and_workers(screen: Screen) -> None:
    for number, (chain, ratio) in enumerate((("fold", 0.5), ("fold -> static", 0.25), ("fold", 0.8))):
        screen.state.search.add(trial(number, chain, ratios=latency(ratio)))
    screen.state.works[1] = Work("measuring latency", since=9.0)
    screen.state.works[2] = Work("applying a -> b", since=12.0)
    blank, bar, *lines = screen.lines()
    assert blank == ""
    assert bar.endswith("  3/40 trials  0:12, about 2:28 left  4.00 s per trial")
    assert lines == [
        "best so far: 4.0x faster (3.8 to 4.2)",
        "  fold -> static  1 trial   4.0x faster (3.8 to 4.2)",
        "  fold            2 trials  2.0x faster (1.9 to 2.1)",
        "| worker 1  measuring latency  0:03",
        "| worker 2  applying a -> b    0:00",
    ]


def test_many_long_chains_fit_into_80_columns(screen: Screen) -> None:
    for number in range(20):
        chain = " -> ".join(["a_pass_with_a_name"] * 6 + [str(number)])
        screen.state.search.add(trial(number, chain, ratios=latency(0.97)))
    lines = screen.lines()
    assert max(map(len, lines)) <= 80
    assert "  and 15 other chains" in lines
    assert lines[3].startswith("  …")


def test_the_model_of_a_sweep_and_the_last_stage_are_shown(screen: Screen) -> None:
    screen.state.model, screen.state.stage = "model 2 of 5: cnn", "measuring the best candidates"
    assert "model 2 of 5: cnn" in screen.lines()
    assert "measuring the best candidates" in screen.lines()


def test_lines_stay_and_the_terminal_is_left_clean(screen: Screen) -> None:
    screen.view.write_line("a note that is longer than the terminal is wide: " + "x" * 80)
    screen.view.write_trial("[1 s]", trial(ratios=latency(0.5), chain="fold" * 40), gains=True)
    screen.view.close()
    written = screen.stream.getvalue()
    assert "x" * 80 in written
    assert "trial 3:   2.0x faster (1.9 to 2.1)" in written
    assert "…" in written
    assert written.rstrip().endswith(("\x1b[?25h", "\x1b[2K")), "the cursor is shown again, the view is erased"


def test_a_long_line_is_broken_between_words() -> None:
    text = "[   4.1 s] data: /a/path/that/is/longer-than-a-line is read"
    lines = ["[   4.1 s] data:", "           /a/path/that/is/longer-than-a-line", "           is read"]
    assert wrapped(text, 24).split("\n") == lines
