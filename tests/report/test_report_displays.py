"""Displays of whole lines."""

from __future__ import annotations

import io
from dataclasses import replace

from progress_cases import FASTER, trial

from autoopt.metrics import Estimate
from autoopt.model.candidate import Candidate
from autoopt.outcome import Outcome
from autoopt.report.progress.displays import Lines, LiveState, failure_line, line_of, trial_line
from autoopt.report.progress.search_progress import SearchProgress


def line(*metrics: str, **values: object) -> str:
    return trial_line(trial(**values), metrics or ("latency_p50",))


def state() -> LiveState:
    return LiveState(SearchProgress(("latency_p50",), "minimize", planned=6, began=0.0))


def test_a_trial_is_one_line_with_its_figures() -> None:
    metrics = {"accuracy": Estimate.exact(0.99), "latency_p50": Estimate.exact(1)}
    assert line(ratios=FASTER, metrics=metrics) == (
        "trial 3:   2.0x faster (1.7 to 2.5)     4.0x smaller  accuracy 99.0 %  a -> b(x=1)"
    )


def test_a_trial_that_shares_a_latency_says_whose() -> None:
    assert line(ratios=FASTER, note="runs the same graph as trial 1") == (
        "trial 3:   2.0x faster (1.7 to 2.5)     4.0x smaller  runs the same graph as trial 1  a -> b(x=1)"
    )


def test_objectives_and_constraints_come_first() -> None:
    metrics = {"throughput": Estimate.exact(100), "accuracy": Estimate.exact(0.99), "latency_p50": Estimate.exact(1)}
    ratios = {**FASTER, "throughput": Estimate.exact(2.0)}
    assert line("throughput", "accuracy", ratios=ratios, metrics=metrics) == (
        "trial 3:   2.0x higher throughput       accuracy 99.0 %  4.0x smaller  a -> b(x=1)"
    )


def test_a_failed_trial_shows_its_message_and_a_later_one_refers_to_it() -> None:
    failed = trial(outcome=Outcome.REFUSED, message="b: K is odd " + "x" * 200)
    assert failure_line(failed, 3) == f"trial 3:   refused: b: K is odd {'x' * 200}"
    assert failure_line(failed, 1) == "trial 3:   refused: b, like trial 1"


def test_a_trial_with_the_model_of_an_earlier_one_only_refers_to_it() -> None:
    search = state().search
    model = Candidate("a" * 64)
    assert "2.0x faster" in line_of(trial(1, candidate=model, ratios=FASTER), search, 100)
    assert line_of(trial(2, candidate=model, ratios=FASTER), search, 100) == "trial 2:   same model as trial 1"
    tuned = Candidate("a" * 64, {"intra_op_num_threads": 1})
    assert "2.0x faster" in line_of(trial(3, candidate=tuned, ratios=FASTER), search, 100)


def test_an_infeasible_trial_shows_the_broken_constraints() -> None:
    metrics = {"accuracy": Estimate.exact(0.5)}
    text = line(violation=0.1, reasons=("accuracy drop of at most 0.01 does not hold",), metrics=metrics)
    assert text == "trial 3:   breaks the limit: accuracy 50.0 %  a -> b(x=1)"


def test_a_line_fits_its_width_and_shows_the_end_of_the_chain() -> None:
    chain = " -> ".join(["simplify"] * 20)
    text = trial_line(trial(chain=chain, ratios=FASTER), ("latency_p50",), 80)
    assert len(text) <= 80
    assert text.endswith("  … simplify -> simplify")


def test_on_a_narrow_screen_whole_figures_are_left_out() -> None:
    metrics = {"accuracy": Estimate.exact(0.99), "latency_p50": Estimate.exact(1)}
    unclear = {**FASTER, "latency_p50": Estimate(1.0, 0.8, 1.2)}
    text = trial_line(trial(ratios=unclear, metrics=metrics), ("latency_p50", "accuracy"), 67)
    assert text == "trial 3:   undecided (0.83x to 1.25x)   accuracy 99.0 %  a -> b"


def test_a_trial_without_work_is_called_reused() -> None:
    assert line(executed=0).endswith("  reused  a -> b(x=1)")


def test_a_file_receives_whole_lines_only() -> None:
    stream = io.StringIO()
    display = Lines(stream, state())
    display.write_line("hello")
    display.update()
    crashed = trial(outcome=Outcome.CRASHED, message="b: signal 6\x1b[2J")
    display.write_trial("[1 s]", crashed, gains=False)
    display.write_trial("[2 s]", replace(crashed, number=4), gains=False)
    display.close()
    lines = ["hello", "[1 s] trial 3:   crashed: b: signal 6\\x1b[2J", "[2 s] trial 4:   crashed: b, like trial 3"]
    assert stream.getvalue().splitlines() == lines
