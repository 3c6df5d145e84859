"""Live progress."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from autoopt.metrics import Constraint, Estimate, Objective
from autoopt.outcome import Outcome
from autoopt.report.progress import Progress, SearchProgress, trial_line
from autoopt.results import Trial, TrialResult

FASTER = {"latency_p50": Estimate(0.5, 0.4, 0.6), "size": Estimate.exact(0.25)}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def result(**values: Any) -> TrialResult:
    return TrialResult(**{"chain": "c", "point": {"b": {"x": 1}}, "outcome": Outcome.OK, "executed": 1, **values})


def trial(**values: Any) -> Trial:
    return Trial(3, "a -> b", result(**values))


def line(*metrics: str, **values: Any) -> str:
    return trial_line(trial(**values), metrics or ("latency_p50",))


def test_a_trial_is_one_line_with_its_figures() -> None:
    metrics = {"accuracy": Estimate.exact(0.99), "latency_p50": Estimate.exact(1)}
    assert line(ratios=FASTER, metrics=metrics) == (
        "trial 3: a -> b [b: x=1]: latency_p50 0.500x (0.400..0.600), size 0.250x, accuracy 0.9900"
    )


def test_objectives_and_constraints_come_first() -> None:
    metrics = {"throughput": Estimate.exact(100), "accuracy": Estimate.exact(0.99), "latency_p50": Estimate.exact(1)}
    ratios = {**FASTER, "throughput": Estimate.exact(2.0)}
    assert line("throughput", "accuracy", ratios=ratios, metrics=metrics).endswith(
        ": throughput 2.000x, accuracy 0.9900, size 0.250x"
    )


def test_a_failed_trial_shows_its_message() -> None:
    assert line(outcome=Outcome.REFUSED, message="b: K is odd").endswith(": refused, b: K is odd")


def test_an_infeasible_trial_shows_the_broken_constraints() -> None:
    assert line(violation=0.1, reasons=("accuracy drops",)).endswith("breaks: accuracy drops")


def test_an_uncertain_constraint_is_shown_without_its_figures() -> None:
    assert line(reasons=("accuracy is not certain: 0.01 left",)).endswith(": accuracy is not certain")


def test_a_trial_without_work_is_called_reused() -> None:
    assert line(executed=0).endswith("reused")


def test_only_whole_lines_are_written_unless_it_is_a_terminal() -> None:
    stream = io.StringIO()
    clock = iter([0.0, 2.5]).__next__
    with Progress(stream, clock=clock) as progress:
        progress.on_trial_start(3, "a -> b", {})
        progress.on_pass_start(["a"])
        progress.on_trial_end(trial(outcome=Outcome.CRASHED, message="signal 6\x1b[2J"), None)
    assert stream.getvalue() == "[   2.5 s] trial 3: a -> b [b: x=1]: crashed, signal 6\\x1b[2J\n"


def test_a_terminal_shows_the_work_in_progress_and_is_left_clean() -> None:
    stream = Terminal()
    with Progress(stream, clock=lambda: 0.0) as progress:
        progress.on_search_start([Objective("latency_p50", "minimize")], [], 6)
        progress.on_pass_start(["a", "b"])
        assert "a -> b" in stream.getvalue()
        progress.on_pass_end("a", Outcome.OK, 1.0, "")
        progress.on_measure_start("latency")
        assert stream.getvalue().endswith("| 0/6 trials · 0:00 · measuring latency")
        progress.on_measure_end("latency", Outcome.OK, 1.0)
        progress.on_trial_end(trial(ratios=FASTER), 0.5)
        assert "1/6 trials · best latency_p50 0.500x · 0:00, about 0:00 left · waiting" in stream.getvalue()
    assert stream.getvalue().endswith("\r")


def test_the_source_model_is_a_line_with_the_objectives_and_constraints() -> None:
    stream = io.StringIO()
    with Progress(stream, clock=lambda: 0.0) as progress:
        progress.on_search_start([Objective("throughput", "maximize")], [Constraint("accuracy", min=0.5)], 6)
        metrics = {"size": 409000.0, "accuracy": 0.995, "throughput": 5800.0, "latency_p50": 0.17}
        progress.on_baseline({name: Estimate.exact(value) for name, value in metrics.items()})
    assert stream.getvalue() == ("[   0.0 s] source model: throughput 5800 items/s, accuracy 0.9950, size 409 kB\n")


def test_phases_and_notes_are_lines() -> None:
    stream = io.StringIO()
    with Progress(stream, clock=lambda: 0.0) as progress:
        progress.on_phase("model a")
        progress.on_note("hello")
    assert stream.getvalue() == "[   0.0 s] model a\n[   0.0 s] hello\n"


def test_quiet_writes_nothing() -> None:
    stream = Terminal()
    with Progress(stream, quiet=True) as progress:
        progress.on_trial_end(trial(), None)
        progress.on_note("hello")
    assert stream.getvalue() == ""


def texts(search: SearchProgress, now: float = 0.0) -> Iterator[str]:
    return iter(search.texts(now))


def test_the_best_value_is_that_of_the_first_objective() -> None:
    search = SearchProgress(("throughput", "accuracy"), goal="maximize", budget=4, began=0.0)
    assert list(texts(search)) == ["0/4 trials", "0:00"]
    search.add(result(ratios={"throughput": Estimate.exact(0.9)}))
    assert search.texts(10.0) == ["1/4 trials", "no gain yet", "0:10, about 0:30 left"]
    search.add(result(ratios={"throughput": Estimate.exact(1.5)}))
    search.add(result(ratios={"throughput": Estimate.exact(9.0)}, violation=1.0))
    assert search.texts(10.0)[1] == "best throughput 1.500x"


def test_an_objective_without_a_ratio_is_shown_by_its_value() -> None:
    search = SearchProgress(("accuracy",), goal="maximize", budget=0, began=0.0)
    search.add(result(outcome=Outcome.FAILED))
    assert search.texts(0.0)[:2] == ["1 trials", "no feasible trial yet"]
    search.add(result(metrics={"accuracy": Estimate.exact(0.5)}))
    assert search.texts(0.0)[1] == "best accuracy 0.5000"


def test_a_new_search_counts_from_zero() -> None:
    stream = Terminal()
    with Progress(stream, clock=lambda: 0.0) as progress:
        progress.on_trial_end(trial(ratios=FASTER), 0.5)
        progress.on_search_start([Objective("size", "minimize")], [Constraint("accuracy", min=0.5)], 2)
        progress.on_trial_start(0, "a", {})
        assert stream.getvalue().endswith("| 0/2 trials · 0:00 · trial 0 a")


def test_what_goes_on_before_anything_is_known_is_shown_on_a_terminal_only() -> None:
    terminal, file = Terminal(), io.StringIO()
    Progress(terminal).opening("reading model.onnx")
    assert "reading model.onnx" in terminal.getvalue()
    Progress(file).opening("reading model.onnx")
    assert file.getvalue() == ""
