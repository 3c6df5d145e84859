"""A search in progress in words, and the lines that files and pipes receive."""

from __future__ import annotations

import io
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from progress_cases import FASTER, latency, trial

from autoopt.metrics import Estimate
from autoopt.model.candidate import Candidate
from autoopt.outcome import Outcome
from autoopt.report.search_progress import Lines, LiveState, SearchProgress, failure_line, line_of, trial_line


def test_the_best_value_is_that_of_the_first_objective() -> None:
    search = SearchProgress(("throughput", "accuracy"), goal="maximize", planned=4, began=0.0)
    assert (search.count_text(), search.best_text(), search.time_text(0.0)) == ("0/4 trials", "", "0:00")
    assert not search.add(trial(outcome=Outcome.FAILED))
    assert search.best_text() == "no feasible trial yet"
    assert search.add(trial(ratios={"throughput": Estimate.exact(0.9)}))
    assert search.best_text() == "no gain yet"
    assert search.add(trial(ratios={"throughput": Estimate.exact(1.5)}))
    assert not search.add(trial(ratios={"throughput": Estimate.exact(9.0)}, violation=1.0))
    assert search.best_text() == "1.5x higher throughput"


def test_an_objective_without_a_ratio_is_shown_by_its_value() -> None:
    search = SearchProgress(("accuracy",), goal="maximize", planned=0, began=0.0)
    search.add(trial(metrics={"accuracy": Estimate.exact(0.5)}))
    assert (search.count_text(), search.best_text()) == ("1 trial", "accuracy 50.0 %")


def test_a_trial_that_repeats_a_known_model_does_not_count() -> None:
    search = SearchProgress(("latency_p50",), goal="minimize", planned=5, began=0.0)
    first, other = Candidate("a" * 64), Candidate("b" * 64)
    for candidate, twin in ((first, None), (first, None), (other, first.key), (None, None)):
        search.add(trial(candidate=candidate, twin=twin, ratios=latency(0.5)))
    assert search.count_text() == "2/5 trials"


def test_chains_are_sorted_by_their_best_trial() -> None:
    search = SearchProgress(("latency_p50",), goal="minimize", planned=5, began=0.0)
    for chain, ratio in (("a", 0.9), ("b", 0.3), ("a", 0.2), ("c", 0.5)):
        search.add(trial(chain=chain, ratios=latency(ratio)))
    search.add(trial(chain="d", outcome=Outcome.FAILED))
    assert [(chain.name, chain.trials) for chain in search.best_chains()] == [("a", 2), ("b", 1), ("c", 1)]
    assert len(search.chains) == 4


def test_the_time_left_follows_the_pace_and_ends_at_the_deadline() -> None:
    search = SearchProgress(("latency_p50",), goal="minimize", planned=10, began=0.0, deadline=100.0)
    assert search.time_text(10.0) == "0:10"
    search.add(trial())
    search.add(trial())
    assert search.time_text(10.0) == "0:10, about 0:40 left"
    assert search.pace_text(10.0) == "5.00 s per trial"
    assert search.time_text(80.0) == "1:20, about 0:20 left"


def test_after_a_resume_trials_count_on_and_the_pace_is_that_of_new_ones() -> None:
    search = SearchProgress(("latency_p50",), goal="minimize", planned=10, began=0.0)
    for _ in range(8):
        search.add(trial(executed=0, ratios=latency(0.5)))
    assert (search.count_text(), search.best_text()) == ("8/10 trials", "2.0x faster (1.9 to 2.1)")
    search.add(trial())
    assert search.time_text(7.0) == "0:07, about 0:07 left"


OUTCOMES = st.lists(st.tuples(st.sampled_from("abc"), st.floats(0.1, 3), st.booleans()), max_size=20)
"""Chain, latency ratio, and whether the trial meets the constraints."""


@given(OUTCOMES)
def test_the_best_trial_is_the_fastest_of_the_feasible_ones(trials: list[tuple[str, float, bool]]) -> None:
    search = SearchProgress(("latency_p50",), goal="minimize", planned=len(trials), began=0.0)
    records = 0
    for chain, ratio, feasible in trials:
        records += search.add(trial(chain=chain, ratios=latency(ratio), violation=0.0 if feasible else 1.0))
    feasible_ratios = [ratio for _, ratio, feasible in trials if feasible]
    assert (search.best is None) == (not feasible_ratios)
    if search.best is not None:
        assert search.best.value == min(feasible_ratios)
        assert search.best == search.best_chains()[0].best
    assert records <= len(feasible_ratios)
    assert sum(chain.trials for chain in search.chains.values()) == search.trials == len(trials)


@given(OUTCOMES, st.integers(0, 30))
def test_the_count_of_trials_never_exceeds_the_total_that_it_shows(
    trials: list[tuple[str, float, bool]], planned: int
) -> None:
    search = SearchProgress(("latency_p50",), goal="minimize", planned=planned, began=0.0)
    for chain, ratio, _ in trials:
        search.add(trial(chain=chain, ratios=latency(ratio)))
    count, slash, total = search.count_text().partition(" ")[0].partition("/")
    assert int(count) == len(trials)
    assert bool(slash) == (planned > 0)
    if slash:
        assert int(total) == max(planned, len(trials))


def test_equal_failures_refer_to_the_first_of_them() -> None:
    search = SearchProgress(("latency_p50",), goal="minimize", planned=5, began=0.0)
    numbers = []
    for number, message in ((1, "no kernel"), (2, "too large"), (3, "no kernel"), (4, "too large")):
        failure = trial(number, outcome=Outcome.FAILED, message=message)
        numbers.append(search.first_failure_like(failure))
    assert numbers == [1, 2, 1, 2]


def test_a_gain_is_one_beyond_the_interval() -> None:
    search = SearchProgress(("latency_p50",), goal="minimize", planned=5, began=0.0)
    assert not search.has_gain
    search.add(trial(ratios={"latency_p50": Estimate(0.98, 0.9, 1.05)}))
    assert not search.has_gain
    search.add(trial(ratios={"latency_p50": Estimate(0.9, 0.85, 0.95)}))
    assert search.has_gain


def test_after_the_planned_trials_no_time_is_left_to_tell() -> None:
    search = SearchProgress(("latency_p50",), goal="minimize", planned=1, began=0.0)
    search.add(trial())
    assert search.seconds_left(10.0) is None
    assert search.time_text(10.0) == "0:10"


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
