import io
from typing import Any

from autoopt.metrics import Estimate
from autoopt.outcome import Outcome
from autoopt.report.progress import Progress, trial_line
from autoopt.results import TrialResult


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def result(**values: Any) -> TrialResult:
    return TrialResult(**{"chain": "a -> b", "point": {"b": {"x": 1}}, "outcome": Outcome.OK, "executed": 1, **values})


def line(**values: Any) -> str:
    return trial_line(3, "a -> b", {"b": {"x": 1}}, result(**values))


def end_trial(progress: Progress, best: float | None = None, **values: Any) -> None:
    progress.on_trial_end(3, "a -> b", {"b": {"x": 1}}, result(**values), best)


def test_a_trial_is_one_line_with_its_figures() -> None:
    ratios = {"latency_p50": Estimate(0.5, 0.4, 0.6), "size": Estimate.exact(0.25)}
    metrics = {"accuracy": Estimate.exact(0.99), "latency_p50": Estimate.exact(1)}
    assert line(ratios=ratios, metrics=metrics) == (
        "trial 3: a -> b [b: x=1]: latency_p50 0.500x (0.400..0.600), size 0.250x, accuracy 0.9900"
    )


def test_a_failure_says_why_and_a_broken_constraint_which() -> None:
    assert line(outcome=Outcome.REFUSED, message="b: K is odd").endswith(": refused, b: K is odd")
    assert line(violation=0.1, reasons=("accuracy drops",)).endswith("breaks: accuracy drops")
    assert line(reasons=("accuracy cannot be told: 0.01 to spare",)).endswith(": accuracy cannot be told")
    assert line(executed=0).endswith("reused")


def test_off_a_terminal_only_whole_lines_are_written() -> None:
    stream = io.StringIO()
    clock = iter([0.0, 2.5]).__next__
    with Progress(stream, clock=clock) as progress:
        progress.on_trial_start(3, "a -> b", {})
        progress.on_pass_start(["a"])
        end_trial(progress, outcome=Outcome.CRASHED, message="signal 6\x1b[2J")
    assert stream.getvalue() == "[   2.5 s] trial 3: a -> b [b: x=1]: crashed, signal 6\\x1b[2J\n"


def test_a_terminal_shows_what_goes_on_and_is_left_clean() -> None:
    stream = Terminal()
    with Progress(stream, clock=lambda: 0.0) as progress:
        progress.on_pass_start(["a", "b"])
        assert "a -> b" in stream.getvalue()
        progress.on_pass_end("a", Outcome.OK, 1.0, "")
        progress.on_measure_start("latency")
        assert stream.getvalue().endswith("| 0 trials done; measuring latency")
        end_trial(progress, best=0.5)
        assert "1 trials done, best 0.500x" in stream.getvalue()
    assert stream.getvalue().endswith("\r")


def test_quiet_writes_nothing() -> None:
    stream = Terminal()
    with Progress(stream, quiet=True) as progress:
        end_trial(progress)
        progress.on_note("hello")
    assert stream.getvalue() == ""
