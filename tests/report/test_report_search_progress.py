"""The state of a search as displays show it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from progress_cases import latency, trial

from autoopt.metrics import Estimate
from autoopt.model.candidate import Candidate
from autoopt.outcome import Outcome
from autoopt.report.progress.search_progress import SearchProgress


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
