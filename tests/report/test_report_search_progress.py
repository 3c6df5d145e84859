"""The state of a search as displays show it."""

from __future__ import annotations

from progress_cases import latency, trial

from autoopt.metrics import Estimate
from autoopt.outcome import Outcome
from autoopt.report.search_progress import SearchProgress


def test_the_best_value_is_that_of_the_first_objective() -> None:
    search = SearchProgress(("throughput", "accuracy"), goal="maximize", planned=4, began=0.0)
    assert search.texts(0.0) == ["0/4 trials", "0:00"]
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
    assert search.texts(0.0)[:2] == ["1 trial", "accuracy 0.5000"]


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
    assert search.texts(0.0) == ["8/10 trials", "2.0x faster (1.9 to 2.1)", "0:00"]
    search.add(trial())
    assert search.time_text(7.0) == "0:07, about 0:07 left"
