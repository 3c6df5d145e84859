"""The observer behind the displays."""

from __future__ import annotations

import io

import pytest
from progress_cases import latency, trial

from autoopt.metrics import Constraint, Estimate, Objective
from autoopt.outcome import Outcome
from autoopt.report.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")


def test_only_whole_lines_are_written_unless_it_is_a_terminal() -> None:
    stream = io.StringIO()
    clock = iter([0.0, 1.0, 2.5]).__next__
    with Progress(stream, clock=clock) as progress:
        progress.on_trial_start(3, "a -> b", {})
        progress.on_pass_start(["a"])
        progress.on_trial_end(trial(outcome=Outcome.CRASHED, message="signal 6\x1b[2J"), None)
    assert stream.getvalue() == "[   2.5 s] trial 3:   crashed: signal 6\\x1b[2J\n"


def test_the_source_model_is_a_line_with_the_objectives_and_constraints() -> None:
    stream = io.StringIO()
    with Progress(stream, clock=lambda: 0.0) as progress:
        progress.on_search_start([Objective("throughput", "maximize")], [Constraint("accuracy", min=0.5)], 6, 60.0)
        metrics = {"size": 409000.0, "accuracy": 0.995, "throughput": 5800.0, "latency_p50": 0.17}
        progress.on_baseline({name: Estimate.exact(value) for name, value in metrics.items()})
    assert stream.getvalue() == ("[   0.0 s] source model: throughput 5800 items/s, accuracy 99.5 %, size 409 kB\n")


def test_phases_and_notes_are_lines() -> None:
    stream = io.StringIO()
    with Progress(stream, clock=lambda: 0.0) as progress:
        progress.on_phase("model a")
        progress.on_note("hello")
    assert stream.getvalue() == "[   0.0 s] model a\n[   0.0 s] hello\n"
    assert progress.notes == ["hello"]


def test_a_phase_before_the_search_replaces_what_is_read() -> None:
    with Progress(io.StringIO()) as progress:
        progress.opening("reading model.onnx")
        progress.on_phase("starting Prefect")
        assert progress.state.opening == "starting Prefect"
        progress.on_search_start([Objective("latency_p50", "minimize")], [], 6, 60.0)
        assert progress.state.opening == progress.state.stage == ""


def test_quiet_writes_nothing() -> None:
    stream = Terminal()
    with Progress(stream, quiet=True) as progress:
        progress.opening("reading")
        progress.on_trial_end(trial(), None)
        progress.on_note("hello")
    assert stream.getvalue() == ""


def test_a_terminal_shows_the_first_line_before_anything_else_and_is_left_clean() -> None:
    stream = Terminal()
    with Progress(stream, clock=lambda: 0.0) as progress:
        progress.opening("reading model.onnx")
        assert stream.getvalue().startswith("| reading model.onnx\r")
        progress.on_search_start([Objective("latency_p50", "minimize")], [], 6, 60.0)
        progress.on_trial_end(trial(ratios=latency(0.5)), 0.5)
    text = stream.getvalue()
    assert "trial 3:   2.0x faster (1.9 to 2.1)     a -> b(x=1)" in text
    assert text.count("\x1b[?25h") == text.count("\x1b[?25l") == 1, "the cursor is shown again"


@pytest.mark.parametrize("variable", ["NO_COLOR", "live", "TERM"])
def test_colors_and_the_live_view_can_be_turned_off(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    stream = Terminal()
    if variable != "live":
        monkeypatch.setenv(variable, {"NO_COLOR": "1", "TERM": "dumb"}[variable])
    with Progress(stream, clock=lambda: 0.0, live=variable != "live") as progress:
        progress.on_search_start([], [], 6, 60.0)
        progress.on_trial_end(trial(ratios=latency(0.5)), 0.5)
    green = "\x1b[32m"
    assert green not in stream.getvalue()
    assert ("\x1b" in stream.getvalue()) == (variable == "NO_COLOR")


def test_a_new_search_counts_from_zero_and_workers_are_numbered() -> None:
    stream = io.StringIO()
    with Progress(stream, clock=lambda: 0.0) as progress:
        progress.on_trial_end(trial(ratios=latency(0.5)), 0.5)
        progress.on_search_start([Objective("size", "minimize")], [], 2, 60.0)
        assert progress.state.search.count_text() == "0/2 trials"
        progress.on_pass_start(["a", "b"])
        assert progress.state.works[1].text == "applying a -> b"
        progress.on_pass_end("a", Outcome.OK, 1.0, "")
        progress.on_pass_end("b", Outcome.OK, 1.0, "")
        assert progress.state.works == {}
        progress.on_measure_start("latency")
        assert progress.state.works[1].text == "measuring latency"


def test_the_model_of_a_sweep_has_its_place() -> None:
    with Progress(io.StringIO()) as progress:
        progress.on_sweep_start(["a", "b"])
        progress.on_model_start("b")
        assert progress.state.model == "model 2 of 2: b"
