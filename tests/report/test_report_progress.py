import io
from types import SimpleNamespace
from typing import Any

from autoopt.metrics import Estimate
from autoopt.report.progress import Progress, trial_line


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def result(**values: Any) -> SimpleNamespace:
    given = {
        "outcome": "ok",
        "metrics": {},
        "ratios": {},
        "reasons": (),
        "message": "",
        "violation": 0.0,
        "executed": 1,
    }
    return SimpleNamespace(**{**given, **values})


def ended(**values: Any) -> dict[str, Any]:
    return {"number": 3, "chain": "a -> b", "point": {"b": {"x": 1}}, "best": None, "result": result(**values)}


def test_a_trial_is_one_line_with_its_figures() -> None:
    ratios = {"latency_p50": Estimate(0.5, 0.4, 0.6), "size": Estimate.exact(0.25)}
    line = trial_line(
        ended(ratios=ratios, metrics={"accuracy": Estimate.exact(0.99), "latency_p50": Estimate.exact(1)})
    )
    assert line == "trial 3: a -> b [b: x=1]: latency_p50 0.500x (0.400..0.600), size 0.250x, accuracy 0.9900"


def test_a_failure_says_why_and_a_broken_constraint_which() -> None:
    assert trial_line(ended(outcome="refused", message="b: K is odd")).endswith(": refused, b: K is odd")
    assert trial_line(ended(violation=0.1, reasons=("accuracy drops",))).endswith("breaks: accuracy drops")
    assert trial_line(ended(reasons=("accuracy cannot be told: 0.01 to spare",))).endswith(": accuracy cannot be told")
    assert trial_line(ended(executed=0)).endswith("reused")


def test_off_a_terminal_only_whole_lines_are_written() -> None:
    stream = io.StringIO()
    clock = iter([0.0, 2.5]).__next__
    with Progress(stream, clock=clock) as progress:
        progress.event("trial_begins", number=3, chain="a -> b", point={})
        progress.event("pass_begins", passes=["a"])
        progress.event("something_new", x=1)
        progress.event("trial_ends", **ended(outcome="crashed", message="signal 6\x1b[2J"))
    assert stream.getvalue() == "[   2.5 s] trial 3: a -> b [b: x=1]: crashed, signal 6\\x1b[2J\n"


def test_a_terminal_shows_what_goes_on_and_is_left_clean() -> None:
    stream = Terminal()
    with Progress(stream, clock=lambda: 0.0) as progress:
        progress.event("pass_begins", passes=["a", "b"])
        assert "a -> b" in stream.getvalue()
        progress.event("pass_ends", node="a", outcome="ok", seconds=1.0, message="")
        progress.event("measure_begins", meter="latency")
        assert stream.getvalue().endswith("| 0 trials done; measuring latency")
        progress.event("trial_ends", **{**ended(), "best": 0.5})
        assert "1 trials done, best 0.500x" in stream.getvalue()
    assert stream.getvalue().endswith("\r")


def test_quiet_writes_nothing() -> None:
    stream = Terminal()
    with Progress(stream, quiet=True) as progress:
        progress.event("trial_ends", **ended())
        progress.note("hello")
    assert stream.getvalue() == ""
